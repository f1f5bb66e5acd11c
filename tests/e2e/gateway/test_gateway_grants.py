# SPDX-License-Identifier: Apache-2.0
"""Grants under a running gateway: scope, time, uses and bytes; put, renewed and revoked one by one; what ends one cuts what uses it."""
import json
import threading
import time

import pytest

from h2client import Client
from lab import Response, read_all
from test_gateway_websocket import Server as WebSocket, exactly, head as websocket_head, switched

VALUE = "value-of-t"


def entry(name="T", hosts=("key.test",), value=VALUE, **members):
    return {"name": name, "value": value, "hosts": list(hosts), "variables": {name: f"sp_{name}_0123456789abcdef"}, **members}


def policy(world, *hosts):
    return {"egress": [world.rule(h, world.port) for h in hosts or ("key.test", "other.test")],
            "resolve": [world.pin(h, world.outside) for h in ("key.test", "other.test", "api.test")]}


@pytest.fixture
def start(own_lab, world):
    return lambda *entries: own_lab(policy(world), list(entries))


def tell(lab, **message):
    answer = lab.tell({"type": "secret", **message})
    assert answer == {"type": "secret", "ok": True}, answer


def refused(lab, **message):
    answer = lab.tell({"type": "secret", **message})
    assert answer["type"] == "secret" and answer["ok"] is False and answer["message"]
    assert VALUE not in json.dumps(answer)
    return answer["message"]


def sent(world):
    return world.https.requests[-1].get("Authorization")


class Download:
    """Sends the first half when it is asked for, the second when told to, and knows when it was cut."""

    def __init__(self, server, path="/slow"):
        self.asked, self.finish, self.cut = (threading.Event() for _ in range(3))
        server.script[path] = self._serve

    def _serve(self, connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        self.asked.set()
        connection.sock.settimeout(0.02)
        for _ in range(1000):
            try:
                if self.finish.is_set():
                    connection.send(b"rest")
                    return True
                if not connection.sock.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.cut.set()
        return False


def begin(world, lab, path="/slow"):
    """A connection whose answer has come by half."""
    sock = lab.tls("key.test", world.port)
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
    data = b""
    while not data.endswith(b"half"):
        more = sock.recv(65536)
        assert more, data
        data += more
    return sock


# -- put --

def test_grants_are_put_while_requests_run(start, world):
    lab = start()
    assert lab.get("key.test", world.port, fields=["Authorization: own"]).status == 200
    assert sent(world) == "own"
    tell(lab, put=entry())
    assert lab.get("key.test", world.port, fields=["Authorization: own"]).status == 200
    assert sent(world) == "Bearer " + VALUE
    tell(lab, put=entry(value="another", inject={"kind": "basic", "user": "u"}))
    lab.get("key.test", world.port)
    assert sent(world).startswith("Basic ")


@pytest.mark.parametrize("message", [
    {"put": entry("U")},  # its host is taken
    {"put": entry("U", ["*.test"])}, {"put": entry(hosts=["nobody.test"])}, {"put": entry(value=VALUE + "\r\nX: 1")}, {"put": entry(value="")},
    {"put": entry(more=1)}, {"put": {"name": "U"}}, {"put": []}, {"revoke": "U"}, {"revoke": 1}, {"renew": {"name": "U", "value": "x"}},
    {"renew": {"name": "T"}}, {"renew": {"name": "T", "value": "a\nb"}}, {}, {"put": entry(), "revoke": "T"}, {"revoke": "T", "more": 1}])
def test_grants_that_are_not_taken_change_nothing(start, world, message):
    lab = start(entry())
    refused(lab, **message)
    assert lab.get("key.test", world.port).status == 200
    assert sent(world) == "Bearer " + VALUE


def test_grants_answers_come_in_order(start, world):
    """Any number of messages before the first answer is read."""
    lab = start(entry())
    lab.end_control()
    with lab.call_gateway() as spaced:
        assert spaced.read()["type"] == "state"
        for i in range(60):
            message = {"renew": {"name": "T", "value": f"value-{i}"}} if i % 3 else {"revoke": f"NONE{i}"}
            spaced.socket.send(json.dumps({"type": "secret", **message}).encode())
        answers = [m for m in (spaced.read() for _ in range(60)) if m["type"] == "secret"]
        assert [a["ok"] for a in answers] == [bool(i % 3) for i in range(60)]
        assert all(f"NONE{i}" in a["message"] for i, a in enumerate(answers) if not i % 3)


# -- scope --

def test_grants_end_where_their_scope_does(start, world):
    lab = start(entry(methods=["GET", "POST"], paths=["/repos/**", "/user"]))
    for method, path, inside in (("GET", "/repos/a/b", True), ("POST", "/user", True), ("DELETE", "/repos/a", False), ("GET", "/users", False),
                                 ("GET", "/user?/repos/x", True), ("GET", "/x?/repos/x", False)):
        assert lab.get("key.test", world.port, path, method).status == 200
        assert sent(world) == ("Bearer " + VALUE if inside else None), (method, path)
    assert lab.get("key.test", world.port, "/x/%2e%2e/repos/x").status == 400


def test_grants_for_hosts_of_one_pattern(own_lab, world):
    lab = own_lab(None, [entry(hosts=["**.deep.test"])])
    for host, inside in (("deep.test", True), ("x.deep.test", True), ("x.wild.test", False)):
        lab.get(host, world.port)
        assert (sent(world) is not None) == inside


@pytest.mark.conformance("credentials: revoked")
def test_grants_whose_scope_shrinks_cut_what_is_outside(start, world):
    lab = start(entry())
    outside, inside = Download(world.https, "/outside"), Download(world.https, "/inside")
    with begin(world, lab, "/outside") as cut, begin(world, lab, "/inside") as stays:
        since = lab.mark()
        tell(lab, put=entry(paths=["/inside"]))
        assert read_all(cut) == b""
        assert "no longer granted for GET /outside" in lab.wait_record("egress.deny", since, path="/outside")["reason"]
        lab.wait_record("egress.response", since, status=200, error=bool)
        assert outside.cut.wait(20)
        inside.finish.set()
        assert exactly(stays, 4) == b"rest"


# -- the end --

@pytest.mark.conformance("credentials: revoked")
def test_grants_revoked_cut_what_uses_them_and_how_long_it_takes(start, world, record_property):
    lab = start(entry(), entry("U", ["other.test"]))
    download, socket, hidden = Download(world.https), WebSocket(world.https, "/ws"), Download(world.https, "/h2")
    other = Download(world.https, "/other")
    with begin(world, lab) as h1, lab.tls("key.test", world.port) as ws, Client(lab, world, "key.test") as h2, \
            lab.tls("other.test", world.port) as still:
        ws.sendall(websocket_head(world, "/ws", host="key.test"))
        _, rest = switched(ws)
        ws.sendall(b"\x81\x05hello")
        assert rest + exactly(ws, 7 - len(rest)) == b"\x81\x05hello"
        stream = h2.open(h2.head("/h2"))
        while h2.streams[stream].body != b"half":
            assert h2.read_frame() is not None
        still.sendall(f"GET /other HTTP/1.1\r\nHost: other.test:{world.port}\r\n\r\n".encode())
        assert other.asked.wait(20)
        since, begun = lab.mark(), time.monotonic()
        lab.tell({"type": "secret", "revoke": "T"})
        answered = time.monotonic()
        assert read_all(h1) == b""
        assert read_all(ws) == b""
        assert h2.wait(stream).reset is not None
        ended = time.monotonic()
        record_property("measured", f"a revoked grant: answered after {(answered - begun) * 1000:.1f} ms, "
                        f"cut at the guest after {(ended - begun) * 1000:.1f} ms")
        assert download.cut.wait(20) and socket.ended.wait(20) and hidden.cut.wait(20)
        for path in ("/slow", "/ws", "/h2"):
            assert "T was revoked" in lab.wait_record("egress.deny", since, path=path)["reason"]
        lab.wait(lambda: len([r for r in lab.records[since:] if r["kind"] == "egress.response" and r.get("error")]) == 3)
        assert sorted(r["status"] for r in lab.records[since:] if r["kind"] == "egress.response") == [101, 200, 200]
        other.finish.set()
        assert still.recv(4) == b"HTTP"  # another's
    had = len(world.https.requests)
    answer = lab.get("key.test", world.port)
    assert answer.status == 403 and "T was revoked" in answer.json()["message"]
    assert len(world.https.requests) == had
    assert refused(lab, revoke="T")
    assert refused(lab, renew={"name": "T", "value": "again"})
    tell(lab, put=entry("V", value="of-another"))  # the host is free again
    assert lab.get("key.test", world.port).status == 200
    assert sent(world) == "Bearer of-another"


@pytest.mark.conformance("credentials: expired")
def test_grants_expire_in_the_middle_of_a_download(start, world):
    lab = start()
    download, socket = Download(world.https), WebSocket(world.https, "/ws")
    tell(lab, put=entry(expiresMs=1500))
    begun = time.monotonic()
    with begin(world, lab) as sock, lab.tls("key.test", world.port) as ws:
        ws.sendall(websocket_head(world, "/ws", host="key.test"))
        switched(ws)
        since = lab.mark()
        assert read_all(sock) == b""
        assert read_all(ws) == b""
        assert 1.3 < time.monotonic() - begun < 10
        for path in ("/slow", "/ws"):
            assert "T has expired" in lab.wait_record("egress.deny", since, path=path)["reason"]
        assert download.cut.wait(20) and socket.ended.wait(20)
    answer = lab.get("key.test", world.port)
    assert answer.status == 403 and "T has expired" in answer.json()["message"]
    tell(lab, put=entry(expiresMs=600000))
    assert lab.get("key.test", world.port).status == 200


def test_grants_of_a_config_expire_too(start, world):
    lab = start(entry(expiresMs=4000), entry("U", ["other.test"], expiresMs=600000))
    download = Download(world.https)
    with begin(world, lab) as sock:
        assert read_all(sock) == b"" and download.cut.wait(20)
    assert lab.get("key.test", world.port).status == 403
    assert lab.get("other.test", world.port).status == 200


@pytest.mark.conformance("credentials: expired")
def test_grants_are_used_up_by_requests(start, world):
    lab = start(entry(uses=2))
    download = Download(world.https)
    assert lab.get("key.test", world.port).status == 200
    with begin(world, lab) as sock:
        assert lab.wait_record("egress.request", path="/slow")["use"] == 2
        answer = lab.get("key.test", world.port)
        assert answer.status == 403 and "T is used up: it was for 2 requests" in answer.json()["message"]
        lab.set_policy(policy(world))  # has all judged again: the last use is a use
        download.finish.set()
        assert exactly(sock, 4) == b"rest"
    tell(lab, put=entry(uses=1))
    assert [lab.get("key.test", world.port).status for _ in range(2)] == [200, 403]


@pytest.mark.conformance("credentials: expired")
def test_grants_are_used_up_by_bytes_of_a_download_and_cut_all(start, world):
    lab = start(entry(bytes=20000))
    socket = WebSocket(world.https, "/ws")

    def flood(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000000)
        return False
    world.https.script["/flood"] = flood
    with lab.tls("key.test", world.port) as sock, lab.tls("key.test", world.port) as ws:
        ws.sendall(websocket_head(world, "/ws", host="key.test"))
        switched(ws)
        since = lab.mark()
        sock.sendall(f"GET /flood HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        assert len(read_all(sock)) < 21000
        assert read_all(ws) == b""  # nothing passed there
        assert socket.ended.wait(20)
    for path in ("/flood", "/ws"):
        assert "T is used up: it was for 20000 bytes" in lab.wait_record("egress.deny", since, path=path)["reason"]
    assert lab.wait_record("egress.response", since, status=101)["credential_bytes"] == 20000
    assert "used up" in lab.get("key.test", world.port).json()["message"]


@pytest.mark.parametrize("way", ["upload", "websocket", "head"])
def test_grants_are_used_up_by_bytes_of_the_guest(start, world, way):
    lab = start(entry(bytes=20000))
    socket = WebSocket(world.https, "/ws")
    with lab.tls("key.test", world.port) as sock:
        if way == "upload":
            sock.sendall(f"POST /up HTTP/1.1\r\nHost: key.test:{world.port}\r\nContent-Length: 50000\r\n\r\n".encode() + b"x" * 50000)
        elif way == "head":
            sock.sendall(f"GET /h HTTP/1.1\r\nHost: key.test:{world.port}\r\nX-Large: {'x' * 30000}\r\n\r\n".encode())
        else:
            sock.sendall(websocket_head(world, "/ws", host="key.test"))
            switched(sock)
            sock.sendall(b"\x82\xfe" + (30000).to_bytes(2, "big") + bytes(4) + b"x" * 30000)
            assert len(read_all(sock)) < 20000 and socket.ended.wait(20)
            assert "used up" in lab.wait_record("egress.deny", path="/ws")["reason"]
        if way != "websocket":
            answer = Response(sock)
            assert answer.status == 403 and "T is used up: it was for 20000 bytes" in answer.json()["message"]
    assert not any(r.body for r in world.https.requests) and VALUE not in json.dumps(lab.records)
    assert lab.get("key.test", world.port).status == 403


# -- values --

def test_grants_renewed_cut_nothing(start, world):
    lab = start(entry())
    download, socket = Download(world.https), WebSocket(world.https, "/ws")
    with begin(world, lab) as sock, lab.tls("key.test", world.port) as ws:
        ws.sendall(websocket_head(world, "/ws", host="key.test"))
        switched(ws)
        for renewal in ({"value": "rotated"}, {"unavailable": "its source is down"}, {"value": "again"}):
            tell(lab, renew={"name": "T", **renewal})
            answer = lab.get("key.test", world.port)
            if "value" in renewal:
                assert answer.status == 200 and sent(world) == "Bearer " + renewal["value"]
            else:
                assert answer.status == 503 and "its source is down" in answer.json()["message"]
        ws.sendall(b"\x81\x05hello")
        assert exactly(ws, 7) == b"\x81\x05hello"
        download.finish.set()
        assert exactly(sock, 4) == b"rest"
    assert socket.ended.wait(20)


def test_grants_without_a_value_answer_why(start, world):
    lab = start({k: v for k, v in entry(unavailable="the token server does not answer").items() if k != "value"})
    with lab.tls("key.test", world.port) as sock:
        for _ in range(2):  # the connection may go on
            sock.sendall(f"GET / HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
            answer = Response(sock)
            assert answer.status == 503 and "the token server does not answer" in answer.json()["message"]
        assert "T is not available" in lab.wait_record("egress.deny", host="key.test")["reason"]
        assert not world.https.requests
        tell(lab, renew={"name": "T", "value": VALUE})
        sock.sendall(f"GET / HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        assert Response(sock).status == 200 and sent(world) == "Bearer " + VALUE


@pytest.mark.parametrize("change, status", [({"revoke": "T"}, 403), ({"renew": {"name": "T", "unavailable": "gone"}}, 503)])
def test_grants_that_end_before_the_record_is_written_are_not_used(start, world, change, status):
    lab = start(entry())
    address = lab.address("key.test")
    with lab.tls("key.test", world.port, address=address) as sock:
        lab.hold(True)
        sock.sendall(f"GET /held HTTP/1.1\r\nHost: key.test:{world.port}\r\n\r\n".encode())
        lab.wait_record("egress.request", path="/held")
        tell(lab, **change)
        lab.hold(False)
        # the next record makes slot-run acknowledge
        lab.ask(b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x00\x00\x01\x00\x01")
        assert Response(sock).status == status
    assert not world.https.requests


# -- with a policy --

def test_grants_of_a_policy_are_all_that_there_are(start, world):
    lab = start(entry(), entry("U", ["other.test"], value="value-of-u"))
    lab.set_policy(policy(world), secrets=[entry("U", ["key.test"], value="value-of-u"), entry("T", ["other.test"])])  # change places
    for host, value in (("key.test", "value-of-u"), ("other.test", VALUE)):
        assert lab.get(host, world.port).status == 200
        assert sent(world) == "Bearer " + value
    lab.set_policy(policy(world), secrets=[entry("U", ["key.test"], value="value-of-u")])
    assert [lab.get(h, world.port).status for h in ("key.test", "other.test")] == [200, 403]
    answer = lab.tell({"type": "policy", "policy": policy(world), "secrets": [entry("V", ["other.test"]), entry("W", ["other.test"])]})
    assert answer["ok"] is False and "both for other.test" in answer["message"]
    assert [lab.get(h, world.port).status for h in ("key.test", "other.test")] == [200, 403]
