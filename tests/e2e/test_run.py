# SPDX-License-Identifier: Apache-2.0
"""Tasks in microVMs: what they print, read and end with, whole and in order."""
import concurrent.futures
import hashlib
import os
import platform
import signal
import subprocess

import pytest

from node import DEADLINE, SPACE

MEGABYTES_200 = 200 * 1000 * 1000


@pytest.mark.smoke
def test_run_has_a_kernel_of_its_own(node):
    done = node.space("run", "--no-network", "--", "sh", "-c", "uname -r; id -un; pwd; echo err >&2; exit 7")
    assert done.returncode == 7
    assert done.stderr == b"err\n"
    kernel, user, cwd = done.stdout.decode().splitlines()
    assert kernel != platform.release()
    assert (user, cwd) == ("user", "/home/user")


@pytest.mark.smoke
def test_run_passes_input_on(node):
    done = node.space("run", "-i", "--", "python3", "-", input=b"print(6*7)")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"42\n", b"")


def test_sandbox_has_the_size_that_was_asked_for(node):
    out = node.ok("run", "--cpus", "2", "--memory", "384", "--", "sh", "-c", "nproc; grep MemTotal /proc/meminfo")
    cpus, memory = out.splitlines()
    assert cpus == "2"
    assert 300 * 1024 < int(memory.split()[1]) <= 384 * 1024


def test_time_runs_out(node):
    done = node.space("run", "--timeout", "2", "--no-network", "--", "sh", "-c", "echo up; sleep 1000")
    assert (done.returncode, done.stdout) == (124, b"up\n")
    assert done.stderr.startswith(b"space: ") and done.stderr.count(b"\n") == 1


# The rest runs in one sandbox.


def test_image_has_what_agents_reach_for(node, sandbox):
    tools = "bash python python3 pip curl wget git jq openssl ps ip sudo less file xz unzip"
    node.ok("exec", sandbox, "--", "sh", "-c", "for t in %s; do command -v $t >/dev/null || { echo no $t; exit 1; }; done" % tools)
    node.ok("exec", sandbox, "--", "python3", "-c", "import venv, ssl, sqlite3")
    assert node.ok("exec", sandbox, "--", "sudo", "-n", "id", "-u") == "0\n"


def test_clock_is_right(node, sandbox):
    import time

    inside = float(node.ok("exec", sandbox, "--", "date", "+%s.%N"))
    assert abs(inside - time.time()) < 5


def test_process_is_started_as_said(node, sandbox):
    out = node.ok(
        "exec", "-e", "A=b c", "-w", "/tmp", "-u", "root", sandbox, "--", "sh", "-c", 'echo "$A|$(pwd)|$(id -un)|$HOME|$1|$2"', "x", "a  b", "é",
    )  # fmt: skip
    assert out == "b c|/tmp|root|/root|a  b|é\n"


def test_200_megabytes_of_output(node, sandbox):
    script = (
        "import hashlib,os,sys\nh=hashlib.sha256()\nblock=os.urandom(1000000)\n"
        "for i in range(200):\n b=bytes([i])+block[1:]\n h.update(b)\n sys.stdout.buffer.write(b)\n"
        "sys.stdout.flush()\nsys.stderr.write(h.hexdigest())"
    )
    process = node.popen("exec", sandbox, "--", "python3", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    digest, size = hashlib.sha256(), 0
    while data := process.stdout.read(1 << 20):
        digest.update(data)
        size += len(data)
    assert process.wait(timeout=DEADLINE) == 0
    assert size == MEGABYTES_200
    assert process.stderr.read().decode() == digest.hexdigest()
    process.stdout.close()
    process.stderr.close()


def test_200_megabytes_copied_out_and_in(node, sandbox, tmp_path):
    node.ok("exec", sandbox, "--", "sh", "-c", "head -c %d /dev/urandom >/tmp/big" % MEGABYTES_200)
    want = node.ok("exec", sandbox, "--", "sha256sum", "/tmp/big").split()[0]
    node.ok("cp", sandbox + ":/tmp/big", tmp_path / "big")
    digest = hashlib.sha256()
    with open(tmp_path / "big", "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    assert digest.hexdigest() == want
    (tmp_path / "big").chmod(0o750)
    node.ok("cp", tmp_path / "big", sandbox + ":/tmp/back")
    assert node.ok("exec", sandbox, "--", "sha256sum", "/tmp/back").split()[0] == want
    assert node.ok("exec", sandbox, "--", "stat", "-c", "%a", "/tmp/back") == "750\n"
    node.ok("exec", "-u", "root", sandbox, "--", "rm", "/tmp/big", "/tmp/back")


def test_a_million_short_lines(node, sandbox):
    process = node.popen("exec", sandbox, "--", "seq", "1000000", stdout=subprocess.PIPE)
    expected = 1
    for line in process.stdout:
        assert int(line) == expected
        expected += 1
    assert process.wait(timeout=DEADLINE) == 0
    assert expected == 1000001
    process.stdout.close()


def test_both_streams_at_once_are_whole(node, sandbox):
    done = node.space("exec", sandbox, "--", "sh", "-c", "seq 100000 & seq 100000 >&2; wait")
    want = b"".join(b"%d\n" % i for i in range(1, 100001))
    assert done.stdout == want
    assert done.stderr == want


def test_every_byte_passes_both_ways(node, sandbox):
    data = bytes(range(256)) * 4096
    done = node.space("exec", "-i", sandbox, "--", "cat", input=data)
    assert (done.returncode, done.stdout) == (0, data)


def test_early_close_of_output_is_no_end(node, sandbox):
    done = node.space("exec", sandbox, "--", "sh", "-c", "echo first; exec >&-; sleep 0.2; echo later >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"first\n", b"later\n")


def test_input_that_nobody_reads(node, sandbox):
    process = node.popen("exec", "-i", sandbox, "--", "true", stdin=subprocess.PIPE)
    assert process.wait(timeout=DEADLINE) == 0
    process.stdin.close()
    done = node.space("exec", "-i", sandbox, "--", "head", "-c", "3", input=b"abc" * 1000000)
    assert (done.returncode, done.stdout) == (0, b"abc")


def test_reader_that_leaves_ends_the_process(node, sandbox):
    done = subprocess.run(
        ["/bin/bash", "-c", '"$0" exec "$1" -- yes | head -n 1; echo ${PIPESTATUS[0]}', SPACE, sandbox],
        env=node.env, capture_output=True, timeout=DEADLINE,
    )  # fmt: skip
    assert done.stdout == b"y\n141\n"
    node.ok("exec", sandbox, "--", "sh", "-c", "for i in $(seq 100); do pgrep -x yes >/dev/null || exit 0; sleep 0.1; done; exit 1")


def test_every_exit_code(node, sandbox):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda n: node.space("exec", sandbox, "--", "sh", "-c", "exit %d" % n).returncode, range(256)))
    assert codes == list(range(256))


def test_death_by_each_signal(node, sandbox):
    harmless = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
    stopping = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    numbers = [n for n in range(1, 32) if n not in harmless | stopping] + [34, 64]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        codes = list(
            pool.map(lambda n: node.space("exec", sandbox, "--", "sh", "-c", "kill -%d $$; exec sleep 60" % n).returncode, numbers)
        )
    assert codes == [128 + n for n in numbers]


def test_commands_that_cannot_run(node, sandbox):
    cases = [("no-such-command", 127), ("/nope/x", 127), ("/etc/passwd", 126), ("/tmp", 126)]
    for command, code in cases:
        done = node.space("exec", sandbox, "--", command)
        assert (done.returncode, done.stdout) == (code, b""), command
        assert done.stderr.count(b"\n") == 1 and command.encode() in done.stderr


def test_interrupt_reaches_the_task(node, sandbox):
    script = 'trap "echo caught; exit 9" INT; echo up; while :; do sleep 0.1; done'
    process = node.popen("exec", sandbox, "--", "sh", "-c", script, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == b"caught\n"
    assert process.wait(timeout=DEADLINE) == 9
    process.stdout.close()


def test_orphans_are_reaped(node, sandbox):
    node.ok("exec", sandbox, "--", "sh", "-c", "for i in $(seq 20); do (true & true) & done; wait")
    zombies = node.ok("exec", sandbox, "--", "sh", "-c", "for i in $(seq 50); do ps -eo stat | grep -q ^Z || { echo none; exit; }; sleep 0.1; done; ps -eo stat,args | grep ^Z")
    assert zombies == "none\n"


def test_files_of_a_sandbox_are_its_own(node, sandbox):
    node.ok("exec", "-u", "root", sandbox, "--", "sh", "-c", "echo mine >/etc/issue; touch /usr/bin/mark")
    assert node.ok("run", "--no-network", "--", "sh", "-c", "cat /etc/issue; ls /usr/bin/mark 2>&1; true").count("mine") == 0


def test_logs_keep_what_was_printed(node):
    name = "logs-%d" % os.getpid()
    node.ok("run", "-d", "--name", name, "--no-network", "--", "sh", "-c", "seq 1000; echo end >&2; exit 4")
    try:
        done = node.space("logs", "-f", name)
        assert done.returncode == 0
        assert done.stdout == b"".join(b"%d\n" % i for i in range(1, 1001))
        assert done.stderr == b"end\n"
        tail = node.space("logs", "--tail", "3", name)
        assert (tail.stdout, tail.stderr) == (b"999\n1000\n", b"end\n")
        box = node.inspect(name)
        assert (box["state"], box["exitCode"]) == ("exited", 4)
    finally:
        node.space("rm", "-f", name)
    assert node.space("logs", name).returncode == 125
