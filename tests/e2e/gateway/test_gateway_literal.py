# SPDX-License-Identifier: Apache-2.0
"""Destinations without a name: literal addresses, which a rule with a cidr opens."""
import os
import shutil
import socket
import ssl
import tempfile

import pytest

import hello
from internet import CLOSED, OWN, PUBLIC, SECOND, Internet
from lab import Lab, Response, read_all
from rawserver import RawServer, echo
from upstream import Upstream

PRIVATE = "10.99.0.2"
METADATA = "169.254.169.254"


@pytest.fixture(scope="module")
def internet():
    i = Internet()
    yield i
    i.close()


@pytest.fixture(scope="module")
def servers(internet, world):
    """TLS at PUBLIC and PRIVATE (for the address) and at SECOND (for another), bytes at PRIVATE."""
    right = world.outside.server("literal", [], addresses=[PUBLIC, PRIVATE])
    wrong = world.outside.server("literal-wrong", ["api.test"], addresses=[CLOSED])
    found = {
        "https": Upstream(tls=right, address=PUBLIC, port=443, netns=internet.there),
        "inside": Upstream(tls=right, address=PRIVATE, port=8443, netns=internet.there),
        "wrong": Upstream(tls=wrong, address=SECOND, port=443, netns=internet.there),
        "tcp": RawServer(echo, address=PRIVATE, port=5432, netns=internet.there),
        "own": RawServer(echo, address="10.99.0.1", port=5432, netns=internet.here),
        "own public": RawServer(echo, address=OWN, port=5432, netns=internet.here),
    }
    yield found
    for server in found.values():
        server.close()


def rule(cidr, ports, scheme, **more):
    return {"cidr": cidr, "ports": ports, "scheme": scheme, **more}


@pytest.fixture(scope="module")
def literal(internet, servers, world, tmp_path_factory):
    rules = [
        rule("93.184.216.36/32", [80], "http", deny=True),
        rule("93.184.216.32/28", [80], "http"), rule("93.184.216.32/28", [443], "https"),
        rule("10.99.0.0/24", [5432], "tcp"), rule("10.99.0.2/32", [8443], "tls"),
        rule("0.0.0.0/1", [8080], "http"), rule("128.0.0.0/1", [8080], "http"), rule("93.184.216.96/28", [5432], "tcp"),
        rule("169.254.0.0/16", [80], "http"),
        {"host": "api.test"}]
    secret = {"name": "T", "value": "value-of-it", "hosts": ["api.test"]}
    where = tmp_path_factory.mktemp("literal")
    with tempfile.TemporaryDirectory() as trusted:  # by the gateway as its system's store; it has a uid of its own
        os.chmod(trusted, 0o755)
        store = shutil.copy(world.outside.pem, trusted)
        with Lab(where, world.node, {"egress": rules}, secrets=[secret], resolver=internet.dns.address, netns=internet.here,
                 environment={"SSL_CERT_FILE": store}) as lab:
            yield lab


@pytest.fixture(autouse=True)
def forget(internet, servers):
    for server in (internet.public, internet.private, internet.loopback, internet.own, servers["https"], servers["inside"]):
        server.requests.clear()


def refused(lab, address, port, since):
    """Reset, and recorded as an address that no rule opens."""
    with pytest.raises(OSError), lab.socket() as sock:
        sock.connect((address, port))
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {address}:{port}\r\n\r\n".encode())
        if not sock.recv(1):
            raise ConnectionResetError
    deny = lab.wait_record("egress.deny", since, host=address, port=port)
    assert address in deny["reason"] and "cidr" in deny["reason"]
    return deny["rule"]


@pytest.mark.conformance("names: literal")
def test_literal_http_with_the_address_as_its_host(literal, internet):
    since = literal.mark()
    with literal.connect(PUBLIC, 80, address=PUBLIC) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {PUBLIC}\r\n\r\n".encode())
        assert Response(sock).status == 200
    assert internet.public.requests[-1].all("Host") == [PUBLIC]
    request = literal.wait_record("egress.request", since)
    assert (request["scheme"], request["host"], request["port"], request["credential"]) == ("http", PUBLIC, 80, None)
    assert "93.184.216.32/28" in request["rule"]


@pytest.mark.conformance("names: literal", "names: ip-spelling")
@pytest.mark.parametrize("host", [SECOND, "api.test", "93.184.55330", "0x5d.0xb8.0xd8.0x22", "093.184.216.34", "1572395042",
                                  "[::ffff:93.184.216.34]", PUBLIC + ".", PUBLIC + ":81", "u@" + PUBLIC, ""])
def test_literal_host_must_be_the_address_in_its_one_spelling(literal, internet, host):
    with literal.connect(PUBLIC, 80, address=PUBLIC) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert read_all(sock).split()[1] in (b"421", b"400")
    assert not internet.public.requests


@pytest.mark.conformance("names: literal", "names: no-sni", "trust: leaf-literal")
def test_literal_https_has_a_certificate_for_the_address(literal, servers):
    since = literal.mark()
    with literal.tls(PUBLIC, 443, address=PUBLIC) as sock:  # Python sends no SNI for an address, and checks it
        assert sock.getpeercert()["subjectAltName"] == (("IP Address", PUBLIC),)
        sock.sendall(f"GET /there HTTP/1.1\r\nHost: {PUBLIC}\r\nAuthorization: Bearer own\r\n\r\n".encode())
        assert Response(sock).status == 200
    assert servers["https"].requests[-1].target == "/there"
    request = literal.wait_record("egress.request", since, scheme="https", host=PUBLIC, port=443)
    assert request["credential"] is None


@pytest.mark.conformance("names: sni")
@pytest.mark.parametrize("sni", ["api.test", "localhost"])
def test_literal_https_with_a_name_for_its_sni_is_refused(literal, sni, servers):
    since = literal.mark()
    with pytest.raises(ssl.SSLError):
        literal.tls(PUBLIC, 443, address=PUBLIC, sni=sni, verify=False)
    literal.wait_record("egress.deny", since, host=PUBLIC, port=443, reason=lambda r: sni in r)
    assert not servers["https"].requests


def test_literal_https_whose_server_has_a_certificate_for_another(literal, servers):
    since = literal.mark()
    with literal.tls(SECOND, 443, address=SECOND) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {SECOND}\r\n\r\n".encode())
        assert Response(sock).status == 502
    assert "another name" in literal.wait_record("egress.response", since, status=502)["error"]
    assert not servers["wrong"].requests


@pytest.mark.conformance("names: literal", "names: special")
def test_literal_tcp_to_a_private_address_that_a_rule_names(literal):
    since = literal.mark()
    with literal.connect(PRIVATE, 5432, address=PRIVATE) as sock:
        sock.sendall(b"x" * 1000)
        assert sock.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
    literal.wait_record("egress.request", since, scheme="tcp", host=PRIVATE, port=5432)
    literal.wait_record("egress.response", since, bytes_up=1000, bytes_down=1000)


@pytest.mark.conformance("names: no-sni")
def test_literal_tls_is_passed_on_without_a_name(literal, servers, world):
    since = literal.mark()
    context = ssl.create_default_context(cafile=str(world.outside.pem))
    with context.wrap_socket(literal.connect(PRIVATE, 8443, address=PRIVATE), server_hostname=PRIVATE) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {PRIVATE}:8443\r\n\r\n".encode())
        assert Response(sock).status == 200
    literal.wait_record("egress.request", since, scheme="tls", host=PRIVATE, port=8443)
    servers["inside"].requests.clear()
    with literal.connect(PRIVATE, 8443, address=PRIVATE) as sock:
        sock.sendall(b"".join(hello.records(hello.client_hello(hello.server_name("api.test")))))
        assert read_all(sock)[6] == hello.UNRECOGNIZED_NAME
    literal.wait_record("egress.deny", since, scheme="tls", host=PRIVATE, port=8443)


@pytest.mark.conformance("names: literal")
@pytest.mark.parametrize("address,port", [(PUBLIC, 81), (CLOSED, 81), ("8.8.8.8", 443), ("93.184.216.48", 443), (PRIVATE, 5433)])
def test_literal_needs_a_rule_for_its_address_and_port(literal, address, port):
    assert refused(literal, address, port, literal.mark()) == "default deny"


def test_literal_a_deny_rule_before_holds(literal):
    assert "93.184.216.36/32" in refused(literal, CLOSED, 80, literal.mark())


@pytest.mark.conformance("names: special")
@pytest.mark.parametrize("address", [PRIVATE, "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.1.1",
                                     "198.18.0.77", "192.0.0.1"])
def test_literal_a_rule_for_everything_opens_nothing_special(literal, internet, address):
    """Both halves of all addresses are open for this port."""
    refused(literal, address, 8080, literal.mark())
    assert not internet.private.requests and not internet.loopback.requests


@pytest.mark.conformance("names: special")
@pytest.mark.parametrize("port", [80, 8080])
def test_literal_metadata_services_are_never_opened(literal, port):
    refused(literal, METADATA, port, literal.mark())


@pytest.mark.conformance("names: special")
@pytest.mark.parametrize("address", ["10.99.0.1", OWN])
def test_literal_the_hosts_own_addresses_need_a_rule_for_them_alone(literal, servers, address):
    """10.99.0.0/24 and 93.184.216.96/28 are open for this port, but the host itself is not meant."""
    since = literal.mark()
    with pytest.raises(ConnectionResetError), literal.connect(address, 5432, address=address) as sock:
        sock.recv(1)
    assert "own" in literal.wait_record("egress.deny", since, host=address, port=5432)["reason"]
    assert not servers["own"].connections and not servers["own public"].connections


def test_literal_the_hosts_own_address_by_a_rule_for_it_alone(internet, servers, world, tmp_path):
    with Lab(tmp_path, world.node, {"egress": [rule(OWN, [5432], "tcp")]}, resolver=internet.dns.address, netns=internet.here) as lab:
        with lab.connect(OWN, 5432, address=OWN) as sock:
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
