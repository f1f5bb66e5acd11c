# SPDX-License-Identifier: Apache-2.0
"""Rules with methods and paths, and what a refused guest is told."""
import json

import pytest

from lab import Response


def policy(world, *rules, **members):
    return {"egress": [{"host": "api.test", "ports": [world.port], **rule} for rule in rules],
            "resolve": [world.pin(h, world.outside) for h in ("api.test", "other.test", "key.test", "plain.test")], **members}


@pytest.mark.conformance("base: answer", "base: denial")
def test_policy_a_refusal_names_everything_and_agrees_with_the_record(own_lab, world):
    lab = own_lab(policy(world, {"methods": ["GET"], "paths": ["/repos/**"]}))
    for method, path in (("POST", "/repos/a"), ("GET", "/users/x?secret=1")):
        since = lab.mark()
        answer = lab.get("api.test", world.port, path, method)
        told = answer.json()
        assert answer.status == told["code"] == 403
        plain = path.split("?")[0]
        assert (told["host"], told["port"], told["method"], told["path"]) == ("api.test", world.port, method, plain)
        assert method in told["message"] and "secret" not in answer.body.decode()
        assert told["rule"] == "default deny"
        assert plain in told["allow_with"] and method in told["allow_with"]
        record = lab.wait_record("egress.deny", since)
        assert record["reason"] == told["message"]
        assert all(record[k] == told[k] for k in ("scheme", "host", "port", "method", "path", "rule"))
    assert not world.https.requests


def test_policy_the_hint_of_a_refusal_allows_it(own_lab, world):
    """What a guest is told to ask for is enough, and no more than needed."""
    lab = own_lab(policy(world, {"methods": ["GET"], "paths": ["/a"]}))
    hint = lab.get("api.test", world.port, "/b/c", "PUT").json()["allow_with"]
    rule = json.loads(hint) if hint.startswith("{") else None
    if rule is None:
        import yaml
        rule = yaml.safe_load(hint)
        rule = rule[0] if isinstance(rule, list) else rule
    wider = own_lab({**policy(world), "egress": [rule]})
    assert wider.get("api.test", world.port, "/b/c", "PUT").status == 200
    assert wider.get("api.test", world.port, "/b/c", "GET").status == 403
    assert wider.get("api.test", world.port, "/b", "PUT").status == 403


@pytest.mark.conformance("base: denial")
def test_policy_a_deny_rule_is_named_and_has_no_hint(own_lab, world):
    lab = own_lab(policy(world, {"paths": ["/private/**"], "deny": True}, {}))
    since = lab.mark()
    assert lab.get("api.test", world.port, "/public").status == 200
    told = lab.get("api.test", world.port, "/private/x").json()
    assert told["code"] == 403 and "allow_with" not in told and "default" not in told["rule"]
    assert lab.wait_record("egress.deny", since)["rule"] == told["rule"]
    assert [r.target for r in world.https.requests] == ["/public"]


def test_policy_a_refused_connection_goes_on(own_lab, world):
    lab = own_lab(policy(world, {"methods": ["GET"]}))
    with lab.tls("api.test", world.port) as sock:
        for method, status in (("DELETE", 403), ("GET", 200), ("DELETE", 403), ("GET", 200)):
            sock.sendall(f"{method} / HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
            assert Response(sock).status == status


def test_policy_options_of_everything_is_judged_like_a_path(own_lab, world):
    lab = own_lab(policy(world, {"methods": ["OPTIONS"]}))
    assert lab.get("api.test", world.port, "*", "OPTIONS").json()["target"] == "*"
    lab = own_lab(policy(world, {"paths": ["/a/**"]}))
    answer = lab.get("api.test", world.port, "*", "OPTIONS")
    assert answer.status == 403 and answer.json()["path"] == "*"


@pytest.mark.conformance("paths: slash")
def test_policy_an_encoded_slash_needs_its_word_and_meets_deny_rules(own_lab, world):
    lab = own_lab(policy(world, {"paths": ["/@a/secret/**"], "deny": True}, {"paths": ["/@*/**", "/@*"], "encodedSlash": True}, {}))
    assert lab.get("api.test", world.port, "/@a%2fname").json()["target"] == "/@a%2Fname"
    assert lab.get("api.test", world.port, "/@a%2fsecret%2fx").status == 403
    answer = lab.get("api.test", world.port, "/b%2Fc")
    assert answer.status == 403 and "slash" in answer.json()["message"]
    assert [r.target for r in world.https.requests] == ["/@a%2Fname"]


@pytest.mark.conformance("credentials: plain")
def test_policy_plain_http_of_a_host_with_a_credential(own_lab, world):
    rule = {"host": "key.test", "ports": [world.http_port], "scheme": "http"}
    secret = [{"name": "T", "value": "value-of-t", "hosts": ["key.test"]}]
    both = [{"host": "key.test", "ports": [world.port]}]
    lab = own_lab({**policy(world), "egress": both}, secret)
    since = lab.mark()
    answer = lab.get("key.test", world.http_port, scheme="http")
    assert answer.status == 403 and "credential" in answer.json()["message"]
    lab.wait_record("egress.deny", since, scheme="http", host="key.test")
    lab = own_lab({**policy(world), "egress": [*both, rule]}, secret)
    world.http.requests.clear()
    assert lab.get("key.test", world.http_port, scheme="http").status == 200
    assert b"value-of-t" not in world.http.requests[0].raw


@pytest.mark.parametrize("rules, kept", [
    ([{"methods": ["GET"]}], False), ([{"paths": ["/a"]}], False), ([{"paths": ["/private/**"], "deny": True}, {}], False),
    ([{}], True), ([{"host": "other.test", "paths": ["/a"]}, {}], True), ([{}, {"paths": ["/a"]}], True)])
def test_policy_of_requests_is_passed_by_no_field_that_makes_another(own_lab, world, rules, kept):
    """Servers take a method, a path or a host from fields too, which no rule looks at."""
    lab = own_lab(policy(world, *rules))
    fields = ["X-HTTP-Method-Override: DELETE", "X_Rewrite_URL: /private/x", "X-Forwarded-Host: evil.test"]
    assert lab.get("api.test", world.port, "/a", fields=[*fields, "X-Mine: 1"]).status == 200
    names = [k for k, _ in world.https.requests[0].fields]
    assert names == ["Host", *(f.split(":")[0] for f in fields if kept), "X-Mine"]
