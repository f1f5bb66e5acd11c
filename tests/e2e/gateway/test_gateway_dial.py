# SPDX-License-Identifier: Apache-2.0
"""How a connection to the outside comes about: the first of several addresses that answers, or the policy's proxy."""
import json
import select
import socket
import ssl
import struct
import time

import pytest

from internet import CLOSED, PUBLIC, SECOND, Internet
from lab import Lab
from rawserver import RawServer, echo
from upstream import Upstream, response

SILENT = "203.0.114.1"  # routed, and nobody there says anything
DEAD_V6 = "2a00:1450::1"  # no route


@pytest.fixture(scope="module")
def internet():
    i = Internet()
    i.there.run("ip", "route", "add", "blackhole", SILENT + "/32")
    i.there.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    i.dns.table.update({
        "dead-first.example.test": [CLOSED, PUBLIC],
        "silent-first.example.test": [SILENT, PUBLIC],
        "v6-first.example.test": [DEAD_V6, PUBLIC],
        "all-dead.example.test": [CLOSED, DEAD_V6],
    })
    yield i
    i.close()


@pytest.fixture(scope="module")
def outside(internet, world, tmp_path_factory):
    rules = [{"host": "*.example.test", "scheme": "http"}]
    with Lab(tmp_path_factory.mktemp("dial"), world.node, {"egress": rules}, resolver=internet.dns.address, netns=internet.here) as lab:
        yield lab


def fetch(lab, host):
    return lab.get(host, 80, scheme="http", host_field=host, fields=["Connection: close"])


@pytest.mark.parametrize("host", ["dead-first", "silent-first", "v6-first"])
def test_dial_the_first_address_that_answers_is_taken(outside, internet, host):
    internet.public.requests.clear()
    begin = time.monotonic()
    assert fetch(outside, host + ".example.test").status == 200
    assert len(internet.public.requests) == 1
    assert time.monotonic() - begin < 5, "a silent address took its whole time limit"


def test_dial_when_no_address_answers_it_says_so(outside):
    answer = fetch(outside, "all-dead.example.test")
    assert answer.status == 502
    assert "could not connect to all-dead.example.test:80" in json.loads(answer.body)["message"]


# -- proxies --


class Proxy(RawServer):
    """One that does what it should: HTTP CONNECT or SOCKS5, to names that it knows."""

    def __init__(self, kind, names):
        self.names = names
        super().__init__(self.connect if kind == "http" else self.socks)

    def reach(self, sock, name, port, yes):
        self.note((name, port))
        with socket.create_connection((self.names[name], port)) as server:
            sock.sendall(yes)
            self.join(sock, server)

    @staticmethod
    def join(a, b):
        while True:
            for ready in select.select([a, b], [], [], 60)[0]:
                data = ready.recv(65536)
                if not data:
                    return
                (b if ready is a else a).sendall(data)

    def connect(self, sock, _):
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1)
        line, host = head.decode().split("\r\n")[:2]
        method, target, version = line.split(" ")
        assert (method, version, host) == ("CONNECT", "HTTP/1.1", "Host: " + target), head
        name, port = target.rsplit(":", 1)
        self.reach(sock, name, int(port), b"HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n")

    def socks(self, sock, _):
        assert sock.recv(3) == b"\5\1\0"
        sock.sendall(b"\5\0")
        head = sock.recv(5)
        assert head[:4] == b"\5\1\0\3", head
        name = sock.recv(head[4]).decode()
        port, = struct.unpack("!H", sock.recv(2))
        self.reach(sock, name, port, b"\5\0\0\3\x04here\0\0")


def url(kind, port):
    return {"url": "%s://127.0.0.1:%d" % ("socks5" if kind == "socks" else "http", port)}


@pytest.fixture(params=["http", "socks"])
def kind(request):
    return request.param


def test_dial_all_leaves_by_the_proxy_which_knows_the_names(own_lab, world, kind):
    """Names that no DNS has; but pinned ones are inside, and reached straight."""
    plain = Upstream()
    with Proxy(kind, {"plain.corp.test": "127.0.0.1", "db.corp.test": "127.0.0.1"}) as proxy, RawServer(echo) as db:
        rules = [world.rule("plain.corp.test", plain.port, "http"), world.rule("api.test", world.port),
                 {"host": "db.corp.test", "ports": [db.port], "scheme": "tcp"}]
        lab = own_lab(policy={"egress": rules, "resolve": [world.pin("api.test", world.outside)], "proxy": url(kind, proxy.port)})
        assert lab.get("plain.corp.test", plain.port, scheme="http").status == 200
        assert proxy.seen == [("plain.corp.test", plain.port)]
        with lab.connect("db.corp.test", db.port) as sock:
            sock.sendall(b"through")
            assert sock.recv(100) == b"through"
        assert proxy.seen[-1] == ("db.corp.test", db.port)
        had = proxy.connections
        assert lab.get("api.test", world.port).status == 200
        assert proxy.connections == had, "a pinned name went by the proxy"
        assert lab.resolve("elsewhere.test").rcode == 3
    plain.close()


def test_dial_tls_is_agreed_with_the_server_not_the_proxy(own_lab, world, kind):
    """The proxy leads to a server whose certificate nobody trusts."""
    with Proxy(kind, {"secure.corp.test": "127.0.0.1"}) as proxy:
        lab = own_lab(policy={"egress": [world.rule("secure.corp.test", world.port)], "proxy": url(kind, proxy.port)})
        answer = lab.get("secure.corp.test", world.port)
        assert answer.status == 502 and "TLS with secure.corp.test" in json.loads(answer.body)["message"]
        assert proxy.seen == [("secure.corp.test", world.port)]


def refusing(reply, first=None):
    def serve(sock, server):
        if first is not None:
            server.note(sock.recv(3))
            sock.sendall(first)
        server.note(sock.recv(4096))
        sock.sendall(reply)
        sock.recv(1)
    return serve


@pytest.mark.parametrize("kind,serve,words", [
    ("http", refusing(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"), "the proxy answered 403"),
    ("http", refusing(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n"), "the proxy answered 407"),
    ("http", refusing(b"SSH-2.0-none\r\n\r\n"), "sent no valid HTTP"),
    ("http", refusing(b"HTTP/1.1 200 Yes\n\n"), "sent no valid HTTP"),
    ("http", refusing(b"HTTP/1.1 200 Yes\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), "spoke before it was asked"),
    ("http", refusing(b""), None),
    ("socks", refusing(b"\5\2\0\1\0\0\0\0\0\0", first=b"\5\0"), "the proxy does not allow it"),
    ("socks", refusing(b"\5\5\0\1\0\0\0\0\0\0", first=b"\5\0"), "was refused by that host"),
    ("socks", refusing(b"\5\x77\0\1\0\0\0\0\0\0", first=b"\5\0"), "the proxy failed"),
    ("socks", refusing(b"\5\0\0\7\0\0\0\0\0\0", first=b"\5\0"), "sent no valid SOCKS5"),
    ("socks", refusing(b"", first=b"\5\2"), "wants authentication"),
    ("socks", refusing(b"", first=b"\4\0"), "does not speak SOCKS5"),
    ("socks", refusing(b"", first=b""), None),
])
def test_dial_a_proxy_that_refuses_or_lies(own_lab, world, kind, serve, words):
    def closing(sock, server):
        if words:
            serve(sock, server)
        else:
            sock.recv(4096)  # and closes
    with RawServer(closing) as proxy:
        lab = own_lab(policy={"egress": [world.rule("plain.corp.test", 80, "http")], "proxy": url(kind, proxy.port)})
        answer = lab.get("plain.corp.test", 80, scheme="http")
        assert answer.status == 502
        assert (words or "the proxy closed the connection") in json.loads(answer.body)["message"], answer.body
        lab.wait_record("egress.response", status=502)


def test_dial_a_proxy_that_is_not_there(own_lab, world, kind):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        lab = own_lab(policy={"egress": [world.rule("plain.corp.test", 80, "http")], "proxy": url(kind, unused.getsockname()[1])})
        answer = lab.get("plain.corp.test", 80, scheme="http")
        assert answer.status == 502 and "could not connect to the proxy 127.0.0.1" in json.loads(answer.body)["message"]


def test_dial_a_proxy_that_babbles_has_a_cap(own_lab, world):
    def babble(sock, server):
        sock.recv(4096)
        while True:
            sock.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000)
    with RawServer(babble) as proxy:
        lab = own_lab(policy={"egress": [world.rule("plain.corp.test", 80, "http")], "proxy": url("http", proxy.port)})
        assert lab.get("plain.corp.test", 80, scheme="http").status == 502
        assert lab.peak_kib() < 40 * 1024 or b"__asan_init" in open("/proc/%d/exe" % lab.gateway_pid, "rb").read()


def test_dial_no_metadata_service_is_a_proxy(own_lab, world):
    lab = None
    try:
        lab = own_lab(policy={"egress": [world.rule("plain.corp.test", 80, "http")], "proxy": {"url": "http://169.254.169.254:80"}})
    except Exception as e:  # a policy may refuse it by itself
        assert "metadata" in str(e)
    if lab:
        assert lab.get("plain.corp.test", 80, scheme="http").status == 403


# -- TLS sessions --


class Sessions(RawServer):
    """Answers one request on each connection, and notes whether its TLS session was one of before."""

    def __init__(self, certificate, newest):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*certificate)
        self.context.maximum_version = newest
        super().__init__(self.answer)

    def answer(self, sock, server):
        with self.context.wrap_socket(sock, server_side=True) as tls:
            while b"\r\n\r\n" not in tls.recv(65536):
                pass
            server.note(tls.session_reused)
            tls.sendall(response(fields=["Connection: close"]))


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_dial_tls_sessions_go_on_for_the_same_name_under_the_same_trust(own_lab, world, newest):
    with Sessions(world.outside.server("sessions", ["api.test", "other.test"]), newest) as server:
        hosts = ["api.test", "other.test"]
        policy = {"egress": [world.rule(h, server.port) for h in hosts], "resolve": [world.pin(h, world.outside) for h in hosts]}
        lab = own_lab(policy=policy)
        for host in ("api.test", "api.test", "api.test", "other.test", "other.test"):
            assert lab.get(host, server.port).status == 200
        assert server.seen == [False, True, True, False, True]
        # Another gateway has none of that.
        assert own_lab(policy=policy).get("api.test", server.port).status == 200
        assert server.seen[-1] is False
        # Nor has this one, when its policy has changed; and who is no longer trusted is not, session or none.
        lab.set_policy(policy)
        assert lab.get("api.test", server.port).status == 200
        assert server.seen[-1] is False
        had = len(server.seen)
        lab.set_policy({**policy, "resolve": [world.pin(h, world.stranger) for h in hosts]})
        assert lab.get("api.test", server.port).status == 502
        assert not any(isinstance(seen, bool) for seen in server.seen[had:]), "a request came through"
