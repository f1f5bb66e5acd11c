# SPDX-License-Identifier: Apache-2.0
"""A gateway in a slot, and a guest's place behind it where tests make connections."""
import errno
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

from dnsserver import Answer, A, question
from netns import Netns

BUILD = pathlib.Path(os.environ.get("SPACE_BUILD", "build")).resolve()
SLOT_RUN = BUILD / "tests/tools/slot-run"
GATEWAY = BUILD / "src/egress/space-egress"
RESOLVER = "192.0.2.1"
TIMEOUT = 20  # seconds; a bound, nothing waits for it to pass


class Failed(Exception):
    pass


class Lab:
    def __init__(self, where, authority, policy, secrets=(), hold=False, resolver=None, netns=None,
                 config=None, late=None, environment=None):
        self.authority = authority
        certificate, key = authority.intermediate("sandbox")
        self.config = config or {
            "type": "config", "sandbox": "test", "policy": policy, "secrets": list(secrets),
            "ca": {"certificates": certificate.read_text(), "key": key.read_text()}}
        path, self.hold_path, self.where = where / "config.json", where / "hold", where
        if late:
            os.mkfifo(path)
        else:
            path.write_text(json.dumps(self.config))
        self.resolv_conf = where / "resolv.conf"
        self.resolv_conf.write_text(f"nameserver {RESOLVER}\n")
        self.hold(hold)
        command = [SLOT_RUN, "--gateway", GATEWAY, "--config", path, "--control", where,
                   "--hold", self.hold_path, "--resolv-conf", self.resolv_conf]
        if resolver:
            command += ["--resolver", resolver]
        if netns:
            command = ["nsenter", "--net=" + netns.path, *command]
        self.answers = []
        self.records, self.ended, self.exit_status, self._started = [], False, None, None
        self._closed = False
        self._changed = threading.Condition()
        self._process = subprocess.Popen([*map(str, command), "cat"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if late:
            with os.fdopen(self._open_fifo(path), "w") as fifo:
                late(self._process.pid)
                fifo.write(json.dumps(self.config))
        self._wait(lambda: self._started or self.ended)
        if not self._started or "failed" in self._started:
            self.close()
            raise Failed((self._started or {}).get("failed", "slot-run ended"))
        self.gateway_pid = self._started["started"]["gateway"]
        self.command_pid = self._started["started"]["command"]
        self.guest = Netns(self.command_pid)

    def _open_fifo(self, path):
        """slot-run opens its end when it has started the gateway; when it has failed, nobody ever will."""
        for _ in range(2000):
            try:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(fd, True)
                return fd
            except OSError as e:
                if e.errno != errno.ENXIO or self._process.poll() is not None:
                    break
            time.sleep(0.005)
        self.close()
        raise Failed("slot-run does not read its configuration")

    def _read(self):
        for line in self._process.stdout:
            message = json.loads(line)
            with self._changed:
                if "record" in message:
                    self.records.append(message["record"])
                elif "answer" in message:
                    self.answers.append(message["answer"])
                elif "control_closed" in message:
                    self._closed = True
                elif "gateway_ended" in message:
                    self.ended, self.exit_status = True, message["gateway_ended"]
                else:
                    self._started = message
                self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _wait(self, condition, timeout=TIMEOUT):
        with self._changed:
            assert self._changed.wait_for(condition, timeout), "nothing of the kind happened"

    def close(self):
        if hasattr(self, "guest"):
            self.guest.close()
        self._process.stdin.close()
        self._process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        if hasattr(self, "guest"):
            assert self.exit_status == 0, f"the gateway ended with {self.exit_status}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- the control side --

    def hold(self, on):
        if on:
            self.hold_path.touch()
        else:
            self.hold_path.unlink(missing_ok=True)

    def end_control(self):
        self._process.send_signal(signal.SIGUSR1)
        self._wait(lambda: self._closed)

    def tell(self, message):
        """Sends the gateway a message as spaced does; its answer."""
        (self.where / "message").write_text(message if isinstance(message, str) else json.dumps(message))
        had = len(self.answers)
        self._process.send_signal(signal.SIGUSR2)
        self._wait(lambda: len(self.answers) > had or self.ended)
        return self.answers[had]

    def set_policy(self, policy, **members):
        answer = self.tell({"type": "policy", "policy": policy, **members})
        assert answer == {"type": "policy", "ok": True}, answer

    def call_gateway(self):
        """A new control connection, as the next spaced makes it."""
        return Control(self.where)

    def wait(self, condition, timeout=TIMEOUT):
        """Until the condition holds, which is looked at whenever the gateway has said something."""
        self._wait(condition, timeout)

    def wait_ended(self):
        self._wait(lambda: self.ended)

    def mark(self):
        """A point in the records: what happens from now on is behind it (late ones of before may be, too)."""
        with self._changed:
            return len(self.records)

    def wait_record(self, kind, since=0, timeout=TIMEOUT, **members):
        """The first record after `since` with these members; a function as a value judges."""
        def fits(record):
            return record["kind"] == kind and all(
                want(record.get(key)) if callable(want) else record.get(key) == want
                for key, want in members.items())

        def find():
            return next((r for r in self.records[since:] if fits(r)), None)
        try:
            self._wait(find, timeout)
        except AssertionError:
            raise AssertionError(f"no {kind} with {members} in {self.records[since:]}") from None
        return find()

    def peak_kib(self):
        status = pathlib.Path(f"/proc/{self.gateway_pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])

    def slot_path(self):
        """The slot's namespace, which slot-run holds open."""
        held = pathlib.Path(f"/proc/{self._process.pid}/fd")
        others = {os.readlink(f"/proc/{pid}/ns/net") for pid in ("self", self.command_pid, self._process.pid)}
        return str(next(fd for fd in held.iterdir() if os.readlink(fd).startswith("net:[") and os.readlink(fd) not in others))

    def counters(self):
        """Packets that the slot's rules turned away so far, by reason."""
        text = subprocess.run(["nsenter", f"--net={self.slot_path()}", "nft", "-j", "list", "counters"], check=True, capture_output=True)
        found = {}
        for counter in (item["counter"] for item in json.loads(text.stdout)["nftables"] if "counter" in item):
            found[counter["name"]] = found.get(counter["name"], 0) + counter["packets"]
        return found

    # -- the guest's side --

    def socket(self, kind=socket.SOCK_STREAM, family=socket.AF_INET):
        sock = self.guest.call(socket.socket, family, kind)
        sock.settimeout(TIMEOUT)
        return sock

    def ask(self, message, server=RESOLVER, tcp=False, timeout=TIMEOUT):
        """Sends a DNS message; the answer, or None when there is none in time."""
        with self.socket(socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as sock:
            sock.settimeout(timeout)
            sock.connect((server, 53))
            try:
                if not tcp:
                    sock.send(message)
                    return sock.recv(4096)
                sock.sendall(struct.pack("!H", len(message)) + message)
                stream = sock.makefile("rb")
                head = stream.read(2)
                return stream.read(struct.unpack("!H", head)[0]) if head else None
            except TimeoutError:
                return None

    def resolve(self, name, qtype=A, **kwargs):
        return Answer(self.ask(question(name, qtype), **kwargs))

    def address(self, name):
        answer = self.resolve(name)
        assert answer.rcode == 0 and answer.records, f"{name} has no address"
        return answer.records[0][2]

    def connect(self, host, port, address=None):
        sock = self.socket()
        sock.connect((address or self.address(host), port))
        return sock

    def tls(self, host, port, sni=..., verify=True, address=None, alpn=None):
        """A TLS connection to the host's address; sni None sends none."""
        context = ssl.create_default_context(cafile=str(self.authority.pem))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if not verify or sni is None:
            context.check_hostname = False
        if not verify:
            context.verify_mode = ssl.CERT_NONE
        if alpn:
            context.set_alpn_protocols(alpn)
        sock = self.connect(host, port, address)
        try:
            return context.wrap_socket(sock, server_hostname=host if sni is ... else sni)
        except BaseException:
            sock.close()
            raise

    def get(self, host, port, path="/", method="GET", fields=(), body=b"", scheme="https", host_field=None):
        """One request on a connection of its own."""
        with (self.tls if scheme == "https" else self.connect)(host, port) as sock:
            head = [f"{method} {path} HTTP/1.1", f"Host: {host_field or f'{host}:{port}'}", *fields]
            if body:
                head.append(f"Content-Length: {len(body)}")
            sock.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
            return Response(sock, method)

    def curl(self, *args, **kwargs):
        """Runs curl in the guest's namespace, with its resolver and the node's CA."""
        return self.run("curl", "-sS", "--max-time", str(TIMEOUT), "--cacert", self.authority.pem, *args, **kwargs)

    def run(self, *command, check=True, **kwargs):
        return subprocess.run(["nsenter", "-t", str(self.command_pid), "-n", "-m", "-r", *map(str, command)],
                              check=check, capture_output=True, text=True, timeout=60, **kwargs)


class Control:
    """Plays the spaced that comes after one that died."""

    def __init__(self, where):
        self._more = []  # records of the last message that were not asked for
        directory = os.open(where, os.O_PATH | os.O_DIRECTORY)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(TIMEOUT)
        try:
            self.socket.connect(f"/proc/self/fd/{directory}/gateway")
        finally:
            os.close(directory)

    def read(self):
        """The next message; None at the end."""
        data = self.socket.recv(512 * 1024)
        return json.loads(data) if data else None

    def records(self, last):
        """Record by record, up to the first that is `last` (a function judges)."""
        found = []
        while not found or not last(found[-1]["event"]):
            if not self._more:
                message = self.read()
                assert message and message["type"] == "audit", message
                self._more = [{"seq": seq, "event": event} for seq, event in enumerate(message["events"], message["seq"])]
            found.append(self._more.pop(0))
        return found

    def acknowledge(self, seq):
        self.socket.send(json.dumps({"type": "ack", "seq": seq}).encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Response:
    def __init__(self, sock, method="GET"):
        r = http.client.HTTPResponse(sock, method=method)
        r.begin()
        self.status, self.fields, self.body = r.status, r.headers, r.read()
        self.will_close = r.will_close

    def json(self):
        return json.loads(self.body)


def read_all(sock):
    """Everything until the peer closes; a reset counts as a close."""
    chunks = []
    try:
        while chunk := sock.recv(65536):
            chunks.append(chunk)
    except (ConnectionResetError, ssl.SSLError):
        pass
    return b"".join(chunks)


def statuses(data):
    """The status codes of the responses in data, each with a Content-Length."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        found.append(int(head.split()[1]))
        length = [int(l.split(b":")[1]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length:")]
        data = data[sum(length):]
    return found


def attack(lab, world, data):
    """Sends bytes on a TLS connection; all that comes back until the close. Nothing may have reached the server."""
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(data)
        answer = read_all(sock)
    assert not world.https.requests, "the server saw it"
    return answer


def refused(lab, world, data, *status):
    since = lab.mark()
    answer = attack(lab, world, data)
    codes = statuses(answer)
    assert len(codes) == 1 and codes[0] in status
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == codes[0]
    lab.wait_record("egress.deny", since, host="api.test", port=world.port)
