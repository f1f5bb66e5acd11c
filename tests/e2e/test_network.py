# SPDX-License-Identifier: Apache-2.0
"""What a sandbox reaches, what it does not, where the secret is; with a hostile root inside."""
import http.client
import json
import mmap
import os
import pathlib
import secrets
import socket
import subprocess
import textwrap
import threading
import time

import pytest

from hunt import Hunt
from node import find_processes
from service import Service

TOKEN = "tok-" + secrets.token_hex(24)


@pytest.fixture(scope="module")
def service():
    s = Service()
    yield s
    s.close()


@pytest.fixture(scope="module")
def policy(service, tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(service.policy())
    return path


@pytest.fixture(scope="module")
def box(node, service, policy):
    """A sandbox that may reach the service, with a secret for it."""
    name = "net-%d" % os.getpid()
    node.ok(
        "run", "-d", "--name", name, "--policy", policy, "--secret", "API_TOKEN@" + service.host, "--", "sleep", "100000",
        env={"API_TOKEN": TOKEN},
    )  # fmt: skip
    yield name
    node.space("rm", "-f", name)


def call_spaced(node, method, target, body):
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(str(node.run_dir / "spaced.sock"))
    connection.request(method, target, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


@pytest.mark.smoke
def test_secret_is_added_outside(node, service, box):
    service.requests.clear()
    out = node.ok("exec", box, "--", "curl", "-sS", service.url + "/a?b=c")
    assert json.loads(out) == {"path": "/a?b=c", "authorized": True}
    script = (
        "import os,urllib.request as u;"
        "r=u.Request('%s/py',headers={'Authorization':'Bearer '+os.environ['API_TOKEN']});"
        "print(u.urlopen(r).read().decode())" % service.url
    )
    assert json.loads(node.ok("exec", box, "--", "python3", "-c", script))["path"] == "/py"
    for _, _, headers, _ in service.requests:
        assert headers["Authorization"] == "Bearer " + TOKEN
    assert len(service.requests) == 2


@pytest.mark.smoke
def test_what_no_rule_names_is_refused(node, service, box):
    done = node.space("exec", box, "--", "curl", "-sS", "https://elsewhere.example.com/")
    assert done.returncode == 6 and b"Could not resolve host" in done.stderr
    out = node.ok("exec", box, "--", "curl", "-sS", "http://%s/" % service.host)
    denial = json.loads(out)
    assert denial["code"] == 403 and denial["host"] == service.host and denial["port"] == 80
    assert denial["allow_with"].startswith("--allow-host ")
    records = [json.loads(line) for line in node.ok("audit", "show", "--json", box).splitlines()]
    denied = [r for r in records if r["kind"] == "egress.deny"]
    assert any(r["host"] == service.host and r["port"] == 80 for r in denied)
    unknown = [r for r in records if r["kind"] == "egress.dns" and r["name"] == "elsewhere.example.com"]
    assert unknown and all(r["answer"] == "NXDOMAIN" for r in unknown)


def test_secret_is_nowhere_in_the_vm_nor_on_the_host(node, service, box, tmp_path):
    node.ok("exec", box, "--", "curl", "-sS", service.url + "/again")
    everything = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; tar -c -C / etc home root tmp var/tmp var/log run 2>/dev/null; true"
    inside = node.space("exec", "-u", "root", box, "--", "sh", "-c", everything).stdout
    assert len(inside) > 50000
    placeholder = node.ok("exec", box, "--", "printenv", "API_TOKEN").strip()
    assert placeholder.encode() in inside
    hunt = Hunt({"API_TOKEN": TOKEN})
    found = hunt.in_bytes(inside, "the guest")
    dump = tmp_path / "memory"
    status, text = call_spaced(node, "POST", "/sandboxes/%s/memory" % box, {"path": str(dump)})
    assert status == 204, text
    assert dump.stat().st_size >= 512 << 20
    with open(dump, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        assert data.find(placeholder.encode()) >= 0, "the dump is of something else"
    found += hunt.in_file(dump)
    dump.unlink()
    found += hunt.below(node.root) + hunt.in_processes(find_processes(node))
    assert not found


def test_jailed_programs_can_write_no_file_but_the_disk(node, box):
    daemon = node.daemon_pid()
    jailed = find_processes(node) - {daemon}
    assert len(jailed) >= 2
    for pid in jailed:
        for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir():
            if not fd.is_file() or str(fd.readlink()).startswith(str(node.state / "scratch")):
                continue
            flags = int(pathlib.Path("/proc/%d/fdinfo/%s" % (pid, fd.name)).read_text().split("flags:")[1].split()[0], 8)
            assert flags & os.O_ACCMODE == os.O_RDONLY, (pid, fd.readlink())


def test_audit_tells_the_story_and_is_whole(node, service, box):
    records = [json.loads(line) for line in node.ok("audit", "show", "--json", box).splitlines()]
    kinds = {r["kind"] for r in records}
    assert {"sandbox.create", "exec.start", "exec.end", "egress.dns", "egress.request", "egress.response"} <= kinds
    requests = [r for r in records if r["kind"] == "egress.request"]
    assert requests
    for r in requests:
        assert (r["host"], r["port"], r["credential"]) == (service.host, service.port, "API_TOKEN")
    node.ok("audit", "verify")


def test_no_network_reaches_nothing(node, service):
    script = (
        "getent hosts example.com %s; for a in 192.0.2.1 198.18.0.1 8.8.8.8; do for p in 53 80 443;"
        " do timeout 3 bash -c \"echo >/dev/tcp/$a/$p\" 2>/dev/null && echo reached $a $p; done; done; true" % service.host
    )
    assert node.ok("run", "--no-network", "--", "bash", "-c", script) == ""


# From inside, as root, with all means


MAGIC = b"SPACE-TEST-" + secrets.token_hex(8).encode()


class Listeners:
    """Everything on this host that a guest could hope to reach, and a look at every packet."""

    def __init__(self):
        self.hits = []
        self.hit = threading.Event()
        self.tcp = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        self.tcp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.tcp.bind(("::", 0))
        self.tcp.listen(64)
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.udp.bind(("::", self.port))
        self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # every protocol, every interface
        for name, sock in (("tcp", self.tcp), ("udp", self.udp), ("packet", self.raw)):
            threading.Thread(target=self.watch, args=(name, sock), daemon=True).start()

    def watch(self, name, sock):
        while True:
            try:
                if name == "tcp":
                    self.hits.append((name, sock.accept()[1]))
                    self.hit.set()
                else:
                    data, source = sock.recvfrom(65536)
                    if name == "udp" or MAGIC in data:
                        self.hits.append((name, source, data[:80]))
            except OSError:
                return

    def wait(self):
        deadline = time.monotonic() + 10
        while not self.hits and time.monotonic() < deadline:
            self.hit.wait(0.1)
        return self.hits

    def addresses(self):
        out = subprocess.run(["ip", "-j", "addr"], capture_output=True, check=True, text=True).stdout
        return [a["local"] for link in json.loads(out) for a in link.get("addr_info", [])]

    def close(self):
        for sock in (self.tcp, self.udp, self.raw):
            sock.close()


ESCAPE = textwrap.dedent(
    r"""
    import json, os, random, socket, struct, subprocess, sys
    port, magic, hosts = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3].split(",")
    got = []

    def ip(*args):
        subprocess.run(["ip", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def tcp(host, port):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        s = socket.socket(family, socket.SOCK_STREAM)
        s.settimeout(3)
        try:
            s.connect((host, port))
            s.sendall(b"GET / HTTP/1.0\r\n\r\n" + magic)
            answer = s.recv(200)
            # The gateway accepts and refuses, and our own agent answers on addresses that are ours by now: the rest counts.
            refusal = answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))
            if answer and not refusal and b"there is nothing at" not in answer:
                got.append(["tcp", host, port, answer.decode("latin1")])
        except OSError:
            pass
        s.close()

    def udp(host, port, payload):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.settimeout(0.3)
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            s.sendto(payload, (host, port))
            got.append(["udp", host, port, s.recv(500).hex()])
        except OSError:
            pass
        s.close()

    def checksum(data):
        total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        return ~total & 0xffff

    def frame(source_mac, target_mac, source, target, proto, payload, ethertype=0x0800):
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, proto, 0, socket.inet_aton(source), socket.inet_aton(target))
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        return target_mac + source_mac + struct.pack("!H", ethertype) + head + payload

    def raw_frames():
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        s.bind(("eth0", 0))
        own = bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))
        gateway = bytes.fromhex("025350414301")
        for source_mac in (own, b"\2\0\0\0\0\x99"):
            for target_mac in (gateway, b"\xff" * 6, b"\1\0\x5e\0\0\1"):
                for source in ("192.0.2.2", "192.0.2.1", "127.0.0.1", hosts[0]):
                    for target in hosts4 + ["127.0.0.1", "192.0.2.1", "8.8.8.8", "255.255.255.255", "169.254.169.254"]:
                        datagram = struct.pack("!HHHH", 4444, port, 8 + len(magic), 0) + magic
                        syn = struct.pack("!HHIIBBHHH", 4444, port, 1, 0, 0x50, 2, 1000, 0, 0) + magic
                        for proto, payload in ((17, datagram), (6, syn), (1, b"\x08\0\0\0" + magic), (47, magic), (132, magic)):
                            s.send(frame(source_mac, target_mac, source, target, proto, payload))
                s.send(target_mac + source_mac + struct.pack("!H", 0x86dd) + b"\x60\0\0\0" + struct.pack("!HBB", len(magic), 59, 64) + b"\xfe\x80" + b"\0" * 14 + b"\xff\x02" + b"\0" * 13 + b"\1" + magic)
                s.send(target_mac + source_mac + struct.pack("!HH", 0x8100, 1) + struct.pack("!H", 0x0800) + magic)
                # ARP: we are everybody.
                for claimed in hosts4 + ["192.0.2.1"]:
                    s.send(target_mac + source_mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 2) + source_mac + socket.inet_aton(claimed) + gateway + socket.inet_aton("192.0.2.1") + magic)

    hosts4 = [h for h in hosts if ":" not in h]
    def attempt():
        for host in hosts + ["192.0.2.1", "169.254.169.254", "198.18.0.1", "10.0.2.2", "8.8.8.8"]:
            tcp(host, port)
            udp(host, port, magic)
        for p in (22, 80, 443, 15001, 15053, 49983):
            tcp("192.0.2.1", p)
            tcp(hosts4[0], p)
        udp("255.255.255.255", port, magic)
        udp("224.0.0.251", 5353, magic)
        raw_frames()

    open("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "w").write("0")
    attempt()
    # Other addresses, other routes, other MACs.
    ip("addr", "add", "192.0.2.1/30", "dev", "eth0")
    ip("addr", "add", "10.99.0.2/8", "dev", "eth0")
    for host in hosts4:
        ip("route", "add", host, "dev", "eth0")
        ip("neigh", "replace", host, "lladdr", "02:53:50:41:43:01", "dev", "eth0")
    ip("route", "replace", "default", "via", "10.99.0.1", "dev", "eth0", "onlink")
    ip("neigh", "replace", "10.99.0.1", "lladdr", "02:53:50:41:43:01", "dev", "eth0")
    attempt()
    ip("link", "set", "eth0", "down")
    ip("link", "set", "eth0", "address", "02:00:00:00:00:99")
    ip("link", "set", "eth0", "up")
    attempt()
    # As it was, so that the host hears the result.
    ip("link", "set", "eth0", "down")
    ip("link", "set", "eth0", "address", "02:53:50:41:43:02")
    ip("link", "set", "eth0", "up")
    ip("addr", "flush", "dev", "eth0")
    ip("neigh", "flush", "dev", "eth0")
    ip("addr", "add", "192.0.2.2/30", "dev", "eth0")
    ip("route", "replace", "default", "via", "192.0.2.1")
    print(json.dumps(got))
    """
)


@pytest.fixture
def listeners():
    l = Listeners()
    yield l
    l.close()


def test_hostile_root_sends_what_it_likes_and_nothing_arrives(node, service, policy, listeners):
    name = "hostile-%d" % os.getpid()
    node.ok("run", "-d", "--name", name, "--policy", policy, "--", "sleep", "100000")
    try:
        addresses = [a for a in listeners.addresses() if a != "::1"]
        done = node.space(
            "exec", "-u", "root", "-i", name, "--", "python3", "-", listeners.port, MAGIC.decode(), ",".join(addresses),
            input=ESCAPE.encode(), timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == []
        assert listeners.hits == []
        with socket.create_connection(("127.0.0.1", listeners.port)):
            pass  # the listeners do listen
        assert [hit[0] for hit in listeners.wait()] == ["tcp"]
        # A guest that cuts its own line keeps nobody from ending it.
        node.ok("exec", "-u", "root", name, "--", "sh", "-c", "(sleep 0.2; ip link set eth0 down) >/dev/null 2>&1 &")
    finally:
        node.ok("rm", name, timeout=60)
    assert name not in node.names()


def test_dns_to_any_server_is_answered_by_the_gateway(node, service, box):
    script = (
        "import socket,struct\n"
        "def ask(server, name):\n"
        " s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(10)\n"
        " q=struct.pack('!6H',7,0x100,1,0,0,0)+b''.join(bytes([len(l)])+l.encode() for l in name.split('.'))+b'\\0'+struct.pack('!2H',1,1)\n"
        " s.sendto(q,(server,53)); return s.recv(512)\n"
        "for server in ('192.0.2.1','8.8.8.8','127.0.0.53'):\n"
        " try:\n"
        "  a=ask(server,'%s'); b=ask(server,'x.example.org')\n"
        "  print(server, a[3]&15, socket.inet_ntoa(a[-4:]), b[3]&15)\n"
        " except OSError as e: print(server, 'none')\n" % service.host
    )
    lines = node.ok("exec", box, "--", "python3", "-c", script).splitlines()
    assert lines[0].startswith("192.0.2.1 0 198.18.") and lines[0].endswith(" 3")
    assert lines[1].startswith("8.8.8.8 0 198.18.") and lines[1].endswith(" 3")


def test_sandboxes_do_not_reach_each_other(node, service, policy, box):
    name = "other-%d" % os.getpid()
    serve = (
        "import http.server,socketserver\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        " def do_GET(self):\n  self.send_response(200); self.send_header('Content-Length','5'); self.end_headers(); self.wfile.write(b'other')\n"
        " do_POST=do_GET\n"
        "http.server.ThreadingHTTPServer(('0.0.0.0',8080),H).serve_forever()\n"
    )
    node.ok("run", "-d", "--name", name, "--policy", policy, "--", "python3", "-c", serve)
    try:
        up = "for i in $(seq 100); do curl -s http://192.0.2.2:8080/ && exit 0; sleep 0.1; done; exit 1"
        assert node.ok("exec", name, "--", "sh", "-c", up) == "other"
        for address in ("192.0.2.2", "192.0.2.1", "198.18.0.1", "198.18.0.2", "192.0.2.3"):
            done = node.space("exec", box, "--", "curl", "-s", "--max-time", "5", "http://%s:8080/" % address)
            assert b"other" not in done.stdout
    finally:
        node.space("rm", "-f", name)
