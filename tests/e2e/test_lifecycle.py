# SPDX-License-Identifier: Apache-2.0
"""Sandboxes come and go: many at once, broken off at any moment, killed from outside; and nothing is left behind.

SPACE_SOAK    how many runs the broken-off test does (default 12)
"""
import concurrent.futures
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from node import DEADLINE, SPACED, end, eventually, find_processes, gateways, held_disks, leftovers, monitors, namespaces

SOAK = int(os.environ.get("SPACE_SOAK", "12"))


def assert_clean(node):
    eventually(lambda: not leftovers(node), lambda: leftovers(node))
    eventually(lambda: node.names() == [], node.names)
    pid = node.daemon_pid()
    eventually(lambda: not held_disks(pid), lambda: held_disks(pid))


def test_lost_monitor_and_lost_gateway_end_their_sandbox_alone(own_node):
    node = own_node
    node.ok("run", "-d", "--name", "stays", "--no-network", "--", "sleep", "100000")
    stays = set(find_processes(node))
    victim = node.popen("run", "--name", "victim", "--", "sh", "-c", "echo up; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert victim.stdout.readline() == b"up\n"
    pid = next(p for p in monitors(node) if p not in stays)
    os.kill(pid, signal.SIGKILL)
    out, err = victim.communicate(timeout=DEADLINE)
    assert victim.returncode == 125
    assert err.startswith(b"space: ") and err.count(b"\n") == 1
    eventually(lambda: node.names() == ["stays"], "victim is still listed")

    victim = node.popen("run", "--name", "victim", "--", "sh", "-c", "echo up; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert victim.stdout.readline() == b"up\n"
    os.kill(next(p for p in gateways(node) if p not in stays), signal.SIGKILL)
    out, err = victim.communicate(timeout=DEADLINE)
    assert victim.returncode == 125
    assert err.startswith(b"space: ") and err.count(b"\n") == 1
    eventually(lambda: node.names() == ["stays"], "victim is still listed")
    assert node.ok("exec", "stays", "--", "echo", "alive") == "alive\n"
    node.ok("rm", "stays")
    assert_clean(node)
    node.ok("audit", "verify")


def test_killed_daemon_leaves_what_is_detached_and_the_next_one_takes_it_over(own_node):
    node = own_node
    node.ok("run", "-d", "--name", "a", "--", "sh", "-c", "for i in $(seq 1000); do echo $i; sleep 0.1; done")
    run = node.popen("run", "--name", "b", "--", "sh", "-c", "echo up; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout.readline() == b"up\n"
    assert len(monitors(node)) == len(gateways(node)) == len(namespaces(node)) == 2
    before = node.inspect("a")
    killed = node.daemon_pid()
    os.kill(killed, signal.SIGKILL)
    out, err = run.communicate(timeout=DEADLINE)
    assert run.returncode == 125 and b"lost the connection to spaced" in err
    end(killed, 0)
    assert len(monitors(node)) == len(gateways(node)) == len(namespaces(node)) == 2
    # The attached one had nobody any more.
    assert node.names() == ["a"]
    eventually(lambda: len(monitors(node)) == len(gateways(node)) == len(namespaces(node)) == 1, "b is not ended")
    eventually(lambda: node.inspect("a")["state"] == "running", lambda: node.inspect("a"))
    after = node.inspect("a")
    assert {k: after[k] for k in before} == before
    assert node.ok("exec", "a", "--", "echo", "alive") == "alive\n"
    follow = node.popen("logs", "-f", "a", stdout=subprocess.PIPE)
    seen = [int(follow.stdout.readline()) for _ in range(30)]
    follow.kill()
    follow.communicate()
    assert seen == sorted(set(seen))
    # How it ends is kept, though who had promised that is dead.
    node.ok("run", "-d", "--name", "short", "--no-network", "--", "sh", "-c", "sleep 5; echo out; exit 7")
    os.kill(killed := node.daemon_pid(), signal.SIGKILL)
    end(killed, 0)
    eventually(lambda: node.inspect("short")["state"] == "exited", lambda: node.names())
    assert node.inspect("short")["exitCode"] == 7 and node.ok("logs", "short") == "out\n"
    node.ok("rm", "short")
    kinds = [json.loads(line)["kind"] for line in node.ok("audit", "show", "--json", "a").splitlines()]
    assert "sandbox.adopt" in kinds
    node.ok("rm", "a")
    assert_clean(node)
    eventually(lambda: not namespaces(node), "a namespace is left")
    node.ok("audit", "verify")
    assert node.ok("run", "--no-network", "--", "echo", "again") == "again\n"


def test_what_is_prepared_dies_with_its_daemon_or_at_the_next_ones_start(ready_node):
    node = ready_node
    node.names()
    eventually(lambda: len(monitors(node)) == 2, "nothing is prepared")
    for _ in range(3):
        prepared = set(monitors(node) + gateways(node))
        killed = node.daemon_pid()
        os.kill(killed, signal.SIGKILL)
        end(killed, 0)
        node.names()
        eventually(lambda: not prepared & find_processes(node), lambda: prepared & find_processes(node))
        eventually(lambda: len(monitors(node)) == len(gateways(node)) == 2, "nothing is prepared again")
        eventually(lambda: len(list((node.state / "places").iterdir())) == 2, lambda: list((node.state / "places").iterdir()))
    end(node.daemon_pid())
    eventually(lambda: not leftovers(node, spaced=False), lambda: leftovers(node, spaced=False))


def test_guest_that_cuts_its_line_is_lost_within_a_minute(own_node):
    node = own_node
    script = "echo up; ip link set eth0 down; sleep 1000"
    waiting = node.popen("run", "-u", "root", "--", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    timed = node.space("run", "-u", "root", "--timeout", "5", "--", "sh", "-c", script)
    assert (timed.returncode, timed.stdout) == (124, b"up\n")
    asked = node.popen("run", "-u", "root", "--", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert asked.stdout.readline() == b"up\n"
    asked.send_signal(signal.SIGTERM)
    asked.communicate(timeout=60)
    assert asked.returncode in (125, 128 + signal.SIGTERM)
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (125, b"up\n")
    assert err.startswith(b"space: ") and err.count(b"\n") == 1
    assert_clean(node)


def break_off(node, i, how, rng):
    """One run that is broken off some way; returns how it ended."""
    process = node.popen(
        "run", "--name", "r%d" % i, "--memory", "256", *([] if i % 2 else ["--no-network"]), *(["--cold"] if i % 3 == 0 else []), "--",
        "sh", "-c", "while :; do echo line; sleep 0.2; done", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        process.wait(timeout=rng.uniform(0.05, 8 if i % 3 == 0 else 1))
    except subprocess.TimeoutExpired:
        if how == "interrupt":
            process.send_signal(signal.SIGINT)
            threading.Event().wait(0.1)
            process.send_signal(signal.SIGINT)
        elif how == "kill":
            process.kill()
        elif how in ("monitor", "gateway"):
            pids = monitors(node) if how == "monitor" else gateways(node)
            if pids:
                os.kill(rng.choice(pids), signal.SIGKILL)
            else:
                process.kill()
        else:
            node.space("rm", "-f", "r%d" % i)
    if how in ("monitor", "gateway"):
        # Somebody's monitor died, perhaps not ours.
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait(timeout=DEADLINE)
    process.stderr.close()
    return how, process.returncode


def test_spaced_holds_nothing_of_its_starter(own_node):
    read_end, write_end = os.pipe()
    assert own_node.popen("ls", pass_fds=[write_end], stdout=subprocess.DEVNULL).wait(timeout=30) == 0
    os.close(write_end)
    assert own_node.daemon_pid()
    ended, _, _ = select.select([read_end], [], [], 10)
    assert ended and os.read(read_end, 1) == b"", "spaced still has the other end"
    os.close(read_end)


def test_guest_that_fills_the_hosts_disk_hears_of_it_and_goes_on(own_node):
    scratch = own_node.state / "scratch"
    scratch.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m,mode=700", "none", scratch], check=True)
    try:
        own_node.ok("run", "-d", "--name", "w", "--no-network", "--", "sleep", "100000")
        done = own_node.space("exec", "w", "--", "dd", "if=/dev/zero", "of=big", "bs=1M", "count=500", "conv=fsync", timeout=120)
        assert done.returncode == 1 and b"rror" in done.stderr, done
        assert own_node.ok("exec", "w", "--", "sh", "-c", "rm big && echo fine", timeout=60) == "fine\n"
        own_node.ok("rm", "-f", "w")
    finally:
        own_node.stop()
        subprocess.run(["umount", "-l", scratch], check=True)


def test_runs_broken_off_at_any_moment_leave_nothing(own_node):
    node = own_node
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    ways = ["interrupt", "kill", "monitor", "gateway", "rm"]
    node.names()  # starts spaced
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(break_off, node, i, ways[i % len(ways)], random.Random(rng.random())) for i in range(SOAK)]
        for job in jobs:
            print(job.result())
    assert_clean(node)
    eventually(lambda: not namespaces(node), "a namespace is left")
    node.ok("audit", "verify")
    assert node.ok("run", "--no-network", "--", "echo", "fine") == "fine\n"


def test_daemon_killed_at_any_moment_leaves_nothing(own_node):
    node = own_node
    rng = random.Random()
    for i in range(max(4, SOAK // 2)):
        cold = i % 2 == 1
        node.names()  # starts spaced
        pid = node.daemon_pid()
        runs = [
            node.popen(
                "run", "--name", "k%d-%d" % (i, j), "--memory", "256", *(["--cold"] if cold else []), "--", "sleep", "1000", stderr=subprocess.PIPE,
            )
            for j in range(2)
        ]  # fmt: skip
        moment = rng.uniform(0, 4 if cold else 0.4)
        threading.Event().wait(moment)
        family = find_processes(node)
        os.kill(pid, signal.SIGKILL)
        for run in runs:
            run.communicate(timeout=DEADLINE)
            assert run.returncode == 125, (moment, run.returncode)
        assert node.names() == [], moment
        for p in family:
            end(p, 0)
        assert_clean(node)
    assert not namespaces(node)
    node.ok("audit", "verify")


def test_ten_sandboxes_at_once(own_node):
    node = own_node
    script = "echo $ME >/tmp/me; sleep 3; cat /tmp/me; ls /tmp | wc -l; ps -eo args | grep -c '[s]h -c echo'"

    def one(i):
        return node.space(
            "run", "--name", "n%d" % i, "--memory", "256", "-e", "ME=%d" % i, "--", "sh", "-c", script, timeout=600
        )

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        done = list(pool.map(one, range(10)))
    for i, d in enumerate(done):
        assert d.returncode == 0, d.stderr
        assert d.stdout.split() == [b"%d" % i, b"1", b"1"]
    assert_clean(node)


def test_many_clients_start_one_daemon(own_node):
    node = own_node
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        done = list(pool.map(lambda _: node.space("ls"), range(12)))
    for d in done:
        assert (d.returncode, d.stderr) == (0, b"")
    assert len(find_processes(node)) == 1
    log = (node.run_dir / "spaced.log").read_text()
    assert log == ""


def test_terminated_daemon_ends_its_sandboxes_first(own_node):
    node = own_node
    run = node.popen("run", "--no-network", "--", "sh", "-c", "echo up; sleep 1000", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout.readline() == b"up\n"
    family = find_processes(node)
    end(node.daemon_pid(), signal.SIGTERM)
    _, err = run.communicate(timeout=DEADLINE)
    assert (run.returncode, err) == (125, b"space: the sandbox was stopped\n")
    for pid in family:
        end(pid, 0)
    assert leftovers(node, spaced=False) == {}
    node.ok("audit", "verify")


def test_stale_socket_is_no_obstacle(own_node):
    node = own_node
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(str(node.run_dir / "spaced.sock"))
    stale.close()
    assert node.names() == []


def test_second_daemon_says_so(own_node):
    node = own_node
    node.names()
    done = subprocess.run([SPACED], env=node.env, capture_output=True, timeout=30)
    assert done.returncode == 125
    assert done.stderr.startswith(b"spaced: another spaced serves ")


def start_error(node, *before):
    done = subprocess.run([*before, SPACED], env=node.env, capture_output=True, timeout=30)
    assert done.returncode == 125
    assert done.stderr.startswith(b"spaced: ") and done.stderr.count(b"\n") == 1
    return done.stderr


def test_daemon_that_cannot_start_says_why(own_node):
    node = own_node
    node.names()
    others_run = {**node.env, "SPACE_RUN_DIR": str(node.root / "run2")}
    done = subprocess.run([SPACED], env=others_run, capture_output=True, timeout=30)
    assert (done.returncode, done.stderr.count(b"\n")) == (125, 1)
    assert b"another spaced writes the audit log" in done.stderr
    end(node.daemon_pid())
    few = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "prlimit", "--nofile=100:100"]
    assert b"open files are needed" in start_error(node, *few)
    (node.state / "space.db").write_bytes(b"garbage" * 100)
    assert b"move it away" in start_error(node)
    (node.state / "space.db").unlink()
    log = node.state / "audit" / "audit.jsonl"
    log.write_bytes(log.read_bytes() + b"garbage\n")
    assert b"move its directory away" in start_error(node)
    shutil.rmtree(log.parent)
    assert node.names() == []


def test_detached_sandbox_is_there_until_it_is_removed(own_node):
    node = own_node
    node.ok("run", "-d", "--name", "d", "--no-network", "--", "sh", "-c", "echo out; exit 5")
    eventually(lambda: node.inspect("d")["state"] == "exited", "it does not end")
    assert node.inspect("d")["exitCode"] == 5
    assert node.ok("logs", "d") == "out\n"
    assert [b["state"] for b in json.loads(node.ok("ls", "--json"))] == ["exited"]
    # The record outlives the daemon, the microVM does not outlive the task.
    eventually(lambda: len(find_processes(node)) == 1, "its monitor lives")
    end(node.daemon_pid(), signal.SIGKILL)
    assert node.inspect("d")["exitCode"] == 5
    node.ok("rm", "d")
    assert_clean(node)
    node.ok("run", "-d", "--rm", "--name", "e", "--no-network", "--", "true")
    eventually(lambda: node.names() == [], "it is not removed")


def test_detached_run_that_failed_leaves_nothing(own_node):
    node = own_node
    done = node.space("run", "-d", "--name", "d", "--no-network", "--", "/nothing/here")
    assert done.returncode not in (0, 124) and done.stderr.count(b"\n") == 1
    assert node.names() == []
    for leave in ("client", "rm", "monitor"):
        # A boot leaves time for it.
        run = node.popen("run", "-d", "--cold", "--name", "d", "--no-network", "--", "sleep", "1000", stderr=subprocess.PIPE)
        eventually(lambda: monitors(node), "no monitor")
        if leave == "client":
            run.kill()
        elif leave == "rm":
            node.ok("rm", "-f", "d")
        else:
            os.kill(monitors(node)[0], signal.SIGKILL)
        _, err = run.communicate(timeout=DEADLINE)
        assert leave == "client" or (run.returncode == 125 and err.count(b"\n") == 1)
        assert_clean(node)


def test_audit_finds_what_was_changed(own_node):
    node = own_node
    node.ok("run", "--no-network", "--", "true")
    node.ok("audit", "verify")
    end(node.daemon_pid())
    saved = {p: p.read_bytes() for p in (node.state / "audit").iterdir()}
    path = max(saved, key=lambda p: len(saved[p]))
    lines = saved[path].splitlines(keepends=True)
    assert len(lines) >= 5
    ways = {
        "changed": lines[:2] + [lines[2].replace(b'"kind":"', b'"kind":"x')] + lines[3:],
        "removed": lines[:2] + lines[3:],
        "moved": lines[:2] + [lines[3], lines[2]] + lines[4:],
        "cut at the front": lines[1:],
        "cut at the end": lines[:-1],
        "nothing": lines,
    }
    for way, changed in ways.items():
        for p, data in saved.items():
            p.write_bytes(data)
        path.write_bytes(b"".join(changed))
        done = node.space("audit", "verify")
        assert done.returncode == (0 if way == "nothing" else 1), (way, done)
        assert done.stderr.count(b"\n") == (0 if way == "nothing" else 1)
        end(node.daemon_pid())
