# SPDX-License-Identifier: Apache-2.0
"""Sandboxes are paused to files and go on from there: nothing of what they did or said is lost, and nothing wrong is resumed."""
import concurrent.futures
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from machines import (
    CLIENT, DAMAGE, RESET, Conversation, assert_clock, call, edit_manifest, exec_clock, kill_all, log_of, printable, rm,
)  # fmt: skip
from node import DEADLINE, end, eventually, namespaces, new_node
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
def box(home):
    """One that sleeps, without network."""
    names = ("box-%d" % i for i in itertools.count(time.monotonic_ns()))
    made = []

    def make(*args, command=("sleep", "100000"), node=home, env=None):
        name = next(names)
        node.ok("run", "-d", "--name", name, *(args or ["--no-network"]), "--", *command, env=env)
        made.append((node, name))
        return name

    yield make
    for node, name in made:
        if node.root.exists():  # else a spaced would be started for it
            rm(node, name)


def paused_dir(node, name):
    return node.state / "sandboxes" / node.inspect(name)["sandboxID"] / "paused"


def counted(node, name):
    """The last number that it printed, so far."""
    lines = node.ok("logs", "--tail", "1", name).splitlines()
    return int(lines[-1]) if lines else -1


def state(node, name):
    return node.inspect(name)["state"]


# Counts in memory, appends each number to a file, prints it; told to end, it compares.
COUNT = """
import itertools, os, sys, time
file = open('/home/user/counted', 'a', buffering=1)
for i in itertools.count():
    file.write('%d\\n' % i)
    print(i, flush=True)
    if os.path.exists('/tmp/end'):
        break
    time.sleep(0.002)
whole = [int(line) for line in open('/home/user/counted')] == list(range(i + 1))
print('whole' if whole else 'broken', i, flush=True)
"""


def assert_counted(text):
    *numbers, last = text.splitlines()
    said, highest = last.split()
    assert said == "whole"
    assert numbers == [str(i) for i in range(int(highest) + 1)]
    return int(highest)


def test_ten_pauses_with_everything_killed_lose_nothing(home, box):
    name = box(command=("python3", "-u", "-c", COUNT))
    reached = []
    for i in range(10):
        home.ok("pause", name)
        shown = home.inspect(name)
        assert shown["state"] == "paused" and shown["pausedAt"]
        kill_all(home)
        assert state(home, name) == "paused"  # a spaced that knows it only from its records
        if i == 5:
            end(home.daemon_pid())  # asked to end, it leaves the paused alone
        home.ok("resume", name)
        before = time.time_ns()
        inside = int(home.ok("exec", name, "--", "date", "+%s%N"))
        assert before - 50e6 <= inside <= time.time_ns() + 50e6
        reached.append(counted(home, name))
        eventually(lambda: counted(home, name) > reached[-1], "it does not go on")
    assert reached == sorted(set(reached))
    assert_clock(exec_clock(home, name))
    home.ok("exec", name, "--", "touch", "/tmp/end")
    highest = assert_counted(home.ok("logs", "-f", name))
    assert highest > reached[-1]
    eventually(lambda: state(home, name) == "exited", "it does not end")
    assert home.inspect(name)["exitCode"] == 0
    home.ok("audit", "verify")


# Some megabytes, as fast as they go.
CHATTY = "import sys\nfor i in range(%d): sys.stdout.write('%%08d %%s\\n' %% (i, 'x' * 90))\nsys.stdout.flush()\nsys.exit(7)"
CHATTY_LINES = 50000


def chatty_output():
    return b"".join(b"%08d %s\n" % (i, b"x" * 90) for i in range(CHATTY_LINES))


def pause_some_times(node, name):
    """Pauses and resumes it some times, if it does not end before; how often."""
    for times in range(5):
        done = node.space("pause", name)
        if done.returncode:
            return times
        node.ok("resume", name)
    return times + 1


def test_chatty_task_loses_no_byte_in_its_log(home, box):
    name = box(command=("python3", "-c", CHATTY % CHATTY_LINES))
    times = pause_some_times(home, name)
    assert times >= 1, "it was over before it could be paused"
    out = home.space("logs", "-f", name).stdout
    assert hashlib.sha256(out).digest() == hashlib.sha256(chatty_output()).digest()
    eventually(lambda: state(home, name) == "exited", "it does not end")
    assert home.inspect(name)["exitCode"] == 7


@pytest.mark.parametrize("slow", [False, True])
def test_attached_run_goes_on_through_pauses(home, slow):
    name = "attached-%s" % slow
    run = home.popen("run", "--name", name, "--no-network", "--", "python3", "-c", CHATTY % CHATTY_LINES, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    read = [run.stdout.read(1)]
    paused = threading.Event()

    def rest():
        if slow:  # nobody reads while it is paused and resumed
            paused.wait(60)
        read.append(run.stdout.read())

    reader = threading.Thread(target=rest)
    reader.start()
    times = 0
    for _ in range(3):
        if home.space("pause", name).returncode == 0:
            times += 1
            assert state(home, name) == "paused"
            home.ok("resume", name)
        paused.set()
    reader.join(DEADLINE)
    assert run.wait(timeout=DEADLINE) == 7
    assert run.stderr.read() == b""
    assert times >= 1
    assert b"".join(read) == chatty_output()
    run.stdout.close()
    run.stderr.close()
    eventually(lambda: name not in home.names(), "it is still there")


def test_input_reaches_a_task_after_a_pause_and_wakes_it(home):
    talk = Conversation(home, "run", "-i", "--name", "echo", "--no-network", "--", "cat")
    assert talk.ask(b"one\n") == b"one\n"
    home.ok("pause", "echo")
    home.ok("resume", "echo")
    assert talk.ask(b"two\n") == b"two\n"
    home.ok("pause", "echo")
    assert talk.ask(b"three\n") == b"three\n"
    assert state(home, "echo") == "running"
    assert talk.close() == 0


def test_client_that_leaves_a_paused_task_does_not_end_it(home):
    run = home.popen("run", "--name", "left", "--no-network", "--", "sh", "-c", "echo up; sleep 100000", stdout=subprocess.PIPE)
    try:
        assert run.stdout.readline() == b"up\n"
        home.ok("pause", "left")
        run.kill()
        run.wait()
        run.stdout.close()
        home.ok("resume", "left")
        assert home.ok("exec", "left", "--", "pgrep", "-fc", "^sleep 100000") == "1\n"
        assert state(home, "left") == "running"
    finally:
        rm(home, "left")


def test_pause_answers_what_it_did(home, box):
    name = box()
    living = len(namespaces(home))
    status, answer = call(home, "POST", "/sandboxes/%s/pause" % name)
    eventually(lambda: len(namespaces(home)) < living or len(namespaces(home)) <= 2, lambda: namespaces(home))
    assert status == 200
    assert answer["name"] == name and 0 < answer["stoppedMs"] < 30000 and answer["sizeBytes"] > 1 << 20
    assert call(home, "POST", "/sandboxes/%s/pause" % name)[0] == 409
    assert call(home, "POST", "/sandboxes/%s/snapshot" % name, {"name": "x"})[0] == 409
    assert call(home, "POST", "/sandboxes/%s/fork" % name, {})[0] == 409
    status, shown = call(home, "POST", "/sandboxes/%s/resume" % name)
    assert status == 200 and shown["state"] == "running" and "pausedAt" not in shown
    assert call(home, "POST", "/sandboxes/%s/resume" % name)[0] == 409
    assert call(home, "POST", "/sandboxes/%s/resume" % name, {"colour": 1})[0] == 400
    assert call(home, "POST", "/sandboxes/none/pause")[0] == 404
    directory = home.state / "sandboxes" / shown["sandboxID"]
    assert not (directory / "paused").exists()


def test_paused_one_can_be_removed(home, box):
    name = box()
    home.ok("pause", name)
    directory = paused_dir(home, name).parent
    assert directory.exists()
    home.ok("rm", name)
    assert name not in home.names() and not directory.exists()


def test_two_at_once_are_one(home, box):
    name = box()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        codes = sorted(pool.map(lambda _: call(home, "POST", "/sandboxes/%s/pause" % name)[0], range(4)))
        assert codes[0] == 200 and set(codes[1:]) == {409}
        codes = sorted(pool.map(lambda _: call(home, "POST", "/sandboxes/%s/resume" % name)[0], range(4)))
        assert codes[0] == 200 and set(codes[1:]) == {409}
    assert home.ok("exec", name, "--", "echo", "x") == "x\n"


# -- calls wake it --


def test_exec_and_cp_wake_it(home, box, tmp_path):
    name = box()
    home.ok("exec", name, "--", "sh", "-c", "echo kept >/home/user/f")
    for use in (
        lambda: home.ok("exec", name, "--", "cat", "/home/user/f"),
        lambda: home.ok("cp", name + ":/home/user/f", tmp_path / "f") or (tmp_path / "f").read_text(),
        lambda: home.ok("cp", tmp_path / "f", name + ":/home/user/g") or home.ok("exec", name, "--", "cat", "/home/user/g"),
    ):
        home.ok("pause", name)
        assert use() == "kept\n"
        assert state(home, name) == "running"
    home.ok("pause", name)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda i: home.ok("exec", name, "--", "echo", i), range(3))) == ["0\n", "1\n", "2\n"]


def test_calls_wait_while_it_starts_or_is_being_paused(home, box):
    """Whatever it is in the middle of; most of these calls come before it is done."""
    name = box()
    for _ in range(4):
        pause = home.popen("pause", name, stdout=subprocess.DEVNULL)
        eventually(lambda: state(home, name) != "running" or pause.poll() is not None, "it does not begin")
        assert home.ok("exec", name, "--", "echo", "here") == "here\n"
        assert pause.wait(DEADLINE) == 0
    run = home.popen("run", "-d", "--cold", "--no-network", "--name", "starts", "--", "sleep", "1000", stdout=subprocess.DEVNULL)
    eventually(lambda: "starts" in home.names(), "it does not begin")
    assert home.ok("exec", "starts", "--", "echo", "here") == "here\n"
    assert run.wait(DEADLINE) == 0
    rm(home, "starts")


def test_exec_under_way_hears_of_a_pause(home, box):
    name = box()
    execs = home.popen("exec", name, "--", "sh", "-c", "echo up; sleep 100000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert execs.stdout.readline() == b"up\n"
    home.ok("pause", name)
    out, err = execs.communicate(timeout=DEADLINE)
    assert execs.returncode == 124 and err.count(b"\n") == 1 and b"paused" in err, err
    home.ok("resume", name)
    assert home.ok("exec", name, "--", "pgrep", "-fc", "^sleep 100000") == "2\n"  # its process goes on


# -- the world --


def test_connections_are_reset_and_new_ones_work(home, box, service, policy):
    name = box("--policy", policy, command=("python3", "-c", CLIENT, service.host, service.port))
    eventually(lambda: home.ok("logs", name) == "answered\n", lambda: home.space("logs", name))
    home.ok("pause", name)
    home.ok("resume", name)
    before = time.monotonic()
    home.ok("exec", name, "--", "touch", "/tmp/go")
    lines = home.ok("logs", "-f", name).splitlines()
    assert lines[0] == lines[2] == "answered" and lines[1] in RESET, lines
    assert time.monotonic() - before < 10  # not a time limit's doing
    assert not [r for r in service.requests if r[1] == "/old"]


def authorizations(service, path):
    return [r[2].get("Authorization") for r in service.requests if r[1] == path]


def test_secrets_are_given_again_or_not(home, box, service, policy):
    values = ["first-value-%d" % time.monotonic_ns(), "second-value", "third-value"]
    name = box("--policy", policy, "--secret", "T@" + service.host, env={"T": values[0]})
    placeholder = home.ok("exec", name, "--", "printenv", "T").strip()

    def ask(path):
        return home.ok(
            "exec", name, "--", "sh", "-c",
            "curl -s -o /dev/null -w '%%{http_code}' -H \"Authorization: Bearer $T\" %s" % (service.url + path),
        )  # fmt: skip

    assert ask("/s0") == "200" and authorizations(service, "/s0") == ["Bearer " + values[0]]
    home.ok("pause", name)
    for directory, _, files in os.walk(home.state / "sandboxes"):
        for file in files:
            if file not in ("disk", "memory", "root"):
                assert values[0].encode() not in open(os.path.join(directory, file), "rb").read(), file
    for piece in printable(paused_dir(home, name)):
        assert values[0].encode() not in piece
    assert values[0].encode() not in (home.state / "space.db").read_bytes() + (home.state / "space.db-wal").read_bytes()

    done = home.space("resume", name)
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and b"T" in done.stderr and b"--without-secrets" in done.stderr
    status, answer = call(home, "POST", "/sandboxes/%s/resume" % name, {})
    assert status == 400 and " T " in answer["message"]
    done = home.space("exec", name, "--", "true")
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and b"space resume" in done.stderr, done
    assert call(home, "POST", "/sandboxes/%s/resume" % name, {"secrets": [{"name": "U", "value": "x"}]})[0] == 400
    assert state(home, name) == "paused"

    home.ok("resume", name, env={"T": values[1]})
    assert home.ok("exec", name, "--", "printenv", "T").strip() == placeholder
    assert ask("/s1") == "200" and authorizations(service, "/s1") == ["Bearer " + values[1]]

    home.ok("pause", name)
    home.ok("resume", "--without-secrets", name)
    assert ask("/s2") == "503" and authorizations(service, "/s2") == []
    done = home.space("exec", "-e", "T=" + values[1], name, "--", "true")
    assert done.returncode == 125 and b"leave out -e T" in done.stderr and values[1].encode() not in done.stderr

    home.ok("pause", name)
    home.ok("resume", name, env={"T": values[2]})
    assert ask("/s3") == "200" and authorizations(service, "/s3") == ["Bearer " + values[2]]
    home.ok("audit", "verify")


# -- time --


def test_clock_is_right_after_a_pause(home, box):
    name = box()
    home.ok("pause", name)
    eventually(lambda: time.time() - os.stat(paused_dir(home, name)).st_mtime > 2, "time stands still")
    home.ok("resume", name)
    before = time.time_ns()
    inside = int(home.ok("exec", name, "--", "date", "+%s%N"))
    assert before - 50e6 <= inside <= time.time_ns() + 50e6, ((inside - before) / 1e6)
    assert_clock(exec_clock(home, name))


def test_time_that_is_over_pauses(home):
    run = home.popen(
        "run", "--name", "timed", "--timeout", "1", "--on-timeout", "pause", "--no-network", "--", "sh", "-c", "echo up; sleep 100000",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = run.communicate(timeout=DEADLINE)
        assert (run.returncode, out) == (124, b"up\n")
        assert err.count(b"\n") == 1 and b"space resume timed" in err, err
        eventually(lambda: state(home, "timed") == "paused", lambda: state(home, "timed"))
        home.ok("resume", "timed")
        assert home.ok("exec", "timed", "--", "pgrep", "-fc", "^sleep 100000") == "1\n"
        eventually(lambda: state(home, "timed") == "paused", lambda: state(home, "timed"))  # it has its time anew
    finally:
        rm(home, "timed")


def test_pause_stops_the_clock_of_a_timeout(home, box):
    name = box("--timeout", "4", "--no-network")
    started = time.monotonic()
    home.ok("pause", name)
    eventually(lambda: time.monotonic() - started > 4.5, "time stands still")
    assert state(home, name) == "paused"
    home.ok("resume", name)
    assert home.ok("exec", name, "--", "echo", "x") == "x\n"
    eventually(lambda: state(home, name) == "exited", lambda: home.inspect(name), timeout=20)
    assert home.inspect(name)["exitCode"] == 124


def test_time_that_is_over_while_it_is_copied_pauses_it(home, box):
    name = box("--timeout", "2", "--on-timeout", "pause", "--no-network")
    for i in range(1000):
        copy = home.space("snapshot", name, "copied")
        home.space("template", "rm", "copied")
        if copy.returncode:
            break
    eventually(lambda: state(home, name) == "paused", lambda: home.inspect(name))


def test_one_whose_time_is_over_and_that_cannot_be_paused_ends(home, box):
    """There is something where its pause would be put, which can't be replaced."""
    name = box("--timeout", "3", "--on-timeout", "pause", "--no-network")
    obstacle = paused_dir(home, name)
    obstacle.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", obstacle], check=True)
    try:
        eventually(lambda: state(home, name) == "exited", lambda: home.inspect(name), timeout=20)
        assert home.inspect(name)["exitCode"] == 124
    finally:
        subprocess.run(["umount", obstacle], check=True)


def test_idle_one_is_paused_and_a_busy_one_is_not(home, box):
    flags = ("--idle-timeout", "1", "--on-timeout", "pause", "--no-network")
    started = time.monotonic()
    idle = box(*flags)
    busy = box(*flags, command=("sh", "-c", "while :; do echo x; sleep 0.2; done"))
    eventually(lambda: state(home, idle) == "paused", lambda: home.inspect(idle))
    assert time.monotonic() - started > 0.9
    eventually(lambda: time.monotonic() - started > 3, "time stands still")
    assert state(home, busy) == "running"
    assert home.ok("exec", idle, "--", "echo", "awake") == "awake\n"
    eventually(lambda: state(home, idle) == "paused", lambda: home.inspect(idle))


def test_idle_one_ends_when_nothing_else_is_said(home, box):
    name = box("--idle-timeout", "1", "--no-network")
    eventually(lambda: state(home, name) == "exited", lambda: home.inspect(name))
    assert home.inspect(name)["exitCode"] == 124


# -- damage --


def test_damaged_pause_is_refused_and_kept(home, box):
    name = box()
    home.ok("exec", name, "--", "sh", "-c", "echo kept >/tmp/f; sync")
    home.ok("pause", name)
    path = paused_dir(home, name)
    kept = path.parent / "kept"
    subprocess.run(["cp", "-a", "--sparse=always", path, kept], check=True)
    for what, damage in DAMAGE.items():
        damage(path)
        listing = sorted(p.name for p in path.iterdir())
        for use in (("resume", name), ("exec", name, "--", "true")):
            done = home.space(*use)
            assert done.returncode == 125 and done.stderr.count(b"\n") == 1, (what, done)
            assert b"paused/" in done.stderr or b"there is no" in done.stderr, (what, done.stderr)
        assert state(home, name) == "paused"
        assert sorted(p.name for p in path.iterdir()) == listing, what
        shutil.rmtree(path)
        subprocess.run(["cp", "-a", "--sparse=always", kept, path], check=True)
    end(home.daemon_pid(), signal.SIGKILL)
    DAMAGE["memory: cut"](path)
    assert state(home, name) == "paused"  # the next spaced throws nothing away
    assert home.space("resume", name).returncode == 125
    shutil.rmtree(path)
    kept.rename(path)
    home.ok("resume", name)
    assert home.ok("exec", name, "--", "cat", "/tmp/f") == "kept\n"


def test_pause_of_another_monitor_is_refused_and_kept(home, box):
    name = box()
    home.ok("pause", name)
    path = paused_dir(home, name)
    text = (path / "frozen.json").read_text()
    edit_manifest(path, lambda extra: extra.update(fingerprint="another"))
    done = home.space("resume", name)
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1 and b"another" in done.stderr
    assert state(home, name) == "paused"
    (path / "frozen.json").write_text(text)
    home.ok("resume", name)


# -- what rests for long --


def test_what_rests_is_compressed_and_goes_on(node, box):
    with new_node(config={"compressAfter": 1}) as n:
        name = box("--no-network", command=("python3", "-u", "-c", COUNT), node=n)
        for i in range(2):
            eventually(lambda: counted(n, name) >= 0, "it does not count")
            n.ok("pause", name)
            path = paused_dir(n, name)
            loose = sum(p.lstat().st_blocks for p in path.iterdir() if p.name != "root")
            eventually(lambda: (path / "memory.zst").exists() and not (path / "memory").exists(), lambda: (list(path.iterdir()), log_of(n)))
            assert sum(p.lstat().st_blocks for p in path.iterdir() if p.name != "root") < loose / 2
            if i:
                kill_all(n)
            assert state(n, name) == "paused"
            n.ok("resume", name)
        n.ok("exec", name, "--", "touch", "/tmp/end")
        assert_counted(n.ok("logs", "-f", name))
        rm(n, name)


def test_resume_while_it_is_compressed(node, box):
    with new_node(config={"compressAfter": 1}) as n:
        name = box("--no-network", command=("python3", "-u", "-c", COUNT), node=n)
        for kill in (False, True):
            n.ok("pause", name)
            path = paused_dir(n, name)
            eventually(lambda: [p for p in path.iterdir() if p.name not in ("memory", "state", "disk", "root", "frozen.json")], lambda: log_of(n))
            if kill:
                kill_all(n)
            n.ok("resume", name)
        n.ok("exec", name, "--", "touch", "/tmp/end")
        assert_counted(n.ok("logs", "-f", name))
        rm(n, name)


# -- spaced that comes and goes --


def test_caller_waits_for_a_spaced_that_is_ending(home):
    """Its lock is held for a while yet, but it will not listen any more."""
    end(home.daemon_pid())
    lock = os.open(home.run_dir / "spaced.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    call_of_one = home.popen("ls", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    started = time.monotonic()
    eventually(lambda: call_of_one.poll() is not None or time.monotonic() - started > 1.5, "time stands still")
    os.close(lock)
    _, err = call_of_one.communicate(timeout=30)
    assert (call_of_one.returncode, err) == (0, b"")
