# SPDX-License-Identifier: Apache-2.0
"""Guests that work to learn a value from what the host of a grant sends back."""
import threading

import pytest

from h2client import Client
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


# -- a host that sends back what the guest says, and pauses in it: what is held tells what is right --

KNOWN_MAX = len("Xy7-") + 4 + 3 + 1  # what many values begin with, what may be by chance, three guesses, and the one that is not answered
OPEN_MAX = KNOWN_MAX + 2  # of streams that stay open, some more are let be
GUESSED = "the grant of T was stopped: its value was being guessed from what its hosts send back"


class Echo:
    """An answer whose parts the guest chooses."""

    def __init__(self, lab, world, path="/echo", asks=True):
        self.parts, self.more = [], threading.Semaphore(0)
        world.https.script[path] = self._serve
        if not asks:
            return
        self.sock = lab.tls("key.test", world.port)
        self.sock.sendall(f"GET /echo HTTP/1.1\r\nHost: key.test:{world.port}\r\nConnection: close\r\n\r\n".encode())

    def _serve(self, connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while self.more.acquire(timeout=20):
            part = self.parts.pop(0)
            try:
                connection.send(b"%x\r\n%s\r\n" % (len(part), part))
            except OSError:
                return False
            if not part:
                return False
        return False

    def say(self, part):
        self.parts.append(part.encode())
        self.more.release()


def until(sock, last):
    data = b""
    while last not in data:
        more = sock.recv(65536)
        if not more:
            break
        data += more
    return data


def assert_stopped(lab, world):
    denied = lab.wait_record("egress.deny", stopped="T")
    assert denied["alarm"] == "T" and denied["reason"] == GUESSED and denied["host"] == "key.test"
    answer = lab.get("key.test", world.port, "/")
    assert answer.status == 403 and answer.json()["message"] == GUESSED


def test_value_is_not_guessed_from_pauses_of_an_echo(start, world):
    lab = start()
    other = Open(lab, world)  # it uses the credential, too
    echo, known = Echo(lab, world), 0
    for known in range(4, len(VALUE)):
        echo.say("guess:" + VALUE[:known])
        until(echo.sock, b"guess:")
        echo.say("?;")
        if b"?;" not in until(echo.sock, b"?;"):
            break
    assert known <= KNOWN_MAX
    assert_stopped(lab, world)
    assert b"rest" not in other.rest(b"rest")


def test_value_is_not_guessed_by_streams_that_are_cut(start, world):
    lab = start()
    for known in (9, 10, 11):
        echo = Echo(lab, world)
        echo.say("begun;")
        until(echo.sock, b"begun;")
        echo.say("?;guess:" + VALUE[:known])
        assert b"guess:" in until(echo.sock, b"guess:")
        echo.sock.close()
        lab.wait_record("egress.response", error="the guest closed the connection")
        if known < 11:
            lab.records.clear()
    assert_stopped(lab, world)


def test_value_is_not_guessed_from_a_websocket(start, world):
    lab = start()
    WebSocket(world.https)
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(websocket_head(world, host="key.test"))
        _, data = switched(sock)
        known = 0
        for known in range(4, len(VALUE)):
            begun, rest = frame(VALUE[:known].encode(), final=False), frame(b"?;", opcode=0)
            sock.sendall(begun)
            data = until(sock, begun[:2])
            sock.sendall(rest)
            if b"?;" not in data and b"?;" not in until(sock, b"?;"):
                break
        assert known <= KNOWN_MAX
    assert_stopped(lab, world)


def test_value_is_not_guessed_by_streams_that_stay_open(start, world):
    lab, streams = start(), []
    for known in range(5, len(VALUE)):
        echo = Echo(lab, world)
        streams.append(echo)
        echo.say("guess:" + VALUE[:known])
        if b"guess:" not in until(echo.sock, b"guess:"):
            break
    assert known <= OPEN_MAX
    assert_stopped(lab, world)
    for echo in streams:
        assert VALUE[:9].encode() not in read_all(echo.sock)  # what was held stays behind


def read_until(client, number, last):
    """What came of the stream; last is not in it when that is over."""
    stream = client.streams[number]
    while last not in stream.body and not stream.over:
        if client.read_frame() is None:
            break
    return stream.body


@pytest.mark.parametrize("stays_open", [False, True])
def test_value_is_not_guessed_over_http2(start, world, stays_open):
    lab = start()
    with Client(lab, world, "key.test") as client:
        for known in range(5, len(VALUE)):
            echo = Echo(lab, world, f"/echo{known}", asks=False)
            number = client.open(client.head(f"/echo{known}"))
            echo.say("guess:" + VALUE[:known])
            if b"guess:" not in read_until(client, number, b"guess:"):
                break
            if not stays_open:
                echo.say("?;")
                if b"?;" not in read_until(client, number, b"?;"):
                    break
    assert known <= (OPEN_MAX if stays_open else KNOWN_MAX)
    assert_stopped(lab, world)


def test_value_is_not_guessed_from_websockets_that_stay_open(start, world):
    lab, sockets = start(), []
    WebSocket(world.https)
    for known in range(5, len(VALUE)):
        sock = lab.tls("key.test", world.port)
        sockets.append(sock)
        sock.sendall(websocket_head(world, host="key.test"))
        if b" 101 " not in until(sock, b"\r\n\r\n"):
            break
        begun = frame(b"guess:" + VALUE[:known].encode(), final=False)
        sock.sendall(begun)
        if b"guess:" not in until(sock, b"guess:"):
            break
    assert known <= OPEN_MAX
    assert_stopped(lab, world)
    for sock in sockets:
        sock.close()


def test_honest_pauses_are_no_guesses(start, world):
    lab = start()
    echo = Echo(lab, world)
    echo.say("begun;")
    assert until(echo.sock, b"begun;")
    for cut in range(1, len(VALUE)):
        echo.say("is:" + VALUE[:cut])
        echo.say(VALUE[cut:] + "!;")
        assert STARS.encode() in until(echo.sock, b"!;")
    echo.say("")
    read_all(echo.sock)
    assert lab.get("key.test", world.port, "/").status == 200
