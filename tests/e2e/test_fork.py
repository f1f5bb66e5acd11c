# SPDX-License-Identifier: Apache-2.0
"""Children go on from where their parent is, each as somebody else; the parent goes on as if nothing had been.

What a child shares with its parent, as it is a process's own: memory that was seeded before, such as a generator in a running program.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import time

import pytest

from machines import CLIENT, RESET, WHO, Conversation, assert_clock, assert_differ, call, exec_clock, log_of, rm
from node import DEADLINE, eventually, names_in, new_node
from service import Service


@pytest.fixture(scope="module")
def home(node):
    node.ok("template", "build", "base")  # which takes its time, once for all
    with new_node() as n:
        yield n


@pytest.fixture(scope="module")
def service():
    s = Service()
    yield s
    s.close()


@pytest.fixture
def policy(service, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(service.policy())
    return path


@pytest.fixture
def family(home):
    """Removes all that a test made."""
    before = set(home.names())
    yield
    rm(home, *(set(home.names()) - before))
    eventually(lambda: [n for n in names_in(home.state / "places") if not n.startswith("p")] == [], "a copy is left")


def fork(node, parent, *flags, env=None):
    """Names of the children, and for how many ms the parent stood still."""
    answer = json.loads(node.ok("fork", "--json", *flags, parent, env=env))
    children = [child["name"] for child in answer["sandboxes"]]
    assert all(child["state"] == "running" and child["start"] == "fork" for child in answer["sandboxes"])
    return children, answer["stoppedMs"]


# Counts in memory and into a file that has no name any more; told to end, it compares the two and exits as told.
# Each line is one write, without -u, which would make two of it: a copy may be made in between.
COUNT = """
import itertools, os, sys, time
file = open('/tmp/nameless', 'w+', buffering=1)
os.unlink('/tmp/nameless')
for i in itertools.count():
    file.write('%d\\n' % i)
    print(i, flush=True)
    if os.path.exists('/tmp/end'):
        break
    time.sleep(0.005)
file.seek(0)
whole = [int(line) for line in file] == list(range(i + 1))
print('whole' if whole else 'broken', i, flush=True)
sys.exit(int(open('/tmp/end').read()))
"""


def run(node, name, *command, flags=("--no-network",), env=None):
    node.ok("run", "-d", "--name", name, *flags, "--", *command, env=env)


def last_line(node, name):
    lines = node.ok("logs", name).splitlines()
    return lines[-1] if lines else ""


def let_end(node, name, code):
    """Where its count began in its log; it must have gone on without a gap."""
    node.ok("exec", name, "--", "sh", "-c", "echo %d >/tmp/e; mv /tmp/e /tmp/end" % code)
    *numbers, last = node.ok("logs", "-f", name).splitlines()
    eventually(lambda: node.inspect(name)["state"] == "exited", lambda: node.inspect(name))
    assert node.inspect(name)["exitCode"] == code
    said, highest = last.split()
    assert said == "whole" and numbers[-1] == highest
    assert [int(n) for n in numbers] == list(range(int(numbers[0]), int(highest) + 1))
    return int(numbers[0])


def test_processes_and_open_files_go_on_in_each(home, family):
    run(home, "counts", "python3", "-c", COUNT)
    eventually(lambda: last_line(home, "counts"), "it does not count")
    before = int(last_line(home, "counts"))
    children, stopped_ms = fork(home, "counts", "-n", "3")
    assert len(set(children)) == 3 and 0 < stopped_ms < 2000
    parent = home.inspect("counts")
    assert parent["state"] == "running" and parent["start"] == "clone"
    for child in children:
        shown = home.inspect(child)
        assert (shown["parent"], shown["image"], shown["command"]) == (parent["sandboxID"], "base", parent["command"])
    # Each log is the child's own, and begins where the parent was.
    for i, child in enumerate(children):
        assert let_end(home, child, 10 + i) > before
    assert let_end(home, "counts", 3) == 0
    home.ok("audit", "verify")


def test_children_are_somebody_else(home, family):
    run(home, "who", "sleep", "100000")
    children, _ = fork(home, "who", "-n", "2")
    everybody = ["who", *children]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        shown = list(pool.map(lambda name: json.loads(home.ok("exec", name, "--", "python3", "-c", WHO)), everybody))
    assert_differ(shown)
    assert [one["hostname"] for one in shown] == everybody
    assert [one["id"] for one in shown] == [home.inspect(name)["sandboxID"] for name in everybody]
    for name in everybody:
        assert_clock(exec_clock(home, name))


def test_running_program_gets_other_random_bytes_in_each(home, family):
    script = (
        "import os, time\n"
        "source = open('/dev/urandom', 'rb', buffering=0)\nprint('up', flush=True)\n"
        "while not os.path.exists('/tmp/go'): time.sleep(0.01)\n"
        "print(source.read(16).hex(), os.getrandom(16).hex(), open('/proc/sys/kernel/random/uuid').read().strip(), flush=True)\n"
        "time.sleep(100000)\n"
    )
    run(home, "seed", "python3", "-c", script)
    eventually(lambda: last_line(home, "seed") == "up", "it does not start")
    home.ok("exec", "seed", "--", "sh", "-c", "(sleep 0.3; touch /tmp/go) >/dev/null 2>&1 &")  # all of them by themselves
    children, _ = fork(home, "seed", "-n", "2")
    values = []
    for name in ["seed", *children]:
        eventually(lambda: last_line(home, name) not in ("", "up"), lambda: home.space("logs", name))
        values += last_line(home, name).split()
    assert len(set(values)) == 9


# Writes when it drew which bytes, as fast as it can. All is in one write, so that a copy is never made between the two.
DRAW = """
import os, time
out = os.open('/tmp/drawn', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
source = os.open('/dev/urandom', os.O_RDONLY)
while True:
    os.write(out, b'%d %s\\n' % (time.monotonic_ns(), os.read(source, 8).hex().encode()))
"""


def drawn(node, name):
    return re.findall(r"(?m)^(\d+) ([0-9a-f]{16})$", node.ok("exec", name, "--", "cat", "/tmp/drawn"))


def test_no_copied_process_runs_before_its_generator_is_another(home, family):
    run(home, "draws", "python3", "-c", DRAW)
    eventually(lambda: home.space("exec", "draws", "--", "test", "-s", "/tmp/drawn").returncode == 0, "it does not draw")
    children, _ = fork(home, "draws", "-n", "2")
    everybody = ["draws", *children]
    files = [drawn(home, name) for name in everybody]
    before = os.path.commonprefix(files)
    assert before
    values = [{value for _, value in lines} for lines in files]
    for lines, own in zip(files, values):
        assert len(own) == len(lines) > len(before)  # it went on
    for one, other in ((0, 1), (0, 2), (1, 2)):
        both = values[one] & values[other]
        assert both == {value for _, value in before}, (everybody[one], everybody[other], len(both) - len(before))
    for name, lines in zip(everybody, files):
        assert len(drawn(home, name)) > len(lines)


def test_disk_is_shared_until_it_is_written(home, family):
    run(home, "disk", "sleep", "100000")
    home.ok("exec", "disk", "--", "sh", "-c", "echo before >f")  # not synced
    children, _ = fork(home, "disk", "-n", "2")
    for i, name in enumerate([*children, "disk"]):
        assert home.ok("exec", name, "--", "cat", "f") == "before\n"
        home.ok("exec", name, "--", "sh", "-c", "echo %d >f; sync" % i)
    for i, name in enumerate([*children, "disk"]):
        assert home.ok("exec", name, "--", "cat", "f") == "%d\n" % i


def test_attached_client_of_the_parent_notices_nothing(home, family):
    talk = Conversation(home, "run", "-i", "--name", "talks", "--no-network", "--", "cat")
    assert talk.ask(b"one\n") == b"one\n"
    busy = home.popen("exec", "talks", "--", "sh", "-c", "for i in $(seq 200); do echo $i; sleep 0.005; done", stdout=subprocess.PIPE)
    children, _ = fork(home, "talks", "-n", "2")
    assert talk.ask(b"two\n") == b"two\n"
    out, _ = busy.communicate(timeout=DEADLINE)
    assert (busy.returncode, out) == (0, b"".join(b"%d\n" % i for i in range(1, 201)))
    assert talk.close() == 0  # the parent ends, its children don't
    eventually(lambda: "talks" not in home.names(), "it is still there")
    for child in children:
        assert home.ok("exec", child, "--", "pgrep", "-c", "^cat$") == "1\n"


def test_connections_stay_the_parents_and_are_reset_in_children(home, family, service, policy):
    run(home, "web", "python3", "-c", CLIENT, service.host, service.port, flags=("--policy", policy))
    eventually(lambda: home.ok("logs", "web") == "answered\n", lambda: home.space("logs", "web"))
    children, _ = fork(home, "web", "-n", "2")
    started = time.monotonic()
    for name in [*children, "web"]:
        home.ok("exec", name, "--", "touch", "/tmp/go")
    for child in children:
        lines = home.ok("logs", "-f", child).splitlines()
        assert lines[-2] in RESET and lines[-1] == "answered", lines
    assert home.ok("logs", "-f", "web").split() == ["answered"] * 3
    assert time.monotonic() - started < 15  # not a time limit's doing
    assert len([r for r in service.requests if r[1] == "/old"]) == 1
    assert len([r for r in service.requests if r[1] == "/new"]) == 3


def test_credentials_are_granted_anew_or_not_at_all(home, family, service, policy):
    own, other = "parents-own-value", "value-for-children"
    run(home, "rich", "sleep", "100000", flags=("--policy", policy, "--secret", "T@" + service.host), env={"T": own})
    placeholder = home.ok("exec", "rich", "--", "printenv", "T").strip()

    def ask(name, path, token=placeholder):
        """As a process that had the variable from the beginning."""
        home.ok("exec", name, "--", "curl", "-s", "-o", "/dev/null", "-H", "Authorization: Bearer " + token, service.url + path)
        return [r[2].get("Authorization") for r in service.requests if r[1] == path]

    [poor], _ = fork(home, "rich")
    assert home.inspect(poor)["secrets"] == []
    assert ask(poor, "/poor") == []
    # It has the placeholder in its memory, and is not to send it: so those of it, too, and when it has been away.
    [grandchild], _ = fork(home, poor)
    home.ok("pause", poor)
    home.ok("resume", poor)
    for name in (poor, grandchild):
        seen = home.ok("exec", name, "--", "curl", "-s", "-d", "a=" + placeholder, service.url + "/leak")
        assert "the placeholder of T was sent to" in json.loads(seen)["message"]
        assert [r["leak"] for r in records(home, name, "egress.deny")] [-1:] == ["T"]
    assert not [r for r in service.requests if r[1] == "/leak"]

    done = home.space("fork", "--grants", "rich")
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and b"T" in done.stderr
    assert call(home, "POST", "/sandboxes/rich/fork", {"grants": True})[0] == 400
    status, answer = call(home, "POST", "/sandboxes/rich/fork", {"grants": True, "secrets": []})
    assert status == 400 and " T" in answer["message"]
    assert call(home, "POST", "/sandboxes/rich/fork", {"secrets": [{"name": "T", "value": "x"}]})[0] == 400

    [heir], _ = fork(home, "rich", "--grants", env={"T": other})
    assert [s["name"] for s in home.inspect(heir)["secrets"]] == ["T"]
    assert ask(heir, "/heir") == ["Bearer " + other]
    assert ask("rich", "/rich") == ["Bearer " + own]
    # What may be reached is inherited, by those without credentials too.
    assert ask(poor, "/reached", "its-own") == ["Bearer its-own"]


def records(node, name, kind):
    lines = map(json.loads, node.ok("audit", "show", "--json", name).splitlines())
    return [line for line in lines if line["kind"] == kind]


def test_names_are_checked_before_anything_is_made(home, family):
    run(home, "named", "sleep", "100000")
    run(home, "taken", "sleep", "100000")
    for body, status in (
        ({"count": 0}, 400),
        ({"count": 65}, 400),
        ({"count": -1}, 400),
        ({"count": "2"}, 400),
        ({"count": 2, "names": ["a"]}, 400),
        ({"names": ["a", "a"]}, 400),
        ({"names": ["../a"]}, 400),
        ({"names": [1]}, 400),
        ({"names": ["taken"]}, 409),
        ({"names": ["named"]}, 409),
        ({"colour": "red"}, 400),
        ([], 400),
    ):
        assert call(home, "POST", "/sandboxes/named/fork", body)[0] == status, body
    assert home.names() == ["named", "taken"]
    assert fork(home, "named", "-n", "2", "--name", "try")[0] == ["try-1", "try-2"]
    assert fork(home, "named", "--name", "x,y")[0] == ["x", "y"]
    assert home.ok("fork", "--name", "z", "named") == "z\n"
    assert call(home, "POST", "/sandboxes/none/fork", {})[0] == 404


def test_many_children_at_once(home, family):
    run(home, "many", "sleep", "100000")
    children, stopped_ms = fork(home, "many", "-n", "8")
    print("8 children, the parent stood still for %d ms" % stopped_ms)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda child: home.ok("exec", child, "--", "hostname").strip(), children)) == children


def test_one_at_a_time(home, family):
    run(home, "once", "sleep", "100000")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        codes = list(pool.map(lambda _: call(home, "POST", "/sandboxes/once/fork", {})[0], range(3)))
    assert 201 in codes and set(codes) <= {201, 409}
    assert len(home.names()) == 1 + codes.count(201)
    assert home.ok("exec", "once", "--", "echo", "x") == "x\n"


def test_ends_are_each_ones_own(home, family):
    run(home, "first", "sleep", "100000")
    (a, b), _ = fork(home, "first", "-n", "2")
    home.ok("rm", "first")
    assert home.ok("exec", a, "--", "echo", "x") == "x\n"
    home.ok("rm", a)
    assert home.ok("exec", b, "--", "python3", "-c", "import sqlite3; print('x')") == "x\n"
    assert home.names() == [b]


def test_forks_of_forks_of_the_resumed_and_snapshots_of_them(home, family):
    run(home, "g0", "python3", "-c", COUNT)
    eventually(lambda: last_line(home, "g0"), "it does not count")
    home.ok("pause", "g0")
    home.ok("resume", "g0")
    fork(home, "g0", "--name", "g1")
    eventually(lambda: last_line(home, "g1"), "it does not count")
    fork(home, "g1", "--name", "g2")
    eventually(lambda: last_line(home, "g2"), "it does not count")
    home.ok("pause", "g2")
    home.ok("resume", "g2")
    fork(home, "g2", "--name", "g3")
    assert home.inspect("g3")["parent"] == home.inspect("g2")["sandboxID"]
    home.ok("snapshot", "g3", "of-a-fork")
    try:
        out = home.ok("run", "--image", "of-a-fork", "--no-network", "--", "sh", "-c", "pgrep -fc ^python3.-c; hostname").split()
        assert out[0] == "1" and out[1] not in ("g0", "g1", "g2", "g3")
    finally:
        home.space("template", "rm", "-f", "of-a-fork")
    begins = [let_end(home, name, i) for i, name in enumerate(("g0", "g1", "g2", "g3"))]
    assert begins[0] == 0 and begins == sorted(set(begins))
    assert "may hang" not in log_of(home)


def test_fork_of_a_sandbox_that_is_attached_and_has_no_time(home, family):
    """A child's lifetime is its own."""
    run(home, "timed", "sleep", "100000", flags=("--no-network", "--timeout", "3"))
    [child], _ = fork(home, "timed")
    eventually(lambda: home.inspect("timed")["state"] == "exited", lambda: home.inspect("timed"))
    eventually(lambda: home.inspect(child)["state"] == "exited", lambda: home.inspect(child))
    assert home.inspect("timed")["exitCode"] == home.inspect(child)["exitCode"] == 124
