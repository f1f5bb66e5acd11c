# SPDX-License-Identifier: Apache-2.0
"""A node of its own, with the programs that are tested.

SPACE_PREFIX    where SPACE is installed (default /usr/local)
SPACE_IMAGES    a state directory that holds the image base and the CA that is in it
                (default /var/lib/space); only read

Monitors and gateways outlive a spaced that is killed, for the next one to adopt; so whose they are is told by the directory that
a monitor holds, and by the gateway's executable: each node has one of its own.
"""
import atexit
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time

PREFIX = pathlib.Path(os.environ.get("SPACE_PREFIX", "/usr/local"))
SPACE = PREFIX / "bin" / "space"
SPACED = PREFIX / "bin" / "spaced"
LIBEXEC = PREFIX / "libexec" / "space"
IMAGES = pathlib.Path(os.environ.get("SPACE_IMAGES", "/var/lib/space"))

# A guest boots in some 5 s under software emulation on an idle host; ten at once on two cores take their time.
DEADLINE = 300


class Node:
    """A state and a run directory of its own, and the spaced that works there.

    ready      how many prepared places spaced keeps; 0 where leftovers are counted
    config     more of its configuration
    templates  a directory that nodes share, for each of a new one takes a boot; None: its own
    user       who runs it (rootless.User); None: root
    """

    def __init__(self, root, ready=2, config=None, templates=None, user=None):
        self.root = pathlib.Path(root)
        self.before = user.command if user else []
        self.state = self.root / "state"
        self.run_dir = self.root / "run"
        self.state.mkdir(mode=0o711)
        self.run_dir.mkdir(mode=0o711)
        for shared in ("images", "ca"):
            (self.state / shared).symlink_to((user.images() if user else IMAGES) / shared)
        self.libexec = self.root / "libexec"
        self.libexec.mkdir(mode=0o755)
        for program in LIBEXEC.iterdir():
            copy_or_link(program, self.libexec / program.name)
        if templates:
            (self.state / "templates").symlink_to(templates)
        self.config = self.root / "spaced.yaml"
        self.config.write_text(json.dumps({"ready": ready, **(config or {})}))
        self.env = dict(
            os.environ,
            SPACE_STATE_DIR=str(self.state),
            SPACE_RUN_DIR=str(self.run_dir),
            SPACE_LIBEXEC=str(self.libexec),
            SPACE_CONFIG=str(self.config),
        )
        if user:
            user.own(self.root)

    def popen(self, *args, env=None, **kw):
        return subprocess.Popen([*self.before, SPACE, *map(str, args)], env={**self.env, **(env or {})}, **kw)

    def space(self, *args, input=None, env=None, timeout=DEADLINE, stdin=None):
        """Runs space to its end; output as bytes."""
        return subprocess.run(
            [*self.before, SPACE, *map(str, args)],
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
        """Pids of everything that was started for this node."""
        return find_processes(self)

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


def copy_or_link(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def find_processes(node):
    """Pids of the node's spaced (its environment names the run directory), of its gateways (by their executable), of its monitors (they
    hold a directory below its places), and of all their descendants."""
    mark = b"SPACE_RUN_DIR=" + os.fsencode(node.run_dir) + b"\0"
    libexec = str(node.libexec) + "/"
    places = set()
    for root, _, _ in os.walk(node.state / "places"):
        with contextlib.suppress(OSError):
            places.add(inode_of(os.stat(root)))
    parents, found = {}, set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            line = pathlib.Path(entry.path, "stat").read_text()
            parents[pid] = int(line.rsplit(")", 1)[1].split()[1])
            exe = os.readlink(entry.path + "/exe")
            name = os.path.basename(exe)
            if (
                exe.startswith(libexec)
                or (name.startswith("spaced") and mark in pathlib.Path(entry.path, "environ").read_bytes())
                or (name.startswith("qemu-system") and directories(pid) & places)
            ):
                found.add(pid)
        except OSError:
            continue
    grown = True
    while grown:
        more = {p for p, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return found


def inode_of(st):
    return st.st_dev, st.st_ino


def directories(pid):
    """Which directories a process's descriptors are, by device and inode: a monitor's is a mount of its own, without a path here."""
    found = set()
    for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir():
        with contextlib.suppress(OSError):
            st = fd.stat()
            if stat.S_ISDIR(st.st_mode):
                found.add(inode_of(st))
    return found


def links(pid):
    """What a process's descriptors are."""
    found = []
    for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(fd))
    return found


def monitors(node):
    return [p for p in find_processes(node) if executable(p).startswith("qemu-system")]


def gateways(node):
    return [p for p in find_processes(node) if executable(p).startswith("space-egress")]


def executable(pid):
    try:
        return os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return ""


def namespaces(node):
    """Network namespaces, other than ours, that a process of this node is in or holds open. Others on this host may run
    sandboxes too."""
    found = set()
    own = os.readlink("/proc/self/ns/net")
    for pid in find_processes(node):
        with contextlib.suppress(OSError):
            found |= {os.readlink("/proc/%d/ns/net" % pid), *(link for link in links(pid) if link.startswith("net:["))}
    return found - {own}


def eventually(check, what, timeout=30):
    """Until check() is true; polls, for what it looks at has no event."""
    deadline = time.monotonic() + timeout
    tick = threading.Event()
    while not check():
        assert time.monotonic() < deadline, what() if callable(what) else what
        tick.wait(0.05)


def names_in(directory):
    return sorted(p.name for p in directory.iterdir()) if directory.exists() else []


def leftovers(node, spaced=True):
    """What there should not be while no sandbox lives and none is paused, on a node that keeps nothing ready."""
    found = {}
    processes = find_processes(node)
    if len(processes) > (1 if spaced else 0):
        found["processes"] = [pathlib.Path("/proc/%d/cmdline" % p).read_bytes()[:80] for p in processes if os.path.exists("/proc/%d" % p)]
    found["places"] = names_in(node.state / "places")
    found["disks"] = names_in(node.state / "scratch")
    for parent in ("templates", "snapshots"):
        found["unfinished " + parent] = [name for name in names_in(node.state / parent) if name.startswith(".")]
    if spaced:
        known = {box["sandboxID"] for box in json.loads(node.ok("ls", "--json"))}
        found["sandboxes"] = [name for name in names_in(node.state / "sandboxes") if name not in known]
    found["mounts"] = [line for line in open("/proc/self/mounts") if str(node.root) in line]
    links_here = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    if re.search(r"space|: tap|: sp-", links_here):
        found["links"] = links_here
    return {what: which for what, which in found.items() if which}


def held_disks(pid):
    """Unnamed disks, slots and taps that a process still holds."""
    return [link for link in links(pid) if "(deleted)" in link or "net:[" in link or "tun" in link]


def shared_templates():
    """Where nodes that are not about templates have them, so that each is made once for all tests."""
    if not _shared:
        root = tempfile.mkdtemp(prefix="space-e2e-templates.")
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        _shared.append(root)
    return _shared[0]


_shared = []


@contextlib.contextmanager
def new_node(ready=2, config=None, templates=True, user=None):
    """templates: those that are shared, else its own."""
    # Not pytest's tmp_path: a unix socket's path has 107 bytes.
    root = tempfile.mkdtemp(prefix="space-e2e.")
    os.chmod(root, 0o711)
    node = Node(root, ready, config, shared_templates() if templates and not user else None, user)
    try:
        yield node
    finally:
        node.stop()
        for pid in find_processes(node):  # of a test that failed
            end(pid, signal.SIGKILL)
        reports = node.sanitizer_reports()
        shutil.rmtree(root, ignore_errors=True)
        assert not reports, reports
