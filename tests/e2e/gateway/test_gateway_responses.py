# SPDX-License-Identifier: Apache-2.0
"""What a hostile or broken server answers (conformance.py, section http1)."""
import pytest

from lab import Response, read_all
from upstream import response

CRLF = b"\r\n"

BROKEN = {
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "bare LF in a field": b"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 2\r\n\r\nok",
    "both framings": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "differing lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "bad length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok",
    "odd encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    "obs-fold": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
    "NUL": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok",
    "no status": b"HTTP/1.1\r\nContent-Length: 2\r\n\r\nok",
    "bad status": b"HTTP/1.1 999 OK\r\nContent-Length: 2\r\n\r\nok",
    "not HTTP": b"220 mail.example ESMTP\r\n\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "too long": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000 + b"\r\nContent-Length: 2\r\n\r\nok",
    "too many fields": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 200 + b"Content-Length: 2\r\n\r\nok",
    "too many 1xx": b"HTTP/1.1 102 Processing\r\n\r\n" * 50 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "101 unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    "1xx with a body": b"HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
}


@pytest.mark.conformance("http1: responses")
@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN.keys())
def test_http1_broken_responses_are_502(lab, world, host, answer):
    world.https.script["/broken"] = answer
    since = lab.mark()
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"GET /broken HTTP/1.1\r\n" + host + b"\r\n\r\n")
        first = Response(sock)
        assert first.status == 502 and first.json()["code"] == 502
        assert "127.0.0.1" not in first.json()["message"]
        sock.sendall(b"GET /after HTTP/1.1\r\n" + host + b"\r\n\r\n")  # and the connection goes on
        assert Response(sock).json()["target"] == "/after"
    assert lab.wait_record("egress.response", since, status=502)["error"]


CUT = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
}


@pytest.mark.conformance("http1: responses")
@pytest.mark.parametrize("answer", CUT.values(), ids=CUT.keys())
def test_http1_a_cut_response_is_cut_for_the_guest_too(lab, world, host, answer):
    world.https.script["/cut"] = answer
    since = lab.mark()
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"GET /cut HTTP/1.1\r\n" + host + b"\r\n\r\n")
        data = read_all(sock)
    assert data.startswith(b"HTTP/1.1 200") and not data.endswith(b"0\r\n\r\n")
    lab.wait_record("egress.response", since, status=200, error=bool)  # others may end late


@pytest.mark.conformance("http1: responses")
def test_http1_a_response_without_framing_ends_with_the_connection(lab, world, host):
    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        connection.sock = connection.sock.unwrap()
        return False
    world.https.script["/close"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"GET /close HTTP/1.1\r\n" + host + b"\r\n\r\n")
        first = Response(sock)
        assert first.body == b"until the end" and first.fields["Transfer-Encoding"] == "chunked"
        sock.sendall(b"GET /after HTTP/1.1\r\n" + host + b"\r\n\r\n")
        assert Response(sock).status == 200


BODILESS = {
    "HEAD with a body": ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    "204 with a body": ("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
    "304 with a body": ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nhello"),
    "extra bytes": ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
}


@pytest.mark.conformance("http1: responses")
@pytest.mark.parametrize("method,answer", BODILESS.values(), ids=BODILESS.keys())
def test_http1_extra_bytes_never_answer_the_next_request(lab, world, host, method, answer):
    def handler(connection, _request):
        connection.send(answer)
        return True  # keeps the connection: the gateway must not
    world.https.script["/extra"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(method.encode() + b" /extra HTTP/1.1\r\n" + host + b"\r\n\r\n")
        first = Response(sock, method)
        assert first.status in (200, 204, 304) and b"evil" not in first.body and b"hello" not in first.body
        for i in range(3):
            sock.sendall(b"GET /after%d HTTP/1.1\r\n" % i + host + b"\r\n\r\n")
            assert Response(sock).json()["target"] == f"/after{i}"


@pytest.mark.conformance("http1: responses")
def test_http1_head_keeps_its_length(lab, world):
    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nETag: x\r\n\r\n")
        return True
    world.https.script["/head"] = handler
    with lab.tls("api.test", world.port) as sock:
        for _ in range(2):
            sock.sendall(f"HEAD /head HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
            answer = Response(sock, "HEAD")
            assert (answer.status, answer.fields["Content-Length"], answer.fields["ETag"]) == (200, "12345", "x")


@pytest.mark.conformance("http1: responses")
def test_http1_interim_responses_are_swallowed(lab, world):
    world.https.script["/interim"] = (b"HTTP/1.1 103 Early Hints\r\nLink: </evil>\r\n\r\n" * 3 + response("fine"))
    answer = lab.get("api.test", world.port, "/interim")
    assert answer.status == 200 and answer.body == b"fine"


@pytest.mark.conformance("base: anew")
def test_http1_response_fields_of_one_hop_are_dropped(lab, world):
    world.https.script["/fields"] = response("x", fields=[
        "Connection: X-Hop, close", "X-Hop: 1", "Keep-Alive: timeout=1", "Alt-Svc: h3=\":443\"", "Upgrade: h2c",
        "Proxy-Authenticate: Basic", "Set-Cookie: a=1", "Set-Cookie: b=2"])
    answer = lab.get("api.test", world.port, "/fields")
    assert [(k, v) for k, v in answer.fields.items()] == [
        ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Content-Length", "1")]


def test_http1_an_idle_server_connection_that_closed_is_not_noticed(lab, world, host):
    def handler(connection, request):
        connection.send(response("first"))
        connection.fill()  # the next request comes, and gets no answer
        return False
    world.https.script["/stale"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"GET /stale HTTP/1.1\r\n" + host + b"\r\n\r\n")
        assert Response(sock).body == b"first"
        sock.sendall(b"GET /again HTTP/1.1\r\n" + host + b"\r\n\r\n")
        assert Response(sock).json()["target"] == "/again"


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_http1_a_body_is_never_sent_twice(lab, world, host, method):
    """Not even where a request may be repeated: the gateway has not kept what it sent."""
    bodies = []

    def handler(connection, request):
        connection.send(response("first"))
        connection.fill()
        bodies.append(connection.buffer)
        return False
    world.https.script["/stale"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"GET /stale HTTP/1.1\r\n" + host + b"\r\n\r\n")
        assert Response(sock).body == b"first"
        sock.sendall(CRLF.join([method.encode() + b" /pay HTTP/1.1", host, b"Content-Length: 5", b"", b"money"]))
        assert Response(sock).status == 502
    assert len(bodies) == 1 and not [r for r in world.https.requests if r.target == "/pay"]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_http1_what_has_an_effect_is_never_sent_twice(lab, world, host, method):
    seen = []

    def handler(connection, request):
        connection.send(response("first"))
        seen.append(connection.until(b"\r\n\r\n"))
        return False
    world.https.script["/stale"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"GET /stale HTTP/1.1\r\n" + host + b"\r\n\r\n")
        assert Response(sock).body == b"first"
        sock.sendall(CRLF.join([method.encode() + b" /pay HTTP/1.1", host, b"", b""]))
        assert Response(sock).status == 502
    assert len(seen) == 1 and not [r for r in world.https.requests if r.target == "/pay"]


@pytest.mark.conformance("http1: responses")
def test_http1_an_early_answer_to_an_upload(lab, world, host):
    def handler(connection, _request):
        connection.send(response("too large", status="413 Content Too Large", fields=["Connection: close"]))
        return False
    world.https.script["/upload"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(CRLF.join([b"POST /upload HTTP/1.1", host, b"Content-Length: 1000000", b"", b"x" * 1000]))
        assert read_all(sock).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("name,server,words", [("untrusted.test", "untrusted", "not trusted"),
                                               ("wrong.test", "wrong_name", "another name")])
def test_http1_a_server_that_is_not_who_it_should_be(lab, world, name, server, words):
    upstream = getattr(world, server)
    since = lab.mark()
    answer = lab.get(name, upstream.port)
    assert answer.status == 502 and words in answer.json()["message"]
    assert not upstream.requests
    assert lab.wait_record("egress.response", since, status=502)["error"]


def test_http1_a_server_that_is_not_there(lab):
    answer = lab.get("closed.test", 1)
    assert answer.status == 502 and "refused" in answer.json()["message"].lower()
    assert "127.0.0.1" not in answer.json()["message"]
