# SPDX-License-Identifier: Apache-2.0
"""A DNS server with a table of answers, and a client that reads messages no further than tests need."""
import ipaddress
import socket
import struct
import threading

A, PTR, TXT, AAAA, SVCB, HTTPS, ANY = 1, 12, 16, 28, 64, 65, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)


def encode_name(name):
    out = b""
    for label in name.rstrip(".").split("."):
        if label:
            out += bytes([len(label)]) + label.encode("latin-1")
    return out + b"\0"


def question(name, qtype, ident=0x1234, qclass=1, flags=0x0100):
    return struct.pack("!6H", ident, flags, 1, 0, 0, 0) + encode_name(name) + struct.pack("!2H", qtype, qclass)


def read_name(message, at):
    labels, jumped = [], None
    while message[at]:
        if message[at] & 0xc0 == 0xc0:
            jumped = jumped or at + 2
            at = (message[at] & 0x3f) << 8 | message[at + 1]
            continue
        labels.append(message[at + 1:at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    return ".".join(labels), jumped or at + 1


class Answer:
    def __init__(self, message):
        self.id, self.flags, count, answers, self.authority, self.additional = struct.unpack(
            "!6H", message[:12])
        self.rcode = self.flags & 15
        self.records = []
        at = 12
        for _ in range(count):
            _, at = read_name(message, at)
            at += 4
        for _ in range(answers):
            _, at = read_name(message, at)
            rtype, _, ttl, n = struct.unpack("!HHIH", message[at:at + 10])
            at += 10
            data = message[at:at + n]
            if rtype == A:
                data = str(ipaddress.ip_address(data))
            elif rtype == PTR:
                data = read_name(message, at)[0]
            self.records.append((rtype, ttl, data))
            at += n


class DnsServer:
    """Answers A and AAAA from `table`: name -> list of addresses, or a function that returns one."""

    def __init__(self, table, netns=None):
        self.table = table
        self.asked = []
        make = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock = netns.call(make) if netns else make()
        self._sock.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._sock.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                message, peer = self._sock.recvfrom(4096)
            except OSError:
                return
            if not message:
                return
            name, at = read_name(message, 12)
            qtype, = struct.unpack("!H", message[at:at + 2])
            self.asked.append((name.lower(), qtype))
            addresses = self.table.get(name.lower())
            if callable(addresses):
                addresses = addresses()
            self._sock.sendto(self._answer(message, at + 4, qtype, addresses), peer)

    @staticmethod
    def _answer(message, end, qtype, addresses):
        records = b""
        count = 0
        for text in addresses or []:
            address = ipaddress.ip_address(text)
            if (A if address.version == 4 else AAAA) == qtype:
                records += struct.pack("!HHHIH", 0xc00c, qtype, 1, 0, len(address.packed)) + address.packed
                count += 1
        rcode = NXDOMAIN if addresses is None else NOERROR
        return message[:2] + struct.pack("!5H", 0x8180 | rcode, 1, count, 0, 0) + message[12:end] + records

    def close(self):
        self._sock.close()
