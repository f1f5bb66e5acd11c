# SPDX-License-Identifier: Apache-2.0
"""docs/egress-conformance.md, section "Credentials"; injected tokens and whom they reach."""
import json
import pathlib

import pytest

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


def test_credentials_ask_for_an_unencoded_answer(lab, world):
    lab.get("key.test", world.port, fields=["Accept-Encoding: gzip, br", "accept-encoding: zstd"])
    assert world.https.requests[0].all("Accept-Encoding") == ["identity"]
    lab.get("api.test", world.port, fields=["Accept-Encoding: gzip, br"])
    assert world.https.requests[1].all("Accept-Encoding") == ["gzip, br"]


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


def test_credentials_survive_many_requests_on_one_connection(lab, world):
    with lab.tls("key.test", world.port) as sock:
        for i in range(20):
            sock.sendall(f"GET /{i} HTTP/1.1\r\nHost: key.test:{world.port}\r\nAuthorization: own{i}\r\n\r\n".encode())
            assert Response(sock).status == 200
    assert all(r.all("Authorization") == [BEARER] for r in world.https.requests)
