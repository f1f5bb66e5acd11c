# SPDX-License-Identifier: Apache-2.0
"""A node of its own, with the programs that are tested.

SPACE_PREFIX    where SPACE is installed (default /usr/local)
SPACE_IMAGES    a state directory that holds the image base and the CA that is in it
                (default /var/lib/space); only read
"""
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

PREFIX = pathlib.Path(os.environ.get("SPACE_PREFIX", "/usr/local"))
SPACE = PREFIX / "bin" / "space"
SPACED = PREFIX / "bin" / "spaced"
IMAGES = pathlib.Path(os.environ.get("SPACE_IMAGES", "/var/lib/space"))

# A guest boots in some 5 s under software emulation on an idle host; ten at once on two cores take their time.
DEADLINE = 300


class Node:
    """A state and a run directory of its own, and the spaced that works there."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.state = self.root / "state"
        self.run_dir = self.root / "run"
        self.state.mkdir(mode=0o711)
        self.run_dir.mkdir(mode=0o711)
        for shared in ("images", "ca"):
            (self.state / shared).symlink_to(IMAGES / shared)
        self.env = dict(
            os.environ,
            SPACE_STATE_DIR=str(self.state),
            SPACE_RUN_DIR=str(self.run_dir),
        )

    def popen(self, *args, env=None, **kw):
        return subprocess.Popen([SPACE, *map(str, args)], env={**self.env, **(env or {})}, **kw)

    def space(self, *args, input=None, env=None, timeout=DEADLINE, stdin=None):
        """Runs space to its end; output as bytes."""
        return subprocess.run(
            [SPACE, *map(str, args)],
            input=input,
            **({} if input is not None else {"stdin": stdin or subprocess.DEVNULL}),
            env={**self.env, **(env or {})},
            capture_output=True,
            timeout=timeout,
        )

    def ok(self, *args, **kw):
        """As space(), and it must exit 0; standard output as text."""
        done = self.space(*args, **kw)
        assert done.returncode == 0, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout.decode()

    def inspect(self, ref):
        return json.loads(self.ok("inspect", ref))

    def names(self):
        return sorted(box["name"] for box in json.loads(self.ok("ls", "--json")))

    def daemon_pid(self):
        """The process id of the spaced that listens; None when none does."""
        for line in self.ok("version").splitlines():
            if line.startswith("spaced "):
                return int(line.rsplit(" ", 1)[1].rstrip(")"))
        return None

    def processes(self):
        """Pids of everything that was started for this node: they carry its run directory or descend from spaced."""
        return find_processes(self.run_dir)

    def sanitizer_reports(self):
        """What a sanitized spaced had to say."""
        log = self.run_dir / "spaced.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        marks = ("AddressSanitizer", "LeakSanitizer", "runtime error")
        return text[-4000:] if any(mark in text for mark in marks) else ""

    def stop(self):
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            pid = self.daemon_pid()
            if pid:
                end(pid)


def end(pid, sig=signal.SIGTERM, timeout=30):
    """Signals a process that need not be our child and waits until it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(fd, sig)
        wait_readable(fd, timeout)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def wait_readable(fd, timeout):
    ready, _, _ = select.select([fd], [], [], timeout)
    assert ready, "still there after %d s" % timeout


def find_processes(run_dir):
    """Processes whose environment names this run directory (spaced), and all their descendants."""
    mark = b"SPACE_RUN_DIR=" + os.fsencode(run_dir) + b"\0"
    parents, found = {}, set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            stat = pathlib.Path(entry.path, "stat").read_text()
            parents[pid] = int(stat.rsplit(")", 1)[1].split()[1])
            exe = os.readlink(entry.path + "/exe")
            environ = pathlib.Path(entry.path, "environ").read_bytes()
        except OSError:
            continue
        if mark in environ and os.path.basename(exe).startswith("spaced"):
            found.add(pid)
    grown = True
    while grown:
        more = {p for p, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return found


def namespaces(node):
    """Network namespaces, other than ours, that a process of this node is in or holds open, or one that lost its parent. Others
    on this host may run sandboxes too."""
    found = set()
    own = os.readlink("/proc/self/ns/net")
    family = find_processes(node.run_dir)
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            exe = os.path.basename(os.readlink(entry / "exe"))
            parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            lost = parent == "1" and exe.startswith(("qemu-system", "space-"))
            if not lost and int(entry.name) not in family:
                continue
            links = [os.readlink(entry / "ns/net")] + [os.readlink(fd) for fd in (entry / "fd").iterdir()]
        except OSError:
            continue
        found |= {link for link in links if link.startswith("net:[") and link != own}
    return found


def eventually(check, what, timeout=30):
    """Until check() is true; polls, for what it looks at has no event."""
    deadline = time.monotonic() + timeout
    tick = threading.Event()
    while not check():
        assert time.monotonic() < deadline, what() if callable(what) else what
        tick.wait(0.05)


def leftovers(node, spaced=True):
    """What there should not be while no sandbox lives."""
    found = {}
    processes = find_processes(node.run_dir)
    if len(processes) > (1 if spaced else 0):
        found["processes"] = [pathlib.Path("/proc/%d/cmdline" % p).read_bytes()[:80] for p in processes if os.path.exists("/proc/%d" % p)]
    boxes = node.run_dir / "sandboxes"
    if boxes.exists() and list(boxes.iterdir()):
        found["directories"] = list(boxes.iterdir())
    scratch = node.state / "scratch"
    if scratch.exists() and list(scratch.iterdir()):
        found["disks"] = list(scratch.iterdir())
    mounts = [line for line in open("/proc/self/mounts") if str(node.root) in line]
    if mounts:
        found["mounts"] = mounts
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    if re.search(r"space|: tap|: sp-", links):
        found["links"] = links
    return found


def held_disks(pid):
    """Unnamed disks that a process still holds."""
    found = []
    for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if "(deleted)" in target or "net:[" in target or "tun" in target:
            found.append(target)
    return found


@contextlib.contextmanager
def new_node():
    # Not pytest's tmp_path: a unix socket's path has 107 bytes.
    root = tempfile.mkdtemp(prefix="space-e2e.")
    os.chmod(root, 0o711)
    node = Node(root)
    try:
        yield node
    finally:
        node.stop()
        reports = node.sanitizer_reports()
        shutil.rmtree(root, ignore_errors=True)
        assert not reports, reports
