# SPDX-License-Identifier: Apache-2.0
"""A policy that changes under a running gateway: the next request obeys, what is open and no longer allowed is cut."""
import threading

import pytest

from lab import Response, read_all

SECRET = [{"name": "T", "value": "value-of-t", "hosts": ["key.test"]}]


def policy(world, *rules, **members):
    return {"egress": [{"host": "api.test", "ports": [world.port], **rule} for rule in rules],
            "resolve": [world.pin(h, world.outside) for h in ("api.test", "other.test", "key.test")], **members}


def head(world, path="/", host="api.test", method="GET", *fields):
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}:{world.port}", *fields, "", ""]).encode()


class Slow:
    """Answers the path when told to, in two halves."""

    def __init__(self, server, path):
        self.begin, self.finish, self.asked, self.broken = (threading.Event() for _ in range(4))
        server.script[path] = self._answer

    def _answer(self, connection, _request):
        self.asked.set()
        self.begin.wait(20)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        connection.sock.settimeout(20)
        try:
            if not connection.sock.recv(1):
                self.broken.set()
        except OSError:
            self.broken.set()
        return False


def test_live_the_next_request_obeys_at_once(own_lab, world):
    lab = own_lab(policy(world, {"paths": ["/a"]}))
    with lab.tls("api.test", world.port) as sock:
        def status(path):
            sock.sendall(head(world, path))
            return Response(sock).status
        assert (status("/a"), status("/b")) == (200, 403)
        lab.set_policy(policy(world, {"paths": ["/b"]}))
        assert (status("/a"), status("/b")) == (403, 200)
        assert lab.resolve("other.test").rcode == 3
        lab.set_policy(policy(world, {"paths": ["/b"]}, {"host": "other.test"}))
        assert lab.resolve("other.test").rcode == 0
    assert lab.get("other.test", world.port).status == 200
    lab.set_policy({"egress": []})
    assert lab.resolve("other.test").rcode == 3


def test_live_names_of_a_new_policy_keep_their_addresses(own_lab, world):
    lab = own_lab(policy(world, {}))
    was = lab.address("api.test")
    lab.set_policy(policy(world, {"host": "other.test"}, {}))
    assert lab.address("api.test") == was != lab.address("other.test")


@pytest.mark.conformance("credentials: revoked")
def test_live_open_requests_that_are_no_longer_allowed_are_cut(own_lab, world):
    lab = own_lab(policy(world, {}))
    slow, other = Slow(world.https, "/slow"), Slow(world.https, "/waits")
    with lab.tls("api.test", world.port) as sock, lab.tls("api.test", world.port) as waiting:
        sock.sendall(head(world, "/slow"))
        waiting.sendall(head(world, "/waits"))
        assert slow.asked.wait(20) and other.asked.wait(20)
        slow.begin.set()
        while not sock.recv(65536).endswith(b"half"):
            pass
        since = lab.mark()
        lab.set_policy(policy(world, {"paths": ["/nothing"]}))
        assert read_all(sock) == b""  # cut: the rest never comes
        answer = Response(waiting)  # not begun: told why
        assert answer.status == 403 and answer.json()["path"] == "/waits"
        lab.wait_record("egress.deny", since, path="/slow")
        lab.wait_record("egress.deny", since, path="/waits")
        end = lab.wait_record("egress.response", since, status=200)
        assert end["error"] and end["bytes_down"] == 4
        lab.wait_record("egress.response", since, status=403)
        other.begin.set()
        assert slow.broken.wait(20)
        waiting.sendall(head(world, "/slow"))
        assert Response(waiting).status == 403


def test_live_open_requests_that_are_still_allowed_go_on(own_lab, world):
    lab = own_lab(policy(world, {}))
    go = threading.Event()

    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        go.wait(20)
        connection.send(b"half")
        return True
    world.https.script["/slow"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/slow"))
        data = b""
        while not data.endswith(b"half"):
            data += sock.recv(65536)
        lab.set_policy(policy(world, {"methods": ["GET"], "paths": ["/slow"]}))
        go.set()
        assert sock.recv(4) == b"half"
    assert "error" not in lab.wait_record("egress.response", status=200)


def test_live_an_upload_is_cut_too(own_lab, world):
    lab = own_lab(policy(world, {}))
    asked = threading.Event()

    def handler(connection, _request):
        asked.set()
        connection.exactly(1000)
        return False
    world.https.script["/up"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/up", "api.test", "POST", "Content-Length: 1000") + b"x" * 10)
        assert asked.wait(20)
        lab.set_policy(policy(world, {"methods": ["GET"]}))
        assert Response(sock).status == 403


def test_live_what_waits_for_its_record_is_judged_again(own_lab, world):
    lab = own_lab(policy(world, {}))
    address = lab.address("api.test")
    with lab.tls("api.test", world.port, address=address) as sock:
        lab.hold(True)
        sock.sendall(head(world, "/held"))
        lab.wait_record("egress.request", path="/held")
        lab.set_policy(policy(world, {"paths": ["/other"]}))
        lab.hold(False)
        # the next record makes slot-run acknowledge
        lab.ask(b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x00\x00\x01\x00\x01")
        assert Response(sock).status == 403
    assert not world.https.requests


def test_live_idle_connections_to_servers_are_not_kept(own_lab, world):
    lab = own_lab(policy(world, {}))
    first = lab.get("api.test", world.port).json()["connection"]
    assert lab.get("api.test", world.port).json()["connection"] == first
    lab.set_policy({**policy(world, {}), "resolve": [world.pin("api.test", world.stranger)]})
    assert lab.get("api.test", world.port).status == 502  # trusted by its new certificate alone
    lab.set_policy(policy(world, {}))
    assert lab.get("api.test", world.port).json()["connection"] != first


def test_live_what_was_dialled_by_a_pin_ends_with_it(own_lab, world):
    """The pin opened a private address; without it there is no way there."""
    lab = own_lab(policy(world, {}, {"host": "other.test"}))
    pinned, other = Slow(world.https, "/pinned"), Slow(world.https, "/other")
    with lab.tls("api.test", world.port) as sock, lab.tls("other.test", world.port) as still:
        sock.sendall(head(world, "/pinned"))
        still.sendall(head(world, "/other", "other.test"))
        assert pinned.asked.wait(20) and other.asked.wait(20)
        lab.set_policy({**policy(world, {}, {"host": "other.test"}), "resolve": [world.pin("other.test", world.outside)]})
        assert Response(sock).status == 403
        other.begin.set()
        assert still.recv(4) == b"HTTP"
    assert world.https.requests and lab.wait_record("egress.deny", path="/pinned")


@pytest.mark.conformance("credentials: revoked")
def test_live_a_credential_that_is_taken_back_cuts_what_uses_it(own_lab, world):
    rules = ({}, {"host": "key.test"})
    lab = own_lab(policy(world, *rules), SECRET)
    slow, free = Slow(world.https, "/slow"), Slow(world.https, "/free")
    with lab.tls("key.test", world.port) as sock, lab.tls("api.test", world.port) as bare:
        sock.sendall(head(world, "/slow", "key.test"))
        bare.sendall(head(world, "/free"))
        assert slow.asked.wait(20) and free.asked.wait(20)
        lab.set_policy(policy(world, *rules))  # without a word about secrets they stay
        lab.set_policy(policy(world, *rules), secrets=SECRET)  # and the same are the same
        assert lab.get("key.test", world.port).status == 200
        assert world.https.requests[-1].get("Authorization") == "Bearer value-of-t"
        since = lab.mark()
        lab.set_policy(policy(world, *rules), secrets=[])
        answer = Response(sock)
        assert answer.status == 403 and "T was revoked" in answer.json()["message"]
        lab.wait_record("egress.deny", since, host="key.test")
        free.begin.set()
        assert bare.recv(4) == b"HTTP"
    sent = len(world.https.requests)
    assert lab.get("key.test", world.port).status == 403  # never without it
    assert len(world.https.requests) == sent
    lab.set_policy(policy(world, *rules), secrets=[{**SECRET[0], "value": "another"}])
    lab.get("key.test", world.port)
    assert world.https.requests[-1].get("Authorization") == "Bearer another"


@pytest.mark.parametrize("message", [
    {"policy": {"egress": [{"host": "*"}]}}, {"policy": {"egres": []}}, {}, {"policy": []}, {"policy": {"egress": []}, "more": 1},
    {"policy": {"egress": []}, "secrets": SECRET}, {"policy": {"egress": [{"host": "key.test"}]}, "secrets": [{"name": "T"}]}])
def test_live_a_policy_that_does_not_load_changes_nothing(own_lab, world, message):
    lab = own_lab(policy(world, {}, {"host": "key.test"}), SECRET)
    answer = lab.tell({"type": "policy", **message})
    assert answer["type"] == "policy" and answer["ok"] is False and answer["message"]
    assert "value-of-t" not in answer["message"]
    assert lab.get("api.test", world.port).status == 200
    lab.get("key.test", world.port)
    assert world.https.requests[-1].get("Authorization") == "Bearer value-of-t"
    lab.set_policy(policy(world, {"paths": ["/x"]}))
    assert lab.get("api.test", world.port).status == 403


def test_live_lifetimes_begin_anew_and_use_goes_on(own_lab, world):
    limited = {"limits": {"requests": 2}}
    lab = own_lab(policy(world, {}, **limited))
    assert lab.get("api.test", world.port).status == 200
    lab.set_policy(policy(world, {"methods": ["GET"]}, **limited))
    assert lab.get("api.test", world.port).status == 200
    assert lab.get("api.test", world.port).status == 403
    lab.set_policy(policy(world, {}, limits={"requests": 3}))
    assert lab.get("api.test", world.port).status == 200


def test_live_many_changes_under_load(own_lab, world):
    """Each request meets one of the two policies, whole; none gets neither, and the gateway lives."""
    lab = own_lab(policy(world, {"paths": ["/a"]}))
    address, done, seen = lab.address("api.test"), threading.Event(), set()

    def load():
        while not done.is_set():
            with lab.tls("api.test", world.port, address=address) as sock:
                for path in ("/a", "/b") * 5:
                    sock.sendall(head(world, path))
                    seen.add((path, Response(sock).status))
    workers = [threading.Thread(target=load) for _ in range(4)]
    for w in workers:
        w.start()
    for i in range(60):
        lab.set_policy(policy(world, {"paths": ["/b" if i % 2 else "/a"]}))
    done.set()
    for w in workers:
        w.join(20)
    assert seen <= {(p, s) for p in ("/a", "/b") for s in (200, 403)}
