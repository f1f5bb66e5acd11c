# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 between guest and gateway (conformance.py, section http2), and what peers do to exhaust it."""
import json
import os
import struct
import threading

import pytest

pytest.importorskip("hpack", reason="needs python3-hpack")
from h2client import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, NO_ERROR, PADDED, PING, PREFACE,
                      PRIORITY, PROTOCOL_ERROR, RST_STREAM, SETTINGS, WINDOW_UPDATE, Client, block, frame, literal)
from lab import GATEWAY, TIMEOUT
from upstream import response

SANITIZED = GATEWAY.exists() and b"__asan_init" in GATEWAY.read_bytes()


@pytest.fixture
def client(lab, world):
    with Client(lab, world) as c:
        yield c


def test_http2_curl_asks_by_it(lab, world):
    run = lab.curl("--http2", "-w", "%{http_version} %{http_code}", "-o", "/dev/null", f"https://api.test:{world.port}/curl?q=1")
    assert run.stdout == "2 200"
    assert world.https.requests[0].target == "/curl?q=1"
    assert lab.curl("--http1.1", "-w", "%{http_version}", "-o", "/dev/null", f"https://api.test:{world.port}/").stdout == "1.1"


def test_http2_many_requests_at_once(lab, world, client):
    streams = [client.open(client.head(f"/at-once/{i}")) for i in range(100)]
    for i, stream in enumerate(streams):
        answer = client.wait(stream)
        assert answer.status == 200 and json.loads(answer.body)["target"] == f"/at-once/{i}"
    assert len({r.target for r in world.https.requests}) == 100


def test_http2_fields_and_crumbs_reach_the_server(lab, world, client):
    answer = client.ask(extra=[("cookie", "a=1"), ("x-mine", "one"), ("cookie", "b=2"), ("te", "trailers")])
    assert answer.status == 200
    request = world.https.requests[0]
    assert request.all("Cookie") == ["a=1; b=2"] and request.get("x-mine") == "one"
    assert request.all("Host") == [client.authority] and not request.get("Transfer-Encoding")


@pytest.mark.parametrize("size", [0, 1, 65535, 3000000])
def test_http2_bodies_both_ways(lab, world, client, size):
    body = os.urandom(size)
    world.https.script["/echo"] = lambda c, r: c.read_body(r) or c.send(response(r.body)) or True
    stream = client.open(client.head("/echo", "POST") + [("content-length", str(size))], end=not size)
    client.upload(stream, body)
    answer = client.wait(stream)
    assert answer.status == 200 and answer.body == body


def test_http2_an_answer_without_a_length_is_streamed(lab, world, client):
    world.https.script["/chunks"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    answer = client.ask("/chunks")
    assert answer.body == b"abcdefg" and "content-length" not in dict(answer.fields)
    world.https.script["/none"] = b"HTTP/1.1 204 No Content\r\nX-Upper: 1\r\n\r\n"
    answer = client.ask("/none")
    assert answer.status == 204 and answer.ended and dict(answer.fields)["x-upper"] == "1"


def test_http2_head_has_a_length_and_no_body(lab, world, client):
    world.https.script["/head"] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"
    answer = client.ask("/head", "HEAD")
    assert dict(answer.fields)["content-length"] == "7" and answer.ended and not answer.body


def test_http2_each_request_is_judged_alone(lab, world, own_lab):
    lab = own_lab({**world.policy(), "egress": [{**world.rule("api.test", world.port), "paths": ["/open/*"]}]})
    with Client(lab, world) as client:
        refused = client.ask("/closed")
        assert refused.status == 403 and json.loads(refused.body)["path"] == "/closed"
        assert client.ask("/open/x").status == 200
        assert client.goaway is None
    lab.wait_record("egress.deny", path="/closed")


def test_http2_expect_is_answered_and_others_refused(lab, world, client):
    stream = client.open(client.head("/", "POST") + [("expect", "100-continue")], end=False)
    while not client.streams[stream].informed:
        assert client.read_frame() is not None
    client.data(stream, b"body", end=True)
    assert client.wait(stream).status == 200
    assert client.ask(extra=[("expect", "200-maybe")]).status == 417


def test_http2_other_names_are_misdirected_and_the_connection_ends(lab, world, client):
    since = lab.mark()
    client.authority = f"other.test:{world.port}"
    assert client.ask().status == 421
    lab.wait_record("egress.deny", since, host="api.test")
    assert client.wait_end() == NO_ERROR
    assert not world.https.requests


def head(client, *extra, without=(), **replaced):
    fields = [(k, replaced.get(k[1:], v)) for k, v in client.head() if k[1:] not in without]
    return fields + list(extra)


def stream_error(lab, world, client, fields, end=True):
    since = lab.mark()
    stream = client.wait(client.open(fields, end))
    assert stream.reset == PROTOCOL_ERROR and not stream.fields
    lab.wait_record("egress.deny", since, host="api.test", port=world.port)
    assert client.goaway is None
    assert client.ask("/after").status == 200, "the connection goes on"
    assert [r.target for r in world.https.requests] == ["/after"]


@pytest.mark.conformance("http2: authority")
@pytest.mark.parametrize("host", ["other.test", "api.test", "api.test:1"])
def test_http2_authority_and_host_that_differ(lab, world, client, host):
    stream_error(lab, world, client, head(client, ("host", host)))


@pytest.mark.conformance("http2: authority")
def test_http2_neither_authority_nor_host_and_two_hosts(lab, world, client):
    stream_error(lab, world, client, head(client, without=["authority"]))
    world.https.requests.clear()
    stream_error(lab, world, client, head(client, ("host", client.authority), ("host", client.authority), without=["authority"]))


def test_http2_host_alone_is_an_authority(lab, world, client):
    stream = client.open(head(client, ("host", client.authority), without=["authority"]))
    assert client.wait(stream).status == 200
    assert world.https.requests[0].all("Host") == [client.authority]


@pytest.mark.conformance("http2: pseudo")
@pytest.mark.parametrize("fields", [
    [(":method", "GET")], [(":path", "/")], [(":scheme", "https")], [(":authority", "api.test")], [("x", "1"), (":method", "GET")],
    [(":unknown", "1")], [(":status", "200")], [(":protocol", "websocket")], [(":", "")]], ids=lambda f: f[-1][0])
def test_http2_pseudo_fields_doubled_late_unknown(lab, world, client, fields):
    stream_error(lab, world, client, head(client, *fields))


@pytest.mark.conformance("http2: pseudo")
@pytest.mark.parametrize("name", ["method", "path", "scheme"])
def test_http2_pseudo_fields_that_are_missing(lab, world, client, name):
    stream_error(lab, world, client, head(client, without=[name]))


@pytest.mark.conformance("http2: pseudo")
def test_http2_pseudo_fields_in_trailers(lab, world, client):
    stream = client.open(client.head("/", "POST"), end=False)
    client.data(stream, b"x")
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block([(":path", "/other")])))
    assert client.wait(stream).reset == PROTOCOL_ERROR


@pytest.mark.conformance("http2: fields")
@pytest.mark.parametrize("field", [
    ("X-Upper", "1"), ("connection", "close"), ("keep-alive", "1"), ("proxy-connection", "close"), ("transfer-encoding", "chunked"),
    ("upgrade", "websocket"), ("te", "gzip"), ("x y", "1"), ("x:y", "1"), ("", "1"), ("x", "a\rb"), ("x", "a\nb"), ("x", "a\0b"),
    ("x", "a\x01b"), ("x\0", "1")], ids=repr)
def test_http2_fields_of_a_connection_and_broken_ones(lab, world, client, field):
    stream_error(lab, world, client, head(client, field))


@pytest.mark.conformance("http2: scheme")
@pytest.mark.parametrize("scheme", ["http", "HTTPS", "ftp", "", "https:"])
def test_http2_schemes_other_than_https(lab, world, client, scheme):
    stream_error(lab, world, client, head(client, scheme=scheme))


@pytest.mark.conformance("http2: length")
@pytest.mark.parametrize("length,body", [("3", b"ab"), ("3", b"abcd"), ("5", b"")])
def test_http2_lengths_that_data_does_not_keep(lab, world, client, length, body):
    stream = client.open(client.head("/", "POST") + [("content-length", length)], end=False)
    client.data(stream, body, end=True)
    assert client.wait(stream).reset == PROTOCOL_ERROR
    assert client.ask("/after").status == 200


@pytest.mark.conformance("http2: length")
@pytest.mark.parametrize("lengths", [["3"], ["3", "3"], ["-1"], ["+0"], ["0x0"], ["99999999999999999999"], ["0, 0"]])
def test_http2_lengths_that_are_none(lab, world, client, lengths):
    stream_error(lab, world, client, head(client, *(("content-length", n) for n in lengths)))


@pytest.mark.parametrize("method", ["TRACE", "TRACK", "connect", "Trace"])
def test_http2_methods_that_are_never_served(lab, world, client, method):
    assert client.ask(method=method).status == 405
    assert client.wait(client.open([(":method", "CONNECT"), (":authority", client.authority)])).status == 405
    assert not world.https.requests


@pytest.mark.parametrize("path", ["/a\\b", "/a b", "*", "", "https://api.test/", "/\x7f", "/a#b"])
def test_http2_targets_that_are_none(lab, world, client, path):
    stream = client.wait(client.open(head(client, path=path)))
    assert stream.reset == PROTOCOL_ERROR or stream.status == 400
    assert not world.https.requests


@pytest.mark.parametrize("authority", ["user@api.test", "api.test, other.test", "", "api.test:0", "[::1"])
def test_http2_authorities_that_are_none(lab, world, client, authority):
    stream = client.wait(client.open(head(client, authority=authority)))
    assert stream.reset == PROTOCOL_ERROR or stream.status == 400
    assert not world.https.requests


def test_http2_heads_past_the_caps(lab, world, client):
    assert client.ask(extra=[(f"x-{i}", "1") for i in range(130)]).status == 431
    pieces = block(client.head("/large") + [(f"x-{i}", "y" * 8000) for i in range(10)])
    stream = client.open([], flags=0)
    for at in range(0, len(pieces), 16384):
        last = at + 16384 >= len(pieces)
        client.send(frame(CONTINUATION, END_HEADERS if last else 0, stream, pieces[at:at + 16384]))
    assert client.wait(stream).status == 431
    assert client.goaway is None and not world.https.requests


# -- floods: each ends the connection, by its name --

def calm(lab, world, client, since):
    assert client.wait_end() == ENHANCE_YOUR_CALM
    lab.wait_record("egress.deny", since, host="api.test", port=world.port)
    assert lab.get("api.test", world.port).json()["target"] == "/", "others are served"


@pytest.mark.conformance("http2: continuation")
@pytest.mark.parametrize("piece", [b"", literal(b"x", b"y" * 100)], ids=["empty", "filled"])
def test_http2_flood_of_continuations(lab, world, client, piece):
    since = lab.mark()
    stream = client.open(client.head(), flags=0)
    client.send(frame(CONTINUATION, 0, stream, piece) * 5000)
    calm(lab, world, client, since)


@pytest.mark.conformance("http2: hpack")
def test_http2_hpack_bomb(lab, world, client):
    since = lab.mark()
    # One entry of nearly the whole table, then thousands of references to it, a byte each.
    entry = b"\x40" + literal(b"x", b"y" * 3900)[1:]
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(client.head()) + entry + b"\xbe" * 8000))
    calm(lab, world, client, since)


@pytest.mark.conformance("http2: resets")
def test_http2_rapid_resets(lab, world, client):
    since = lab.mark()
    for _ in range(10):
        data = b""
        for _ in range(100):
            data += frame(HEADERS, END_HEADERS | END_STREAM, client.next, block(client.head()))
            data += frame(RST_STREAM, 0, client.next, struct.pack(">I", 8))
            client.next += 2
        client.send(data)
    calm(lab, world, client, since)


@pytest.mark.conformance("http2: resets")
def test_http2_requests_that_are_wrong_without_an_end(lab, world, client):
    since = lab.mark()
    for _ in range(10):
        data = b""
        for _ in range(100):
            data += frame(HEADERS, END_HEADERS | END_STREAM, client.next, block(head(client, ("connection", "x"))))
            client.next += 2
        client.send(data)
    calm(lab, world, client, since)


@pytest.mark.conformance("http2: floods")
@pytest.mark.parametrize("flood", [frame(SETTINGS), frame(SETTINGS, payload=struct.pack(">HI", 4, 65535)), frame(PING, payload=b"12345678"),
                                   frame(PING, ACK, payload=b"12345678"), frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 1)), frame(0xbe)],
                         ids=["settings", "settings-window", "ping", "pong", "priority", "unknown"])
def test_http2_floods_of_frames_that_move_nothing(lab, world, client, flood):
    since = lab.mark()
    for _ in range(50):
        client.send(flood * 100)
    calm(lab, world, client, since)


@pytest.mark.conformance("http2: floods")
@pytest.mark.parametrize("padding", [None, 0, 50])
def test_http2_flood_of_empty_data(lab, world, client, padding):
    since = lab.mark()
    stream = client.open(client.head("/", "POST"), end=False)
    empty = frame(DATA, 0, stream) if padding is None else frame(DATA, PADDED, stream, bytes([padding]) + bytes(padding))
    for _ in range(50):
        client.send(empty * 100)
    assert client.wait_end() == ENHANCE_YOUR_CALM
    lab.wait_record("egress.deny", since, host="api.test", port=world.port)


def test_http2_windows_of_zero_cost_what_is_bounded(lab, world):
    world.https.script["/large"] = response(b"x" * 600_000)
    before = lab.peak_kib()
    with Client(lab, world, settings=struct.pack(">HI", 4, 0)) as client:
        streams = [client.open(client.head("/large")) for _ in range(40)]
        while not all(client.streams[s].fields for s in streams):
            assert client.read_frame() is not None
        assert lab.get("api.test", world.port).json()["target"] == "/", "others are served"
        assert lab.peak_kib() - before < 24 * 1024 * (10 if SANITIZED else 1)
        client.send(frame(SETTINGS, payload=struct.pack(">HI", 4, 1 << 20)))
        assert len(client.wait(streams[0]).body) == 600_000


def test_http2_a_guest_that_leaves_is_told_of_by_record(lab, world):
    seen = threading.Semaphore(0)
    world.https.script["/hang"] = lambda c, r: seen.release() or c.fill()
    since = lab.mark()
    with Client(lab, world) as client:
        for _ in range(5):
            client.open(client.head("/hang"))
        assert all(seen.acquire(timeout=TIMEOUT) for _ in range(5))
    lab.wait_record("egress.response", since, error="the guest closed the connection")


def test_http2_a_stream_that_is_reset_ends_its_request_alone(lab, world, client):
    seen = threading.Semaphore(0)
    world.https.script["/hang"] = lambda c, r: seen.release() or c.fill()
    since = lab.mark()
    stream = client.open(client.head("/hang"))
    assert seen.acquire(timeout=TIMEOUT)
    client.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))
    lab.wait_record("egress.response", since, error="the guest closed the connection")
    assert client.ask("/after").status == 200


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n", PREFACE[:10] + b"x" * 20, b"\0" * 64])
def test_http2_other_bytes_than_its_preface(lab, world, data):
    since = lab.mark()
    with lab.tls("api.test", world.port, alpn=["h2"]) as sock:
        sock.sendall(data)
        while sock.recv(65536):
            pass
    lab.wait_record("egress.deny", since, host="api.test", port=world.port)
    assert not world.https.requests


def test_http2_without_alpn_it_is_not_spoken(lab, world):
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(PREFACE + frame(SETTINGS))
        assert sock.recv(65536).startswith(b"HTTP/1.1 ")


def test_http2_a_short_body_is_heard_out_after_an_early_answer(own_lab, world):
    """Clients drop the answer when their sending is cut; a long one is cut all the same."""
    policy = world.policy()
    policy["egress"] = [{**rule, "methods": ["GET"]} for rule in policy["egress"]]
    with Client(own_lab(policy=policy), world) as client:
        short, long = (client.open(client.head("/", "POST") + [("content-length", n)], end=False) for n in ("3", "999999"))
        assert client.wait(short).status == 403 and client.wait(long).status == 403
        client.send(frame(DATA, END_STREAM, short, b"abc"))
        assert client.ask().status == 200
        assert client.streams[short].reset is None and client.streams[long].reset == NO_ERROR
