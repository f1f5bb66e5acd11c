# SPDX-License-Identifier: Apache-2.0
"""What bench/egress compares: origins, and ways to them; each way a program that ends TLS, puts a header in and begins TLS anew.

All live on the loopback of a network namespace of the benchmark's own.
"""
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time

HOST = "api.bench.internal"
FRESH = "fresh.bench.internal"  # names below it get a leaf each
STATIC, LIVE = 8443, 8444  # ports of the origins
TOKEN = "bench-token"
DEADLINE_S = 30
TICK = os.sysconf("SC_CLK_TCK")

ORIGIN = """
user root; daemon off; master_process off; pid {dir}/origin.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 600; sendfile on;
  client_body_temp_path {dir}/o1; proxy_temp_path {dir}/o2; fastcgi_temp_path {dir}/o3; uwsgi_temp_path {dir}/o4; scgi_temp_path {dir}/o5;
  server {{ listen 8443 ssl http2 backlog=4096; ssl_certificate {crt}; ssl_certificate_key {key};
    root {dir}/www; }}
}}
"""

NGINX = """
user root; daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 600; proxy_buffering off; proxy_request_buffering off;
  client_max_body_size 0; ssl_session_tickets off; ssl_session_cache off;
  client_body_temp_path {dir}/n1; proxy_temp_path {dir}/n2; fastcgi_temp_path {dir}/n3; uwsgi_temp_path {dir}/n4; scgi_temp_path {dir}/n5;
  ssl_certificate {crt}; ssl_certificate_key {key};
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; proxy_set_header Authorization "Bearer bench-token";
  proxy_ssl_server_name on; proxy_ssl_name api.bench.internal; proxy_ssl_verify on; proxy_ssl_trusted_certificate {ca};
  upstream static {{ server 127.0.0.1:8443; keepalive 1024; keepalive_requests 100000000; }}
  upstream live {{ server 127.0.0.1:8444; keepalive 64; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:8501 ssl http2 backlog=4096; location / {{ proxy_pass https://static; }} }}
  server {{ listen 127.0.0.1:8502 ssl; location / {{ proxy_pass https://live; }} }}
}}
"""

HAPROXY = """
global
  nbthread 1
  maxconn 8192
  tune.ssl.cachesize 0
defaults
  mode http
  timeout connect 10s
  timeout client 600s
  timeout server 600s
  http-reuse always
frontend static
  bind 127.0.0.1:8511 ssl crt {dir}/both.pem alpn h2,http/1.1 no-tls-tickets
  http-request set-header Authorization "Bearer bench-token"
  default_backend static
frontend live
  bind 127.0.0.1:8512 ssl crt {dir}/both.pem alpn http/1.1 no-tls-tickets
  http-request set-header Authorization "Bearer bench-token"
  default_backend live
backend static
  server s 127.0.0.1:8443 ssl verify required ca-file {ca} verifyhost api.bench.internal sni str(api.bench.internal) alpn http/1.1
backend live
  server s 127.0.0.1:8444 ssl verify required ca-file {ca} verifyhost api.bench.internal sni str(api.bench.internal) alpn http/1.1
"""

SQUID = """
http_port 127.0.0.1:8520
https_port 127.0.0.1:8521 intercept ssl-bump generate-host-certificates=on dynamic_cert_mem_cache_size=16MB tls-cert={dir}/ca.pem tls-key={dir}/ca.key
sslcrtd_program /usr/lib/squid/security_file_certgen -s {dir}/squid/db -M 16MB
sslcrtd_children 2 startup=2 idle=1
tls_outgoing_options cafile={ca}
acl first at_step SslBump1
ssl_bump peek first
ssl_bump bump all
http_access allow all
cache deny all
access_log none
cache_log {dir}/squid/cache.log
pid_filename {dir}/squid/pid
coredump_dir {dir}/squid
hosts_file {dir}/hosts
dns_nameservers 127.0.0.1
shutdown_lifetime 0 seconds
client_persistent_connections on
server_persistent_connections on
client_idle_pconn_timeout 600 seconds
request_header_access Authorization deny all
request_header_add Authorization "Bearer bench-token"
max_filedescriptors 8192
workers 1
"""


def run(*command, **kwargs):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=DEADLINE_S, **kwargs)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def wait_listening(port, process):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{process.args[0]} does not listen on port {port}") from None
            time.sleep(0.02)


class Live(threading.Thread):
    """The origin of what has no end or no beginning: events, each with the time when it was sent, and a place to upload to."""

    GAP_S, EVENTS = 0.005, 400

    def __init__(self, crt, key):
        super().__init__(daemon=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(crt, key)
        self.listener = socket.create_server(("", LIVE), backlog=64)

    def run(self):
        while True:
            sock, _ = self.listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, raw):
        try:
            with self.context.wrap_socket(raw, server_side=True) as sock:
                while self.answer(sock):
                    pass
        except OSError:
            pass

    def answer(self, sock):
        data = b""
        while b"\r\n\r\n" not in data:
            more = sock.recv(65536)
            if not more:
                return False
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        if head.startswith(b"GET /events"):
            return self.events(sock)
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if re.search(rb"(?i)expect: 100-continue", head):
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        left, buffer = int(length.group(1)) - len(rest), bytearray(1 << 18)
        while left > 0:
            n = sock.recv_into(buffer, min(left, len(buffer)))
            if not n:
                return False
            left -= n
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return True

    def events(self, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(self.EVENTS):
            time.sleep(self.GAP_S)
            data = b"data: %d\n\n" % time.monotonic_ns()
            sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))
        sock.sendall(b"0\r\n\r\n")
        return True


class Way:
    """Directly, and what the others have in common."""

    name = "direct"
    note = ""
    http2 = True
    leaves = False  # whether it makes certificates for names that it has not seen
    static, live, address = STATIC, LIVE, "127.0.0.1"
    ca = None
    process = None

    def __init__(self, where, authority):
        self.where, self.ca = where, authority.pem

    def start(self):
        pass

    def pids(self):
        """Its processes."""
        found = [self.process.pid] if self.process else []
        for pid in found:
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def cpu_s(self):
        total = 0
        for pid in self.pids():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICK

    def resident_kib(self):
        return sum(int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) for pid in self.pids())

    def private_kib(self):
        """Without what is shared with others, as pages of libraries are."""
        return sum(int(n) for pid in self.pids() for n in re.findall(r"Private_\w+:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()))

    def socket(self, host, port):
        return socket.create_connection((self.address, port))

    def command(self, *command):
        return list(command)

    def h2load(self, *options):
        return self.command("h2load", *options, f"--connect-to={self.address}:{self.static}")

    def curl(self, port, *options):
        return self.command("curl", "-sS", "--http1.1", "--cacert", str(self.ca), "--connect-to", f"::{self.address}:{port}", *options)

    def close(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def spawn(self, *command):
        log = open(self.where / f"{self.name}.log", "wb")
        self.process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        wait_listening(self.static if self.address == "127.0.0.1" else self.probe, self.process)

    def write(self, name, text):
        path = self.where / name
        path.write_text(text.format(dir=self.where, ca=self.ca, crt=self.where / "api.pem", key=self.where / "api.key"))
        return path


class Nginx(Way):
    name, program, package = "nginx", "nginx", "nginx-light"
    static, live = 8501, 8502

    def start(self):
        self.spawn("nginx", "-c", self.write("nginx.conf", NGINX))


class Haproxy(Way):
    name, program, package = "haproxy", "haproxy", "haproxy"
    static, live = 8511, 8512

    def start(self):
        (self.where / "both.pem").write_text((self.where / "api.pem").read_text() + (self.where / "api.key").read_text())
        self.spawn("haproxy", "-db", "-f", self.write("haproxy.cfg", HAPROXY))


class Squid(Way):
    """Intercepting, for that is how it makes leaves: connections to 127.0.0.2 are turned to it, other than its own."""

    name, program, package = "squid", "squid", "squid-openssl"
    http2, leaves = False, True
    address, probe = "127.0.0.2", 8520

    def start(self):
        home = self.where / "squid"
        home.mkdir()
        run("/usr/lib/squid/security_file_certgen", "-c", "-s", home / "db", "-M", "16MB")
        for path in (home, *home.rglob("*")):
            shutil.chown(path, "proxy", "proxy")
        (self.where / "hosts").write_text(f"127.0.0.2 {HOST}\n")
        (self.where / "ca.key").chmod(0o644)  # a key of this run
        rules = """table ip bench {
            chain turn {
                type nat hook output priority -100
                ip daddr 127.0.0.2 tcp dport { 8443, 8444 } meta skuid != "proxy" redirect to :8521
            }
        }
        """
        run("nft", "-f", "-", input=rules)
        self.spawn("squid", "-N", "-f", self.write("squid.conf", SQUID))


class Mitmproxy(Way):
    name, program, package = "mitmproxy", "mitmdump", "mitmproxy"
    static, live, leaves = 8531, 8532, True

    def start(self):
        home = self.where / "mitm"
        home.mkdir()
        (home / "mitmproxy-ca.pem").write_text((self.where / "ca.key").read_text() + (self.where / "ca.pem").read_text())
        self.processes = []
        for port, origin in ((self.live, LIVE), (self.static, STATIC)):
            log = open(self.where / f"mitmproxy{port}.log", "wb")
            process = subprocess.Popen(
                ["mitmdump", "-q", "--mode", f"reverse:https://{HOST}:{origin}", "-p", str(port), "--listen-host", "127.0.0.1", "--set", f"confdir={home}",
                 "--set", f"ssl_verify_upstream_trusted_ca={self.ca}", "--set", "stream_large_bodies=1", "--set", "keep_host_header=true",
                 "--modify-headers", "/~q/Authorization/Bearer bench-token"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            log.close()
            self.processes.append(process)
            wait_listening(port, process)
        self.process = process

    def pids(self):
        return [process.pid for process in self.processes]

    def resident_kib(self):
        return super().resident_kib() // len(self.processes)  # one would do

    def private_kib(self):
        return super().private_kib() // len(self.processes)

    def close(self):
        for self.process in self.processes:
            super().close()
