# SPDX-License-Identifier: Apache-2.0
"""Root in a guest takes all it can get: the neighbour, spaced and the host's bounds hold. SPACE_SOAK: seconds of each attack."""
import os

import pytest

SECONDS = int(os.environ.get("SPACE_SOAK", "2"))

BEGIN = """
import os, random, socket, struct, subprocess, sys, threading, time
seconds = float(sys.argv[1])
end = time.monotonic() + seconds
def more():
    return time.monotonic() < end
"""

ATTACKS = {
    "fork bomb": """
print("begun")
while more():
    try:
        os.fork()
    except OSError:
        pass
""",
    "memory hog": """
print("begun")
held = []
try:
    while more():
        held.append(bytearray(os.urandom(4096)) * 1024)
except MemoryError:
    pass
""",
    "disk fill": """
print("begun")
with open("/var/tmp/full", "wb", buffering=0) as file:
    block = os.urandom(1 << 20)
    try:
        while more():
            file.write(block)
    except OSError as e:
        print(e)
""",
    "inode fill": """
print("begun")
n = 0
try:
    os.mkdir("/var/tmp/many")
    while more():
        open("/var/tmp/many/%d" % n, "w").close()
        n += 1
except OSError as e:
    print(e)
""",
    "packet flood": """
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0))
us, them = bytes.fromhex("025350414302"), bytes.fromhex("025350414301")
def ip4(payload, proto=17, flags=0, source="192.0.2.2", target="192.0.2.1"):
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), random.getrandbits(16), flags, 64, proto, 0,
        socket.inet_aton(source), socket.inet_aton(target)) + payload
arp = lambda: struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, random.choice((1, 2)), os.urandom(6), os.urandom(4), os.urandom(6), os.urandom(4))
def frames():
    yield them + us + b"\\x08\\0" + ip4(os.urandom(64))
    yield them + us + b"\\x08\\0" + ip4(os.urandom(1024), flags=0x2000)
    yield them + us + b"\\x08\\0" + ip4(os.urandom(1024), flags=random.getrandbits(13))
    yield them + os.urandom(6) + b"\\x08\\0" + ip4(os.urandom(20), 6, source="10.%d.%d.9" % (random.getrandbits(7), random.getrandbits(7)))
    yield b"\\xff" * 6 + us + b"\\x08\\x06" + arp()
    yield them + us + b"\\x86\\xdd" + b"\\x60" + os.urandom(60)
    yield bytes.fromhex("333300000001") + us + b"\\x86\\xdd" + b"\\x60" + os.urandom(60)
    yield bytes.fromhex("01005e000001") + us + b"\\x08\\0" + ip4(os.urandom(64), 2, target="224.0.0.1")
    yield os.urandom(random.randrange(14, 1500))
print("begun")
n = 0
while more():
    for frame in frames():
        try:
            n += raw.send(frame) > 0
        except OSError:
            pass
print("sent", n)
""",
    "10,000 connections": """
import resource, select
resource.setrlimit(resource.RLIMIT_NOFILE, (12000, 12000))
print("begun")
held = []
while more() and len(held) < 10000:
    s = socket.socket()
    s.setblocking(False)
    try:
        s.connect_ex(("198.18.0.1", 443))
        held.append(s)
    except OSError:
        break
print("held", len(held))
""",
    "DNS flood": """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setblocking(False)
print("begun")
n = 0
while more():
    name = os.urandom(12).hex().encode()
    labels = random.choice((bytes([len(name)]) + name + b"\\7example\\3com\\0", b"\\xc0\\x0c", b"\\x3f" * 300, b"\\0"))
    try:
        s.sendto(os.urandom(2) + b"\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + labels + b"\\0\\1\\0\\1", ("192.0.2.1", 53))
        n += 1
    except OSError:
        pass
print("sent", n)
""",
    "console flood": """
print("begun")
with open("/dev/console", "wb", buffering=0) as console:
    while more():
        console.write(b"space-agent: ready\\n\\x1b]0;owned\\7" * 100)
""",
    "output flood": """
print("begun")
block = b"\\x1b[2J\\x9b" * 4096
while more():
    try:
        os.write(2, block)
    except BlockingIOError:
        pass
""",
    "clock tampering": """
print("begun")
while more():
    for t in (0, 2 ** 31 + 10, 4102444800, time.time()):
        try:
            time.clock_settime(time.CLOCK_REALTIME, t)
        except OSError:
            pass
""",
    "signals to the agent and its parts": """
print("begun")
for what in (lambda: os.kill(1, 9), lambda: os.kill(1, 11), lambda: subprocess.run(["umount", "-l", "/proc"]), lambda: subprocess.run(["umount", "-l", "/sys/fs/cgroup"])):
    try:
        what()
    except OSError:
        pass
""",
    "agent's memory overwritten": """
maps = [line.split() for line in open("/proc/1/maps")]
print("begun")
with open("/proc/1/mem", "r+b", buffering=0) as memory:
    for span, rights, *_ in maps:
        if "w" not in rights and "x" not in rights:
            continue
        at, last = (int(x, 16) for x in span.split("-"))
        while at < last:
            try:
                memory.seek(at)
                memory.write(os.urandom(min(4096, last - at)))
            except (OSError, OverflowError):
                pass
            at += 4096
""",
    "kernel panic": """
print("begun")
open("/proc/sys/kernel/sysrq", "w").write("1")
open("/proc/sysrq-trigger", "w").write("c")
""",
    "reboot at once": """
print("begun")
open("/proc/sysrq-trigger", "w").write("b")
""",
}


@pytest.mark.parametrize("what", ATTACKS)
def test_neighbour_and_host_hold(host, what):
    host.attack(what, BEGIN + ATTACKS[what], seconds=SECONDS)
