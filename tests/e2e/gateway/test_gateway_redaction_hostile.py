# SPDX-License-Identifier: Apache-2.0
"""Guests that work to learn a value from what the host of a grant sends back."""
import threading

import pytest

from lab import read_all
from test_gateway_grants import entry, policy, tell
from test_gateway_websocket import Server as WebSocket, exactly, head as websocket_head, switched
from test_gateway_websocket_guard import frame
from upstream import response

VALUE = "Xy7-abcdefGHIJKLmnopqrst0123"
STARS = "*" * len(VALUE)


@pytest.fixture
def start(own_lab, world):
    return lambda *entries: own_lab(policy(world), list(entries or [entry(value=VALUE)]))


@pytest.mark.parametrize("name", ["Content-Encoding", "grpc-encoding", "connect-content-encoding"])
def test_refusal_does_not_repeat_what_the_server_says(start, world, name):
    lab = start()
    world.https.script["/echo"] = response(b"x", fields=[f"{name}: {VALUE}"])
    answer = lab.get("key.test", world.port, "/echo")
    assert answer.status == 502 and "not asked for" in answer.json()["message"]
    assert VALUE.encode() not in answer.body
    done = lab.wait_record("egress.response")
    assert "not asked for" in done["error"] and VALUE not in str(done)


# -- what is open when a host gets a grant --

BEFORE = "a credential was granted for this host, and this connection began before"


class Open:
    """An answer of which the guest has the first bytes; the server sends the others when it is told to."""

    def __init__(self, lab, world, host="key.test"):
        self.text, self.told = b"", threading.Event()
        world.https.script["/open"] = self._serve
        self.sock = lab.tls(host, world.port)
        self.sock.sendall(f"GET /open HTTP/1.1\r\nHost: {host}:{world.port}\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while b"first" not in data:
            data += self.sock.recv(65536)

    def _serve(self, connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        self.told.wait(20)
        try:
            connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(self.text), self.text))
        except OSError:
            pass
        return False

    def rest(self, text):
        self.text = text
        self.told.set()
        return read_all(self.sock)


def test_put_cuts_what_began_before(own_lab, world):
    lab = own_lab(policy(world), [])
    answer, other = Open(lab, world), Open(lab, world, "other.test")
    tell(lab, put=entry(value=VALUE))
    lab.wait_record("egress.deny", reason=BEFORE, host="key.test")
    assert lab.wait_record("egress.response", error=BEFORE)["bytes_down"] == 5
    assert VALUE.encode() not in answer.rest(VALUE.encode())
    assert b"of another host" in other.rest(b"of another host")
    later = Open(lab, world)
    tell(lab, put=entry("OTHER", hosts=["other.test"], value="another-value-0123"))
    assert STARS.encode() in later.rest(VALUE.encode())


def test_put_cuts_a_websocket_that_began_before(own_lab, world):
    lab = own_lab(policy(world), [])
    WebSocket(world.https)
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(websocket_head(world, host="key.test"))
        switched(sock)
        tell(lab, put=entry(value=VALUE))
        lab.wait_record("egress.deny", reason=BEFORE, host="key.test")
        assert read_all(sock) == b""


def test_websocket_is_searched_for_a_value_that_there_was_not_when_it_began(start, world):
    unavailable = entry(paths=["/other"], unavailable="not yet")
    del unavailable["value"]
    lab = start(unavailable)
    WebSocket(world.https)
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(websocket_head(world, host="key.test"))
        _, early = switched(sock)
        tell(lab, renew={"name": "T", "value": VALUE})
        sock.sendall(frame(VALUE.encode()))
        assert early + exactly(sock, len(VALUE) + 2 - len(early)) == frame(STARS.encode())
