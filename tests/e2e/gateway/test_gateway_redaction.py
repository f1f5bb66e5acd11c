# SPDX-License-Identifier: Apache-2.0
"""What comes back from the host of a grant holds no credential, whatever the server does with it (conformance.py, credentials: echo);
what goes out holds no placeholder (credentials: placeholder)."""
import base64
import contextlib
import gzip
import json
import os
import threading
import urllib.parse
import zlib

import pytest

from lab import GATEWAY, Response, read_all
from upstream import response
from world import SECRET

V = SECRET.encode()
STARS = b"*" * len(V)
PLACEHOLDER = "sp_API_TOKEN_0123456789abcdef"
SANITIZED = GATEWAY.exists() and b"__asan_init" in GATEWAY.read_bytes()


def everywhere(text):
    """Whether the value is in bytes, in any of these spellings."""
    plain = urllib.parse.unquote_to_bytes(text).replace(b"\\/", b"/").replace(b"\n", b"")
    return V in plain or V.hex().encode() in plain.lower() or any(
        base64.b64encode(bytes(k) + V)[4 if k else 0:-4].replace(a, b) in plain for k in range(3) for a, b in ((b"", b""), (b"/", b"_")))


def chunked(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n\r\n"


def answer_with(world, body, *fields, path="/echo"):
    world.https.script[path] = response(body, fields=fields)


def json_chars(text):
    return "".join(f"\\u{ord(c):04x}" for c in text)


SPELLINGS = {
    "raw": V,
    "percent": urllib.parse.quote(SECRET, safe="").encode(),
    "percent-all": "".join(f"%{b:02x}" for b in V).encode(),
    "json": SECRET.replace("/", "\\/").encode(),
    "json-all": json_chars(SECRET).encode(),
    "hex": V.hex().encode(),
    "hex-upper": V.hex().upper().encode(),
}


@pytest.mark.conformance("credentials: echo")
@pytest.mark.parametrize("name", SPELLINGS)
def test_redaction_of_each_spelling_in_a_body(lab, world, name):
    spelled = SPELLINGS[name]
    answer_with(world, b'{"token":"' + spelled + b'"}')
    answer = lab.get("key.test", world.port, "/echo")
    assert answer.status == 200 and answer.fields["Content-Length"] == str(len(answer.body))
    assert answer.body == b'{"token":"' + b"*" * len(spelled) + b'"}'


@pytest.mark.conformance("credentials: echo")
@pytest.mark.parametrize("before", [b"", b"u:", b"user:", b"Bearer "])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_redaction_of_base64_at_each_offset(lab, world, before, encode):
    encoded = encode(before + V)
    answer_with(world, b'{"authorization":"Basic ' + encoded + b'"}')
    body = lab.get("key.test", world.port, "/echo").body
    assert not everywhere(body) and len(body) == len(encoded) + 26 and body.startswith(b'{"authorization":"Basic ')
    assert body.count(b"*") >= len(V) * 8 // 6 - 1


@pytest.mark.conformance("credentials: echo")
@pytest.mark.parametrize("host", ["key.test", "both.test"])
def test_redaction_of_a_field(lab, world, host):
    answer_with(world, b"x", f"X-Got: Bearer {SECRET}", "X-Basic: " + base64.b64encode(b"me:" + V).decode(),
                f"Location: https://other.test/?t={urllib.parse.quote(SECRET)}", f"Set-Cookie: a={SECRET}; Path=/", "X-Plain: kept")
    answer = lab.get(host, world.port, "/echo")
    assert answer.status == 200 and answer.fields["X-Plain"] == "kept"
    assert answer.fields["X-Got"] == "Bearer " + "*" * len(V) and answer.fields["Set-Cookie"] == f"a={'*' * len(V)}; Path=/"
    assert answer.fields["Location"].startswith("https://other.test/?t=****")
    assert not everywhere(str(answer.fields).encode())


def test_redaction_of_what_the_server_saw(lab, world):
    """The server's own echo of the request: its Authorization field."""
    answer = lab.get("key.test", world.port, "/x")
    assert world.https.requests[0].get("Authorization") == "Bearer " + SECRET
    assert ["Authorization", "Bearer " + "*" * len(V)] in answer.json()["fields"]


def test_redaction_is_for_hosts_of_grants_alone(lab, world):
    answer_with(world, V)
    assert lab.get("api.test", world.port, "/echo").body == V


@pytest.mark.conformance("credentials: echo")
def test_redaction_at_every_cut(lab, world):
    """Two chunks, with the cut at each place."""
    text = b"token: " + V + b" end " + base64.b64encode(V) + b"."
    body = b"token: " + STARS + b" end "

    def serve(connection, request):
        cut = int(request.target.partition("?")[2])
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (text[:cut], text[cut:]):
            if piece:
                connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
        return True
    world.https.script["/cut"] = serve
    with lab.tls("key.test", world.port) as sock:
        for cut in range(len(text) + 1):
            sock.sendall(f"GET /cut?{cut} HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
            got = Response(sock).body
            assert got.startswith(body) and len(got) == len(text) and not everywhere(got), cut


def test_redaction_byte_by_byte(lab, world):
    text = b"a" + V + b"b" + V[:-1] + b"c"
    world.https.script["/bytes"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(*(bytes([c]) for c in text))
    assert lab.get("key.test", world.port, "/bytes").body == b"a" + STARS + b"b" + V[:-1] + b"c"


def test_redaction_to_the_close_of_the_connection(lab, world):
    world.https.script["/close"] = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" + V + b"y" + V[:9]
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(f"GET /close HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        data = read_all(sock)
    assert V not in data and STARS in data


@pytest.mark.conformance("credentials: echo")
@pytest.mark.parametrize("status", ["404 Not Found", "500 Internal Server Error", "401 Unauthorized"])
def test_redaction_of_errors(lab, world, status):
    world.https.script["/echo"] = response(b"bad token " + V, status)
    answer = lab.get("key.test", world.port, "/echo")
    assert answer.status == int(status[:3]) and answer.body == b"bad token " + STARS


def test_redaction_leaves_other_answers_as_they_are(lab, world):
    body = os.urandom(300000) + V[:-1] + b"%2F\\u0041\r\n" + SECRET.lower().encode()
    answer_with(world, body, "ETag: \"x\"")
    answer = lab.get("key.test", world.port, "/echo")
    assert answer.body == body and answer.fields["ETag"] == '"x"'
    for end in (V[:-1], V[:9], b"%", b"\\u00"):  # which is held until there is no more
        answer_with(world, b"some words and " + end)
        assert lab.get("key.test", world.port, "/echo").body == b"some words and " + end
    world.https.script["/none"] = b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n"
    assert lab.get("key.test", world.port, "/none").status == 204
    world.https.script["/head"] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Encoding: br\r\n\r\n"
    assert lab.get("key.test", world.port, "/head", "HEAD").fields["Content-Length"] == "7"


def test_redaction_holds_up_no_event(lab, world):
    """Each event arrives before the next is sent, but for what may be the beginning of a value."""
    arrived = threading.Semaphore(0)

    def serve(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in (b"data: 1\n\n", b"data: " + V + b"\n\n", b"data: s3\n\n", b"data: 50%\n\n", b"data: \\n\n\n"):
            connection.send(b"%x\r\n%s\r\n" % (len(event), event))
            if not arrived.acquire(timeout=20):
                return False
        connection.send(b"0\r\n\r\n")
        return True
    world.https.script["/events"] = serve
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(f"GET /events HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        stream, got = sock.makefile("rb"), b""
        while stream.readline() != b"\r\n":
            pass
        for event in (b"data: 1\n\n", b"data: " + STARS + b"\n\n", b"data: s3\n\n", b"data: 50%\n\n", b"data: \\n\n\n"):
            while len(got) < len(event):
                got += stream.read(int(stream.readline(), 16))
                stream.readline()
            assert got == event
            got = b""
            arrived.release()
        assert stream.readline() == b"0\r\n"


@pytest.mark.conformance("credentials: echo")
def test_redaction_knows_a_value_that_is_renewed_meanwhile(own_lab, world):
    """An answer that began before holds neither the old value nor the new one."""
    new, go = b"another-value-of-that-token-0123", threading.Event()

    def serve(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(V), V))
        assert go.wait(20)
        connection.send(chunked(new + b" " + V))
        return True
    world.https.script["/slow"] = serve
    lab = own_lab()
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(f"GET /slow HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        data = b""
        while STARS not in data:
            data += sock.recv(65536)
        assert lab.tell({"type": "secret", "renew": {"name": "API_TOKEN", "value": new.decode()}})["ok"]
        go.set()
        while not data.endswith(b"0\r\n\r\n"):
            data += sock.recv(65536)
    assert new not in data and V not in data and data.count(b"*") == 2 * len(V) + len(new)


# -- encoded answers --

def deflated(body, bits):
    z = zlib.compressobj(wbits=bits)
    return z.compress(body) + z.flush()


TOKEN = b"<" + V + b">"
ENCODED = {
    "gzip": ("gzip", gzip.compress(TOKEN)), "x-gzip": ("x-gzip", gzip.compress(TOKEN)), "upper-case": ("GZIP", gzip.compress(TOKEN)),
    "members": ("gzip", gzip.compress(TOKEN[:6]) + gzip.compress(TOKEN[6:])),
    "zlib": ("deflate", deflated(TOKEN, 15)), "raw": ("deflate", deflated(TOKEN, -15)),
}


@pytest.mark.conformance("credentials: echo")
@pytest.mark.parametrize("name", ENCODED)
def test_redaction_of_what_comes_compressed_all_the_same(lab, world, name):
    coding, encoded = ENCODED[name]
    answer_with(world, encoded, f"Content-Encoding: {coding}", 'ETag: "v1"', "Accept-Ranges: bytes", "Content-Type: text/plain")
    for method in ("GET", "HEAD"):
        if method == "HEAD":
            world.https.script["/echo"] = response(encoded, fields=[f"Content-Encoding: {coding}", 'ETag: "v1"'])[:-len(encoded)]
        answer = lab.get("key.test", world.port, "/echo", method)
        assert answer.status == 200 and answer.body == (b"<" + STARS + b">" if method == "GET" else b"")
        assert not answer.fields["Content-Encoding"] and not answer.fields["Accept-Ranges"]
        assert answer.fields["ETag"] == 'W/"v1"' and answer.fields["Content-Length"] != str(len(encoded))
    for piece in (1, 7):
        cut = [encoded[i:i + piece] for i in range(0, len(encoded), piece)]
        world.https.script["/cut"] = (f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                                      + chunked(*cut))
        assert lab.get("key.test", world.port, "/cut").body == b"<" + STARS + b">"


@pytest.mark.conformance("credentials: echo")
@pytest.mark.parametrize("fields", [["Content-Encoding: br"], ["Content-Encoding: zstd"], ["Content-Encoding: gzip, br"],
                                    ["Content-Encoding: gzip", "Content-Encoding: gzip"], ["Content-Encoding: aes128gcm"],
                                    ["grpc-encoding: gzip", "Content-Type: application/grpc"], ["Connect-Content-Encoding: gzip"]])
def test_redaction_refuses_what_it_can_not_read(lab, world, fields):
    since = lab.mark()
    answer_with(world, b"anything", *fields)
    answer = lab.get("key.test", world.port, "/echo")
    assert answer.status == 502 and "not asked for" in answer.json()["message"]
    lab.wait_record("egress.response", since, error=lambda e: e and "not asked for" in e)
    assert lab.get("api.test", world.port, "/echo").body == b"anything"


def test_redaction_of_what_is_not_what_it_says_cuts(lab, world):
    whole = gzip.compress(os.urandom(50000))
    for bad in (b"no gzip at all", whole[:-20], whole[:1000] + b"junk" * 50 + whole[1200:]):
        answer_with(world, bad, "Content-Encoding: gzip")
        with pytest.raises((OSError, Exception)):
            assert lab.get("key.test", world.port, "/echo").status != 200
            raise OSError
    answer_with(world, b"", "Content-Encoding: gzip")
    answer = lab.get("key.test", world.port, "/echo")
    assert answer.status == 200 and answer.body == b""


def test_redaction_of_a_bomb_keeps_the_pace_of_the_guest(own_lab, world):
    """A quarter of a gigabyte of zeros in as much of a megabyte: what is not read stays small."""
    z = zlib.compressobj(wbits=31)
    bomb = b"".join([z.compress(bytes(1 << 20)) for _ in range(256)]) + z.flush()
    assert len(bomb) < 2 << 20
    world.https.script["/bomb"] = response(bomb, fields=["Content-Encoding: gzip"])
    lab = own_lab()
    lab.get("key.test", world.port)
    before = lab.peak_kib()
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(f"GET /bomb HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        left = 64 << 20
        while left > 0:
            left -= len(sock.recv(1 << 20))
    lab.get("key.test", world.port)
    assert lab.peak_kib() - before < ((512 if SANITIZED else 8) << 10)  # what is freed waits there


def test_redaction_of_a_large_body_stays_within_memory(own_lab, world):
    size, part = 200 << 20, os.urandom(1 << 20)
    piece = part[:-len(V)] + V

    def serve(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size >> 20):
            connection.send(piece)
        return True
    world.https.script["/large"] = serve
    lab = own_lab()
    lab.get("key.test", world.port)
    before, got, last = lab.peak_kib(), 0, b""
    with lab.tls("key.test", world.port) as sock:
        sock.sendall(f"GET /large HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        stream = sock.makefile("rb")
        while stream.readline() != b"\r\n":
            pass
        while got < size:
            data = stream.read(min(1 << 20, size - got))
            got += len(data)
            assert V not in last + data
            last = data[-len(V):]
    assert got == size and last == STARS
    assert lab.peak_kib() - before < ((512 if SANITIZED else 8) << 10)  # what is freed waits there


@pytest.mark.conformance("credentials: echo")
def test_redaction_asks_for_no_part_of_a_body(lab, world):
    """By ranges, a guest could have a value cut in two, and each half taken for nothing."""
    answer_with(world, b"whole")
    assert lab.get("key.test", world.port, "/echo", fields=["Range: bytes=1-3", "If-Range: \"x\""]).body == b"whole"
    assert not world.https.requests[0].all("Range") and not world.https.requests[0].all("If-Range")
    world.https.script["/part"] = response(V[3:], "206 Partial Content", ["Content-Range: bytes 3-20/21"])
    answer = lab.get("key.test", world.port, "/part")
    assert answer.status == 502 and V[5:] not in answer.body
    lab.get("api.test", world.port, fields=["Range: bytes=1-3"])
    assert world.https.requests[-1].get("Range") == "bytes=1-3"


def test_redaction_asks_for_no_encoded_messages(lab, world):
    lab.get("key.test", world.port, fields=["grpc-accept-encoding: gzip", "Connect-Accept-Encoding: gzip", "Accept-Encoding: gzip"])
    lab.get("key.test", world.port, fields=[])
    for request in world.https.requests:
        assert request.all("Accept-Encoding") == ["identity"]
        assert not request.all("grpc-accept-encoding") and not request.all("connect-accept-encoding")


# -- HTTP/2 --

@pytest.mark.conformance("credentials: echo")
def test_redaction_over_http2(lab, world):
    h2client = pytest.importorskip("h2client", reason="needs python3-hpack")
    text = b"x" * 40000 + V + b"y" * 40000 + base64.b64encode(V)
    answer_with(world, text, f"X-Got: {SECRET}")
    answer_with(world, gzip.compress(text), "Content-Encoding: gzip", path="/gzip")
    with h2client.Client(lab, world, "key.test") as client:
        for path in ("/echo", "/gzip"):
            answer = client.ask(path)
            assert answer.status == 200 and len(answer.body) == len(text) and not everywhere(answer.body)
            assert answer.body[:80000 + len(V)] == b"x" * 40000 + STARS + b"y" * 40000
            assert SECRET not in str(answer.fields) and "content-encoding" not in dict(answer.fields)
