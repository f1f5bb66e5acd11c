# SPDX-License-Identifier: Apache-2.0
"""What an attack may not change: the neighbour answers, spaced answers, and neither it nor a gateway grows without bound.

No figure but the bounds below is asserted: how fast an emulated machine is depends on who else works on this one.
"""
import contextlib
import itertools
import os
import pathlib
import subprocess
import time

from node import gateways

DEADLINE_S = 60  # within which the neighbour and spaced answer
REST_S = 5  # that an attack gets for coming to its end
RSS_MAX_KIB = 256 << 10  # of spaced and of each gateway
DESCRIPTORS_MAX = 4096  # the same
LOG_MAX = (16 << 20) + (1 << 20)  # bytes: the task's log, TASKLOG_MAX and one event
FILE_MAX = {"console.log": 256 << 10, "task.log": LOG_MAX, "task.log.1": LOG_MAX}


class Host:
    def __init__(self, node, service, policy, rows):
        self.node, self.service, self.policy, self.rows = node, service, policy, rows
        self.daemon = None
        self.numbers = itertools.count()

    @contextlib.contextmanager
    def attacker(self, what, *command):
        """A sandbox with the neighbour's policy, which is gone afterwards, whatever it was made to do."""
        name = "attacker-%d" % next(self.numbers)
        self.node.ok("run", "-d", "--name", name, "--user", "root", "--policy", self.policy, "--", *(command or ("sleep", "100000")))
        try:
            yield name
            self.look(what, "after")
        finally:
            done = self.node.space("rm", "-f", name, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        assert name not in self.node.names()

    def look(self, what, when):
        """Holds the host to its bounds, and notes the figures."""
        times = [
            self.timed("exec", "neighbour", "--", "echo", "here", expect="here\n"),
            self.timed("exec", "neighbour", "--", "curl", "-sS", "-m", str(DEADLINE_S), self.service.url + "/x", expect='{"path": "/x"'),
            self.timed("ls", expect=""),
        ]
        pid = self.node.daemon_pid()
        self.daemon = self.daemon or pid
        assert pid == self.daemon, "spaced is another one"
        daemon, egress = figures(pid), [figures(p) for p in gateways(self.node)]
        worst = tuple(max((one[i] for one in egress), default=0) for i in range(2))
        for rss, descriptors in (daemon, worst):
            assert rss < RSS_MAX_KIB and descriptors < DESCRIPTORS_MAX, (daemon, worst)
        assert not self.too_large()
        self.rows.append((what, when, *("%.2f" % t for t in times), *daemon, *worst))

    def timed(self, *args, expect):
        started = time.monotonic()
        out = self.node.ok(*args, timeout=DEADLINE_S)
        assert out.startswith(expect), out
        return time.monotonic() - started

    def too_large(self):
        """Files of spaced's that have passed their caps."""
        found = []
        for path in (self.node.state / "sandboxes").rglob("*.log*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size > FILE_MAX[path.name]:
                    found.append((str(path), path.stat().st_size))
        return found

    def attack(self, what, script, *args, seconds=3):
        """Runs a Python program as root in a sandbox of its own, which prints a line when it has begun; looks meanwhile and afterwards.
        Returns what else it printed: nothing where it took its own machine down."""
        if not self.rows:
            self.look("none", "before")
        with self.attacker(what) as name:
            process = self.node.popen(
                "exec", "-u", "root", name, "--", "python3", "-u", "-c", script, str(seconds), *args,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            first = process.stdout.readline()
            try:
                assert first == b"begun\n", (first, process.stderr.read())
                self.look(what, "while")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.communicate(timeout=seconds + REST_S)[0].decode(errors="replace")
                return ""
            finally:
                process.kill()
                process.communicate()


def table(rows):
    heads = ("attack", "when", "exec s", "https s", "ls s", "spaced KiB", "fds", "gateway KiB", "fds")
    widths = [max(len(str(row[i])) for row in [heads, *rows]) for i in range(len(heads))]
    return "\n" + "\n".join("  ".join(str(cell).ljust(w) for cell, w in zip(row, widths)).rstrip() for row in [heads, *rows])


def figures(pid):
    """Resident memory in KiB and the number of descriptors."""
    try:
        status = pathlib.Path("/proc/%d/status" % pid).read_text()
        return int(status.split("VmRSS:")[1].split()[0]), len(os.listdir("/proc/%d/fd" % pid))
    except (OSError, IndexError):
        return 0, 0  # it ended meanwhile
