# SPDX-License-Identifier: Apache-2.0
"""What tests of clones, pauses and forks have in common: templates that are made once, clocks, tasks that count, calls of the API."""
import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time

from node import DEADLINE, end, find_processes, new_node

# Of a guest's clock from the host's.
CLOCK_MS = 50


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=DEADLINE)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def call(node, method, path, body=None):
    """One call of the API of spaced, which is started where none runs: status and what was answered (None: nothing)."""
    if not (node.run_dir / "spaced.sock").exists():
        node.ok("ls")
    conn = Unix(node.run_dir / "spaced.sock")
    try:
        conn.request(method, path, None if body is None else json.dumps(body))
        answer = conn.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        conn.close()


def copy_templates(source, target):
    """With hard links: for nodes that change none."""
    target.mkdir(mode=0o700)
    for template in source.iterdir():
        if template.name.startswith("."):
            continue
        (target / template.name).mkdir(mode=0o700)
        for file in template.iterdir():
            os.link(file, target / template.name / file.name)


@contextlib.contextmanager
def cloning_node(node, config=None):
    """A node whose templates are its own, and those of another to begin with, which is let make the usual one first."""
    node.ok("template", "build", "base")
    with new_node(config=config, templates=False) as n:
        copy_templates((node.state / "templates").resolve(), n.state / "templates")
        yield n


def template_names(node):
    return sorted(t["name"] for t in json.loads(node.ok("template", "ls", "--json")) if t["kind"] == "template")


def log_of(node):
    log = node.run_dir / "spaced.log"
    return log.read_text(errors="replace") if log.exists() else ""


def kill_all(node):
    """spaced first, so that it can do nothing about the rest."""
    family = find_processes(node)
    pid = node.daemon_pid()
    end(pid, signal.SIGKILL)
    for p in family - {pid}:
        end(p, signal.SIGKILL)


def rm(node, *names):
    node.space("rm", "-f", *names)


# Answers each line with the guest's wall clock in nanoseconds.
CLOCK = "import sys,time\nfor _ in iter(sys.stdin.readline, ''): print(time.time_ns(), flush=True)"


def clock_offset(ask, rounds=8):
    """Bounds, in ms, of how far a guest's clock is ahead of ours. ask() returns its time in ns."""
    low, high = -1e18, 1e18
    for _ in range(rounds):
        before = time.time_ns()
        theirs = ask()
        after = time.time_ns()
        low, high = max(low, (theirs - after) / 1e6), min(high, (theirs - before) / 1e6)
    return low, high


def assert_clock(bounds, widest=60):
    low, high = bounds
    assert high - low < widest, "the answers took too long to tell: %.1f to %.1f ms" % bounds
    assert low <= CLOCK_MS and high >= -CLOCK_MS, "the clock is %.1f to %.1f ms ahead" % bounds


class Conversation:
    """A process in a guest that answers lines."""

    def __init__(self, node, *args, env=None):
        self.process = node.popen(*args, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ask(self, line=b"\n"):
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=DEADLINE)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


def exec_clock(node, name):
    talk = Conversation(node, "exec", "-i", name, "--", "python3", "-u", "-c", CLOCK)
    bounds = clock_offset(lambda: int(talk.ask()))
    talk.close()
    return bounds


# Has a connection, and uses it again, then another one, when it is told to.
CLIENT = """
import http.client, os, ssl, sys, time
host, port = sys.argv[1], int(sys.argv[2])
context = ssl.create_default_context()
def get(conn, path):
    conn.request('GET', path, headers={'Authorization': 'Bearer ' + os.environ.get('T', 'none')})
    return conn.getresponse().read() and 'answered'
conn = http.client.HTTPSConnection(host, port, context=context, timeout=20)
print(get(conn, '/before'), flush=True)
while not os.path.exists('/tmp/go'):
    time.sleep(0.02)
try:
    conn.auto_open = 0
    print(get(conn, '/old'), flush=True)
except OSError as e:
    print(type(e).__name__, flush=True)
except http.client.HTTPException as e:
    print(type(e).__name__, flush=True)
print(get(http.client.HTTPSConnection(host, port, context=context, timeout=20), '/new'), flush=True)
"""
RESET = {"ConnectionResetError", "BrokenPipeError", "RemoteDisconnected", "SSLEOFError"}


# Who a guest believes to be, as a line of JSON.
WHO = (
    "import json,os,random,socket,ssl,uuid\n"
    "print(json.dumps({'urandom': os.urandom(16).hex(), 'uuid': str(uuid.uuid4()),\n"
    " 'kernel_uuid': open('/proc/sys/kernel/random/uuid').read(), 'random': random.random(),\n"
    " 'ssl': ssl.RAND_bytes(16).hex(), 'machine_id': open('/etc/machine-id').read().strip(),\n"
    " 'hostname': socket.gethostname(), 'id': os.environ.get('E2B_SANDBOX_ID')}), flush=True)\n"
)


def assert_differ(all_of_them, members=("urandom", "uuid", "kernel_uuid", "random", "ssl", "machine_id", "hostname", "id")):
    for member in members:
        values = [one[member] for one in all_of_them]
        assert len(set(values)) == len(values), (member, values)


def printable(path):
    """All of a frozen machine's bytes, of its disk what is there."""
    found = [(path / name).read_bytes() for name in ("memory", "state", "frozen.json")]
    with open(path / "disk", "rb") as disk:
        at = 0
        while True:
            try:
                at = os.lseek(disk.fileno(), at, os.SEEK_DATA)
            except OSError:
                return found
            hole = os.lseek(disk.fileno(), at, os.SEEK_HOLE)
            found.append(os.pread(disk.fileno(), hole - at, at))
            at = hole


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))


def data_offset(path):
    fd = os.open(path, os.O_RDONLY)
    at = os.lseek(fd, 0, os.SEEK_DATA)
    os.close(fd)
    return at


def edit(path, change):
    doc = json.loads(path.read_text())
    change(doc)
    path.write_text(json.dumps(doc))


def content_sum(data):
    """As src/image/content.c takes it: the size, then each block that is not all zeroes behind its offset."""
    sum = hashlib.sha256(len(data).to_bytes(8, "little"))
    for at in range(0, len(data), 4096):
        block = data[at : at + 4096]
        if block.strip(b"\0"):
            sum.update(at.to_bytes(8, "little") + block)
    return sum.hexdigest()


def forge_state(path, data):
    """A frozen machine that is whole in form, with this for a state."""
    (path / "state").chmod(0o644)
    (path / "state").write_bytes(data)
    (path / "state").chmod(0o444)
    edit_manifest(path, lambda m: m.update(state={"bytes": len(data), "sha256": content_sum(data)}), member=None)


def edit_manifest(path, change, member="extra"):
    """Of a frozen machine: what its maker wanted to keep, or all of it, with a sum that fits."""

    def all_of_it(doc):
        change(doc["manifest"][member] if member else doc["manifest"])
        text = json.dumps(doc["manifest"], separators=(",", ":"), ensure_ascii=False)
        doc["sha256"] = hashlib.sha256(text.encode()).hexdigest()

    edit(path / "frozen.json", all_of_it)


def swap(path):
    a, b = path / "memory", path / "state"
    a.rename(path / "x")
    b.rename(a)
    (path / "x").rename(b)


DAMAGE = {
    "memory: one bit": lambda p: flip(p / "memory", data_offset(p / "memory") + 4321),
    "memory: a zero page has a one": lambda p: flip(p / "memory", (512 << 20) - 4096),
    "memory: cut": lambda p: os.truncate(p / "memory", (512 << 20) - 4096),
    "memory: longer": lambda p: os.truncate(p / "memory", (512 << 20) + 4096),
    "memory: missing": lambda p: (p / "memory").unlink(),
    "memory: emptied": lambda p: (os.truncate(p / "memory", 0), os.truncate(p / "memory", 512 << 20)),
    "memory: unreadable for others": lambda p: (p / "memory").chmod(0o600),
    "memory: a symbolic link": lambda p: ((p / "memory").rename(p / "m"), (p / "memory").symlink_to("m")),
    "state: one bit": lambda p: flip(p / "state", 5000),
    "state: cut": lambda p: os.truncate(p / "state", 1000),
    "state: missing": lambda p: (p / "state").unlink(),
    "state: unreadable for others": lambda p: (p / "state").chmod(0o600),
    "disk: one bit": lambda p: flip(p / "disk", data_offset(p / "disk") + 99),
    "disk: cut": lambda p: os.truncate(p / "disk", 4096),
    "root: missing": lambda p: (p / "root").unlink(),
    "manifest: missing": lambda p: (p / "frozen.json").unlink(),
    "manifest: empty": lambda p: os.truncate(p / "frozen.json", 0),
    "manifest: one bit": lambda p: flip(p / "frozen.json", 200),
    "manifest: other text": lambda p: edit(p / "frozen.json", lambda d: d["manifest"]["extra"].update(cpus=2)),
    "memory and state: swapped": swap,
}
