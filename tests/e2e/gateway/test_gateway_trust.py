# SPDX-License-Identifier: Apache-2.0
"""The gateway's certificates, and TLS on both sides (conformance.py, sections trust, names and credentials)."""
import concurrent.futures
import datetime
import re
import socket
import ssl
import subprocess

import pytest

from hello import PADDING, SERVER_HELLO, UNRECOGNIZED_NAME
from hello import client_hello, ech, extension, first_flight, leaf_pem, records, server_name
from lab import Response
from upstream import Upstream, response


def text_of(pem, *options):
    return subprocess.run(["openssl", "x509", "-noout", *options], input=pem, check=True, capture_output=True, text=True).stdout


def chain(lab, world, host="api.test", port=None):
    """What a guest gets: its leaf and what is above, as PEM each."""
    out = lab.run("openssl", "s_client", "-connect", f"{lab.address(host)}:{port or world.port}", "-servername", host, "-showcerts",
                  check=False, input="").stdout
    return re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", out, re.S)


@pytest.mark.conformance("trust: leaf")
def test_trust_leaves_have_what_strict_clients_look_for(lab, world):
    leaf = chain(lab, world)[0]
    text = text_of(leaf, "-text")
    assert "DNS:api.test" in text and "TLS Web Server Authentication" in text and "CA:TRUE" not in text
    assert "X509v3 Authority Key Identifier" in text
    dates = dict(line.split("=", 1) for line in text_of(leaf, "-dates").splitlines())
    begin, end = (datetime.datetime.strptime(dates[k], "%b %d %H:%M:%S %Y %Z") for k in ("notBefore", "notAfter"))
    now = datetime.datetime.utcnow()
    assert now - datetime.timedelta(hours=26) < begin < now - datetime.timedelta(hours=22)
    assert datetime.timedelta(days=1) < end - now < datetime.timedelta(days=40)


@pytest.mark.conformance("trust: leaf")
def test_trust_serials_are_unique(lab, own_lab, world):
    serials = [text_of(chain(which, world, host)[0], "-serial") for which in (lab, own_lab()) for host in ("api.test", "other.test")]
    assert len(set(serials)) == 4 and all(len(s) > 16 for s in serials)


@pytest.mark.conformance("trust: strict")
def test_trust_a_verifier_that_checks_every_extension_is_content(lab, world, tmp_path):
    certificates = chain(lab, world)
    for i, pem in enumerate(certificates):
        (tmp_path / str(i)).write_text(pem)
    above = [x for i in range(1, len(certificates)) for x in ("-untrusted", tmp_path / str(i))]
    subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "api.test", "-CAfile",
                    lab.authority.pem, *above, tmp_path / "0"], check=True, capture_output=True)
    with lab.tls("api.test", world.port) as sock:  # which is strict, too
        assert sock.getpeercert()["subjectAltName"] == (("DNS", "api.test"),)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_trust_both_versions_of_tls_are_spoken_to_guests(lab, world, version):
    context = ssl.create_default_context(cafile=str(lab.authority.pem))
    context.minimum_version = context.maximum_version = version
    with lab.connect("api.test", world.port) as sock, context.wrap_socket(sock, server_hostname="api.test") as tls:
        tls.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert Response(tls).status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_trust_both_versions_of_tls_are_spoken_to_servers(own_lab, world, version):
    server = Upstream(tls=world.outside.server(f"v{version.value}", ["api.test"]))
    server._tls.minimum_version = server._tls.maximum_version = version
    lab = own_lab({"egress": [world.rule("api.test", server.port)], "resolve": [world.pin("api.test", world.outside)]})
    assert lab.get("api.test", server.port).status == 200
    server.close()


def hello(lab, world, message, record=16384):
    with lab.connect("api.test", world.port) as sock:
        for part in records(message, record):
            sock.sendall(part)
        return first_flight(sock)


@pytest.mark.conformance("names: hello")
@pytest.mark.parametrize("record", [16384, 1000, 100])
@pytest.mark.parametrize("size", [1500, 8000, 15000])
def test_names_a_large_client_hello_is_served(lab, world, size, record):
    """As with key shares of post-quantum schemes."""
    flight = hello(lab, world, client_hello(server_name("api.test"), extension(PADDING, bytes(size))), record)
    assert SERVER_HELLO in flight and "DNS:api.test" in text_of(leaf_pem(flight), "-text")


@pytest.mark.conformance("names: ech")
def test_names_the_outer_name_of_an_encrypted_client_hello_is_judged(lab, world):
    flight = hello(lab, world, client_hello(server_name("api.test"), ech()))
    assert SERVER_HELLO in flight and "DNS:api.test" in text_of(leaf_pem(flight), "-text")  # ended here, not passed on
    since = lab.mark()
    assert hello(lab, world, client_hello(ech(), server_name("other.test"))) == UNRECOGNIZED_NAME
    lab.wait_record("egress.deny", since, host="api.test", reason=lambda r: "other.test" in r)
    assert not world.https.requests


@pytest.mark.conformance("credentials: early-data")
def test_credentials_early_data_is_never_offered_to_guests(lab, world):
    """Tickets that allow none: a client that has one can't send any."""
    talk = f"GET / HTTP/1.1\r\nHost: api.test:{world.port}\r\nConnection: close\r\n\r\n"
    session = lab.run("openssl", "s_client", "-tls1_3", "-connect", f"{lab.address('api.test')}:{world.port}", "-servername", "api.test",
                      "-ign_eof", check=False, input=talk).stdout
    assert "200 OK" in session
    assert set(re.findall(r"Max Early Data: (\d+)", session)) <= {"0"}


class EarlyServer:
    """An openssl server that would take early data, and tells."""

    def __init__(self, world):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        pem, key = world.outside.server("early", ["api.test"])
        self.process = subprocess.Popen(
            ["openssl", "s_server", "-accept", f"127.0.0.1:{self.port}", "-cert", pem, "-key", key, "-tls1_3", "-early_data"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.until(b"ACCEPT")

    def until(self, mark):
        text = b""
        while mark not in text:
            line = self.process.stdout.readline()
            assert line, text
            text += line
        return text

    def serve(self):
        """One request of one connection; what the server said of its beginning."""
        text = self.until(b"GET /")
        self.process.stdin.write(response("ok", fields=["Connection: close"]) + b"\n")
        self.process.stdin.flush()
        return text

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.conformance("credentials: early-data")
def test_credentials_early_data_is_never_sent_to_servers(own_lab, world):
    server = EarlyServer(world)
    try:
        lab = own_lab({"egress": [world.rule("api.test", server.port)], "resolve": [world.pin("api.test", world.outside)]})
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            for _ in range(3):
                answer = pool.submit(lab.get, "api.test", server.port)
                assert b"No early data received" in server.serve()
                assert answer.result(20).body == b"ok"
    finally:
        server.close()


@pytest.mark.conformance("credentials: client-certificate")
@pytest.mark.parametrize("need,status", [(ssl.CERT_OPTIONAL, 200), (ssl.CERT_REQUIRED, 502)])
def test_credentials_a_server_that_asks_for_a_certificate_gets_none(own_lab, world, need, status):
    server = Upstream(tls=world.outside.server("asks", ["key.test"]))
    server._tls.verify_mode = need
    server._tls.load_verify_locations(str(world.node.pem))
    shown = []

    def handler(connection, _request):
        shown.append(connection.sock.getpeercert(True))
        connection.send(response("ok"))
        return False
    server.script["/"] = handler
    lab = own_lab({"egress": [world.rule("key.test", server.port)], "resolve": [world.pin("key.test", world.outside)]}, world.secrets[:0])
    assert lab.get("key.test", server.port).status == status
    assert shown == [None] * (status == 200)
    server.close()
