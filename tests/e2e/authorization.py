# SPDX-License-Identifier: Apache-2.0
"""An authorization server of RFC 6749 and RFC 7523, and GitHub's call for installations, on 127.0.0.1.

It is strict: a refresh token is good once, an assertion's signature and times are checked, clients say who they are as RFC 6749
has it (form-encoded, in Authorization or in the form). What it shall do wrong, a test says by `wrong`.
"""
import base64
import email.utils
import http.server
import itertools
import json
import pathlib
import ssl
import subprocess
import threading
import time
import urllib.parse

CLIENT, CLIENT_SECRET = "client:1 ä", "s3cret+/%: ü0123456"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def unbase64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def der_signature(raw):
    """r and s of ES256 as ASN.1 has them, for openssl."""

    def integer(part):
        body = part.lstrip(b"\0") or b"\0"
        body = (b"\0" if body[0] & 0x80 else b"") + body
        return b"\x02" + bytes([len(body)]) + body

    assert len(raw) == 64
    body = integer(raw[:32]) + integer(raw[32:])
    return b"\x30" + bytes([len(body)]) + body


class Refused(Exception):
    pass


class Authorization:
    def __init__(self, directory, tls=None, life=3600):
        """tls: (certificate, key), else plain http."""
        self.dir = pathlib.Path(directory)
        self.life = life
        self.requests = []  # (path, form, headers)
        self.issued = []  # every value given away
        self.refresh = {"first-refresh-token-0": True}  # good or not
        self.numbers = itertools.count(1)
        self.skew = 0  # seconds that its clock is ahead
        self.wrong = None  # function(handler) that answers instead
        self.hold = None  # threading.Event that answers wait for
        self.asked = threading.Semaphore(0)  # one for each request that came
        self.keys = {}  # issuer: public key file
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def date_time_string(self, timestamp=None):
                return email.utils.formatdate(time.time() + server.skew, usegmt=True)

            def do_POST(self):
                self.form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                server.requests.append((self.path, dict(urllib.parse.parse_qsl(self.form)), self.headers))
                server.asked.release()
                if server.hold:
                    server.hold.wait(30)
                if server.wrong:
                    return server.wrong(self)
                try:
                    status, answer = server.answer(self)
                except Refused as e:
                    status, answer = 400, {"error": str(e), "error_description": "you sent: " + self.form}
                self.json(status, answer)

            def json(self, status, answer):
                self.text(status, json.dumps(answer))

            def text(self, status, text, **fields):
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def new(self, kind):
        self.issued.append("%s-token-%d-0123456789" % (kind, next(self.numbers)))
        return self.issued[-1]

    # What it answers

    def answer(self, request):
        form = dict(urllib.parse.parse_qsl(request.form, keep_blank_values=True))
        if request.path.startswith("/app/installations/"):
            return self.installation(request)
        grant = form.get("grant_type")
        if grant == "client_credentials":
            self.client(request, form)
            return 200, self.token()
        if grant == "refresh_token":
            self.client(request, form)
            if not self.refresh.get(form["refresh_token"]):
                raise Refused("invalid_grant")
            self.refresh[form["refresh_token"]] = False
            successor = self.new("refresh")
            self.refresh[successor] = True
            return 200, {**self.token(), "refresh_token": successor}
        if grant == BEARER:
            self.assertion(form["assertion"], request.path)
            return 200, self.token()
        raise Refused("unsupported_grant_type")

    def token(self):
        return {"access_token": self.new("access"), "token_type": "Bearer", "expires_in": self.life}

    def client(self, request, form):
        auth = request.headers.get("Authorization")
        if auth:
            assert "client_secret" not in form
            name, secret = base64.b64decode(auth.split("Basic ")[1]).decode().split(":")
            name, secret = urllib.parse.unquote_plus(name), urllib.parse.unquote_plus(secret)
        else:
            name, secret = form.get("client_id"), form.get("client_secret")
        if (name, secret) != (CLIENT, CLIENT_SECRET):
            raise Refused("invalid_client")

    def assertion(self, text, audience=None):
        head, claims, signature = text.split(".")
        said, algorithm = json.loads(unbase64(claims)), json.loads(unbase64(head))["alg"]
        raw = unbase64(signature)
        (self.dir / "signature").write_bytes(der_signature(raw) if algorithm == "ES256" else raw)
        (self.dir / "signed").write_text(head + "." + claims)
        key = self.keys.get(said["iss"])
        verify = ["openssl", "dgst", "-sha256", "-verify", key, "-signature", self.dir / "signature", self.dir / "signed"]
        if not key or subprocess.run(verify, capture_output=True).returncode:
            raise Refused("invalid_grant")
        now = time.time() + self.skew
        if not (said["iat"] <= now < said["exp"] and said["exp"] - said["iat"] <= 600):
            raise Refused("invalid_grant")
        if audience and not said["aud"].endswith(audience):
            raise Refused("invalid_grant")
        return said

    def installation(self, request):
        try:
            self.assertion(request.headers["Authorization"].split("Bearer ")[1])
        except Refused:
            return 401, {"message": "A JSON web token could not be decoded: " + request.headers["Authorization"]}
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.skew + self.life))
        return 201, {"token": self.new("installation"), "expires_at": until}
