# SPDX-License-Identifier: Apache-2.0
"""Nothing passes unrecorded."""
import pytest

from dnsserver import A, question
from lab import Failed, Response, read_all


def test_audit_a_request_is_recorded_before_and_after(lab, world):
    since = lab.mark()
    body = b"x" * 12345
    answer = lab.get("api.test", world.port, "/p/q?hidden=1", "PUT", body=body)
    request = lab.wait_record("egress.request", since)
    assert {k: request[k] for k in ("scheme", "host", "port", "method", "path", "credential")} == {
        "scheme": "https", "host": "api.test", "port": world.port, "method": "PUT", "path": "/p/q", "credential": None}
    assert "api.test" in request["rule"]
    end = lab.wait_record("egress.response", since, id=request["id"])
    assert (end["status"], end["bytes_up"], end["bytes_down"]) == (200, len(body), len(answer.body))
    assert end["ms"] >= 0 and "error" not in end
    assert "hidden" not in str(lab.records[since:])


def test_audit_ids_are_unique_and_paired(lab, world):
    since = lab.mark()
    for _ in range(10):
        lab.get("api.test", world.port)
    lab.get("closed.test", 1)
    lab.wait_record("egress.response", since, status=502)
    started = [r["id"] for r in lab.records[since:] if r["kind"] == "egress.request"]
    ended = [r["id"] for r in lab.records[since:] if r["kind"] == "egress.response"]
    assert len(set(started)) == 11 and sorted(started) == sorted(ended)


def test_audit_a_guest_that_leaves_is_recorded(lab, world):
    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome")
        connection.fill()
        return False
    world.https.script["/leave"] = handler
    since = lab.mark()
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(f"GET /leave HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert sock.recv(1)
    assert "guest" in lab.wait_record("egress.response", since)["error"]


@pytest.mark.conformance("base: alert")
def test_audit_a_client_without_our_authority_is_recorded(lab, world):
    import ssl
    since = lab.mark()
    context = ssl.create_default_context()
    with lab.connect("api.test", world.port) as sock, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(sock, server_hostname="api.test")
    record = lab.wait_record("egress.deny", since, host="api.test", port=world.port)
    assert "TLS" in record["reason"]


def test_audit_without_acknowledgement_nothing_is_forwarded(own_lab, world):
    lab = own_lab()
    address = lab.address("api.test")
    lab.hold(True)
    with lab.tls("api.test", world.port, address=address) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        answer = Response(sock)
    assert answer.status == 503 and answer.json()["code"] == 503
    assert not world.https.requests
    lab.hold(False)
    assert lab.get("api.test", world.port).status == 200  # and when records are written again, it goes on


@pytest.mark.conformance("base: denial")
def test_audit_without_acknowledgement_no_denial_and_no_name(own_lab, world):
    lab = own_lab()
    address = lab.address("api.test")
    with lab.tls("api.test", 444, address=address) as sock, lab.socket() as literal:
        lab.hold(True)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: api.test:444\r\n\r\n")
        literal.connect(("93.184.216.34", 443))
        literal.settimeout(1)
        with pytest.raises(TimeoutError):
            literal.recv(1)
        assert lab.ask(question("api.test", A), timeout=1) is None
        answer = Response(sock)
        assert answer.status == 503 and "allow_with" not in answer.json()


def test_audit_a_late_acknowledgement_is_a_late_answer(own_lab, world):
    lab = own_lab()
    address = lab.address("api.test")
    with lab.tls("api.test", world.port, address=address) as one, lab.tls("api.test", world.port, address=address) as two:
        lab.hold(True)
        since = lab.mark()
        one.sendall(f"GET /one HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        lab.wait_record("egress.request", since, path="/one")
        assert not world.https.requests
        lab.hold(False)
        two.sendall(f"GET /two HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert Response(two).status == 200  # its acknowledgement covers the one before
        assert Response(one).status == 200
    assert sorted(r.target for r in world.https.requests) == ["/one", "/two"]


@pytest.mark.parametrize("change", [
    {"policy": {"egress": "all"}}, {"policy": {"unknown": []}}, {"ca": {"certificates": "", "key": ""}}, {"ca": None},
    {"secrets": {}}, {"secrets": [{"name": "T"}]}, {"extra": 1}, {"type": "other"}])
def test_audit_a_bad_configuration_is_refused_with_a_reason(own_lab, shared, change):
    with pytest.raises(Failed) as error:
        own_lab(config={**shared.config, **change})
    assert str(error.value)


def test_audit_no_policy_means_no_egress(own_lab, shared, world):
    config = {k: v for k, v in shared.config.items() if k not in ("policy", "secrets")}
    lab = own_lab(config=config)
    assert lab.resolve("api.test").rcode == 3
    with pytest.raises(OSError), lab.socket() as sock:
        sock.connect(("198.18.0.1", world.port))
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert not sock.recv(1)
        raise ConnectionResetError
