# SPDX-License-Identifier: Apache-2.0
"""Size, number and time: streams of any length in little memory, and no guest that can wedge its gateway."""
import concurrent.futures
import hashlib
import socket
import threading

import pytest

from lab import GATEWAY, Response, read_all
from upstream import response

BIG = 200 * 1024 * 1024
BLOCK = bytes(range(256)) * 256  # 64 KiB
# AddressSanitizer keeps what was freed for a while.
RSS_KIB = 40 * 1024 * (10 if GATEWAY.exists() and b"__asan_init" in GATEWAY.read_bytes() else 1)


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("chunked", [False, True])
def test_limits_a_large_download_in_little_memory(own_lab, world, scheme, chunked):
    def handler(connection, _request):
        head = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % BIG
        connection.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        piece = b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK
        for _ in range(BIG // len(BLOCK)):
            connection.send(piece)
        connection.send(b"0\r\n\r\n" if chunked else b"")
        return True
    lab = own_lab()
    server, host, port = (world.https, "api.test", world.port) if scheme == "https" else (world.http, "plain.test", world.http_port)
    server.script["/big"] = handler
    total, digest = 0, hashlib.md5()
    with (lab.tls if scheme == "https" else lab.connect)(host, port) as sock:
        sock.sendall(f"GET /big HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        stream = sock.makefile("rb", 1 << 20)
        while stream.readline() != b"\r\n":
            pass
        while data := stream.read(1 << 20):
            total += len(data)
            digest.update(data)
    assert total == BIG
    want = hashlib.md5()
    for _ in range(BIG // len(BLOCK)):
        want.update(BLOCK)
    assert digest.digest() == want.digest()
    assert lab.wait_record("egress.response")["bytes_down"] == BIG
    assert lab.peak_kib() < RSS_KIB


@pytest.mark.parametrize("chunked", [False, True])
def test_limits_a_large_upload_in_little_memory(own_lab, world, chunked):
    def handler(connection, request):
        total, digest = 0, hashlib.md5()
        if chunked:
            while size := int(connection.until(b"\r\n"), 16):
                data = connection.exactly(size + 2)[:-2]
                total += len(data)
                digest.update(data)
            connection.until(b"\r\n")
        else:
            left = int(request.get("Content-Length"))
            while left:
                if not connection.buffer:
                    assert connection.fill()
                data, connection.buffer = connection.buffer[:left], connection.buffer[left:]
                left -= len(data)
                total += len(data)
                digest.update(data)
        connection.send(response(f"{total} {digest.hexdigest()}"))
        return True
    lab = own_lab()
    world.https.script["/up"] = handler
    want = hashlib.md5()
    with lab.tls("api.test", world.port) as sock:
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {BIG}"
        sock.sendall(f"POST /up HTTP/1.1\r\nHost: api.test:{world.port}\r\n{framing}\r\n\r\n".encode())
        for _ in range(BIG // len(BLOCK)):
            sock.sendall(b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK)
            want.update(BLOCK)
        sock.sendall(b"0\r\n\r\n" if chunked else b"")
        assert Response(sock).body.decode() == f"{BIG} {want.hexdigest()}"
    assert lab.wait_record("egress.response")["bytes_up"] == BIG
    assert lab.peak_kib() < RSS_KIB


def test_limits_a_guest_that_does_not_read_stops_the_server(own_lab, world):
    """Backpressure reaches the server: it can't send more than the buffers on the way hold."""
    sent, stopped = [], threading.Event()

    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
        connection.sock.settimeout(2)
        try:
            for _ in range(BIG // len(BLOCK)):
                connection.send(BLOCK)
                sent.append(len(BLOCK))
        except TimeoutError:
            stopped.set()
        return False
    lab = own_lab()
    world.https.script["/pour"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(f"GET /pour HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        sock.recv(1)
        assert stopped.wait(20)
    assert sum(sent) < BIG / 4
    assert lab.peak_kib() < RSS_KIB
    end = lab.wait_record("egress.response")
    assert end["error"] and end["bytes_down"] < BIG / 4


def test_limits_many_stalled_downloads_in_bounded_memory(own_lab, world):
    """A guest that asks for everything and reads nothing, on hundreds of connections."""
    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
        connection.sock.settimeout(1)
        for _ in range(BIG // len(BLOCK)):
            connection.send(BLOCK)
        return False
    lab = own_lab()
    world.http.script["/pour"] = handler
    address = lab.address("plain.test")
    socks = []
    for _ in range(300):
        sock = lab.connect("plain.test", world.http_port, address=address)
        sock.sendall(f"GET /pour HTTP/1.1\r\nHost: plain.test:{world.http_port}\r\n\r\n".encode())
        socks.append(sock)
    for sock in socks:
        assert sock.recv(1)
    assert lab.get("api.test", world.port).status == 200
    assert lab.peak_kib() < 3 * RSS_KIB
    for sock in socks:
        sock.close()


def test_limits_events_are_not_buffered(lab, world):
    """Each event of a stream arrives before the server makes the next."""
    arrived = []
    seen = threading.Semaphore(0)

    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(20):
            data = b"data: %d\n\n" % i
            connection.send(b"%x\r\n%s\r\n" % (len(data), data))
            if not seen.acquire(timeout=5):
                return False
        connection.send(b"0\r\n\r\n")
        return True
    world.https.script["/events"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(f"GET /events HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        buffer = b""
        for i in range(20):
            while b"data: %d\n\n" % i not in buffer:
                data = sock.recv(65536)
                assert data, buffer
                buffer += data
            arrived.append(i)
            seen.release()
    assert len(arrived) == 20


def test_limits_both_directions_at_once(lab, world):
    """A server that answers while it is being sent to."""
    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while size := int(connection.until(b"\r\n"), 16):
            data = connection.exactly(size + 2)[:-2]
            connection.send(b"%x\r\n%s\r\n" % (len(data), data))
        connection.send(b"0\r\n\r\n")
        return False
    world.https.script["/echo"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(f"POST /echo HTTP/1.1\r\nHost: api.test:{world.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        buffer = b""
        for i in range(50):
            piece = b"ping %d." % i
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            while piece not in buffer:
                data = sock.recv(65536)
                assert data, buffer
                buffer += data


def test_limits_five_hundred_connections_at_once(own_lab, world):
    lab = own_lab()
    address = lab.address("api.test")
    context_count = 500

    def one(i):
        sock = lab.tls("api.test", world.port, address=address)
        sock.sendall(f"GET /{i} HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        answer = Response(sock)
        assert answer.json()["target"] == f"/{i}"
        return sock
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        socks = list(pool.map(one, range(context_count)))
        again = []
        for i, sock in enumerate(socks):  # all are still there
            sock.sendall(f"GET /again{i} HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        for i, sock in enumerate(socks):
            again.append(Response(sock).status)
            sock.close()
    assert again == [200] * context_count


def test_limits_five_hundred_requests_in_flight(own_lab, world):
    lab = own_lab()
    address = lab.address("plain.test")
    release, waiting = threading.Event(), threading.Semaphore(0)

    def handler(connection, _request):
        waiting.release()
        release.wait(60)
        connection.send(response("ok"))
        return True
    world.http.script["/wait"] = handler
    socks = [lab.connect("plain.test", world.http_port, address=address) for _ in range(500)]
    for sock in socks:
        sock.sendall(f"GET /wait HTTP/1.1\r\nHost: plain.test:{world.http_port}\r\n\r\n".encode())
    for _ in socks:
        assert waiting.acquire(timeout=30)
    release.set()
    for sock in socks:
        assert Response(sock).body == b"ok"
        sock.close()


@pytest.mark.conformance("names: hello")
def test_limits_slow_beginnings_are_ended(own_lab, world):
    """No first byte; a ClientHello that stops; a head that trickles. All at once, for each takes its deadline."""
    lab = own_lab()
    since = lab.mark()
    address = lab.address("api.test")
    silent = lab.connect("api.test", world.port, address=address)
    half_hello = lab.connect("api.test", world.port, address=address)
    half_hello.sendall(b"\x16\x03\x01\x02\x00\x01")
    half_head = lab.tls("api.test", world.port, address=address)
    half_head.sendall(b"GET / HTTP/1.1\r\nHost: ")
    half_plain = lab.connect("api.test", world.port, address=address)
    half_plain.sendall(b"GET")
    with silent, half_hello, half_head, half_plain:
        for sock in (silent, half_hello, half_head, half_plain):
            sock.settimeout(30)
        answers = [read_all(sock) for sock in (silent, half_hello, half_head, half_plain)]
    assert answers[0] == b"" and b"HTTP" not in answers[1]
    assert answers[2].startswith(b"HTTP/1.1 408") and answers[3].startswith(b"HTTP/1.1 408")
    lab.wait_record("egress.deny", since, reason=lambda r: "first byte" in r)
    lab.wait_record("egress.deny", since, reason=lambda r: "TLS" in r)
    lab.wait_record("egress.deny", since, reason=lambda r: "408" in r)
    assert not world.https.requests


def test_limits_one_stalled_server_does_not_hold_up_others(lab, world):
    release = threading.Event()

    def handler(connection, _request):
        release.wait(20)
        connection.send(response("late"))
        return True
    world.https.script["/slow"] = handler
    with lab.tls("api.test", world.port) as slow:
        slow.sendall(f"GET /slow HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        world.https.wait(lambda s: any(r.target == "/slow" for r in s.requests))
        for _ in range(5):
            assert lab.get("api.test", world.port, "/quick").status == 200
        release.set()
        assert Response(slow).body == b"late"


def test_limits_random_bytes_never_end_the_gateway(lab, world):
    import random
    rng = random.Random(7)
    for i in range(200):
        with lab.connect("api.test", world.port) as sock:
            data = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 300)))
            if i % 3 == 0:
                data = b"\x16\x03\x01" + data
            elif i % 3 == 1:
                data = b"GET / HTTP/1.1\r\nHost: api.test\r\n" + data + b"\r\n\r\n"
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            read_all(sock)
    assert lab.get("api.test", world.port).status == 200
