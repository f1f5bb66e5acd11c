# SPDX-License-Identifier: Apache-2.0
"""The way of a newcomer: 'space secret' and 'space grant' with real microVMs, from a key on the desk to what is left of it."""
import json
import re

import pytest

from machines import rm
from node import eventually
from service import Service

VALUE = "hunter2-of-the-verbs"
AWS = {"AWS_ACCESS_KEY_ID": "AKIAOFTHEVERBS000000", "AWS_SECRET_ACCESS_KEY": "hunter2-of-aws-0123456789"}


@pytest.fixture(scope="module")
def service():
    s = Service()
    yield s
    s.close()


@pytest.fixture
def policy(service, tmp_path):
    service.requests.clear()
    path = tmp_path / "p.yaml"
    path.write_text(service.policy())
    return str(path)


@pytest.fixture
def clean(node):
    before = set(node.names())
    yield
    rm(node, *(set(node.names()) - before))
    for one in json.loads(node.ok("secret", "ls", "--json")):
        node.ok("secret", "rm", one["name"])


def ask(node, service, name, path, *args):
    """The status, and what came: None where nothing did."""
    status = node.ok("exec", name, "--", "curl", "-s", "-m", "120", "-o", "/dev/null", "-w", "%{http_code}", *args, service.url + path)
    sent = [headers for _, p, headers, _ in service.requests if p == path]
    return status, sent[-1] if sent else None


def row(node, name, credential):
    lines = [re.split(r"  +", line.rstrip()) for line in node.ok("grant", "ls", name).splitlines()]
    return dict(zip(lines[0], next(line for line in lines if line[0] == credential)))


def test_from_the_desk_to_a_revoked_grant(node, service, policy, clean):
    node.ok("secret", "set", "GITHUB_TOKEN", "--host", service.host, "--uses", "9", input=VALUE.encode() + b"\n")
    assert node.ok("secret", "test", "GITHUB_TOKEN") == "GITHUB_TOKEN: good\n"
    inside = node.ok("run", "--secret", "GITHUB_TOKEN", "--policy", policy, "--", "sh", "-c", 'curl -s %s/run; echo; echo "$GITHUB_TOKEN"' % service.url)
    authorized, placeholder = inside.splitlines()
    assert json.loads(authorized)["authorized"] and re.fullmatch(r"ghp_\w{36}", placeholder)
    assert service.requests[-1][2]["Authorization"] == "Bearer " + VALUE

    node.ok("run", "-d", "--name", "w", "--policy", policy, "--", "sleep", "100000")
    assert ask(node, service, "w", "/before")[1]["Authorization"] is None
    assert node.ok("grant", "add", "w", "GITHUB_TOKEN", "--method", "GET", "--path", "/repos/**", "--uses", "2", "--ttl", "1h") == ""
    assert re.fullmatch(r"ghp_\w{36}\n", node.ok("exec", "w", "--", "printenv", "GITHUB_TOKEN"))
    status, headers = ask(node, service, "w", "/repos/x")
    assert (status, headers["Authorization"]) == ("200", "Bearer " + VALUE)
    assert ask(node, service, "w", "/other")[1]["Authorization"] is None
    # git's own way to say who it is, with the same credential.
    status, headers = ask(node, service, "w", "/repos/x/info/refs?service=git-upload-pack")
    assert status == "200" and headers["Authorization"].startswith("Basic ")
    eventually(lambda: row(node, "w", "GITHUB_TOKEN")["USES"] == "2/2", lambda: row(node, "w", "GITHUB_TOKEN"))
    shown = row(node, "w", "GITHUB_TOKEN")
    assert (shown["KIND"], shown["STATE"]) == ("bearer", "used up") and re.fullmatch(r"\d+[sm]", shown["LAST USE"])
    assert ask(node, service, "w", "/repos/y")[0] == "403"

    node.ok("grant", "add", "w", "OURS", "--env", "--host", service.host, "--header", "X-Key=k {}", env={"OURS": VALUE})
    assert ask(node, service, "w", "/ours")[1]["X-Key"] == "k " + VALUE
    node.ok("grant", "revoke", "w", "OURS")
    assert ask(node, service, "w", "/revoked") == ("403", None)
    assert row(node, "w", "OURS")["STATE"] == "revoked"
    done = node.space("grant", "add", "w", "NONE")
    assert done.returncode == 125 and b"NONE" in done.stderr and b"'space secret set'" in done.stderr


def test_who_resumes_gives_what_only_he_has(node, service, policy, clean):
    node.ok("secret", "set", "STORED", "--host", "stored.test", input=VALUE.encode())
    text = open(policy).read().replace("resolve:", "  - host: stored.test\n  - host: aws.test\nresolve:")
    with open(policy, "w") as f:
        f.write(text)
    node.ok("run", "-d", "--name", "p", "--policy", policy, "--secret", "STORED", "--", "sleep", "100000")
    node.ok("grant", "add", "p", "KEYS", "--env", "--host", "aws.test", "--sigv4", "s3/eu-central-1", env=AWS)
    node.ok("grant", "add", "p", "OURS", "--env", "--host", service.host, env={"OURS": VALUE})
    node.ok("pause", "p")
    done = node.space("resume", "p", env=AWS)
    assert done.returncode == 125 and b"'export OURS=...'" in done.stderr and b"STORED" not in done.stderr
    node.ok("resume", "p", env={**AWS, "OURS": VALUE})
    assert {row(node, "p", name)["STATE"] for name in ("STORED", "KEYS", "OURS")} == {"good"}
    assert ask(node, service, "p", "/resumed")[1]["Authorization"] == "Bearer " + VALUE
    secrets = {s["name"]: s for s in node.inspect("p")["secrets"]}
    assert (secrets["KEYS"]["kind"], secrets["STORED"]["stored"]) == ("sigv4", "STORED")


def test_canary_that_is_touched_is_seen(node, service, policy, clean):
    node.ok("secret", "set", "BAIT", "--host", service.host, "--canary")
    node.ok("run", "-d", "--name", "c", "--policy", policy, "--secret", "BAIT", "--", "sleep", "100000")
    assert row(node, "c", "BAIT")["STATE"] == "good (canary)"
    assert ask(node, service, "c", "/bait") == ("403", None)
    eventually(lambda: row(node, "c", "BAIT")["STATE"].startswith("good, ALARM"), lambda: row(node, "c", "BAIT"))
