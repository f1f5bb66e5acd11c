# SPDX-License-Identifier: Apache-2.0
"""An HTTPS origin with what real clients ask for: files, git, package indexes of pip, npm and apt, a WebSocket, events."""
import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import tarfile
import tempfile
import threading
import zipfile

from service import make_certificates

HOST = "origin.test.internal"
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def run(*command, **kwargs):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, **kwargs).stdout


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    origin = None  # set by Origin

    def __init__(self, *args):
        super().__init__(*args, directory=str(self.origin.files))

    def log_message(self, *args):
        pass

    def answer(self, body, status=200, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size + 2)[:-2]
        self.rfile.readline()
        return data

    def refused(self):
        if self.origin.demand is None or self.origin.demand(self.path, self.headers):
            return False
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="test"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def do_GET(self):
        self.origin.requests.append((self.command, self.path, dict(self.headers)))
        if self.refused():
            return
        if self.path.startswith("/git/"):
            self.git(b"")
        elif self.path == "/socket":
            self.websocket()
        elif self.path == "/events":
            self.events()
        elif self.path.startswith("/echo"):
            self.answer(json.dumps({"path": self.path, "fields": dict(self.headers)}).encode())
        else:
            super().do_GET()

    def do_POST(self):
        self.origin.requests.append((self.command, self.path, dict(self.headers)))
        body = self.body()
        if self.refused():
            return
        if self.path.startswith("/git/"):
            self.git(body)
        else:
            self.answer(json.dumps({"path": self.path, "body": body.decode("latin-1"), "fields": dict(self.headers)}).encode())

    def git(self, body):
        path, _, query = self.path.removeprefix("/git").partition("?")
        env = {"GIT_PROJECT_ROOT": str(self.origin.repositories), "GIT_HTTP_EXPORT_ALL": "1", "REQUEST_METHOD": self.command,
               "PATH_INFO": path, "QUERY_STRING": query, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "test",
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HOME": str(self.origin.repositories), "PATH": os.environ["PATH"]}
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        out = subprocess.run(["git", "http-backend"], input=body, env={**env, "CONTENT_LENGTH": str(len(body))}, capture_output=True).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.answer(body, int(fields.get("Status", "200").split()[0]), fields["Content-Type"])

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(3):
            data = b"data: %d\n\n" % i
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def websocket(self):
        accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + WEBSOCKET).encode()).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:  # short frames, sent back unmasked
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            n, mask = head[1] & 127, self.rfile.read(4)
            data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self.rfile.read(n)))
            self.wfile.write(bytes([head[0], n]) + data)
            if head[0] & 15 == 8:
                return


class Origin:
    """Its files are in `files`; `requests` is what it was asked. demand(path, fields): whether a request is let in."""

    def __init__(self, host=HOST, demand=None):
        self.host, self.requests, self.demand = host, [], demand
        self.dir = tempfile.TemporaryDirectory(prefix="space-origin.")
        self.files = pathlib.Path(self.dir.name) / "files"
        self.repositories = pathlib.Path(self.dir.name) / "repositories"
        self.files.mkdir()
        self.repositories.mkdir()
        make_certificates(self.dir.name, host)
        self.certificate, self.key = self.dir.name + "/cert.pem", self.dir.name + "/key.pem"
        (self.files / "hello").write_text("hello, world\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"origin": self}))
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        self.url = f"https://{host}:{self.port}"
        self.add_repository()
        self.add_wheel()
        self.add_npm_package()
        self.add_debian_package()
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def add_repository(self):
        bare, work = self.repositories / "demo.git", pathlib.Path(self.dir.name) / "work"
        run("git", "init", "-q", "-b", "main", work)
        (work / "README").write_text("cloned\n")
        identity = ["-c", "user.name=test", "-c", "user.email=test@test.internal"]
        run("git", "-C", work, "add", "README")
        run("git", *identity, "-C", work, "commit", "-q", "-m", "first")
        run("git", "clone", "-q", "--bare", work, bare)
        run("git", "-C", bare, "config", "http.receivepack", "true")
        shutil.rmtree(work)

    def add_wheel(self):
        index = self.files / "simple/spacedemo"
        index.mkdir(parents=True)
        name = "spacedemo-1.0-py3-none-any.whl"
        with zipfile.ZipFile(index / name, "w") as wheel:
            info = "spacedemo-1.0.dist-info/"
            for path, text in (("spacedemo.py", "print('from the wheel')\n"),
                               (info + "METADATA", "Metadata-Version: 2.1\nName: spacedemo\nVersion: 1.0\n"),
                               (info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
                               (info + "RECORD", "")):
                wheel.writestr(path, text)
        (index / "index.html").write_text(f'<a href="{name}">{name}</a>')

    def add_npm_package(self):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            for path, text in (("package/package.json", '{"name":"spacedemo","version":"1.0.0","main":"index.js"}'),
                               ("package/index.js", "console.log('from npm')\n")):
                member = tarfile.TarInfo(path)
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
        registry = self.files / "npm"
        registry.mkdir()
        (registry / "spacedemo-1.0.0.tgz").write_bytes(data.getvalue())
        dist = {"tarball": f"{self.url}/npm/spacedemo-1.0.0.tgz", "shasum": hashlib.sha1(data.getvalue()).hexdigest()}
        version = {"name": "spacedemo", "version": "1.0.0", "dist": dist}
        (registry / "spacedemo").write_text(json.dumps({"name": "spacedemo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))

    def add_debian_package(self):
        repository, tree = self.files / "apt", pathlib.Path(self.dir.name) / "deb"
        repository.mkdir()
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "usr/share/spacedemo").mkdir(parents=True)
        (tree / "usr/share/spacedemo/text").write_text("from apt\n")
        control = "Package: spacedemo\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@test.internal>\nDescription: a test\n"
        (tree / "DEBIAN/control").write_text(control)
        run("dpkg-deb", "--root-owner-group", "-b", tree, repository / "spacedemo.deb")
        data = (repository / "spacedemo.deb").read_bytes()
        packages = control + f"Filename: spacedemo.deb\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        index = repository / "dists/stable/main/binary-amd64"
        index.mkdir(parents=True)
        (index / "Packages").write_text(packages)
        (repository / "dists/stable/Release").write_text(
            "Suite: stable\nComponents: main\nArchitectures: amd64\nSHA256:\n"
            f" {hashlib.sha256(packages.encode()).hexdigest()} {len(packages)} main/binary-amd64/Packages\n")

    def policy(self, *ports):
        ca = (pathlib.Path(self.dir.name) / "ca.pem").read_text()
        return "egress:\n  - host: %s\n    ports: [%s]\nresolve:\n  - host: %s\n    address: 127.0.0.1\n    ca: |\n%s" % (
            self.host, ", ".join(map(str, [self.port, *ports])), self.host, "".join("      %s\n" % line for line in ca.splitlines()))

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.dir.cleanup()
