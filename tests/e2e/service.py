# SPDX-License-Identifier: Apache-2.0
"""An HTTPS service on 127.0.0.1 with a CA of its own, which keeps what it was sent; and a policy that opens it to a sandbox."""
import http.server
import json
import pathlib
import ssl
import subprocess
import tempfile
import threading

HOST = "api.test.internal"


def make_certificates(directory, host):
    def openssl(*args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)

    d = pathlib.Path(directory)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(
        "req", "-x509", *curve, "-days", "2", "-subj", "/CN=test CA", "-keyout", d / "ca.key", "-out", d / "ca.pem",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
    )  # fmt: skip
    openssl("req", *curve, "-subj", "/CN=" + host, "-keyout", d / "key.pem", "-out", d / "csr")
    (d / "ext").write_text("subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n" % host)
    openssl(
        "x509", "-req", "-in", d / "csr", "-CA", d / "ca.pem", "-CAkey", d / "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", d / "ext", "-out", d / "cert.pem",
    )  # fmt: skip


class Service:
    def __init__(self, host=HOST):
        self.host = host
        self.requests = []  # (method, path, headers without regard to case, body)
        self.dir = tempfile.TemporaryDirectory(prefix="space-service.")
        make_certificates(self.dir.name, host)
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                service.requests.append((self.command, self.path, self.headers, body))
                text = json.dumps({"path": self.path, "authorized": "Authorization" in self.headers}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = answer

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.dir.name + "/cert.pem", self.dir.name + "/key.pem")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        self.url = "https://%s:%d" % (host, self.port)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def policy(self):
        ca = (pathlib.Path(self.dir.name) / "ca.pem").read_text()
        return "egress:\n  - host: %s\n    ports: [%d]\nresolve:\n  - host: %s\n    address: 127.0.0.1\n    ca: |\n%s" % (
            self.host, self.port, self.host, "".join("      %s\n" % line for line in ca.splitlines()),
        )  # fmt: skip

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.dir.cleanup()
