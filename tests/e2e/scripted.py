# SPDX-License-Identifier: Apache-2.0
"""A server in spaced's place that answers as a test tells it: for the command line's behaviour at the edges.

A test gives a function for each "METHOD /path"; it gets the Request and answers through it. Calls are recorded in order.
"""
import base64
import json
import pathlib
import socketserver
import struct
import tempfile
import threading
from http.server import BaseHTTPRequestHandler


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body_read(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while True:
                n = int(self.rfile.readline(), 16)
                parts.append(self.rfile.read(n))
                self.rfile.readline()
                if not n:
                    return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def handle_any(self):
        script = self.server.script
        key = "%s %s" % (self.command, self.path.split("?")[0])
        self.body = self.body_read()
        with script.lock:
            script.calls.append((key, self.path, self.body, self.headers, id(self.connection)))
        script.called.set()
        answer = script.answers.get(key)
        try:
            if answer:
                answer(self)
            else:
                self.json(404, {"code": 404, "message": "no answer for " + key})
        except (BrokenPipeError, ConnectionResetError):
            script.broken.set()
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = handle_any

    def json(self, status, value):
        text = b"" if value is None else json.dumps(value).encode()
        self.raw(status, text, "application/json")

    def raw(self, status, body, content_type="application/octet-stream", **fields):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    # Event streams.
    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def envelope(self, value, flag=0):
        text = json.dumps(value).encode()
        data = struct.pack(">BI", flag, len(text)) + text
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def sandbox(self, sandbox_id="sb1"):
        self.envelope({"event": {"sandbox": {"sandboxID": sandbox_id, "name": sandbox_id}}})

    def start(self, pid=7):
        self.envelope({"event": {"start": {"pid": pid}}})

    def out(self, data, stream="stdout"):
        self.envelope({"event": {"data": {stream: base64.b64encode(data).decode()}}})

    def exited(self, code=0):
        self.envelope({"event": {"end": {"exitCode": code, "exited": True, "status": "exit status %d" % code}}})

    def killed(self, number):
        self.envelope({"event": {"end": {"exitCode": -1, "exited": False, "signal": number, "status": "signal"}}})

    def finish(self, code=None, message=""):
        self.envelope({"error": {"code": code, "message": message}} if code else {}, flag=2)
        self.wfile.write(b"0\r\n\r\n")

    def gone(self):
        """Waits until the client closes the connection."""
        self.connection.recv(1)
        self.close_connection = True


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


class Script:
    def __init__(self):
        self.answers = {"GET /sandboxes/w": lambda r: r.json(200, {"sandboxID": "sb1", "name": "w"})}
        self.calls = []
        self.lock = threading.Lock()
        self.called = threading.Event()
        self.broken = threading.Event()
        self.dir = tempfile.TemporaryDirectory(prefix="space-cli.")
        self.server = Server(str(pathlib.Path(self.dir.name) / "spaced.sock"), Request)
        self.server.script = self
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def on(self, key):
        def add(function):
            self.answers[key] = function
            return function

        return add

    def keys(self):
        return [c[0] for c in self.calls]

    def bodies(self, key):
        return [c[2] for c in self.calls if c[0] == key]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.dir.cleanup()
