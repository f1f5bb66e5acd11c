# SPDX-License-Identifier: Apache-2.0
"""Client certificates: shown by the gateway for a grant, within its scope alone, on connections of their own."""
import contextlib
import http.server
import json
import socket
import ssl
import subprocess
import threading
import time

import h2.config
import h2.connection
import h2.events
import pytest


class Server:
    """Says whose certificate a connection has shown, and which connection it was. It asks for one, and takes what its authority signed."""

    def __init__(self, world, authority, demand=ssl.CERT_OPTIONAL, http2=False):
        server = self
        self.connections = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                with server.lock:
                    server.connections += 1
                    self.number = server.connections

            def handle(self):
                with contextlib.suppress(OSError):
                    self.connection.do_handshake()
                    if self.connection.selected_alpn_protocol() == "h2":
                        server.serve_http2(self.connection, self.number)
                    else:
                        super().handle()

            def log_message(self, *args):
                pass

            def do_GET(self):
                text = server.answer(self.connection, self.number)
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*world.outside.server(f"certified-{demand}-{http2}", ["api.test"]))
        context.load_verify_locations(authority.pem)
        context.verify_mode = demand
        context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
        self.lock = threading.Lock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *args: None  # handshakes that are refused
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @staticmethod
    def answer(connection, number):
        names = dict(part[0] for part in (connection.getpeercert() or {}).get("subject", ()))
        return json.dumps({"who": names.get("commonName"), "connection": number}).encode()

    def serve_http2(self, sock, number):
        c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        c.initiate_connection()
        sock.sendall(c.data_to_send())
        while data := sock.recv(65536):
            for event in c.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    c.send_headers(event.stream_id, [(":status", "200")])
                    c.send_data(event.stream_id, self.answer(sock, number), end_stream=True)
            sock.sendall(c.data_to_send())

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def certificate(authority, name):
    pem, key = authority.client(name)
    return {"certificate": pem.read_text(), "key": key.read_text()}


def entry(value, **members):
    return {"name": "CERT", "hosts": ["api.test"], "inject": {"kind": "certificate"}, "value": value, **members}


@pytest.fixture
def start(own_lab, world):
    with contextlib.ExitStack() as stack:
        def make(secret, **kwargs):
            server = Server(world, world.stranger, **kwargs)
            stack.callback(server.close)
            policy = {"egress": [{"host": "api.test", "ports": [server.port]}], "resolve": [world.pin("api.test", world.outside)]}
            return server, own_lab(policy, [secret])
        yield make


def ask(lab, server, path="/"):
    answer = lab.get("api.test", server.port, path)
    assert answer.status == 200, answer.body
    return answer.json()


@pytest.mark.conformance("credentials: client-certificate")
@pytest.mark.parametrize("http2", [False, True])
def test_certificate_is_shown_within_its_scope_on_connections_of_their_own(start, world, http2):
    server, lab = start(entry(certificate(world.stranger, f"granted-{http2}"), paths=["/in/**"]), http2=http2)
    shown = [ask(lab, server, path) for path in ("/in/a", "/out", "/in/b", "/out")]
    assert [answer["who"] for answer in shown] == [f"granted-{http2}", None, f"granted-{http2}", None]
    assert [answer["connection"] for answer in shown] == [1, 2, 1, 2]
    lab.wait_record("egress.request", path="/in/a", credential="CERT")
    lab.wait_record("egress.request", path="/out", credential=None)


def test_certificate_that_is_demanded(start, world):
    server, lab = start(entry(certificate(world.stranger, "demanded"), paths=["/in"]), demand=ssl.CERT_REQUIRED)
    assert ask(lab, server, "/in")["who"] == "demanded"
    assert lab.get("api.test", server.port, "/out").status == 502


def test_certificate_that_is_renewed_is_shown_on_new_connections(start, world):
    server, lab = start(entry(certificate(world.stranger, "old")))
    assert ask(lab, server)["who"] == "old"
    answer = lab.tell({"type": "secret", "renew": {"name": "CERT", "value": certificate(world.stranger, "new")}})
    assert answer["ok"]
    assert ask(lab, server)["who"] == "new"
    assert lab.tell({"type": "secret", "revoke": "CERT"})["ok"]
    assert lab.get("api.test", server.port).status == 403


def test_certificate_and_key_that_do_not_fit_cost_the_request(start, world):
    value = {**certificate(world.stranger, "one"), "key": certificate(world.stranger, "two")["key"]}
    server, lab = start(entry(value))
    answer = lab.get("api.test", server.port)
    assert answer.status == 502 and "CERT" in answer.json()["message"] and "BEGIN" not in answer.body.decode()


NGINX = """
daemon off; master_process off; pid %(dir)s/pid; error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path %(dir)s; proxy_temp_path %(dir)s; fastcgi_temp_path %(dir)s; uwsgi_temp_path %(dir)s; scgi_temp_path %(dir)s;
    server {
        listen 127.0.0.1:%(port)d ssl%(http2)s;
        ssl_certificate %(certificate)s; ssl_certificate_key %(key)s;
        ssl_client_certificate %(authority)s; ssl_verify_client %(verify)s;
        location / { default_type application/json; return 200 '{"who": "$ssl_client_s_dn", "verified": "$ssl_client_verify"}'; }
    }
}
"""


class Nginx:
    """Debian's nginx, which asks for a certificate."""

    def __init__(self, world, authority, directory, verify, http2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        certificate, key = world.outside.server(f"nginx-{verify}-{http2}", ["api.test"])
        conf = directory / "nginx.conf"
        conf.write_text(NGINX % {
            "dir": directory, "port": self.port, "http2": " http2" if http2 else "", "certificate": certificate, "key": key,
            "authority": authority.pem, "verify": verify})
        self.process = subprocess.Popen(["nginx", "-p", str(directory), "-c", str(conf)], stderr=subprocess.PIPE)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.process.stderr.read()
                threading.Event().wait(0.02)

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=20)


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("verify", ["on", "optional"])
def test_nginx_takes_the_certificate(own_lab, world, tmp_path, verify, http2):
    with contextlib.closing(Nginx(world, world.stranger, tmp_path, verify, http2)) as server:
        policy = {"egress": [{"host": "api.test", "ports": [server.port]}], "resolve": [world.pin("api.test", world.outside)]}
        name = f"for-nginx-{verify}-{http2}"
        lab = own_lab(policy, [entry(certificate(world.stranger, name), paths=["/in/**"])])
        assert ask(lab, server, "/in/a") == {"who": f"CN={name}", "verified": "SUCCESS"}
        without = lab.get("api.test", server.port, "/out")
        if verify == "on":
            assert without.status == 400 and b"certificate" in without.body
        else:
            assert without.json() == {"who": "", "verified": "NONE"}
        assert ask(lab, server, "/in/b")["verified"] == "SUCCESS"
