# SPDX-License-Identifier: Apache-2.0
"""Credentials of the node's store: a real spaced, real sources, no microVM."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

sys.path.append(str(pathlib.Path(__file__).parent / "gateway"))

import authority  # noqa: E402
from authorization import CLIENT, CLIENT_SECRET, Authorization  # noqa: E402
from hunt import Hunt  # noqa: E402
from node import SPACED, end, eventually  # noqa: E402

VALUE = "hunter2-0123456789-value"
HOSTS = ["api.example.com"]


class Daemon:
    """A spaced with directories of its own."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.state, self.run = self.root / "state", self.root / "run"
        self.log = open(self.root / "log", "ab")
        (self.root / "spaced.yaml").write_text('{"ready": 0}')
        (self.root / "credentials").mkdir()
        self.env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "SPACE_STATE_DIR": str(self.state),
            "SPACE_RUN_DIR": str(self.run),
            "SPACE_CONFIG": str(self.root / "spaced.yaml"),
            "CREDENTIALS_DIRECTORY": str(self.root / "credentials"),
            **{k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")},
        }
        self.process = None
        self.start()

    def start(self):
        ours, theirs = os.pipe()
        self.process = subprocess.Popen([SPACED, "--ready-fd", str(theirs)], env=self.env, pass_fds=[theirs], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        os.close(theirs)
        with open(ours, "rb") as ready:
            assert ready.read(1) == b"1", self.said()

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        code = self.process.wait(60)
        assert code == (-sig if sig == signal.SIGKILL else 0), self.said()

    def restart(self, sig=signal.SIGTERM):
        self.stop(sig)
        self.start()

    def said(self):
        return (self.root / "log").read_text(errors="replace")

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("spaced", timeout=90)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(90)
        connection.sock.connect(str(self.run / "spaced.sock"))
        try:
            connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def set(self, name, source=None, values=None, status=201, **definition):
        body = {"definition": {"hosts": HOSTS, **({"source": source} if source else {}), **definition}, "values": values or {}}
        got, answer = self.call("PUT", "/secrets/" + name, body)
        assert got == status, answer
        return answer

    def test(self, name):
        status, answer = self.call("POST", "/secrets/%s/test" % name)
        assert status == 200, answer
        assert answer["ok"] == ("problem" not in answer)
        return answer

    def fails(self, name):
        problem = self.test(name)["problem"]
        assert name in problem
        return problem


@pytest.fixture
def daemon():
    # A unix socket's path has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="space-broker.") as root:
        d = Daemon(root)
        yield d
        if d.process.poll() is None:
            d.stop()
        assert "Sanitizer" not in d.said() and "runtime error" not in d.said(), d.said()


@pytest.fixture
def server(tmp_path):
    s = Authorization(tmp_path)
    yield s
    s.close()


def script(directory, text, name="helper"):
    path = pathlib.Path(directory) / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def nowhere(daemon, *values):
    """None of the values is in a file of the node's, or in what was logged, or in its arguments and environment."""
    hunt = Hunt({"value %d" % i: v for i, v in enumerate(values)})
    assert hunt.below(daemon.root) == []
    assert hunt.in_processes([daemon.process.pid]) == []


# The store


def test_is_set_shown_tested_and_removed(daemon):
    assert daemon.call("GET", "/secrets") == (200, [])
    made = daemon.set("GITHUB_TOKEN", values={"value": VALUE}, ttl="1h", uses=5, bytes="5MB", methods=["GET"], paths=["/repos/**"])
    again = daemon.set("GITHUB_TOKEN", values={"value": VALUE + "x"}, status=200)
    assert again.pop("replaced")
    assert {k: v for k, v in made.items() if k != "madeAt"} == {k: v for k, v in again.items() if k != "madeAt"} == {
        "name": "GITHUB_TOKEN", "kind": "bearer", "hosts": HOSTS, "source": "value"}  # fmt: skip
    daemon.set("A_CANARY", canary=True, inject={"kind": "header", "name": "x-key"})
    status, listed = daemon.call("GET", "/secrets")
    assert status == 200 and [one["name"] for one in listed] == ["A_CANARY", "GITHUB_TOKEN"]
    assert listed[0]["canary"] and listed[0]["kind"] == "header" and listed[1] == again
    assert daemon.test("GITHUB_TOKEN") == {"ok": True} == daemon.test("A_CANARY")
    daemon.restart()
    assert daemon.call("GET", "/secrets") == (200, listed)
    assert daemon.test("GITHUB_TOKEN") == {"ok": True}
    assert daemon.call("DELETE", "/secrets/GITHUB_TOKEN") == (204, None)
    for call in (("DELETE", "/secrets/GITHUB_TOKEN"), ("POST", "/secrets/GITHUB_TOKEN/test"), ("GET", "/secrets/GITHUB_TOKEN")):
        assert daemon.call(*call)[0] == 404
    daemon.restart()
    assert [one["name"] for one in daemon.call("GET", "/secrets")[1]] == ["A_CANARY"]
    kinds = [json.loads(line) for line in (daemon.state / "audit" / "audit.jsonl").read_text().splitlines()]
    assert [(r["kind"], r["name"]) for r in kinds if r["kind"].startswith("credential.")] == [
        ("credential.set", "GITHUB_TOKEN"), ("credential.set", "GITHUB_TOKEN"), ("credential.set", "A_CANARY"),
        ("credential.remove", "GITHUB_TOKEN")]  # fmt: skip
    nowhere(daemon, VALUE)


KEY_PAIR = {"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "wJalrXUtnFEMI/K7MDENG"}
SIGV4 = {"kind": "sigv4", "service": "s3", "region": "eu-central-1"}


def test_every_kind_is_kept_sealed(daemon, tmp_path):
    certs = authority.Authority(tmp_path, "ca")
    pem, key = (path.read_text() for path in certs.server("client", ["client"]))
    daemon.set("AWS", inject=SIGV4, values={**KEY_PAIR, "sessionToken": "session-token-0123456"})
    daemon.set("MTLS", inject="certificate", values={"certificate": pem, "key": key})
    daemon.set("BASIC", inject={"kind": "basic"}, values={"value": "user:" + VALUE})
    daemon.set("OAUTH", {"oauth2": {"grant": "client_credentials", "tokenURL": "https://a.example/t", "clientID": 7}},
               {"clientSecret": CLIENT_SECRET})  # fmt: skip
    daemon.restart()
    for name in ("AWS", "MTLS", "BASIC"):
        assert daemon.test(name) == {"ok": True}
    lines = [line for line in key.splitlines() if not line.startswith("-----")]
    nowhere(daemon, VALUE, CLIENT_SECRET, KEY_PAIR["secretAccessKey"], "session-token-0123456", *lines)


OAUTH = {"grant": "client_credentials", "tokenURL": "https://a.example/t", "clientID": "c"}


@pytest.mark.parametrize(
    "definition, values, text",
    [
        ({}, {"value": "hunter2\r\nX: y"}, "line break"),
        ({}, {"value": "hunter2\0"}, "no JSON object"),
        ({}, {"value": "hunter2\x7f"}, "control"),
        ({}, {"value": " hunter2"}, "space"),
        ({}, {"value": ""}, "empty"),
        ({}, {"value": 5}, "string"),
        ({}, {"value": "hunter2" * 10000}, "65536"),
        ({}, {}, "value is missing"),
        ({}, {"valu": "hunter2"}, "valu"),
        ({"hosts": []}, {"value": "hunter2-x"}, "hosts"),
        ({"hosts": ["10.0.0.1"]}, {"value": "hunter2-x"}, "hosts"),
        ({"hosts": ["a..b"]}, {"value": "hunter2-x"}, "a..b"),
        ({"hosts": ["*.com"]}, {"value": "hunter2-x"}, "*.com"),
        ({"hosts": "a.example"}, {"value": "hunter2-x"}, "hosts"),
        ({"host": "a.example"}, {"value": "hunter2-x"}, "host"),
        ({"methods": ["get"]}, {"value": "hunter2-x"}, "methods"),
        ({"paths": ["x"]}, {"value": "hunter2-x"}, "paths"),
        ({"ttl": "5x"}, {"value": "hunter2-x"}, "ttl"),
        ({"ttl": "31d"}, {"value": "hunter2-x"}, "ttl"),
        ({"ttl": 0}, {"value": "hunter2-x"}, "ttl"),
        ({"uses": 0}, {"value": "hunter2-x"}, "uses"),
        ({"bytes": "5 eggs"}, {"value": "hunter2-x"}, "bytes"),
        ({"canary": "yes"}, {"value": "hunter2-x"}, "canary"),
        ({"inject": "magic"}, {"value": "hunter2-x"}, "inject"),
        ({"inject": {"kind": "header", "name": "Host"}}, {"value": "hunter2-x"}, "Host"),
        ({"inject": {"kind": "header", "name": "x", "template": "no"}}, {"value": "hunter2-x"}, "template"),
        ({"inject": {"kind": "bearer", "color": 1}}, {"value": "hunter2-x"}, "color"),
        ({"inject": 5}, {"value": "hunter2-x"}, "inject"),
        ({"inject": {"kind": "basic"}}, {"value": "hunter2-without-colon"}, "user"),
        ({"inject": SIGV4}, {"value": "hunter2-x"}, "value"),
        ({"inject": SIGV4}, {"accessKeyId": "hunter2-x"}, "secretAccessKey"),
        ({"inject": "certificate"}, {"certificate": "hunter2-x", "key": "hunter2-x"}, "PEM"),
        ({"source": {}}, {"value": "hunter2-x"}, "source"),
        ({"source": {"env": "X"}}, {"value": "hunter2-x"}, "env"),
        ({"source": {"stored": "X"}}, {"value": "hunter2-x"}, "stored"),
        ({"source": {"value": True, "file": "/x"}}, {"value": "hunter2-x"}, "two"),
        ({"source": {"value": False}}, {"value": "hunter2-x"}, "value"),
        ({"source": {"file": "x"}}, {}, "absolute"),
        ({"source": {"file": "/x"}}, {"value": "hunter2-x"}, "value"),
        ({"source": {"command": []}}, {}, "command"),
        ({"source": {"command": ["/x", 5]}}, {}, "command"),
        ({"source": {"command": ["/x"], "timeoutSeconds": 0}}, {}, "timeoutSeconds"),
        ({"source": {"command": ["/x"], "timeoutSeconds": 61}}, {}, "timeoutSeconds"),
        ({"source": {"command": ["/x"], "shell": True}}, {}, "shell"),
        ({"source": {"systemd": "../x"}}, {}, "systemd"),
        ({"source": {"oauth2": {**OAUTH, "grant": "password"}}}, {"clientSecret": "hunter2-x"}, "grant"),
        ({"source": {"oauth2": {**OAUTH, "tokenURL": "http://a.example/t"}}}, {"clientSecret": "hunter2-x"}, "tokenURL"),
        ({"source": {"oauth2": {**OAUTH, "tokenURL": "http://127.0.0.1.a.example/t"}}}, {"clientSecret": "hunter2-x"}, "tokenURL"),
        ({"source": {"oauth2": {**OAUTH, "tokenURL": "http://127.0.0.1@a.example/t"}}}, {"clientSecret": "hunter2-x"}, "tokenURL"),
        ({"source": {"oauth2": {**OAUTH, "tokenURL": "ftp://a.example/t"}}}, {"clientSecret": "hunter2-x"}, "tokenURL"),
        ({"source": {"oauth2": {**OAUTH, "tokenURL": "https://u:p@a.example/t"}}}, {"clientSecret": "hunter2-x"}, "tokenURL"),
        ({"source": {"oauth2": {**OAUTH, "tokenURL": "https://a.example/t\r\nX: y"}}}, {"clientSecret": "hunter2-x"}, "tokenURL"),
        ({"source": {"oauth2": {**OAUTH, "clientId": "c"}}}, {"clientSecret": "hunter2-x"}, "clientId"),
        ({"source": {"oauth2": {**OAUTH, "clientAuth": "x"}}}, {"clientSecret": "hunter2-x"}, "clientAuth"),
        ({"source": {"oauth2": {**OAUTH, "ca": "x"}}}, {"clientSecret": "hunter2-x"}, "ca"),
        ({"source": {"oauth2": OAUTH}}, {}, "clientSecret is missing"),
        ({"source": {"oauth2": OAUTH}}, {"value": "hunter2-x"}, "value"),
        ({"source": {"oauth2": OAUTH}}, {"clientSecret": "hunter2\n"}, "clientSecret"),
        ({"source": {"oauth2": OAUTH}, "inject": SIGV4}, {"clientSecret": "hunter2-x"}, "sigv4"),
        ({"source": {"oauth2": {"grant": "github_app", "clientID": 1, "installation": "x/../y"}}}, {"key": "hunter2-x"}, "installation"),
        ({"source": {"oauth2": {"grant": "github_app", "clientID": 1, "installation": 2}}}, {"key": "hunter2-x"}, "key"),
    ],
)
def test_wrong_ones_are_refused_by_name_and_field(daemon, definition, values, text):
    status, answer = daemon.call("PUT", "/secrets/MY_CREDENTIAL", {"definition": {"hosts": HOSTS, **definition}, "values": values})
    assert status == 400, answer
    assert "MY_CREDENTIAL" in answer["message"] and text in answer["message"], answer
    assert "hunter2" not in answer["message"]
    assert daemon.call("GET", "/secrets") == (200, [])
    nowhere(daemon, "hunter2-x")


@pytest.mark.parametrize("body", [b'{"values": {"value": "hunter2', b"hunter2", b"\xff", b"", b"[]"])
def test_what_is_no_json_is_not_quoted(daemon, body):
    status, answer = daemon.call("PUT", "/secrets/X", body)
    assert status == 400 and "hunter2" not in answer["message"]
    assert daemon.call("PUT", "/secrets/a-b", {"definition": {"hosts": HOSTS}, "values": {"value": VALUE}})[0] == 400


def test_two_for_a_host_may_be_stored(daemon):
    daemon.set("ONE", values={"value": VALUE})
    daemon.set("TWO", values={"value": VALUE})


# The key


def damage_short(path):
    path.write_bytes(path.read_bytes()[:31])


def damage_long(path):
    path.write_bytes(path.read_bytes() + b"x")


def damage_mode(path):
    path.chmod(0o640)


def damage_owner(path):
    os.chown(path, 1, 1)


def damage_link(path):
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def damage_gone(path):
    path.unlink()


def damage_other(path):
    path.write_bytes(os.urandom(32))


def damage_directory(path):
    path.unlink()
    path.mkdir(0o700)


DAMAGES = [(damage_short, "32 bytes"), (damage_long, "32 bytes"), (damage_mode, "0640"), (damage_owner, "uid 1"), (damage_link, "link"),
           (damage_gone, "gone"), (damage_other, "key"), (damage_directory, "no file")]  # fmt: skip


@pytest.mark.parametrize("damage, text", DAMAGES, ids=[d.__name__ for d, _ in DAMAGES])
def test_a_damaged_key_file_is_a_clear_error_and_stays(daemon, damage, text):
    path = daemon.state / "secrets.key"
    daemon.set("ONE", values={"value": VALUE})
    kept = path.read_bytes()
    assert len(kept) == 32 and path.stat().st_mode & 0o777 == 0o600
    daemon.stop()
    damage(path)
    before = path.read_bytes() if path.is_file() else None
    daemon.start()
    problem = daemon.fails("ONE")
    assert text in problem and (damage == damage_other or str(path) in problem)
    if damage != damage_other:
        status, answer = daemon.call("PUT", "/secrets/TWO", {"definition": {"hosts": HOSTS}, "values": {"value": VALUE}})
        assert status == 500 and text in answer["message"] and str(path) in answer["message"] and "TWO" in answer["message"]
    assert (path.read_bytes() if path.is_file() else None) == before
    # Put right, it is used at once.
    if path.is_dir():
        path.rmdir()
    elif path.is_symlink() or path.exists():
        path.unlink()
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.write(fd, kept)
    os.close(fd)
    if damage == damage_other:
        daemon.restart()
    assert daemon.test("ONE") == {"ok": True}


def test_values_of_one_credential_are_not_those_of_another(daemon):
    daemon.set("ONE", values={"value": VALUE})
    daemon.set("TWO", values={"value": "of-two-0123456789"})
    daemon.stop()
    import sqlite3

    with sqlite3.connect(daemon.state / "space.db") as db:
        db.execute("UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'ONE') WHERE name = 'TWO'")
    db.close()
    daemon.start()
    assert "can't be unsealed" in daemon.fails("TWO")
    assert daemon.test("ONE") == {"ok": True}


# Files, systemd, commands


def test_a_file_is_read_each_time(daemon, tmp_path):
    path = tmp_path / "token"
    daemon.set("FILE", {"file": str(path)})
    assert str(path) in daemon.fails("FILE") and "No such file" in daemon.fails("FILE")
    for good in (VALUE, VALUE + "\n", VALUE + "\r\n"):
        path.write_text(good)
        assert daemon.test("FILE") == {"ok": True}
    for bad, text in ((b"", "empty"), (b"hunter2\nhunter2\n", "line break"), (b"hunter2\xff", "no text"), (b"x" * 65537, "65536"), (b"\n", "empty")):
        path.write_bytes(bad)
        problem = daemon.fails("FILE")
        assert text in problem and "hunter2" not in problem
    path.unlink()
    os.mkfifo(path)
    assert "no file" in daemon.fails("FILE")
    nowhere(daemon, VALUE)


def test_files_of_several_values(daemon, tmp_path):
    certs = authority.Authority(tmp_path, "ca")
    pem, key = certs.server("client", ["client"])
    path = tmp_path / "credential"
    daemon.set("MTLS", {"file": str(path)}, inject="certificate")
    path.write_text("a comment\n" + key.read_text() + pem.read_text() + certs.pem.read_text())
    assert daemon.test("MTLS") == {"ok": True}
    for part, text in ((pem, "private key"), (key, "certificate")):
        path.write_text(part.read_text())
        assert text in daemon.fails("MTLS")
    daemon.set("AWS", {"file": str(path)}, inject=SIGV4)
    path.write_text(json.dumps(KEY_PAIR))
    assert daemon.test("AWS") == {"ok": True}


def test_systemd_credentials(daemon):
    daemon.set("FROM_UNIT", {"systemd": "api"})
    assert "No such file" in daemon.fails("FROM_UNIT")
    (daemon.root / "credentials" / "api").write_text("of-the-unit-0123\n")
    assert daemon.test("FROM_UNIT") == {"ok": True}
    del daemon.env["CREDENTIALS_DIRECTORY"]
    daemon.restart()
    assert "LoadCredential=api" in daemon.fails("FROM_UNIT")


@pytest.mark.parametrize(
    "printed, expires",
    [
        ('{"value": "abcdefgh-0123456789"}', False),
        ('{"token": "abcdefgh-0123456789", "expires_in": 600, "more": 1}', True),
        ('{"password": "abcdefgh-0123456789", "username": "u", "expires": "2100-01-01T00:00:00Z"}', True),
        ('{"value": "abcdefgh-0123456789", "expiration": 4102444800}', True),
        ('{"value": "abcdefgh-0123456789", "expires": null}', False),
    ],
)
def test_a_command_prints_a_value(daemon, tmp_path, printed, expires):
    daemon.set("CMD", {"command": [script(tmp_path, "echo '%s'" % printed)]})
    answer = daemon.test("CMD")
    assert answer["ok"] and ("expiresAt" in answer) == expires
    assert daemon.call("GET", "/secrets")[1][0]["source"] == "command"
    nowhere(daemon, "abcdefgh-0123456789")


def test_a_command_prints_what_aws_wants(daemon, tmp_path):
    text = {"Version": 1, "AccessKeyId": "AKIA0123", "SecretAccessKey": "sekret0123", "SessionToken": "t0123", "Expiration": "2100-01-01T00:00:00+00:00"}
    helper = script(tmp_path, "cat <<'END'\n%s\nEND\n" % json.dumps(text))
    daemon.set("AWS", {"command": [helper]}, inject=SIGV4)
    assert daemon.test("AWS") == {"ok": True, "expiresAt": "2100-01-01T00:00:00.000Z"}
    daemon.set("TOKEN", {"command": [helper]})
    assert "neither value" in daemon.fails("TOKEN")


@pytest.mark.parametrize(
    "text, problem",
    [
        ("echo hunter2-garbage", "no JSON object"),
        ('echo \'{"value": "hunter2-garbage"\'', "no JSON object"),
        ("echo '[\"hunter2-x\"]'", "no JSON object"),
        ("", "no JSON object"),
        ('echo \'{"valeu": "hunter2-x"}\'', "neither value"),
        ('echo \'{"value": "hunter2-x", "token": "hunter2-y"}\'', "two of"),
        ('echo \'{"value": 5}\'', "no string"),
        ('printf \'{"value": "hunter2\\\\nX: y"}\'', "line break"),
        ('echo \'{"value": "hunter2-x", "expires": "tomorrow"}\'', "expires"),
        ('echo \'{"value": "hunter2-x", "expires_in": -1}\'', "expires_in"),
        ('echo \'{"value": "hunter2-x", "expires": "2020-01-01T00:00:00Z"}\'', "expired at 2020"),
        ('echo \'{"value": "hunter2-x", "expires_in": 0}\'', "expired at"),
        ('echo \'{"value": "hunter2-x"}\'; echo hunter2-err >&2; exit 1', "status 1"),
        ("echo hunter2-err >&2; kill -9 $$", "signal 9"),
        ("yes hunter2-x", "65536"),
        ("exec sleep 1000", "within 1 s"),
        ("echo '{\"value\": \"hunter2-x\"}'; exec sleep 1000", "within 1 s"),
        ("exec 1>&-; exec sleep 1000", "within 1 s"),
    ],
)
def test_a_command_that_fails_is_named_and_not_quoted(daemon, tmp_path, text, problem):
    helper = script(tmp_path, text)
    daemon.set("CMD", {"command": [helper], "timeoutSeconds": 1})
    said = daemon.fails("CMD")
    assert problem in said and "hunter2" not in said and (helper in said or "line break" in said)
    assert "hunter2" not in daemon.said()


def test_nothing_of_a_hanging_command_is_left(daemon, tmp_path):
    pids = tmp_path / "pids"
    helper = script(tmp_path, "sleep 1000 & echo $! >>%s; echo $$ >>%s; wait" % (pids, pids))
    daemon.set("CMD", {"command": [helper], "timeoutSeconds": 1})
    assert "within 1 s" in daemon.fails("CMD")
    for pid in map(int, pids.read_text().split()):
        eventually(lambda: is_gone(pid), "pid %d is still there" % pid)


def is_gone(pid):
    try:
        return "\nState:\tZ" in pathlib.Path("/proc/%d/status" % pid).read_text()
    except OSError:
        return True


def test_a_child_that_keeps_the_output_open_is_not_waited_for(daemon, tmp_path):
    pids = tmp_path / "pids"
    helper = script(tmp_path, "sleep 1000 & echo $! >%s; echo '{\"value\": \"abcdefgh-0123456789\"}'" % pids)
    daemon.set("CMD", {"command": [helper], "timeoutSeconds": 60})
    assert daemon.test("CMD") == {"ok": True}
    eventually(lambda: is_gone(int(pids.read_text())), "its child is still there")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_with_spaced(daemon, tmp_path, sig):
    started = tmp_path / "started"
    os.mkfifo(started)
    helper = script(tmp_path, "echo $$ >%s; exec sleep 1000" % started)
    daemon.set("CMD", {"command": [helper], "timeoutSeconds": 60})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(daemon.call, "POST", "/secrets/CMD/test")
        pid = int(started.read_text())
        daemon.stop(sig)
        eventually(lambda: is_gone(pid), "the command is still there")
        with pytest.raises((OSError, http.client.HTTPException)):
            waiting.result(30)


def test_a_command_gets_nothing_of_ours(daemon, tmp_path):
    out = tmp_path / "out"
    helper = script(tmp_path, "exec 3>%s; env >&3; ls -l /proc/$$/fd >&3; pwd >&3; cat >&3; echo '{\"value\": \"abcdefgh-0123456789\"}'" % out)
    daemon.env["SPACE_TEST_SECRET"] = "in-the-environment"
    daemon.restart()
    daemon.set("CMD", {"command": [helper]})
    assert daemon.test("CMD") == {"ok": True}
    text = out.read_text()
    assert "in-the-environment" not in text and "SPACE_" not in text
    assert {line.split("=")[0] for line in text.splitlines() if re.match("[A-Z_]+=", line)} <= {"PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
    links = [line.split(" -> ")[1] for line in text.splitlines() if " -> " in line]
    assert all(link in ("/dev/null", helper, str(out)) or link.startswith("pipe:") for link in links), links
    assert text.splitlines()[-1] == "/"


def test_hanging_commands_keep_nobody_else_waiting(daemon, tmp_path):
    gates = [tmp_path / ("gate%d" % i) for i in range(4)]
    for i, gate in enumerate(gates):
        os.mkfifo(gate)
        daemon.set("CMD%d" % i, {"command": [script(tmp_path, "read x <%s" % gate, "helper%d" % i)], "timeoutSeconds": 60})
    daemon.set("VALUE", values={"value": VALUE})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(daemon.test, "CMD%d" % i) for i in range(4)]
        writers = [open(gate, "w") for gate in gates]  # all run now
        assert daemon.test("VALUE") == {"ok": True}
        assert not any(w.done() for w in waiting)
        for writer in writers:
            writer.close()
        for w in waiting:
            assert "status 1" in w.result(30)["problem"]


# OAuth 2


def client(server, **more):
    return {"oauth2": {"grant": "client_credentials", "tokenURL": server.url + "/token", "clientID": CLIENT, **more}}


def refresh(server, **more):
    return {"oauth2": {"grant": "refresh_token", "tokenURL": server.url + "/token", "clientID": CLIENT, **more}}


REFRESH_VALUES = {"refreshToken": "first-refresh-token-0", "clientSecret": CLIENT_SECRET}


@pytest.mark.parametrize("how", ["basic", "post", None])
def test_client_credentials(daemon, server, how):
    daemon.set("API", client(server, scope="a b", audience="https://api", **({"clientAuth": how} if how else {})), {"clientSecret": CLIENT_SECRET})
    answer = daemon.test("API")
    assert answer["ok"] and answer["expiresAt"]
    (path, form, headers), = server.requests
    assert (path, form["scope"], form["audience"]) == ("/token", "a b", "https://api")
    assert ("Authorization" in headers) == (how != "post")
    nowhere(daemon, CLIENT_SECRET, *server.issued)
    daemon.set("API", client(server), {"clientSecret": "wrong-secret"}, status=200)
    problem = daemon.fails("API")
    assert "invalid_client" in problem and "wrong-secret" not in problem


def test_the_server_is_known_by_its_certificate(daemon, tmp_path):
    certs = authority.Authority(tmp_path, "ca")
    other = authority.Authority(tmp_path, "other")
    server = Authorization(tmp_path, certs.server("server", ["localhost"], ["127.0.0.1"]))
    try:
        daemon.set("API", client(server, ca=certs.pem.read_text()), {"clientSecret": CLIENT_SECRET})
        assert daemon.test("API")["ok"]
        daemon.set("OTHER", client(server, ca=other.pem.read_text()), {"clientSecret": CLIENT_SECRET})
        daemon.set("SYSTEM", client(server), {"clientSecret": CLIENT_SECRET})
        for name in ("OTHER", "SYSTEM"):
            assert "certificate" in daemon.fails(name)
        assert len(server.requests) == 1
    finally:
        server.close()


def answers(status, text, **fields):
    return lambda request: request.text(status, text, **fields)


@pytest.mark.parametrize(
    "wrong, problem",
    [
        (answers(200, "hunter2"), "no JSON object"),
        (answers(200, "{}"), "no access_token"),
        (answers(200, '{"access_token": "hunter2-x", "token_type": "mac"}'), "token_type"),
        (answers(200, '{"access_token": "hunter2-x", "expires_in": "soon"}'), "expires_in"),
        (answers(200, '{"access_token": "hunter2-x", "expires_in": 0}'), "expired"),
        (answers(200, '{"access_token": "hunter2\\r\\nX: y"}'), "line break"),
        (answers(200, '{"access_token": "' + "x" * 70000 + '"}'), "65536"),
        (answers(302, "", Location="/token"), "redirects"),
        (answers(307, "", Location="http://127.0.0.1:9/"), "redirects"),
        (answers(500, "hunter2"), "500"),
        (answers(400, '{"error": "invalid_scope", "error_description": "hunter2"}'), "invalid_scope"),
        (answers(400, '{"error": "hunter2"}'), "status 400"),
        (lambda request: request.connection.close(), "/token"),
    ],
)
def test_wrong_answers_are_named_and_not_quoted(daemon, server, wrong, problem):
    daemon.set("API", client(server), {"clientSecret": CLIENT_SECRET})
    server.wrong = wrong
    said = daemon.fails("API")
    assert problem in said and "hunter2" not in said and CLIENT_SECRET not in said
    assert len(server.requests) == 1
    assert "hunter2" not in daemon.said()


def test_lives_as_texts_are_taken(daemon, server):
    daemon.set("API", client(server), {"clientSecret": CLIENT_SECRET})
    server.wrong = answers(200, '{"access_token": "abcdefgh-0123456789", "token_type": "bearer", "expires_in": "3600"}')
    assert "expiresAt" in daemon.test("API")


def test_nobody_listens(daemon, server):
    daemon.set("API", client(server), {"clientSecret": CLIENT_SECRET})
    server.close()
    assert "onnect" in daemon.fails("API")


def test_many_ask_and_one_look_answers(daemon, server):
    daemon.set("API", client(server), {"clientSecret": CLIENT_SECRET})
    server.hold = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        first = pool.submit(daemon.test, "API")
        assert server.asked.acquire(timeout=30)
        others = [pool.submit(daemon.test, "API") for _ in range(19)]
        # They have been heard when a later call was answered, for each waits on its own connection.
        eventually(lambda: len(connections(daemon)) >= 20, "not all have come")
        assert daemon.call("GET", "/secrets")[0] == 200
        server.hold.set()
        assert all(w.result(30)["ok"] for w in [first, *others])
    assert len(server.requests) == 1


def connections(daemon):
    """Sockets of spaced that clients of its API have connected to."""
    path = str(daemon.run / "spaced.sock")
    return [line for line in pathlib.Path("/proc/net/unix").read_text().splitlines() if line.endswith(path) and line.split()[5] == "03"]


def test_a_refresh_token_that_is_rotated_is_kept(daemon, server):
    daemon.set("API", refresh(server), REFRESH_VALUES)
    for _ in range(3):
        assert daemon.test("API")["ok"]
    daemon.restart()
    assert daemon.test("API")["ok"]
    sent = [form["refresh_token"] for _, form, _ in server.requests]
    assert len(set(sent)) == 4
    nowhere(daemon, *sent, *server.issued)


def test_a_refresh_token_without_a_client_secret(daemon, server):
    daemon.set("API", refresh(server), {"refreshToken": "first-refresh-token-0"})
    server.wrong = answers(200, '{"access_token": "abcdefgh-0123456789"}')
    assert daemon.test("API") == {"ok": True}
    (_, form, headers), = server.requests
    assert form["client_id"] == CLIENT and "client_secret" not in form and "Authorization" not in headers
    assert daemon.test("API") == {"ok": True}
    assert server.requests[1][1]["refresh_token"] == "first-refresh-token-0"


def test_spaced_dies_when_its_token_has_been_rotated(daemon, server):
    """Whoever has heard of the new access token finds the new refresh token on disk."""
    daemon.set("API", refresh(server), REFRESH_VALUES)
    for _ in range(5):
        assert daemon.test("API")["ok"]
        daemon.restart(signal.SIGKILL)
    assert len({form["refresh_token"] for _, form, _ in server.requests}) == 5


def test_spaced_is_told_to_stop_while_its_token_is_being_rotated(daemon, server):
    daemon.set("API", refresh(server), REFRESH_VALUES)
    server.hold = threading.Event()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(daemon.call, "POST", "/secrets/API/test")
        assert server.asked.acquire(timeout=30)
        daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: not (daemon.run / "spaced.sock").exists(), "it has not begun to end")
        server.hold.set()
        assert daemon.process.wait(60) == 0
        with pytest.raises((OSError, http.client.HTTPException)):
            waiting.result(30)
    daemon.start()
    assert daemon.test("API")["ok"]


def test_a_client_that_leaves_does_not_lose_a_token(daemon, server):
    daemon.set("API", refresh(server), REFRESH_VALUES)
    server.hold = threading.Event()
    client_socket = socket.socket(socket.AF_UNIX)
    client_socket.connect(str(daemon.run / "spaced.sock"))
    client_socket.sendall(b"POST /secrets/API/test HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    assert server.asked.acquire(timeout=30)
    client_socket.close()
    server.hold.set()
    server.hold = None
    assert daemon.test("API")["ok"]
    assert daemon.test("API")["ok"]


def test_a_refresh_token_that_is_over_says_what_to_do(daemon, server):
    daemon.set("API", refresh(server), REFRESH_VALUES)
    server.refresh["first-refresh-token-0"] = False
    problem = daemon.fails("API")
    assert "invalid_grant" in problem and "space secret set" in problem and "first-refresh" not in problem
    server.refresh["another-token"] = True
    daemon.set("API", refresh(server), {**REFRESH_VALUES, "refreshToken": "another-token"}, status=200)
    assert daemon.test("API")["ok"]


def make_key(directory, kind):
    key, public = directory / "key.pem", directory / "public.pem"
    how = ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"] if kind == "RS256" else ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]
    authority.openssl("genpkey", "-algorithm", *how, "-out", key)
    authority.openssl("pkey", "-in", key, "-pubout", "-out", public)
    return key.read_text(), public


@pytest.mark.parametrize("kind", ["RS256", "ES256"])
def test_jwt_bearer(daemon, server, tmp_path, kind):
    key, server.keys["account@example"] = make_key(tmp_path, kind)
    settings = {"grant": "jwt_bearer", "tokenURL": server.url + "/token", "issuer": "account@example", "subject": "somebody",
                "scope": "a b", "keyID": "k1"}  # fmt: skip
    daemon.set("GOOGLE", {"oauth2": settings}, {"key": key})
    for _ in range(3):  # an ES256 signature's numbers differ in length
        assert daemon.test("GOOGLE")["ok"]
    from authorization import unbase64

    head, claims, _ = server.requests[0][1]["assertion"].split(".")
    assert json.loads(unbase64(head)) == {"alg": kind, "typ": "JWT", "kid": "k1"}
    said = json.loads(unbase64(claims))
    assert (said["iss"], said["sub"], said["aud"], said["scope"]) == ("account@example", "somebody", server.url + "/token", "a b")
    assert len({json.loads(unbase64(r[1]["assertion"].split(".")[1]))["jti"] for r in server.requests}) == 3
    nowhere(daemon, *[line for line in key.splitlines() if not line.startswith("-----")], *server.issued)


def test_a_github_app(daemon, server, tmp_path):
    key, server.keys["12345"] = make_key(tmp_path, "RS256")
    daemon.set("GITHUB_TOKEN", {"oauth2": {"grant": "github_app", "clientID": 12345, "installation": 77, "apiURL": server.url}}, {"key": key})
    assert "expiresAt" in daemon.test("GITHUB_TOKEN")
    path, form, headers = server.requests[0]
    assert path == "/app/installations/77/access_tokens" and form == {} and headers["Accept"] == "application/vnd.github+json"
    nowhere(daemon, *server.issued)


@pytest.mark.parametrize("skew, where", [(900, "behind"), (-900, "ahead of")])
def test_clocks_that_differ_are_told(daemon, server, tmp_path, skew, where):
    key, server.keys["12345"] = make_key(tmp_path, "RS256")
    daemon.set("GITHUB_TOKEN", {"oauth2": {"grant": "github_app", "clientID": 12345, "installation": 77, "apiURL": server.url}}, {"key": key})
    server.skew = skew
    problem = daemon.fails("GITHUB_TOKEN")
    assert "401" in problem and "clock" in problem and where in problem
    assert re.search(r"\b(89\d|90\d) s\b", problem)


@pytest.mark.parametrize("skew", [45, -45])
def test_clocks_that_differ_a_little_do_no_harm(daemon, server, tmp_path, skew):
    key, server.keys["12345"] = make_key(tmp_path, "ES256")
    server.life, server.skew = 30, skew
    daemon.set("GITHUB_TOKEN", {"oauth2": {"grant": "github_app", "clientID": 12345, "installation": 77, "apiURL": server.url}}, {"key": key})
    assert daemon.test("GITHUB_TOKEN")["ok"]


@pytest.mark.parametrize("how, text", [("password", "password"), ("small", "2048"), ("curve", "P-256"), ("public", "private key"), ("ed25519", "RSA")])
def test_keys_that_can_not_sign_are_refused(daemon, tmp_path, how, text):
    key = tmp_path / "key.pem"
    rsa = ["genpkey", "-algorithm", "RSA", "-pkeyopt"]
    if how == "password":
        authority.openssl(*rsa, "rsa_keygen_bits:2048", "-aes256", "-pass", "pass:x", "-out", key)
    elif how == "small":
        authority.openssl(*rsa, "rsa_keygen_bits:1024", "-out", key)
    elif how == "curve":
        authority.openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", key)
    elif how == "ed25519":
        authority.openssl("genpkey", "-algorithm", "ED25519", "-out", key)
    else:
        key = make_key(tmp_path, "RS256")[1]
    body = {"definition": {"hosts": HOSTS, "source": {"oauth2": {"grant": "github_app", "clientID": 1, "installation": 2}}},
            "values": {"key": key.read_text()}}  # fmt: skip
    status, answer = daemon.call("PUT", "/secrets/APP", body)
    assert status == 400 and text in answer["message"] and "APP" in answer["message"], answer
