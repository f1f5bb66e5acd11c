# SPDX-License-Identifier: Apache-2.0
"""Servers of HTTP/2 behind the gateway, and what hostile ones get."""
import contextlib
import http.client
import socket
import ssl
import struct
import threading
import time
import urllib.parse

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
import pytest
from hpack.hpack import decode_integer

from h2client import Client
from lab import TIMEOUT
from upstream import Upstream
from world import SECRET

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PUSH, PING, CONTINUATION = 0, 1, 5, 6, 9
REFUSED, INTERNAL = 7, 2


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class Server:
    """behave(connection, socket, event) answers each request; True: the connection is closed. greet(number, socket) comes
    before TLS, likewise. most: requests at once."""

    def __init__(self, world, behave, name, greet=None, most=100):
        self._greet, self._most = greet or (lambda number, sock: False), most
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*world.outside.server(name, ["api.test", "key.test"]))
        self._tls.set_alpn_protocols(["h2", "http/1.1"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._behave, self.connections, self.requests, self.heard = behave, 0, [], {}
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(sock, self.connections), daemon=True).start()

    def _serve(self, sock, number):
        if self._greet(number, sock):
            sock.close()
            return
        with contextlib.suppress(OSError, h2.exceptions.ProtocolError), self._tls.wrap_socket(sock, server_side=True) as s:
            c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
            c.local_settings = h2.settings.Settings(client=False, initial_values={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._most})
            c.number = number
            c.initiate_connection()
            s.sendall(c.data_to_send())
            while data := s.recv(65536):
                self.heard[c.number] = self.heard.get(c.number, b"") + data
                for event in c.receive_data(data):
                    if not isinstance(event, h2.events.RequestReceived):
                        continue
                    self.requests.append(event)
                    if self._behave(c, s, event):
                        return
                s.sendall(c.data_to_send())


def answer(c, _sock, event):
    c.send_headers(event.stream_id, [(":status", "200"), ("content-length", "2")])
    c.send_data(event.stream_id, b"ok", end_stream=True)


def reset(c, _sock, event):
    c.reset_stream(event.stream_id, INTERNAL)


def refuse_first(c, sock, event):
    if c.number == 1:
        c.reset_stream(event.stream_id, REFUSED)
    else:
        answer(c, sock, event)


def go_away_first(c, sock, event):
    if c.number == 1:
        c.close_connection(last_stream_id=0)
    else:
        answer(c, sock, event)


def ping(_c, sock, _event):
    for _ in range(100):
        sock.sendall(frame(PING, 0, 0, b"x" * 8) * 100)


def push(_c, sock, event):
    sock.sendall(frame(PUSH, 4, event.stream_id, struct.pack(">I", 2) + b"\x82\x87\x84\x41\x01a"))


def hint_forever(c, sock, event):
    for _ in range(12):
        sock.sendall(frame(HEADERS, 4, event.stream_id, b"\x00\x07:status\x03103"))
    answer(c, sock, event)


def drop(_c, _sock, _event):
    return True


def cut_short(c, sock, event):
    head = frame(HEADERS, 4, event.stream_id, b"\x00\x07:status\x03200\x00\x0econtent-length\x019")
    sock.sendall(c.data_to_send() + head + frame(DATA, 1, event.stream_id, b"ab"))


def head(*fields):
    """A head, whatever it says."""
    def behave(c, sock, event):
        block = b"".join(b"\x00" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in fields)
        sock.sendall(c.data_to_send() + frame(HEADERS, 5, event.stream_id, block))
    return behave


OK = (b":status", b"200")
BROKEN = {
    "reset": reset, "pings": ping, "pushed": push, "interim": hint_forever, "dropped": drop,
    "no-status": head((b"a", b"b")), "upper-case": head(OK, (b"Aa", b"b")), "connection": head(OK, (b"connection", b"x")),
    "two-statuses": head(OK, OK), "late": head((b"a", b"b"), OK), "unknown": head(OK, (b":x", b"b")),
    "switching": head((b":status", b"101")), "crlf": head(OK, (b"a", b"b\r\nc: d")),
}


@pytest.fixture
def start(own_lab, world):
    with contextlib.ExitStack() as stack:
        def make(behave, name, host="api.test", secrets=None, **kwargs):
            server = stack.enter_context(contextlib.closing(Server(world, behave, name, **kwargs)))
            rules = [{"host": host, "ports": [server.port]}]
            return server, own_lab({"egress": rules, "resolve": [world.pin(host, world.outside)]}, secrets)
        yield make


def test_http2_server_is_asked_over_one_connection(start):
    server, lab = start(answer, "one")
    for _ in range(5):
        assert lab.get("api.test", server.port).status == 200
    assert (server.connections, len(server.requests)) == (1, 5)


@pytest.mark.parametrize("behave", [refuse_first, go_away_first])
def test_http2_request_that_was_not_processed_is_sent_again(start, behave):
    server, lab = start(behave, behave.__name__)
    assert lab.get("api.test", server.port).status == 200
    assert server.connections == 2


# -- many requests at once, to a host that no connection leads to yet --

def hang_first(number, sock):
    """Until the gateway gives the connection up."""
    return number == 1 and not sock.recv(1 << 16, socket.MSG_WAITALL)


def burst(lab, world, server, n):
    client = Client(lab, world, port=server.port)
    return client, [client.open(client.head(f"/{i}")) for i in range(n)]


def test_http2_burst_makes_one_connection(start, world):
    server, lab = start(answer, "burst")
    client, streams = burst(lab, world, server, 40)
    assert {client.wait(s).status for s in streams} == {200}
    assert (server.connections, len(server.requests)) == (1, 40)


def test_http2_burst_is_more_than_the_server_takes_at_once(start, world):
    server, lab = start(answer, "most", most=3)
    client, streams = burst(lab, world, server, 20)
    assert {client.wait(s).status for s in streams} == {200}
    assert len(server.requests) == 20


def test_http2_burst_whose_first_connection_fails_makes_another(start, world):
    server, lab = start(answer, "fails", greet=lambda number, sock: number == 1)
    client, (first, *others) = burst(lab, world, server, 10)
    assert client.wait(first).status == 502
    assert {client.wait(s).status for s in others} == {200}
    assert server.connections == 2


def test_http2_burst_whose_first_connection_hangs_does_not_wait_for_it(start, world):
    server, lab = start(answer, "hangs", greet=hang_first)
    client, (first, *others) = burst(lab, world, server, 10)
    assert {client.wait(s).status for s in others} == {200}
    assert not client.streams[first].over


def test_http2_burst_that_waits_obeys_a_new_policy(start, world):
    server, lab = start(answer, "policy", greet=hang_first)
    client, streams = burst(lab, world, server, 10)
    lab.wait(lambda: sum(r["kind"] == "egress.request" for r in lab.records) == 10)
    rule = {"host": "api.test", "ports": [server.port]}
    lab.set_policy({"egress": [{**rule, "paths": ["/1", "/2"]}], "resolve": [world.pin("api.test", world.outside)]})
    found = [client.wait(s).status for s in streams]
    assert found == [403, 200, 200] + [403] * 7
    assert sorted(dict(r.headers)[":path"] for r in server.requests) == ["/1", "/2"]


def test_http1_servers_are_not_waited_for_once_they_are_known(world, own_lab):
    """All of a burst is dialled at once: the server lets none go on before all are there."""
    class Together(Upstream):
        together = threading.Barrier(1)

        def _serve(self, sock, number):
            self.together.wait(TIMEOUT)
            self.accepted = time.monotonic()
            super()._serve(sock, number)

    with contextlib.closing(Together(tls=world.outside.server("together", ["api.test"]))) as server:
        server.script["/first"] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        lab = own_lab({"egress": [{"host": "api.test", "ports": [server.port]}], "resolve": [world.pin("api.test", world.outside)]})
        assert lab.get("api.test", server.port, "/first").status == 200
        server.together = threading.Barrier(8)
        begun = time.monotonic()
        client, streams = burst(lab, world, server, 8)
        assert {client.wait(s).status for s in streams} == {200}
        assert server.accepted - begun < 0.9, "less than what a request waits for another's connection"


@pytest.mark.parametrize("name", BROKEN)
def test_http2_server_that_breaks_the_protocol_costs_its_request(start, name):
    server, lab = start(BROKEN[name], name)
    assert lab.get("api.test", server.port).status == 502
    assert server.requests
    assert lab.get("api.test", server.port).status == 502


def test_http2_answer_that_is_cut_short_does_not_seem_whole(start):
    server, lab = start(cut_short, "short")
    with contextlib.suppress(http.client.HTTPException, OSError):
        found = lab.get("api.test", server.port)
        assert found.status != 200 or len(found.body) != 9


def blocks(data):
    """The header blocks among a client's bytes, as they are."""
    assert data.startswith(PREFACE)
    data, found = data[len(PREFACE):], []
    while data:
        n, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
        payload, data = data[9:9 + n], data[9 + n:]
        if kind == HEADERS:
            padding = payload[0] if flags & 8 else 0
            found.append(payload[(flags >> 3 & 1) + (5 if flags & 32 else 0):len(payload) - padding])
        elif kind == CONTINUATION:
            found[-1] += payload
    return found


def representations(block):
    """A header block cut into its representations (RFC 7541, section 6)."""
    at = 0
    while at < len(block):
        start, first = at, block[at]
        literal = first < 0x20 or 0x40 <= first < 0x80
        index, used = decode_integer(block[at:], 7 if first & 0x80 else 6 if first & 0x40 else 5 if first & 0x20 else 4)
        at += used
        for _ in range((1 if index else 2) if literal else 0):
            length, used = decode_integer(block[at:], 7)
            at += used + length
        yield block[start:at]


@pytest.mark.conformance("http2: never-indexed")
@pytest.mark.parametrize("inject, name, sent", [
    ({"kind": "bearer"}, "authorization", "Bearer " + SECRET),
    ({"kind": "header", "name": "X-Foo", "template": "v {}"}, "x-foo", "v " + SECRET),
    ({"kind": "placeholder", "header": "X-Foo"}, "x-foo", "mine: " + SECRET),
    ({"kind": "query", "name": "k"}, ":path", "/?k=" + urllib.parse.quote(SECRET, safe=""))],
    ids=["bearer", "header", "placeholder", "query"])
def test_http2_credential_is_never_indexed(start, inject, name, sent):
    secrets = [{"name": "T", "value": SECRET, "hosts": ["key.test"], "inject": inject, "variables": {"T": "sp_T_0123456789"}}]
    server, lab = start(answer, "indexed", "key.test", secrets)
    own = ["Authorization: Bearer own", "X-Other: seen"] + (["X-Foo: mine: sp_T_0123456789"] if name == "x-foo" else [])
    for _ in range(3):
        assert lab.get("key.test", server.port, fields=own).status == 200
    assert server.connections == 1
    decoder, credentials, others = hpack.Decoder(), [], []
    for block in blocks(server.heard[1]):
        for piece in representations(block):
            for found, value in decoder.decode(piece):
                (credentials if found == name else others).append((found, value, piece[0]))
        table = b" ".join(value for _, value in decoder.header_table.dynamic_entries)
        assert SECRET.encode() not in table and sent.encode() not in table
    assert [value for _, value, _ in credentials] == [sent] * 3
    assert all(first >> 4 == 1 for _, _, first in credentials), "RFC 7541, section 6.2.3"
    assert [first >> 6 for found, _, first in others if found == "x-other"] == [1, 2, 2], "other fields are indexed"
