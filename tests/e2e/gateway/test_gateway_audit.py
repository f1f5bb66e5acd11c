# SPDX-License-Identifier: Apache-2.0
"""Nothing passes unrecorded."""
import os
import signal
import threading

import pytest

from dnsserver import A, question
from lab import Failed, Response, read_all
from rawserver import RawServer, echo
from test_gateway_websocket import Server as WebSocket, head as websocket_head, switched


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


def test_audit_has_the_ends_of_what_was_open_when_the_gateway_ends(own_lab, world):
    """An answer that flows, one that is waited for, a WebSocket and a tunnel."""
    held = threading.Event()

    def half(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        held.wait(20)
        return False
    world.https.script["/half"] = half
    world.https.script["/wait"] = lambda connection, _request: held.wait(20) and False
    WebSocket(world.https)
    with RawServer(echo) as server:
        rules = [{"host": "api.test", "ports": [world.port]}, {"host": "db.test", "ports": [server.port], "scheme": "tcp"}]
        lab = own_lab({"egress": rules, "resolve": [world.pin("api.test", world.outside), world.pin("db.test")]})
        socks = [lab.tls("api.test", world.port) for _ in range(3)] + [lab.connect("db.test", server.port)]
        for sock, path in zip(socks, ("/half", "/wait")):
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        socks[2].sendall(websocket_head(world))
        socks[3].sendall(b"12345")
        assert b"half" in until(socks[0], b"half") and b"12345" in until(socks[3], b"12345")
        switched(socks[2])
        world.https.wait(lambda s: any(r.target == "/wait" for r in s.requests))
        os.kill(lab.gateway_pid, signal.SIGTERM)
        lab.wait_ended()
        held.set()
        begun = {r["id"]: r.get("path", r["host"]) for r in lab.records if r["kind"] == "egress.request"}
        ends = {begun[r["id"]]: r for r in lab.records if r["kind"] == "egress.response"}
        assert set(ends) == {"/half", "/wait", "/ws", "db.test"}
        assert all(end["error"] == "the sandbox stopped" for end in ends.values()), ends
        assert ends["/half"]["bytes_down"] == 4 and ends["db.test"]["bytes_up"] == ends["db.test"]["bytes_down"] == 5
        for sock in socks:
            sock.close()


def until(sock, last):
    data = b""
    while last not in data:
        more = sock.recv(65536)
        assert more, data
        data += more
    return data
