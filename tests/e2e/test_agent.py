# SPDX-License-Identifier: Apache-2.0
"""space-agent as a server on this machine, without a VM: the protocol, processes and files.

SPACE_BUILD    the build directory whose space-agent is tested (default: the installed one)

Runs as root, for the agent changes users, and uses "nobody" as the user without rights.
"""
import base64
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

if os.environ.get("SPACE_BUILD"):
    AGENT = pathlib.Path(os.environ["SPACE_BUILD"]) / "src/agent/space-agent"
else:
    AGENT = pathlib.Path(os.environ.get("SPACE_PREFIX", "/usr/local")) / "libexec/space/space-agent"

DEADLINE = 60  # seconds, for anything that should be quick
PYTHON = "/usr/bin/python3"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent needs root to change users"),
    pytest.mark.skipif(not AGENT.exists(), reason="no space-agent at %s" % AGENT),
]


class RpcError(Exception):
    def __init__(self, code, message):
        super().__init__("%s: %s" % (code, message))
        self.code, self.message = code, message


class Stream:
    """An event stream: iterates over (flag, message)."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response

    def __iter__(self):
        while True:
            head = self.response.read(5)
            assert len(head) == 5, "the stream has no end"
            flag, size = struct.unpack(">BI", head)
            body = self.response.read(size)
            assert len(body) == size
            yield flag, json.loads(body)
            if flag == 2:
                assert self.response.read() == b""
                return

    def next_event(self):
        return next(iter(self))[1]["event"]

    def close(self):
        self.response.close()
        self.connection.close()


class Result:
    def __init__(self):
        self.pid, self.end, self.stdout, self.stderr, self.events = None, None, b"", b"", []


class Agent:
    def __init__(self, process, port):
        self.process, self.port, self.token = process, port, None

    def connect(self, timeout=DEADLINE):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """Returns (status, body, headers)."""
        headers = dict(headers or {})
        if self.token:
            headers.setdefault("X-Access-Token", self.token)
        c = self.connect()
        with contextlib.closing(c):
            c.request(method, path, body, headers)
            r = c.getresponse()
            return r.status, r.read(), r.headers

    def call(self, method, message, headers=None):
        """A unary call of process.Process."""
        status, body, _ = self.request("POST", "/process.Process/" + method, json.dumps(message).encode(),
                                       {"Content-Type": "application/json", **(headers or {})})
        answer = json.loads(body)
        if status != 200:
            raise RpcError(answer["code"], answer["message"])
        return answer

    def start_raw(self, body, headers=None, timeout=DEADLINE, method="Start"):
        headers = {"Content-Type": "application/connect+json", **(headers or {})}
        if self.token:
            headers.setdefault("X-Access-Token", self.token)
        c = self.connect(timeout)
        c.request("POST", "/process.Process/" + method, body, headers)
        return Stream(c, c.getresponse())

    def join(self, headers=None, **process):
        """A stream of Connect, its start event not yet read."""
        body = json.dumps({"process": process}).encode()
        s = self.start_raw(struct.pack(">BI", 0, len(body)) + body, headers, method="Connect")
        assert s.response.status == 200
        assert s.response.headers["Content-Type"] == "application/connect+json"
        return s

    def joined(self, pid, headers=None):
        s = self.join(headers, pid=pid)
        assert s.next_event() == {"start": {"pid": pid}}
        return s

    def post(self, path, message=None):
        return self.request("POST", path, json.dumps(message) if message is not None else b"")[0]

    def start(self, cmd, *args, envs=None, cwd=None, stdin=False, user=None, timeout_ms=None, headers=None, **more):
        process = {"cmd": cmd, "args": list(args)}
        if envs is not None:
            process["envs"] = envs
        if cwd is not None:
            process["cwd"] = cwd
        message = {"process": process, "stdin": stdin, **more}
        headers = dict(headers or {})
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(user.encode() + b":").decode()
        if timeout_ms is not None:
            headers["connect-timeout-ms"] = str(timeout_ms)
        body = json.dumps(message).encode()
        s = self.start_raw(struct.pack(">BI", 0, len(body)) + body, headers)
        assert s.response.status == 200
        assert s.response.headers["Content-Type"] == "application/connect+json"
        return s

    def run(self, cmd, *args, **kw):
        return collect(self.start(cmd, *args, **kw))

    def sh(self, script, **kw):
        return self.run("/bin/sh", "-c", script, **kw)

    def send(self, pid, data):
        self.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(data).decode()}})

    def pids(self):
        return {p["pid"] for p in self.call("List", {})["processes"]}

    def rss_kib(self):
        for line in pathlib.Path("/proc/%d/status" % self.process.pid).read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])

    def open_files(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))


def collect(stream):
    result = Result()
    out, err = [], []
    with contextlib.closing(stream):
        for flag, message in stream:
            if flag == 2:
                if "error" in message:
                    raise RpcError(message["error"]["code"], message["error"]["message"])
                break
            event = message["event"]
            result.events.append(next(iter(event)))
            if "start" in event:
                result.pid = event["start"]["pid"]
            elif "end" in event:
                result.end = event["end"]
            for kind, data in event.get("data", {}).items():
                raw = base64.b64decode(data, validate=True)
                assert 0 < len(raw) <= 32 * 1024
                (out if kind == "stdout" else err).append(raw)
    result.stdout, result.stderr = b"".join(out), b"".join(err)
    return result


def until(condition, what, deadline=DEADLINE):
    """For states that nothing announces; each look asks the agent or the kernel, which takes its time."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, what


@contextlib.contextmanager
def serving():
    # With sanitizers freed memory is kept for a while: little, so that the test of its size means something.
    env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"}
    p = subprocess.Popen([AGENT, "--serve", "127.0.0.1:0"], stdout=subprocess.PIPE, env=env)
    try:
        assert select.select([p.stdout], [], [], DEADLINE)[0], "the agent says nothing"
        line = p.stdout.readline().decode()
        assert line.startswith("space-agent: ready "), line
        yield Agent(p, int(line.rsplit(":", 1)[1]))
        assert p.poll() is None, "the agent ended by itself: %s" % p.returncode
    finally:
        p.terminate()
        status = p.wait(DEADLINE)
        p.stdout.close()
    assert status == 0


@pytest.fixture(scope="module")
def agent():
    with serving() as a:
        yield a


@pytest.fixture
def own_agent():
    """For tests that change its settings."""
    with serving() as a:
        yield a


# -- processes: what they get --


def test_health(agent):
    status, body, _ = agent.request("GET", "/health")
    assert (status, body) == (204, b"")


def test_arguments_arrive_as_they_are(agent):
    args = ["", " ", "a b", "'", '"', "\\", "$HOME", "*", "ü€😀", "-n", "\n", "\t", "x" * 100000]
    r = agent.run(PYTHON, "-c", "import sys,json; print(json.dumps(sys.argv[1:]))", *args)
    assert json.loads(r.stdout) == args


def test_environment_is_made_of_user_and_request(agent):
    r = agent.run("env", "-0", envs={"A": "1", "EMPTY": "", "U": "ü=€\n", "HOME": "/elsewhere"})
    env = dict(v.split("=", 1) for v in r.stdout.decode().split("\0") if v)
    assert env == {
        "A": "1", "EMPTY": "", "U": "ü=€\n", "HOME": "/elsewhere", "USER": "root", "LOGNAME": "root",
        "SHELL": env["SHELL"], "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }


def test_large_environment_and_too_large_arguments(agent):
    envs = {"V%d" % i: "x" * 1000 for i in range(1000)}
    assert agent.sh('test "${#V999}" = 1000', envs=envs).end["exitCode"] == 0
    with pytest.raises(RpcError, match="too long") as e:
        agent.run("true", "x" * 200000)
    assert e.value.code == "invalid_argument"


def test_directory(agent, tmp_path):
    assert agent.run("pwd").stdout == b"/root\n"
    assert agent.run("pwd", cwd=str(tmp_path)).stdout.decode() == "%s\n" % tmp_path
    assert agent.run("pwd", cwd="~/..").stdout == b"/\n"
    assert agent.run("pwd", cwd="../usr/./bin/").stdout == b"/usr/bin\n"


@pytest.mark.parametrize("cwd, say", [
    ("/nope/x", "cwd '/nope/x' does not exist"),
    ("/etc/passwd", "Not a directory"),
    ("~root", "~"),
])
def test_bad_directory_is_told(agent, cwd, say):
    with pytest.raises(RpcError) as e:
        agent.run("pwd", cwd=cwd)
    assert e.value.code == "invalid_argument" and say in e.value.message


def test_user_is_taken_from_authorization(agent):
    r = agent.sh("id -u; id -g; id -G; echo $HOME $USER $LOGNAME; pwd; ulimit -Sn", user="nobody")
    assert r.stdout.decode().splitlines() == ["65534"] * 3 + ["/nonexistent nobody nobody", "/", "1024"]
    assert agent.sh("id -un", user="root").stdout == b"root\n"
    assert agent.sh("id -un", user="65534").stdout == b"nobody\n"


def test_user_without_rights_has_none(agent):
    r = agent.sh("cat /etc/shadow; grep Cap /proc/self/status", user="nobody")
    assert b"ermission denied" in r.stderr
    assert all(int(line.split()[1], 16) == 0 for line in r.stdout.decode().splitlines()[:3])
    with pytest.raises(RpcError, match="ermission denied"):
        agent.run("pwd", user="nobody", cwd="/root")


@pytest.mark.parametrize("value", ["Basic !!", "Bearer x", "Basic " + base64.b64encode(b"nosuchuser:").decode(),
                                   "Basic", "Basic " + base64.b64encode(b":x").decode()])
def test_unknown_user_is_unauthenticated(agent, value):
    with pytest.raises(RpcError) as e:
        agent.run("true", headers={"Authorization": value})
    assert e.value.code == "unauthenticated"


@pytest.mark.parametrize("cmd, say", [
    ("python4", "python4: not found"),
    ("/no/such", "/no/such: not found"),
    ("/etc/passwd", "/etc/passwd: Permission denied"),
    ("/", "Permission denied"),
])
def test_program_that_can_not_start_is_told(agent, cmd, say):
    with pytest.raises(RpcError) as e:
        agent.run(cmd)
    assert e.value.code == "invalid_argument" and say in e.value.message


def test_missing_interpreter_is_told(agent, tmp_path):
    script = tmp_path / "s"
    script.write_text("#!/no/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(RpcError, match="interpreter"):
        agent.run(str(script))


def test_program_is_found_in_the_path_of_the_task(agent, tmp_path):
    script = tmp_path / "mine"
    script.write_text("#!/bin/sh\necho mine $0\n")
    script.chmod(0o755)
    r = agent.run("mine", envs={"PATH": "/nope:%s" % tmp_path})
    assert r.stdout.decode() == "mine %s\n" % script
    assert agent.run("./mine", cwd=str(tmp_path)).stdout.startswith(b"mine")


def test_process_leads_a_session_and_has_three_descriptors(agent):
    code = ("import os; print(os.getpid()==os.getsid(0)==os.getpgid(0)); fd=os.open('/', 0); "
            "print(fd, sorted(map(int, os.listdir('/proc/self/fd')))[:4])")
    assert agent.run(PYTHON, "-c", code).stdout == b"True\n3 [0, 1, 2, 3]\n"


def test_signals_are_as_programs_expect(agent):
    r = agent.sh("grep -E 'Sig(Blk|Ign)' /proc/self/status")
    assert all(int(line.split()[1], 16) == 0 for line in r.stdout.decode().splitlines())


def test_output_can_be_opened_again_by_the_user(agent):
    r = agent.sh("echo a > /proc/self/fd/1; echo b > /proc/self/fd/2", user="nobody")
    assert (r.stdout, r.stderr) == (b"a\n", b"b\n")


# -- processes: how they end --


def test_every_exit_code(agent):
    def one(n):
        end = agent.sh("exit %d" % n).end
        assert end["exitCode"] == n and end["exited"] is True and end["status"] == "exit status %d" % n
        assert end.get("error") == ("exit status %d" % n if n else None)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(256)))


@pytest.mark.parametrize("number", sorted(set(range(1, 65)) - {
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH,  # ignored by default
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,  # stop by default
    32, 33,  # libc's own
}))
def test_death_by_signal(agent, number):
    end = agent.run(PYTHON, "-c", "import os,signal,resource\nresource.setrlimit(resource.RLIMIT_CORE,(0,0))\n"
                    "if %d in (2, 13, 25): signal.signal(%d, signal.SIG_DFL)\nos.kill(os.getpid(), %d)"
                    % (number, number, number)).end
    assert end["exitCode"] == -1 and end["exited"] is False and end["signal"] == number
    assert end["status"] == end["error"] and end["status"].startswith("signal: ")
    if number == 9:
        assert end["status"] == "signal: killed"
    if number == 15:
        assert end["status"] == "signal: terminated"


def test_end_waits_for_a_grandchild_that_holds_the_output(agent):
    r = agent.sh("exec 3<&0; (cat <&3; echo late) & echo early; exit 7", stdin=True)
    assert r.stdout == b"early\nlate\n" and r.end["exitCode"] == 7


@pytest.mark.parametrize("name", ["SIGNAL_SIGKILL", "SIGNAL_SIGTERM"])
def test_after_a_kill_grandchildren_are_not_awaited(agent, name):
    s = agent.start("/bin/sh", "-c", "sleep 1000 & echo $!; wait")
    pid = s.next_event()["start"]["pid"]
    grandchild = int(base64.b64decode(s.next_event()["data"]["stdout"]))
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": name})
    assert collect(s).end["signal"] == getattr(signal, name[7:])
    os.kill(grandchild, signal.SIGKILL)


def test_signal_to_the_group(agent):
    s = agent.start("/bin/sh", "-c", "sleep 1000 & sleep 1000")
    pid = s.next_event()["start"]["pid"]
    until(lambda: b"sleep" in subprocess.run(["ps", "--ppid", str(pid), "-o", "comm="], capture_output=True).stdout,
          "no child")
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGHUP", "group": True})
    assert collect(s).end["signal"] == 1  # which it would not be told if a sleep still held the pipe


@pytest.mark.parametrize("given, number", [("SIGNAL_SIGUSR1", 10), ("SIGHUP", 1), ("QUIT", 3), (12, 12),
                                           ("SIGNAL_SIGTERM", 15)])
def test_signals_by_name_and_number(agent, given, number):
    s = agent.start("/bin/sh", "-c", "trap 'exit 77' %d; echo ready; while :; do read x < /dev/fd/0; done" % number,
                    stdin=True)
    pid = s.next_event()["start"]["pid"]
    s.next_event()
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": given})
    with contextlib.suppress(RpcError):
        agent.send(pid, b"\n")
    assert collect(s).end["exitCode"] == 77


def test_stop_and_continue(agent):
    s = agent.start("sh", "-c", "echo a; read x; echo b", stdin=True)
    pid = s.next_event()["start"]["pid"]
    s.next_event()
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGSTOP"})
    agent.send(pid, b"\n")
    until(lambda: pathlib.Path("/proc/%d/stat" % pid).read_text().split()[2] == "T", "it does not stop")
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGCONT"})
    assert collect(s).stdout == b"b\n"


@pytest.mark.parametrize("message, code", [
    ({"process": {"pid": 999999}, "signal": "SIGNAL_SIGKILL"}, "not_found"),
    ({"process": {"pid": 1}, "signal": "SIGNAL_SIGKILL"}, "not_found"),
    ({"process": {"tag": "nope"}, "signal": 9}, "not_found"),
    ({"process": {"pid": -1}, "signal": 9}, "invalid_argument"),
    ({"process": {"pid": 0}, "signal": 9}, "invalid_argument"),
    ({"process": {"pid": "1"}, "signal": 9}, "invalid_argument"),
    ({"process": {"pid": 1e300}, "signal": 9}, "invalid_argument"),
    ({"process": {}, "signal": 9}, "invalid_argument"),
    ({"signal": 9}, "invalid_argument"),
    ({"process": {"pid": 1}}, "invalid_argument"),
    ({"process": {"pid": 1}, "signal": 65}, "invalid_argument"),
    ({"process": {"pid": 1}, "signal": 0}, "invalid_argument"),
    ({"process": {"pid": 1}, "signal": "SIGNAL_SIGNAL"}, "invalid_argument"),
    ({"process": {"pid": 1}, "signal": 9, "group": "yes"}, "invalid_argument"),
])
def test_wrong_signal_requests(agent, message, code):
    with pytest.raises(RpcError) as e:
        agent.call("SendSignal", message)
    assert e.value.code == code


def test_deadline_kills(agent):
    s = agent.start("sleep", "1000", timeout_ms=300)
    pid = s.next_event()["start"]["pid"]
    with pytest.raises(RpcError) as e:
        collect(s)
    assert e.value.code == "deadline_exceeded"
    until(lambda: pid not in agent.pids(), "it lives on")


def test_deadline_holds_without_the_client(agent):
    s = agent.start("sleep", "1000", timeout_ms=500)
    pid = s.next_event()["start"]["pid"]
    s.close()
    until(lambda: pid not in agent.pids(), "it lives on")


def test_deadline_counts_for_who_holds_the_output(agent):
    # 21 seconds: less than the client waits, so that a stream that ends without it is seen as that.
    s = agent.start("/bin/sh", "-c", "sleep 21 & echo $!", timeout_ms=500)
    s.next_event()
    held = time.monotonic()
    with pytest.raises(RpcError) as e:
        collect(s)
    assert e.value.code == "deadline_exceeded" and time.monotonic() - held < 15
    assert agent.sh("echo on").stdout == b"on\n"


def test_keepalive(agent):
    s = agent.start("sleep", "2.5", headers={"keepalive-ping-interval": "1"})
    assert collect(s).events == ["start", "keepalive", "keepalive", "end"]


def test_orphans_are_no_concern(agent):
    # In the VM they become ours; here it shows that the reaper takes nothing but its own.
    for _ in range(20):
        assert agent.sh("for i in 1 2 3 4 5; do (true &) ; done; exit 4").end["exitCode"] == 4


def test_hundred_at_once(agent):
    files = agent.open_files()

    def one(i):
        s = agent.start("/bin/sh", "-c", "cat; echo e%d >&2; exit %d" % (i, i), stdin=True)
        pid = s.next_event()["start"]["pid"]
        agent.send(pid, b"in%d\n" % i)
        started.wait(DEADLINE)
        assert pid in agent.pids()
        agent.call("CloseStdin", {"process": {"pid": pid}})
        r = collect(s)
        assert (r.stdout, r.stderr, r.end["exitCode"]) == (b"in%d\n" % i, b"e%d\n" % i, i)

    started = threading.Barrier(100)
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        list(pool.map(one, range(100)))
    assert agent.call("List", {}) == {"processes": []}
    until(lambda: agent.open_files() <= files + 2, "descriptors are left")


def test_list_shows_what_runs(agent):
    s = agent.start("sleep", "1000", cwd="/", envs={"A": "b"}, tag="t1")
    pid = s.next_event()["start"]["pid"]
    listed = [p for p in agent.call("List", {})["processes"] if p["pid"] == pid]
    assert listed == [{"config": {"cmd": "sleep", "args": ["1000"], "cwd": "/", "envs": {"A": "b"}},
                       "pid": pid, "tag": "t1"}]
    agent.call("SendSignal", {"process": {"tag": "t1"}, "signal": "SIGNAL_SIGKILL"})
    assert collect(s).end["signal"] == 9


# -- output --


def test_streams_are_kept_apart_and_ordered(agent):
    r = agent.run(PYTHON, "-c", "import os\nfor i in range(3000):\n os.write(1, b'o%d\\n' % i); os.write(2, b'e%d\\n' % i)")
    assert r.stdout == b"".join(b"o%d\n" % i for i in range(3000))
    assert r.stderr == b"".join(b"e%d\n" % i for i in range(3000))
    assert r.events[0] == "start" and r.events[-1] == "end"


def test_all_bytes_pass(agent):
    r = agent.run(PYTHON, "-c", "import os; os.write(1, bytes(range(256)) * 40); os.write(2, bytes(range(256)))")
    assert r.stdout == bytes(range(256)) * 40 and r.stderr == bytes(range(256))


def test_two_hundred_megabytes(own_agent):
    n = 200 * 1024 * 1024
    code = ("import os,hashlib\nh=hashlib.sha256()\nfor i in range(%d):\n b=(b'%%08d' %% i)*8192\n h.update(b)\n"
            " os.write(1,b)\nos.write(2,h.hexdigest().encode())" % (n // 65536))
    stream = own_agent.start(PYTHON, "-c", code)
    h, size, err = hashlib.sha256(), 0, b""
    for flag, message in stream:
        data = message.get("event", {}).get("data", {}) if flag == 0 else {}
        if "stdout" in data:
            raw = base64.b64decode(data["stdout"])
            h.update(raw)
            size += len(raw)
        if "stderr" in data:
            err += base64.b64decode(data["stderr"])
    assert size == n and h.hexdigest().encode() == err
    assert own_agent.rss_kib() < 96 * 1024  # sanitizers take their share


def test_million_short_lines(agent):
    r = agent.run("seq", "1000000")
    assert hashlib.sha256(r.stdout).digest() == hashlib.sha256(b"".join(b"%d\n" % i for i in range(1, 1000001))).digest()


def test_output_closed_early(agent):
    r = agent.sh("echo first; exec >&-; exec 2>&-; sleep 0.5; exit 9")
    assert r.stdout == b"first\n" and r.end["exitCode"] == 9


def test_slow_reader_stops_the_process(agent):
    s = agent.start(PYTHON, "-c", "import os,sys\nfor i in range(1024): os.write(1, b'x'*65536); os.write(2, b'.')")
    pid = s.next_event()["start"]["pid"]
    last, same = -1, 0
    while same < 20:  # until it stands still
        now = int(pathlib.Path("/proc/%d/io" % pid).read_text().split("wchar: ")[1].split()[0])
        same, last = (same + 1, now) if now == last else (0, now)
        select.select([], [], [], 0.02)
    assert last < 40 * 1024 * 1024
    r = collect(s)
    assert len(r.stdout) == 64 * 1024 * 1024 and len(r.stderr) == 1024


def test_process_outlives_its_client(agent, tmp_path):
    done = tmp_path / "done"
    s = agent.start("/bin/sh", "-c", "echo hello; head -c 30000000 /dev/zero; read x; echo $x > %s" % done, stdin=True)
    pid = s.next_event()["start"]["pid"]
    s.close()
    agent.send(pid, b"word\n")
    until(lambda: pid not in agent.pids(), "it does not end")
    assert done.read_text() == "word\n"


def test_client_that_never_reads_and_leaves(agent):
    s = agent.start("/bin/sh", "-c", "head -c 30000000 /dev/zero; sleep 1000")
    pid = s.next_event()["start"]["pid"]
    s.close()
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    until(lambda: pid not in agent.pids(), "it does not end")


# -- several clients --

FEED = ("import os,sys\nsys.stdin.readline()\n"
        "for i in range(%d): os.write(1, (b'%%08d' %% i) * 8192)\nos.write(2, b'end')")


def feed(blocks):
    """A program that writes so many blocks of 64 KiB when it is told to, and what it writes."""
    return [PYTHON, "-c", FEED % blocks], b"".join((b"%08d" % i) * 8192 for i in range(blocks))


def written(pid):
    return int(pathlib.Path("/proc/%d/io" % pid).read_text().split("wchar: ")[1].split()[0])


def until_it_stands(pid):
    """Until a process that writes all the time waits. Returns how much it has written."""
    last, same = -1, 0
    while same < 20:
        now = written(pid)
        same, last = (same + 1, now) if now == last else (0, now)
        select.select([], [], [], 0.02)
    return last


def test_clients_of_one_process_get_all_the_same(agent):
    argv, expected = feed(96)
    s = agent.start(*argv, stdin=True, tag="shared")
    pid = s.next_event()["start"]["pid"]
    streams = [s] + [agent.joined(pid) for _ in range(3)] + [agent.join(tag="shared")]
    assert streams[-1].next_event()["start"]["pid"] == pid
    agent.send(pid, b"\n")
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for r in pool.map(collect, streams):
            assert r.stdout == expected and r.stderr == b"end" and r.end["exitCode"] == 0


def test_client_that_comes_later_gets_what_follows(agent):
    s = agent.start("/bin/sh", "-c", "echo before; read x; echo after; exit 3", stdin=True)
    pid = s.next_event()["start"]["pid"]
    s.next_event()
    s.close()
    late = agent.joined(pid)
    agent.send(pid, b"\n")
    r = collect(late)
    assert r.stdout == b"after\n" and r.end["exitCode"] == 3


def test_slowest_client_holds_the_process_and_frees_it_by_leaving(agent):
    argv, expected = feed(1024)
    s = agent.start(*argv, stdin=True)
    pid = s.next_event()["start"]["pid"]
    slow = agent.joined(pid)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = pool.submit(collect, s)
        agent.send(pid, b"\n")
        assert until_it_stands(pid) < 40 * 1024 * 1024
        assert not result.done()
        slow.close()
        r = result.result(DEADLINE)
    assert r.stdout == expected and r.stderr == b"end"


def test_slow_client_is_not_cut_short(agent):
    argv, expected = feed(512)
    s = agent.start(*argv, stdin=True)
    pid = s.next_event()["start"]["pid"]
    slow = agent.joined(pid)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = pool.submit(collect, s)
        agent.send(pid, b"\n")
        until_it_stands(pid)
        assert collect(slow).stdout == expected
        assert result.result(DEADLINE).stdout == expected


@pytest.mark.parametrize("message, code", [
    (b"{}", "invalid_argument"), (b"[]", "invalid_argument"), (b"{", "invalid_argument"), (b"null", "invalid_argument"),
    (b'{"process":{}}', "invalid_argument"), (b'{"process":{"pid":0}}', "invalid_argument"),
    (b'{"process":{"pid":"1"}}', "invalid_argument"), (b'{"process":{"tag":5}}', "invalid_argument"),
    (b'{"process":{"pid":999999}}', "not_found"), (b'{"process":{"pid":1}}', "not_found"),
    (b'{"process":{"tag":"nope"}}', "not_found"),
])
def test_wrong_connect_messages(agent, message, code):
    with pytest.raises(RpcError) as e:
        collect(agent.start_raw(envelope(message), method="Connect"))
    assert e.value.code == code


def test_connect_to_one_that_has_ended(agent):
    pid = agent.run("true").pid
    with pytest.raises(RpcError, match="not found") as e:
        collect(agent.join(pid=pid))
    assert e.value.code == "not_found"


def test_time_limit_of_a_connect_ends_the_stream_alone(agent):
    s = agent.start("sleep", "1000")
    pid = s.next_event()["start"]["pid"]
    with pytest.raises(RpcError) as e:
        collect(agent.joined(pid, {"connect-timeout-ms": "200"}))
    assert e.value.code == "deadline_exceeded"
    assert pid in agent.pids()
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert collect(s).end["signal"] == 9


def test_time_limit_of_the_process_is_told_to_all(agent):
    s = agent.start("sleep", "1000", timeout_ms=1000)
    pid = s.next_event()["start"]["pid"]
    for stream in (agent.joined(pid), s):
        with pytest.raises(RpcError) as e:
            collect(stream)
        assert e.value.code == "deadline_exceeded"


def test_keepalive_of_a_connect(agent):
    s = agent.start("sleep", "2.5")
    pid = s.next_event()["start"]["pid"]
    assert "keepalive" in agent.joined(pid, {"keepalive-ping-interval": "1"}).next_event()
    collect(s)


def test_clients_come_and_go(agent):
    files = agent.open_files()
    s = agent.start(PYTHON, "-c", "import os\nwhile True: os.write(1, b'x' * 65536)")
    pid = s.next_event()["start"]["pid"]

    def one(i):
        c = agent.joined(pid)
        for _ in range(i % 7):
            c.next_event()
        c.close()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        reader = pool.submit(lambda: [s.next_event() for _ in range(500)])
        list(pool.map(one, range(60)))
        reader.result(DEADLINE)
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert collect(s).end["signal"] == 9
    until(lambda: agent.open_files() <= files, "descriptors are left")


# -- being frozen and thawed --


def unacknowledged(agent):
    """Bytes in the kernel's queues of the agent's connections."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(r[4].split(":")[0], 16) for r in rows if r[1].endswith(":%04X" % agent.port) and r[3] != "0A")


def test_hold_and_release_are_harmless_when_repeated(own_agent):
    a = own_agent
    assert a.post("/release") == 204
    assert [a.post("/hold"), a.post("/hold", {}), a.post("/release"), a.post("/release", {})] == [204] * 4
    assert a.sh("echo on; exit 4").stdout == b"on\n"
    assert a.request("POST", "/hold", b" " * 100000)[0] == 413


def test_nothing_is_read_while_held_and_nothing_lost(own_agent):
    a = own_agent
    argv, expected = feed(160)
    s = a.start(*argv, stdin=True)
    pid = s.next_event()["start"]["pid"]
    assert a.post("/hold") == 204
    a.send(pid, b"\n")
    assert until_it_stands(pid) < 257 * 1024
    assert a.post("/release") == 204
    r = collect(s)
    assert r.stdout == expected and r.stderr == b"end" and r.end["exitCode"] == 0


def test_what_was_read_has_arrived_when_hold_answers(own_agent):
    a = own_agent
    argv, expected = feed(800)
    s = a.start(*argv, stdin=True)
    pid = s.next_event()["start"]["pid"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = pool.submit(collect, s)
        a.send(pid, b"\n")
        for _ in range(20):
            assert a.post("/hold") == 204
            assert unacknowledged(a) == 0
            assert a.post("/release") == 204
        r = result.result(DEADLINE)
    assert r.stdout == expected and r.stderr == b"end"


def test_hold_waits_for_what_only_the_kernel_holds(own_agent):
    a = own_agent
    body = envelope(json.dumps({"process": {"cmd": "head", "args": ["-c", "90000", "/dev/zero"]}, "stdin": False}).encode())
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", a.port))
        s.sendall(b"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: unacknowledged(a) > 90000, "the kernel does not take it")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            held = pool.submit(a.post, "/hold")
            with pytest.raises(concurrent.futures.TimeoutError):
                held.result(0.3)
            got = b""
            while not got.endswith(b"0\r\n\r\n"):
                got += s.recv(65536)
            assert held.result(DEADLINE) == 204 and unacknowledged(a) == 0


def test_hold_does_not_wait_long_for_a_client_that_does_not_read(own_agent):
    a = own_agent
    s = a.start(PYTHON, "-c", "import os\nwhile True: os.write(1, b'x' * 65536)")
    pid = s.next_event()["start"]["pid"]
    until_it_stands(pid)
    began = time.monotonic()
    assert a.post("/hold") == 204
    assert 0.9 < time.monotonic() - began < 3
    assert a.post("/release") == 204
    a.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    s.close()


def test_hold_whose_caller_leaves(own_agent):
    a = own_agent
    s = a.start(PYTHON, "-c", "import os\nwhile True: os.write(1, b'x' * 65536)")
    pid = s.next_event()["start"]["pid"]
    until_it_stands(pid)
    with socket.create_connection(("127.0.0.1", a.port), DEADLINE) as c:
        c.sendall(b"POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    s.close()
    assert a.post("/hold") == 204
    before = until_it_stands(pid)  # it holds, though the client is gone
    assert a.post("/release") == 204
    until(lambda: written(pid) > before, "it is not released")
    a.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    until(lambda: pid not in a.pids(), "it does not end")


def test_end_during_a_hold_is_kept_for_the_client(own_agent):
    a = own_agent
    s = a.start("/bin/sh", "-c", "read x; echo out; echo err >&2; exit 9", stdin=True)
    pid = s.next_event()["start"]["pid"]
    assert a.post("/hold") == 204
    a.send(pid, b"\n")
    until(lambda: pid not in a.pids(), "it does not end")
    late = a.joined(pid)
    assert a.post("/release") == 204
    for stream in (s, late):
        r = collect(stream)
        assert (r.stdout, r.stderr, r.end["exitCode"]) == (b"out\n", b"err\n", 9)


def test_end_during_a_hold_with_closed_outputs(own_agent):
    a = own_agent
    s = a.start("/bin/sh", "-c", "exec >&- 2>&-; read x; exit 9", stdin=True)
    pid = s.next_event()["start"]["pid"]
    until(lambda: not os.path.exists("/proc/%d/fd/1" % pid), "it does not close")
    assert a.sh("true").end["exitCode"] == 0  # the agent has seen it by now
    assert a.post("/hold") == 204
    a.send(pid, b"\n")
    until(lambda: pid not in a.pids(), "it does not end")
    s.close()
    late = a.joined(pid)
    assert a.post("/release") == 204
    assert collect(late).end["exitCode"] == 9


def test_ended_without_client_is_forgotten_at_release(own_agent):
    a = own_agent
    assert a.post("/release") == 204  # it has begun: its own descriptors are there
    files = a.open_files()
    s = a.start("/bin/sh", "-c", "read x; echo out", stdin=True, tag="t")
    pid = s.next_event()["start"]["pid"]
    s.close()
    assert a.post("/hold") == 204
    a.send(pid, b"\n")
    until(lambda: pid not in a.pids(), "it does not end")
    assert a.post("/release") == 204
    for which in ({"pid": pid}, {"tag": "t"}):
        def gone():
            try:
                a.join(**which).next_event()
            except KeyError:  # an error instead of an event
                return True
        until(gone, "it is not forgotten")
    until(lambda: a.open_files() <= files, "descriptors are left")


def test_killed_during_a_hold(own_agent):
    a = own_agent
    s = a.start("/bin/sh", "-c", "sleep 1000 & echo $!; read x; echo late; wait", stdin=True)
    pid = s.next_event()["start"]["pid"]
    grandchild = int(base64.b64decode(s.next_event()["data"]["stdout"]))
    assert a.post("/hold") == 204
    before = written(pid)
    a.send(pid, b"\n")
    until(lambda: written(pid) > before, "it does not write")
    a.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGKILL"})
    until(lambda: pid not in a.pids(), "it does not end")
    assert a.post("/release") == 204
    r = collect(s)  # which does not wait for the sleep
    assert r.stdout == b"late\n" and r.end["signal"] == 9
    os.kill(grandchild, signal.SIGKILL)


def has_begun(stream):
    """Whether anything has come of its answer but the head."""
    return bool(select.select([stream.connection.sock], [], [], 0.2)[0])


def test_starts_while_held_are_done_at_release_in_order(own_agent):
    a = own_agent
    assert a.post("/hold") == 204
    streams = [a.start("/bin/sh", "-c", "echo hi %d; exit %d" % (i, i)) for i in range(64)]
    assert a.post("/init", {"envVars": {"A": "1"}}) == 204
    with pytest.raises(RpcError) as e:
        a.run("true")
    assert e.value.code == "unavailable"
    assert a.pids() == set() and not has_begun(streams[0])
    assert a.post("/release") == 204
    results = [collect(s) for s in streams]
    assert [(r.stdout, r.end["exitCode"]) for r in results] == [(b"hi %d\n" % i, i) for i in range(64)]
    pids = [r.pid for r in results]
    assert sum(one > next for one, next in zip(pids, pids[1:])) <= 1, pids  # the numbers begin anew at some time
    assert a.post("/hold") == 204
    s = a.start("/bin/sh", "-c", "echo $A", headers={"connect-timeout-ms": "20000"})  # there is room again
    bad = a.start("/no/such")
    assert a.post("/release") == 204
    assert collect(s).stdout == b"1\n"
    with pytest.raises(RpcError, match="not found"):
        collect(bad)


def test_start_whose_client_leaves_during_a_hold_is_not_done(own_agent, tmp_path):
    a = own_agent
    assert a.post("/hold") == 204
    files = a.open_files()
    left = [a.start("touch", str(tmp_path / "left")) for _ in range(64)]
    for s in left:
        s.close()
    until(lambda: a.open_files() <= files, "connections are left")
    stays = a.start("touch", str(tmp_path / "stays"))
    assert a.post("/release") == 204
    assert collect(stays).end["exitCode"] == 0
    assert os.listdir(tmp_path) == ["stays"]


def test_start_of_a_dropped_connection_is_not_done(own_agent, tmp_path):
    a = own_agent
    assert a.post("/hold") == 204
    old = [a.start("touch", str(tmp_path / "old")) for _ in range(64)]
    assert a.post("/init", {"thawed": True}) == 204
    new = a.start("touch", str(tmp_path / "new"))
    assert not has_begun(new)
    assert a.post("/release") == 204
    assert collect(new).end["exitCode"] == 0
    assert os.listdir(tmp_path) == ["new"]
    assert all(closed(s.connection.sock) for s in old)


def test_agent_that_ends_with_starts_deferred(own_agent):
    assert own_agent.post("/hold") == 204
    own_agent.start("true")


def test_what_nobody_releases_is_released(own_agent):
    """Ten seconds after the last word of one who is to release."""
    a = own_agent
    s = a.start("/bin/sh", "-c", "read x; echo out; read x", stdin=True)
    pid = s.next_event()["start"]["pid"]
    assert a.post("/hold") == 204
    a.send(pid, b"\n")
    assert not select.select([s.connection.sock], [], [], 3)[0]
    began = time.monotonic()
    assert a.post("/init", {"thawed": True}) == 204
    late, new = a.joined(pid), a.start("echo", "new")
    assert base64.b64decode(late.next_event()["data"]["stdout"]) == b"out\n"
    assert 9.9 < time.monotonic() - began < 30
    assert collect(new).stdout == b"new\n"
    assert a.sh("echo more").stdout == b"more\n"
    a.send(pid, b"\n")
    assert collect(late).end["exitCode"] == 0


def test_deadline_during_a_hold_is_told_after_it(own_agent):
    a = own_agent
    s = a.start("/bin/sh", "-c", "read x; echo late; sleep 1000", stdin=True, timeout_ms=1000)
    pid = s.next_event()["start"]["pid"]
    assert a.post("/hold") == 204
    a.send(pid, b"\n")
    until(lambda: pid not in a.pids(), "it lives on")
    assert a.post("/init", {"thawed": True}) == 204
    late = a.joined(pid)
    assert a.post("/release") == 204
    assert base64.b64decode(late.next_event()["data"]["stdout"]) == b"late\n"
    with pytest.raises(RpcError) as e:
        collect(late)
    assert e.value.code == "deadline_exceeded"


def closed(connection):
    connection.settimeout(DEADLINE)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def test_thawed_drops_every_other_connection_and_loses_nothing(own_agent):
    a = own_agent
    argv, expected = feed(64)
    s = a.start(*argv, stdin=True)
    pid = s.next_event()["start"]["pid"]
    other = a.joined(pid)
    idle = socket.create_connection(("127.0.0.1", a.port), DEADLINE)
    idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert idle.recv(4096).startswith(b"HTTP/1.1 204")
    upload_begun = socket.create_connection(("127.0.0.1", a.port), DEADLINE)
    upload_begun.sendall(b"POST /process.Process/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                         b"Content-Length: 10\r\n\r\n{")
    assert a.post("/hold") == 204
    a.send(pid, b"\n")
    until_it_stands(pid)

    c = a.connect()
    with contextlib.closing(c):
        for _ in range(2):  # the one that says so lives on, and may say it again
            c.request("POST", "/init", json.dumps({"thawed": True, "accessToken": "new", "envVars": {"A": "2"}}),
                      {"X-Access-Token": "new"})
            assert c.getresponse().read() == b""
    for connection in (s.connection.sock, other.connection.sock, idle, upload_begun):
        assert closed(connection)
    a.token = "new"
    assert until_it_stands(pid) < 257 * 1024  # still held
    first, second = a.joined(pid), a.joined(pid)
    assert a.post("/release") == 204
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for r in pool.map(collect, (first, second)):
            assert r.stdout == expected and r.stderr == b"end" and r.end["exitCode"] == 0
    assert a.sh("echo $A").stdout == b"2\n"


def test_thawed_frees_what_dropped_clients_held_back(own_agent):
    a = own_agent
    s = a.start(PYTHON, "-c", "import os\nwhile True: os.write(1, b'x' * 65536)")
    pid = s.next_event()["start"]["pid"]
    before = until_it_stands(pid)
    assert a.post("/init", {"thawed": True}) == 204
    until(lambda: written(pid) > before, "it waits for one who is gone")
    a.call("SendSignal", {"process": {"pid": pid}, "signal": 9})


def test_deadline_outlives_being_thawed(own_agent):
    a = own_agent
    s = a.start("sleep", "1000", timeout_ms=1000)
    pid = s.next_event()["start"]["pid"]
    assert [a.post("/hold"), a.post("/init", {"thawed": True}), a.post("/release")] == [204] * 3
    with pytest.raises(RpcError) as e:
        collect(a.joined(pid))
    assert e.value.code == "deadline_exceeded"


def test_thawed_is_never_late(own_agent):
    a = own_agent
    assert a.post("/init", {"timestamp": "2026-11-30T17:12:06Z", "envVars": {"A": "1"}}) == 204
    assert a.post("/init", {"timestamp": "2026-11-30T17:00:00Z", "envVars": {"A": "2"}}) == 204
    assert a.sh("echo $A").stdout == b"1\n"
    assert a.post("/init", {"timestamp": "2026-11-30T17:00:00Z", "envVars": {"A": "3"}, "thawed": True}) == 204
    assert a.sh("echo $A").stdout == b"3\n"


@pytest.mark.parametrize("value", ["", "x", "-1", "99999999999999999999999", "1.5", "0"])
def test_time_that_is_none_is_ignored(agent, value):
    assert agent.request("GET", "/health", headers={"X-Space-Time": value})[0] == 204


# -- input --


def test_twenty_megabytes_through_cat(agent):
    s = agent.start("cat", stdin=True)
    pid = s.next_event()["start"]["pid"]
    block = hashlib.sha512(b"seed").digest() * 8192  # 512 KiB

    def feed():
        for i in range(40):
            agent.send(pid, i.to_bytes(4, "big") + block[4:])
        agent.call("CloseStdin", {"process": {"pid": pid}})

    feeder = threading.Thread(target=feed)
    feeder.start()
    r = collect(s)
    feeder.join()
    assert r.stdout == b"".join(i.to_bytes(4, "big") + block[4:] for i in range(40))


def test_input_waits_for_its_reader(agent):
    s = agent.start("/bin/sh", "-c", "read go; cat >/dev/null; echo done", stdin=True)
    pid = s.next_event()["start"]["pid"]
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGSTOP"})
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        sent = pool.submit(agent.send, pid, b"go\n" + b"x" * 2000000)
        with pytest.raises(concurrent.futures.TimeoutError):
            sent.result(0.5)  # more than the pipe holds, and no one reads
        agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGCONT"})
        sent.result(DEADLINE)
    agent.call("CloseStdin", {"process": {"pid": pid}})
    assert collect(s).stdout == b"done\n"


def test_input_past_the_queue_is_refused(agent):
    s = agent.start("sleep", "1000", stdin=True)
    pid = s.next_event()["start"]["pid"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        sends = [pool.submit(agent.send, pid, b"x" * 5000000) for _ in range(6)]
        refused = [f.exception().code for _, f in zip(range(3), concurrent.futures.as_completed(sends, DEADLINE))]
        assert refused == ["resource_exhausted"] * 3
        agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
        assert sorted(f.exception().code for f in sends) == ["internal"] * 3 + ["resource_exhausted"] * 3
    assert collect(s).end["signal"] == 9


def test_input_that_no_one_takes(agent):
    s = agent.start("/bin/sh", "-c", "exec <&-; echo closed; sleep 1000", stdin=True)
    pid = s.next_event()["start"]["pid"]
    s.next_event()
    with pytest.raises(RpcError) as e:
        agent.send(pid, b"x")
    assert e.value.code == "internal"
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    collect(s)
    with pytest.raises(RpcError) as e:
        agent.send(pid, b"x")
    assert e.value.code == "not_found"


def test_input_without_stdin(agent):
    s = agent.start("/bin/sh", "-c", "readlink /proc/self/fd/0; sleep 1000", stdin=False)
    pid = s.next_event()["start"]["pid"]
    assert base64.b64decode(s.next_event()["data"]["stdout"]) == b"/dev/null\n"
    with pytest.raises(RpcError) as e:
        agent.send(pid, b"x")
    assert e.value.code == "internal"
    agent.call("CloseStdin", {"process": {"pid": pid}})
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    collect(s)


@pytest.mark.parametrize("given, code", [({"stdin": "!!!"}, "invalid_argument"), ({"stdin": 5}, "invalid_argument"),
                                         ({"pty": "eA=="}, "internal"), ({}, "unimplemented"), ({"other": "x"}, "unimplemented")])
def test_wrong_input(agent, given, code):
    s = agent.start("sleep", "1000", stdin=True)
    pid = s.next_event()["start"]["pid"]
    with pytest.raises(RpcError) as e:
        agent.call("SendInput", {"process": {"pid": pid}, "input": given})
    assert e.value.code == code
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    collect(s)


# -- files --


def upload(agent, path, body, query="", headers=None):
    return agent.request("POST", "/files?path=%s%s" % (path, query), body,
                         {"Content-Type": "application/octet-stream", **(headers or {})})


def test_file_both_ways(agent, tmp_path):
    body = bytes(range(256)) * 999 + b"\r\n--x"
    status, answer, _ = upload(agent, "%s/a/b/c.bin" % tmp_path, body)
    assert status == 200
    assert json.loads(answer) == [{"path": "%s/a/b/c.bin" % tmp_path, "name": "c.bin", "type": "file"}]
    assert (tmp_path / "a/b/c.bin").read_bytes() == body
    assert (tmp_path / "a/b").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "a/b/c.bin").stat().st_mode & 0o7777 == 0o644
    status, got, headers = agent.request("GET", "/files?path=%s/a/b/../b/c.bin" % tmp_path)
    assert (status, got) == (200, body) and int(headers["Content-Length"]) == len(body)


def test_upload_truncates_in_place(agent, tmp_path):
    f = tmp_path / "f"
    f.write_bytes(b"long content")
    f.chmod(0o700)
    inode = f.stat().st_ino
    upload(agent, f, b"x")
    assert f.read_bytes() == b"x" and f.stat().st_ino == inode and f.stat().st_mode & 0o777 == 0o700


def test_empty_file(agent, tmp_path):
    assert upload(agent, tmp_path / "e", b"")[0] == 200
    assert (tmp_path / "e").read_bytes() == b""
    status, body, headers = agent.request("GET", "/files?path=%s/e" % tmp_path)
    assert (status, body, headers["Content-Length"]) == (200, b"", "0")


def test_chunked_upload(agent, tmp_path):
    blocks = [os.urandom(n) for n in (1, 70000, 3, 300000)]
    status, _, _ = agent.request("POST", "/files?path=%s/c" % tmp_path, iter(blocks),
                                 {"Content-Type": "application/octet-stream"})
    assert status == 200 and (tmp_path / "c").read_bytes() == b"".join(blocks)


def test_two_hundred_megabytes_of_file_both_ways(own_agent, tmp_path):
    big = tmp_path / "big"
    block = os.urandom(1024 * 1024)
    with big.open("wb") as f:
        for i in range(200):
            f.write(i.to_bytes(4, "big") + block[4:])
    with big.open("rb") as f:
        status, _, _ = own_agent.request("POST", "/files?path=%s/copy" % tmp_path, f,
                                     {"Content-Type": "application/octet-stream", "Content-Length": str(200 << 20)})
    assert status == 200
    assert subprocess.run(["cmp", big, tmp_path / "copy"]).returncode == 0
    c = own_agent.connect()
    c.request("GET", "/files?path=%s/copy" % tmp_path)
    r, h = c.getresponse(), hashlib.sha256()
    while block := r.read(1 << 20):
        h.update(block)
    c.close()
    assert h.hexdigest() == subprocess.check_output(["sha256sum", big]).split()[0].decode()
    assert own_agent.rss_kib() < 96 * 1024  # sanitizers take their share


def test_file_without_a_size(agent):
    status, body, headers = agent.request("GET", "/files?path=/proc/version")
    assert status == 200 and body == pathlib.Path("/proc/version").read_bytes()
    assert headers["Transfer-Encoding"] == "chunked"


@pytest.mark.parametrize("path, status", [("/nope", 404), ("/etc/passwd/x", 404), ("/etc", 400), ("/dev/zero", 400),
                                          ("/dev/tty", 400), ("~x", 400), ("/a%00b", 400), ("%zz", 400),
                                          ("/" + "x" * 300, 400), ("/" + "x/" * 3000, 400)])
def test_file_that_can_not_be_read(agent, path, status):
    got, body, _ = agent.request("GET", "/files?path=" + path)
    assert got == status, (got, body)
    assert json.loads(body)["code"] == got


def test_missing_file_says_so(agent):
    assert json.loads(agent.request("GET", "/files?path=nope")[1]) == {
        "code": 404, "message": "path '/root/nope' does not exist"}


def test_fifo_does_not_block(agent, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert agent.request("GET", "/files?path=%s/fifo" % tmp_path)[0] == 400
    assert upload(agent, tmp_path / "fifo", b"x")[0] == 400


def test_files_are_read_and_written_as_the_user(agent, tmp_path_factory):
    open_dir = pathlib.Path(subprocess.check_output(["mktemp", "-d", "/tmp/agent-test.XXXXXX"], text=True).strip())
    try:
        open_dir.chmod(0o777)
        assert agent.request("GET", "/files?path=/etc/shadow&username=nobody")[0] == 403
        assert upload(agent, "/etc/agent-test", b"x", "&username=nobody")[0] == 403
        assert not os.path.exists("/etc/agent-test")
        assert upload(agent, open_dir / "d/f", b"x", "&username=nobody")[0] == 200
        for p in (open_dir / "d", open_dir / "d/f"):
            assert (p.stat().st_uid, p.stat().st_gid) == (65534, 65534)
        assert upload(agent, open_dir / "r", b"x")[0] == 200
        assert (open_dir / "r").stat().st_uid == 0
        assert agent.request("GET", "/files?path=/etc/shadow")[0] == 200
        assert agent.request("GET", "/files?path=/etc/hosts&username=nosuch")[0] == 401
    finally:
        subprocess.run(["rm", "-rf", open_dir], check=True)


def test_mode_of_an_upload(agent, tmp_path):
    assert upload(agent, tmp_path / "m", b"x", headers={"X-Space-Mode": "0755"})[0] == 200
    assert (tmp_path / "m").stat().st_mode & 0o7777 == 0o755
    for bad in ("9", "abc", "-1", "77777", ""):
        assert upload(agent, tmp_path / "bad", b"x", headers={"X-Space-Mode": bad})[0] == 400
    assert not (tmp_path / "bad").exists()


def test_full_disk(agent, tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        status, body, _ = upload(agent, tmp_path / "big", b"x" * 5000000)
        assert status == 507 and json.loads(body)["code"] == 507
        assert not (tmp_path / "big").exists()
        assert upload(agent, tmp_path / "small", b"x")[0] == 200
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("headers, query, status", [
    ({"Content-Type": "text/plain"}, "path=%s/x", 400),
    ({}, "path=%s/x", 400),
    ({"Content-Type": "application/octet-stream"}, "", 400),
    ({"Content-Type": "application/octet-stream"}, "path=", 400),
    ({"Content-Type": "application/octet-stream"}, "path=%s", 400),
    ({"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}, "path=%s/x", 415),
    ({"Content-Type": "multipart/form-data"}, "path=%s/x", 400),
    ({"Content-Type": "multipart/form-data; boundary="}, "path=%s/x", 400),
    ({"Content-Type": "multipart/form-data; boundary=" + "x" * 71}, "path=%s/x", 400),
])
def test_wrong_uploads(agent, tmp_path, headers, query, status):
    got, body, _ = agent.request("POST", "/files?" + query.replace("%s", str(tmp_path)), b"data", headers)
    assert got == status and json.loads(body)["message"]
    assert list(tmp_path.iterdir()) == []


def form(parts, boundary="----formdata-undici-082449547297"):
    out = b""
    for disposition, data in parts:
        out += ("--%s\r\nContent-Disposition: form-data; %s\r\n" % (boundary, disposition)).encode()
        out += b"Content-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
    return out + ("--%s--\r\n\r\n" % boundary).encode(), {"Content-Type": "multipart/form-data; boundary=" + boundary}


def test_form_with_several_files(agent, tmp_path):
    tricky = b"\r\n--\r\n------formdata-undici-08244954729X\r\n-" * 5000 + b"\r"
    body, headers = form([
        ('name="file"; filename="%s/m/ü %%22b%%22.txt"' % tmp_path, tricky),
        ('name="other"; filename="%s/ignored"' % tmp_path, b"no"),
        ('name="file"; filename="%s/empty"' % tmp_path, b""),
    ])
    status, answer, _ = agent.request("POST", "/files", body, headers)
    assert status == 200
    assert [e["name"] for e in json.loads(answer)] == ['ü "b".txt', "empty"]
    assert (tmp_path / 'm/ü "b".txt').read_bytes() == tricky
    assert (tmp_path / "empty").read_bytes() == b"" and not (tmp_path / "ignored").exists()


def test_form_with_a_path_in_the_query(agent, tmp_path):
    body, headers = form([('name="file"; filename="elsewhere"', b"x")])
    assert agent.request("POST", "/files?path=%s/here" % tmp_path, body, headers)[0] == 200
    assert (tmp_path / "here").read_bytes() == b"x"


@pytest.mark.parametrize("parts, cut", [
    ([('name="file"; filename="%s/a"', b"x"), ('name="file"; filename="%s/./a"', b"y")], 0),
    ([('name="other"; filename="%s/a"', b"x")], 0),
    ([('name="file"', b"x")], 0),
    ([('name="file"; filename="~x/a"', b"x")], 0),
    ([('name="file"; filename="%s/a"', b"x" * 1000)], 60),
    ([], 0),
])
def test_wrong_forms(agent, tmp_path, parts, cut):
    body, headers = form([(d.replace("%s", str(tmp_path)), data) for d, data in parts])
    assert agent.request("POST", "/files", body[:len(body) - cut], headers)[0] == 400


def test_form_in_single_bytes(agent, tmp_path):
    body, headers = form([('name="file"; filename="%s/slow"' % tmp_path, b"a\r\n------b\r\n" * 20)])
    status, _, _ = agent.request("POST", "/files", (bytes([b]) for b in body), headers)
    assert status == 200 and (tmp_path / "slow").read_bytes() == b"a\r\n------b\r\n" * 20


def test_upload_that_breaks_off_leaves_no_new_file(agent, tmp_path):
    files = agent.open_files()
    with socket.create_connection(("127.0.0.1", agent.port)) as s:
        s.sendall(b"POST /files?path=%s/half HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
                  b"Content-Length: 1000\r\n\r\nabc" % str(tmp_path).encode())
        until(lambda: (tmp_path / "half").exists(), "it does not begin")
    until(lambda: not (tmp_path / "half").exists(), "half a file is left")
    until(lambda: agent.open_files() <= files, "descriptors are left")


# -- /init --


def test_init_sets_the_scene(own_agent):
    a = own_agent
    status, body, headers = a.request("POST", "/init", json.dumps({
        "envVars": {"GLOBAL": "1", "BOTH": "init"}, "accessToken": "s3cret", "timestamp": "2026-11-30T17:12:06.886Z",
        "defaultUser": "nobody", "defaultWorkdir": "/usr", "unknownField": {"x": [1]}, "sandboxId": "abc",
        "hostname": "must-not-be-set-here", "entropy": base64.b64encode(bytes(32)).decode(), "machineId": "0" * 32,
    }))
    assert (status, body, headers["X-Envd-Version"]) == (204, b"", "0.6.13")
    assert socket.gethostname() != "must-not-be-set-here"

    assert a.request("GET", "/health")[0] == 204
    for token in (None, "", "s3cre", "s3crets", "S3CRET"):
        headers = {"Content-Type": "application/json"} | ({"X-Access-Token": token} if token is not None else {})
        for method, path in (("POST", "/process.Process/List"), ("GET", "/files?path=/etc/hosts"), ("POST", "/init"),
                             ("POST", "/hold"), ("POST", "/release"), ("POST", "/process.Process/Connect")):
            status, body, _ = a.request(method, path, b"{}", headers)
            assert status == 401 and json.loads(body)["code"] == 401
    a.token = "s3cret"
    r = a.sh("id -un; pwd; echo $GLOBAL $BOTH $E2B_SANDBOX_ID", envs={"BOTH": "request"})
    assert r.stdout == b"nobody\n/usr\n1 request abc\n"

    older = {"envVars": {"GLOBAL": "2"}, "timestamp": "2026-11-30T17:12:06Z"}
    assert a.request("POST", "/init", json.dumps(older))[0] == 204
    assert a.sh("echo $GLOBAL").stdout == b"1\n"
    newer = {"envVars": {"GLOBAL": "3"}, "timestamp": "2026-11-30T19:12:07+01:00", "accessToken": ""}
    assert a.request("POST", "/init", json.dumps(newer))[0] == 204
    a.token = None
    assert a.sh("echo $GLOBAL$BOTH").stdout == b"3\n"


@pytest.mark.parametrize("body", [
    "{", "[]", "null", '"x"', '{"envVars":[]}', '{"envVars":{"A":1}}', '{"envVars":{"A=B":"c"}}', '{"envVars":{"":"c"}}',
    '{"envVars":{"A":"b\\u0000c"}}', '{"timestamp":"yesterday"}', '{"timestamp":5}', '{"accessToken":5}',
    '{"entropy":"AAAA"}', '{"entropy":"!"}', '{"hostname":"a b"}', '{"hostname":"-"}', '{"hostname":""}',
    '{"machineId":"xyz"}', '{"thawed":"yes"}', '{"thawed":1}', '{"defaultUser":"nosuchuser"}', '{"sandboxId":"../x"}', '{"a":1,"a":2}',
    "[" * 100000, '{"a":' * 5000, "\xff", '{"envVars":{"A":"\xff"}}', '{"accessToken":"a\\ud800"}',
])
def test_wrong_init_changes_nothing(own_agent, body):
    status, answer, _ = own_agent.request("POST", "/init", body.encode("latin-1"))
    assert status == 400 and json.loads(answer)["code"] == 400
    assert own_agent.sh("id -un").stdout == b"root\n"


def test_empty_init(own_agent):
    assert own_agent.request("POST", "/init")[0] == 204
    assert own_agent.request("POST", "/init", b"{}")[0] == 204
    assert own_agent.request("POST", "/init", b" " * 3000000)[0] == 413


# -- the protocol --


@pytest.mark.parametrize("method", ["Update", "StreamInput", "Nope"])
def test_what_is_not_there_yet_is_unimplemented(agent, method):
    with pytest.raises(RpcError) as e:
        agent.call(method, {})
    assert e.value.code == "unimplemented"


def test_routes(agent):
    status, body, _ = agent.request("POST", "/filesystem.Filesystem/Stat", b"{}", {"Content-Type": "application/json"})
    assert status == 501 and json.loads(body)["code"] == "unimplemented"
    assert agent.request("GET", "/nope")[0] == 404
    assert agent.request("GET", "/process.Process/List")[0] == 405
    assert agent.request("GET", "/hold")[0] == 405
    assert agent.request("DELETE", "/files")[0] == 405
    assert agent.request("GET", "/")[0] == 404
    assert agent.request("GET", "http://h/health")[0] == 204
    assert agent.request("GET", "/health?x=/y")[0] == 204
    assert agent.request("GET", "/healthy")[0] == 404


@pytest.mark.parametrize("type", [None, "application/proto", "application/connect+proto", "application/jsonx", "text/plain"])
def test_other_codecs_are_refused(agent, type):
    headers = {"Content-Type": type} if type else {}
    assert agent.request("POST", "/process.Process/List", b"{}", headers)[0] == 415
    assert agent.request("POST", "/process.Process/Start", b"\0\0\0\0\2{}", headers)[0] == 415
    assert agent.request("POST", "/process.Process/Connect", b"\0\0\0\0\2{}", headers)[0] == 415


def test_content_type_with_parameters(agent):
    assert agent.request("POST", "/process.Process/List", b"", {"Content-Type": "application/json; charset=utf-8"})[0] == 200


def envelope(body, flag=0):
    return struct.pack(">BI", flag, len(body)) + body


@pytest.mark.parametrize("body", [
    b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\0", envelope(b"{}"), envelope(b"null"), envelope(b"{"), envelope(b"[]"),
    envelope(b'{"process":{"cmd":"true"}}', 1), envelope(b'{"process":{"cmd":"true"}}', 2),
    envelope(b'{"process":{"cmd":"true"}}', 0x80), envelope(b'{"process":{"cmd":"true"}}') + b"x",
    envelope(b'{"process":{"cmd":"true"}}') * 2, b"\0\xff\xff\xff\xff" + b'{"process":{"cmd":"true"}}',
    b"\0\0\0\0\xff" + b'{"process":{"cmd":"true"}}',
    envelope(b'{"process":{"cmd":""}}'), envelope(b'{"process":{"cmd":5}}'), envelope(b'{"process":"true"}'),
    envelope(b'{"process":{"cmd":"true","args":"x"}}'), envelope(b'{"process":{"cmd":"true","args":[1]}}'),
    envelope(b'{"process":{"cmd":"true","args":["a\\u0000b"]}}'), envelope(b'{"process":{"cmd":"tr\\u0000ue"}}'),
    envelope(b'{"process":{"cmd":"true","envs":[]}}'), envelope(b'{"process":{"cmd":"true","envs":{"A":null}}}'),
    envelope(b'{"process":{"cmd":"true","envs":{"A=":"x"}}}'), envelope(b'{"process":{"cmd":"true","cwd":1}}'),
    envelope(b'{"process":{"cmd":"true"},"stdin":"yes"}'), envelope(b'{"process":{"cmd":"true"},"tag":1}'),
    envelope(b'{"process":{"cmd":"\xff"}}'), envelope(b'{"a":' * 3000), envelope(b"[" * 100000),
])
def test_wrong_start_messages(agent, body):
    s = agent.start_raw(body)
    assert s.response.status == 200
    with pytest.raises(RpcError) as e:
        collect(s)
    assert e.value.code == "invalid_argument"


def test_pty_is_unimplemented(agent):
    with pytest.raises(RpcError) as e:
        agent.run("true", pty={"size": {"cols": 80, "rows": 24}})
    assert e.value.code == "unimplemented"


def test_giant_bodies(agent):
    assert agent.start_raw(b"\0" * (5 << 20)).response.status == 413
    assert agent.request("POST", "/process.Process/List", b" " * (9 << 20), {"Content-Type": "application/json"})[0] == 413


@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b'{"a":' * 100000, b"\xff\xfe", b"{}{}", b'{"process":{"pid":1},}'])
def test_wrong_json_in_a_call(agent, body):
    status, answer, _ = agent.request("POST", "/process.Process/SendSignal", body, {"Content-Type": "application/json"})
    assert status == 400 and json.loads(answer)["code"] == "invalid_argument"


def test_pipelined_requests_are_answered_in_order(agent):
    with socket.create_connection(("127.0.0.1", agent.port), DEADLINE) as s:
        body = envelope(b'{"process":{"cmd":"echo","args":["one"]},"stdin":false}')
        start = (b"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body)) + body
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + start + b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n" + start
                  + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = b"".join(iter(lambda: s.recv(65536), b""))
    statuses = [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [204, 200, 404, 200, 204]
    assert got.count(base64.b64encode(b"one\n")) == 2


@pytest.mark.parametrize("raw", [
    b"\0\0\0\0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n",
    b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /init HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
])
def test_malformed_http_costs_the_connection(agent, raw):
    with socket.create_connection(("127.0.0.1", agent.port), DEADLINE) as s:
        s.sendall(raw)
        answer = s.recv(65536)
        assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
        with contextlib.suppress(ConnectionResetError):
            while s.recv(65536):
                pass
    assert agent.request("GET", "/health")[0] == 204


def test_expect_continue(agent, tmp_path):
    with socket.create_connection(("127.0.0.1", agent.port), DEADLINE) as s:
        s.sendall(b"POST /files?path=%s/c HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
                  b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n" % str(tmp_path).encode())
        assert s.recv(65536).startswith(b"HTTP/1.1 100")
        s.sendall(b"abc")
        assert s.recv(65536).startswith(b"HTTP/1.1 200")
    assert (tmp_path / "c").read_bytes() == b"abc"


def test_many_connections(agent):
    socks = [socket.create_connection(("127.0.0.1", agent.port), DEADLINE) for _ in range(300)]
    try:
        for s in socks:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert all(s.recv(100).startswith(b"HTTP/1.1 204") for s in socks)
    finally:
        for s in socks:
            s.close()


@pytest.mark.parametrize("args", [[], ["--serve"], ["--serve", "x"], ["--serve", "1.2.3.4"], ["--serve", "::1:5"],
                                  ["--serve", "127.0.0.1:70000"], ["--nope"]])
def test_wrong_command_lines(args):
    r = subprocess.run([AGENT, *args], capture_output=True, timeout=DEADLINE)
    assert r.returncode == 2 and r.stderr and not r.stdout


def test_port_in_use(agent):
    r = subprocess.run([AGENT, "--serve", "127.0.0.1:%d" % agent.port], capture_output=True, timeout=DEADLINE)
    assert r.returncode == 1 and b"in use" in r.stderr
