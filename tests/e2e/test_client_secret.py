# SPDX-License-Identifier: Apache-2.0
"""space secret, space grant, stored credentials of run, resume and fork, values for policies: against a scripted server. No VM."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import time

import pytest

from node import SPACE
from scripted import Script
from test_broker import Daemon
from test_client import env, run_answer, space

VALUE = "hunter2-0123456789"
HOSTILE = "\x1b]0;x\x07\u202e\n"
SHOWN = "\\x1b]0;x\\x07\\u{202e}\\n"


@pytest.fixture
def script():
    s = Script()
    yield s
    s.close()


def sent(script, key):
    return [json.loads(body) for body in script.bodies(key)]


def takes(script, name="TOKEN", status=201):
    script.on("PUT /secrets/" + name)(lambda r: r.json(status, {"name": name}))


def ok(done):
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
    return done


def refused(done, text, verb=None):
    """One line that says what is wrong, and holds no value."""
    line = done.stderr.decode()
    assert (done.returncode, done.stdout) == (125, b""), done
    assert line.startswith("space: ") and line.count("\n") == 1 and text in line, line
    assert "hunter2" not in line
    assert not verb or "see 'space %s --help'" % verb in line


# Setting


@pytest.mark.parametrize("args", [[], ["-"]])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_value_comes_from_standard_input_without_its_newline(script, args, end):
    takes(script)
    ok(space(script, "secret", "set", "TOKEN", "--host", "a.example", *args, input=VALUE.encode() + end))
    assert sent(script, "PUT /secrets/TOKEN") == [
        {
            "definition": {"name": "TOKEN", "hosts": ["a.example"], "source": {"value": True}},
            "values": {"value": VALUE},
        }
    ]


def test_value_comes_from_a_file(script, tmp_path):
    takes(script, status=200)
    (tmp_path / "v").write_text(VALUE + "\n")
    ok(space(script, "secret", "set", "TOKEN", str(tmp_path / "v"), "--host", "a.example", input=b"other"))
    assert sent(script, "PUT /secrets/TOKEN")[0]["values"] == {"value": VALUE}


@pytest.mark.parametrize(
    "args, inject",
    [
        (["--header", "x-api-key"], {"kind": "header", "name": "x-api-key", "template": "{}"}),
        (["--header=X-Auth=Token {}"], {"kind": "header", "name": "X-Auth", "template": "Token {}"}),
        (["--header", "X-Auth=a={}=b"], {"kind": "header", "name": "X-Auth", "template": "a={}=b"}),
        (["--basic", "u"], {"kind": "basic", "user": "u"}),
        (["--basic", ""], {"kind": "basic"}),
        (["--query", "key"], {"kind": "query", "name": "key"}),
    ],
)
def test_flags_say_how_it_is_put_in(script, args, inject):
    takes(script)
    ok(space(script, "secret", "set", "TOKEN", "--host", "a.example", *args, input=VALUE.encode()))
    assert sent(script, "PUT /secrets/TOKEN")[0]["definition"]["inject"] == inject


def test_flags_say_what_it_is_for(script):
    takes(script)
    ok(
        space(
            script, "secret", "set", "--host", "a.example,*.b.example", "--host=c.example", "--method", "GET,HEAD", "--method", "PUT",
            "--path", "/a,b/**", "--path", "/c", "--ttl", "30m", "--uses", "7", "--bytes", "5 MB", "--canary", "TOKEN",
            input=VALUE.encode(),
        )  # fmt: skip
    )
    assert sent(script, "PUT /secrets/TOKEN")[0]["definition"] == {
        "name": "TOKEN", "hosts": ["a.example", "*.b.example", "c.example"], "methods": ["GET", "HEAD", "PUT"],
        "paths": ["/a,b/**", "/c"], "ttl": 1800, "uses": 7, "bytes": 5000000, "canary": True, "source": {"value": True},
    }  # fmt: skip


def test_canary_needs_no_value_and_may_have_one(script, tmp_path):
    takes(script)
    (tmp_path / "d.yaml").write_text("hosts: [a.example]\ncanary: true\n")
    ok(space(script, "secret", "set", "TOKEN", "--canary", "--host", "a.example", input=b"not read\n\n"))
    ok(space(script, "secret", "set", "TOKEN", "--file", str(tmp_path / "d.yaml"), input=b""))
    ok(space(script, "secret", "set", "TOKEN", "--canary", "--host", "a.example", "-", input=VALUE.encode()))
    assert [body["values"] for body in sent(script, "PUT /secrets/TOKEN")] == [{}, {}, {"value": VALUE}]
    assert {body["definition"]["canary"] for body in sent(script, "PUT /secrets/TOKEN")} == {True}


AWS = {"accessKeyId": "AKIAEXAMPLE", "secretAccessKey": "hunter2/+", "sessionToken": "t=="}
AWS_TEXTS = [
    json.dumps(AWS),
    json.dumps({"Version": 1, "AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": "hunter2/+", "SessionToken": "t=="}),
    "[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key=hunter2/+\naws_session_token = t==\n",
]


@pytest.mark.parametrize("text", AWS_TEXTS)
def test_keys_of_aws_are_taken_in_its_own_forms(script, text):
    takes(script)
    args = ["secret", "set", "TOKEN", "--host", "s3.example", "--sigv4", "s3/eu-central-1"]
    ok(space(script, *args, input=text.encode()))
    body = sent(script, "PUT /secrets/TOKEN")[0]
    assert body["values"] == AWS
    assert body["definition"]["inject"] == {"kind": "sigv4", "service": "s3", "region": "eu-central-1"}
    refused(space(script, *args, input=b"hunter2"), "the value of TOKEN is to be JSON with accessKeyId")


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----\n"


def test_definition_from_a_file_and_flags_over_it(script, tmp_path):
    takes(script)
    file = tmp_path / "d.yaml"
    file.write_text("name: TOKEN\nhosts: [a.example, b.example]\ninject: certificate\nmethods: [GET]\nttl: 1h\n")
    ok(space(script, "secret", "set", "TOKEN", "--file", str(file), "--host", "c.example", input=(KEY + CERTIFICATE).encode()))
    assert sent(script, "PUT /secrets/TOKEN") == [
        {
            "definition": {
                "name": "TOKEN", "hosts": ["c.example"], "inject": {"kind": "certificate"}, "methods": ["GET"], "ttl": "1h",
                "source": {"value": True},
            },
            "values": {"certificate": CERTIFICATE, "key": KEY},
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source", ['{command: [/usr/bin/vault, read]}', "{systemd: t}", "{file: /run/keys/t}"]
)
def test_what_spaced_fetches_itself_takes_no_value(script, tmp_path, source):
    takes(script)
    file = tmp_path / "d.yaml"
    file.write_text("hosts: [a.example]\nsource: %s\n" % source)
    done = ok(space(script, "secret", "set", "TOKEN", "--file", str(file), input=VALUE.encode()))
    body = sent(script, "PUT /secrets/TOKEN")[0]
    assert body["values"] == {} and "value" not in body["definition"]["source"], done
    refused(space(script, "secret", "set", "TOKEN", "--file", str(file), "-", input=VALUE.encode()), "TOKEN takes no value")


def test_variable_as_the_source_is_read_here(script, tmp_path):
    takes(script)
    file = tmp_path / "d.yaml"
    file.write_text("hosts: [a.example]\nsource: {env: OURS}\n")
    ok(space(script, "secret", "set", "TOKEN", "--file", str(file), more={"OURS": VALUE}))
    body = sent(script, "PUT /secrets/TOKEN")[0]
    assert (body["values"], body["definition"]["source"]) == ({"value": VALUE}, {"value": True})
    refused(space(script, "secret", "set", "TOKEN", "--file", str(file)), "the variable OURS is not set")


GOOGLE = {
    "type": "service_account", "private_key_id": "k1", "private_key": KEY, "client_email": "a@b.example", "client_id": "7",
    "token_uri": "https://token.example/t",
}  # fmt: skip


@pytest.mark.parametrize(
    "oauth2, text, values, want",
    [
        ({"grant": "client_credentials", "clientID": "c"}, VALUE, {"clientSecret": VALUE}, {}),
        ({"grant": "refresh_token", "clientID": "c"}, VALUE, {"refreshToken": VALUE}, {}),
        (
            {"grant": "refresh_token"},
            json.dumps({"client_id": "c", "client_secret": "s", "refresh_token": VALUE, "type": "authorized_user"}),
            {"refreshToken": VALUE, "clientSecret": "s"},
            {"clientID": "c"},
        ),
        ({"grant": "github_app", "clientID": "c", "installation": 5}, KEY, {"key": KEY}, {}),
        (
            {"grant": "jwt_bearer", "scope": "x", "keyID": "mine"},
            json.dumps(GOOGLE),
            {"key": KEY},
            {"issuer": "a@b.example", "tokenURL": "https://token.example/t"},
        ),
    ],
)
def test_oauth_gets_what_its_grant_needs(script, tmp_path, oauth2, text, values, want):
    takes(script)
    definition = {"hosts": ["a.example"], "source": {"oauth2": oauth2}}
    (tmp_path / "d").write_text(json.dumps(definition))
    ok(space(script, "secret", "set", "TOKEN", "--file", str(tmp_path / "d"), input=text.encode()))
    assert sent(script, "PUT /secrets/TOKEN") == [
        {"definition": {"name": "TOKEN", **definition, "source": {"oauth2": {**oauth2, **want}}}, "values": values}
    ]


# Slips: nothing is sent, and what may be a value is not repeated


@pytest.mark.parametrize(
    "args, text",
    [
        (["set"], "say 'secret set NAME --host HOST"),
        (["set", "TOKEN=hunter2", "--host", "a"], "never from the command line"),
        (["set", "TO-KEN", "--host", "a"], "is that of a variable"),
        (["set", "TOKEN", "a", "hunter2", "--host", "a"], "say 'secret set NAME --host HOST"),
        (["set", "TOKEN", "--host", ""], "an empty or unreadable host"),
        (["set", "TOKEN", "--host", "a,,b"], "an empty or unreadable host in 'a,,b'"),
        (["set", "TOKEN", "--host", "a", "--header", "X-Key=hunter2"], "one {} where the value goes"),
        (["set", "TOKEN", "--host", "a", "--header", "X-Key={} hunter2 {}"], "one {} where the value goes"),
        (["set", "TOKEN", "--host", "a", "--header", "X-Key: hunter2"], "--header takes the name of a header"),
        (["set", "TOKEN", "--host", "a", "--header", ""], "--header takes the name of a header"),
        (["set", "TOKEN", "--host", "a", "--basic", "u:hunter2"], "and no password"),
        (["set", "TOKEN", "--host", "a", "--query", "key=hunter2"], "the name of a parameter alone"),
        (["set", "TOKEN", "--host", "a", "--sigv4", "s3"], "--sigv4 takes SERVICE/REGION"),
        (["set", "TOKEN", "--host", "a", "--sigv4", "s3/a/b"], "--sigv4 takes SERVICE/REGION"),
        (["set", "TOKEN", "--host", "a", "--basic", "u", "--query", "k"], "exclude each other"),
        (["set", "TOKEN", "--host", "a", "--ttl", "soon"], "--ttl takes a time"),
        (["set", "TOKEN", "--host", "a", "--ttl", "0"], "--ttl takes a time"),
        (["set", "TOKEN", "--host", "a", "--uses", "0"], "--uses takes a whole number"),
        (["set", "TOKEN", "--host", "a", "--bytes", "0"], "--bytes takes a size"),
        (["set", "TOKEN", "--host", "a", "--bytes", "1GiB"], "--bytes takes a size"),
        (["set", "TOKEN", "--host", "a", "--path", "repos"], "--path takes a pattern that begins with '/'"),
        (["set", "TOKEN", "--host", "a", "--json"], "--json is for 'secret ls'"),
        (["ls", "x"], "say 'secret set"),
        (["ls", "--host", "a"], "that is for 'secret set'"),
        (["rm"], "say 'secret set"),
        (["rm", "TOKEN", "K=hunter2"], "never from the command line"),
        (["test", "-f", "TOKEN"], "-f is for 'secret rm'"),
        (["test", "K=hunter2"], "never from the command line"),
        (["frob"], "say 'secret set"),
        ([], "say 'secret set"),
    ],
)
def test_wrong_use_of_secret_is_one_line(script, args, text):
    refused(space(script, "secret", *args, input=b"hunter2"), text, "secret")
    assert script.keys() == []


@pytest.mark.parametrize(
    "args, value, text",
    [
        (["TOKEN"], VALUE, "say which hosts may get TOKEN: --host api.example.com"),
        (["TOKEN", "--host", "a", "hunter2"], "", "cannot read the file for TOKEN's value (the value itself is never an argument)"),
        (["TOKEN", "--host", "a", "/"], "", "cannot read the value of TOKEN: Is a directory"),
        (["TOKEN", "--host", "a"], "", "the value of TOKEN is empty"),
        (["TOKEN", "--host", "a"], "\n", "the value of TOKEN is empty"),
        (["TOKEN", "--host", "a"], "hunter2\r\nX-Evil: 1\n", "the value of TOKEN holds a line break"),
        (["TOKEN", "--host", "a"], "hunter2\0", "the value of TOKEN holds a line break or another control character"),
        (["TOKEN", "--file", "/nonexistent"], VALUE, "cannot read the definition /nonexistent"),
    ],
)
def test_value_that_cannot_be_used_is_refused_without_it(script, args, value, text):
    refused(space(script, "secret", "set", *args, input=value.encode()), text)
    assert script.keys() == []


def test_value_without_end_is_refused(script):
    refused(space(script, "secret", "set", "TOKEN", "--host", "a", input=b"hunter2" * 40000), "the value of TOKEN is longer than")
    assert script.keys() == []


@pytest.mark.parametrize(
    "definition, text",
    [
        ("hosts: [a\n", "d.yaml:"),
        ("- hosts\n", "is no definition of a credential"),
        ("name: OTHER\nhosts: [a]\n", "defines another credential than TOKEN"),
        ("methods: [GET]\n", "say which hosts may get TOKEN"),
        ("hosts: [a]\nsource: {stored: TOKEN}\n", "the source 'stored' is for policy files"),
        ("hosts: [a]\nsource: {oauth2: {grant: jwt_bearer}}\n", "is to be a private key in PEM form"),
    ],
)
def test_wrong_definitions_are_told(script, tmp_path, definition, text):
    (tmp_path / "d.yaml").write_text(definition)
    refused(space(script, "secret", "set", "TOKEN", "--file", str(tmp_path / "d.yaml"), input=b"hunter2"), text)
    assert script.keys() == []


def test_value_is_in_no_argument_and_no_environment_of_ours(script):
    """Looked at while the call is under way."""
    seen = []

    @script.on("PUT /secrets/TOKEN")
    def answer(r):
        for name in ("cmdline", "environ"):
            with open("/proc/%d/%s" % (process.pid, name), "rb") as f:
                seen.append(f.read())
        r.json(201, {})

    process = subprocess.Popen(
        [SPACE, "secret", "set", "TOKEN", "--host", "a.example"], env=env(script), stdin=subprocess.PIPE
    )
    process.stdin.write(VALUE.encode())
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    assert len(seen) == 2 and b"TOKEN" in seen[0] and not any(VALUE.encode() in text for text in seen)


# At a terminal


class Terminal:
    def __init__(self, script, *args):
        self.leader, self.follower = pty.openpty()
        self.shown = b""
        self.before = termios.tcgetattr(self.follower)
        self.process = subprocess.Popen(
            [SPACE, *args], env=env(script), stdin=self.follower, stdout=self.follower, stderr=self.follower,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def read_until(self, text, timeout=30):
        deadline = time.monotonic() + timeout
        while text not in self.shown:
            assert select.select([self.leader], [], [], max(0, deadline - time.monotonic()))[0], self.shown
            self.shown += os.read(self.leader, 4096)
        at = self.shown.index(text) + len(text)
        out, self.shown = self.shown[:at], self.shown[at:]
        return out

    def type(self, text):
        os.write(self.leader, text)

    def end(self):
        code = self.process.wait(timeout=30)
        after = termios.tcgetattr(self.follower)
        os.close(self.follower)
        try:
            while data := os.read(self.leader, 4096):
                self.shown += data
        except OSError:
            pass  # nobody holds the other end any more
        os.close(self.leader)
        assert after == self.before
        return code


def test_terminal_is_asked_and_shows_nothing(script):
    takes(script)
    t = Terminal(script, "secret", "set", "TOKEN", "--host", "a.example")
    asked = t.read_until(b"value of TOKEN: ")
    t.type(VALUE.encode() + b"\n")
    assert t.end() == 0
    assert VALUE.encode() not in asked + t.shown
    assert sent(script, "PUT /secrets/TOKEN")[0]["values"] == {"value": VALUE}


def test_terminal_is_asked_for_each_part(script):
    takes(script)
    t = Terminal(script, "secret", "set", "TOKEN", "--host", "a.example", "--sigv4", "s3/x")
    for prompt, text in ((b"access key id of TOKEN: ", b"AK\n"), (b"secret access key of TOKEN: ", b"hunter2\n"),
                         (b"session token (empty: none) of TOKEN: ", b"\n")):  # fmt: skip
        t.read_until(prompt)
        t.type(text)
    assert t.end() == 0
    assert b"hunter2" not in t.shown
    assert sent(script, "PUT /secrets/TOKEN")[0]["values"] == {"accessKeyId": "AK", "secretAccessKey": "hunter2"}


@pytest.mark.parametrize("how", ["interrupt", "term", "end of input"])
def test_terminal_is_left_as_it_was(script, how):
    t = Terminal(script, "secret", "set", "TOKEN", "--host", "a.example")
    t.read_until(b"value of TOKEN: ")
    if how == "interrupt":
        t.type(b"hunt\x03")
    elif how == "term":
        t.process.send_signal(signal.SIGTERM)
    else:
        t.type(b"\x04")
    want = {"interrupt": -signal.SIGINT, "term": -signal.SIGTERM, "end of input": 125}[how]
    assert t.end() == want
    assert script.keys() == []
    if how == "end of input":
        assert b"the input ended before a value was typed" in t.shown


def test_pem_is_not_typed(script, tmp_path):
    (tmp_path / "d").write_text("hosts: [a]\ninject: certificate\n")
    t = Terminal(script, "secret", "set", "TOKEN", "--file", str(tmp_path / "d"))
    assert t.end() == 125
    assert b"can't be typed: name a file with PEM" in t.shown
    assert script.keys() == []


# Listing, testing, removing


SECRETS = [
    {"name": "GITHUB_TOKEN", "kind": "bearer", "hosts": ["api.github.com", "github.com"], "source": "value",
     "madeAt": "2026-01-01T00:00:00.000Z"},
    {"name": "TRAP", "kind": "header", "hosts": ["a.example"], "source": "value", "canary": True, "madeAt": "2026-01-01T00:00:00.000Z"},
    {"name": "CLOUD", "kind": "bearer", "hosts": ["b.example"], "source": "oauth2", "madeAt": "2026-01-01T00:00:00.000Z",
     "expiresAt": "2999-01-01T00:00:00.000Z", "problem": "the server says invalid_grant: set it anew"},
]  # fmt: skip


def test_ls_shows_what_there_is(script):
    script.on("GET /secrets")(lambda r: r.json(200, SECRETS))
    done = space(script, "secret", "ls")
    rows = [re.split(r"  +", line) for line in done.stdout.decode().splitlines()]
    assert (done.returncode, done.stderr) == (0, b"")
    assert rows[0] == ["NAME", "KIND", "SOURCE", "HOSTS", "AGE", "EXPIRES", "STATE"]
    assert rows[1][:4] == ["GITHUB_TOKEN", "bearer", "value", "api.github.com,github.com"]
    assert re.fullmatch(r"\d+d", rows[1][4]) and rows[1][5:] == ["-", "good"]
    assert rows[2][6] == "canary"
    assert re.fullmatch(r"\d+d", rows[3][5]) and rows[3][6] == "the server says invalid_grant: set it anew"
    assert json.loads(space(script, "secret", "ls", "--json").stdout) == SECRETS


def test_ls_shows_hostile_texts_safely(script):
    odd = [
        {"name": HOSTILE, "kind": HOSTILE, "hosts": [HOSTILE, 7, "b"], "source": HOSTILE, "problem": HOSTILE},
        {"hosts": "x", "madeAt": HOSTILE, "expiresAt": 3, "canary": "yes"}, 7, {}, {"expiresAt": "2000-01-01T00:00:00Z"},
    ]  # fmt: skip
    script.on("GET /secrets")(lambda r: r.json(200, odd))
    done = space(script, "secret", "ls")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and len(lines) == 6
    assert "\x1b" not in done.stdout.decode() and "\u202e" not in done.stdout.decode()
    assert lines[1].count(SHOWN) == 5 and SHOWN + ",b" in lines[1]
    assert lines[5].split()[-2:] == ["over", "good"]


def test_show_is_a_definition_that_set_takes(script, tmp_path):
    definition = {"hosts": ["a.example"], "inject": {"kind": "header", "name": "x", "template": "{}"}, "source": {"value": True}}
    whole = {"name": "TOKEN", "kind": "header", "definition": definition}
    script.on("GET /secrets/TOKEN")(lambda r: r.json(200, whole))
    takes(script)
    done = space(script, "secret", "show", "TOKEN")
    assert json.loads(done.stdout) == definition
    (tmp_path / "d").write_bytes(done.stdout)
    ok(space(script, "secret", "set", "TOKEN", "--file", str(tmp_path / "d"), input=VALUE.encode()))
    assert sent(script, "PUT /secrets/TOKEN")[0]["definition"] == {"name": "TOKEN", **definition}
    assert json.loads(space(script, "secret", "show", "--json", "TOKEN").stdout) == whole


@pytest.mark.parametrize(
    "reply, code, out, err",
    [
        ({"ok": True}, 0, b"TOKEN: good\n", b""),
        ({"ok": True, "expiresAt": "2000-01-01T00:00:00Z"}, 0, b"TOKEN: good\n", b""),
        ({"ok": True, "expiresAt": HOSTILE}, 0, b"TOKEN: good\n", b""),
        ({"ok": False, "problem": "it said no " + HOSTILE}, 1, b"", b"space: it said no " + SHOWN.encode() + b"\n"),
        ({"ok": False}, 1, b"", b"space: spaced doesn't say what is wrong\n"),
        ([], 1, b"", b"space: spaced doesn't say what is wrong\n"),
    ],
)
def test_test_tells_and_exits(script, reply, code, out, err):
    script.on("POST /secrets/TOKEN/test")(lambda r: r.json(200, reply))
    done = space(script, "secret", "test", "TOKEN")
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)
    done = space(script, "secret", "test", "--json", "TOKEN")
    assert (done.returncode, json.loads(done.stdout)) == (code, reply)


def test_test_tells_how_long_it_is_good(script):
    script.on("POST /secrets/TOKEN/test")(lambda r: r.json(200, {"ok": True, "expiresAt": "2999-01-01T00:00:00Z"}))
    assert re.fullmatch(rb"TOKEN: good, expires in \d+d\n", space(script, "secret", "test", "TOKEN").stdout)


def test_rm_reports_each_and_force_forgives(script):
    script.on("DELETE /secrets/A")(lambda r: r.raw(204, b""))
    script.on("DELETE /secrets/B")(lambda r: r.json(404, {"code": 404, "message": "there is no credential B"}))
    done = space(script, "secret", "rm", "B", "A")
    assert (done.returncode, done.stderr) == (125, b"space: there is no credential B\n")
    assert script.keys() == ["DELETE /secrets/B", "DELETE /secrets/A"]
    ok(space(script, "secret", "rm", "-f", "B"))


# Grants


GRANT = {"name": "TOKEN", "kind": "bearer", "hosts": ["a.example"], "state": "good", "used": 0, "usedBytes": 0,
         "variables": {"TOKEN": "sp_TOKEN_0123"}}  # fmt: skip


def grants(script):
    script.on("POST /sandboxes/w/grants")(lambda r: r.json(201, GRANT))


def test_grant_of_a_stored_credential(script):
    grants(script)
    ok(space(script, "grant", "add", "w", "TOKEN"))
    done = space(
        script, "grant", "add", "--json", "w", "TOKEN", "--host", "a.example", "--method", "GET", "--path", "/x/**",
        "--ttl", "30m", "--uses", "9", "--bytes", "1GB",
    )  # fmt: skip
    assert json.loads(done.stdout) == GRANT
    assert sent(script, "POST /sandboxes/w/grants") == [
        {"name": "TOKEN", "stored": "TOKEN"},
        {"name": "TOKEN", "stored": "TOKEN", "hosts": ["a.example"], "methods": ["GET"], "paths": ["/x/**"],
         "expiresMs": 1800000, "uses": 9, "bytes": 1000000000},
    ]  # fmt: skip


def test_grant_of_our_variable(script):
    grants(script)
    more = {"TOKEN": VALUE, "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "hunter2"}
    args = ["grant", "add", "w", "TOKEN", "--env", "--host", "a.example"]
    assert space(script, *args, more=more).returncode == 0
    assert space(script, *args, "--header", "x-api-key", more=more).returncode == 0
    assert space(script, *args, "--sigv4", "s3/x", more=more).returncode == 0
    assert sent(script, "POST /sandboxes/w/grants") == [
        {"name": "TOKEN", "hosts": ["a.example"], "value": VALUE},
        {"name": "TOKEN", "hosts": ["a.example"], "value": VALUE,
         "inject": {"kind": "header", "name": "x-api-key", "template": "{}"}},
        {"name": "TOKEN", "hosts": ["a.example"], "value": {"accessKeyId": "AK", "secretAccessKey": "hunter2"},
         "inject": {"kind": "sigv4", "service": "s3", "region": "x"}},
    ]  # fmt: skip
    refused(space(script, *args), "the variable TOKEN is not set: export the value of TOKEN in it")
    refused(space(script, "grant", "add", "w", "TOKEN", "--env", more=more), "say which hosts may get the value of TOKEN")
    refused(space(script, "grant", "add", "w", "TOKEN", "--basic", "u"), "is said by 'space secret set'")
    assert len(script.calls) == 3


def test_grants_are_listed_safely_and_reasons_told(script):
    listed = [
        {**GRANT, "used": 3, "uses": 100, "usedBytes": 2500, "lastUse": "2026-01-01T00:00:00Z", "expiresAt": "2999-01-01T00:00:00Z"},
        {**GRANT, "name": "DOWN", "state": "unavailable", "reason": "no answer " + HOSTILE, "canary": True},
        {"name": HOSTILE, "kind": HOSTILE, "hosts": [HOSTILE], "state": HOSTILE, "used": "x", "lastUse": HOSTILE, "alarmed": HOSTILE}, 7,
        {**GRANT, "canary": True, "alarmed": "2026-01-01T00:00:00Z"},
    ]  # fmt: skip
    script.on("GET /sandboxes/w/grants")(lambda r: r.json(200, listed))
    done = space(script, "grant", "ls", "w")
    rows = [re.split(r"  +", line.rstrip()) for line in done.stdout.decode().splitlines()]
    assert rows[0] == ["NAME", "KIND", "HOSTS", "STATE", "USES", "BYTES", "LAST USE", "EXPIRES"]
    assert rows[1][:6] == ["TOKEN", "bearer", "a.example", "good", "3/100", "2.5 kB"]
    assert all(re.fullmatch(r"\d+d", cell) for cell in rows[1][6:])
    assert rows[2] == ["DOWN", "bearer", "a.example", "unavailable (canary)", "0", "0 B", "-", "-"]
    assert rows[3][:4] == [SHOWN] * 4 and rows[3][4] == "-" and len(rows) == 6
    assert re.fullmatch(r"good, ALARM \d+d ago", rows[5][3])
    assert "\x1b" not in done.stdout.decode()
    assert done.stderr.decode() == "space: DOWN: no answer " + SHOWN + "\n"
    done = space(script, "grant", "ls", "--json", "w")
    assert (json.loads(done.stdout), done.stderr) == (listed, b"")


def test_revoke_reports_each(script):
    script.on("DELETE /sandboxes/w/grants/A")(lambda r: r.raw(204, b""))
    script.on("DELETE /sandboxes/w/grants/B")(lambda r: r.json(404, {"code": 404, "message": "w has no grant B"}))
    done = space(script, "grant", "revoke", "w", "B", "A")
    assert (done.returncode, done.stdout, done.stderr) == (125, b"", b"space: w has no grant B\n")
    assert script.keys() == ["DELETE /sandboxes/w/grants/B", "DELETE /sandboxes/w/grants/A"]


@pytest.mark.parametrize(
    "args, text",
    [
        ([], "say 'grant add SANDBOX NAME'"),
        (["add", "w"], "say 'grant add SANDBOX NAME'"),
        (["add", "w", "TOKEN=hunter2"], "a value is never given on the command line"),
        (["add", "w", "TOKEN", "hunter2"], "say 'grant add SANDBOX NAME'"),
        (["add", "w", "TOKEN", "--ttl", "x"], "--ttl takes a time"),
        (["add", "w", "TOKEN", "--canary"], "unknown flag --canary"),
        (["ls"], "say 'grant add SANDBOX NAME'"),
        (["ls", "w", "x"], "say 'grant add SANDBOX NAME'"),
        (["ls", "w", "--ttl", "5"], "that flag is for 'grant add'"),
        (["ls", "w", "--env"], "that flag is for 'grant add'"),
        (["revoke", "w"], "say 'grant add SANDBOX NAME'"),
        (["revoke", "w", "K=hunter2"], "a value is never given on the command line"),
        (["revoke", "--json", "w", "K"], "--json is for 'grant add' and 'grant ls'"),
    ],
)
def test_wrong_use_of_grant_is_one_line(script, args, text):
    refused(space(script, "grant", *args), text, "grant")
    assert script.keys() == []


# Whatever spaced says


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 502, 503])
@pytest.mark.parametrize(
    "key, args",
    [
        ("PUT /secrets/TOKEN", ["secret", "set", "TOKEN", "--host", "a.example"]),
        ("GET /secrets", ["secret", "ls"]),
        ("GET /secrets/TOKEN", ["secret", "show", "TOKEN"]),
        ("DELETE /secrets/TOKEN", ["secret", "rm", "TOKEN"]),
        ("POST /secrets/TOKEN/test", ["secret", "test", "TOKEN"]),
        ("POST /sandboxes/w/grants", ["grant", "add", "w", "TOKEN"]),
        ("GET /sandboxes/w/grants", ["grant", "ls", "w"]),
        ("DELETE /sandboxes/w/grants/TOKEN", ["grant", "revoke", "w", "TOKEN"]),
    ],
)
def test_refusal_is_shown_as_it_is_and_safe(script, key, args, status):
    script.on(key)(lambda r: r.json(status, {"code": status, "message": "TOKEN is no good" + HOSTILE}))
    done = space(script, *args, input=VALUE.encode())
    assert (done.returncode, done.stdout, done.stderr.decode()) == (125, b"", "space: TOKEN is no good%s\n" % SHOWN)


@pytest.mark.parametrize("garbage", [b"[", b"3", b"{}", b'{"variables":[]}', b"[[]]", b'[{"name":{}}]', b"\xff", b""])
@pytest.mark.parametrize(
    "key, args",
    [
        ("GET /secrets", ["secret", "ls"]),
        ("GET /secrets/TOKEN", ["secret", "show", "TOKEN"]),
        ("POST /secrets/TOKEN/test", ["secret", "test", "TOKEN"]),
        ("POST /sandboxes/w/grants", ["grant", "add", "w", "TOKEN"]),
        ("GET /sandboxes/w/grants", ["grant", "ls", "w"]),
    ],
)
def test_garbage_in_an_answer_does_no_harm(script, key, args, garbage):
    script.on(key)(lambda r: r.raw(200, garbage, "application/json"))
    done = space(script, *args)
    assert done.returncode in (0, 1, 125)
    if done.returncode == 125:
        assert done.stderr.startswith(b"space: ") and done.stderr.count(b"\n") == 1


# Runs


def test_run_names_a_stored_credential(script):
    run_answer(script, lambda r: r.exited())
    done = space(script, "run", "--secret", "TOKEN", "--secret=OURS@a.example", "x", more={"OURS": VALUE})
    assert (done.returncode, done.stderr) == (0, b"")
    assert sent(script, "POST /run")[0]["secrets"] == [
        {"name": "TOKEN", "stored": "TOKEN"},
        {"name": "OURS", "hosts": ["a.example"], "value": VALUE},
    ]
    refused(space(script, "run", "--secret", "TOKEN=hunter2", "x"), "never the value itself", "run")
    refused(space(script, "run", "--secret", "hunter2@", "x"), "never the value itself", "run")
    refused(space(script, "run", "--learn", "/x", "--secret", "TOKEN", "x"), "--learn excludes", "run")
    assert len(script.calls) == 1


POLICY = """
egress:
  - host: a.example
credentials:
  - {name: OURS, hosts: [a.example]}
  - {name: RENAMED, hosts: [b.example], source: {env: OURS_TOO}}
  - {name: KEYS, hosts: [c.example], inject: {kind: sigv4, service: s3, region: x}, source: {file: keys/aws}}
  - {name: MTLS, hosts: [d.example], inject: certificate, source: {file: %s}}
  - {name: STORED, source: {stored: STORED}}
  - {name: ASKED, hosts: [e.example], source: {command: [/bin/x]}}
"""


def policy(tmp_path, text):
    (tmp_path / "keys").mkdir(exist_ok=True)
    (tmp_path / "keys" / "aws").write_text(json.dumps(AWS))
    (tmp_path / "pem").write_text(CERTIFICATE + KEY)
    (tmp_path / "p.yaml").write_text(text)
    return str(tmp_path / "p.yaml")


def test_values_for_a_policy_go_beside_it(script, tmp_path):
    run_answer(script, lambda r: r.exited())
    text = POLICY % (tmp_path / "pem")
    path = policy(tmp_path, text)
    done = space(script, "run", "--policy", path, "x", more={"OURS": VALUE, "OURS_TOO": "two"})
    assert (done.returncode, done.stderr) == (0, b"")
    body = sent(script, "POST /run")[0]
    assert body["values"] == {
        "OURS": VALUE, "RENAMED": "two", "KEYS": AWS, "MTLS": {"certificate": CERTIFICATE, "key": KEY},
    }  # fmt: skip
    assert body["policy"] == {"name": path, "text": text}
    # From where the file lies, not from where we are.
    done = space(script, "run", "--policy", "p.yaml", "x", more={"OURS": VALUE, "OURS_TOO": "two"}, cwd=tmp_path)
    assert done.returncode == 0 and sent(script, "POST /run")[1]["values"]["KEYS"] == AWS


@pytest.mark.parametrize(
    "credentials, text",
    [
        ("[{name: CLI_UNSET, hosts: [a]}]", "p.yaml: the variable CLI_UNSET is not set: export the value of CLI_UNSET in it"),
        ("[{name: T, hosts: [a], source: {env: CLI_UNSET}}]", "the variable CLI_UNSET is not set: export the value of T in it"),
        ("[{name: T, hosts: [a], source: {file: nope}}]", "cannot read the file for T's value"),
        ("[{name: T, hosts: [a], inject: certificate, source: {file: keys/aws}}]", "the value of T is to be PEM"),
        ("[{name: BAD, hosts: [a]}]", "the value of BAD holds a line break"),
    ],
)
def test_value_that_a_policy_misses_is_told_before_anything_runs(script, tmp_path, credentials, text):
    path = policy(tmp_path, "credentials: %s\n" % credentials)
    refused(space(script, "run", "--policy", path, "x", more={"BAD": "hunter2\nx"}), text)
    assert script.keys() == []


@pytest.mark.parametrize(
    "credentials", ["3", "[3]", "{}", "[{}]", "[{name: 3}]", "[{name: 'a b'}]", "[{name: T, source: 3}]", "[{name: T, source: {file: 3}}]", "[", "[{name: T, source: {value: true}}]"]
)
def test_wrong_credentials_of_a_policy_are_spaceds_to_refuse(script, tmp_path, credentials):
    script.on("POST /run")(lambda r: r.json(400, {"code": 400, "message": "p.yaml:1:1: credentials: no"}))
    path = policy(tmp_path, "credentials: %s\n" % credentials)
    refused(space(script, "run", "--policy", path, "x", more={"T": VALUE}), "p.yaml:1:1: credentials: no")
    body = sent(script, "POST /run")[0]
    assert body["policy"]["name"] == path and set(body.get("values", {})) <= {"T"}


def test_other_policies_are_sent_as_before(script, tmp_path):
    run_answer(script, lambda r: r.exited())
    path = policy(tmp_path, "egress: [{host: a.example}]\n")
    assert space(script, "run", "--policy", path, "x").returncode == 0
    assert "values" not in sent(script, "POST /run")[0]


# Resume and fork


BOX = {"sandboxID": "sb1", "name": "w", "state": "paused", "image": "base", "cpus": 1, "memoryMB": 512, "command": ["x"]}
MIXED = [
    {"name": "STORED", "hosts": ["a.example"], "stored": "STORED"},
    {"name": "OURS", "hosts": ["b.example"], "state": "good"},
    {"name": "GONE", "hosts": ["c.example"], "state": "revoked"},
    {"name": "OVER", "hosts": ["d.example"], "state": "expired"},
    {"name": "SPENT", "hosts": ["e.example"], "state": "used up"},
]


def shown(script, secrets, **more):
    script.on("GET /sandboxes/w")(lambda r: r.json(200, {**BOX, "secrets": secrets, **more}))
    script.on("POST /sandboxes/w/resume")(lambda r: r.json(200, {**BOX, "state": "running"}))
    script.on("POST /sandboxes/w/fork")(lambda r: r.json(201, {"stoppedMs": 1, "sandboxes": [{"name": "c"}]}))


def test_resume_and_fork_give_no_value_for_what_the_node_has_or_what_ended(script):
    shown(script, MIXED)
    ok(space(script, "resume", "w", more={"OURS": VALUE}))
    ok(space(script, "resume", "w", "--secret", "OURS", more={"OURS": VALUE}))
    ok(space(script, "resume", "w", "--secret", "STORED"))
    assert sent(script, "POST /sandboxes/w/resume") == [
        {"secrets": [{"name": "OURS", "value": VALUE}], "withoutSecrets": False},
        {"secrets": [{"name": "OURS", "value": VALUE}], "withoutSecrets": False},
        {"secrets": [], "withoutSecrets": True},
    ]
    assert space(script, "fork", "--grants", "-q", "w", more={"OURS": VALUE}).returncode == 0
    assert sent(script, "POST /sandboxes/w/fork")[0]["secrets"] == [{"name": "OURS", "value": VALUE}]
    refused(space(script, "resume", "w"), "'export OURS=...'")
    shown(script, MIXED[:1])
    ok(space(script, "resume", "w"))
    assert sent(script, "POST /sandboxes/w/resume")[3] == {"secrets": [], "withoutSecrets": False}


def test_resume_gives_each_kind_its_value(script):
    shown(script, [{"name": "KEYS", "hosts": ["a.example"], "kind": "sigv4"}])
    more = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "hunter2"}
    ok(space(script, "resume", "w", more=more))
    assert sent(script, "POST /sandboxes/w/resume")[0]["secrets"] == [
        {"name": "KEYS", "value": {"accessKeyId": "AK", "secretAccessKey": "hunter2"}}
    ]


# Help


def test_help_shows_a_newcomer_github_without_a_key_inside(script):
    listed = space(script, "help").stdout.decode()
    for verb in ("secret", "grant"):
        assert "\n  %-9s " % verb in listed
        text = space(script, verb, "--help").stdout.decode()
        assert text.startswith("usage: space %s " % verb)
        assert max(map(len, text.splitlines())) <= 132
    steps = [line.split("  #")[0].strip() for line in space(script, "secret", "--help").stdout.decode().splitlines() if line.startswith("  space secret set")]
    takes(script, "GITHUB_TOKEN")
    ok(space(script, *steps[0].split()[1:], input=VALUE.encode()))
    assert sent(script, "PUT /secrets/GITHUB_TOKEN")[0]["definition"]["hosts"] == ["api.github.com", "github.com"]
    # Every line of the examples is one that the program takes.
    for step in steps:
        words = [word.strip("'") for word in step.split("<")[0].split()[1:]]
        takes(script, words[2])
        value = json.dumps(AWS) if "--sigv4" in words else VALUE
        if "--file" not in words:
            ok(space(script, *words, input=value.encode()))


# The manual, against a real spaced


DOCS = pathlib.Path(__file__).parents[2] / "docs" / "credentials.md"


@pytest.fixture
def daemon():
    with tempfile.TemporaryDirectory(prefix="space-cli.") as root:
        d = Daemon(root)
        yield d
        d.stop()


def make(path, *openssl):
    subprocess.run(["openssl", *openssl], cwd=path, check=True, capture_output=True)


@pytest.fixture
def desk(tmp_path):
    """What the examples say that people have."""
    for name in ("key.txt", "token.txt", "password.txt"):
        (tmp_path / name).write_text(VALUE + "\n")
    make(tmp_path, "genrsa", "-out", "app.private-key.pem", "2048")
    for name in ("client", "intermediate"):
        make(tmp_path, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".pem")
    key = (tmp_path / "app.private-key.pem").read_text()
    (tmp_path / "service-account.json").write_text(json.dumps({**GOOGLE, "private_key": key}))
    return tmp_path


def test_every_example_of_the_manual_is_taken_as_it_stands(daemon, desk):
    """Blocks of shell as they are, but for what needs a microVM or a server; definitions by themselves."""
    text = DOCS.read_text()
    run = {**os.environ, "SPACE_RUN_DIR": str(daemon.run), "SPACE": str(SPACE), "LC_ALL": "C"}
    prologue = 'set -eu\nspace() { case "$1 ${2-}" in "secret set") "$SPACE" "$@";; esac; }\n'
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    shell = [block for kind, block in blocks if not kind and "space secret set" in block]
    for block in shell:
        done = subprocess.run(["bash", "-c", prologue + block], cwd=desk, env=run, input=VALUE.encode(), capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, b""), (block, done)
        assert not [line for line in done.stderr.splitlines() if b" is replaced;" not in line], done
    definitions = [block for kind, block in blocks if kind == "yaml" and "egress:" not in block]
    for i, block in enumerate(definitions):
        (desk / "d.yaml").write_text(re.sub(r"^name:.*\n", "", block))
        done = subprocess.run([SPACE, "secret", "set", "D%d" % i, "--file", "d.yaml"], cwd=desk, env=run, input=VALUE.encode(), capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b""), (block, done)
    assert (len(shell), len(definitions)) == (7, 2)
    listed = {one["name"]: one for one in json.loads(subprocess.run([SPACE, "secret", "ls", "--json"], env=run, capture_output=True, timeout=60).stdout)}
    assert {name: one["kind"] for name, one in listed.items() if one["kind"] != "bearer"} == {
        "ANTHROPIC_API_KEY": "header", "S3_KEY": "sigv4", "REGISTRY_LOGIN": "basic", "INTERNAL_CERT": "certificate", "D1": "sigv4",
    }  # fmt: skip
    assert listed["GITHUB_TOKEN"]["source"] == "oauth2" and not any("problem" in one for one in listed.values())
    shown = subprocess.run([SPACE, "secret", "show", "GITHUB_TOKEN"], env=run, capture_output=True, timeout=60)
    assert json.loads(shown.stdout)["source"]["oauth2"]["installation"] == 12345678
    assert VALUE not in subprocess.run([SPACE, "secret", "show", "D0"], env=run, capture_output=True, timeout=60).stdout.decode()


def test_names_of_nobody_are_told(daemon):
    run = {**os.environ, "SPACE_RUN_DIR": str(daemon.run)}
    for args in (["show", "NONE"], ["test", "NONE"], ["rm", "NONE"]):
        done = subprocess.run([SPACE, "secret", *args], env=run, capture_output=True, timeout=60)
        refused(done, "NONE")
        assert b"'space secret set'" in done.stderr
