# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: nodes of their own, and a microVM without SPACE around it.

SPACE_PREFIX    where SPACE is installed (default /usr/local)
SPACE_IMAGES    a state directory that holds the image base and its CA (default /var/lib/space); only read
TMPDIR          where nodes live: best on the filesystem of SPACE_IMAGES, and on a disk
"""
import contextlib
import ctypes
import datetime
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

PREFIX = pathlib.Path(os.environ.get("SPACE_PREFIX", "/usr/local"))
IMAGES = pathlib.Path(os.environ.get("SPACE_IMAGES", "/var/lib/space"))
SPACE = str(PREFIX / "bin/space")
SPACED = str(PREFIX / "bin/spaced")
TICK = os.sysconf("SC_CLK_TCK")
QUIET_S = 0.3  # without a tick of processor time of a node: it does nothing
DEADLINE_S = 300

GUEST, PORT = "192.0.2.2", 49983  # src/base/guest.h


def fail(text):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {text}")


def check_host():
    if os.geteuid() != 0:
        fail("needs root")
    if not (IMAGES / "images/base").exists():
        fail(f"no image base in {IMAGES}: run 'space image build base' first, or set SPACE_IMAGES")


def percentile(values, p):
    return statistics.quantiles(values, n=100, method="inclusive")[p - 1] if len(values) > 1 else values[0]


def stat_of(pid):
    """Fields of /proc/PID/stat behind the name: state, parent, … None when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


class Node:
    """A state directory, a run directory and a spaced of its own."""

    def __init__(self, root, name, config):
        self.state, self.run_dir = root / name / "state", root / name / "run"
        for path in (self.state, self.run_dir):
            path.mkdir(mode=0o711, parents=True)
        (root / name).chmod(0o711)
        for shared in ("images", "ca"):
            (self.state / shared).symlink_to(IMAGES / shared)
        (self.state / "spaced.yaml").write_text(config)
        self.env = dict(os.environ, SPACE_STATE_DIR=str(self.state), SPACE_RUN_DIR=str(self.run_dir))
        ready, theirs = os.pipe()
        self.log = open(self.run_dir / "spaced.log", "wb")
        self.daemon = subprocess.Popen(
            [SPACED, "--config", str(self.state / "spaced.yaml"), "--ready-fd", str(theirs)],
            env=self.env, pass_fds=[theirs], stdin=subprocess.DEVNULL, stderr=self.log)
        os.close(theirs)
        if os.read(ready, 1) != b"1":
            fail(f"spaced does not start: {(self.run_dir / 'spaced.log').read_text()[-500:]}")
        os.close(ready)

    def space(self, *args):
        done = subprocess.run([SPACE, *args], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"space {' '.join(args)} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

    def popen(self, *args, **kw):
        return subprocess.Popen([SPACE, *args], env=self.env, stdin=subprocess.DEVNULL, **kw)

    def family(self):
        """Pids of spaced's children; the jailed ones are."""
        found = []
        for entry in os.scandir("/proc"):
            fields = stat_of(entry.name) if entry.name.isdigit() else None
            if fields and int(fields[1]) == self.daemon.pid and fields[0] != "Z":
                found.append(int(entry.name))
        return found

    def settle(self, processes):
        """Until it has that many children and nobody has used the processor for a moment."""
        deadline, quiet_since, before = time.monotonic() + DEADLINE_S, time.monotonic(), None
        while True:
            family = self.family()
            fields = [stat_of(pid) for pid in [self.daemon.pid, *family]]
            ticks = sum(int(f[11]) + int(f[12]) for f in fields if f), tuple(family)
            if ticks != before or len(family) != processes:
                quiet_since, before = time.monotonic(), ticks
            if time.monotonic() - quiet_since >= QUIET_S:
                return
            if time.monotonic() > deadline:
                fail(f"{len(family)} processes, not {processes}: {(self.run_dir / 'spaced.log').read_text()[-500:]}")
            time.sleep(0.02)

    def audit(self, name):
        """When what happened to a sandbox, as wall clock seconds; the first of each kind."""
        times = {}
        for line in self.space("audit", "show", "--json", name).splitlines():
            record = json.loads(line)
            when = datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00")).timestamp()
            times.setdefault(record["kind"], when)
        return times

    def close(self):
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(60)
        self.log.close()


@contextlib.contextmanager
def nodes(**configs):
    """Nodes by name, gone at the end with all that was theirs."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="space-bench."))
    root.chmod(0o711)
    made = {}
    try:
        for name, config in configs.items():
            made[name] = Node(root, name, config)
        yield made
    finally:
        for node in made.values():
            node.close()
        shutil.rmtree(root, ignore_errors=True)


# -- a microVM without SPACE --

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x0002, 0x1000, 0x4000
TAP = [
    "link set tap0 address 02:53:50:41:43:01", "addr add 192.0.2.1/30 dev tap0", "link set tap0 up",
    f"neigh add {GUEST} lladdr 02:53:50:41:43:02 dev tap0 nud permanent",
]
libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(namespace):
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(namespace, CLONE_NEWNET) < 0:
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        libc.setns(own, CLONE_NEWNET)
        os.close(own)


class Network:
    """A network namespace with a tap, held by a descriptor alone."""

    def __init__(self):
        own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.unshare(CLONE_NEWNET) < 0:
                raise OSError(ctypes.get_errno(), "unshare")
            self.fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self.tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(self.tap, TUNSETIFF, struct.pack("16sH22x", b"tap0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
            for command in TAP:
                subprocess.run(["ip", *command.split()], check=True)
        finally:
            libc.setns(own, CLONE_NEWNET)
            os.close(own)

    def connect(self):
        with inside(self.fd):
            s = socket.socket()
        s.settimeout(60)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.connect((GUEST, PORT))
        return s

    def close(self):
        os.close(self.tap)
        os.close(self.fd)


class Template:
    """A template of a node: its files, and the command line of the monitor that it is for."""

    def __init__(self, node, name):
        self.dir = node.state / "templates" / name
        extra = json.loads((self.dir / "frozen.json").read_text())["manifest"]["extra"]
        self.cpus, self.ram = extra["cpus"], extra["memoryMB"] << 20
        self.env = extra["image"]["env"]
        line = extra["fingerprint"].split("\n")[0]
        version, _, arguments = line.partition(": ")
        if not version.startswith("qemu "):
            fail(f"no template of QEMU: {line}")
        self.arguments = arguments.split(" ")


def listener(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(path))
    s.listen(1)
    return s


class Bare:
    """QEMU as SPACE starts it (the same command line, waiting), in a slot of ours, with no jail, gateway or daemon. What src/vmm
    says over QMP is said here in the same words."""

    def __init__(self, root, template):
        self.template, self.dir = template, root
        root.mkdir()
        self.network = Network()
        # The disk: sparse, as SPACE makes it, but ahead of the start.
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", template.dir / "disk", root / "disk"], check=True)
        scratch = os.open(root / "disk", os.O_RDWR)
        directory = os.open(root, os.O_PATH)
        self.qmp, first = socket.socketpair()
        with listener(root / "control") as control, listener(root / "console") as console, first:
            sources = [control.fileno(), console.fileno(), directory, first.fileno(), scratch, self.network.tap]

            def place():
                lifted = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in sources]
                for number, fd in enumerate(lifted, 3):  # enum qemu_fd
                    os.dup2(fd, number)
                libc.setns(self.network.fd, CLONE_NEWNET)
                os.closerange(3 + len(sources), 1024)

            self.child = subprocess.Popen(["/usr/bin/qemu-system-x86_64", *self.template.arguments], preexec_fn=place,
                                          close_fds=False, stdin=subprocess.DEVNULL)
        os.close(scratch)
        os.close(directory)
        self.console = socket.socket(socket.AF_UNIX)
        self.console.connect(str(root / "console"))
        self.lines = self.qmp.makefile("rb")
        self.qmp.sendall(b'{"execute":"qmp_capabilities"}\n')
        self.wait(lambda m: "return" in m)

    def wait(self, wanted):
        while True:
            message = json.loads(self.lines.readline())
            if "error" in message:
                fail(f"QEMU: {message['error']}")
            if wanted(message):
                return

    def settle(self):
        """Until it waits for commands and does nothing else."""
        since, before = time.monotonic(), None
        while time.monotonic() - since < QUIET_S:
            ticks = stat_of(self.child.pid)[11:13]
            if ticks != before:
                since, before = time.monotonic(), ticks
            time.sleep(0.02)

    def commands(self):
        """As src/vmm/qemu_setup.c has them."""
        here = "/proc/self/fd/5/"
        machine = {"path": "/machine"}
        return [
            ("blockdev-add", {"driver": "file", "node-name": "root", "read-only": True, "filename": here + "root", "locking": "off",
                              "drop-cache": False}),
            ("blockdev-add", {"driver": "file", "node-name": "scratch", "filename": "/dev/fdset/7", "locking": "off",
                              "drop-cache": False, "discard": "unmap", "cache": {"no-flush": True}}),
            ("object-add", {"qom-type": "memory-backend-file", "id": "m", "size": self.template.ram, "mem-path": here + "memory",
                            "readonly": True, "rom": "off"}),
            ("qom-set", {**machine, "property": "memory", "value": {"size": self.template.ram}}),
            ("qom-set", {**machine, "property": "smp", "value": {"cpus": self.template.cpus}}),
            ("qom-set", {**machine, "property": "memory-backend", "value": "/objects/m"}),
            ("x-exit-preconfig", None),
            ("migrate-incoming", {"uri": "file:" + here + "state"}),
            ("cont", None),
        ]

    def run(self, command):
        """Restores it and runs a command to its first output. Times since the beginning, by stage."""
        text = ""
        for name, arguments in self.commands():
            text += json.dumps({"execute": name, **({"arguments": arguments} if arguments else {})}, separators=(",", ":")) + "\n"
        begin = time.monotonic()
        times = {}
        for name in ("root", "memory", "state"):
            os.link(self.template.dir / name, self.dir / name)
        self.qmp.sendall(text.encode())
        self.wait(lambda m: m.get("event") == "RESUME")
        times["restored"] = time.monotonic() - begin
        with self.network.connect() as agent:
            times["connected"] = time.monotonic() - begin
            self.start(agent, command)
            read_events(agent, times, begin)
        return times

    def start(self, agent, command):
        body = json.dumps({"process": {"cmd": command[0], "args": command[1:], "envs": self.template.env}}).encode()
        body = struct.pack(">BI", 0, len(body)) + body
        agent.sendall(b"POST /process.Process/Start HTTP/1.1\r\nHost: " + GUEST.encode() +
                      b"\r\nContent-Type: application/connect+json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def close(self):
        self.child.kill()
        self.child.wait()
        self.qmp.close()
        self.lines.close()
        self.console.close()
        self.network.close()
        shutil.rmtree(self.dir)


def read_events(agent, times, begin):
    """Until there is output. The events of a start come as they are, each whole."""
    data = b""
    while True:
        more = agent.recv(65536)
        now = time.monotonic() - begin
        if not more:
            fail(f"the agent ended early: {data[:500]!r}")
        data += more
        if b'"start"' in data:
            times.setdefault("started", now)
        if b'"data"' in data:
            times["output"] = now
            return
