# SPDX-License-Identifier: Apache-2.0
"""Rules with scheme tcp: any bytes to a host and port, judged by the address that was connected to."""
import hashlib
import socket
import ssl
import struct

import pytest

from dnsserver import DnsServer
from lab import GATEWAY, Failed, Response, read_all
from rawserver import RawServer, echo, read_to_end

BLOCK = bytes(range(256)) * 256  # 64 KiB
BIG = 50 * 1024 * 1024
RSS_KIB = 40 * 1024 * (10 if GATEWAY.exists() and b"__asan_init" in GATEWAY.read_bytes() else 1)


def banner(sock, server):
    """The server speaks first, as those of mail, databases and SSH do."""
    sock.sendall(b"220 ready\r\n")
    server.note(sock.recv(100))
    sock.sendall(b"250 ok\r\n")
    sock.recv(1)


@pytest.fixture
def tcp_lab(own_lab, world):
    def make(*ports, limits=None, more=(), **kwargs):
        rule = {"host": "db.test", "ports": list(ports), "scheme": "tcp"}
        if limits:
            rule["limits"] = limits
        return own_lab(policy={"egress": [rule, *more], "resolve": [world.pin("db.test")]}, **kwargs)
    return make


def reset_by_peer(sock):
    sock.settimeout(20)
    with pytest.raises(ConnectionResetError):
        while sock.recv(65536):
            pass


def connect_to_reset(lab, host, port):
    """The reset may come before connect() has returned."""
    with pytest.raises(ConnectionResetError), lab.connect(host, port) as sock:
        while sock.recv(65536):
            pass


def test_tcp_a_server_may_speak_first(tcp_lab):
    with RawServer(banner) as server:
        lab = tcp_lab(server.port)
        with lab.connect("db.test", server.port) as sock:
            assert sock.recv(100) == b"220 ready\r\n"
            sock.sendall(b"HELO guest\r\n")
            assert sock.recv(100) == b"250 ok\r\n"
        request = lab.wait_record("egress.request")
        assert {k: v for k, v in request.items() if k not in ("id", "seq", "time")} == {
            "kind": "egress.request", "scheme": "tcp", "host": "db.test", "port": server.port,
            "rule": request["rule"], "credential": None}
        assert "db.test" in request["rule"]
        end = lab.wait_record("egress.response", id=request["id"])
        assert (end["bytes_up"], end["bytes_down"]) == (12, 19) and "error" not in end and "status" not in end


def test_tcp_nothing_is_dialled_before_its_record_is_written(tcp_lab):
    with RawServer(banner) as server:
        lab = tcp_lab(server.port)
        address = lab.address("db.test")
        lab.hold(True)
        with lab.connect("db.test", server.port, address=address) as sock:
            lab.wait_record("egress.request")
            sock.settimeout(0.5)
            with pytest.raises(TimeoutError):
                sock.recv(1)
            assert not server.connections
            reset_by_peer(sock)  # no acknowledgement, no connection
        assert not server.connections


def test_tcp_one_side_may_finish_before_the_other(tcp_lab):
    def count(sock, _server):
        data = read_to_end(sock)
        sock.sendall(hashlib.sha256(data).hexdigest().encode())
    with RawServer(count) as server:
        lab = tcp_lab(server.port)
        with lab.connect("db.test", server.port) as sock:
            sock.sendall(BLOCK)
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock).decode() == hashlib.sha256(BLOCK).hexdigest()
        assert "error" not in lab.wait_record("egress.response", bytes_up=len(BLOCK), bytes_down=64)


def test_tcp_much_passes_both_ways_in_little_memory(tcp_lab):
    def pour(sock, server):
        for _ in range(BIG // len(BLOCK)):
            sock.sendall(BLOCK)
        sock.shutdown(socket.SHUT_WR)
        server.note(sum(len(d) for d in iter(lambda: sock.recv(65536), b"")))
    with RawServer(pour) as server:
        lab = tcp_lab(server.port)
        with lab.connect("db.test", server.port) as sock:
            digest = hashlib.md5(read_all(sock)).digest()
            for _ in range(BIG // len(BLOCK)):
                sock.sendall(BLOCK)
            sock.shutdown(socket.SHUT_WR)
            server.wait(lambda s: s.seen == [BIG])
        assert digest == hashlib.md5(BLOCK * (BIG // len(BLOCK))).digest()
        lab.wait_record("egress.response", bytes_up=BIG, bytes_down=BIG)
        assert lab.peak_kib() < RSS_KIB


def test_tcp_a_guest_that_does_not_read_stops_the_server(tcp_lab):
    def pour(sock, server):
        sent = 0
        sock.settimeout(2)
        try:
            while sent < 20 * BIG:
                sent += sock.send(BLOCK)
        except TimeoutError:
            server.note(sent)
    with RawServer(pour) as server:
        lab = tcp_lab(server.port)
        with lab.connect("db.test", server.port):
            server.wait(lambda s: s.seen)
        assert server.seen[0] < BIG
        assert lab.peak_kib() < RSS_KIB


def test_tcp_a_cut_is_passed_on(tcp_lab):
    def cut(sock, server):
        server.note(sock.recv(10))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with RawServer(cut) as server:
        lab = tcp_lab(server.port)
        with lab.connect("db.test", server.port) as sock:
            sock.sendall(b"x")
            reset_by_peer(sock)
        assert lab.wait_record("egress.response", bytes_up=1, bytes_down=0)["error"]


def test_tcp_a_guest_that_cuts_cuts_the_server(tcp_lab):
    with RawServer(echo) as server:
        lab = tcp_lab(server.port)
        sock = lab.connect("db.test", server.port)
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        server.wait(lambda s: isinstance(s.seen[-1], ConnectionResetError))
        assert lab.wait_record("egress.response", bytes_up=1, bytes_down=1)["error"]


def test_tcp_a_server_that_is_not_there(tcp_lab):
    lab = tcp_lab(1)
    connect_to_reset(lab, "db.test", 1)
    assert "could not connect" in lab.wait_record("egress.response", bytes_up=0)["error"]


def test_tcp_a_name_that_leads_to_a_special_address_is_refused(own_lab):
    dns = DnsServer({"inside.test": ["127.0.0.1", "10.0.0.1", "169.254.169.254"]})
    with RawServer(echo) as server:
        lab = own_lab(policy={"egress": [{"host": "inside.test", "ports": [server.port], "scheme": "tcp"}]}, resolver=dns.address)
        connect_to_reset(lab, "inside.test", server.port)
        deny = lab.wait_record("egress.deny", scheme="tcp", host="inside.test", port=server.port)
        assert "no public one" in deny["reason"]
        lab.wait_record("egress.response", error="denied")
        assert not server.connections
    dns.close()


def test_tcp_the_first_rule_says_what_a_port_speaks(own_lab, world):
    """tcp before https: TLS goes through unread. https before tcp: it ends at the gateway."""
    tcp, https = world.rule("api.test", world.port, "tcp"), world.rule("api.test", world.port)
    pins = [world.pin("api.test", world.outside)]
    lab = own_lab(policy={"egress": [tcp, https], "resolve": pins})
    with pytest.raises(ssl.SSLCertVerificationError):
        lab.tls("api.test", world.port)
    lab.wait_record("egress.request", scheme="tcp")
    lab = own_lab(policy={"egress": [https, tcp], "resolve": pins})
    assert lab.get("api.test", world.port).status == 200
    lab.wait_record("egress.request", scheme="https")


def test_tcp_other_ports_of_the_host_are_not_open(tcp_lab, world):
    lab = tcp_lab(world.http_port + 1 if world.http_port < 65535 else 1)
    with lab.connect("db.test", world.http_port) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: db.test:{world.http_port}\r\n\r\n".encode())
        assert Response(sock).status == 403
    with lab.connect("db.test", world.http_port) as sock:
        sock.sendall(b"\x00\x01binary\r\n\r\n")
        read_all(sock)
    assert not world.http.requests


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_tcp_no_credential_is_for_a_host_without_https(own_lab, world, scheme):
    secret = {"name": "T", "value": "value-of-it", "hosts": ["db.test"]}
    with pytest.raises(Failed) as error:
        own_lab(policy={"egress": [world.rule("db.test", 443, scheme)]}, secrets=[secret])
    assert "db.test" in str(error.value)


@pytest.mark.parametrize("limit", [{"bytesDown": 100}, {"bytesUp": 100}])
def test_tcp_limits_are_charged_before_a_byte_passes(tcp_lab, limit):
    def serve(sock, server):
        server.note(sock.recv(50))
        sock.sendall(b"y" * 50)
        server.note(sock.recv(100))
        sock.sendall(b"y" * 51)
        sock.recv(1)
    with RawServer(serve) as server:
        lab = tcp_lab(server.port, limits=limit)
        with lab.connect("db.test", server.port) as sock:
            sock.sendall(b"x" * 50)
            assert sock.recv(50, socket.MSG_WAITALL) == b"y" * 50
            sock.sendall(b"x" * 51)
            reset_by_peer(sock)
        deny = lab.wait_record("egress.deny", scheme="tcp", host="db.test")
        assert deny["limit"] == list(limit)[0]
        end = lab.wait_record("egress.response")
        assert end["error"] and end["bytes_down"] == 50 and end["bytes_up"] == (101 if "bytesDown" in limit else 50)


def test_tcp_the_number_of_connections_has_a_limit(tcp_lab):
    with RawServer(echo) as server:
        lab = tcp_lab(server.port, limits={"connections": 2})
        socks = [lab.connect("db.test", server.port) for _ in range(2)]
        for sock in socks:
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
        connect_to_reset(lab, "db.test", server.port)
        assert lab.wait_record("egress.deny", host="db.test")["limit"] == "connections"
        since = lab.mark()
        socks[0].close()
        lab.wait_record("egress.response", since)
        with lab.connect("db.test", server.port) as third:
            third.sendall(b"x")
            assert third.recv(1) == b"x"
        socks[1].close()


def test_tcp_a_policy_that_takes_it_back_cuts_it(own_lab, world):
    """Open relays, and those that a rule with another scheme would now come before; others go on."""
    with RawServer(echo) as server, RawServer(echo) as other:
        rules = [world.rule(host, port, "tcp") for host, port in (("db.test", server.port), ("kept.test", other.port))]
        pins = [world.pin("db.test"), world.pin("kept.test")]
        lab = own_lab(policy={"egress": rules, "resolve": pins})
        with lab.connect("db.test", server.port) as sock, lab.connect("kept.test", other.port) as kept:
            for s in (sock, kept):
                s.sendall(b"before")
                assert s.recv(6, socket.MSG_WAITALL) == b"before"
            since = lab.mark()
            lab.set_policy({"egress": rules[1:], "resolve": pins})
            reset_by_peer(sock)
            deny = lab.wait_record("egress.deny", since, scheme="tcp", host="db.test", port=server.port)
            assert "changed" in deny["reason"] and deny["rule"] == "default deny"
            end = lab.wait_record("egress.response", since)
            assert end["error"] == deny["reason"] and (end["bytes_up"], end["bytes_down"]) == (6, 6)
            kept.sendall(b"after")
            assert kept.recv(5, socket.MSG_WAITALL) == b"after"
            lab.set_policy({"egress": [world.rule("kept.test", other.port), rules[1]], "resolve": pins})
            reset_by_peer(kept)
            lab.wait_record("egress.deny", since, host="kept.test")


def test_tcp_a_connection_that_waits_for_its_server_is_cut_too(own_lab, world):
    """The record is held back, so it has got no further than that."""
    with RawServer(echo) as server:
        rules, pins = [world.rule("db.test", server.port, "tcp")], [world.pin("db.test")]
        lab = own_lab(policy={"egress": rules, "resolve": pins})
        address = lab.address("db.test")
        lab.hold(True)
        with lab.connect("db.test", server.port, address=address) as sock:
            lab.wait_record("egress.request")
            lab.set_policy({"egress": [], "resolve": pins})
            reset_by_peer(sock)
        lab.hold(False)
        assert not server.connections
