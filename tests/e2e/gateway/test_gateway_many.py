# SPDX-License-Identifier: Apache-2.0
"""Two thousand connections at once, and what they cost; peers that stall on either side."""
import concurrent.futures
import pathlib
import resource
import select
import socket
import threading
import time

import pytest

from lab import GATEWAY, Response, read_all
from rawserver import RawServer

MANY = 2000
GUESTS_MAX = 2048
BLOCK = bytes(range(256)) * 256  # 64 KiB
SANITIZED = GATEWAY.exists() and b"__asan_init" in GATEWAY.read_bytes()


@pytest.fixture(autouse=True)
def files():
    """Both ends of each connection are ours."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MANY
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} open files, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def tell(capsys):
    def say(text):
        with capsys.disabled():
            print(f"\n  {text}")
    return say


def resident_kib(lab):
    status = pathlib.Path(f"/proc/{lab.gateway_pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


class Echo:
    """A server on one thread, for any number of connections."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=MANY)
        self.port = self.listener.getsockname()[1]
        self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        poll, open_ = select.epoll(), {}
        poll.register(self.listener, select.EPOLLIN)
        poll.register(self._stop[0], select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._stop[0].fileno():
                    for sock in open_.values():
                        sock.close()
                    return
                if fd == self.listener.fileno():
                    sock, _ = self.listener.accept()
                    open_[sock.fileno()] = sock
                    poll.register(sock, select.EPOLLIN)
                    continue
                try:
                    data = open_[fd].recv(65536)
                    if data:
                        open_[fd].sendall(data)
                        continue
                except OSError:
                    pass
                open_.pop(fd).close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop[1].send(b"x")
        self._thread.join()
        self.listener.close()


def test_many_connections_that_are_served(own_lab, world, tell):
    lab = own_lab()
    address = lab.address("api.test")
    idle = resident_kib(lab)

    def one(i):
        sock = lab.tls("api.test", world.port, address=address)
        sock.sendall(f"GET /{i} HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert Response(sock).json()["target"] == f"/{i}"
        return sock
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        socks = list(pool.map(one, range(MANY)))
    used = resident_kib(lab)
    tell(f"resident: {idle} KiB idle, {used} KiB with {MANY} TLS connections, {(used - idle) / MANY:.1f} KiB each")
    for i in (0, MANY // 2, MANY - 1):  # all are still there
        socks[i].sendall(f"GET /again HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert Response(socks[i]).status == 200
    for sock in socks:
        sock.close()
    assert used < 120 * 1024 * (10 if SANITIZED else 1)


def test_many_connections_that_are_passed_on(own_lab, world, tell):
    with Echo() as server:
        lab = own_lab(policy={"egress": [world.rule("db.test", server.port, "tcp")], "resolve": [world.pin("db.test")]})
        address = lab.address("db.test")
        idle = resident_kib(lab)
        socks = [lab.connect("db.test", server.port, address=address) for _ in range(MANY)]
        for i, sock in enumerate(socks):
            sock.sendall(b"%08d" % i)
        for i, sock in enumerate(socks):
            assert sock.recv(8, socket.MSG_WAITALL) == b"%08d" % i
        used = resident_kib(lab)
        tell(f"resident: {idle} KiB idle, {used} KiB with {MANY} relays, {(used - idle) / MANY:.1f} KiB each")
        for sock in socks:
            sock.close()
        assert used < 40 * 1024 * (10 if SANITIZED else 1)


def held_to(port):
    """Connections to this port that some process still holds."""
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [line for line in lines if int(line[2].split(":")[1], 16) == port and line[9] != "0"]


def test_many_guests_that_do_not_read(own_lab, world, tell):
    """Each asks for all there is and reads nothing: what waits in the gateway is bounded, and so is their number."""
    class Pour(Echo):
        def _run(self):
            poll, open_ = select.epoll(), {}
            poll.register(self.listener, select.EPOLLIN)
            poll.register(self._stop[0], select.EPOLLIN)
            while True:
                for fd, _ in poll.poll():
                    if fd == self._stop[0].fileno():
                        for sock in open_.values():
                            sock.close()
                        return
                    if fd == self.listener.fileno():
                        sock, _ = self.listener.accept()
                        sock.setblocking(False)
                        open_[sock.fileno()] = sock
                        poll.register(sock, select.EPOLLOUT | select.EPOLLET)
                        continue
                    try:
                        while True:
                            open_[fd].send(BLOCK)
                    except BlockingIOError:
                        pass
                    except OSError:
                        open_.pop(fd).close()
    with Pour() as server:
        lab = own_lab(policy={"egress": [world.rule("db.test", server.port, "tcp"), world.rule("api.test", world.port)],
                              "resolve": [world.pin("db.test"), world.pin("api.test", world.outside)]})
        address, served = lab.address("db.test"), lab.address("api.test")
        socks = []
        for _ in range(MANY):
            sock = lab.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect((address, server.port))
            socks.append(sock)
        for sock in socks:
            assert sock.recv(1)
        with lab.tls("api.test", world.port, address=served) as sock:  # others are served
            sock.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
            assert Response(sock).status == 200
        tell(f"resident: {lab.peak_kib()} KiB at most with {MANY} guests that do not read")
        assert lab.peak_kib() < 400 * 1024
        for sock in socks:
            sock.close()
        lab.wait(lambda: len([r for r in lab.records if r["kind"] == "egress.response"]) > MANY)
        # The server is heard out for a moment.
        deadline = time.monotonic() + 20
        while held_to(server.port):
            assert time.monotonic() < deadline, "connections are left"
            time.sleep(0.05)


def test_many_connections_over_the_cap_are_refused_and_recorded(own_lab, world):
    lab = own_lab()
    address = lab.address("api.test")
    socks = [lab.connect("api.test", world.port, address=address) for _ in range(GUESTS_MAX)]
    with pytest.raises(OSError), lab.connect("api.test", world.port, address=address) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert not sock.recv(1)
        raise ConnectionResetError
    lab.wait_record("egress.deny", reason=lambda r: "limit" in r)
    for sock in socks:
        sock.close()
    with lab.tls("api.test", world.port, address=address) as sock:  # room again
        sock.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert Response(sock).status == 200


@pytest.mark.parametrize("scheme", ["tcp", "tls", "https"])
def test_many_servers_that_stall_hold_nobody_up(own_lab, world, scheme):
    """Two hundred that accept and say nothing, not even TLS."""
    release = threading.Event()
    with RawServer(lambda sock, server: release.wait(60)) as server:
        lab = own_lab(policy={"egress": [world.rule("slow.test", server.port, scheme), world.rule("api.test", world.port)],
                              "resolve": [world.pin("slow.test"), world.pin("api.test", world.outside)]})
        address = lab.address("slow.test")

        def begin(_):
            if scheme != "https":
                sock = lab.connect("slow.test", server.port, address=address)
                sock.sendall(b"x" if scheme == "tcp" else b"\x16\x03\x01")
                return sock
            sock = lab.tls("slow.test", server.port, address=address)
            sock.sendall(f"GET / HTTP/1.1\r\nHost: slow.test:{server.port}\r\n\r\n".encode())
            return sock
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            socks = list(pool.map(begin, range(200)))
        if scheme != "tls":
            server.wait(lambda s: s.connections == 200)
        for _ in range(5):
            assert lab.get("api.test", world.port).status == 200
        release.set()
        for sock in socks:
            sock.close()


def test_many_trickling_guests_are_ended(own_lab, world):
    """A byte now and then is no progress: a ClientHello has a deadline in all, on either path."""
    lab = own_lab(policy={"egress": [world.rule("api.test", world.port, "tls"), world.rule("other.test", world.port)],
                          "resolve": [world.pin("api.test"), world.pin("other.test", world.outside)]})
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 100
    socks = [lab.connect(host, world.port, address=lab.address(host)) for host in ("api.test", "other.test") for _ in range(20)]
    stop = threading.Event()

    def trickle(sock):
        for byte in hello:
            try:
                sock.send(bytes([byte]))
            except OSError:
                break
            if stop.wait(0.5):
                return
        read_all(sock)

    threads = [threading.Thread(target=trickle, args=(sock,)) for sock in socks]
    for thread in threads:
        thread.start()
    try:
        lab.wait(lambda: len([r for r in lab.records if r["kind"] == "egress.deny"]) == len(socks), 30)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
        for sock in socks:
            sock.close()
    assert not world.https.requests
