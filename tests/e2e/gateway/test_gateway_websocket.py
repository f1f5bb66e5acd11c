# SPDX-License-Identifier: Apache-2.0
"""WebSocket: a handshake that is judged like any request, and bytes only when both ends have agreed."""
import base64
import contextlib
import hashlib
import os
import threading

import pytest

from lab import Response, read_all

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = base64.b64encode(b"0123456789abcdef").decode()
SECRET = [{"name": "T", "value": "value-of-t", "hosts": ["key.test"]}]


def accept(key):
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()


def policy(world, *rules, **members):
    return {"egress": [{"host": "api.test", "ports": [world.port], **rule} for rule in rules or ({},)],
            "resolve": [world.pin(h, world.outside) for h in ("api.test", "key.test", "plain.test")], **members}


def head(world, path="/ws", fields=(), host="api.test", key=KEY, port=None, method="GET"):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port or world.port}", "Connection: keep-alive, Upgrade", "Upgrade: websocket",
             "Sec-WebSocket-Version: 13", *([f"Sec-WebSocket-Key: {key}"] if key else []), *fields, "", ""]
    return "\r\n".join(lines).encode()


class Server:
    """Agrees, or answers what it is told to, then echoes bytes until the end; says what it has heard."""

    def __init__(self, server, path="/ws", answer=None, fields=(), early=b""):
        self.answer, self.fields, self.early = answer, fields, early
        self.heard, self.asked, self.ended = b"", threading.Event(), threading.Event()
        server.script[path] = self._serve

    def _serve(self, connection, request):
        self.request = request
        lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket",
                 f"Sec-WebSocket-Accept: {accept(request.get('Sec-WebSocket-Key') or '')}", *self.fields, "", ""]
        self.asked.set()
        try:
            connection.send((self.answer or "\r\n".join(lines).encode()) + self.early)
            while connection.buffer or connection.fill():
                self.heard += connection.buffer
                data, connection.buffer = connection.buffer, b""
                connection.send(data)
        except OSError:
            pass
        self.ended.set()
        return False


def switched(sock):
    """The head of the answer, which must be a 101, and what came behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        assert more, data
        data += more
    top, _, rest = data.partition(b"\r\n\r\n")
    lines = top.decode().split("\r\n")
    assert lines[0].startswith("HTTP/1.1 101"), top
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}, rest


def exactly(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        assert more, data
        data += more
    return data


@pytest.mark.conformance("http1: upgrade")
def test_websocket_bytes_pass_both_ways_after_a_right_handshake(own_lab, world):
    lab = own_lab(policy(world, {"paths": ["/ws"]}))
    server = Server(world.https, fields=["Sec-WebSocket-Protocol: chat", "Sec-WebSocket-Extensions: permessage-deflate"], early=b"\x81\x02hi")
    with lab.tls("api.test", world.port) as sock:
        since = lab.mark()
        sock.sendall(head(world, fields=["Sec-WebSocket-Protocol: soap, chat", "Sec-WebSocket-Extensions: permessage-deflate", "Origin: x"]))
        fields, rest = switched(sock)
        assert fields["upgrade"].lower() == "websocket" and "upgrade" in fields["connection"].lower()
        assert fields["sec-websocket-accept"] == accept(KEY)
        assert fields["sec-websocket-protocol"] == "chat" and fields["sec-websocket-extensions"] == "permessage-deflate"
        assert (rest + exactly(sock, 4 - len(rest))) == b"\x81\x02hi"
        for data in (b"\x81\x05hello", *(os.urandom(20000) for _ in range(10))):
            sock.sendall(data)  # one thread alone may use a TLS connection
            assert exactly(sock, len(data)) == data
        with contextlib.suppress(OSError):  # the server closes without a word of TLS, which cuts
            sock.unwrap()
    asked = server.request
    assert asked.get("Upgrade").lower() == "websocket" and "upgrade" in asked.get("Connection").lower()
    assert asked.get("Sec-WebSocket-Key") == KEY and asked.get("Sec-WebSocket-Protocol") == "soap, chat"
    start = lab.wait_record("egress.request", since)
    assert (start["method"], start["path"], start["upgrade"]) == ("GET", "/ws", "websocket")
    end = lab.wait_record("egress.response", since, id=start["id"])
    assert (end["status"], end["bytes_up"], end["bytes_down"]) == (101, 200007, 200011)


@pytest.mark.conformance("http1: upgrade")
@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAA\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Accept: %s\r\n\r\n" % accept(KEY).encode(),
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n" % accept(KEY).encode(),
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n"
    b"Sec-WebSocket-Protocol: unasked\r\n\r\n" % accept(KEY).encode()],
    ids=["none", "wrong", "other", "no-connection", "protocol"])
def test_websocket_no_byte_passes_after_a_wrong_handshake(own_lab, world, answer):
    lab = own_lab(policy(world))
    server = Server(world.https, answer=answer, early=b"not for the guest")
    with lab.tls("api.test", world.port) as sock:
        since = lab.mark()
        sock.sendall(head(world) + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        data = read_all(sock)
    assert data.startswith(b"HTTP/1.1 502") and b"not for the guest" not in data
    assert server.ended.wait(20) and server.heard == b""
    assert lab.wait_record("egress.response", since, status=502)["error"]
    assert all(r.target != "/smuggled" for r in world.https.requests)


def test_websocket_a_server_may_say_no(own_lab, world):
    lab = own_lab(policy(world))
    Server(world.https, answer=b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world))
        answer = Response(sock)
        assert (answer.status, answer.body) == (401, b"no")


@pytest.mark.parametrize("wrong", [
    {"key": None}, {"key": "AAAA"}, {"key": KEY[:-3] + "Z=="}, {"method": "POST"}, {"fields": ["Sec-WebSocket-Version: 8"]},
    {"fields": [f"Sec-WebSocket-Key: {KEY}"]}, {"fields": ["Content-Length: 3"]}],
    ids=["no-key", "short", "spare-bits", "post", "version", "two-keys", "body"])
def test_websocket_a_wrong_request_is_refused(own_lab, world, wrong):
    lab = own_lab(policy(world))
    with lab.tls("api.test", world.port) as sock:
        since = lab.mark()
        sock.sendall(head(world, **wrong))
        assert read_all(sock).startswith(b"HTTP/1.1 400")
    lab.wait_record("egress.deny", since, host="api.test")
    assert not world.https.requests


def test_websocket_is_judged_by_its_path(own_lab, world):
    lab = own_lab(policy(world, {"methods": ["GET"], "paths": ["/ws"]}))
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/other"))
        answer = Response(sock)
        assert answer.status == 403 and answer.json()["path"] == "/other"
    assert not world.https.requests


def test_websocket_a_credential_is_put_in(own_lab, world):
    lab = own_lab(policy(world, {"host": "key.test"}), SECRET)
    server = Server(world.https)
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(head(world, host="key.test", fields=["Authorization: Bearer mine"]))
        switched(sock)
    assert server.request.all("Authorization") == ["Bearer value-of-t"]
    assert lab.wait_record("egress.request")["credential"] == "T"


def test_websocket_over_plain_http_where_a_rule_says_so(own_lab, world):
    rule = {"host": "plain.test", "ports": [world.http_port], "scheme": "http"}
    lab = own_lab(policy(world, rule))
    Server(world.http)
    with lab.connect("plain.test", world.http_port) as sock:
        sock.sendall(head(world, host="plain.test", port=world.http_port))
        switched(sock)
        sock.sendall(b"frame")
        assert exactly(sock, 5) == b"frame"


@pytest.mark.conformance("http1: upgrade", "credentials: revoked")
def test_websocket_ends_with_the_leave(own_lab, world):
    lab = own_lab(policy(world))
    server = Server(world.https)
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world))
        switched(sock)
        sock.sendall(b"one")
        assert exactly(sock, 3) == b"one"
        lab.set_policy(policy(world, {"paths": ["/ws"]}))
        sock.sendall(b"two")
        assert exactly(sock, 3) == b"two"
        since = lab.mark()
        lab.set_policy(policy(world, {"paths": ["/other"]}))
        assert read_all(sock) == b"" and server.ended.wait(20)
        assert server.heard == b"onetwo"
        lab.wait_record("egress.deny", since, path="/ws")
        end = lab.wait_record("egress.response", since)
        assert (end["status"], end["bytes_up"], end["bytes_down"]) == (101, 6, 6) and end["error"]


def test_websocket_is_charged_to_the_limits(own_lab, world):
    lab = own_lab(policy(world, {"limits": {"bytesUp": 1000, "connections": 1}}))
    server = Server(world.https)
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world))
        switched(sock)
        assert lab.get("api.test", world.port).status == 429
        sock.sendall(b"x" * 100)
        assert exactly(sock, 100) == b"x" * 100
        since = lab.mark()
        sock.sendall(b"y" * 1000)
        assert b"y" not in read_all(sock)
        assert server.ended.wait(20) and b"y" not in server.heard
        lab.wait_record("egress.deny", since, limit="bytesUp")
        assert lab.wait_record("egress.response", since, status=101)["bytes_up"] == 100


def test_websocket_a_guest_that_goes_ends_it(own_lab, world):
    lab = own_lab(policy(world))
    server = Server(world.https)
    sock = lab.tls("api.test", world.port)
    sock.sendall(head(world))
    switched(sock)
    sock.close()
    assert server.ended.wait(20)
    lab.wait_record("egress.response")


def test_websocket_h2c_and_others_are_not_passed_on(own_lab, world):
    lab = own_lab(policy(world))
    for upgrade in ("h2c", "TLS/1.0", "websockets", "connect-udp"):
        answer = lab.get("api.test", world.port, fields=["Connection: Upgrade", f"Upgrade: {upgrade}"])
        assert answer.status == 200
        assert "upgrade" not in {k.lower() for k, _ in answer.json()["fields"]}
