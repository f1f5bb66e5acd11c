# SPDX-License-Identifier: Apache-2.0
"""Names and addresses (conformance.py, section names)."""
import ipaddress
import itertools
import socket
import ssl
import struct
import time

import pytest

from dnsserver import A, AAAA, ANY, FORMERR, HTTPS, NOERROR, NOTIMP, NXDOMAIN, PTR, REFUSED, SVCB, TXT
from dnsserver import Answer, DnsServer, question
from internet import CLOSED, OWN, PUBLIC, SECOND, Internet
from lab import Failed, read_all

SYNTHETIC = ipaddress.ip_network("198.18.0.0/15")


@pytest.mark.conformance("names: tunnelling")
def test_names_allowed_name_gets_a_synthetic_address_one_to_one(lab):
    addresses = [lab.address(h) for h in ("api.test", "other.test", "x.wild.test", "api.test")]
    assert all(ipaddress.ip_address(a) in SYNTHETIC for a in addresses)
    assert addresses[0] == addresses[3] and len(set(addresses)) == 3


@pytest.mark.conformance("names: tunnelling")
@pytest.mark.parametrize("name", [
    "unknown.test", "evilapi.test", "api.test.evil.example", "wild.test", "a.b.wild.test", "evilwild.test",
    "evildeep.test", "com", "localhost", "169.254.169.254", "127.0.0.1", "x" * 63 + ".api.test",
    "secret-data-in-labels.attacker.example", "_x.api.test", "*.wild.test"])
def test_names_any_other_name_does_not_exist(lab, name):
    since = lab.mark()
    answer = lab.resolve(name)
    assert answer.rcode == NXDOMAIN and not answer.records
    lab.wait_record("egress.dns", since, name=name.lower(), answer="NXDOMAIN")


@pytest.mark.conformance("names: spelling")
@pytest.mark.parametrize("name", ["API.Test", "api.test.", "x.WILD.test"])
def test_names_spellings_are_canonical(lab, name):
    assert lab.address(name) == lab.address(name.lower().rstrip("."))


@pytest.mark.conformance("names: wildcards")
@pytest.mark.parametrize("name,known", [("deep.test", True), ("x.deep.test", True), ("x.y.z.deep.test", True),
                                        ("x.wild.test", True), ("wild.test", False), ("x.y.wild.test", False)])
def test_names_wildcards_are_whole_labels(lab, name, known):
    assert lab.resolve(name).rcode == (NOERROR if known else NXDOMAIN)


@pytest.mark.conformance("names: ech")
@pytest.mark.parametrize("qtype", [AAAA, HTTPS, SVCB, TXT, ANY, 5, 2, 6, 15])
def test_names_other_types_have_no_data_and_no_ech(lab, qtype):
    known, unknown = lab.resolve("api.test", qtype), lab.resolve("unknown.test", qtype)
    assert (known.rcode, known.records) == (NOERROR, [])
    assert (unknown.rcode, unknown.records) == (NXDOMAIN, [])


def test_names_reverse_look_up_knows_synthetic_addresses_alone(lab):
    reverse = lambda a: lab.resolve(ipaddress.ip_address(a).reverse_pointer, PTR)
    address = lab.address("api.test")
    assert reverse(address).records[0][2] == "api.test"
    assert reverse("198.19.255.250").rcode == NXDOMAIN
    assert reverse("127.0.0.1").rcode == NXDOMAIN


def test_names_of_the_policy_have_the_same_addresses_in_every_gateway(own_lab, world):
    """A guest that goes on behind another gateway, after a pause or in a fork, may have kept what DNS said."""
    first = own_lab()
    names = [first.address(name) for name in ("other.test", "api.test")]
    second = own_lab()
    with second.tls("api.test", world.port, address=names[1]) as sock:  # it has not asked this one
        sock.sendall(b"GET /ok HTTP/1.1\r\nHost: api.test:%d\r\nConnection: close\r\n\r\n" % world.port)
        assert sock.recv(12) == b"HTTP/1.1 200"
    assert second.address("other.test") == names[0]


@pytest.mark.conformance("names: tunnelling")
@pytest.mark.parametrize("server", ["192.0.2.1", "8.8.8.8", "1.1.1.1", "169.254.169.254"])
@pytest.mark.parametrize("tcp", [False, True])
def test_names_every_server_is_ours(lab, server, tcp):
    answer = lab.resolve("api.test", server=server, tcp=tcp)
    assert ipaddress.ip_address(answer.records[0][2]) in SYNTHETIC
    assert lab.resolve("unknown.test", server=server, tcp=tcp).rcode == NXDOMAIN


@pytest.mark.conformance("names: tunnelling")
def test_names_dns_over_tls_is_refused(lab):
    with pytest.raises(OSError), lab.socket() as sock:
        sock.connect(("1.1.1.1", 853))
        sock.sendall(b"\x16\x03\x01")
        assert not sock.recv(1)
        raise ConnectionResetError


def test_names_tcp_questions_are_answered_in_order(lab):
    messages = [question(n, A, ident=i) for i, n in enumerate(["api.test", "no.test", "other.test"] * 5)]
    with lab.socket() as sock:
        sock.connect(("192.0.2.1", 53))
        sock.sendall(b"".join(struct.pack("!H", len(m)) + m for m in messages))
        stream = sock.makefile("rb")
        for i in range(len(messages)):
            answer = Answer(stream.read(struct.unpack("!H", stream.read(2))[0]))
            assert answer.id == i and answer.rcode == (NXDOMAIN if i % 3 == 1 else NOERROR)


@pytest.mark.parametrize("message,rcode", [
    (question("api.test", A, qclass=3), REFUSED),
    (question("api.test", A, flags=0x2800), NOTIMP),  # an UPDATE
    (b"\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00" + question("api.test", A)[12:], FORMERR),
    (question("api.test", A)[:12] + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", FORMERR),
    (question("api.test", A)[:12] + b"\xc0\x0c\0\1\0\1", FORMERR),
])
def test_names_bad_questions_are_answered_with_an_error(lab, message, rcode):
    reply = lab.ask(message)
    assert reply[:2] == b"\x12\x34" and reply[3] & 15 == rcode


@pytest.mark.parametrize("message", [b"", b"\0" * 11, b"\x12\x34\x81\x80\0\1\0\0\0\0\0\0" + question("api.test", A)[12:]])
def test_names_garbage_is_not_answered(lab, message):
    with lab.socket(socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 53))
        sock.send(message)
        sock.send(question("api.test", A, ident=0x4242))  # behind it, so that its answer is the first
        assert sock.recv(4096)[:2] == b"\x42\x42"


def test_names_every_answer_is_recorded(lab):
    mine, nobody = "recorded.wild.test", "recorded-nowhere.test"
    for _ in range(3):
        lab.resolve(mine)
    lab.resolve(mine, AAAA)
    lab.resolve(nobody, HTTPS)
    lab.wait_record("egress.dns", name=nobody, qtype="HTTPS", answer="NXDOMAIN")
    seen = [(r["name"], r["qtype"], r["answer"]) for r in lab.records if r.get("name") in (mine, nobody)]
    assert seen == [(mine, "A", lab.address(mine))] * 3 + [(mine, "AAAA", "NODATA"), (nobody, "HTTPS", "NXDOMAIN")]


@pytest.mark.conformance("names: tunnelling")
def test_names_dns_floods_are_capped_and_recorded(own_lab):
    lab = own_lab()
    with lab.socket(socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 53))
        for i in range(3000):
            sock.send(question(f"n{i}.test", A, ident=i))
    record = lab.wait_record("egress.deny", port=53)
    assert "DNS questions" in record["reason"]
    assert len([r for r in lab.records if r["kind"] == "egress.dns"]) < 2000


@pytest.mark.conformance("names: tunnelling")
def test_names_dns_has_a_rate(own_lab):
    """One question after the other, each answered, until the burst is used up."""
    lab = own_lab()
    answered, started = 0, time.monotonic()
    with lab.socket(socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 53))
        sock.settimeout(0.5)
        try:
            for i in range(20000):
                sock.send(question(f"n{i}.test", A, ident=i))
                sock.recv(4096)
                answered += 1
        except TimeoutError:
            pass
    elapsed = time.monotonic() - started
    assert 390 <= answered <= 400 + 200 * elapsed + 10


def persistent_resolver(lab):
    """Asks again until there is an answer: what is over the rate of questions is dropped."""
    sock = lab.socket(socket.SOCK_DGRAM)
    sock.connect(("192.0.2.1", 53))
    sock.settimeout(0.05)

    idents = itertools.count()

    def ask(name):
        for _ in range(400):
            ident = next(idents) % 65536
            sock.send(question(name, A, ident=ident))
            try:
                while (answer := Answer(sock.recv(4096))).id != ident:
                    pass
                return answer
            except TimeoutError:
                pass
        raise AssertionError(f"no answer about {name}")
    return sock, ask


@pytest.mark.conformance("names: tunnelling")
def test_names_of_a_wildcard_are_capped(own_lab, world):
    """So many new ones at once, then so many a second; what is known already is not counted, nor what a rule names."""
    lab = own_lab(policy={"egress": [world.rule("**.deep.test", 443), world.rule("api.test", 443)]})
    given, refused, started = [], None, time.monotonic()
    sock, ask = persistent_resolver(lab)
    with sock:
        while not refused and len(given) < 2000:
            answer = ask(f"n{len(given)}.deep.test")
            if answer.rcode == REFUSED:
                refused = f"n{len(given)}.deep.test"
            else:
                given.append(answer.records[0][2])
        assert 512 <= len(given) <= 512 + 10 * (time.monotonic() - started) + 1
        assert len(set(given)) == len(given)
        assert ask("n0.deep.test").records[0][2] == given[0]
        assert ask("api.test").rcode == NOERROR
    deny = lab.wait_record("egress.deny", port=53, reason=lambda r: "new names" in r)
    assert "10 a second" in deny["reason"]
    lab.wait_record("egress.dns", name=refused, answer="REFUSED")


OPT = 41


def edns(size, version=0, options=b""):
    return b"\0" + struct.pack("!HHBBHH", OPT, size, 0, version, 0, len(options)) + options


def with_edns(message, *args, **kwargs):
    return message[:10] + b"\0\1" + message[12:] + edns(*args, **kwargs)


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("size", [0, 512, 1232, 4096, 65535])
def test_names_edns_is_answered_with_edns(lab, tcp, size):
    for name, rcode in (("api.test", NOERROR), ("unknown.test", NXDOMAIN)):
        reply = lab.ask(with_edns(question(name, A), size), tcp=tcp)
        answer = Answer(reply)
        assert answer.rcode == rcode and answer.additional == 1
        kind, ours, extended, version, _, length = struct.unpack("!HHBBHH", reply[-10:])
        assert (kind, ours, extended, version, length) == (OPT, 1232, 0, 0, 0)
    assert Answer(lab.ask(question("api.test", A))).additional == 0


def test_names_edns_options_are_not_echoed(lab):
    cookie = struct.pack("!HH", 10, 8) + b"abcdefgh"
    assert b"abcdefgh" not in lab.ask(with_edns(question("api.test", A), 1232, options=cookie))


def test_names_another_version_of_edns_is_told_ours(lab):
    reply = lab.ask(with_edns(question("api.test", A), 1232, version=1))
    _, _, extended, version, _, _ = struct.unpack("!HHBBHH", reply[-10:])
    assert (Answer(reply).rcode, extended, version) == (0, 1, 0) and not Answer(reply).records
    lab.wait_record("egress.dns", answer="BADVERS")


@pytest.mark.parametrize("name", ["198.18.0.1", "1.0.18.198.in-addr.arpa.evil.test", "0.18.198.in-addr.arpa", "1.1.0.18.198.in-addr.arpa",
                                  "01.0.18.198.in-addr.arpa", "x.0.18.198.in-addr.arpa", "in-addr.arpa", "1.0.0.2.ip6.arpa"])
def test_names_reverse_look_up_takes_whole_addresses_alone(lab, name):
    assert lab.resolve(name, PTR).rcode == NXDOMAIN


def test_names_longest_names_are_answered_whole(own_lab, world):
    """253 characters, forwards and backwards, over either transport."""
    name = ".".join(["a" * 60] * 4)[:245] + ".x.test"
    lab = own_lab(policy={"egress": [world.rule(name, 443)]})
    assert len(name) <= 253
    for tcp in (False, True):
        address = lab.resolve(name, tcp=tcp).records[0][2]
        assert lab.resolve(ipaddress.ip_address(address).reverse_pointer, PTR, tcp=tcp).records[0][2] == name


@pytest.mark.conformance("names: sni", "base: alert")
def test_names_sni_of_another_name_gets_an_alert(lab, world):
    since = lab.mark()
    for sni in ("other.test", "unknown.test", "evil.example"):
        with pytest.raises(ssl.SSLError) as error:
            lab.tls("api.test", world.port, sni=sni, verify=False)
        assert "unrecognized name" in str(error.value).lower().replace("_", " ")
        lab.wait_record("egress.deny", since, host="api.test", port=world.port, scheme="https",
                        reason=lambda r, sni=sni: sni in r)
    assert not world.https.requests


@pytest.mark.conformance("names: no-sni")
def test_names_no_sni_means_the_host_of_the_address(lab, world):
    with lab.tls("api.test", world.port, sni=None) as sock:
        names = sock.getpeercert()["subjectAltName"]
        assert names == (("DNS", "api.test"),)
        sock.sendall(f"GET / HTTP/1.1\r\nHost: api.test:{world.port}\r\n\r\n".encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
    with lab.tls("api.test", world.port, sni=None) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: other.test:{world.port}\r\n\r\n".encode())
        assert read_all(sock).startswith(b"HTTP/1.1 421")


@pytest.mark.conformance("names: sni", "base: destination")
def test_names_sni_and_host_of_one_name_at_the_address_of_another(lab, world):
    """Both names are allowed; the address decides, so that there is one destination."""
    with pytest.raises(ssl.SSLError):
        lab.tls("other.test", world.port, sni="other.test", address=lab.address("api.test"), verify=False)


@pytest.mark.conformance("names: literal")
@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "93.184.216.34", "198.19.0.77",
                                     "192.0.2.1", "8.8.8.8"])
def test_names_ip_literals_are_refused(lab, world, address):
    since = lab.mark()
    with pytest.raises(OSError), lab.socket() as sock:
        sock.connect((address, 443))
        sock.sendall(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
        assert not sock.recv(1)
        raise ConnectionResetError
    lab.wait_record("egress.deny", since, port=443, reason=lambda r: address in r)


@pytest.mark.conformance("names: ip-spelling")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "0x7f.1", "2130706433", "017700000001", "127.1",
                                  "[::ffff:127.0.0.1]", "api.test@127.0.0.1"])
def test_names_ip_spellings_in_host_are_refused(lab, world, host):
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{world.port}\r\n\r\n".encode())
        assert read_all(sock).split()[1] in (b"421", b"400")
    assert not world.https.requests


@pytest.mark.conformance("names: spelling", "base: destination")
@pytest.mark.parametrize("host", ["API.TEST", "api.test.", "Api.Test."])
def test_names_host_spellings_are_canonical_upstream(lab, world, host):
    answer = lab.get("api.test", world.port, host_field=f"{host}:{world.port}")
    assert answer.status == 200
    assert world.https.requests[0].all("Host") == [f"api.test:{world.port}"]


@pytest.mark.conformance("names: spelling", "names: userinfo")
@pytest.mark.parametrize("host", ["api..test", ".api.test", "api.test..", "a" * 64 + ".test", "-a.test", "api.test:0",
                                  "api.test:99999", "api.test:", "api.test:443x", "user@api.test", "user:pw@api.test"])
def test_names_malformed_hosts_are_refused(lab, world, host):
    with lab.tls("api.test", world.port) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert read_all(sock).split()[1] in (b"421", b"400")
    assert not world.https.requests


@pytest.mark.conformance("names: spelling")
def test_names_international_names_are_a_labels(own_lab, world):
    lab = own_lab({"egress": [world.rule("B\u00fccher.test", world.http_port, "http")],
                   "resolve": [world.pin("xn--bcher-kva.test")]})
    assert lab.resolve("b\u00fccher.test").rcode == FORMERR
    port = world.http_port
    assert lab.get("xn--bcher-kva.test", port, scheme="http", host_field=f"XN--bcher-kva.test:{port}").status == 200
    assert world.http.requests[0].all("Host") == [f"xn--bcher-kva.test:{port}"]
    assert lab.get("xn--bcher-kva.test", port, scheme="http", host_field=f"b\u00fccher.test:{port}").status == 400
    assert len(world.http.requests) == 1


@pytest.mark.conformance("names: ports")
def test_names_ports_are_part_of_the_rule(lab, world):
    since = lab.mark()
    answer = lab.get("api.test", 443, host_field="api.test")
    assert answer.status == 403
    body = answer.json()
    assert body["host"] == "api.test" and body["port"] == 443 and body["allow_with"] == "--allow-host api.test"
    lab.wait_record("egress.deny", since, host="api.test", port=443)
    with lab.tls("api.test", world.port) as sock:  # a Host without the port means another one
        sock.sendall(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
        assert read_all(sock).split()[1] == b"421"


@pytest.mark.conformance("names: wildcards")
@pytest.mark.parametrize("rule", [{"host": "*"}, {"host": "*x.com"}, {"host": "*.com"}, {"host": "**.co.uk"},
                                  {"host": "10.0.0.1"}, {"host": "a b"}, {"host": "a.test", "typo": 1}])
def test_names_bad_rules_fail_the_gateway(own_lab, rule):
    with pytest.raises(Failed):
        own_lab(policy={"egress": [rule]})


@pytest.mark.conformance("names: hello")
def test_names_client_hello_split_into_bytes_is_reassembled(lab, world):
    """Each byte in a segment of its own; then each record fragment in one of its own."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(lab.authority.pem))
    tls = context.wrap_bio(incoming, outgoing, server_hostname="api.test")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    with lab.connect("api.test", world.port) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        payload = hello[5:]
        for i in range(0, len(payload), 50):  # records of 50 bytes, sent byte by byte
            part = payload[i:i + 50]
            for byte in hello[:3] + struct.pack("!H", len(part)) + part:
                sock.send(bytes([byte]))
        while True:
            incoming.write(sock.recv(65536))
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
        assert tls.getpeercert()["subjectAltName"] == (("DNS", "api.test"),)


@pytest.mark.conformance("names: hello")
def test_names_client_hello_beyond_16_kib_is_refused(lab, world):
    since = lab.mark()
    with lab.connect("api.test", world.port) as sock:
        hello = b"\x01" + (60000).to_bytes(3, "big") + b"\x03\x03" + b"\0" * 32 + b"\0" + b"\0\x02\x13\x01\x01\0"
        hello += b"\xff" * 60000
        for i in range(0, 40000, 16000):
            part = hello[i:i + 16000]
            try:
                sock.sendall(b"\x16\x03\x01" + struct.pack("!H", len(part)) + part)
            except OSError:
                break
        read_all(sock)
    lab.wait_record("egress.deny", since, host="api.test")


# -- what names resolve to outside --

@pytest.fixture(scope="module")
def internet():
    i = Internet()
    yield i
    i.close()


@pytest.fixture(scope="module")
def outside(internet, world, tmp_path_factory):
    from lab import Lab
    rules = [
        {"host": h, "scheme": "http"} for h in ("a.example.test", "b.example.test", "c.example.test", "d.example.test",
                                                "pinned.example.test", "metadata.example.test")]
    pins = [{"host": "pinned.example.test", "address": "10.99.0.2"},
            {"host": "metadata.example.test", "address": "169.254.169.254"}]
    try:
        lab = Lab(tmp_path_factory.mktemp("outside"), world.node, {"egress": rules, "resolve": pins},
                  resolver=internet.dns.address, netns=internet.here)
    except Failed:  # a policy may refuse that pin by itself
        lab = Lab(tmp_path_factory.mktemp("outside2"), world.node, {"egress": rules, "resolve": pins[:1]},
                  resolver=internet.dns.address, netns=internet.here)
    with lab:
        yield lab


def fetch(lab, host):
    return lab.get(host, 80, scheme="http", host_field=host, fields=["Connection: close"])


@pytest.mark.conformance("names: special", "names: embedded")
@pytest.mark.parametrize("address", [
    "127.0.0.1", "10.99.0.2", "10.0.0.1", "0.0.0.0", "100.64.0.1", "169.254.1.1", "169.254.169.254", "172.16.0.1",
    "192.0.0.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", OWN, "::ffff:" + OWN, "::", "::1", "fe80::1",
    "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b:1::a63:2", "2002:7f00:1::", "2001:0:7f00:1::"])
def test_names_special_addresses_are_refused(outside, internet, address):
    internet.dns.table["a.example.test"] = [address]
    since = outside.mark()
    answer = fetch(outside, "a.example.test")
    assert answer.status == 403
    assert "a.example.test" in answer.json()["message"] and address not in answer.json()["message"]
    outside.wait_record("egress.deny", since, host="a.example.test", port=80)
    outside.wait_record("egress.response", since, status=403)
    assert not internet.loopback.requests and not internet.private.requests and not internet.own.requests


@pytest.mark.conformance("names: rebinding")
def test_names_every_answer_is_checked_and_a_checked_one_dialled(outside, internet):
    internet.dns.table["b.example.test"] = ["127.0.0.1", "10.99.0.2", OWN, "::1", PUBLIC]
    assert fetch(outside, "b.example.test").status == 200
    assert internet.public.requests[-1].get("Host") == "b.example.test"
    assert not internet.loopback.requests and not internet.private.requests and not internet.own.requests


def test_names_every_checked_address_is_tried(outside, internet):
    internet.dns.table["c.example.test"] = ["2606:2800:220:1::1", CLOSED, SECOND]
    assert fetch(outside, "c.example.test").status == 200
    assert internet.second.requests[-1].get("Host") == "c.example.test"


@pytest.mark.conformance("names: rebinding")
def test_names_rebinding_is_checked_at_each_connect(outside, internet):
    seen = []
    for address in (PUBLIC, "127.0.0.1", "10.99.0.2", PUBLIC):
        internet.dns.table["d.example.test"] = [address]
        seen.append(fetch(outside, "d.example.test").status)
    assert seen == [200, 403, 403, 200]
    assert not internet.loopback.requests and not internet.private.requests


@pytest.mark.conformance("names: special")
def test_names_a_pin_opens_its_address_for_its_name_alone(outside, internet):
    assert fetch(outside, "pinned.example.test").status == 200
    assert internet.private.requests.pop().get("Host") == "pinned.example.test"
    internet.dns.table["a.example.test"] = ["10.99.0.2"]
    assert fetch(outside, "a.example.test").status == 403
    assert ("pinned.example.test", A) not in internet.dns.asked


@pytest.mark.conformance("names: special")
def test_names_metadata_services_are_never_opened(outside):
    answer = outside.resolve("metadata.example.test")
    if answer.rcode == NOERROR:
        assert fetch(outside, "metadata.example.test").status in (403, 502)


@pytest.mark.conformance("base: destination")
def test_names_only_the_name_that_was_judged_is_asked_for(outside, internet):
    internet.dns.asked.clear()
    internet.dns.table["a.example.test"] = [PUBLIC]
    assert fetch(outside, "a.example.test").status == 200
    assert {name for name, _ in internet.dns.asked} == {"a.example.test"}


def test_names_a_name_that_does_not_exist_outside(outside, internet):
    internet.dns.table.pop("a.example.test", None)
    answer = fetch(outside, "a.example.test")
    assert answer.status == 502 and "does not exist" in answer.json()["message"]
