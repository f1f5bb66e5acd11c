# SPDX-License-Identifier: Apache-2.0
"""A client of HTTP/2 that sends whatever frames it is told to, and reads what comes back."""
import struct

from hpack import Decoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
WINDOW_PIECE = 32768  # bytes
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, ENHANCE_YOUR_CALM = 0, 1, 2, 11


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A field that HPACK neither compresses nor indexes."""
    def text(s):
        n = len(s)
        if n < 127:
            return bytes([n]) + s
        out, n = bytes([127]), n - 127
        while n >= 128:
            out, n = out + bytes([n % 128 | 128]), n // 128
        return out + bytes([n]) + s
    return b"\0" + text(name) + text(value)


def block(fields):
    return b"".join(literal(*(x.encode("latin-1") if isinstance(x, str) else x for x in f)) for f in fields)


class Stream:
    def __init__(self):
        self.fields, self.trailers, self.body, self.ended, self.reset = [], None, b"", False, None
        self.informed, self.room, self.taken = False, 65535, 0

    @property
    def status(self):
        return int(dict(self.fields)[":status"])

    @property
    def over(self):
        return self.ended or self.reset is not None


class Client:
    def __init__(self, lab, world, host="api.test", settings=b"", port=None):
        self.authority = f"{host}:{port or world.port}"
        self.sock = lab.tls(host, port or world.port, alpn=["h2"])
        assert self.sock.selected_alpn_protocol() == "h2"
        self.decoder = Decoder()
        self.buffer, self.streams, self.next = b"", {}, 1
        self.goaway = self.closed = None
        self.pongs, self.window, self.taken = 0, True, 0
        self.send(PREFACE + frame(SETTINGS, payload=settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            self.closed = True

    def head(self, path="/", method="GET", **more):
        return [(":method", method), (":scheme", "https"), (":authority", self.authority), (":path", path), *more.items()]

    def open(self, fields, end=True, flags=END_HEADERS):
        """Sends HEADERS on a new stream; its number."""
        stream, self.next = self.next, self.next + 2
        self.streams[stream] = Stream()
        self.send(frame(HEADERS, flags | (END_STREAM if end else 0), stream, block(fields)))
        return stream

    def data(self, stream, payload=b"", end=False):
        self.send(frame(DATA, END_STREAM if end else 0, stream, payload))

    def upload(self, number, body):
        """The whole body, as the windows open; its end too."""
        sent = 0
        while sent < len(body):
            stream, connection = self.streams[number], self.streams.setdefault(0, Stream())
            n = min(16384, len(body) - sent, stream.room, connection.room)
            if n:
                stream.room, connection.room, sent = stream.room - n, connection.room - n, sent + n
                self.data(number, body[sent - n:sent], end=sent == len(body))
            else:
                assert self.read_frame() is not None, f"the connection ended (GOAWAY {self.goaway})"

    def read_frame(self):
        """Takes in one frame; None at the end."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            try:
                chunk = self.sock.recv(65536)
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = True
                return None
            self.buffer += chunk
        n = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
        payload, self.buffer = self.buffer[9:9 + n], self.buffer[9 + n:]
        self._take(kind, flags, stream, payload)
        return kind

    def _take(self, kind, flags, number, payload):
        stream = self.streams.setdefault(number, Stream())
        if kind == HEADERS:
            assert flags & END_HEADERS
            fields = self.decoder.decode(payload)
            if dict(fields).get(":status", "").startswith("1"):
                stream.informed = True
            elif stream.fields:
                stream.trailers = fields
            else:
                stream.fields = fields
        elif kind == DATA:
            stream.body += payload
            if self.window:
                self.taken += len(payload)
                stream.taken += len(payload)
                self.give_back(number, stream, flags)
        elif kind == WINDOW_UPDATE:
            stream.room += int.from_bytes(payload, "big")
        elif kind == RST_STREAM:
            stream.reset = int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK))
        elif kind == PING and flags & ACK:
            self.pongs += 1
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            stream.ended = True

    def give_back(self, number, stream, flags):
        """In large pieces, as clients do, for a server fills whatever window there is: small pieces would stay small."""
        if self.taken >= WINDOW_PIECE:
            self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self.taken)))
            self.taken = 0
        if stream.taken >= WINDOW_PIECE and not flags & END_STREAM:
            self.send(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", stream.taken)))
            stream.taken = 0

    def wait(self, number):
        """Until the stream is over."""
        while not self.streams[number].over:
            assert self.read_frame() is not None, f"the connection ended (GOAWAY {self.goaway})"
        return self.streams[number]

    def ask(self, path="/", method="GET", body=None, extra=()):
        stream = self.open(self.head(path, method) + list(extra), end=body is None)
        if body is not None:
            self.data(stream, body, end=True)
        return self.wait(stream)

    def wait_end(self):
        """Until the gateway closes; the error of its GOAWAY."""
        while self.read_frame() is not None:
            pass
        return self.goaway
