# SPDX-License-Identifier: Apache-2.0
"""Tools of a guest, as they are, with keys that are not there; and then the hunt for the keys."""
import base64
import json
import secrets
import textwrap

import pytest

from hunt import Hunt
from machines import call
from node import find_processes
from origin import Origin

VALUES = {name: "real-" + secrets.token_hex(24) for name in ("GITHUB_TOKEN", "PYPI_PASSWORD", "ANTHROPIC_API_KEY", "MAPS_KEY")}


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def git_demands(path, fields):
    want = basic("x-access-token", VALUES["GITHUB_TOKEN"]) if path.startswith("/git/") else "Bearer " + VALUES["GITHUB_TOKEN"]
    return fields.get_all("Authorization") == [want]


def pypi_demands(_path, fields):
    return fields.get_all("Authorization") == [basic("reader", VALUES["PYPI_PASSWORD"])]


def llm_demands(_path, fields):
    return fields.get_all("x-api-key") == [VALUES["ANTHROPIC_API_KEY"]] and "Authorization" not in fields


def maps_demand(path, _fields):
    return path.endswith("?q=1&key=" + VALUES["MAPS_KEY"])


DEMANDS = {"git": git_demands, "pypi": pypi_demands, "llm": llm_demands, "maps": maps_demand}
CREDENTIALS = """
credentials:
  - name: GITHUB_TOKEN
    hosts: [git.test.internal]
  - name: PYPI_PASSWORD
    hosts: [pypi.test.internal]
    inject: {kind: basic, user: reader}
  - name: ANTHROPIC_API_KEY
    hosts: [llm.test.internal]
    inject: {kind: header, name: x-api-key}
  - name: MAPS_KEY
    hosts: [maps.test.internal]
    inject: {kind: query, name: key}
"""


@pytest.fixture(scope="module")
def origins():
    made = {name: Origin(f"{name}.test.internal", demand) for name, demand in DEMANDS.items()}
    yield made
    for origin in made.values():
        origin.close()


def policy_for(origins):
    parts = [origin.policy().split("resolve:\n") for origin in origins.values()]
    rules = "".join(rule.removeprefix("egress:\n") for rule, _ in parts)
    return "egress:\n" + rules + "resolve:\n" + "".join(pin for _, pin in parts) + CREDENTIALS


@pytest.fixture(scope="module")
def box(node, origins, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "policy.yaml"
    path.write_text(policy_for(origins))
    node.ok("run", "-d", "--name", "keys", "--policy", path, "--", "sleep", "100000", env=VALUES)
    yield "keys"
    node.space("rm", "-f", "keys")


@pytest.fixture
def sh(node, box):
    return lambda script: node.ok("exec", box, "--", "bash", "-ec", script)


def test_git_clones_and_pushes_with_the_credential_of_the_api(sh, origins):
    url = origins["git"].url
    out = sh(f"""
        cd $(mktemp -d); git clone -q {url}/git/demo.git; cd demo; cat README
        git config user.name a; git config user.email a@b; echo more >more; git add more; git commit -q -m second; git push -q
        git remote set-url origin https://me:$GITHUB_TOKEN@{url.removeprefix("https://")}/git/demo.git
        echo again >more; git commit -q -a -m third; git push -q; git fetch; git log --format=%s origin/main
        curl -sS --fail -H "Authorization: Bearer $GITHUB_TOKEN" {url}/hello
        curl -sS --fail {url}/hello
        """)
    assert out.split("\n") == ["cloned", "third", "second", "first", "hello, world", "hello, world", ""]


def test_pip_installs_from_an_index_with_a_password(sh, origins):
    place = origins["pypi"].url.removeprefix("https://")
    out = sh(f"""
        cd $(mktemp -d); pip install -q --target . --index-url https://reader:$PYPI_PASSWORD@{place}/simple spacedemo
        python3 -c 'import spacedemo'""")
    assert out.splitlines()[-1] == "from the wheel"


def test_an_sdk_sends_its_key_as_a_header(sh, origins):
    program = textwrap.dedent(f"""
        import json, os, urllib.request as u
        fields = {{"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01", "content-type": "application/json"}}
        assert fields["x-api-key"].startswith("sk-ant-")
        answer = json.load(u.urlopen(u.Request("{origins["llm"].url}/v1/messages", json.dumps({{"max_tokens": 1}}).encode(), fields)))
        print(answer["body"], answer["fields"]["x-api-key"])
        """)
    body, echoed = sh(f"python3 - <<'END'\n{program}\nEND").rsplit(" ", 1)
    assert json.loads(body) == {"max_tokens": 1}
    assert echoed.strip() == "*" * len(VALUES["ANTHROPIC_API_KEY"])


def test_a_key_in_the_query(sh, origins):
    answer = json.loads(sh(f"curl -sS --fail '{origins['maps'].url}/echo?key='$MAPS_KEY'&q=1'"))
    assert answer["path"] == "/echo?q=1&key=" + "*" * len(VALUES["MAPS_KEY"])


def test_what_a_leak_is_told(sh, node, box, origins):
    answer = json.loads(sh(f"curl -sS {origins['llm'].url}/v1/messages -d 'my key is '$GITHUB_TOKEN"))
    assert answer["code"] == 403 and "GITHUB_TOKEN" in answer["message"]
    records = [json.loads(line) for line in node.ok("audit", "show", "--json", box).splitlines()]
    assert [r["leak"] for r in records if "leak" in r] == ["GITHUB_TOKEN"]


def test_no_value_is_in_the_guest_nor_on_the_host(node, box, sh, tmp_path):
    """Last, so that all of them were used."""
    hunt = Hunt(VALUES)
    placeholder = sh("printenv GITHUB_TOKEN").strip()
    everything = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; tar -c -C / etc home root tmp var run 2>/dev/null; true"
    inside = node.space("exec", "-u", "root", box, "--", "sh", "-c", everything).stdout
    assert placeholder.encode() in inside
    dump = tmp_path / "memory"
    assert call(node, "POST", f"/sandboxes/{box}/memory", {"path": str(dump)})[0] == 204
    assert Hunt({"placeholder": placeholder}).in_file(dump), "the dump is of something else"
    found = hunt.in_bytes(inside, "the guest") + hunt.in_file(dump)
    dump.unlink()
    found += hunt.below(node.root) + hunt.in_processes(find_processes(node))
    assert not found
