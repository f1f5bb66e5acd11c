# SPDX-License-Identifier: Apache-2.0
"""Bodies that come bit by bit: nothing waits in the gateway for more of it."""
import threading

from lab import Response
from upstream import response


def head(world, path="/", method="GET", *fields):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: api.test:{world.port}", *fields, "", ""]).encode()


class Events:
    """Sends an event when the one before has arrived."""

    def __init__(self, server, path, count, chunked=True):
        self.arrived = threading.Semaphore(0)
        self.count, self.chunked, self.gone = count, chunked, threading.Event()
        server.script[path] = self._serve

    def _serve(self, connection, _request):
        framing = b"Transfer-Encoding: chunked\r\n" if self.chunked else b""
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + framing + b"\r\n")
        for i in range(self.count):
            event = b"data: %d\n\n" % i
            connection.send(b"%x\r\n%s\r\n" % (len(event), event) if self.chunked else event)
            if not self.arrived.acquire(timeout=20):
                return False
        connection.send(b"0\r\n\r\n" if self.chunked else b"")
        return self.chunked


def test_streams_each_event_arrives_at_once(lab, world):
    """The server waits with each for the guest to have the last: one that lay somewhere would hold up all."""
    for chunked in (True, False):
        events = Events(world.https, "/events", 20, chunked)
        with lab.tls("api.test", world.port) as sock:
            sock.sendall(head(world, "/events", "GET", "Accept: text/event-stream"))
            stream = sock.makefile("rb")
            while stream.readline() != b"\r\n":
                pass
            for i in range(20):
                stream.readline()  # the size of the chunk, which is one event
                assert stream.readline() == b"data: %d\n" % i
                stream.readline()
                stream.readline()
                events.arrived.release()
            assert stream.readline() == b"0\r\n" or not chunked  # without a length, an end without TLS's own is a cut


def test_streams_a_guest_that_leaves_ends_the_stream(lab, world):
    left = threading.Event()

    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        try:
            while connection.fill():
                pass
        except OSError:
            pass
        left.set()
        return False
    world.https.script["/events"] = handler
    since = lab.mark()
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/events"))
        while b"one" not in sock.recv(65536):
            pass
    assert left.wait(20)
    assert lab.wait_record("egress.response", since)["error"]


def test_streams_a_long_poll_waits_for_its_answer(lab, world):
    go = threading.Event()

    def handler(connection, _request):
        go.wait(20)
        connection.send(response("news"))
        return True
    world.https.script["/poll"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/poll"))
        world.https.wait(lambda s: any(r.target == "/poll" for r in s.requests))
        go.set()
        assert Response(sock).body == b"news"


def test_streams_an_upload_passes_bit_by_bit(lab, world):
    """The server has each piece before the next is sent, and may answer before the last."""
    heard = threading.Semaphore(0)

    def handler(connection, _request):
        for _ in range(5):
            assert connection.until(b"\r\n") and connection.exactly(6) == b"piece\n" and connection.until(b"\r\n")
            heard.release()
        connection.until(b"0\r\n\r\n")
        connection.send(response("all"))
        return True
    world.https.script["/up"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/up", "POST", "Transfer-Encoding: chunked"))
        for _ in range(5):
            sock.sendall(b"6\r\npiece\n\r\n")
            assert heard.acquire(timeout=20)
        sock.sendall(b"0\r\n\r\n")
        assert Response(sock).body == b"all"


def test_streams_interim_answers_are_dropped(lab, world):
    def handler(connection, _request):
        for status in (b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </x>"):
            connection.send(b"HTTP/1.1 " + status + b"\r\n\r\n")
        connection.send(response("done"))
        return True
    world.https.script["/hints"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/hints"))
        answer = Response(sock)
        assert (answer.status, answer.body) == (200, b"done") and "Link" not in answer.fields
