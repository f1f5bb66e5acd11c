# SPDX-License-Identifier: Apache-2.0
"""The line to spaced: the gateway waits for its config, and outlives a spaced without forwarding anything that none wrote."""
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from dnsserver import A, question
from lab import GATEWAY, TIMEOUT, Response, read_all


def is_request(path):
    return lambda event: event["kind"] == "egress.request" and event["path"] == path


def head(world, path):
    return f"GET {path} HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode()


class Bare:
    """A gateway that nobody has configured, spoken to directly."""

    def __init__(self, where, listening=True):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = os.open(where, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/gateway")
        os.close(here)
        if listening:
            listener.listen()
        high = [os.dup(s.fileno()) for s in (theirs, listener)]

        def place():
            lifted = [os.dup(fd) for fd in high]
            for at, fd in enumerate(lifted, 3):
                os.dup2(fd, at)
        self.process = subprocess.Popen([GATEWAY], preexec_fn=place, pass_fds=[3, 4], stderr=subprocess.PIPE, text=True)
        for fd in high:
            os.close(fd)
        theirs.close()
        listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.close()
        try:
            self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()


@pytest.mark.parametrize("message", [b"no json", b"[]", b"{}", b'{"type":"ack","seq":1}', b'{"type":"config"}', b"x" * 600000],
                         ids=["text", "list", "nothing", "ack", "short", "long"])
def test_control_a_first_message_that_is_no_config_ends_it(tmp_path, message):
    with Bare(tmp_path) as gateway:
        gateway.ours.setsockopt(socket.SOL_SOCKET, 32, 2 << 20)  # SO_SNDBUFFORCE
        gateway.ours.send(message)
        assert gateway.process.wait(TIMEOUT) == 1


def test_control_a_gateway_without_config_ends_with_its_socket(tmp_path):
    with Bare(tmp_path) as gateway:
        gateway.ours.shutdown(socket.SHUT_RDWR)
        assert gateway.process.wait(TIMEOUT) == 0


def test_control_a_gateway_ends_on_sigterm(tmp_path):
    with Bare(tmp_path) as gateway:
        # it catches the signal when it waits
        status = pathlib.Path(f"/proc/{gateway.process.pid}/status")
        deadline = time.monotonic() + TIMEOUT
        while not int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1:
            assert time.monotonic() < deadline
            os.sched_yield()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(TIMEOUT) == 0


def test_control_a_gateway_needs_a_listening_socket(tmp_path):
    with Bare(tmp_path, listening=False) as gateway:
        assert gateway.process.wait(TIMEOUT) == 1
        assert "listen" in gateway.process.stderr.read()


def test_control_the_config_may_come_late(own_lab, world):
    seen = []

    def late(slot_run):
        # slot-run has started it, and reads the config now; the gateway sleeps in epoll when it waits
        children = pathlib.Path(f"/proc/{slot_run}/task/{slot_run}/children")
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and not seen:
            for pid in children.read_text().split():
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                if status.startswith("Name:\tspace-egress") and "State:\tS" in status:
                    seen.append(int(pid))
            os.sched_yield()
    lab = own_lab(late=late)
    assert seen == [lab.gateway_pid]
    assert lab.get("api.test", world.port).status == 200


def test_control_records_are_repeated_to_the_next_spaced_and_nothing_is_forwarded_before(own_lab, world):
    lab = own_lab()
    address = lab.address("api.test")
    with lab.tls("api.test", world.port, address=address) as one, lab.tls("api.test", world.port, address=address) as two, \
            lab.tls("api.test", world.port, address=address) as three:
        one.sendall(head(world, "/before"))
        assert Response(one).status == 200
        lab.wait_record("egress.response")
        lab.hold(True)
        one.sendall(head(world, "/one"))
        lab.wait_record("egress.request", path="/one")  # sent, and never acknowledged
        lab.end_control()
        world.https.requests.clear()
        two.sendall(head(world, "/two"))
        with lab.call_gateway() as spaced:
            state = spaced.read()
            assert state == {"type": "state", "sandbox": "test", "seq": state["seq"]}
            repeated = spaced.records(is_request("/two"))
            assert [m["seq"] for m in repeated] == [state["seq"] + 1 + i for i in range(len(repeated))]
            paths = [m["event"]["path"] for m in repeated if m["event"]["kind"] == "egress.request"]
            assert paths == ["/one", "/two"]
            assert not world.https.requests
            spaced.acknowledge(repeated[-1]["seq"])
            assert Response(one).status == Response(two).status == 200
            last = spaced.records(lambda e: e["kind"] == "egress.response")[-1]
            spaced.acknowledge(last["seq"])
        # and that one dies, too
        with lab.call_gateway() as spaced:
            assert spaced.read()["seq"] == last["seq"]
            three.sendall(head(world, "/three"))
            spaced.acknowledge(spaced.records(is_request("/three"))[-1]["seq"])
            assert Response(three).status == 200
    assert sorted(r.target for r in world.https.requests) == ["/one", "/three", "/two"]


def test_control_while_alone_requests_get_503_and_names_no_answer(own_lab, world):
    lab = own_lab()
    address = lab.address("api.test")
    with lab.tls("api.test", world.port, address=address) as sock:
        lab.end_control()
        sock.sendall(head(world, "/alone"))
        assert lab.ask(question("other.test", A), timeout=1) is None
        answer = Response(sock)
        assert answer.status == 503 and answer.json()["code"] == 503
    assert not world.https.requests and not lab.ended
    with lab.call_gateway() as spaced:
        spaced.read()
        repeated = spaced.records(lambda e: e["kind"] == "egress.response")
        kinds = [m["event"]["kind"] for m in repeated]
        assert "egress.request" in kinds and "egress.dns" in kinds
        assert repeated[-1]["event"]["status"] == 503
        spaced.acknowledge(repeated[-1]["seq"])
    assert not world.https.requests  # an acknowledgement that comes too late forwards nothing


def test_control_what_flows_goes_on_while_alone_and_its_end_is_recorded(own_lab, world):
    lab = own_lab()

    def handler(connection, _request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
        lab.end_control()
        connection.send(b"half")
        return True
    world.https.script["/flow"] = handler
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(head(world, "/flow"))
        assert Response(sock).body == b"halfhalf"
    with lab.call_gateway() as spaced:
        assert spaced.read()["type"] == "state"
        end = spaced.records(lambda e: e["kind"] == "egress.response")[-1]["event"]
        assert (end["status"], end["bytes_down"]) == (200, 8) and "error" not in end


def test_control_a_second_connection_is_refused_while_one_lives(own_lab, world):
    lab = own_lab()
    with lab.call_gateway() as second:
        assert second.read() is None
    assert lab.get("api.test", world.port).status == 200
    lab.end_control()
    with lab.call_gateway() as third:
        assert third.read()["type"] == "state"
        with lab.call_gateway() as fourth:
            assert fourth.read() is None
        with lab.tls("api.test", world.port, address="198.18.0.1") as sock:
            sock.sendall(head(world, "/"))
            third.acknowledge(third.records(is_request("/"))[-1]["seq"])
            assert Response(sock).status == 200


def test_control_who_is_not_spaced_is_refused(own_lab):
    """Were the socket within reach of another uid."""
    lab = own_lab()
    lab.end_control()
    for path in (lab.where, lab.where / "gateway"):
        path.chmod(0o777)
    here = os.open(lab.where, os.O_PATH)
    program = ("import os, socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
               f"os.setresuid(12345, 12345, 12345); s.connect('/proc/self/fd/{here}/gateway'); print(len(s.recv(4096)))")
    try:
        found = subprocess.run(["python3", "-c", program], pass_fds=[here], capture_output=True, text=True, timeout=TIMEOUT)
    finally:
        os.close(here)
    assert found.stdout == "0\n", found.stderr
    with lab.call_gateway() as spaced:
        assert spaced.read()["type"] == "state"


@pytest.mark.parametrize("message", [b"no json", b'{"type":"config"}', b'{"type":"ack","seq":99}', b'{"type":"ack","seq":-1}'],
                         ids=["text", "config", "unsent", "negative"])
def test_control_a_wrong_acknowledgement_ends_it(own_lab, world, message):
    lab = own_lab()
    with lab.tls("api.test", world.port) as sock:
        lab.end_control()
        with lab.call_gateway() as spaced:
            spaced.read()
            spaced.socket.send(message)
            lab.wait_ended()
        lab.exit_status = 0  # it failed, as it should
        assert not pathlib.Path(f"/proc/{lab.gateway_pid}").exists()
        assert read_all(sock) == b""
