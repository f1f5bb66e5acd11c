# SPDX-License-Identifier: Apache-2.0
"""Pausing, resuming and copying, with everything that can die dying in the middle: each sandbox is then running or paused, and whole.

What is whole is told by a task that counts: it keeps the number, and the sum of all it has written, in its memory, and appends to a
file; both must agree, from the disk and not from the guest's cache, and never be less than they were.

SPACE_SOAK    how many operations are broken off by a death of spaced (default 4)
"""
import concurrent.futures
import errno
import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from node import DEADLINE, end, eventually, executable, gateways, leftovers, monitors, names_in, namespaces

SOAK = int(os.environ.get("SPACE_SOAK", "4"))

COUNTER = r"""
import hashlib, mmap, os, time
path, flags = "/home/user/count", os.O_WRONLY | os.O_CREAT | os.O_APPEND
file = os.open(path, flags)
n, all = 0, hashlib.sha256()
def on_disk():
    os.fsync(file)
    size = os.fstat(file).st_size
    room = mmap.mmap(-1, (size | 4095) + 1)  # as O_DIRECT wants it
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    got = os.readv(direct, [room])
    os.close(direct)
    return hashlib.sha256(room[:got]).hexdigest()
while True:
    n += 1
    os.write(file, b"%d\n" % n)
    all.update(b"%d\n" % n)
    if os.path.exists("/home/user/ask"):
        os.unlink("/home/user/ask")
        want = hashlib.sha256(b"".join(b"%d\n" % i for i in range(1, n + 1))).hexdigest()
        with open("/home/user/answer.new", "w") as answer:
            answer.write("%d %s %s %s\n" % (n, want, all.hexdigest(), on_disk()))
        os.rename("/home/user/answer.new", "/home/user/answer")
    time.sleep(0.02)
"""
CHECK = r"""
cd /home/user
rm -f answer
: >ask
for i in $(seq 1500); do [ -e answer ] && break; sleep 0.02; done
read n want memory disk <answer || { echo the counter does not answer; exit 1; }
[ "$memory" = "$want" ] && [ "$disk" = "$want" ] || { echo "at $n: $memory in memory, $disk on disk, not $want"; exit 1; }
echo $n
"""


def start_counter(node, name, *args):
    node.ok("run", "-d", "--name", name, "--memory", "256", *args, "--", "python3", "-c", COUNTER)
    return count(node, name)


def count(node, name, least=0):
    """How far it has come; it is whole."""
    done = node.space("exec", "-u", "root", name, "--", "sh", "-c", CHECK)
    assert done.returncode == 0, (name, done)
    n = int(done.stdout)
    assert n > least, "%s was at %d, and is at %d" % (name, least, n)
    return n


def boxes(node):
    return {box["name"]: box for box in json.loads(node.ok("ls", "--json"))}


def states(node):
    return {name: box["state"] for name, box in boxes(node).items()}


def templates(node, kind):
    return {t["name"]: t for t in json.loads(node.ok("template", "ls", "--json")) if t["kind"] == kind}


def settled(node):
    """States, once no sandbox is on its way from one to another."""
    seen = {}

    def quiet():
        seen.clear()
        seen.update(states(node))
        return set(seen.values()) <= {"running", "paused", "exited", "failed"}

    eventually(quiet, lambda: seen, timeout=60)
    return seen


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    end(pid, 0)


def surplus(node, ready):
    """What there is besides sandboxes that run, those that are paused, and what is kept ready."""
    found = {}
    by_state = list(states(node).values())
    expected = by_state.count("running") + ready
    for what, there in (("monitors", monitors(node)), ("gateways", gateways(node)), ("namespaces", namespaces(node)),
                        ("places", names_in(node.state / "places"))):  # fmt: skip
        if len(there) != expected:
            found[what] = (there, expected)
    ids = {box["sandboxID"] for box in boxes(node).values()}
    if set(names_in(node.state / "sandboxes")) != ids:
        found["sandboxes"] = names_in(node.state / "sandboxes")
    for box in boxes(node).values():
        there = names_in(node.state / "sandboxes" / box["sandboxID"])
        half = [name for name in there if name.startswith(".")]
        if half or ("paused" in there) != (box["state"] == "paused"):
            found[box["name"]] = (box["state"], there)
    for parent in ("snapshots", "templates"):
        half = [name for name in names_in(node.state / parent) if name.startswith(".")]
        if half:
            found[parent] = half
    if names_in(node.state / "scratch"):
        found["disks"] = names_in(node.state / "scratch")
    return found


def assert_nothing_more(node, ready):
    eventually(lambda: not surplus(node, ready), lambda: surplus(node, ready), timeout=60)


def one_line(err):
    return err.startswith(b"space: ") and err.count(b"\n") == 1


# spaced dies


class Soak:
    """A sandbox that counts, and operations on it that spaced does not live to end."""

    def __init__(self, node, rng):
        self.node, self.rng = node, rng
        self.last = start_counter(node, "w")
        self.snapshots = 0
        self.tally = {}

    def set_state(self, wanted):
        if states(self.node)["w"] != wanted:
            self.node.ok("pause" if wanted == "paused" else "resume", "w")

    def moment(self, verb):
        """From the call to the death: any of an operation's."""
        return self.rng.uniform(0, {"pause": 1.2, "resume": 0.6, "snapshot": 1.0, "fork": 1.0}[verb])

    def broken_off(self, verb, *args):
        """Whether the operation had come to its end, as far as its caller knows."""
        daemon = self.node.daemon_pid()
        operation = self.node.popen(verb, *args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        moment = self.moment(verb)
        threading.Event().wait(moment)
        kill(daemon)
        _, err = operation.communicate(timeout=DEADLINE)
        done = operation.returncode == 0
        assert done or (operation.returncode == 125 and one_line(err)), (verb, moment, operation.returncode, err)
        after = settled(self.node)
        print("%s, killed after %.3f s, done: %s; then %s" % (verb, moment, done, after))
        assert after.get("w") in ("running", "paused"), (verb, moment, after)
        self.tally[verb, done] = self.tally.get((verb, done), 0) + 1
        return done, after

    def pause(self):
        self.set_state("running")
        done, after = self.broken_off("pause", "w")
        assert not done or after["w"] == "paused"

    def resume(self):
        self.set_state("paused")
        done, after = self.broken_off("resume", "w")
        assert not done or after["w"] == "running"

    def snapshot(self):
        self.set_state("running")
        self.snapshots += 1
        name = "s%d" % self.snapshots
        done, after = self.broken_off("snapshot", "w", name)
        assert after["w"] == "running"
        there = templates(self.node, "snapshot")
        assert not done or name in there
        if name in there:
            assert not there[name]["stale"]
            self.node.ok("run", "-d", "--name", "of-" + name, "--image", name, "--", "sleep", "100000")
            count(self.node, "of-" + name, self.last)
            self.node.ok("rm", "of-" + name)
            self.node.ok("template", "rm", name)

    def fork(self):
        self.set_state("running")
        done, after = self.broken_off("fork", "w", "--name", "c1,c2")
        assert after["w"] == "running"
        assert not done or after.get("c1") == after.get("c2") == "running"
        for child in ("c1", "c2"):
            if child in after:
                assert after[child] == "running"
                count(self.node, child, self.last)
                self.node.ok("rm", child)

    def check(self):
        assert_nothing_more(self.node, ready=2)
        self.set_state("running")
        self.last = count(self.node, "w", self.last)
        self.node.ok("audit", "verify")


def test_spaced_killed_at_any_moment_of_an_operation(ready_node):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    soak = Soak(ready_node, random.Random(seed))
    for i in range(SOAK):
        (soak.pause, soak.resume, soak.snapshot, soak.fork)[i % 4]()
        soak.check()
    print(soak.tally)
    ready_node.ok("rm", "w")
    assert_nothing_more(ready_node, ready=2)
    end(ready_node.daemon_pid())
    eventually(lambda: not leftovers(ready_node, spaced=False), lambda: leftovers(ready_node, spaced=False))


def test_spaced_killed_at_any_moment_of_a_detached_run(ready_node):
    node = ready_node
    rng = random.Random()
    node.ok("template", "build", "base", "--memory", "256")
    for i in range(max(3, SOAK // 2)):
        name = "d%d" % i
        node.names()  # starts spaced
        daemon = node.daemon_pid()
        run = node.popen("run", "-d", "--name", name, "--memory", "256", "--", "sleep", "100000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        moment = rng.uniform(0, 0.4)
        threading.Event().wait(moment)
        kill(daemon)
        out, err = run.communicate(timeout=DEADLINE)
        after = settled(node)
        print("killed after %.3f s: %d, %s" % (moment, run.returncode, after))
        if run.returncode == 0:
            assert after == {name: "running"}
        else:
            assert run.returncode == 125 and one_line(err)
        # Its task had started, though nobody was told; else it is not there.
        if after:
            kinds = [json.loads(line)["kind"] for line in node.ok("audit", "show", "--json", name).splitlines()]
            assert "exec.running" in kinds, kinds
            assert node.ok("exec", name, "--", "pgrep", "-c", "sleep") == "1\n"
            node.ok("rm", name)
        assert_nothing_more(node, ready=2)
    node.ok("audit", "verify")


def test_what_it_was_paused_to_is_gone_once_it_runs_whoever_made_it_run(own_node):
    node = own_node
    last = start_counter(node, "w")
    node.ok("pause", "w")
    home = node.state / "sandboxes" / node.inspect("w")["sandboxID"]
    subprocess.run(["cp", "-al", home / "paused", home / "kept"], check=True)
    node.ok("resume", "w")
    last = count(node, "w", last)
    kill(node.daemon_pid())
    # As if spaced had died just before it removed that.
    (home / "kept").rename(home / "paused")
    assert settled(node) == {"w": "running"}
    assert names_in(home / "paused") == []
    last = count(node, "w", last)
    # Else the next pause that is broken off would end in the old one.
    kill_in_the_middle(node, "pause", "w")
    eventually(lambda: settled(node), "no state")
    if states(node)["w"] == "paused":
        node.ok("resume", "w")
    count(node, "w", last)


def kill_in_the_middle(node, *args):
    """Spaced dies while it copies, so that a pause has not been written."""
    daemon = node.daemon_pid()
    operation = node.popen(*args, stderr=subprocess.DEVNULL)
    eventually(lambda: states(node)["w"] == "pausing", "it does not begin", timeout=10)
    kill(daemon)
    operation.wait(timeout=DEADLINE)


# Other things die


def test_monitor_or_gateway_killed_in_the_middle(own_node):
    node = own_node
    rng = random.Random()
    last = start_counter(node, "stays")
    args = {"pause": ["w"], "snapshot": ["w", "s"], "fork": ["w", "--name", "c1,c2"]}
    cases = list(itertools.product(args, (monitors, gateways)))
    # Of a few, every other one: each verb, and both victims.
    for verb, victims in cases * (SOAK // 6) if SOAK >= 12 else cases[::2] + cases[3:4]:
        others = set(find_family(node))
        start = start_counter(node, "w")
        [pid] = [p for p in victims(node) if p not in others]
        operation = node.popen(verb, *args[verb], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        moment = rng.uniform(0, 0.5)
        threading.Event().wait(moment)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        _, err = operation.communicate(timeout=DEADLINE)
        done = operation.returncode == 0
        assert done or (operation.returncode == 125 and one_line(err)), (moment, operation.returncode, err)
        # Its machine is gone, so it is, unless it was safe on the disk.
        wanted = "paused" if verb == "pause" and done else "failed"
        eventually(lambda: states(node)["w"] == wanted, lambda: (moment, done, err, states(node)))
        after = settled(node)
        print("%s: killed after %.3f s, done: %s %s; then %s" % (verb, moment, done, err, after))
        if verb == "pause" and done:
            node.ok("resume", "w")
            count(node, "w", start)
        if verb == "snapshot" and "s" in templates(node, "snapshot"):
            node.ok("run", "-d", "--name", "of-s", "--image", "s", "--", "sleep", "100000")
            count(node, "of-s", start)
            node.ok("rm", "of-s")
            node.ok("template", "rm", "s")
        for child in ("c1", "c2"):
            if after.get(child):
                count(node, child, start)
                node.ok("rm", child)
        node.space("rm", "-f", "w")
        assert_nothing_more(node, ready=0)
        last = count(node, "stays", last)


def find_family(node):
    return monitors(node) + gateways(node)


def test_monitor_killed_in_the_middle_of_a_resume_leaves_it_paused(own_node):
    node = own_node
    rng = random.Random()
    last = start_counter(node, "w")
    for i in range(max(2, SOAK // 3)):
        node.ok("pause", "w")
        operation = node.popen("resume", "w", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        eventually(lambda: monitors(node) or operation.poll() is not None, "no monitor")
        moment = rng.uniform(0, 0.3)
        threading.Event().wait(moment)
        in_time = operation.poll() is None
        for pid in rng.choice([monitors, gateways])(node) if in_time else ():
            os.kill(pid, signal.SIGKILL)
        _, err = operation.communicate(timeout=DEADLINE)
        after = settled(node)
        print("killed after %.3f s, in time: %s; %d %s then %s" % (moment, in_time, operation.returncode, err, after))
        if operation.returncode:
            assert operation.returncode == 125 and one_line(err)
        if operation.returncode and after:
            assert after == {"w": "paused"}
            assert_nothing_more(node, ready=0)
            node.ok("resume", "w")
        elif not after:
            # It died when it ran already, however short.
            assert not operation.returncode or b"microVM ended" in err or b"gateway is gone" in err, err
            last = start_counter(node, "w")
        last = count(node, "w", last)


@pytest.fixture
def small_disk(tmp_path):
    """A node whose state is on a filesystem of its own, with an image; fill(mib) leaves so much room."""
    from conftest import need_image
    from node import IMAGES, new_node

    need_image()
    with new_node(ready=0, templates=False) as node:
        disk = tmp_path / "disk"
        with open(disk, "wb") as file:
            file.truncate(3 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", disk], check=True)
        subprocess.run(["mount", "-o", "loop", disk, node.state], check=True)
        try:
            node.state.chmod(0o711)
            subprocess.run(["cp", "-a", "--sparse=always", IMAGES / "images", IMAGES / "ca", node.state], check=True)
            yield node
        finally:
            node.stop()
            subprocess.run(["umount", "-l", node.state], check=True)


def fill(node, leave_mib):
    """Takes room on the node's disk until so much is left."""
    hog = node.state / "hog"
    if hog.exists():
        hog.unlink()
    free = os.statvfs(node.state)
    size = free.f_bavail * free.f_frsize - (leave_mib << 20)
    with open(hog, "wb") as file:
        while size > 0:
            try:
                return os.posix_fallocate(file.fileno(), 0, size)
            except OSError as e:
                assert e.errno == errno.ENOSPC
                file.truncate(0)
                size -= 1 << 20


def test_disk_that_gets_full_in_the_middle_leaves_it_running(small_disk):
    node = small_disk
    last = start_counter(node, "w", "--no-network")
    # More than the room without which nothing is begun.
    node.ok("exec", "w", "--", "sh", "-c", "head -c 200000000 /dev/urandom >/tmp/much; sync")
    for verb, *args in (("fork", "w", "--name", "c"), ("snapshot", "w", "s"), ("pause", "w")):
        for leave in (64, 129, 150, 200) if SOAK >= 12 else (64, 150):
            fill(node, leave)
            done = node.space(verb, *args)
            assert (done.returncode, one_line(done.stderr)) == (125, True), (verb, leave, done)
            assert (b"free some" if leave < 128 else b"No space left") in done.stderr, (verb, leave, done)
            assert settled(node) == {"w": "running"}
            assert_no_halves(node)
            (node.state / "hog").unlink()
        last = count(node, "w", last)
        node.ok(verb, *args)
        if verb == "fork":
            count(node, "c", last)
            node.ok("rm", "c")
        elif verb == "snapshot":
            node.ok("template", "rm", "s")
    fill(node, 1)
    done = node.space("resume", "w")
    (node.state / "hog").unlink()
    if done.returncode:
        assert one_line(done.stderr) and states(node) == {"w": "paused"}
        node.ok("resume", "w")
    count(node, "w", last)


def assert_no_halves(node):
    halves = [p for parent in ("sandboxes", "snapshots", "places", "templates") for p in (node.state / parent).rglob(".new-*")]
    assert not halves


# Somebody else comes in between


def test_removed_in_the_middle(own_node):
    node = own_node
    rng = random.Random()
    args = {"pause": ["w"], "resume": ["w"], "snapshot": ["w", "s"], "fork": ["w", "--name", "c1,c2"]}
    for verb in list(args) * max(1, SOAK // 4):
        start = start_counter(node, "w")
        if verb == "resume":
            node.ok("pause", "w")
        operation = node.popen(verb, *args[verb], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        moment = rng.uniform(0, 0.6)
        threading.Event().wait(moment)
        node.ok("rm", "-f", "w")
        _, err = operation.communicate(timeout=DEADLINE)
        done = operation.returncode == 0
        print("%s: removed after %.3f s, done: %s %s" % (verb, moment, done, err))
        assert done or (operation.returncode == 125 and one_line(err)), (moment, operation.returncode, err)
        after = settled(node)
        assert "w" not in after
        if "s" in templates(node, "snapshot"):
            node.ok("template", "rm", "s")
        else:
            assert not (verb == "snapshot" and done)
        for child in ("c1", "c2"):
            if after.get(child):
                count(node, child, start)
                node.ok("rm", child)
        assert_nothing_more(node, ready=0)
    node.ok("audit", "verify")


@pytest.mark.parametrize("first", ["pause", "snapshot", "fork"])
def test_two_operations_at_once(own_node, first):
    node = own_node
    last = start_counter(node, "w")
    args = {"pause": ["w"], "snapshot": ["w", "s%d"], "fork": ["w", "--name", "c%d"], "resume": ["w"]}
    for i, second in enumerate(["pause", "snapshot", "fork", "resume"]):
        one = node.popen(first, *[a % i if "%" in a else a for a in args[first]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        parents = [node.state / "sandboxes" / node.inspect("w")["sandboxID"], node.state / "snapshots", node.state / "places"]
        eventually(lambda: any(n.startswith(".new-") for p in parents for n in names_in(p)), "it does not begin", timeout=10)
        two = node.space(second, *[a % (10 + i) if "%" in a else a for a in args[second]])
        _, err = one.communicate(timeout=DEADLINE)
        assert one.returncode == 0, err
        # It may have come too late to be in the way.
        if two.returncode:
            assert two.returncode == 125 and one_line(two.stderr)
            assert b"w is " in two.stderr, two
        print(first, second, two.returncode, two.stderr)
        if settled(node)["w"] == "paused":
            node.ok("resume", "w")
        last = count(node, "w", last)
        for name in states(node):
            if name != "w":
                count(node, name)
                node.ok("rm", name)
        assert_nothing_more(node, ready=0)


def test_forks_that_overlap_have_each_their_own_copy(own_node):
    node = own_node
    last = start_counter(node, "w", "--no-network")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:

        def fork(i):
            done = None
            deadline = time.monotonic() + DEADLINE
            while done is None or (done.returncode and b"already" in done.stderr):
                assert time.monotonic() < deadline
                done = node.space("fork", "w", "-n", "4", "--name", "c%d" % i)
            return done

        done = list(pool.map(fork, range(2)))
    for d in done:
        assert d.returncode == 0, d.stderr
    after = settled(node)
    assert len(after) == 9 and set(after.values()) == {"running"}
    for name in after:
        count(node, name, last)
        node.ok("rm", name)
    assert_nothing_more(node, ready=0)


def test_two_snapshots_of_one_name(own_node):
    node = own_node
    for name in ("a", "b"):
        start_counter(node, name, "--no-network")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda name: node.space("snapshot", name, "same"), ("a", "b")))
    assert sorted(d.returncode for d in done) == [0, 125], done
    [lost] = [d for d in done if d.returncode]
    assert one_line(lost.stderr) and b"another name" in lost.stderr
    assert states(node) == {"a": "running", "b": "running"}
    assert list(templates(node, "snapshot")) == ["same"]
