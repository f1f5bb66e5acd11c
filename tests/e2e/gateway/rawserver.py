# SPDX-License-Identifier: Apache-2.0
"""A TCP server that does what a function does with each of its connections."""
import socket
import threading


class RawServer:
    """`serve(sock, server)` runs for each connection, on a thread of its own; what it appends to `seen` can be waited for."""

    def __init__(self, serve, address="127.0.0.1", port=0, netns=None):
        self.seen = []
        self.connections = 0
        self.changed = threading.Condition()
        self._serve = serve
        make = lambda: socket.create_server((address, port), backlog=2048)
        self._listener = netns.call(make) if netns else make()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                self.changed.notify_all()
            threading.Thread(target=self._run, args=(sock,), daemon=True).start()

    def _run(self, sock):
        sock.settimeout(60)
        with sock:
            try:
                self._serve(sock, self)
            except OSError as e:
                self.note(e)

    def note(self, what):
        with self.changed:
            self.seen.append(what)
            self.changed.notify_all()

    def wait(self, condition, timeout=20):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), timeout), f"the server saw {self.seen}"

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def read_to_end(sock):
    data = b""
    while chunk := sock.recv(65536):
        data += chunk
    return data


def echo(sock, server):
    while data := sock.recv(65536):
        server.note(data)
        sock.sendall(data)
