# SPDX-License-Identifier: Apache-2.0
"""The demo's service: HTTPS on 127.0.0.1, any free port, which it prints. Answers those who bring the bearer token DEMO_TOKEN."""
import hmac
import http.server
import json
import os
import ssl
import sys

TOKEN = os.environ["DEMO_TOKEN"]


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        given = self.headers.get("Authorization", "")
        known = hmac.compare_digest(given.encode(), ("Bearer " + TOKEN).encode())
        body = {"message": "hello from the service", "you": "known by your token"}
        if not known:
            body = {"message": "who are you?", "you": "brought no valid token"}
        text = json.dumps(body).encode() + b"\n"
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = answer

    def log_message(self, *args):
        pass


def main():
    certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print(server.server_port, flush=True)
    server.serve_forever()


main()
