# SPDX-License-Identifier: Apache-2.0
"""Rules with scheme tls: TLS that is passed on unread, when its ClientHello names the host of the address."""
import os
import socket
import ssl
import struct

import pytest

import hello
from lab import Failed, Response, read_all
from rawserver import RawServer, read_to_end

DECODE_ERROR, HANDSHAKE_FAILURE = 50, 40


def first(sock, server):
    """Notes all that comes until the guest has finished."""
    server.note(read_to_end(sock))


@pytest.fixture
def passing(own_lab, world):
    """A gateway that passes TLS to a port of api.test on."""
    def make(port=None, **kwargs):
        rules = [world.rule("api.test", port or world.port, "tls"), world.rule("other.test", port or world.port)]
        return own_lab(policy={"egress": rules, "resolve": [world.pin("api.test"), world.pin("other.test", world.outside)]}, **kwargs)
    return make


def client(lab, world, sni="api.test"):
    """A TLS connection that trusts the outside's authority alone."""
    context = ssl.create_default_context(cafile=str(world.outside.pem))
    context.check_hostname = sni is not None
    return context.wrap_socket(lab.connect("api.test", world.port), server_hostname=sni)


def alert(sock):
    """The description in a fatal alert; None when it closed without one."""
    data = read_all(sock)
    return data[6] if data[:3] == b"\x15\x03\x03" and data[5] == 2 else None


@pytest.mark.conformance("credentials: pinned")
def test_passthrough_the_servers_own_certificate_is_seen(passing, world):
    lab = passing()
    with client(lab, world) as sock:
        assert ("DNS", "api.test") in sock.getpeercert()["subjectAltName"]
        sock.sendall(f"GET /secret/path HTTP/1.1\r\nHost: api.test:{world.port}\r\nAuthorization: Bearer own\r\n\r\n".encode())
        assert Response(sock).status == 200
    assert world.https.requests[-1].get("Authorization") == "Bearer own"  # unread, so untouched
    request = lab.wait_record("egress.request")
    assert (request["scheme"], request["host"], request["port"], request["credential"]) == ("tls", "api.test", world.port, None)
    assert "path" not in request and "method" not in request and "ech" not in request
    end = lab.wait_record("egress.response", id=request["id"])
    assert end["bytes_up"] > 200 and end["bytes_down"] > 500
    assert "secret" not in str(lab.records)


@pytest.mark.conformance("names: sni", "base: alert")
@pytest.mark.parametrize("sni", ["other.test", "unknown.test", "evilapi.test", "xapi.test"])
def test_passthrough_sni_of_another_name_gets_an_alert(passing, sni):
    with RawServer(first) as server:
        lab = passing(server.port)
        with lab.connect("api.test", server.port) as sock:
            sock.sendall(b"".join(hello.records(hello.client_hello(hello.server_name(sni)))))
            assert alert(sock) == hello.UNRECOGNIZED_NAME
        deny = lab.wait_record("egress.deny", scheme="tls", host="api.test", port=server.port)
        assert sni in deny["reason"]
        assert not server.connections
        assert not [r for r in lab.records if r["kind"] == "egress.request"]


@pytest.mark.conformance("names: no-sni")
def test_passthrough_no_sni_means_the_host_of_the_address(passing, world):
    lab = passing()
    with client(lab, world, sni=None) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert Response(sock).status == 200
    lab.wait_record("egress.request", scheme="tls", host="api.test")


@pytest.mark.parametrize("name", ["API.Test", "api.test."])
def test_passthrough_spellings_of_the_name_are_canonical(passing, name):
    with RawServer(first) as server:
        lab = passing(server.port)
        with lab.connect("api.test", server.port) as sock:
            sock.sendall(b"".join(hello.records(hello.client_hello(hello.server_name(name)))))
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
        server.wait(lambda s: s.seen)


@pytest.mark.conformance("names: hello")
@pytest.mark.parametrize("padding,record,segment", [(0, 16384, 1), (0, 50, 1), (1700, 600, 300), (1700, 16384, 100000), (15900, 4000, 1000)])
def test_passthrough_the_hello_arrives_as_it_was_sent(passing, padding, record, segment):
    """Over records and segments of any size, as large as post-quantum keys make it and up to 16 KiB."""
    message = hello.client_hello(hello.server_name("api.test"), *[hello.extension(hello.PADDING, b"\0" * padding)] * bool(padding))
    wire = b"".join(hello.records(message, record))
    with RawServer(first) as server:
        lab = passing(server.port)
        with lab.connect("api.test", server.port) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(0, len(wire), segment):
                sock.send(wire[i:i + segment])
            sock.sendall(b"and more")
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
        server.wait(lambda s: s.seen)
        assert server.seen == [wire + b"and more"]


@pytest.mark.conformance("names: ech")
@pytest.mark.parametrize("sni,passes", [("api.test", True), ("other.test", False)])
def test_passthrough_an_encrypted_hello_is_judged_by_its_outer_name(passing, sni, passes):
    with RawServer(first) as server:
        lab = passing(server.port)
        with lab.connect("api.test", server.port) as sock:
            sock.sendall(b"".join(hello.records(hello.client_hello(hello.server_name(sni), hello.ech()))))
            if passes:
                sock.shutdown(socket.SHUT_WR)
            assert alert(sock) == (None if passes else hello.UNRECOGNIZED_NAME)
        if passes:
            assert lab.wait_record("egress.request", scheme="tls")["ech"] is True
        else:
            lab.wait_record("egress.deny", scheme="tls", host="api.test")
            assert not server.connections


@pytest.mark.conformance("base: alert")
@pytest.mark.parametrize("data,description", [
    (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", DECODE_ERROR),  # a ServerHello
    (b"\x16\x03\x01\x00\x00", DECODE_ERROR),
    (b"\x16\x02\x00\x00\x05hello", DECODE_ERROR),
    (b"\x16\x03\x01\x40\x00\x01\x00\x40\x01" + b"\0" * 16380, HANDSHAKE_FAILURE),  # 16 KiB and a byte
    (b"\x16\x03\x01\x00\x01\x01" * 4200, DECODE_ERROR),
])
def test_passthrough_what_is_no_hello_gets_an_alert(passing, data, description):
    with RawServer(first) as server:
        lab = passing(server.port)
        with lab.connect("api.test", server.port) as sock:
            sock.sendall(data)
            assert alert(sock) in (description, HANDSHAKE_FAILURE)
        lab.wait_record("egress.deny", scheme="tls", host="api.test")
        assert not server.connections


def test_passthrough_two_names_are_none(passing):
    two = hello.extension(hello.SNI, struct.pack("!H", 22) + (b"\0\0\x08api.test") * 2)
    for extensions in ([two], [hello.server_name("api.test")] * 2):
        with RawServer(first) as server:
            lab = passing(server.port)
            with lab.connect("api.test", server.port) as sock:
                sock.sendall(b"".join(hello.records(hello.client_hello(*extensions))))
                assert alert(sock) == DECODE_ERROR
            lab.wait_record("egress.deny", scheme="tls", host="api.test")
            assert not server.connections


@pytest.mark.conformance("names: hello")
def test_passthrough_a_hello_that_does_not_end_has_a_deadline(passing):
    with RawServer(first) as server:
        lab = passing(server.port)
        wire = hello.records(hello.client_hello(hello.server_name("api.test")))[0]
        with lab.connect("api.test", server.port) as sock:
            sock.sendall(wire[:-1])
            assert alert(sock) == HANDSHAKE_FAILURE
        assert "ClientHello" in lab.wait_record("egress.deny", scheme="tls", host="api.test")["reason"]
        assert not server.connections


def test_passthrough_is_for_tls_alone(passing):
    with RawServer(first) as server:
        lab = passing(server.port)
        with lab.connect("api.test", server.port) as sock:
            sock.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{server.port}\r\n\r\n".encode())
            assert Response(sock).status == 403
        lab.wait_record("egress.deny", scheme="http", host="api.test")
        assert not server.connections


def test_passthrough_the_first_rule_says_whether_tls_ends_here(own_lab, world):
    tls, https = world.rule("api.test", world.port, "tls"), world.rule("api.test", world.port)
    pins = [world.pin("api.test", world.outside)]
    lab = own_lab(policy={"egress": [tls, https], "resolve": pins})
    with client(lab, world) as sock:
        assert sock.getpeercert()
    lab.wait_record("egress.request", scheme="tls")
    lab = own_lab(policy={"egress": [https, tls], "resolve": pins})
    with pytest.raises(ssl.SSLCertVerificationError):
        client(lab, world)
    assert lab.get("api.test", world.port).status == 200
    lab.wait_record("egress.request", scheme="https")


@pytest.mark.conformance("credentials: pinned")
@pytest.mark.parametrize("schemes", [["tls"], ["tls", "https"], ["tcp", "https"]])
def test_passthrough_never_has_a_credential(own_lab, world, schemes):
    """Refused where no https could carry it, also when an https rule stands behind, which is never reached."""
    secret = {"name": "T", "value": "value-of-it", "hosts": ["api.test"]}
    with pytest.raises(Failed) as error:
        own_lab(policy={"egress": [world.rule("api.test", 443, scheme) for scheme in schemes]}, secrets=[secret])
    assert "api.test" in str(error.value) and "value-of-it" not in str(error.value)
