# SPDX-License-Identifier: Apache-2.0
"""Limits of a policy: whatever would pass one is refused before it does, and recorded."""
import threading

import pytest

from lab import Response, read_all
from upstream import response


def policy(world, limits, *rules):
    """limits: of the sandbox. Without rules, one that allows the host."""
    return {"egress": [{"host": "api.test", "ports": [world.port], **rule} for rule in rules or ({},)],
            "resolve": [world.pin("api.test", world.outside)], "limits": limits}


def head(world, path="/", method="GET", *fields):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: api.test:{world.port}", *fields, "", ""]).encode()


def over(lab, since, answer, status, limit):
    """It was refused for that limit, said so, and the record says the same."""
    told = answer.json()
    assert answer.status == told["code"] == status
    assert told["limit"] == limit and limit in told["message"]
    record = lab.wait_record("egress.deny", since, limit=limit)
    assert record["reason"] == told["message"]


@pytest.mark.parametrize("of", ["rule", "sandbox"])
def test_quotas_requests(own_lab, world, of):
    limits = {"requests": 2}
    lab = own_lab(policy(world, {}, {"limits": limits}) if of == "rule" else policy(world, limits))
    assert [lab.get("api.test", world.port).status for _ in range(2)] == [200, 200]
    since = lab.mark()
    answer = lab.get("api.test", world.port)
    over(lab, since, answer, 403, "requests")
    assert of in answer.json()["message"]
    assert len(world.https.requests) == 2


def test_quotas_of_one_rule_are_not_those_of_another(own_lab, world):
    lab = own_lab(policy(world, {"requests": 3}, {"paths": ["/a"], "limits": {"requests": 1}}, {}))
    assert [lab.get("api.test", world.port, p).status for p in ("/a", "/a", "/b", "/b", "/b")] == [200, 403, 200, 200, 403]


def test_quotas_requests_per_minute(own_lab, world):
    lab = own_lab(policy(world, {"requestsPerMinute": 2}))
    with lab.tls("api.test", world.port) as sock:
        answers = []
        since = lab.mark()
        for _ in range(3):
            sock.sendall(head(world))
            answers.append(Response(sock))
        assert [a.status for a in answers] == [200, 200, 429]
        over(lab, since, answers[2], 429, "requestsPerMinute")


def test_quotas_connections_at_once(own_lab, world):
    lab = own_lab(policy(world, {"connections": 1}))
    go, asked = threading.Event(), threading.Event()

    def handler(connection, _request):
        asked.set()
        go.wait(20)
        connection.send(response("late"))
        return True
    world.https.script["/slow"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/slow"))
        assert asked.wait(20)
        since = lab.mark()
        over(lab, since, lab.get("api.test", world.port), 429, "connections")
        go.set()
        assert Response(sock).body == b"late"
    assert lab.get("api.test", world.port).status == 200


def test_quotas_a_body_declared_too_large_is_refused_at_once(own_lab, world):
    lab = own_lab(policy(world, {"bodyBytes": 1000}))
    with lab.tls("api.test", world.port) as sock:
        since = lab.mark()
        sock.sendall(head(world, "/", "POST", "Content-Length: 1001"))
        over(lab, since, Response(sock), 413, "bodyBytes")
        assert read_all(sock) == b""
    assert not world.https.requests
    assert lab.get("api.test", world.port, method="POST", body=b"x" * 1000).status == 200
    assert lab.get("api.test", world.port, method="POST", body=b"x" * 1000).status == 200  # each has its own


def test_quotas_a_body_that_grows_too_large_is_cut(own_lab, world):
    got = []

    def handler(connection, _request):
        while connection.fill():
            pass
        got.append(connection.buffer)
        return False
    lab = own_lab(policy(world, {"bodyBytes": 1000}))
    world.https.script["/up"] = handler
    with lab.tls("api.test", world.port) as sock:
        since = lab.mark()
        sock.sendall(head(world, "/up", "POST", "Transfer-Encoding: chunked") + b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        world.https.wait(lambda s: s.requests)
        sock.sendall(b"1\r\ny\r\n")
        over(lab, since, Response(sock), 413, "bodyBytes")
        assert lab.wait_record("egress.response", since)["bytes_up"] == 1000
    world.https.wait(lambda s: got or True)
    assert not got or b"y" not in got[0]


def test_quotas_bytes_up_count_heads_and_bodies(own_lab, world):
    lab = own_lab(policy(world, {"bytesUp": 3000}))
    assert lab.get("api.test", world.port, method="POST", body=b"x" * 1000).status == 200
    since = lab.mark()
    over(lab, since, lab.get("api.test", world.port, method="POST", body=b"x" * 2500), 403, "bytesUp")
    assert lab.get("api.test", world.port, "/" + "p" * 1500).status == 200
    since = lab.mark()
    over(lab, since, lab.get("api.test", world.port, "/" + "p" * 1500), 403, "bytesUp")
    assert len(world.https.requests) == 2


def test_quotas_bytes_down_cut_the_answer_before_the_byte_passes(own_lab, world):
    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            connection.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        return False
    lab = own_lab(policy(world, {"bytesDown": 5000}))
    world.https.script["/pour"] = handler
    with lab.tls("api.test", world.port) as sock:
        since = lab.mark()
        sock.sendall(head(world, "/pour"))
        data = read_all(sock)
    assert data.count(b"x") <= 5000 and not data.endswith(b"0\r\n\r\n")
    lab.wait_record("egress.deny", since, limit="bytesDown")
    end = lab.wait_record("egress.response", since)
    assert "bytesDown" in end["error"] and end["bytes_down"] == data.count(b"x")


def test_quotas_a_lifetime_that_ends_cuts_what_is_open(own_lab, world):
    asked = threading.Event()

    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        asked.set()
        while connection.fill():
            pass
        return False
    lab = own_lab(policy(world, {}, {"paths": ["/slow", "/first"], "limits": {"lifetimeSeconds": 2}}, {}))
    world.https.script["/slow"] = handler
    with lab.tls("api.test", world.port) as sock:
        since = lab.mark()
        sock.sendall(head(world, "/slow"))
        assert asked.wait(20)
        assert b"half" in read_all(sock)  # until it is cut
        lab.wait_record("egress.deny", since, limit="lifetimeSeconds")
    since = lab.mark()
    over(lab, since, lab.get("api.test", world.port, "/first"), 403, "lifetimeSeconds")
    assert lab.get("api.test", world.port, "/other").status == 200
