# SPDX-License-Identifier: Apache-2.0
"""A server that notes exactly what reaches it, and answers what a test tells it to, byte for byte."""
import json
import socket
import ssl
import threading


class Request:
    def __init__(self, head, connection):
        self.raw = head
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ")
        self.fields = [tuple(line.split(": ", 1)) for line in lines[1:] if line]
        self.connection = connection  # number of the connection that brought it
        self.body = b""

    def all(self, name):
        return [v for k, v in self.fields if k.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        return values[0] if values else None


class Connection:
    """One accepted connection, buffered."""

    def __init__(self, sock, number):
        self.sock, self.number, self.buffer = sock, number, b""

    def fill(self):
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def until(self, mark):
        while mark not in self.buffer:
            if not self.fill():
                return None
        head, _, self.buffer = self.buffer.partition(mark)
        return head + mark

    def exactly(self, n):
        while len(self.buffer) < n:
            if not self.fill():
                return None
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def read_body(self, request):
        if request.get("Transfer-Encoding"):
            while True:
                size = int(self.until(b"\r\n"), 16)
                request.body += self.exactly(size + 2)[:-2]
                if not size:
                    return
        request.body = self.exactly(int(request.get("Content-Length") or 0))

    def send(self, data):
        self.sock.sendall(data)


def response(body=b"", status="200 OK", fields=()):
    if isinstance(body, str):
        body = body.encode()
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Upstream:
    """Listens on a free port of an address. `script[path]` is what answers a path: bytes, or a function of the
    connection and the request, which returns True to keep the connection. Else requests are echoed as JSON."""

    def __init__(self, tls=None, address="127.0.0.1", port=0, netns=None):
        self.script = {}
        self.requests = []
        self.connections = 0
        self.changed = threading.Condition()
        self._tls = None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*tls)
        make = lambda: socket.create_server((address, port), backlog=1024)
        self._listener = netns.call(make) if netns else make()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                number = self.connections
                self.changed.notify_all()
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock, number):
        try:
            sock.settimeout(60)
            if self._tls:
                sock = self._tls.wrap_socket(sock, server_side=True)
            connection = Connection(sock, number)
            while self._serve_one(connection):
                pass
        except (OSError, ValueError, TypeError):
            pass  # a peer that cuts is what some tests are about
        finally:
            sock.close()

    def _serve_one(self, connection):
        head = connection.until(b"\r\n\r\n")
        if head is None:
            return False
        request = Request(head, connection.number)
        answer = self.script.get(request.target.split("?")[0])
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()
        if callable(answer):
            return answer(connection, request)
        connection.read_body(request)
        if answer is not None:
            connection.send(answer)
            return False
        echo = {"method": request.method, "target": request.target, "fields": request.fields,
                "body": request.body.decode("latin-1"), "connection": connection.number}
        answer = response(json.dumps(echo))
        connection.send(answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.method == "HEAD" else answer)
        return True

    def wait(self, condition, timeout=5):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), timeout), "the server saw nothing like it"
