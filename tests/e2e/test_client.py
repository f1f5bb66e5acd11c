# SPDX-License-Identifier: Apache-2.0
"""The command line at its edges, against a scripted server: output, input, signals, exit codes, errors. No VM."""
import base64
import fcntl
import hashlib
import json
import os
import pty
import signal
import subprocess
import threading

import pytest

from node import SPACE
from scripted import Script


@pytest.fixture
def script():
    s = Script()
    yield s
    s.close()


def env(script, **more):
    return {**os.environ, "SPACE_RUN_DIR": script.dir.name, "LC_ALL": "C", **more}


def space(script, *args, input=b"", timeout=60, more={}, **kw):
    return subprocess.run(
        [SPACE, *args], input=input, env=env(script, **more), capture_output=True, timeout=timeout, **kw
    )


def popen(script, *args, **kw):
    return subprocess.Popen([SPACE, *args], env=env(script), **kw)


def run_answer(script, *steps):
    """POST /run answers sandbox, start, the steps, the end of the stream."""

    @script.on("POST /run")
    def answer(r):
        r.stream()
        r.sandbox()
        r.start()
        for step in steps:
            step(r)
        r.finish()


def wait_for(script, key, timeout=30):
    """Until a call of that key was recorded."""
    import time

    deadline = time.monotonic() + timeout
    while key not in script.keys():
        script.called.clear()
        if key in script.keys():
            return
        assert script.called.wait(max(0, deadline - time.monotonic())), (key, script.keys())


# Output


def test_streams_stay_apart(script):
    run_answer(
        script,
        lambda r: r.out(b"out\0\xff\r\n"),
        lambda r: r.out(b"err", "stderr"),
        lambda r: r.out(b"more"),
        lambda r: r.exited(),
    )
    done = space(script, "run", "--", "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\0\xff\r\nmore", b"err")


def test_streams_keep_their_common_order_on_one_file(script):
    steps = []
    want = b""
    for i in range(200):
        line = b"%d\n" % i
        want += line
        steps.append(lambda r, line=line, name="stderr" if i % 3 else "stdout": r.out(line, name))
    run_answer(script, *steps, lambda r: r.exited())
    done = subprocess.run(
        [SPACE, "run", "x"], env=env(script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    assert done.stdout == want


def test_200_megabytes_pass_whole(script):
    block = os.urandom(32 * 1024)
    count = 200 * 32
    digest = hashlib.sha256(block * 32).hexdigest()

    def pour(r):
        for _ in range(count):
            r.out(block)

    run_answer(script, pour, lambda r: r.exited())
    process = popen(script, "run", "x", stdout=subprocess.PIPE)
    got, first = 0, hashlib.sha256()
    while data := process.stdout.read(1 << 20):
        if got < 1 << 20:
            first.update(data[: (1 << 20) - got])
        got += len(data)
    assert process.wait(timeout=60) == 0
    assert (got, first.hexdigest()) == (count * len(block), digest)


def test_slow_reader_stops_the_stream_and_memory_stays_small(script):
    sent = [0]

    def pour(r):
        for _ in range(4000):
            r.out(b"x" * 32768)
            sent[0] += 32768

    run_answer(script, pour, lambda r: r.exited())
    process = popen(script, "run", "x", stdout=subprocess.PIPE)
    process.stdout.read(100000)
    # The sender is stopped when what it has sent no longer grows; it fills socket and pipe within this time or not at all.
    before = -1
    tick = threading.Event()
    while before != sent[0]:
        before = sent[0]
        tick.wait(0.5)
    assert sent[0] < 16 << 20
    status = open("/proc/%d/status" % process.pid).read()
    rss = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    assert rss < 64 * 1024, "VmHWM %d kB" % rss
    rest = process.stdout.read()
    assert process.wait(timeout=60) == 0
    assert len(rest) + 100000 == 4000 * 32768


def test_reader_that_leaves_ends_the_run(script):
    deleted = threading.Event()

    @script.on("POST /run")
    def answer(r):
        r.stream()
        r.sandbox()
        r.start()
        while not deleted.is_set():
            r.out(b"y\n" * 1000)

    @script.on("DELETE /sandboxes/sb1")
    def delete(r):
        deleted.set()
        r.raw(204, b"")

    process = popen(script, "run", "x", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE
    assert deleted.is_set()
    assert process.stderr.read() == b""


def test_output_that_cannot_be_written_is_an_error(script):
    run_answer(script, lambda r: r.out(b"x" * 100), lambda r: r.exited())
    script.on("DELETE /sandboxes/sb1")(lambda r: r.raw(204, b""))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [SPACE, "run", "x"], env=env(script), stdout=full, stderr=subprocess.PIPE, timeout=30
        )
    assert done.returncode == 125
    assert done.stderr == b"space: cannot write to standard output: No space left on device\n"


def test_shared_pipe_is_left_as_it_was(script):
    run_answer(script, lambda r: r.out(b"x" * 200000), lambda r: r.exited())
    read_end, write_end = os.pipe()
    stdin, quiet = os.pipe()
    before = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (write_end, stdin)]
    process = popen(script, "run", "-i", "x", stdout=write_end, stdin=stdin)
    got = 0
    while got < 200000:
        got += len(os.read(read_end, 65536))
    process.wait(timeout=30)
    assert [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (write_end, stdin)] == before
    for fd in (read_end, write_end, stdin, quiet):
        os.close(fd)


def test_closed_standard_streams_do_no_harm(script):
    run_answer(script, lambda r: r.out(b"x"), lambda r: r.exited(3))
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" run x <&- >&- 2>&-', str(SPACE)], env=env(script), timeout=30, capture_output=True
    )
    assert done.returncode == 3


def test_json_prints_events(script):
    run_answer(script, lambda r: r.out(b"hi"), lambda r: r.exited(4))
    done = space(script, "run", "--json", "x")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [next(iter(line)) for line in lines] == ["sandbox", "start", "data", "end"]
    assert base64.b64decode(lines[2]["data"]["stdout"]) == b"hi"
    assert done.returncode == 4


# Exit codes


@pytest.mark.parametrize("code", [0, 1, 2, 77, 124, 125, 126, 127, 128, 200, 255])
def test_exit_code_is_the_tasks(script, code):
    run_answer(script, lambda r: r.exited(code))
    done = space(script, "run", "x")
    assert (done.returncode, done.stderr) == (code, b"")


def test_first_end_of_a_process_counts(script):
    run_answer(script, lambda r: r.exited(3), lambda r: r.exited(0), lambda r: r.killed(9))
    assert space(script, "run", "x").returncode == 3


@pytest.mark.parametrize("number", [1, 2, 6, 9, 11, 15, 64])
def test_death_by_signal_is_128_and_its_number(script, number):
    run_answer(script, lambda r: r.killed(number))
    assert space(script, "run", "x").returncode == 128 + number


@pytest.mark.parametrize(
    "code, message, started, want",
    [
        ("deadline_exceeded", "the task's time is over", True, 124),
        ("aborted", "the sandbox was stopped", True, 125),
        ("unavailable", "the sandbox was lost", True, 125),
        ("invalid_argument", "nope: not found", False, 127),
        ("invalid_argument", "/bin/x: its interpreter does not exist", False, 127),
        ("invalid_argument", "/etc/passwd: Permission denied", False, 126),
        ("invalid_argument", "/x: Exec format error", False, 126),
        ("invalid_argument", "cwd '/nope' does not exist", False, 125),
        ("unauthenticated", "invalid username: 'nobody2'", False, 125),
    ],
)
def test_errors_of_the_stream_have_their_codes(script, code, message, started, want):
    @script.on("POST /run")
    def answer(r):
        r.stream()
        r.sandbox()
        if started:
            r.start()
        r.finish(code, message)

    done = space(script, "run", "x")
    assert (done.returncode, done.stderr.decode()) == (want, "space: %s\n" % message)
    if want == 124:
        assert space(script, "run", "-q", "x").stderr == b""


def test_stream_that_breaks_is_an_error(script):
    @script.on("POST /run")
    def answer(r):
        r.stream()
        r.sandbox()
        r.start()
        r.out(b"half")
        r.close_connection = True
        r.connection.shutdown(2)

    done = space(script, "run", "x")
    assert (done.returncode, done.stdout) == (125, b"half")
    assert done.stderr.startswith(b"space: lost the connection to spaced")
    assert done.stderr.count(b"\n") == 1


def test_refusal_is_one_safe_line(script):
    script.on("POST /run")(lambda r: r.json(400, {"code": 400, "message": "bad\nthing \x1b[31m\u202e"}))
    done = space(script, "run", "x")
    assert (done.returncode, done.stderr) == (125, b"space: bad\\nthing \\x1b[31m\\u{202e}\n")


@pytest.mark.parametrize("garbage", [b"\x01\0\0\0\x02{}", b"\0\xff\xff\xff\xff", b"\0\0\0\0\x02[}", b"\2\0\0\0\0"])
def test_garbage_from_the_server_is_an_error(script, garbage):
    @script.on("POST /run")
    def answer(r):
        r.stream()
        r.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(garbage), garbage))

    done = space(script, "run", "x")
    assert done.returncode == 125
    assert done.stderr.startswith(b"space: spaced's answer cannot be read")


# Input


def accept_input(script, got, finish):
    def piece(r):
        body = json.loads(r.body)
        got.append(base64.b64decode(body["input"]["stdin"]))
        assert body["process"]["pid"] == 7
        assert r.headers["E2b-Sandbox-Id"] == "sb1"
        r.json(200, {})

    def close(r):
        r.json(200, {})
        finish.set()

    script.answers["POST /process.Process/SendInput"] = piece
    script.answers["POST /process.Process/CloseStdin"] = close


@pytest.mark.parametrize("from_file", [False, True])
def test_input_arrives_whole_and_in_order(script, tmp_path, from_file):
    data = os.urandom(3_000_001)
    got, finish = [], threading.Event()
    accept_input(script, got, finish)
    run_answer(script, lambda r: finish.wait(30), lambda r: r.exited())
    if from_file:
        (tmp_path / "in").write_bytes(data)
        with open(tmp_path / "in", "rb") as f:
            done = subprocess.run([SPACE, "run", "-i", "x"], env=env(script), stdin=f, timeout=60)
    else:
        done = space(script, "run", "-i", "x", input=data)
    assert done.returncode == 0
    assert b"".join(got) == data
    assert max(map(len, got)) <= 65536
    connections = {c[4] for c in script.calls if "Input" in c[0] or "Close" in c[0]}
    assert len(connections) == 1
    assert json.loads(script.bodies("POST /run")[0])["stdin"] is True


def test_input_is_not_read_without_i(script):
    run_answer(script, lambda r: r.exited())
    read_end, write_end = os.pipe()
    os.write(write_end, b"kept")
    process = popen(script, "run", "x", stdin=read_end)
    assert process.wait(timeout=30) == 0
    assert os.read(read_end, 10) == b"kept"
    assert json.loads(script.bodies("POST /run")[0])["stdin"] is False


def test_task_that_does_not_read_does_not_hang_us(script):
    ended = threading.Event()
    script.answers["POST /process.Process/SendInput"] = lambda r: ended.wait(30)
    run_answer(script, lambda r: wait_for(script, "POST /process.Process/SendInput"), lambda r: r.exited(5))
    process = popen(script, "run", "-i", "x", stdin=subprocess.PIPE)
    process.stdin.write(b"x" * 10)
    process.stdin.flush()
    assert process.wait(timeout=20) == 5
    ended.set()


def test_task_that_closed_its_input_goes_on(script):
    script.answers["POST /process.Process/SendInput"] = lambda r: r.json(
        500, {"code": "internal", "message": "input is closed"}
    )
    run_answer(
        script,
        lambda r: wait_for(script, "POST /process.Process/SendInput"),
        lambda r: r.out(b"on"),
        lambda r: r.exited(),
    )
    done = space(script, "run", "-i", "x", input=b"a" * 200000)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"on", b"")


def test_input_from_a_terminal(script):
    got, finish = [], threading.Event()
    accept_input(script, got, finish)
    run_answer(script, lambda r: finish.wait(30), lambda r: r.exited())
    leader, follower = pty.openpty()
    process = popen(script, "run", "-i", "x", stdin=follower)
    os.write(leader, b"one\n")
    wait_for(script, "POST /process.Process/SendInput")
    os.write(leader, b"\x04")
    assert process.wait(timeout=30) == 0
    assert got == [b"one\n"]
    os.close(leader)
    os.close(follower)


# Signals


def signalled(script, *, reply=lambda r: r.json(200, {})):
    """A run that ends when its process is sent a signal."""
    number = []
    told = threading.Event()

    @script.on("POST /process.Process/SendSignal")
    def send(r):
        body = json.loads(r.body)
        assert body["group"] is True
        number.append(body["signal"])
        reply(r)
        told.set()

    run_answer(
        script, lambda r: r.out(b"up\n"), lambda r: told.wait(30), lambda r: r.killed(number[0])
    )
    return number


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_goes_to_the_task(script, sig):
    number = signalled(script)
    process = popen(script, "run", "x", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(sig)
    assert process.wait(timeout=30) == 128 + sig
    assert number == [sig]
    process.stdout.close()


def test_second_interrupt_ends_the_sandbox(script):
    first = threading.Event()
    deleted = threading.Event()

    @script.on("POST /process.Process/SendSignal")
    def send(r):
        r.json(200, {})
        first.set()

    @script.on("DELETE /sandboxes/sb1")
    def delete(r):
        deleted.set()
        r.raw(204, b"")

    run_answer(script, lambda r: r.out(b"up\n"), lambda r: deleted.wait(30), lambda r: r.gone())
    process = popen(script, "run", "x", stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert first.wait(30)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert deleted.is_set()
    process.stdout.close()


def test_interrupt_before_the_task_runs_ends_the_sandbox(script):
    deleted = threading.Event()

    @script.on("POST /run")
    def answer(r):
        r.stream()
        r.sandbox()
        deleted.wait(30)

    @script.on("DELETE /sandboxes/sb1")
    def delete(r):
        deleted.set()
        r.raw(204, b"")

    process = popen(script, "run", "--json", "x", stdout=subprocess.PIPE)
    assert b"sb1" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert deleted.is_set()
    process.stdout.close()


def test_interrupt_before_the_sandbox_is_known_drops_the_connection(script):
    came, gone = threading.Event(), threading.Event()

    @script.on("POST /run")
    def answer(r):
        came.set()
        r.gone()
        gone.set()

    process = popen(script, "run", "x")
    assert came.wait(30)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert gone.wait(30)


def test_ignored_hangup_stays_ignored(script):
    leave = threading.Event()
    run_answer(script, lambda r: r.out(b"up\n"), lambda r: leave.wait(30), lambda r: r.exited())
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'trap "" HUP; exec "$0" run x', str(SPACE)], env=env(script), stdout=subprocess.PIPE
    )
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    leave.set()
    assert process.wait(timeout=30) == 0
    assert "POST /process.Process/SendSignal" not in script.keys()
    process.stdout.close()


def test_second_interrupt_of_exec_kills_the_process_alone(script):
    signals = []
    first, second = threading.Event(), threading.Event()

    @script.on("POST /process.Process/SendSignal")
    def send(r):
        signals.append(json.loads(r.body)["signal"])
        r.json(200, {})
        (second if first.is_set() else first).set()

    @script.on("POST /process.Process/Start")
    def answer(r):
        r.stream()
        r.start()
        r.out(b"up\n")
        second.wait(30)
        r.gone()

    process = popen(script, "exec", "w", "x", stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert first.wait(30)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert signals == [2, 9]
    assert not any(k.startswith("DELETE") for k in script.keys())
    process.stdout.close()


# Requests


def test_run_sends_what_the_flags_say(script, tmp_path):
    run_answer(script, lambda r: r.exited())
    policy = tmp_path / "p.yaml"
    policy.write_text("egress:\n  - host: a.example\n")
    (tmp_path / "vars").write_text("# c\nFROM_FILE=1\nFROM_OURS\n")
    done = space(
        script, "run", "--image=i", "--name", "n", "--cpus", "2", "--memory", "1G", "--timeout", "1m",
        "-eA=1", "-e", "FROM_OURS", "--env-file", str(tmp_path / "vars"), "-w", "/w", "-u", "root",
        "--allow-host", "b.example:8443", "--allow-host=http://c.example", "--policy", str(policy),
        "--secret", "TOKEN@a.example,b.example", "--rm=false", "--cold", "--idle-timeout", "5m", "--on-timeout=pause",
        "--", "cmd", "-x", "--", "--name",
        more={"TOKEN": "hunter2", "FROM_OURS": "o"},
    )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(script.bodies("POST /run")[0]) == {
        "image": "i", "name": "n", "cpus": 2, "memoryMB": 1024, "timeout": 60.0,
        "process": {
            "cmd": "cmd", "args": ["-x", "--", "--name"], "cwd": "/w",
            "envs": {"A": "1", "FROM_OURS": "o", "FROM_FILE": "1"},
        },
        "cold": True, "idleTimeout": 300.0, "onTimeout": "pause", "user": "root", "detach": False, "remove": False, "network": True, "stdin": False,
        "allow": ["b.example:8443", "http://c.example"],
        "policy": {"name": str(policy), "text": policy.read_text()},
        "secrets": [{"name": "TOKEN", "hosts": ["a.example", "b.example"], "value": "hunter2"}],
    }  # fmt: skip


def test_detached_run_prints_the_id(script):
    script.on("POST /run")(lambda r: r.json(201, {"sandboxID": "sb9", "name": "n", "pid": 3}))
    assert space(script, "run", "-d", "sleep", "1").stdout == b"sb9\n"
    assert json.loads(space(script, "run", "-d", "--json", "x").stdout)["sandboxID"] == "sb9"
    bodies = [json.loads(b) for b in script.bodies("POST /run")]
    assert [b["detach"] for b in bodies] == [True, True]
    assert [b["remove"] for b in bodies] == [False, False]
    space(script, "run", "-d", "--rm", "x")
    assert json.loads(script.bodies("POST /run")[2])["remove"] is True


def test_exec_goes_to_the_agent(script):
    @script.on("POST /process.Process/Start")
    def answer(r):
        r.stream()
        r.start()
        r.out(b"hi")
        r.exited(9)
        r.finish()

    done = space(script, "exec", "-u", "root", "-e", "A=1", "-w", "/", "--timeout", "5", "w", "--", "ps", "ax")
    assert (done.returncode, done.stdout) == (9, b"hi")
    body = script.bodies("POST /process.Process/Start")[0]
    assert body[:1] == b"\0" and int.from_bytes(body[1:5], "big") == len(body) - 5
    assert json.loads(body[5:]) == {
        "process": {"cmd": "ps", "args": ["ax"], "envs": {"A": "1"}, "cwd": "/"}, "stdin": False,
    }  # fmt: skip
    headers = script.calls[-1][3]
    assert headers["E2b-Sandbox-Id"] == "sb1"
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"root:").decode()
    assert headers["Connect-Timeout-Ms"] == "5000"


@pytest.mark.parametrize(
    "state, code, text",
    [
        (None, 125, "the sandbox ended before the command did"),
        ("exited", 125, "the sandbox ended before the command did"),
        ("stopping", 125, "the sandbox ended before the command did"),
        ("paused", 124, "w is paused; 'space resume w' goes on"),
        ("running", 125, "lost the connection to the command, which may still run"),
    ],
)
def test_exec_that_is_cut_off_tells_why(script, state, code, text):
    @script.on("POST /process.Process/Start")
    def answer(r):
        r.stream()
        r.start()
        r.out(b"hi")
        r.close_connection = True
        r.connection.shutdown(2)

    if state:
        script.on("GET /sandboxes/sb1")(lambda r: r.json(200, {"sandboxID": "sb1", "state": state}))
    done = space(script, "exec", "w", "x")
    assert (done.returncode, done.stdout) == (code, b"hi")
    assert done.stderr.decode() == "space: %s\n" % text


def test_exec_whose_spaced_is_gone_tells_that(script):
    started = threading.Event()

    @script.on("POST /process.Process/Start")
    def answer(r):
        r.stream()
        r.start()
        script.server.server_close()
        os.unlink(os.path.join(script.dir.name, "spaced.sock"))
        r.close_connection = True
        r.connection.shutdown(2)
        started.set()

    done = space(script, "exec", "w", "x")
    assert started.is_set()
    assert (done.returncode, done.stderr) == (125, b"space: lost the connection to spaced; the command may still run\n")


# Errors of use: one line, what to do, 125, nothing sent


@pytest.mark.parametrize(
    "args, text",
    [
        (["run"], "no command given"),
        (["run", "--"], "no command given"),
        (["run", "--nope", "x"], "unknown flag --nope"),
        (["run", "-z", "x"], "unknown flag -z"),
        (["run", "--name"], "--name needs a value"),
        (["run", "--name", "a/b", "x"], "--name takes a name"),
        (["run", "--memory", "lots", "x"], "--memory takes a size"),
        (["run", "--cpus", "0", "x"], "--cpus takes a whole number"),
        (["run", "--timeout", "soon", "x"], "--timeout takes a time"),
        (["run", "-t", "x"], "terminals (-t) are not there yet"),
        (["run", "-it", "x"], "terminals (-t) are not there yet"),
        (["run", "-d", "-i", "x"], "-i and -d exclude"),
        (["run", "--no-network", "--allow-host", "a", "x"], "--no-network excludes"),
        (["run", "--secret", "CLI_UNSET@a.example", "x"], "CLI_UNSET is not set"),
        (["run", "--secret", "CLI-UNSET", "x"], "--secret takes NAME, of 'space secret ls', or NAME@HOST"),
        (["run", "--secret", "CLI_UNSET@", "x"], "--secret takes NAME, of 'space secret ls', or NAME@HOST"),
        (["run", "-e", "1=2", "x"], "no name for a variable"),
        (["run", "--policy", "/nonexistent", "x"], "cannot read the policy /nonexistent"),
        (["run", "--env-file", "/nonexistent", "x"], "cannot read /nonexistent"),
        (["exec", "w"], "no command given"),
        (["exec"], "no sandbox given"),
        (["run", "-u", "user:group", "x"], "--user takes a name or a number"),
        (["exec", "-u", "1000:0", "w", "x"], "--user takes a name or a number"),
        (["cp", "-u", "a:b", "a", "w:b"], "--user takes a name or a number"),
        (["cp", "a"], "name a source and a target"),
        (["cp", "a", "b"], "one of the two is SANDBOX:PATH"),
        (["cp", "a:b", "c:d"], "one of the two is SANDBOX:PATH"),
        (["logs"], "name one sandbox"),
        (["logs", "--tail", "x", "w"], "--tail takes a number"),
        (["run", "--memory", "0", "x"], "--memory takes a size"),
        (["run", "--on-timeout", "sleep", "--timeout", "5", "x"], "--on-timeout takes kill or pause"),
        (["run", "--on-timeout", "pause", "x"], "--on-timeout says what --timeout or --idle-timeout does"),
        (["run", "--idle-timeout", "0", "x"], "--idle-timeout takes a time"),
        (["rm"], "no sandbox given"),
        (["pause"], "no sandbox given"),
        (["pause", "--without-secrets", "w"], "unknown flag --without-secrets"),
        (["resume"], "no sandbox given"),
        (["resume", "--secret", "A@a.example", "w"], "--secret takes the NAME alone"),
        (["resume", "--secret", "A", "--without-secrets", "w"], "exclude each other"),
        (["snapshot", "w"], "name a sandbox and what its snapshot is to be called"),
        (["snapshot", "w", "a", "b"], "name a sandbox and what its snapshot is to be called"),
        (["snapshot", "w", "../a"], "a snapshot's name has letters"),
        (["fork"], "name one sandbox"),
        (["fork", "a", "b"], "name one sandbox"),
        (["fork", "-n", "0", "w"], "-n takes a whole number from 1 to 64"),
        (["fork", "-n", "65", "w"], "-n takes a whole number from 1 to 64"),
        (["fork", "--name", "a/b", "w"], "a child's name has letters"),
        (["fork", "--name", "a,,b", "w"], "a child's name has letters"),
        (["fork", "--name", "a,b,a", "w"], "two children can't both be called a"),
        (["fork", "-n", "3", "--name", "a,b", "w"], "-n says 3 children, --name has names for 2"),
        (["fork", "-n", "10", "--name", "x" * 62, "w"], "a child's name has letters"),
        (["template"], "say 'template build IMAGE'"),
        (["template", "build"], "say 'template build IMAGE'"),
        (["template", "build", "a/b"], "say 'template build IMAGE'"),
        (["template", "rm"], "say 'template build IMAGE'"),
        (["template", "ls", "x"], "say 'template build IMAGE'"),
        (["template", "build", "--cpus", "none", "base"], "--cpus takes a whole number"),
        (["template", "ls", "--memory", "1G"], "are for 'template build'"),
        (["template", "build", "-f", "base"], "-f is for 'template rm'"),
        (["ls", "w"], "one word too many"),
        (["audit", "frob"], "say 'audit show"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_do(script, args, text):
    done = space(script, *args)
    assert done.returncode == 125
    assert done.stdout == b""
    line = done.stderr.decode()
    assert line.startswith("space: ") and line.count("\n") == 1 and text in line
    assert "see 'space %s --help'" % args[0] in line
    assert script.keys() == []


def test_unknown_verb_and_help(script):
    done = space(script, "frobnicate")
    assert done.returncode == 125
    assert done.stderr == b"space: there is no verb 'frobnicate'; see 'space help'\n"
    for args in (["--help"], ["help"], ["run", "--help"], ["help", "run"], ["exec", "-h"], ["image", "--help"]):
        done = space(script, *args)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"usage: space" in done.stdout


def test_secret_that_was_typed_by_mistake_is_not_repeated(script):
    done = space(script, "run", "--secret", "TOKEN=hunter2@a.example", "x")
    assert done.returncode == 125
    assert b"hunter2" not in done.stderr


def test_missing_spaced_is_told(tmp_path):
    copy = tmp_path / "bin" / "space"
    copy.parent.mkdir()
    copy.write_bytes(SPACE.read_bytes())
    copy.chmod(0o755)
    fake = tmp_path / "bin" / "spaced"
    fake.write_text("#!/bin/sh\necho 'spaced: no room for it' >&2\nexit 1\n")
    fake.chmod(0o755)
    done = subprocess.run(
        [copy, "ls"], env={**os.environ, "SPACE_RUN_DIR": str(tmp_path / "run")}, capture_output=True, timeout=30
    )
    assert done.returncode == 125
    assert done.stderr.startswith(b"space: spaced did not start: no room for it")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("args", [["exec", "w", "x"], ["cp", "w:/x", "-"], ["cp", "-", "w:/x"]])
@pytest.mark.parametrize("state, text", [
    ("exited", "w has ended: 'space logs w' shows what it printed, 'space rm w' removes it"),
    ("failed", "w has ended: 'space logs w' shows what it printed, 'space rm w' removes it"),
    ("stopping", "w is stopping")])
def test_sandbox_that_does_not_run_is_told(script, args, state, text):
    script.on("GET /sandboxes/w")(lambda r: r.json(200, {"sandboxID": "sb1", "name": "w", "state": state}))
    done = space(script, *args)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (125, b"", "space: %s\n" % text)
    assert script.keys() == ["GET /sandboxes/w"]


# Lists, logs, records


def test_ls_shows_hostile_names_safely(script):
    box = {
        "sandboxID": "sb1", "name": "w", "state": "exited", "exitCode": 3, "image": "base", "cpus": 1,
        "memoryMB": 512, "command": ["sh", "-c", "\x1b]0;x\x07" + "y" * 100], "startedAt": "2026-01-01T00:00:00.000Z",
    }  # fmt: skip
    script.on("GET /sandboxes")(lambda r: r.json(200, [box]))
    table = space(script, "ls").stdout.decode()
    assert "\x1b" not in table and "\\x1b]0;x\\x07yyy" in table and "exited (3)" in table
    head, row = table.splitlines()
    assert head.index("STATE") == row.index("exited")
    assert json.loads(space(script, "ls", "--json").stdout) == [box]
    assert space(script, "ls", "-q").stdout == b"sb1\n"


def test_rm_reports_each_and_force_forgives(script):
    script.on("DELETE /sandboxes/a")(lambda r: r.raw(204, b""))
    script.on("DELETE /sandboxes/b")(lambda r: r.json(404, {"code": 404, "message": "there is no sandbox b"}))
    done = space(script, "rm", "b", "a")
    assert (done.returncode, done.stderr) == (125, b"space: there is no sandbox b\n")
    assert script.keys() == ["DELETE /sandboxes/b", "DELETE /sandboxes/a"]
    assert space(script, "rm", "-f", "b").returncode == 0


@pytest.mark.parametrize("tail, want", [("0", b""), ("1", b"3"), ("2", b"2\n3"), ("99", b"1\n2\n3"), ("all", b"1\n2\n3")])
def test_logs_tail(script, tail, want):
    @script.on("GET /sandboxes/w/logs")
    def answer(r):
        r.stream()
        r.out(b"1\n2")
        r.out(b"\n3")
        r.exited(7)
        r.finish()

    done = space(script, "logs", "--tail", tail, "w")
    assert (done.returncode, done.stdout) == (0, want)
    assert space(script, "logs", "w", "-f").stdout == b"1\n2\n3"
    assert script.calls[-1][1] == "/sandboxes/w/logs?follow=true"


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_ends_followed_logs_and_leaves_the_task_alone(script, sig):
    gone = threading.Event()

    @script.on("GET /sandboxes/w/logs")
    def answer(r):
        r.stream()
        r.sandbox()
        r.start()
        r.out(b"up\n")
        gone.wait(60)
        r.gone()

    process = popen(script, "logs", "-f", "w", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(sig)
    try:
        assert process.wait(timeout=20) == 128 + sig
    finally:
        gone.set()
        process.kill()
        process.stdout.close()
    assert script.keys() == ["GET /sandboxes/w/logs"]


def test_audit_show_and_verify(script):
    record = {"time": "2026-01-01T00:00:00.000Z", "sandbox": "sb1", "kind": "egress.deny", "host": "\x1b[0m", "port": 443}
    text = json.dumps(record).encode() + b"\n"
    script.on("GET /audit")(lambda r: r.raw(200, text * 3))
    shown = space(script, "audit", "show", "w").stdout.decode()
    assert script.calls[-1][1] == "/audit?sandbox=w"
    assert shown.count("\n") == 3 and "\x1b" not in shown and "port=443" in shown
    assert space(script, "audit", "show", "--json").stdout == text * 3
    script.on("GET /audit/verify")(lambda r: r.json(200, {"ok": True, "records": 3, "head": "ab"}))
    assert space(script, "audit", "verify").returncode == 0
    script.on("GET /audit/verify")(lambda r: r.json(200, {"ok": False, "line": 2, "problem": "hash"}))
    done = space(script, "audit", "verify")
    assert (done.returncode, done.stderr) == (1, b"space: the audit log was changed: line 2: hash\n")


# Copies


def test_cp_out_is_whole_or_not_there(script, tmp_path):
    data = os.urandom(5_000_000)
    script.on("GET /files")(lambda r: r.raw(200, data, X_Space_Mode="0750"))
    target = tmp_path / "f"
    assert space(script, "cp", "w:/a/b", str(target)).returncode == 0
    assert target.read_bytes() == data
    assert space(script, "cp", "w:/a/b", str(tmp_path)).returncode == 0
    assert (tmp_path / "b").read_bytes() == data
    assert space(script, "cp", "w:/a/b", "-").stdout == data

    @script.on("GET /files")
    def cut(r):
        r.send_response(200)
        r.send_header("Content-Length", "100")
        r.end_headers()
        r.wfile.write(b"short")
        r.close_connection = True
        r.connection.shutdown(2)

    done = space(script, "cp", "w:/a/b", str(target))
    assert done.returncode == 125
    assert target.read_bytes() == data
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "f"]
    script.on("GET /files")(lambda r: r.json(404, {"code": 404, "message": "path '/a/b' does not exist"}))
    done = space(script, "cp", "w:/a/b", str(tmp_path / "new"))
    assert (done.returncode, done.stderr) == (125, b"space: path '/a/b' does not exist\n")
    assert not (tmp_path / "new").exists()


def test_cp_out_broken_off_leaves_nothing(script, tmp_path):
    started = threading.Event()

    @script.on("GET /files")
    def slow(r):
        r.send_response(200)
        r.send_header("Content-Length", "1000000")
        r.end_headers()
        r.wfile.write(b"x" * 1000)
        started.set()
        r.gone()

    process = popen(script, "cp", "w:/a", str(tmp_path / "f"))
    assert started.wait(30)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert list(tmp_path.iterdir()) == []


def test_cp_in_streams_and_tells_the_mode(script, tmp_path):
    data = os.urandom(5_000_000)
    source = tmp_path / "prog"
    source.write_bytes(data)
    source.chmod(0o755)
    script.on("GET /files")(lambda r: r.json(404, {"code": 404, "message": "path does not exist"}))
    script.on("POST /files")(lambda r: r.json(200, [{"path": "/x", "name": "x", "type": "file"}]))
    assert space(script, "cp", str(source), "w:/tmp/x y&z").returncode == 0
    call = script.calls[-1]
    assert call[1] == "/files?path=/tmp/x%20y%26z"
    assert call[2] == data
    assert call[3]["X-Space-Mode"] == "0755"
    assert call[3]["Content-Type"] == "application/octet-stream"
    assert space(script, "cp", "-u", "root", "-", "w:/tmp/x", input=data).returncode == 0
    assert script.calls[-1][1:3] == ("/files?path=/tmp/x&username=root", data)


def test_cp_in_goes_into_directories(script, tmp_path):
    source = tmp_path / "prog"
    source.write_bytes(b"x")
    script.on("POST /files")(lambda r: r.json(200, [{"path": "/x", "name": "x", "type": "file"}]))
    script.on("GET /files")(lambda r: r.json(400, {"code": 400, "message": "path '/tmp' is a directory"}))
    assert space(script, "cp", str(source), "w:/tmp").returncode == 0
    assert script.calls[-1][1].startswith("/files?path=/tmp/prog")
    assert space(script, "cp", str(source), "w:/var/").returncode == 0
    assert script.calls[-1][1].startswith("/files?path=/var/prog")
    done = space(script, "cp", "-", "w:/tmp", input=b"x")
    assert done.returncode == 125 and b"name the file too" in done.stderr


def test_cp_refuses_directories_and_names_tar(script, tmp_path):
    done = space(script, "cp", str(tmp_path), "w:/tmp")
    assert done.returncode == 125 and b"tar" in done.stderr and done.stderr.count(b"\n") == 1
    script.on("GET /files")(lambda r: r.json(400, {"code": 400, "message": "path '/etc' is a directory"}))
    done = space(script, "cp", "w:/etc", str(tmp_path))
    assert done.returncode == 125 and b"tar" in done.stderr
    assert list(tmp_path.iterdir()) == []
