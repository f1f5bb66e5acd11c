# SPDX-License-Identifier: Apache-2.0
"""What a gateway must get right, line by line, and the count of lines that tests have shown.

A test says which lines it is about: @pytest.mark.conformance("names: no-sni"). At the end of a run each section is counted. A run of
this whole directory fails when one of its lines has no test, a run that has test_clients.py when one of the microVM's has none.
"""
import pathlib

HERE = pathlib.Path(__file__).resolve().parent

SECTIONS = {
    "base": {
        "destination": "policy, DNS, dial, SNI, Host, record and credential use one destination, computed once",
        "anew": "what leaves is written anew; no byte of the guest is passed on as it came",
        "denial": "a denial is recorded with the rule that decided, or that none did, before it is answered",
        "answer": "the guest is told host, port, method, path and the smallest rule that would allow it",
        "alert": "TLS that can't be answered gets an alert, and a record",
    },
    "names": {
        "sni": "SNI and Host, or :authority, that differ: 421, closed",
        "no-sni": "no SNI: only at an address that names one host, or that a CIDR rule covers; no default name",
        "literal": "an IP literal needs a CIDR rule; no credential of a host ever goes there",
        "ech": "encrypted ClientHello: the outer name is judged; HTTPS and SVCB answers carry no ech; no blind tunnel",
        "hello": "a ClientHello in pieces, in records, or large is put together up to 16 KiB under a deadline",
        "rebinding": "names are resolved outside, every answer checked, a checked one dialled, at each connect anew",
        "tunnelling": "DNS forwards nothing: made-up answers, NXDOMAIN, caps under wildcards; 53 and 853 elsewhere are ours or refused",
        "spelling": "one trailing dot and case are dropped, IDN becomes A-labels; NUL, empty and long labels, long names are refused",
        "userinfo": "user@host in a URL or Host: 400",
        "ports": "a rule is for a host and a port: 443, or 80 where it says http, unless it names others",
        "wildcards": "*.x is one label, **.x any depth and x; no string suffixes; *, *x and public suffixes don't load",
        "ip-spelling": "octal, hexadecimal, short and decimal spellings of addresses are refused, not understood",
        "embedded": "an IPv4 address inside an IPv6 one is judged as itself",
        "special": "private, local, reserved and the host's own addresses need a CIDR rule or a pin; metadata services never pass",
        "packets": "IPv6, ICMP, raw and fragmented packets, forged sources, UDP other than DNS, QUIC: rejected at once, counted",
    },
    "http1": {
        "host": "no Host, two, or a list in it: 400, closed",
        "absolute": "an absolute-form target must agree with Host and SNI: else 400",
        "methods": "CONNECT, TRACE and TRACK: 405",
        "framing": "ambiguous or odd Content-Length and Transfer-Encoding: 400, closed",
        "syntax": "obs-fold, bare CR or LF, space before the colon, NUL, names that are no tokens: 400, closed",
        "chunks": "chunk extensions and trailers are read under a bound and dropped; bad sizes: 400",
        "pipelining": "pipelined requests are served in order, bounded, each judged alone",
        "expect": "100-continue is answered when the policy has decided; other expectations: 417",
        "upgrade": "h2c is refused; a WebSocket's bytes pass after a 101 with the right accept key alone, and end with the leave",
        "caps": "request line, header block and number of fields over their caps: 414, 431, closed",
        "responses": "broken responses are written anew or 502; no response is ever taken for another's",
    },
    "http2": {
        "authority": ":authority and host that differ: stream error PROTOCOL_ERROR",
        "pseudo": "doubled, late and unknown pseudo-fields: PROTOCOL_ERROR",
        "fields": "upper case and connection fields: PROTOCOL_ERROR",
        "scheme": "a :scheme other than https: PROTOCOL_ERROR",
        "length": "Content-Length that DATA does not keep: PROTOCOL_ERROR",
        "continuation": "CONTINUATION floods are capped, the connection closed with ENHANCE_YOUR_CALM",
        "hpack": "HPACK bombs likewise",
        "resets": "rapid resets likewise",
        "floods": "SETTINGS and PING floods likewise",
        "never-indexed": "what is put in is never indexed",
        "grpc": "gRPC: streams and trailers pass both ways, with the credential put in",
    },
    "paths": {
        "form": "the policy judges, and the server gets, the same form",
        "backslash": "%5C is refused",
        "nul": "an encoded NUL is refused",
        "dots": "dot segments, plain or encoded, are refused",
        "empty": "// is refused",
        "double": "double encoding is refused",
        "slash": "%2F passes only where a rule says so",
        "query": "the query is not part of what is matched",
    },
    "credentials": {
        "strip": "all known slots of the guest's are stripped before one credential is put in",
        "plain": "never over plain HTTP; 403 unless a rule allows http without it",
        "redirect": "redirects are not followed; the next request is judged afresh",
        "identity-encoding": "identity is asked for where a credential is put in",
        "control": "CR, LF or NUL in a value: the grant does not load",
        "revoked": "a grant or rule that is taken back cuts what uses it; the next request gets 403",
        "early-data": "no early data is taken or sent",
        "client-certificate": "a server that asks for a client certificate gets none but a grant's",
        "pinned": "a client that pins its server needs a rule that passes TLS on, which carries no credential",
        "slot": "who a sandbox is, is known by its slot alone; no connection outside is shared by two",
        "placeholder": "a placeholder in another slot, field, body or query, in whatever encoding, or to another host: 403, recorded as a leak",
        "echo": "a credential that the server echoes is redacted, in whatever encoding",
        "expired": "a grant that expires or is used up mid-connection cuts what uses it; the next request gets 403 and why",
    },
    "trust": {
        "store": "the node's CA is in the image's system store",
        "variables": "every process has the variables that make clients trust it",
        "files": "so do sudo, pip, git and apt by files of their own",
        "system-clients": "curl, wget, git, apt and Python's urllib need nothing else",
        "variable-clients": "requests, pip and Node trust it through their variables",
        "ca": "the CA: critical basicConstraints CA:TRUE, critical keyUsage keyCertSign, a subject key identifier",
        "leaf": "leaves: subject alternative name, serverAuth, authority key identifier, a serial of their own, a day back, days to live",
        "leaf-literal": "the leaf of a literal address has an IP subject alternative name",
        "strict": "verifiers that check every extension are content",
    },
}

# Whose tests are in microVMs: tests/e2e/test_clients.py.
IN_MICROVM = {("trust", line) for line in ("store", "variables", "files", "system-clients", "variable-clients", "ca")}

# Not there yet, and why.
NOT_YET = {
}


def parse(text):
    section, _, line = text.partition(": ")
    if line not in SECTIONS.get(section, {}):
        raise ValueError(f"conformance.py has no line {text!r}")
    return section, line


class Count:
    """A pytest plugin: gathers how the tests of each line ended, also from xdist's workers."""

    def __init__(self, config):
        self.config = config
        self.outcomes = {}  # (section, line) -> outcomes of its tests
        self.seen = set()  # files with a report
        self.measured = []  # lines that tests have to say, by record_property("measured", …)
        config.addinivalue_line("markers", "conformance(lines...): lines of tests/e2e/gateway/conformance.py that a test shows")

    def pytest_collection_modifyitems(self, items):
        for item in items:
            lines = [parse(text) for mark in item.iter_markers("conformance") for text in mark.args]
            if lines:
                item.user_properties.append(("conformance", lines))

    def pytest_runtest_logreport(self, report):
        self.seen.add(pathlib.Path(report.fspath).name)
        if report.when != "call" and report.passed:
            return
        for name, lines in report.user_properties:
            if name == "measured" and report.when == "call":
                self.measured.append(lines)
            if name == "conformance":
                for line in lines:
                    self.outcomes.setdefault(tuple(line), []).append(report.outcome)

    def _covers(self, *files):
        """Whether all tests of these files were asked for."""
        option = self.config.option
        return not option.keyword and not option.markexpr and not any("::" in a for a in self.config.args) and self.seen >= set(files)

    def _wanted(self):
        """Lines that this run should have shown."""
        gateway = self._covers(*(p.name for p in HERE.glob("test_*.py")))
        microvm = self._covers("test_clients.py")
        return {(section, line) for section, lines in SECTIONS.items() for line in lines if (section, line) not in NOT_YET
                and (microvm if (section, line) in IN_MICROVM else gateway)}

    def missing(self):
        return sorted(self._wanted() - set(self.outcomes))

    def pytest_sessionfinish(self, session):
        worker = hasattr(self.config, "workerinput")
        if not worker and session.exitstatus == 0 and not self.config.option.collectonly and self.missing():
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter):
        if not self.outcomes:
            return
        write = terminalreporter.write_line
        for line in self.measured:
            write("measured: " + line)
        shown = {section for section, _ in [*self.outcomes, *self.missing()]}
        write("conformance: " + ", ".join(self._section(section) for section in SECTIONS if section in shown))
        for (section, line), outcomes in sorted(self.outcomes.items()):
            if "failed" in outcomes:
                write(f"conformance: {section}: {line} failed: {SECTIONS[section][line]}", red=True)
            elif "passed" not in outcomes:
                write(f"conformance: {section}: {line} was skipped")
        for section, line in self.missing():
            write(f"conformance: {section}: {line} has no test: {SECTIONS[section][line]}", red=True)
        for (section, line), why in [item for item in NOT_YET.items() if item[0][0] in shown]:
            write(f"conformance: {section}: {line} not yet: {why}")

    def _section(self, section):
        lines = [(section, line) for line in SECTIONS[section]]
        counted = [at for at in lines if at not in NOT_YET and (at not in IN_MICROVM or at in self.outcomes)]
        good = [at for at in counted if set(self.outcomes.get(at, ["none"])) <= {"passed", "skipped"} and "passed" in self.outcomes[at]]
        rest = {"not yet": sum(at in NOT_YET for at in lines),
                "in microVMs": sum(at in IN_MICROVM and at not in self.outcomes for at in lines)}
        return f"{section} {len(good)}/{len(counted)}" + "".join(f" (+{n} {what})" for what, n in rest.items() if n)


def register(config):
    if not config.pluginmanager.has_plugin("conformance"):
        config.pluginmanager.register(Count(config), "conformance")
