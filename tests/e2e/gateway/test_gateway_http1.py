# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 requests (conformance.py, section http1)."""
import json

import pytest

from lab import TIMEOUT, Response, read_all, refused, statuses
from upstream import response

CRLF = b"\r\n"


@pytest.mark.conformance("http1: host")
def test_http1_no_host(lab, world):
    refused(lab, world, b"GET / HTTP/1.1\r\n\r\n", 400)
    refused(lab, world, b"GET / HTTP/1.0\r\n\r\n", 400)


@pytest.mark.conformance("http1: host")
def test_http1_two_hosts(lab, world, host):
    refused(lab, world, CRLF.join([b"GET / HTTP/1.1", host, host, b"", b""]), 400)
    refused(lab, world, CRLF.join([b"GET / HTTP/1.1", host, b"host: other.test", b"", b""]), 400)


@pytest.mark.conformance("http1: host")
def test_http1_list_in_host(lab, world):
    refused(lab, world, b"GET / HTTP/1.1\r\nHost: api.test, other.test\r\n\r\n", 400)


@pytest.mark.conformance("names: sni")
def test_http1_host_of_another_name_is_misdirected(lab, world):
    for name in (f"other.test:{world.port}", "unknown.test", f"api.test.evil.example:{world.port}"):
        refused(lab, world, f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode(), 421)


@pytest.mark.conformance("http1: absolute")
def test_http1_absolute_form_equal_to_host(lab, world):
    for target in (f"https://api.test:{world.port}/a?b", f"HTTPS://API.test:{world.port}/a?b"):
        assert lab.get("api.test", world.port, path=target).json()["target"] == "/a?b"


@pytest.mark.conformance("http1: absolute", "names: userinfo")
@pytest.mark.parametrize("target", ["https://other.test:{p}/", "http://api.test:{p}/", "https://api.test/",
                                    "https://api.test:1{p}/", "https://user@api.test:{p}/", "https://api.test:{p}@evil/",
                                    "ftp://api.test:{p}/", "//api.test:{p}/", "api.test:{p}"])
def test_http1_absolute_form_other_than_host(lab, world, host, target):
    data = CRLF.join([b"GET " + target.format(p=world.port).encode() + b" HTTP/1.1", host, b"", b""])
    refused(lab, world, data, 400)


@pytest.mark.conformance("http1: methods")
@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "TRACK", "connect", "Trace"])
def test_http1_methods_that_are_never_served(lab, world, host, method):
    refused(lab, world, CRLF.join([method.encode() + b" / HTTP/1.1", host, b"", b""]), 405)
    target = f"{method} api.test:{world.port} HTTP/1.1".encode()
    refused(lab, world, CRLF.join([target, host, b"", b""]), 405)


FRAMING = {
    "both": [b"Content-Length: 3", b"Transfer-Encoding: chunked"],
    "both reversed": [b"Transfer-Encoding: chunked", b"Content-Length: 3"],
    "two encodings": [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
    "encoding list": [b"Transfer-Encoding: gzip, chunked"],
    "identity": [b"Transfer-Encoding: identity"],
    "xchunked": [b"Transfer-Encoding: xchunked"],
    "chunked in capitals": [b"Transfer-Encoding: CHUNKED"],
    "chunked with parameter": [b"Transfer-Encoding: chunked;q=1"],
    "chunked with VT": [b"Transfer-Encoding: \x0bchunked"],
    "empty encoding": [b"Transfer-Encoding:"],
    "two lengths": [b"Content-Length: 3", b"Content-Length: 3"],
    "differing lengths": [b"Content-Length: 3", b"Content-Length: 4"],
    "length list": [b"Content-Length: 3, 3"],
    "signed": [b"Content-Length: +3"],
    "negative": [b"Content-Length: -3"],
    "padded": [b"Content-Length: 003"],
    "hex": [b"Content-Length: 0x3"],
    "huge": [b"Content-Length: 99999999999999999999"],
    "empty": [b"Content-Length:"],
    "inner space": [b"Content-Length: 1 3"],
}


@pytest.mark.conformance("http1: framing")
@pytest.mark.parametrize("fields", FRAMING.values(), ids=FRAMING.keys())
def test_http1_ambiguous_framing(lab, world, host, fields):
    refused(lab, world, CRLF.join([b"POST / HTTP/1.1", host, *fields, b"", b"abc"]), 400, 501)


@pytest.mark.conformance("http1: framing")
def test_http1_http10_with_transfer_encoding(lab, world, host):
    data = CRLF.join([b"POST / HTTP/1.0", host, b"Transfer-Encoding: chunked", b"", b"0", b"", b""])
    refused(lab, world, data, 400)


SYNTAX = {
    "obs-fold": b"GET / HTTP/1.1\r\n%h\r\nX: a\r\n b\r\n\r\n",
    "obs-fold first": b"GET / HTTP/1.1\r\n X: a\r\n%h\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\n%h\n\n",
    "bare LF in a field": b"GET / HTTP/1.1\r\n%h\r\nX: a\nY: b\r\n\r\n",
    "bare CR": b"GET / HTTP/1.1\r\n%h\r\nX: a\rY: b\r\n\r\n",
    "CR before the colon": b"GET / HTTP/1.1\r\n%h\r\nX\r: a\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\n%h\r\nX : a\r\n\r\n",
    "tab before the colon": b"GET / HTTP/1.1\r\n%h\r\nX\t: a\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\n%h\r\nX: a\0b\r\n\r\n",
    "NUL in a name": b"GET / HTTP/1.1\r\n%h\r\nX\0: a\r\n\r\n",
    "control in a value": b"GET / HTTP/1.1\r\n%h\r\nX: a\x01b\r\n\r\n",
    "DEL in a value": b"GET / HTTP/1.1\r\n%h\r\nX: a\x7fb\r\n\r\n",
    "name that is no token": b"GET / HTTP/1.1\r\n%h\r\nX(y): a\r\n\r\n",
    "name with high bytes": b"GET / HTTP/1.1\r\n%h\r\nX\xe9: a\r\n\r\n",
    "empty name": b"GET / HTTP/1.1\r\n%h\r\n: a\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\n%h\r\nX\r\n\r\n",
    "method that is no token": b"GE(T / HTTP/1.1\r\n%h\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\n%h\r\n\r\n",
    "tab in the line": b"GET\t/ HTTP/1.1\r\n%h\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\n%h\r\n\r\n",
    "control in the target": b"GET /a\x01 HTTP/1.1\r\n%h\r\n\r\n",
    "fragment": b"GET /a#b HTTP/1.1\r\n%h\r\n\r\n",
    "no version": b"GET /\r\n%h\r\n\r\n",
    "lower-case version": b"GET / http/1.1\r\n%h\r\n\r\n",
    "version 1.2": b"GET / HTTP/1.2\r\n%h\r\n\r\n",
    "version 2.0": b"GET / HTTP/2.0\r\n%h\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "leading empty line": b"\r\nGET / HTTP/1.1\r\n%h\r\n\r\n",
    "garbage": b"\x80\x81\x82\r\n\r\n",
}


@pytest.mark.conformance("http1: syntax")
@pytest.mark.parametrize("data", SYNTAX.values(), ids=SYNTAX.keys())
def test_http1_malformed_heads(lab, world, host, data):
    refused(lab, world, data.replace(b"%h", host), 400, 505)


CHUNKS = {
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "no hex": b"g\r\nabc\r\n0\r\n\r\n",
    "0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "signed": b"+3\r\nabc\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "overflow": b"ffffffffffffffff3\r\nabc\r\n0\r\n\r\n",
    "leading space": b" 3\r\nabc\r\n0\r\n\r\n",
    "bare LF": b"3\nabc\r\n0\r\n\r\n",
    "CR in extension": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "LF in extension": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "data longer than its size": b"2\r\nabc\r\n0\r\n\r\n",
    "no CRLF after data": b"3\r\nabc0\r\n\r\n",
    "extension over the cap": b"3;" + b"a" * 5000 + b"\r\nabc\r\n0\r\n\r\n",
    "trailers over the cap": b"3\r\nabc\r\n0\r\n" + b"X: " + b"a" * 20000 + b"\r\n\r\n",
    "bare LF in trailers": b"3\r\nabc\r\n0\r\nX: a\n\r\n",
}


@pytest.mark.conformance("http1: chunks")
@pytest.mark.parametrize("body", CHUNKS.values(), ids=CHUNKS.keys())
def test_http1_bad_chunks(lab, world, host, body):
    """The head may have gone on by then; the body is cut, and the server never sees a whole request."""
    done = []

    def handler(connection, request):
        connection.read_body(request)
        done.append(request)
        connection.send(response())
        return True
    world.https.script["/chunks"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(CRLF.join([b"POST /chunks HTTP/1.1", host, b"Transfer-Encoding: chunked", b"", body]))
        assert statuses(read_all(sock)) == [400]
    assert not done


@pytest.mark.conformance("http1: chunks")
def test_http1_chunk_extensions_and_trailers_are_dropped(lab, world, host):
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(CRLF.join([b"POST / HTTP/1.1", host, b"Transfer-Encoding: chunked", b"",
                                b"3;a=b;c", b"abc", b"02", b"de", b"0", b"X-Trailer: evil", b"", b""]))
        answer = Response(sock).json()
    assert answer["body"] == "abcde"
    assert not [f for f in answer["fields"] if "railer" in f[0]]


@pytest.mark.conformance("http1: chunks", "base: anew")
def test_http1_a_chunked_body_is_chunked_anew(lab, world, host):
    raw = []

    def handler(connection, request):
        while b"0\r\n\r\n" not in connection.buffer:
            connection.fill()
        raw.append(connection.buffer)
        connection.buffer = b""
        connection.send(response())
        return True
    world.https.script["/anew"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(CRLF.join([b"POST /anew HTTP/1.1", host, b"Transfer-Encoding: chunked", b"",
                                b"000A;x=y", b"0123456789", b"000", b"", b""]))
        assert Response(sock).status == 200
    assert raw == [b"a\r\n0123456789\r\n0\r\n\r\n"]


@pytest.mark.conformance("http1: pipelining")
def test_http1_pipelined_requests_are_answered_in_order_each_judged(lab, world, host):
    parts = [b"GET /%d HTTP/1.1\r\n%s\r\n\r\n" % (i, host) for i in range(20)]
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"".join(parts))
        for i in range(20):
            assert Response(sock).json()["target"] == f"/{i}"
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(parts[0] + b"GET /%2e%2e/x HTTP/1.1\r\n" + host + b"\r\n\r\n" + parts[1])
        assert statuses(read_all(sock)) == [200, 400]
    assert [r.target for r in world.https.requests] == [f"/{i}" for i in range(20)] + ["/0"]


@pytest.mark.conformance("http1: pipelining")
def test_http1_a_denied_request_does_not_end_a_pipeline(lab, world):
    head = b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"
    with lab.tls("api.test", 443) as sock:
        sock.sendall(head * 3)
        assert [Response(sock).status for _ in range(3)] == [403] * 3


@pytest.mark.conformance("http1: framing")
def test_http1_a_body_is_not_taken_for_a_request(lab, world, host):
    smuggled = b"GET /smuggled HTTP/1.1\r\n" + host + b"\r\n\r\n"
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(CRLF.join([b"POST /real HTTP/1.1", host, b"Content-Length: %d" % len(smuggled), b"", smuggled]))
        assert Response(sock).json()["body"] == smuggled.decode()
    assert [r.target for r in world.https.requests] == ["/real"]


@pytest.mark.conformance("http1: expect")
def test_http1_expect_continue_comes_after_the_decision(lab, world, host):
    head = [b"POST / HTTP/1.1", host, b"Content-Length: 5", b"Expect: 100-continue", b"", b""]
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(CRLF.join(head))
        stream = sock.makefile("rb")
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n" and stream.readline() == CRLF
        sock.sendall(b"hello")
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
    assert not world.https.requests[0].get("Expect")
    with lab.tls("api.test", 443) as sock:  # denied: told before the body is asked for
        sock.sendall(CRLF.join([head[0], b"Host: api.test", *head[2:]]))
        assert sock.recv(4096).startswith(b"HTTP/1.1 403")


@pytest.mark.conformance("http1: expect")
def test_http1_other_expectations(lab, world, host):
    refused(lab, world, CRLF.join([b"POST / HTTP/1.1", host, b"Content-Length: 1", b"Expect: 200-ok", b"", b"x"]), 417)


@pytest.mark.conformance("http1: upgrade")
def test_http1_h2c_upgrade_is_not_passed_on(lab, world):
    answer = lab.get("api.test", world.port, fields=["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
                                                     "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"])
    assert answer.status == 200
    names = {k.lower() for k, _ in answer.json()["fields"]}
    assert not names & {"upgrade", "http2-settings", "connection"}


def test_http1_is_agreed_on_where_h2_is_not_offered(lab, world):
    for offered, agreed in ((["http/1.1"], "http/1.1"), (["http/1.1", "h2"], "h2"), (None, None)):
        with lab.tls("api.test", world.port, alpn=offered) as sock:
            assert sock.selected_alpn_protocol() == agreed


@pytest.mark.conformance("http1: caps")
@pytest.mark.parametrize("what,status", [("line", 414), ("field", 431), ("fields", 431), ("count", 431)])
def test_http1_heads_over_their_caps(lab, world, host, what, status):
    data = {
        "line": b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n" + host,
        "field": b"GET / HTTP/1.1\r\n" + host + b"\r\nX: " + b"a" * 70000,
        "fields": b"GET / HTTP/1.1\r\n" + host + b"".join(b"\r\nX%d: " % i + b"a" * 1000 for i in range(100)),
        "count": b"GET / HTTP/1.1\r\n" + host + b"\r\nX: y" * 200,
    }[what]
    refused(lab, world, data + b"\r\n\r\n", status)


@pytest.mark.conformance("base: anew")
def test_http1_hop_by_hop_fields_end_at_the_gateway(lab, world):
    answer = lab.get("api.test", world.port, fields=[
        "Connection: keep-alive, X-Hop", "X-Hop: 1", "Keep-Alive: timeout=5", "TE: trailers", "Trailer: X",
        "Proxy-Authorization: Basic x", "Proxy-Connection: keep-alive", "X-Stays: yes"])
    assert answer.json()["fields"] == [["Host", f"api.test:{world.port}"], ["X-Stays", "yes"]]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_http1_methods_and_bodies_pass(lab, world, method):
    body = bytes(range(256)) * 10
    answer = lab.get("api.test", world.port, "/m?q=%20x&y", method, body=body).json()
    assert (answer["method"], answer["target"]) == (method, "/m?q=%20x&y")
    assert answer["body"].encode("latin-1") == body


def test_http1_options_of_the_whole_server(lab, world):
    assert lab.get("api.test", world.port, "*", "OPTIONS").json()["target"] == "*"


def test_http1_http10_clients_are_answered(lab, world, host):
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(b"GET /old HTTP/1.0\r\n" + host + b"\r\n\r\n")
        answer = read_all(sock)
    assert b"200 OK" in answer and b'"/old"' in answer


def test_http1_one_connection_serves_many_requests(lab, world, host):
    connections = world.https.connections
    with lab.tls("api.test", world.port) as sock:
        for i in range(50):
            sock.sendall(b"GET /%d HTTP/1.1\r\n%s\r\n\r\n" % (i, host))
            assert Response(sock).json()["target"] == f"/{i}"
    assert world.https.connections - connections <= 1


@pytest.mark.conformance("names: ports")
def test_http1_plain_http_only_where_a_rule_says_so(lab, world):
    answer = lab.get("plain.test", world.http_port, scheme="http")
    assert answer.status == 200
    since = lab.mark()
    denied = lab.get("api.test", world.port, scheme="http")
    assert denied.status == 403 and "http://api.test" in denied.json()["allow_with"]
    lab.wait_record("egress.deny", since, scheme="http", host="api.test")
    assert lab.get("plain.test", world.http_port, scheme="https").status == 403
    assert not world.https.requests


@pytest.mark.conformance("base: denial", "base: answer")
def test_http1_denials_say_why(lab, world):
    since = lab.mark()
    answer = lab.get("other.test", 8443, "/a/b?secret=1", "DELETE")
    assert answer.status == 403 and answer.fields["Content-Type"] == "application/json"
    body = answer.json()
    assert {k: body[k] for k in ("code", "host", "port", "method", "path", "rule", "allow_with")} == {
        "code": 403, "host": "other.test", "port": 8443, "method": "DELETE", "path": "/a/b", "rule": "default deny",
        "allow_with": "--allow-host other.test:8443"}
    assert "no rule" in body["message"]
    record = lab.wait_record("egress.deny", since, host="other.test", port=8443)
    assert record["rule"] == "default deny" and record["method"] == "DELETE" and record["path"] == "/a/b"
    assert "secret" not in json.dumps(record)


def test_http1_real_clients_work(lab, world):
    url = f"https://api.test:{world.port}/curl?x=1"
    assert json.loads(lab.curl(url).stdout)["target"] == "/curl?x=1"
    body = json.loads(lab.curl("-d", "a=b", "-H", "Expect: 100-continue", url).stdout)
    assert (body["method"], body["body"]) == ("POST", "a=b")
    program = f"import urllib.request as u; print(u.urlopen({url!r}).read().decode())"
    out = lab.run("env", f"SSL_CERT_FILE={lab.authority.pem}", "/usr/bin/python3", "-c", program).stdout
    assert json.loads(out)["target"] == "/curl?x=1"
    refused = lab.run("curl", "-sS", "--max-time", TIMEOUT, "https://unknown.test/", check=False)
    assert refused.returncode == 6  # could not resolve
    refused = lab.run("curl", "-sSk", "--max-time", TIMEOUT, "https://93.184.216.34/", check=False)
    assert refused.returncode in (7, 35, 56)
