# SPDX-License-Identifier: Apache-2.0
"""A guest's root has taken over its agent: what that may answer to spaced, and when, keeps nobody from pausing, copying or ending the sandbox, and
leaves nothing behind in spaced.
"""
import os
import time

import pytest

from machines import log_of, rm
from node import eventually, leftovers

# Stops the agent and answers in its place, on its listening socket. MODE says what is odd: the call that it answers without an end.
ROGUE = r"""
import ctypes, json, os, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, WALL, PIDFD_OPEN, PIDFD_GETFD = 0x4206, 0x4207, 0x40000000, 434, 438
odd = sys.argv[1]
task = os.getpid()
agent = libc.syscall(PIDFD_OPEN, 1, 0)
def listener():
    for name in os.listdir("/proc/1/fd"):
        if os.readlink("/proc/1/fd/" + name).startswith("socket:"):
            s = socket.socket(fileno=libc.syscall(PIDFD_GETFD, agent, int(name), 0))
            if s.family in (socket.AF_INET, socket.AF_INET6) and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return s
taken = listener()
def envelope(message):
    text = json.dumps(message).encode()
    framed = b"\0" + len(text).to_bytes(4, "big") + text
    return b"%x\r\n%s\r\n" % (len(framed), framed)
def serve(c):
    head = b""
    while b"\r\n\r\n" not in head:
        head += c.recv(65536) or sys.exit()
    path = head.split(b" ")[1].decode()
    if path == odd:
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx")
    elif odd == "silent " + path:
        pass
    elif path == "/process.Process/Connect":
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n")
        c.sendall(envelope({"event": {"start": {"pid": task}}}))
    else:
        c.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    while c.recv(65536):
        pass
print("taken over", flush=True)
os.set_blocking(1, False)
assert libc.ptrace(SEIZE, 1, 0, 0) == 0 and libc.ptrace(INTERRUPT, 1, 0, 0) == 0
libc.waitpid(1, None, WALL)
taken.setblocking(True)
while True:
    threading.Thread(target=serve, args=(taken.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def rogue(own_node):
    """A function that starts one."""
    made = []

    def make(odd, *flags):
        name = "rogue-%d" % len(made)
        own_node.ok("run", "-d", "--name", name, "--user", "root", "--no-network", *flags, "--", "python3", "-c", ROGUE, odd)
        made.append(name)
        eventually(lambda: "taken over" in own_node.ok("logs", name), lambda: log_of(own_node))
        return name

    yield make
    rm(own_node, *made)


def state(node, name):
    return node.inspect(name)["state"]


def descriptors(node):
    return len(os.listdir("/proc/%d/fd" % node.daemon_pid()))


@pytest.mark.parametrize("odd", ["/hold", "silent /hold", "/release"])
def test_agent_keeps_no_pause_waiting(own_node, rogue, odd):
    name = rogue(odd)
    started = time.monotonic()
    own_node.ok("pause", name, timeout=60)
    assert time.monotonic() - started < 30
    assert state(own_node, name) == "paused"


@pytest.mark.parametrize("odd", ["/hold", "/release"])
def test_agent_keeps_no_snapshot_waiting_nor_what_follows(own_node, rogue, odd):
    name = rogue(odd)
    own_node.ok("snapshot", name, "s", timeout=60)
    own_node.ok("template", "rm", "s")
    own_node.ok("pause", name, timeout=60)
    assert state(own_node, name) == "paused"


def test_agent_keeps_no_time_limit_from_pausing(own_node, rogue):
    name = rogue("/hold", "--timeout", "5", "--on-timeout", "pause")
    eventually(lambda: state(own_node, name) == "paused", lambda: own_node.inspect(name), timeout=60)


@pytest.mark.parametrize("odd", ["/release", "silent /release"])
def test_what_an_agent_was_asked_ends_with_a_pause(own_node, rogue, odd):
    name = rogue(odd)
    own_node.ok("pause", name)
    eventually(lambda: not leftovers(own_node).get("places"), lambda: leftovers(own_node))
    rest = descriptors(own_node)
    for _ in range(3):
        own_node.ok("resume", name)
        own_node.ok("pause", name)
        eventually(lambda: not leftovers(own_node).get("places"), lambda: leftovers(own_node))
        eventually(lambda: descriptors(own_node) <= rest, lambda: "%d descriptors, not %d" % (descriptors(own_node), rest), timeout=10)
    daemon = own_node.daemon_pid()
    own_node.ok("resume", name)
    own_node.ok("rm", "-f", name)
    assert own_node.daemon_pid() == daemon and not leftovers(own_node)
