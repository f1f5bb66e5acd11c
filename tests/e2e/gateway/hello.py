# SPDX-License-Identifier: Apache-2.0
"""ClientHello messages as no library writes them, and what the first flight of a server says."""
import os
import ssl
import struct

SNI, PADDING, ECH = 0, 21, 0xfe0d
ALERT, SERVER_HELLO, CERTIFICATE = 21, 2, 11
UNRECOGNIZED_NAME = 112


def extension(kind, data):
    return struct.pack("!HH", kind, len(data)) + data


def server_name(host):
    return extension(SNI, struct.pack("!HBH", len(host) + 3, 0, len(host)) + host.encode())


def ech():
    """An outer one, as browsers send it, with or without a key: nobody outside can tell."""
    return extension(ECH, b"\0" + struct.pack("!HHB", 1, 1, 7) + struct.pack("!H", 32) + os.urandom(32) + struct.pack("!H", 144) + os.urandom(144))


def client_hello(*extensions):
    """The message, of TLS 1.2, so that the answer can be read. The extensions that elliptic curves need are added."""
    more = extension(10, b"\0\4\0\x17\0\x18") + extension(11, b"\1\0") + extension(13, b"\0\6\4\3\5\3\6\3")
    extensions = b"".join(extensions) + more
    body = b"\3\3" + os.urandom(32) + b"\0" + struct.pack("!HHH", 4, 0xc02b, 0xc02c) + b"\1\0"
    body += struct.pack("!H", len(extensions)) + extensions
    return b"\1" + len(body).to_bytes(3, "big") + body


def records(message, size=16384):
    """The message in TLS records of at most that many bytes."""
    parts = [message[i:i + size] for i in range(0, len(message), size)]
    return [b"\x16\3\1" + struct.pack("!H", len(part)) + part for part in parts]


def first_flight(sock):
    """What the server answers: {message type: body}, or its alert's description as a number. None: it closed."""
    stream, messages, found = sock.makefile("rb"), b"", {}
    while CERTIFICATE not in found:
        try:
            head = stream.read(5)
            body = stream.read(struct.unpack("!H", head[3:])[0]) if len(head) == 5 else b""
        except ConnectionResetError:
            return None
        if not body:
            return None
        if head[0] == ALERT:
            return body[1]
        messages += body
        while len(messages) >= 4 and len(messages) >= 4 + int.from_bytes(messages[1:4], "big"):
            n = 4 + int.from_bytes(messages[1:4], "big")
            found[messages[0]], messages = messages[4:n], messages[n:]
    return found


def leaf(flight):
    """The server's own certificate in a first flight, in DER."""
    body = flight[CERTIFICATE]
    n = int.from_bytes(body[3:6], "big")
    return body[6:6 + n]


def leaf_pem(flight):
    return ssl.DER_cert_to_PEM_cert(leaf(flight))
