# SPDX-License-Identifier: Apache-2.0
"""space policy: whether a file is a policy, and what it would decide."""
import json

import pytest

POLICY = """\
egress:
  - host: api.example.com
    methods: [GET, HEAD]
    paths: [/repos/**]
  - host: evil.example.com
    deny: true
  - host: '**.example.com'
  - {host: db.example.org, scheme: tcp, ports: [5432]}
  - {cidr: 10.1.0.0/16, ports: [8443]}
"""


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(POLICY)
    return path


def test_check_counts_the_rules_of_a_good_file(node, policy):
    done = node.space("policy", "check", policy)
    assert (done.returncode, done.stdout) == (0, b"rules: 5\n"), done
    answer = json.loads(node.space("policy", "check", "--json", policy).stdout)
    assert answer["ok"] and answer["rules"] == 5
    assert answer["policy"]["egress"][0]["paths"] == ["/repos/**"]


def test_check_says_what_is_wrong_and_where(node, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("egress:\n- host: a.example\n  methods: [get]\n")
    done = node.space("policy", "check", path)
    assert done.returncode == 1 and done.stdout == b""
    assert b"bad.yaml:3:13: egress[0].methods[0]: a method is in upper case" in done.stderr
    done = node.space("policy", "check", "--json", path)
    assert done.returncode == 1
    assert "egress[0].methods[0]" in json.loads(done.stdout)["problem"]


@pytest.mark.parametrize(
    "question, code, lines",
    [
        (
            ["GET", "https://api.example.com/repos/x?y"],
            0,
            ["allowed: https://api.example.com:443 GET,HEAD /repos/**", "p.yaml:2:5: egress[0]"],
        ),
        (["POST", "https://api.example.com/repos/x"], 0, ["egress[2]", "egress[0]: it differs in methods"]),
        (["GET", "https://evil.example.com/"], 1, ["denied: deny evil.example.com", "p.yaml:5:5: egress[1]"]),
        (
            ["GET", "https://other.example.org/"],
            1,
            ["denied: default deny", "to allow it: --allow-host other.example.org"],
        ),
        (["GET", "https://api.example.com/a%2fb"], 1, ["egress[0]: it differs in paths", "egress[2]: it differs in encodedSlash", "encodedSlash: true"]),
        (["tcp://db.example.org:5432"], 0, ["allowed: tcp://db.example.org:5432"]),
        (["GET", "https://10.1.2.3:8443/"], 0, ["allowed: https://10.1.0.0/16:8443"]),
    ],
)
def test_explain_names_the_rule_that_decides(node, policy, question, code, lines):
    done = node.space("policy", "explain", policy, *question)
    assert done.returncode == code and done.stderr == b"", done
    for line in lines:
        assert line in done.stdout.decode(), done
    answer = node.space("policy", "explain", "--json", policy, *question)
    assert answer.returncode == code
    assert json.loads(answer.stdout)["allow"] == (code == 0)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["check"],
        ["explain", "FILE"],
        ["check", "/nonexistent.yaml"],
        ["explain", "FILE", "GET", "ftp://a.example/"],
        ["explain", "FILE", "GET", "https://user@a.example/"],
        ["explain", "FILE", "GET", "https://a.example/../x"],
    ],
)
def test_what_cannot_be_asked_is_one_line(node, policy, words):
    done = node.space("policy", *[policy if w == "FILE" else w for w in words])
    assert done.returncode == 125 and done.stdout == b""
    assert done.stderr.startswith(b"space: ") and done.stderr.count(b"\n") == 1
