# SPDX-License-Identifier: Apache-2.0
"""Placeholders in the body of a request (conformance.py, credentials: placeholder): it is cut before a byte of one has left."""
import base64
import os
import threading
import urllib.parse

import pytest

from lab import Response, read_all
from upstream import response

PLACEHOLDER = "sp_T_0123456789abcdef0123456789abcdef"
P = PLACEHOLDER.encode()


@pytest.fixture
def leaky(own_lab, world):
    secrets = [{"name": "T", "value": "value-of-t", "hosts": ["key.test"], "variables": {"T": PLACEHOLDER}}]
    return own_lab(secrets=secrets)


SPELLINGS = {
    "raw": P, "percent": "".join(f"%{b:02X}" for b in P).encode(), "some-percent": urllib.parse.quote(PLACEHOLDER).replace("_", "%5f").encode(),
    "json": "".join(f"\\u{b:04x}" for b in P).encode(), "hex": P.hex().encode(),
    "base64-0": base64.b64encode(P), "base64-1": base64.b64encode(b"x" + P), "base64-2": base64.b64encode(b"xy" + P),
    "form": urllib.parse.urlencode({"a": "b", "token": PLACEHOLDER, "c": "d"}).encode(),
    "lines": base64.encodebytes(b"some words before " + P + b" and others behind it, so that there are two lines"),
}


def is_leak(lab, world, answer, since, host):
    message = answer.json()["message"]
    assert answer.status == 403 and "the placeholder of T" in message
    record = lab.wait_record("egress.deny", since, leak="T", host=host)
    assert record["reason"] == message
    for request in world.https.requests:
        assert P not in request.body


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("host", ["key.test", "api.test"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_leaks_in_a_body_are_refused(leaky, world, name, host):
    since = leaky.mark()
    is_leak(leaky, world, leaky.get(host, world.port, "/x", "POST", body=b"before " + SPELLINGS[name] + b" after"), since, host)
    assert leaky.get(host, world.port, "/x", "POST", body=SPELLINGS[name][:-1].lower() + b" else").status in (200, 403)


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("cut", [1, 2, 5, 20, 36])
def test_leaks_cut_in_two_are_refused_before_the_first_byte(leaky, world, cut):
    """The server hears what is before it, and nothing of it; then its connection ends."""
    heard, over = [], threading.Event()

    def serve(connection, _request):
        try:
            while connection.buffer or connection.fill():
                heard.append(connection.buffer)
                connection.buffer = b""
        finally:
            over.set()
        return False
    world.https.script["/up"] = serve
    since = leaky.mark()
    with leaky.tls("api.test", world.port) as sock:
        sock.sendall(f"POST /up HTTP/1.1\r\nHost: api.test:{world.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        first = b"x" * 1000 + P[:cut]
        sock.sendall(b"%x\r\n%s\r\n" % (len(first), first))
        world.https.wait(lambda s: s.requests)
        while b"x" * 1000 not in b"".join(heard).replace(b"\r\n", b""):
            assert not over.is_set()
            threading.Event().wait(0.01)
        second = P[cut:] + b"y"
        sock.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(second), second))
        is_leak(leaky, world, Response(sock, "POST"), since, "api.test")
    assert over.wait(20)
    # Up to three bytes go on when nothing follows them for a while, for an answer may wait for them.
    body = b"".join(heard)
    assert P[:4] not in body and P[3:] not in body and b"y" not in body


@pytest.mark.conformance("credentials: placeholder")
def test_leaks_byte_by_byte(leaky, world):
    since = leaky.mark()
    pieces = b"".join(b"1\r\n%c\r\n" % c for c in b"a" + P + b"b")
    with leaky.tls("api.test", world.port) as sock:
        sock.sendall(f"POST /up HTTP/1.1\r\nHost: api.test:{world.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + pieces + b"0\r\n\r\n")
        is_leak(leaky, world, Response(sock, "POST"), since, "api.test")


@pytest.mark.conformance("credentials: placeholder")
def test_leaks_in_a_body_of_http2(leaky, world):
    h2client = pytest.importorskip("h2client", reason="needs python3-hpack")
    since = leaky.mark()
    with h2client.Client(leaky, world) as client:
        stream = client.open(client.head("/up", "POST"), end=False)
        client.data(stream, b"x" * 100 + P[:10])
        client.data(stream, P[10:] + b"y", end=True)
        answer = client.wait(stream)
        assert answer.status == 403
        assert client.ask("/other").status == 200  # the others go on
    leaky.wait_record("egress.deny", since, leak="T", host="api.test")
    assert not any(P in r.body for r in world.https.requests)


def test_leaks_behind_an_answer_that_has_begun_cut_it(leaky, world):
    def serve(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        while connection.fill():
            pass
        return False
    world.https.script["/both"] = serve
    since = leaky.mark()
    with leaky.tls("api.test", world.port) as sock:
        sock.sendall(f"POST /both HTTP/1.1\r\nHost: api.test:{world.port}\r\nContent-Length: 100000\r\n\r\n".encode())
        data = b""
        while b"abc" not in data:
            data += sock.recv(1000)
        sock.sendall(P)
        data += read_all(sock)
    assert b"0\r\n\r\n" not in data and data.startswith(b"HTTP/1.1 200")
    leaky.wait_record("egress.deny", since, leak="T")
    leaky.wait_record("egress.response", since, error=lambda e: e and "placeholder of T" in e)


def test_leaks_none_bodies_pass_unchanged(leaky, world):
    world.https.script["/echo"] = lambda c, r: c.read_body(r) or c.send(response(r.body)) or True
    for body in (os.urandom(500000), P[:-1], b"%", b"\\", P[:20] + b"%7", b"sp_T_\n" * 1000, b"s" * 70000):
        for host in ("key.test", "api.test"):
            assert leaky.get(host, world.port, "/echo", "POST", body=body).body == body


def test_leaks_nothing_that_may_be_answered_waits(leaky, world):
    """A server that answers each line, or each byte: also one that a placeholder could begin with."""
    def serve(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while connection.buffer or connection.fill():
            data, connection.buffer = connection.buffer, b""
            for line in data.split(b"\r\n")[1::2]:  # sizes, and what they are of
                connection.send(b"%x\r\n%s\r\n" % (len(line), line))
        return False
    world.https.script["/talk"] = serve
    for host in ("api.test", "key.test"):
        with leaky.tls(host, world.port) as sock:
            sock.sendall(f"POST /talk HTTP/1.1\r\nHost: {host}:{world.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            stream = sock.makefile("rb")
            while stream.readline() != b"\r\n":
                pass
            for text in (b"s", b"sp", b"yes", b"50%", b"\\", b"c3", b"dmF", b"va"):
                sock.sendall(b"%x\r\n%s\r\n" % (len(text), text))
                got = b""
                while len(got) < len(text):
                    got += stream.read(int(stream.readline(), 16))
                    stream.readline()
                assert got == text


def post(sock, host, world, length, fields=()):
    lines = [f"POST /up HTTP/1.1", f"Host: {host}:{world.port}", f"Content-Length: {length}", *fields, "", ""]
    sock.sendall("\r\n".join(lines).encode())


@pytest.mark.parametrize("host", ["key.test", "api.test"])
def test_nothing_of_a_short_request_leaves_before_its_body_was_searched(leaky, world, host):
    since, before = leaky.mark(), len(world.https.requests)
    body = b"x" * (64 * 1024 - len(P)) + P
    with leaky.tls(host, world.port) as sock:
        post(sock, host, world, len(body))
        sock.sendall(body[:-1])
        leaky.wait_record("egress.request", since, host=host)
        sock.sendall(body[-1:])
        is_leak(leaky, world, Response(sock, "POST"), since, host)
    assert leaky.get(host, world.port, "/after").status == 200  # so that what had left would be here
    assert [r.target for r in world.https.requests[before:]] == ["/after"]


def test_short_body_goes_on_whole(leaky, world):
    for size, fields in ((1, []), (5000, ["Expect: 100-continue"]), (64 * 1024, []), (64 * 1024 + 1, [])):
        body = os.urandom(size)
        with leaky.tls("key.test", world.port) as sock:
            post(sock, "key.test", world, size, fields)
            if fields:
                assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
            for at in range(0, size, 4999):
                sock.sendall(body[at : at + 4999])
            assert Response(sock, "POST").status == 200
        assert world.https.requests[-1].body == body
        assert world.https.requests[-1].get("Content-Length") == str(size)


def test_guest_that_does_not_send_what_it_promised_is_not_waited_for_by_a_server(leaky, world):
    since, before = leaky.mark(), len(world.https.requests)
    with leaky.tls("key.test", world.port) as sock:
        post(sock, "key.test", world, 1000)
        sock.sendall(b"x" * 999)
        leaky.wait_record("egress.request", since)
    leaky.wait_record("egress.response", since, error="the guest closed the connection")
    assert len(world.https.requests) == before
