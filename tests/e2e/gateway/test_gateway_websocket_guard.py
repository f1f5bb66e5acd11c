# SPDX-License-Identifier: Apache-2.0
"""WebSockets where there are credentials: what comes holds no value, what goes no placeholder, whatever frames it is in."""
import base64
import os
import struct

import pytest

from lab import read_all
from test_gateway_websocket import Server, head, switched

VALUE, PLACEHOLDER = "value-of-t/+0123456789", "sp_T_0123456789abcdef0123456789abcdef"
V, P = VALUE.encode(), PLACEHOLDER.encode()
STARS = b"*" * len(V)
TEXT, CONTINUED, PING, FINAL = 1, 0, 9, 0x80


@pytest.fixture
def guarded(own_lab, world):
    return own_lab(secrets=[{"name": "T", "value": VALUE, "hosts": ["key.test"], "variables": {"T": PLACEHOLDER}}])


def frame(payload, opcode=TEXT, final=True, mask=None, extended=0):
    n = len(payload)
    size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
    first = bytes([opcode | (FINAL if final else 0) | extended])
    if mask is None:
        return first + size + payload
    return first + bytes([size[0] | 0x80]) + size[1:] + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def masked(payload, *args, **kwargs):
    return frame(payload, *args, mask=os.urandom(4), **kwargs)


def opened(lab, world, host):
    sock = lab.tls(host, world.port)
    sock.sendall(head(world, host=host))
    _, early = switched(sock)
    return sock, early


def receive(sock, early, n):
    while len(early) < n:
        data = sock.recv(65536)
        assert data, early
        early += data
    return early


def pairs(value):
    """What a server may send, and what the guest gets of it."""
    stars = b"*" * len(value)
    cut = len(value) // 2
    yield frame(b"<" + value + b">"), frame(b"<" + stars + b">")
    yield frame(value), frame(stars)
    yield frame(b"x" * 300 + value), frame(b"x" * 300 + stars)
    yield frame(b"x" * 70000 + value + b"y" * 70000), frame(b"x" * 70000 + stars + b"y" * 70000)
    yield frame(value[:cut]) + frame(value[cut:]), frame(value[:cut]) + frame(value[cut:])  # two messages, two things
    yield frame(value, PING), frame(stars, PING)
    yield (frame(value[:cut], final=False) + frame(value[cut:] + b"!", CONTINUED),
           frame(stars[:cut], final=False) + frame(stars[cut:] + b"!", CONTINUED))
    yield (frame(value[:cut], final=False) + frame(b"alive", PING) + frame(b"", CONTINUED, False) + frame(value[cut:], CONTINUED),
           frame(stars[:cut], final=False) + frame(b"alive", PING) + frame(b"", CONTINUED, False) + frame(stars[cut:], CONTINUED))
    yield (frame(value[:1], final=False) + b"".join(frame(bytes([c]), CONTINUED, False) for c in value[1:]) + frame(b"", CONTINUED),
           frame(b"*", final=False) + b"".join(frame(b"*", CONTINUED, False) for _ in value[1:]) + frame(b"", CONTINUED))
    yield frame(b""), frame(b"")


@pytest.mark.conformance("credentials: echo")
@pytest.mark.parametrize("spelled", [V, base64.b64encode(V)[:len(V) * 8 // 6], V.hex().encode()], ids=["raw", "base64", "hex"])
def test_websocket_guard_hides_values(guarded, world, spelled):
    sent = b"".join(a for a, _ in pairs(spelled))
    want = b"".join(b for _, b in pairs(spelled))
    Server(world.https, early=sent)
    sock, early = opened(guarded, world, "key.test")
    with sock:
        got = receive(sock, early, len(want))
    assert got == want


@pytest.mark.conformance("credentials: echo")
def test_websocket_guard_hides_values_that_come_byte_by_byte(guarded, world):
    """Masked by the guest, echoed as they are: the server sends masked frames, which is wrong, but readable."""
    Server(world.https)
    sock, got = opened(guarded, world, "key.test")
    with sock:
        for payload, want in ((b"a" + V + b"b", b"a" + STARS + b"b"), (b"nothing", b"nothing")):
            mask = os.urandom(4)
            for c in frame(payload, mask=mask):
                sock.sendall(bytes([c]))
            expected = frame(want, mask=mask)
            assert receive(sock, got, len(expected)) == expected
            got = b""


def test_websocket_guard_hides_values_in_the_head(guarded, world):
    Server(world.https, fields=[f"X-Got: {VALUE}"])
    with guarded.tls("key.test", world.port) as sock:
        sock.sendall(head(world, host="key.test"))
        assert switched(sock)[0]["x-got"] == STARS.decode()


@pytest.mark.parametrize("bad", [frame(b"x", extended=0x40), frame(b"x", PING, False), frame(b"x" * 126, PING), b"\x81\xff" + b"\xff" * 8,
                                 frame(V[:20], final=False) + frame(b"", CONTINUED, False) * 300],
                         ids=["extended", "part of a ping", "long ping", "huge", "flood"])
def test_websocket_guard_cuts_what_is_no_frame(guarded, world, bad):
    since = guarded.mark()
    Server(world.https, early=frame(b"first") + bad + frame(V))
    with guarded.tls("key.test", world.port) as sock:
        sock.sendall(head(world, host="key.test"))
        assert V not in read_all(sock)
    guarded.wait_record("egress.response", since, error=lambda e: e and "frame" in e)


def leaks(p):
    cut = len(p) // 2
    return {
        "message": masked(b"before " + p), "escaped": masked(b"".join(b"\\u%04x" % c for c in p)), "base64": masked(base64.b64encode(b"u:" + p)),
        "large": masked(b"x" * 70000 + p), "ping": masked(p, PING), "fragments": masked(p[:cut], final=False) + masked(p[cut:], CONTINUED),
        "with a ping": masked(p[:cut], final=False) + masked(b"", PING) + masked(p[cut:], CONTINUED, False), "unmasked": frame(p),
    }


@pytest.mark.conformance("credentials: placeholder")
@pytest.mark.parametrize("host", ["key.test", "api.test"])
@pytest.mark.parametrize("name", leaks(P))
def test_websocket_guard_refuses_placeholders(guarded, world, name, host):
    since = guarded.mark()
    server = Server(world.https)
    sock, _ = opened(guarded, world, host)
    with sock:
        sock.sendall(masked(b"first"))
        receive(sock, b"", 11)
        sock.sendall(leaks(P)[name])
        read_all(sock)
    guarded.wait_record("egress.deny", since, leak="T", host=host)
    guarded.wait_record("egress.response", since, error=lambda e: e and "placeholder of T" in e)
    assert server.ended.wait(20)
    heard = server.heard[11:]
    if len(heard) > 8:
        mask = heard[8:12] if heard[1] == 0xff else heard[4:8] if heard[1] == 0xfe else heard[2:6]
        plain = bytes(b ^ mask[i % 4] for i, b in enumerate(heard[6:]))
        assert P[:6] not in plain


def test_websocket_guard_lets_all_else_pass(guarded, world):
    """An echo, asked and answered: no message waits for the next, not even one that a value could begin with."""
    for host in ("key.test", "api.test"):
        Server(world.https)
        sock, got = opened(guarded, world, host)
        with sock:
            for payload in (b"", b"s", b"sp", b"va", b"50%", b"\\", P[:-1], V[:-1], os.urandom(200000)):
                sent = masked(payload)
                sock.sendall(sent)
                assert receive(sock, got, len(sent)) == sent
                got = b""
            parts = masked(b"s", final=False)  # and no part that may be answered
            sock.sendall(parts)
            assert receive(sock, b"", len(parts)) == parts
