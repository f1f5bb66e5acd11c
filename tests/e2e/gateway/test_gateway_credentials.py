# SPDX-License-Identifier: Apache-2.0
"""Credentials (conformance.py, section credentials); injected tokens and whom they reach."""
import base64
import json
import pathlib

import pytest

from h2client import Client
from lab import GATEWAY, Failed, Response, read_all
from upstream import response
from world import SECRET

BEARER = "Bearer " + SECRET


def test_credentials_are_put_in_outside(lab, world):
    since = lab.mark()
    answer = lab.get("key.test", world.port, "/x")
    assert world.https.requests[0].all("Authorization") == [BEARER]
    assert answer.status == 200
    assert lab.wait_record("egress.request", since)["credential"] == "API_TOKEN"


def test_credentials_go_to_their_hosts_alone(lab, world):
    since = lab.mark()
    for host in ("api.test", "other.test", "x.wild.test"):
        lab.get(host, world.port)
    assert not any(SECRET.encode() in r.raw for r in world.https.requests)
    assert lab.wait_record("egress.request", since, host="x.wild.test")["credential"] is None


@pytest.mark.conformance("credentials: strip")
@pytest.mark.parametrize("fields", [
    ["Authorization: Bearer own"], ["authorization: Basic Z3Vlc3Q6Z3Vlc3Q="],
    ["Authorization: a", "AUTHORIZATION: b", "authorization: c"], ["Proxy-Authorization: Basic x"],
    ["Cookie: session=1", "cookie: more=2"], ["X-Api-Key: own", "Private-Token: own", "X-Auth-Token: own"],
    ["Connection: Authorization", "Authorization: own"], ["Connection: close, authorization"]])
def test_credentials_of_the_guest_are_stripped_and_one_leaves(lab, world, fields):
    assert lab.get("key.test", world.port, fields=fields).status == 200
    request = world.https.requests[0]
    assert request.all("Authorization") == [BEARER]
    assert [k for k, v in request.fields] == ["Host", "Accept-Encoding", "Authorization"]


def test_credentials_of_the_guest_pass_where_there_is_no_grant(lab, world):
    lab.get("api.test", world.port, fields=["Authorization: Bearer own", "Cookie: a=b"])
    assert world.https.requests[0].all("Authorization") == ["Bearer own"]
    assert world.https.requests[0].all("Cookie") == ["a=b"]


@pytest.mark.conformance("credentials: identity-encoding")
def test_credentials_ask_for_an_unencoded_answer(lab, world):
    lab.get("key.test", world.port, fields=["Accept-Encoding: gzip, br", "accept-encoding: zstd"])
    assert world.https.requests[0].all("Accept-Encoding") == ["identity"]
    lab.get("api.test", world.port, fields=["Accept-Encoding: gzip, br"])
    assert world.https.requests[1].all("Accept-Encoding") == ["gzip, br"]


@pytest.mark.conformance("credentials: plain")
def test_credentials_never_over_plain_http(lab, world):
    since = lab.mark()
    assert lab.get("both.test", world.http_port, scheme="http").status == 200  # a rule allows it without
    assert SECRET.encode() not in world.http.requests[0].raw
    assert lab.wait_record("egress.request", since, scheme="http")["credential"] is None
    assert lab.get("key.test", world.port, scheme="http").status == 403
    assert lab.get("key.test", 80, scheme="http", host_field="key.test").status == 403
    assert not world.https.requests


def test_credentials_over_https_of_the_same_host(lab, world):
    assert lab.get("both.test", world.port).status == 200
    assert world.https.requests[0].all("Authorization") == [BEARER]


@pytest.mark.parametrize("host_field", ["other.test", "key.test.evil.example", "key.test@other.test", "api.test:{p}"])
def test_credentials_not_by_a_lie_about_the_host(lab, world, host_field):
    for connect in ("api.test", "key.test"):
        with lab.tls(connect, world.port) as sock:
            host = host_field.format(p=world.port) if connect == "key.test" else f"key.test:{world.port}"
            sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert read_all(sock).split()[1] in (b"400", b"421")
    assert not world.https.requests


def test_credentials_not_by_an_absolute_form(lab, world):
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(f"GET https://key.test:{world.port}/ HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert read_all(sock).split()[1] == b"400"
    assert not world.https.requests


def test_credentials_not_when_the_server_is_another(own_lab, world):
    """A grant for a host whose certificate is wrong: TLS fails before a byte of the request is sent."""
    policy = {"egress": [world.rule("wrong.test", world.wrong_name.port)], "resolve": [world.pin("wrong.test", world.outside)]}
    lab = own_lab(policy, [{"name": "T", "value": "secret-of-wrong", "hosts": ["wrong.test"]}])
    world.wrong_name.requests.clear()
    assert lab.get("wrong.test", world.wrong_name.port).status == 502
    assert not world.wrong_name.requests


@pytest.mark.conformance("credentials: redirect")
def test_credentials_redirects_are_not_followed(lab, world):
    world.https.script["/redirect"] = response(status="302 Found", fields=[f"Location: https://other.test:{world.port}/there"])
    answer = lab.get("key.test", world.port, "/redirect")
    assert answer.status == 302 and answer.fields["Location"].endswith("/there")
    assert [r.target for r in world.https.requests] == ["/redirect"]
    lab.get("other.test", world.port, "/there")
    assert SECRET.encode() not in world.https.requests[1].raw


def test_credentials_are_not_shared_over_pooled_connections(lab, world):
    """Same address, port and certificate: still another host, so another connection and no credential."""
    a = lab.get("key.test", world.port).json()["connection"]
    b = lab.get("api.test", world.port).json()["connection"]
    assert a != b and not world.https.requests[1].get("Authorization")


@pytest.mark.conformance("credentials: control")
@pytest.mark.parametrize("value", ["", "a\r\nX-Evil: 1", "a\nb", "a\rb", "a\u0000b", "a\tb", "a\u007f", "x" * 70000])
def test_credentials_with_control_characters_do_not_load(own_lab, world, value):
    with pytest.raises(Failed) as error:
        own_lab(world.policy(), [{"name": "T", "value": value, "hosts": ["key.test"]}])
    assert "went away" not in str(error.value)
    assert not value or json.dumps(value)[1:-1] not in str(error.value) and value not in str(error.value)


@pytest.mark.parametrize("secrets", [
    [{"name": "T", "value": "v", "hosts": ["nobody.test"]}],  # no rule
    [{"name": "T", "value": "v", "hosts": ["plain.test"]}],   # no rule for https
    [{"name": "T", "value": "v", "hosts": []}],
    [{"name": "T", "value": "v", "hosts": ["*"]}],
    [{"name": "bad name", "value": "v", "hosts": ["key.test"]}],
    [{"name": "A", "value": "v", "hosts": ["key.test"]}, {"name": "B", "value": "w", "hosts": ["key.test"]}]])
def test_credentials_that_make_no_sense_do_not_load(own_lab, world, secrets):
    with pytest.raises(Failed):
        own_lab(world.policy(), secrets)


def test_credentials_are_in_no_record_and_no_answer_of_ours(lab, world):
    lab.get("key.test", world.port)
    lab.get("key.test", 444, host_field="key.test:444")
    assert SECRET not in json.dumps(lab.records)
    assert SECRET not in lab.get("key.test", 444).body.decode()


def test_credentials_are_on_no_command_line_and_in_no_environment(lab):
    process = pathlib.Path(f"/proc/{lab.gateway_pid}")
    assert SECRET.encode() not in (process / "cmdline").read_bytes()
    assert SECRET.encode() not in (process / "environ").read_bytes()


def test_credentials_are_behind_a_process_that_cannot_be_dumped(lab):
    process = pathlib.Path(f"/proc/{lab.gateway_pid}")
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    limits = {line[:25].strip(): line[25:].split() for line in (process / "limits").read_text().splitlines()}
    assert limits["Max core file size"][:2] == ["0", "0"]
    assert status["NoNewPrivs"] == "1"
    assert status["Uid"].split()[0] != "0"
    assert (process / "maps").stat().st_uid == 0  # not its own uid's: PR_SET_DUMPABLE is off
    if b"__asan_init" not in GATEWAY.read_bytes():  # AddressSanitizer locks nothing
        assert int(status["VmLck"].split()[0]) >= 4


@pytest.mark.conformance("credentials: slot")
def test_credentials_identity_is_the_slot(own_lab, world):
    """Two sandboxes: what one may do says nothing about the other, whatever it claims."""
    policy = {"egress": [world.rule("key.test", world.port)], "resolve": [world.pin("key.test", world.outside)]}
    mine = own_lab(policy, [{"name": "MINE", "value": "value-of-mine", "hosts": ["key.test"]}])
    other = own_lab(policy, [])
    claim = ["X-Sandbox: test", "Authorization: sp_MINE_0123"]
    assert mine.get("key.test", world.port).json()["connection"] != other.get(
        "key.test", world.port, fields=claim).json()["connection"]
    assert world.https.requests[0].all("Authorization") == ["Bearer value-of-mine"]
    assert world.https.requests[1].all("Authorization") == ["sp_MINE_0123"]
    assert other.wait_record("egress.request")["credential"] is None


@pytest.mark.conformance("credentials: strip")
def test_credentials_survive_many_requests_on_one_connection(lab, world):
    with lab.tls("key.test", world.port) as sock:
        for i in range(20):
            sock.sendall(f"GET /{i} HTTP/1.1\r\nHost: key.test:{world.port}\r\nAuthorization: own{i}\r\n\r\n".encode())
            assert Response(sock).status == 200
    assert all(r.all("Authorization") == [BEARER] for r in world.https.requests)


VALUE, PLACEHOLDER = "v&lue/of+T=1", "sp_T_0123456789abcdef0123456789abcdef"


def entry(inject=None, value=VALUE, **members):
    return {"name": "T", "value": value, "hosts": ["key.test"], "variables": {"T": PLACEHOLDER}, **({"inject": inject} if inject else {}),
            **members}


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


def key_lab(own_lab, world, *args, **kwargs):
    return own_lab({"egress": [world.rule("key.test", world.port)], "resolve": [world.pin("key.test", world.outside)]},
                   [entry(*args, **kwargs)])


QUOTED = "v%26lue%2Fof%2BT%3D1"
GIT = "/r.git/info/refs?service=git-upload-pack"
OWN = ["Authorization: own", "Cookie: own=1", "X-Api-Key: own", "Private-Token: own"]


@pytest.mark.conformance("credentials: strip")
@pytest.mark.parametrize("inject, value, path, put, target", [
    (None, VALUE, "/a", ("Authorization", "Bearer " + VALUE), "/a"),
    (None, VALUE, GIT, ("Authorization", basic("x-access-token:" + VALUE)), GIT),
    ({"kind": "bearer", "gitUser": "git"}, VALUE, "/r/git-receive-pack", ("Authorization", basic("git:" + VALUE)), "/r/git-receive-pack"),
    ({"kind": "bearer"}, VALUE, "/info/refs?service=other", ("Authorization", "Bearer " + VALUE), "/info/refs?service=other"),
    ({"kind": "basic", "user": "u"}, VALUE, "/", ("Authorization", basic("u:" + VALUE)), "/"),
    ({"kind": "basic"}, "u:pass:word", "/", ("Authorization", basic("u:pass:word")), "/"),
    ({"kind": "header", "name": "X-Mine"}, VALUE, "/", ("X-Mine", VALUE), "/"),
    ({"kind": "header", "name": "Authorization", "template": "token {};v=1"}, VALUE, "/", ("Authorization", f"token {VALUE};v=1"), "/"),
    ({"kind": "query", "name": "key"}, VALUE, "/a", None, f"/a?key={QUOTED}"),
    ({"kind": "query", "name": "key"}, VALUE, "/a?x=1&key=own&%6bey=own&KEY=own&y", None, f"/a?x=1&y&key={QUOTED}"),
    ({"kind": "placeholder", "query": "key"}, VALUE, f"/a?x=1&key={PLACEHOLDER}&y=2", None, f"/a?x=1&key={QUOTED}&y=2")])
@pytest.mark.parametrize("version", [1, 2])
def test_credentials_of_each_kind_reach_the_server_alone(own_lab, world, inject, value, path, put, target, version):
    lab = key_lab(own_lab, world, inject, value)
    own = OWN + ["X_Mine: own"] if put and put[0] == "X-Mine" else OWN
    if version == 1:
        assert lab.get("key.test", world.port, path, fields=own).status == 200
    else:
        with Client(lab, world, "key.test") as client:
            fields = [tuple(x.lower() if i == 0 else x for i, x in enumerate(f.split(": ", 1))) for f in own]
            assert client.ask(path, extra=fields).status == 200
    request = world.https.requests[0]
    assert request.target == target
    assert [(k.lower(), v) for k, v in request.fields if k.lower() not in ("host", "accept-encoding")] == \
        ([(put[0].lower(), put[1])] if put else [])
    assert lab.wait_record("egress.request")["path"] == path.split("?")[0]
    assert value not in json.dumps(lab.records) and QUOTED not in json.dumps(lab.records)


def test_credentials_take_the_place_of_their_placeholder(own_lab, world):
    lab = key_lab(own_lab, world, {"kind": "placeholder", "header": "X-Mine"})
    since = lab.mark()
    own = OWN + [f"X-Mine: a {PLACEHOLDER}, {PLACEHOLDER} z"]
    assert lab.get("key.test", world.port, fields=own).status == 200
    assert world.https.requests[0].all("X-Mine") == [f"a {VALUE}, {VALUE} z"]
    assert [k for k, _ in world.https.requests[0].fields] == ["Host", "Accept-Encoding", "X-Mine"]
    assert lab.wait_record("egress.request", since)["use"] == 1
    since = lab.mark()  # without it, nothing is put in, and that is no use
    assert lab.get("key.test", world.port, fields=OWN + ["X-Mine: own"]).status == 200
    assert [k for k, _ in world.https.requests[1].fields] == ["Host", "X-Mine", "Accept-Encoding"]
    record = lab.wait_record("egress.request", since)
    assert record["credential"] is None and "use" not in record
    assert "credential_bytes" not in lab.wait_record("egress.response", since, id=record["id"])


def test_credentials_for_a_placeholder_in_authorization(own_lab, world):
    lab = key_lab(own_lab, world, {"kind": "placeholder", "header": "Authorization"})
    lab.get("key.test", world.port, fields=[f"Authorization: token {PLACEHOLDER}", "X-Api-Key: own"])
    lab.get("key.test", world.port, fields=["Authorization: token own"])
    assert [r.all("Authorization") for r in world.https.requests] == [[f"token {VALUE}"], []]
    assert not world.https.requests[0].get("X-Api-Key")


@pytest.mark.conformance("credentials: strip")
@pytest.mark.parametrize("method, path", [("POST", "/repos/x"), ("GET", "/other"), ("GET", "/")])
def test_credentials_outside_their_scope_stay_here_and_so_do_the_guests(own_lab, world, method, path):
    lab = key_lab(own_lab, world, methods=["GET"], paths=["/repos/**"])
    assert lab.get("key.test", world.port, "/repos/x", fields=OWN).status == 200
    assert lab.get("key.test", world.port, path, method, fields=OWN + ["Accept-Encoding: br", "X-Mine: own"]).status == 200
    inside, outside = world.https.requests
    assert inside.all("Authorization") == ["Bearer " + VALUE]
    assert [k for k, _ in outside.fields if k != "Content-Length"] == ["Host", "X-Mine", "Accept-Encoding"]
    assert lab.wait_record("egress.request", method=method, path=path)["credential"] is None


OVERRIDES = ["X-HTTP-Method-Override: DELETE", "X_HTTP-Method: DELETE", "X-Method-Override: DELETE", "X-Original-URL: /admin",
             "X-Rewrite-URL: /admin", "X-Original-Host: evil.test", "X-Forwarded-Host: evil.test", "X_Host: evil.test",
             "X-Forwarded-Server: evil.test", "Forwarded: host=evil.test"]


@pytest.mark.parametrize("members", [{}, {"methods": ["POST"], "paths": ["/ok/**"]}])
@pytest.mark.parametrize("method, path", [("POST", "/ok/x"), ("GET", "/other")])
def test_credentials_go_with_no_field_that_makes_another_request_of_it(own_lab, world, members, method, path):
    lab = key_lab(own_lab, world, **members)
    assert lab.get("key.test", world.port, path, method, fields=[*OVERRIDES, "X-Mine: own"]).status == 200
    names = [k for k, _ in world.https.requests[0].fields if k not in ("Content-Length", "Authorization")]
    assert names == ["Host", "X-Mine", "Accept-Encoding"]


def test_credentials_end_a_parameter_at_a_semicolon(own_lab, world):
    """What some servers read as another parameter, and some don't, is no way out of a placeholder's slot."""
    lab = key_lab(own_lab, world, {"kind": "placeholder", "query": "key"})
    for query in (f"key=1;note={PLACEHOLDER}", f"key={PLACEHOLDER};note={PLACEHOLDER}", f"note=1;key={PLACEHOLDER}"):
        assert lab.get("key.test", world.port, f"/?{query}").status == 403
    assert not world.https.requests
    assert lab.get("key.test", world.port, f"/?x=1;w&key={PLACEHOLDER};y=2&z").status == 200
    assert world.https.requests[0].target == f"/?x=1;w&key={QUOTED};y=2&z"


DIGESTS = ["Content-MD5: a", "Digest: a", "Repr_Digest: a", "Content-Digest: a"]


def test_credentials_come_back_with_no_digest_of_what_was_starred(own_lab, world):
    lab = key_lab(own_lab, world)
    world.https.script["/echo"] = response(VALUE, fields=[*DIGESTS, 'ETag: "kept"'])
    answer = lab.get("key.test", world.port, "/echo")
    assert answer.body == b"*" * len(VALUE) and answer.fields["ETag"] == '"kept"'
    assert not [f for f in DIGESTS if f.split(":")[0] in answer.fields]


def test_credentials_count_their_uses_and_bytes_in_records(own_lab, world):
    lab = key_lab(own_lab, world)
    for use in (1, 2, 3):
        since = lab.mark()
        assert lab.get("key.test", world.port, "/x", "POST", body=b"12345").status == 200
        assert lab.wait_record("egress.request", since)["use"] == use
    lab.wait(lambda: len([r for r in lab.records if r["kind"] == "egress.response"]) == 3)
    ends = [r for r in lab.records if r["kind"] == "egress.response"]
    assert ends[0]["credential_bytes"] >= ends[0]["bytes_up"] + ends[0]["bytes_down"]
    assert ends[0]["credential_bytes"] < ends[1]["credential_bytes"] < ends[2]["credential_bytes"]
