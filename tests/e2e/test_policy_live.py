# SPDX-License-Identifier: Apache-2.0
"""Policies that change under a running sandbox, what is told of decisions, and policies that are learned; in microVMs."""
import json
import os
import signal
import subprocess
import time

import pytest

from node import end
from service import Service


@pytest.fixture(scope="module")
def service():
    s = Service()
    yield s
    s.close()


@pytest.fixture(scope="module")
def files(service, tmp_path_factory):
    d = tmp_path_factory.mktemp("policies")
    (d / "open.yaml").write_text(service.policy())
    (d / "shut.yaml").write_text("egress: []\n")
    (d / "get.yaml").write_text(service.policy().replace("    ports:", "    methods: [GET]\n    ports:"))
    (d / "bad.yaml").write_text("egress:\n  - hots: x\n")
    return d


def curl(node, name, *args):
    """The status, or 000 when there is none."""
    done = node.space("exec", name, "--", "curl", "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", *args)
    return done.stdout.decode()


def records(node, name, kind):
    lines = node.ok("audit", "show", "--json", name).splitlines()
    return [r for r in map(json.loads, lines) if r["kind"].startswith(kind)]


@pytest.fixture(scope="module")
def box(node, files):
    name = "policy-live"
    node.ok("run", "-d", "--name", name, "--policy", files / "open.yaml", "--", "sleep", "100000")
    yield name
    node.space("rm", "-f", name)


def assert_told(node, box):
    """What is told of all that agrees with the audit log."""
    told = [json.loads(line) for line in node.ok("logs", "--egress", "--json", box).splitlines()]
    assert told == records(node, box, "egress.") and len(told) > 6
    lines = node.ok("logs", "--egress", box)
    assert "  ALLOW  GET https://api.test.internal:" in lines and "  200  up " in lines
    assert "  DENY   POST https://api.test.internal:" in lines
    assert "  DENY   DNS api.test.internal A  NXDOMAIN" in lines


def test_a_new_policy_holds_at_once(node, service, files, box):
    assert curl(node, box, service.url + "/a") == "200"
    node.ok("policy", "set", box, files / "get.yaml")
    assert curl(node, box, service.url + "/b") == "200"
    assert curl(node, box, "-d", "x", service.url + "/c") == "403"
    node.ok("policy", "set", box, files / "shut.yaml")
    assert curl(node, box, service.url + "/d") == "000"
    assert json.loads(node.ok("policy", "show", box))["egress"] == []

    done = node.space("policy", "set", box, files / "bad.yaml")
    assert done.returncode == 125 and b"bad.yaml:2:" in done.stderr and b"hots" in done.stderr
    assert curl(node, box, service.url + "/e") == "000"
    node.ok("policy", "set", box, files / "open.yaml")
    assert curl(node, box, service.url + "/f") == "200"
    assert [len(r["policy"]["egress"]) for r in records(node, box, "policy.set")] == [1, 0, 1]
    assert_told(node, box)


def test_decisions_are_told_as_they_happen(node, service, box):
    child = node.popen("logs", "-f", "--egress", "--json", box, stdout=subprocess.PIPE)
    try:
        assert curl(node, box, service.url + "/live/only") == "200"
        for line in child.stdout:
            record = json.loads(line)
            if record.get("path") == "/live/only":
                break
        assert record["kind"] == "egress.request" and record["sandbox"]
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_one_that_rests_gets_its_policy_when_it_goes_on(node, service, files, box):
    node.ok("policy", "set", box, files / "open.yaml")
    node.ok("pause", box)
    done = node.space("policy", "set", box, files / "shut.yaml")
    assert done.returncode == 0 and b"when it is resumed" in done.stderr
    node.ok("resume", box)
    assert curl(node, box, service.url + "/g") == "000"
    node.ok("policy", "set", box, files / "open.yaml")
    assert curl(node, box, service.url + "/h") == "200"


def test_secrets_must_still_fit(node, service, files):
    node.ok(
        "run", "-d", "--name", "with-secret", "--policy", files / "open.yaml", "--secret", "T@" + service.host, "--", "sleep", "1000",
        env={"T": "v"},
    )  # fmt: skip
    done = node.space("policy", "set", "with-secret", files / "shut.yaml")
    assert done.returncode == 125 and b"T" in done.stderr and service.host.encode() in done.stderr
    node.ok("policy", "set", "with-secret", files / "get.yaml")
    answer = node.ok("exec", "with-secret", "--", "curl", "-s", service.url + "/x")
    assert json.loads(answer)["authorized"]
    node.ok("rm", "-f", "with-secret")


def test_no_network_and_no_life_are_refused(node, files):
    node.ok("run", "-d", "--name", "netless", "--no-network", "--", "sleep", "1000")
    done = node.space("policy", "set", "netless", files / "open.yaml")
    assert done.returncode == 125 and b"no network" in done.stderr
    node.ok("rm", "-f", "netless")
    node.ok("run", "--rm=false", "--name", "over", "--", "true")
    done = node.space("policy", "set", "over", files / "open.yaml")
    assert done.returncode == 125 and b"has ended" in done.stderr
    node.ok("rm", "over")
    assert b"no sandbox" in node.space("policy", "set", "over", files / "open.yaml").stderr


def test_a_next_spaced_knows_the_policy(own_node, service, files):
    node = own_node
    node.ok("run", "-d", "--name", "kept", "--policy", files / "open.yaml", "--", "sleep", "1000")
    node.ok("policy", "set", "kept", files / "shut.yaml")
    pid = node.daemon_pid()
    end(pid, signal.SIGKILL)
    assert curl(node, "kept", service.url + "/a") == "000"
    assert json.loads(node.ok("policy", "show", "kept"))["egress"] == []
    node.ok("policy", "set", "kept", files / "open.yaml")
    assert curl(node, "kept", service.url + "/b") == "200"
    node.ok("rm", "-f", "kept")


def gateway_of(node):
    """The pid of the node's one gateway that serves a sandbox."""
    name = str(node.libexec / "space-egress")
    pids = [p for p in node.processes() if os.path.realpath("/proc/%d/exe" % p) == name]
    assert len(pids) == 1, pids
    return pids[0]


def test_what_a_spaced_died_over_is_told_again(own_node, service, files):
    """The gateway stands still, so it has not answered when spaced is killed."""
    node = own_node
    node.ok("run", "-d", "--name", "torn", "--policy", files / "shut.yaml", "--", "sleep", "1000")
    gateway, pid = gateway_of(node), node.daemon_pid()
    os.kill(gateway, signal.SIGSTOP)
    try:
        child = node.popen("policy", "set", "torn", files / "open.yaml", stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not records(node, "torn", "policy.set"):
            assert time.monotonic() < deadline
        end(pid, signal.SIGKILL)
        assert child.wait(60) == 125
    finally:
        os.kill(gateway, signal.SIGCONT)
    assert len(json.loads(node.ok("policy", "show", "torn"))["egress"]) == 1
    assert curl(node, "torn", service.url + "/a") == "200"
    assert gateway_of(node) == gateway
    node.ok("rm", "-f", "torn")


TASK = """\
set -e
for i in 1 22 333; do curl -sS --fail $0/repos/$i/issues; done
curl -sS --fail -d x $0/login
"""


def test_what_was_learned_covers_what_was_done(node, service, files, tmp_path):
    """Its address is no public one, so the policy pins it; no rule of it is needed."""
    pins = tmp_path / "pins.yaml"
    pins.write_text("egress: []\n" + service.policy()[service.policy().index("resolve:") :])
    learned = tmp_path / "learned.yaml"
    command = ["--", "sh", "-c", TASK, service.url]
    done = node.space("run", "--learn", learned, "--policy", pins, *command)
    assert done.returncode == 0 and b"WARNING" in done.stderr, done
    text = learned.read_text()
    rules = text[text.index("egress:") : text.index("resolve:")]
    assert rules == (
        'egress:\n  - host: "%s"\n    ports: [%d]\n    methods: ["GET", "POST"]\n'
        '    paths:\n      - "/login"\n      - "/repos/*/issues"\n' % (service.host, service.port)
    )
    assert node.ok("policy", "check", learned) == "rules: 1\n"
    node.ok("run", "--policy", learned, *command)
    done = node.space("run", "--policy", learned, "--", "curl", "-sS", "--fail", service.url + "/other")
    assert done.returncode == 22, done


def test_one_that_learns_is_marked(node, tmp_path):
    node.ok("run", "-d", "--name", "learner", "--learn", tmp_path / "x.yaml", "--", "sleep", "1000")
    assert node.inspect("learner")["learn"] is True
    assert json.loads(node.ok("policy", "show", "learner"))["learn"] is True
    assert records(node, "learner", "sandbox.create")[0]["policy"]["learn"] is True
    assert "egress: []" in node.ok("policy", "learned", "learner")
    node.ok("rm", "-f", "learner")
    assert b"no such sandbox" in node.space("policy", "learned", "nobody").stderr
