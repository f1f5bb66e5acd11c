# SPDX-License-Identifier: Apache-2.0
"""What is no TCP and no DNS, and frames that no honest guest sends (conformance.py, section names)."""
import contextlib
import errno
import socket
import struct
import time

import pytest

MAC, GATEWAY_MAC = bytes.fromhex("025350414302"), bytes.fromhex("025350414301")  # src/base/guest.h
GUEST, GATEWAY, OTHER = "192.0.2.2", "192.0.2.1", "93.184.216.34"
IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86dd
SOON_S = 1.0  # a refusal at once; who waits for a time-out waits far longer


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ipv4(protocol=socket.IPPROTO_UDP, source=GUEST, to=OTHER, fragment=0, options=b"", payload=bytes(8)):
    words = 5 + len(options) // 4

    def head(total):
        return struct.pack("!BBHHHBBH4s4s", 0x40 | words, 0, words * 4 + len(payload), 1, fragment, 64, protocol, total,
                           socket.inet_aton(source), socket.inet_aton(to)) + options
    return head(checksum(head(0))) + payload


def udp(port):
    return struct.pack("!4H", 4000, port, 16, 0) + bytes(8)


def frame(payload, kind=IPV4, source=MAC, to=GATEWAY_MAC):
    return to + source + struct.pack("!H", kind) + payload


FORGED = {
    "source MAC": ("spoofed", frame(ipv4(payload=udp(443)), source=bytes.fromhex("020000000099"))),
    "source address": ("spoofed", frame(ipv4(source="192.0.2.3", payload=udp(443)))),
    "gateway's address": ("spoofed", frame(ipv4(source=GATEWAY, payload=udp(443)))),
    "IPv6": ("ipv6", frame(struct.pack("!IHBB", 6 << 28, 8, 59, 64) + bytes(40), IPV6)),
    "first fragment": ("fragments", frame(ipv4(fragment=0x2000, payload=udp(53)))),
    "last fragment": ("fragments", frame(ipv4(fragment=0x0010, payload=udp(53)))),
    "options": ("rejected", frame(ipv4(options=b"\x83\x03\x04\x00", payload=udp(53)))),
    "broadcast": ("rejected", frame(ipv4(to="255.255.255.255", payload=udp(53)), to=b"\xff" * 6)),
    "multicast": ("rejected", frame(ipv4(to="224.0.0.251", payload=udp(5353)), to=bytes.fromhex("01005e0000fb"))),
    "another's MAC": ("rejected", frame(ipv4(payload=udp(53)), to=bytes.fromhex("020000000001"))),
    "raw protocol": ("rejected", frame(ipv4(protocol=47))),
    "VLAN": ("rejected", frame(struct.pack("!HH", 1, IPV4) + ipv4(payload=udp(53)), kind=0x8100)),
    "ARP for another": ("rejected", frame(struct.pack("!HHBBH", 1, IPV4, 6, 4, 1) + MAC + socket.inet_aton(GUEST) + bytes(6) +
                                          socket.inet_aton("192.0.2.3"), ARP, to=b"\xff" * 6)),
    "ARP in another's name": ("rejected", frame(struct.pack("!HHBBH", 1, IPV4, 6, 4, 2) + MAC + socket.inet_aton(GATEWAY) + GATEWAY_MAC +
                                                socket.inet_aton(GATEWAY), ARP)),
}


@contextlib.contextmanager
def wire(lab):
    """Frames on the guest's end of its cable."""
    with lab.guest.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sock:
        sock.bind(("eth0", 3))
        sock.settimeout(0.2)
        yield sock


@pytest.mark.conformance("names: packets")
@pytest.mark.parametrize("kind,data", FORGED.values(), ids=FORGED.keys())
def test_packets_that_no_honest_guest_sends_are_counted(lab, kind, data):
    before = lab.counters()
    with wire(lab) as sock:
        for _ in range(3):
            sock.send(data)
        lab.address("api.test")  # its packets came behind
    assert lab.counters()[kind] - before[kind] >= 3


@pytest.mark.conformance("names: packets")
def test_packets_arp_is_answered_for_the_gateway_alone(lab):
    ask = FORGED["ARP for another"][1]
    with wire(lab) as sock:
        sock.send(ask)
        sock.send(ask[:-4] + socket.inet_aton(GATEWAY))
        answers = []
        with contextlib.suppress(TimeoutError):
            while True:
                data = sock.recv(2000)
                if data[12:14] == struct.pack("!H", ARP) and data[20:22] == b"\0\2" and data[:6] == MAC:
                    answers.append(data[28:32])
        assert answers == [socket.inet_aton(GATEWAY)]


@pytest.mark.conformance("names: packets")
@pytest.mark.parametrize("port", [443, 80, 123, 853, 5353, 50000])
@pytest.mark.parametrize("host", [OTHER, GATEWAY, "198.18.0.1", "169.254.169.254"])
def test_packets_udp_other_than_dns_is_refused_at_once(lab, host, port):
    before, started = lab.counters()["rejected"], time.monotonic()
    with lab.socket(socket.SOCK_DGRAM) as sock:
        sock.connect((host, port))
        sock.send(b"\xc0\0\0\0\1" + bytes(1195))  # as QUIC begins
        with pytest.raises(ConnectionRefusedError):
            sock.recv(100)
    assert time.monotonic() - started < SOON_S and lab.counters()["rejected"] > before


@pytest.mark.conformance("names: packets")
@pytest.mark.parametrize("protocol", [socket.IPPROTO_ICMP, socket.IPPROTO_SCTP, 47, 50])
def test_packets_of_other_protocols_are_refused_at_once(lab, protocol):
    before, started = lab.counters()["rejected"], time.monotonic()
    echo = struct.pack("!BBHHH", 8, 0, 0, 1, 1)
    echo = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
    with lab.guest.call(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as answers, \
            lab.guest.call(socket.socket, socket.AF_INET, socket.SOCK_RAW, protocol) as sock:
        answers.settimeout(5)
        sock.sendto(echo, (OTHER, 0))
        while (answer := answers.recv(2000))[20] != 3:  # unreachable
            assert time.monotonic() - started < SOON_S
        assert answer[20:22] == b"\3\x0d"  # by prohibition
    assert lab.counters()["rejected"] > before


@pytest.mark.conformance("names: packets")
def test_packets_ipv6_is_unreachable_at_once(lab):
    started = time.monotonic()
    with lab.socket(family=socket.AF_INET6) as sock, pytest.raises(OSError) as error:
        sock.connect(("2606:2800:220:1::1", 443))
    assert error.value.errno in (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH)
    assert time.monotonic() - started < SOON_S
