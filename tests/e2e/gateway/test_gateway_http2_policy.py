# SPDX-License-Identifier: Apache-2.0
"""Policies, limits and their changes where many requests share a connection: each is judged, charged and cut alone."""
import threading

import pytest

pytest.importorskip("hpack", reason="needs python3-hpack")
Client = pytest.importorskip("h2client", reason="needs the raw client of HTTP/2").Client
from test_gateway_live import Slow  # noqa: E402


def policy(world, *rules, **members):
    return {"egress": [{"host": "api.test", "ports": [world.port], **rule} for rule in rules or ({},)],
            "resolve": [world.pin("api.test", world.outside)], **members}


@pytest.fixture
def connect(own_lab, world):
    def make(*rules, **members):
        lab = own_lab(policy(world, *rules, **members))
        with lab.tls("api.test", world.port, alpn=["h2", "http/1.1"]) as sock:
            if sock.selected_alpn_protocol() != "h2":
                pytest.skip("this gateway does not speak HTTP/2 to guests")
        return lab, Client(lab, world)
    return make


def test_http2_policy_each_request_is_judged_and_counted(connect):
    lab, client = connect({"methods": ["GET"], "paths": ["/a*"]}, limits={"requests": 3})
    with client:
        assert [client.ask(p).status for p in ("/a1", "/b", "/a2", "/b")] == [200, 403, 200, 403]
        assert [client.ask("/a3").status, client.ask("/a4").status] == [200, 403]
        lab.wait_record("egress.deny", limit="requests")


def test_http2_policy_a_body_over_its_limit(connect, world):
    lab, client = connect(limits={"bodyBytes": 100000})
    with client:
        stream = client.open(client.head("/up", "POST") + [("content-length", "100001")], end=False)
        assert client.wait(stream).status == 413
        lab.wait_record("egress.deny", limit="bodyBytes")
    assert not world.https.requests


def test_http2_policy_a_change_cuts_what_it_forbids_and_nothing_else(connect, world):
    lab, client = connect()
    slow = [Slow(world.https, p) for p in ("/one", "/two", "/three")]
    go = threading.Event()

    def handler(connection, _request):
        go.wait(20)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return True
    world.https.script["/still"] = handler
    with client:
        streams = [client.open(client.head(p)) for p in ("/one", "/two", "/three")]
        still = client.open(client.head("/still"))
        assert all(s.asked.wait(20) for s in slow)
        world.https.wait(lambda s: any(r.target == "/still" for r in s.requests))
        since = lab.mark()
        lab.set_policy(policy(world, {"paths": ["/still"]}))
        assert [client.wait(s).status for s in streams] == [403] * 3
        for path in ("/one", "/two", "/three"):
            lab.wait_record("egress.deny", since, path=path)
        go.set()
        answer = client.wait(still)
        assert answer.status == 200 and answer.body == b"ok"
        assert client.ask("/one").status == 403
