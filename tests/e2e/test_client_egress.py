# SPDX-License-Identifier: Apache-2.0
"""space logs --egress, run --learn and policy set, show, learned, against a scripted server. No VM."""
import json
import subprocess

import pytest

from test_client import popen, run_answer, space

TIME = "2026-01-02T03:04:05.678Z"
RECORDS = [
    {"kind": "egress.dns", "name": "evil.test", "qtype": "A", "answer": "NXDOMAIN"},
    {"kind": "egress.request", "id": 1, "scheme": "https", "host": "api.test", "port": 443, "method": "GET", "path": "/u",
     "rule": "https://api.test:443", "credential": "TOKEN"},
    {"kind": "egress.deny", "scheme": "http", "host": "api.test", "port": 8080, "method": "POST", "path": "/\u202e",
     "reason": "no rule allows it", "rule": "default deny"},
    {"kind": "egress.response", "id": 1, "status": 200, "bytes_up": 3, "bytes_down": 45, "ms": 6},
    {"kind": "egress.request", "id": 2, "scheme": "tcp", "host": "2001:db8::1", "port": 5432, "rule": "r", "credential": None},
]  # fmt: skip


@pytest.fixture
def script():
    from scripted import Script

    s = Script()
    yield s
    s.close()


def egress(r, records, end=lambda r: r.finish()):
    r.stream()
    for seq, record in enumerate(records):
        r.envelope({"event": {"egress": {"seq": seq, "time": TIME, "sandbox": "sb1", **record}}})
    end(r)


def test_each_decision_is_one_line(script):
    script.answers["GET /sandboxes/w/egress"] = lambda r: egress(r, RECORDS)
    done = space(script, "logs", "--egress", "w")
    assert done.returncode == 0, done
    assert done.stdout.decode().splitlines() == [
        TIME + "  DENY   DNS evil.test A  NXDOMAIN",
        TIME + "  DENY   POST http://api.test:8080/\\u{202e}  no rule allows it  by default deny",
        TIME + "  ALLOW  GET https://api.test/u  200  up 3 B  down 45 B  6 ms  by https://api.test:443  with TOKEN",
        TIME + "  ALLOW  tcp://[2001:db8::1]:5432  by r",
    ]


def test_who_follows_sees_a_request_when_it_is_let_out(script):
    import threading

    go = threading.Event()

    def slowly(r):
        def end(r):
            go.wait(30)
            r.finish()

        assert r.path.endswith("?follow=true")
        egress(r, RECORDS[1:2] + RECORDS[3:4], end)

    script.answers["GET /sandboxes/w/egress"] = slowly
    child = popen(script, "logs", "-f", "--egress", "w", stdout=subprocess.PIPE)
    assert child.stdout.readline().decode() == TIME + "  ALLOW  GET https://api.test/u  by https://api.test:443  with TOKEN\n"
    assert child.stdout.readline().decode() == TIME + "  END    GET https://api.test/u  200  up 3 B  down 45 B  6 ms\n"
    go.set()
    assert child.wait(30) == 0


def test_records_come_as_they_are(script):
    script.answers["GET /sandboxes/w/egress"] = lambda r: egress(r, RECORDS)
    done = space(script, "logs", "--egress", "--json", "w")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [{k: v for k, v in line.items() if k not in ("seq", "time", "sandbox")} for line in lines] == RECORDS


def test_decisions_of_nobody_are_an_error(script):
    script.answers["GET /sandboxes/w/egress"] = lambda r: egress(r, [], lambda r: r.finish("not_found", "no such sandbox"))
    done = space(script, "logs", "--egress", "w")
    assert (done.returncode, done.stdout, done.stderr) == (125, b"", b"space: no such sandbox\n")
    done = space(script, "logs", "--egress", "--tail", "3", "w")
    assert done.returncode == 125 and b"exclude each other" in done.stderr


def test_learning_is_loud_and_leaves_a_file(script, tmp_path):
    run_answer(script, lambda r: r.exited(3))
    script.answers["GET /sandboxes/sb1/learned"] = lambda r: r.json(200, {"text": "egress: []\n", "rules": 0})
    path = tmp_path / "p.yaml"
    path.write_text("what was there before, and longer than what comes")
    done = space(script, "run", "--learn", path, "--", "true")
    assert done.returncode == 3, done
    assert path.read_text() == "egress: []\n"
    assert b"WARNING" in done.stderr and b"every public host" in done.stderr
    body = json.loads(next(body for key, _, body, *_ in script.calls if key == "POST /run"))
    assert body["learn"] is True


def test_learning_that_leaves_nothing_fails(script, tmp_path):
    run_answer(script, lambda r: r.exited(0))
    done = space(script, "run", "--learn", tmp_path / "p.yaml", "--", "true")
    assert done.returncode == 125 and not (tmp_path / "p.yaml").exists()


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--learn", "/nonexistent/p.yaml"], b"cannot write /nonexistent/p.yaml"),
        (["--learn", "p.yaml", "--no-network"], b"--learn excludes"),
        (["--learn", "p.yaml", "--secret", "T@a.example"], b"--learn excludes"),
    ],
)
def test_learning_has_conditions(script, tmp_path, flags, says):
    done = space(script, "run", *flags, "--", "true", more={"T": "v"}, cwd=tmp_path)
    assert done.returncode == 125 and says in done.stderr and b"WARNING" not in done.stderr, done
    assert not script.calls and not list(tmp_path.iterdir())


def test_detached_learning_says_how_to_get_at_it(script, tmp_path):
    script.answers["POST /run"] = lambda r: r.json(201, {"sandboxID": "sb1", "name": "sb1", "pid": 7})
    done = space(script, "run", "-d", "--learn", tmp_path / "p.yaml", "--", "true")
    assert done.returncode == 0 and done.stdout == b"sb1\n"
    assert b"space policy learned" in done.stderr and not (tmp_path / "p.yaml").exists()


def test_a_policy_is_set_shown_and_learned(script, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("egress: []\n")
    script.answers["PUT /sandboxes/w/policy"] = lambda r: r.json(200, {"applied": "now"})
    done = space(script, "policy", "set", "w", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert json.loads(script.calls[-1][2]) == {"policy": {"name": str(path), "text": "egress: []\n"}}
    script.answers["PUT /sandboxes/w/policy"] = lambda r: r.json(200, {"applied": "resume"})
    assert b"when it is resumed" in space(script, "policy", "set", "w", path).stderr
    script.answers["PUT /sandboxes/w/policy"] = lambda r: r.json(400, {"code": 400, "message": "p.yaml:1:1: no"})
    done = space(script, "policy", "set", "w", path)
    assert (done.returncode, done.stderr) == (125, b"space: p.yaml:1:1: no\n")

    script.answers["GET /sandboxes/w/policy"] = lambda r: r.json(200, {"name": "w", "policy": {"egress": []}})
    assert json.loads(space(script, "policy", "show", "w").stdout) == {"egress": []}
    script.answers["GET /sandboxes/w/learned"] = lambda r: r.json(200, {"text": "egress: []\n"})
    assert space(script, "policy", "learned", "w").stdout == b"egress: []\n"
