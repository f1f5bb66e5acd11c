# SPDX-License-Identifier: Apache-2.0
"""The verbs of pausing, copying and templates against a scripted server: what they send, print and say when it fails. No VM."""
import json
import os
import signal
import subprocess
import threading

import pytest

from scripted import Script
from test_client import accept_input, popen, run_answer, space, wait_for


@pytest.fixture
def script():
    s = Script()
    yield s
    s.close()


BOX = {"sandboxID": "sb1", "name": "w", "state": "paused", "image": "base", "cpus": 1, "memoryMB": 512, "command": ["x"]}
SECRETS = [{"name": "CLI_A", "hosts": ["a.example"]}, {"name": "CLI_B", "hosts": ["b.example"]}]
VALUES = {"CLI_A": "alpha", "CLI_B": "beta"}


def shown(script, **members):
    """GET /sandboxes/w answers so."""
    script.on("GET /sandboxes/w")(lambda r: r.json(200, {**BOX, **members}))


def sent(script, key):
    return [json.loads(body) for body in script.bodies(key)]


def refuse(script, key, status, message):
    script.on(key)(lambda r: r.json(status, {"code": status, "message": message}))


# Pause


def test_pause_tells_how_to_go_on(script):
    script.on("POST /sandboxes/w/pause")(
        lambda r: r.json(200, {"sandboxID": "sb1", "name": "w", "stoppedMs": 31, "sizeBytes": 12345678})
    )
    done = space(script, "pause", "w")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"space: w is paused and takes 12.3 MB; 'space resume w' goes on\n"
    assert script.bodies("POST /sandboxes/w/pause") == [b""]
    assert space(script, "pause", "-q", "w").stderr == b""
    done = space(script, "pause", "-q", "--json", "w")
    assert json.loads(done.stdout)["stoppedMs"] == 31 and done.stdout.count(b"\n") == 1


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_each_sandbox_has_its_turn_and_its_error(script, verb):
    for name in ("a", "b", "c"):
        script.on("GET /sandboxes/" + name)(lambda r: r.json(200, BOX))
        script.on("POST /sandboxes/%s/%s" % (name, verb))(lambda r: r.json(200, BOX))
    refuse(script, "POST /sandboxes/b/" + verb, 409, "b is booting: try again when it runs")
    done = space(script, verb, *(["-q"] if verb == "pause" else []), "a", "b", "c")
    assert (done.returncode, done.stdout, done.stderr) == (125, b"", b"space: b is booting: try again when it runs\n")
    assert [k for k in script.keys() if k.startswith("POST")] == [
        "POST /sandboxes/%s/%s" % (name, verb) for name in ("a", "b", "c")
    ]


@pytest.mark.parametrize("status, message", [(404, "there is no sandbox w"), (507, "no room for w: free 600 MB below /var/lib/space")])
@pytest.mark.parametrize(
    "key, args",
    [
        ("POST /sandboxes/w/pause", ["pause", "w"]),
        ("POST /sandboxes/w/resume", ["resume", "w"]),
        ("POST /sandboxes/w/snapshot", ["snapshot", "w", "s"]),
        ("POST /sandboxes/w/fork", ["fork", "w"]),
        ("POST /templates", ["template", "build", "base"]),
        ("GET /templates", ["template", "ls"]),
        ("DELETE /templates/w", ["template", "rm", "w"]),
    ],
)
def test_refusal_is_shown_as_it_is(script, key, args, status, message):
    shown(script)
    refuse(script, key, status, message)
    done = space(script, *args)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (125, b"", "space: %s\n" % message)


@pytest.mark.parametrize("garbage", [b"[", b"3", b"[]", b"{}", b'{"sandboxes":{}}', b"\xff"])
@pytest.mark.parametrize(
    "key, args",
    [
        ("GET /sandboxes/w", ["resume", "w"]),
        ("POST /sandboxes/w/fork", ["fork", "w"]),
        ("GET /sandboxes/w", ["fork", "--grants", "w"]),
        ("GET /templates", ["template", "ls"]),
    ],
)
def test_garbage_in_an_answer_does_no_harm(script, key, args, garbage):
    shown(script)
    script.on("POST /sandboxes/w/resume")(lambda r: r.json(200, BOX))
    script.on("POST /sandboxes/w/fork")(lambda r: r.json(201, {"stoppedMs": 1, "sandboxes": []}))
    script.on(key)(lambda r: r.raw(200, garbage, "application/json"))
    done = space(script, *args)
    assert done.returncode in (0, 125)
    if done.returncode:
        assert done.stderr.startswith(b"space: spaced's answer cannot be read") and done.stderr.count(b"\n") == 1


# Resume, and the values that it needs


def resumes(script, **members):
    shown(script, **members)
    script.on("POST /sandboxes/w/resume")(lambda r: r.json(200, {**BOX, "state": "running"}))


def test_resume_without_secrets_is_silent(script):
    resumes(script)
    done = space(script, "resume", "w")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert sent(script, "POST /sandboxes/w/resume") == [{"secrets": [], "withoutSecrets": False}]
    assert json.loads(space(script, "resume", "--json", "w").stdout)["state"] == "running"


def test_resume_gives_all_values_from_our_environment(script):
    resumes(script, secrets=SECRETS)
    done = space(script, "resume", "w", more=VALUES)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert sent(script, "POST /sandboxes/w/resume") == [
        {"secrets": [{"name": "CLI_A", "value": "alpha"}, {"name": "CLI_B", "value": "beta"}], "withoutSecrets": False}
    ]


@pytest.mark.parametrize(
    "more, missing",
    [
        ({}, "CLI_A=... CLI_B=..."),
        ({"CLI_A": "alpha"}, "CLI_B=..."),
        ({"CLI_A": "", "CLI_B": "beta"}, "CLI_A=..."),
    ],
)
def test_resume_names_what_is_missing_and_the_way_out(script, more, missing):
    resumes(script, secrets=SECRETS)
    done = space(script, "resume", "w", more=more)
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.decode() == (
        "space: w needs its secrets' values again: 'export %s', or leave them out with --without-secrets\n" % missing
    )
    assert b"alpha" not in done.stderr and b"beta" not in done.stderr
    assert script.keys() == ["GET /sandboxes/w"]


def test_resume_can_leave_secrets_out(script):
    resumes(script, secrets=SECRETS)
    assert space(script, "resume", "--without-secrets", "w").returncode == 0
    assert space(script, "resume", "w", "--secret", "CLI_B", "--secret=CLI_B", more=VALUES).returncode == 0
    assert space(script, "resume", "w", "--secret", "CLI_B", "--secret", "CLI_A", more=VALUES).returncode == 0
    assert [(len(b["secrets"]), b["withoutSecrets"]) for b in sent(script, "POST /sandboxes/w/resume")] == [
        (0, True), (1, True), (2, False),
    ]  # fmt: skip
    assert sent(script, "POST /sandboxes/w/resume")[1]["secrets"] == [{"name": "CLI_B", "value": "beta"}]


def test_resume_refuses_a_secret_that_the_sandbox_has_not(script):
    resumes(script, secrets=SECRETS)
    done = space(script, "resume", "--secret", "CLI_C", "w", more={"CLI_C": "gamma"})
    assert (done.returncode, done.stderr) == (
        125, b"space: w has no secret CLI_C: 'space inspect w' shows what it has\n",
    )  # fmt: skip
    assert script.keys() == ["GET /sandboxes/w"]


def test_resume_of_one_that_runs_is_spaceds_to_refuse_and_needs_no_values(script):
    shown(script, state="running", secrets=SECRETS)
    refuse(script, "POST /sandboxes/w/resume", 409, "w is not paused: it runs")
    done = space(script, "resume", "w", more=VALUES)
    assert (done.returncode, done.stderr) == (125, b"space: w is not paused: it runs\n")
    assert sent(script, "POST /sandboxes/w/resume") == [{"secrets": [], "withoutSecrets": False}]


def test_value_that_was_typed_as_a_name_is_not_repeated(script):
    done = space(script, "resume", "--secret", "TOKEN=hunter2", "w")
    assert done.returncode == 125 and b"hunter2" not in done.stderr
    assert script.keys() == []


# Snapshot


def test_snapshot_tells_its_size_and_the_pause(script):
    script.on("POST /sandboxes/w/snapshot")(
        lambda r: r.json(201, {"name": "s", "stoppedMs": 4.26, "sizeBytes": 999})
    )
    done = space(script, "snapshot", "w", "s")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"space: snapshot s takes 999 B; w stood still for 4.3 ms\n"
    assert sent(script, "POST /sandboxes/w/snapshot") == [{"name": "s"}]
    done = space(script, "snapshot", "-q", "--json", "w", "s")
    assert (json.loads(done.stdout)["name"], done.stderr) == ("s", b"")


# Fork


def forks(script):
    @script.on("POST /sandboxes/w/fork")
    def answer(r):
        body = json.loads(r.body)
        names = body.get("names") or ["made-up-%d" % i for i in range(body["count"])]
        r.json(201, {"stoppedMs": 23, "sandboxes": [{**BOX, "name": name, "state": "running"} for name in names]})


@pytest.mark.parametrize(
    "args, want",
    [
        ([], {"count": 1, "grants": False}),
        (["-n", "3"], {"count": 3, "grants": False}),
        (["--name", "c"], {"count": 1, "grants": False, "names": ["c"]}),
        (["-n1", "--name", "c"], {"count": 1, "grants": False, "names": ["c"]}),
        (["-n", "3", "--name", "c"], {"count": 3, "grants": False, "names": ["c-1", "c-2", "c-3"]}),
        (["--name", "a,b", "--name=c"], {"count": 3, "grants": False, "names": ["a", "b", "c"]}),
        (["-n", "2", "--name", "a,b"], {"count": 2, "grants": False, "names": ["a", "b"]}),
    ],
)
def test_fork_prints_the_childrens_names(script, args, want):
    forks(script)
    done = space(script, "fork", *args, "w")
    names = want.get("names") or ["made-up-%d" % i for i in range(want["count"])]
    assert (done.returncode, done.stdout.decode().split()) == (0, names)
    assert done.stderr == b"space: w stood still for 23 ms\n"
    assert sent(script, "POST /sandboxes/w/fork") == [want]
    assert script.keys() == ["POST /sandboxes/w/fork"]


def test_fork_quiet_and_json(script):
    forks(script)
    assert space(script, "fork", "-q", "w").stderr == b""
    done = space(script, "fork", "--json", "-n", "2", "w")
    assert len(json.loads(done.stdout)["sandboxes"]) == 2 and done.stdout.count(b"\n") == 1


def test_fork_shows_hostile_names_safely(script):
    script.on("POST /sandboxes/w/fork")(
        lambda r: r.json(201, {"stoppedMs": 6, "sandboxes": [{"name": "\x1b[31m\n"}, {"sandboxID": "sb2"}, {}, 7]})
    )
    done = space(script, "fork", "-n", "4", "w")
    assert done.stdout == b"\\x1b[31m\\n\nsb2\n-\n-\n"
    assert done.stderr == b"space: w stood still for 6 ms\n"


def test_fork_with_grants_reads_the_values(script):
    forks(script)
    shown(script, state="running", secrets=SECRETS)
    assert space(script, "fork", "-n", "2", "--grants", "w", more=VALUES).returncode == 0
    assert sent(script, "POST /sandboxes/w/fork") == [
        {
            "count": 2, "grants": True,
            "secrets": [{"name": "CLI_A", "value": "alpha"}, {"name": "CLI_B", "value": "beta"}],
        }
    ]  # fmt: skip
    done = space(script, "fork", "--grants", "w", more={"CLI_B": "beta"})
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr == (
        b"space: w needs its secrets' values again: 'export CLI_A=...', or fork it without --grants\n"
    )
    assert len(script.bodies("POST /sandboxes/w/fork")) == 1


def test_fork_without_grants_reads_no_values(script):
    forks(script)
    shown(script, state="running", secrets=SECRETS)
    assert space(script, "fork", "w", more=VALUES).returncode == 0
    assert b"alpha" not in b"".join(c[2] for c in script.calls)


# Templates


def test_template_build_prints_the_name(script):
    template = {"name": "base-2c-1024m", "kind": "template", "image": "base", "cpus": 2, "memoryMB": 1024}
    script.on("POST /templates")(lambda r: r.json(201, template))
    done = space(script, "template", "build", "base", "--cpus", "2", "--memory=1G")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"base-2c-1024m\n", b"")
    script.on("POST /templates")(lambda r: r.json(200, template))
    assert json.loads(space(script, "template", "build", "--json", "base").stdout) == template
    assert sent(script, "POST /templates") == [
        {"image": "base", "cpus": 2, "memoryMB": 1024}, {"image": "base", "cpus": 1, "memoryMB": 512},
    ]  # fmt: skip


def test_template_ls_shows_all_safely(script):
    templates = [
        {"name": "base-1c-512m", "kind": "template", "image": "base", "cpus": 1, "memoryMB": 512, "sizeBytes": 81234567,
         "madeAt": "2026-01-01T00:00:00.000Z", "usedAt": "2026-01-01T00:00:00.000Z", "stale": True},
        {"name": "s", "kind": "snapshot", "image": "\x1b]0;x\x07", "cpus": 8, "memoryMB": 65536, "sizeBytes": 5,
         "madeAt": "2026-01-02T00:00:00.000Z", "usedAt": None, "stale": False},
        {"name": "odd", "sizeBytes": "x", "madeAt": 3, "stale": True, "problem": "memory: its size is wrong"},
        7,
    ]  # fmt: skip
    script.on("GET /templates")(lambda r: r.json(200, templates))
    done = space(script, "template", "ls")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "KIND", "IMAGE", "CPUS", "MEMORY", "SIZE", "AGE", "USED", "STATE"]
    assert lines[1].split()[:7] == ["base-1c-512m", "template", "base", "1", "512M", "81.2", "MB"]
    assert lines[1].split()[-1] == "stale" and lines[2].split()[-1] == "ready"
    assert lines[3].split()[-1] == "damaged"
    assert "\x1b" not in done.stdout.decode() and "\\x1b]0;x\\x07" in lines[2]
    assert lines[1].index("template") == lines[0].index("KIND")
    assert len(lines) == 5
    assert json.loads(space(script, "template", "ls", "--json").stdout) == templates


def test_template_rm_reports_each_and_force_forgives(script):
    script.on("DELETE /templates/a")(lambda r: r.raw(204, b""))
    script.on("DELETE /templates/c%20d")(lambda r: r.raw(204, b""))
    refuse(script, "DELETE /templates/b", 404, "there is no template b")
    done = space(script, "template", "rm", "b", "a", "c d")
    assert (done.returncode, done.stderr) == (125, b"space: there is no template b\n")
    assert script.keys() == ["DELETE /templates/b", "DELETE /templates/a", "DELETE /templates/c%20d"]
    assert space(script, "template", "rm", "-f", "b").returncode == 0
    refuse(script, "DELETE /templates/b", 409, "b is being made")
    assert space(script, "template", "rm", "-f", "b").returncode == 125


# A run whose sandbox is paused


def paused_run(script):
    @script.on("POST /run")
    def answer(r):
        r.stream()
        r.envelope({"event": {"sandbox": {"sandboxID": "sb1", "name": "w"}}})
        r.start()
        r.out(b"so far\n")
        r.finish("paused", "")


def test_run_that_was_paused_by_its_timeout_tells_how_to_go_on(script):
    paused_run(script)
    done = space(script, "run", "--timeout", "5", "--on-timeout", "pause", "x")
    assert (done.returncode, done.stdout) == (124, b"so far\n")
    assert done.stderr == b"space: w is paused; 'space resume w' goes on\n"
    assert space(script, "run", "-q", "x").stderr == b""
    assert not any(key.startswith("DELETE") for key in script.keys())


def test_exec_that_was_paused_names_what_we_called_it(script):
    @script.on("POST /process.Process/Start")
    def answer(r):
        r.stream()
        r.start()
        r.finish("paused", "whatever")

    done = space(script, "exec", "w", "x")
    assert (done.returncode, done.stderr) == (124, b"space: w is paused; 'space resume w' goes on\n")


def test_logs_of_one_that_is_paused_end_well(script):
    @script.on("GET /sandboxes/w/logs")
    def answer(r):
        r.stream()
        r.out(b"so far\n")
        r.finish("paused", "")

    done = space(script, "logs", "-f", "w")
    assert (done.returncode, done.stdout) == (0, b"so far\n")
    assert done.stderr == b"space: w is paused; 'space resume w' goes on\n"


@pytest.mark.parametrize(
    "key, args",
    [
        ("POST /process.Process/Start", ["exec", "w", "x"]),
        ("GET /files", ["cp", "w:/x", "-"]),
        ("POST /files", ["cp", "-", "w:/x"]),
    ],
)
def test_calls_to_a_paused_sandbox_go_through_and_show_a_refusal(script, key, args):
    message = "w is paused and has secrets: 'space resume w' goes on"
    shown(script, secrets=SECRETS)
    refuse(script, key, 409, message)
    done = space(script, *args)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (125, b"", "space: %s\n" % message)
    assert key in script.keys()


def test_input_waits_while_the_sandbox_is_paused(script):
    got, finish = [], threading.Event()
    accept_input(script, got, finish)
    take, close = script.answers["POST /process.Process/SendInput"], script.answers["POST /process.Process/CloseStdin"]
    refused = {"input": 2, "close": 1}

    def sometimes(kind, answer):
        def either(r):
            if refused[kind]:
                refused[kind] -= 1
                r.json(409, {"code": 409, "message": "w is paused"})
            else:
                answer(r)

        return either

    script.answers["POST /process.Process/SendInput"] = sometimes("input", take)
    script.answers["POST /process.Process/CloseStdin"] = sometimes("close", close)
    run_answer(script, lambda r: finish.wait(30), lambda r: r.exited())
    data = os.urandom(150_000)
    done = space(script, "run", "-i", "x", input=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"".join(got) == data
    assert refused == {"input": 0, "close": 0}


def test_run_that_ends_while_its_input_waits_ends(script):
    refuse(script, "POST /process.Process/SendInput", 409, "w is paused")
    run_answer(script, lambda r: wait_for(script, "POST /process.Process/SendInput"), lambda r: r.exited(4))
    assert space(script, "run", "-i", "x", input=b"x", timeout=20).returncode == 4


def test_signal_to_a_paused_sandbox_is_answered_with_what_to_do(script):
    told, deleted = threading.Event(), threading.Event()

    @script.on("POST /process.Process/SendSignal")
    def send(r):
        r.json(409, {"code": 409, "message": "w is paused: 'space resume w' goes on"})
        told.set()

    @script.on("DELETE /sandboxes/sb1")
    def delete(r):
        deleted.set()
        r.raw(204, b"")

    run_answer(script, lambda r: r.out(b"up\n"), lambda r: deleted.wait(30), lambda r: r.gone())
    process = popen(script, "run", "x", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == b"space: w is paused: 'space resume w' goes on\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert deleted.is_set()
    process.stdout.close()
    process.stderr.close()


# Lists


def test_ls_tells_since_when_a_sandbox_is_paused(script):
    boxes = [
        {**BOX, "pausedAt": "2026-01-01T00:00:00.000Z", "startedAt": "2026-01-01T00:00:00.000Z"},
        {**BOX, "state": "running", "pausedAt": "2026-01-01T00:00:00.000Z"},
        BOX,
    ]
    script.on("GET /sandboxes")(lambda r: r.json(200, boxes))
    rows = space(script, "ls").stdout.decode().splitlines()[1:]
    assert "paused (" in rows[0] and "d)" in rows[0]
    assert "running " in rows[1] and "(" not in rows[1]
    assert "paused " in rows[2] and "(" not in rows[2]


def test_help_lists_the_verbs(script):
    listed = space(script, "help").stdout.decode()
    for verb in ("pause", "resume", "snapshot", "fork", "template"):
        assert "\n  %-9s " % verb in listed
        done = space(script, verb, "--help")
        assert done.returncode == 0 and done.stdout.startswith(b"usage: space %s " % verb.encode())
