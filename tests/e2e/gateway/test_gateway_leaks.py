# SPDX-License-Identifier: Apache-2.0
"""Placeholders where they do not belong, in the head of a request: refused, recorded as a leak, and named. Canaries."""
import base64
import json
import urllib.parse

import pytest

from h2client import HEADERS, Client, END_HEADERS, END_STREAM, block, frame
from lab import Response
from test_gateway_websocket import head as websocket_head

PLACEHOLDER, OTHER = "sp_T_0123456789abcdef0123456789abcdef", "sp_U_fedcba9876543210fedcba9876543210"


def b64(text):
    return base64.b64encode(text.encode()).decode()


def entry(name="T", hosts=("key.test",), placeholder=PLACEHOLDER, **members):
    return {"name": name, "value": f"value-of-{name.lower()}", "hosts": list(hosts), "variables": {name: placeholder}, **members}


def start_lab(own_lab, world, *entries, config=()):
    hosts = ("key.test", "both.test", "api.test", "other.test")
    rules = [world.rule(h, world.port) for h in hosts] + [world.rule("both.test", world.http_port, "http")]
    return own_lab({"egress": rules, "resolve": [world.pin(h, world.outside) for h in (*hosts, "denied.test")], **dict(config)}, list(entries))


@pytest.fixture
def start(own_lab, world):
    return lambda *entries, **kwargs: start_lab(own_lab, world, *entries, **kwargs)


def is_leak(lab, world, answer, since, name="T", **members):
    """The guest is told what is recorded, and nothing has left."""
    message = answer.json()["message"]
    assert answer.status == 403 and name in message and PLACEHOLDER not in message
    record = lab.wait_record("egress.deny", since, leak=name, **members)
    assert record["reason"] == message
    assert not world.https.requests and not world.http.requests
    return record


SPELLINGS = {
    "raw": PLACEHOLDER, "within": f"before {PLACEHOLDER}after", "percent": "".join(f"%{b:02x}" for b in PLACEHOLDER.encode()),
    "some-percent": PLACEHOLDER.replace("_", "%5F"), "hex": PLACEHOLDER.encode().hex(), "HEX": PLACEHOLDER.encode().hex().upper(),
    **{f"base64-{i}": b64("x" * i + PLACEHOLDER + "y") for i in range(3)},
    "base64url": base64.urlsafe_b64encode(b"\xff\xfe" + PLACEHOLDER.encode()).decode(), "json": PLACEHOLDER.replace("T", "\\u0054"),
}


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("place, host", [("field", "key.test"), ("field", "api.test"), ("query", "key.test"), ("query", "api.test"),
                                         ("path", "key.test"), ("path", "api.test"), ("known slot", "api.test")])
def test_leaks_are_refused_in_whatever_spelling(start, world, place, host):
    lab = start(entry(), entry("U", ["both.test"], OTHER))
    for spelling, text in SPELLINGS.items():
        if place in ("path", "query") and spelling in ("json", "within"):
            continue  # no such target
        target = {"path": f"/a/x{text.replace('/', '_')}", "query": f"/a?b=1&c={text}"}.get(place, "/")
        fields = {"field": [f"X-Any: {text}"], "known slot": [f"Authorization: Bearer {text}"]}.get(place, [])
        since = lab.mark()
        record = is_leak(lab, world, lab.get(host, world.port, target, fields=fields), since, host=host)
        assert ("api.test" in record["reason"]) == (host == "api.test"), spelling
        assert "alarm" not in record


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("fields", [
    [f"Authorization: Bearer {PLACEHOLDER}"], [f"authorization: Basic {b64('user:' + PLACEHOLDER)}"], [f"Authorization: token {PLACEHOLDER}"],
    [f"X-Api-Key: {PLACEHOLDER}", f"Cookie: t={PLACEHOLDER}"], [f"Private-Token: {PLACEHOLDER}"]])
def test_leaks_are_none_in_its_own_slots(start, world, fields, version):
    lab = start(entry(), entry("U", ["both.test"], OTHER))
    if version == 1:
        assert lab.get("key.test", world.port, fields=fields).status == 200
    else:
        with Client(lab, world, "key.test") as client:
            pairs = [f.split(": ", 1) for f in fields]
            assert client.ask(extra=[(k.lower(), v) for k, v in pairs]).status == 200
    assert world.https.requests[0].all("Authorization") == ["Bearer value-of-t"]
    assert PLACEHOLDER.encode() not in world.https.requests[0].raw
    assert "use" in lab.wait_record("egress.request")


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("inject, good, bad", [
    ({"kind": "placeholder", "header": "X-Mine"}, {"fields": [f"X-Mine: a {PLACEHOLDER}"]}, {"fields": [f"X-Other: {PLACEHOLDER}"]}),
    ({"kind": "placeholder", "query": "k"}, {"path": f"/?a=1&k={PLACEHOLDER}"}, {"path": f"/?a={PLACEHOLDER}&k=1"}),
    ({"kind": "placeholder", "query": "k"}, {"path": f"/?k={PLACEHOLDER}"}, {"path": f"/?k={PLACEHOLDER}&{PLACEHOLDER}=1"}),
    ({"kind": "query", "name": "k"}, {"path": f"/?k={PLACEHOLDER}"}, {"path": f"/?l={PLACEHOLDER}"}),
    ({"kind": "header", "name": "X-Mine"}, {"fields": [f"X_Mine: {PLACEHOLDER}"]}, {"fields": [f"X-Mine-Too: {PLACEHOLDER}"]}),
    ({"kind": "placeholder", "header": "X-Mine"}, {"fields": [f"X-Mine: {PLACEHOLDER}"]}, {"fields": [f"X-Mine: {PLACEHOLDER} {OTHER}"]})])
def test_leaks_beside_the_declared_slot(start, world, inject, good, bad):
    lab = start(entry(inject=inject), entry("U", ["both.test"], OTHER))
    since = lab.mark()
    name = "U" if OTHER in str(bad) else "T"
    is_leak(lab, world, lab.get("key.test", world.port, **bad), since, name)
    assert lab.get("key.test", world.port, **good).status == 200
    assert b"value-of-t" in world.https.requests[0].raw


@pytest.mark.conformance("credentials: placeholder")
def test_leaks_of_another_credential_in_a_known_slot(start, world):
    lab = start(entry(), entry("U", ["both.test"], OTHER))
    since = lab.mark()
    record = is_leak(lab, world, lab.get("key.test", world.port, fields=[f"Authorization: Bearer {OTHER}"]), since, "U")
    assert record["reason"] == "the placeholder of U was sent to key.test: it is worth nothing there"


@pytest.mark.conformance("credentials: placeholder", "credentials: plain")
def test_leaks_over_plain_http(start, world):
    lab = start(entry(hosts=["both.test"]))
    since = lab.mark()
    record = is_leak(lab, world, lab.get("both.test", world.http_port, scheme="http", fields=[f"Authorization: Bearer {PLACEHOLDER}"]), since)
    assert "https alone" in record["reason"]
    assert lab.get("both.test", world.http_port, scheme="http").status == 200


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("field", ["Authorization: Bearer", "X-Any:"])
def test_leaks_outside_the_scope_say_what_is_not_granted(start, world, field):
    lab = start(entry(methods=["GET"], paths=["/repos/**"]))
    since = lab.mark()
    record = is_leak(lab, world, lab.get("key.test", world.port, "/x", "DELETE", fields=[f"{field} {PLACEHOLDER}"]), since)
    assert record["reason"] == "T is not granted for DELETE /x"


@pytest.mark.parametrize("host", ["api.test", "key.test"])
def test_leaks_in_names_and_methods(start, world, host):
    lab = start(entry())
    for method, fields in (("GET", [f"{PLACEHOLDER}: 1"]), (PLACEHOLDER, [])):
        since = lab.mark()
        is_leak(lab, world, lab.get(host, world.port, method=method, fields=fields), since, host=host)


def test_leaks_to_a_host_that_no_rule_allows(start, world):
    lab = start(entry(), config={"egress": [{"host": "key.test", "ports": [world.port]}, {"host": "denied.test", "ports": [world.port],
                                                                                          "methods": ["HEAD"]}]}.items())
    since = lab.mark()
    is_leak(lab, world, lab.get("denied.test", world.port, fields=[f"X-Any: {PLACEHOLDER}"]), since, host="denied.test")


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("how", ["field", "path", "method", "trailer"])
def test_leaks_over_http2(start, world, how):
    lab = start(entry())
    since = lab.mark()
    with Client(lab, world) as client:
        if how == "trailer":
            stream = client.open(client.head(method="POST"), end=False)
            client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block([("x-any", PLACEHOLDER)])))
            answer = client.wait(stream)
        else:
            answer = client.ask(f"/{PLACEHOLDER}" if how == "path" else "/", PLACEHOLDER if how == "method" else "GET",
                                extra=[("x-any", PLACEHOLDER)] if how == "field" else [])
        assert answer.status == 403 and "T" in json.loads(answer.body)["message"]
        lab.wait_record("egress.deny", since, leak="T", host="api.test")
        assert client.ask("/fine").status == 200  # the others go on
    assert not any(PLACEHOLDER.encode() in r.raw for r in world.https.requests)


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("host", ["api.test", "key.test"])
def test_leaks_in_the_head_of_a_websocket(start, world, host):
    lab = start(entry())
    since = lab.mark()
    with lab.tls(host, world.port) as sock:
        sock.sendall(websocket_head(world, f"/ws?t={PLACEHOLDER}", [f"Sec-WebSocket-Protocol: {PLACEHOLDER}"], host))
        is_leak(lab, world, Response(sock), since, host=host, path="/ws")


@pytest.mark.conformance("credentials: placeholder")
def test_leaks_of_dead_grants(start, world):
    lab = start(entry())
    assert lab.tell({"type": "secret", "revoke": "T"})["ok"]
    since = lab.mark()
    is_leak(lab, world, lab.get("api.test", world.port, fields=[f"X-Any: {PLACEHOLDER}"]), since)
    answer = lab.get("key.test", world.port, fields=[f"Authorization: Bearer {PLACEHOLDER}"])
    assert answer.status == 403 and "T was revoked" in answer.json()["message"]
    assert lab.tell({"type": "secret", "put": entry("U", placeholder=OTHER)})["ok"]
    since = lab.mark()
    is_leak(lab, world, lab.get("key.test", world.port, fields=[f"Authorization: Bearer {PLACEHOLDER}"]), since)
    assert lab.get("key.test", world.port, fields=[f"Authorization: Bearer {OTHER}"]).status == 200


def test_leaks_are_not_seen_in_what_only_looks_like_it(start, world):
    lab = start(entry())
    for text in (PLACEHOLDER[:-1], PLACEHOLDER[:-1] + "0", PLACEHOLDER.upper(), "sp_U_0123456789abcdef0123456789abcdef", b64("sp_T_")):
        assert lab.get("api.test", world.port, f"/?q={urllib.parse.quote(text)}", fields=[f"X-Any: {text}"]).status == 200
    assert not any("leak" in r for r in lab.records)


# -- canaries --

@pytest.mark.parametrize("fields", [[], [f"Authorization: Bearer {PLACEHOLDER}"]])
def test_canaries_alarm_when_they_would_be_used(start, world, fields):
    lab = start(entry(canary=True), entry("U", ["both.test"], OTHER))
    since = lab.mark()
    answer = lab.get("key.test", world.port, "/x", fields=fields)
    assert answer.status == 403 and "canary" not in answer.body.decode() and "alarm" not in answer.body.decode()
    record = lab.wait_record("egress.deny", since, alarm="T", host="key.test", path="/x")
    assert "leak" not in record and record["reason"] == answer.json()["message"]
    assert lab.get("both.test", world.port).status == 200
    assert len(world.https.requests) == 1
    assert not any("alarm" in r for r in lab.records if r.get("host") == "both.test")


@pytest.mark.parametrize("host", ["key.test", "api.test", "both.test"])
def test_canaries_alarm_wherever_their_placeholder_is(start, world, host):
    lab = start(entry(canary=True), entry("U", ["both.test"], OTHER))
    since = lab.mark()
    record = is_leak(lab, world, lab.get(host, world.port, fields=[f"X-Any: {b64(PLACEHOLDER)}"]), since, host=host)
    assert record["alarm"] == "T"


def test_canaries_alarm_outside_their_scope_by_their_placeholder_alone(start, world):
    lab = start(entry(canary=True, paths=["/secret"]))
    assert lab.get("key.test", world.port, "/public").status == 200
    assert lab.get("key.test", world.port, "/secret").status == 403
    assert lab.wait_record("egress.deny", alarm="T", path="/secret")
