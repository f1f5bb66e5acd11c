# SPDX-License-Identifier: Apache-2.0
"""Credentials that are granted to sandboxes, used, bounded and taken back; in microVMs, through the API of spaced."""
import concurrent.futures
import json
import os
import signal
import subprocess
import threading

import pytest

from authorization import CLIENT, CLIENT_SECRET, Authorization
from machines import call, log_of, rm
from node import end, eventually, new_node
from service import Service

SHARERS = int(os.environ.get("SPACE_SHARERS", "20"))  # sandboxes with one credential
VALUE = "value-of-the-credential-%d"
# Whom a guest trusts, without the hundred others that it takes a second to read.
CA = "/usr/local/share/ca-certificates/space.crt"


@pytest.fixture(scope="module")
def service():
    s = Service()
    s.cut = threading.Event()

    class Handler(s.server.RequestHandlerClass):
        def cut_short(self, text):
            """Says this, and no more of what was promised."""
            self.send_response(200)
            self.send_header("Content-Length", str(len(text) + 100))
            self.end_headers()
            self.wfile.write(text)
            self.close_connection = True

        def do_GET(self):
            if self.path.startswith("/cut/"):
                return self.cut_short(self.path.removeprefix("/cut/").encode())
            if self.path != "/endless":
                return self.answer()
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                    s.cut.wait(0.01)  # not faster than anybody reads
            except OSError:
                s.cut.set()

    s.server.RequestHandlerClass = Handler
    yield s
    s.close()


@pytest.fixture(scope="module")
def home(node):
    node.ok("template", "build", "base")
    with new_node() as n:
        yield n


@pytest.fixture
def clean(home, service):
    """Removes what a test made."""
    service.requests.clear()
    service.cut.clear()
    before = set(home.names())
    yield
    rm(home, *(set(home.names()) - before))


def ok(answer, *status):
    assert answer[0] in (status or (200, 201, 204)), answer
    return answer[1]


def run(node, service, name, *secrets, policy=None, **more):
    body = {
        "name": name, "detach": True, "policy": {"name": "p.yaml", "text": policy or service.policy()},
        "secrets": list(secrets), "process": {"cmd": "sleep", "args": ["100000"]}, **more,
    }  # fmt: skip
    return call(node, "POST", "/run", body)


def grants(node, name):
    return {g["name"]: g for g in ok(call(node, "GET", "/sandboxes/%s/grants" % name))}


def add(node, box, **entry):
    return call(node, "POST", "/sandboxes/%s/grants" % box, entry)


def revoke(node, name, grant):
    return call(node, "DELETE", "/sandboxes/%s/grants/%s" % (name, grant))


def store(node, name, value=None, **definition):
    ok(call(node, "PUT", "/secrets/" + name, {"definition": definition, "values": {"value": value} if value else {}}))


def ask(node, service, name, path="/x", *args):
    """The status of a request from inside, and the Authorization that came of it."""
    done = node.space("exec", name, "--", "curl", "-s", "--cacert", CA, "-m", "120", "-o", "/dev/null", "-w", "%{http_code}%{stderr}%{errormsg}", *args, service.url + path)
    assert done.stdout != b"000", (done.stderr, node.ok("audit", "show", name)[-3000:], log_of(node)[-2000:])
    sent = [headers for _, p, headers, _ in service.requests if p == path]
    return done.stdout.decode(), sent[-1]["Authorization"] if sent else None


def refusal(node, service, name):
    return node.ok("exec", name, "--", "curl", "-s", "--cacert", CA, "-m", "120", service.url + "/refused")


def download(node, service, name):
    """One that never ends; the guest has the first of its bytes."""
    child = node.popen("exec", name, "--", "curl", "-sN", "--cacert", CA, service.url + "/endless", stdout=subprocess.PIPE)
    assert child.stdout.read(1) == b"x"
    threading.Thread(target=child.stdout.read, daemon=True).start()
    return child


def records(node, name, kind):
    lines = node.ok("audit", "show", "--json", name).splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == kind]


@pytest.mark.smoke
def test_a_grant_is_added_counted_and_taken_back(home, service, clean):
    ok(run(home, service, "g"))
    assert ask(home, service, "g", "/bare") == ("200", None)
    assert grants(home, "g") == {}
    added = ok(add(home, "g", name="KEY", hosts=[service.host], value=VALUE % 1), 201)
    assert added["state"] == "good" and added["kind"] == "bearer" and added["used"] == 0 and "value" not in added
    placeholder = added["variables"]["KEY"]
    assert home.ok("exec", "g", "--", "printenv", "KEY") == placeholder + "\n"
    assert ask(home, service, "g", "/with") == ("200", "Bearer " + VALUE % 1)

    assert ok(add(home, "g", name="KEY", hosts=[service.host], value="x"), 409)["message"].count("KEY")
    assert ok(add(home, "g", name="OTHER", hosts=[service.host], value="x"), 409)["message"].count("KEY")
    assert ok(add(home, "g", name="OTHER", hosts=["elsewhere.test"], value="x"), 400)["message"].count("elsewhere.test")
    assert ok(add(home, "g", name="OTHER", hosts=[service.host], value="a\nb"), 400)["message"].count("OTHER")
    assert ok(add(home, "g", name="OTHER", stored="NOBODY"), 404)["message"].count("NOBODY")
    assert list(grants(home, "g")) == ["KEY"]

    child = download(home, service, "g")
    eventually(lambda: grants(home, "g")["KEY"]["used"] == 2, lambda: grants(home, "g"))
    assert ok(revoke(home, "g", "KEY"), 204) is None
    assert child.wait(120) != 0 and service.cut.wait(60)
    assert ask(home, service, "g", "/after") == ("403", None)
    assert "revoked" in refusal(home, service, "g")
    shown = grants(home, "g")["KEY"]
    assert shown["state"] == "revoked" and shown["used"] == 2 and shown["usedBytes"] > 1024 and shown["firstUse"] <= shown["lastUse"]
    assert ok(revoke(home, "g", "NONE"), 404)

    # It stays so over a pause, and nobody is asked for its value.
    home.ok("pause", "g")
    assert ask(home, service, "g", "/resumed") == ("403", None)
    added = ok(add(home, "g", name="KEY", hosts=[service.host], value=VALUE % 2), 201)
    assert added["variables"]["KEY"] != placeholder
    assert ask(home, service, "g", "/again") == ("200", "Bearer " + VALUE % 2)
    assert [r["name"] for r in records(home, "g", "grant.add")] == ["KEY", "KEY"]
    assert [r["name"] for r in records(home, "g", "grant.revoke")] == ["KEY"]
    for part in (home.state / "audit").iterdir():
        assert b"value-of-the-credential" not in part.read_bytes()


def test_expiry_cuts_what_is_under_way(home, service, clean):
    ok(run(home, service, "e", {"name": "KEY", "hosts": [service.host], "value": VALUE % 1, "expiresMs": 86400000}))
    assert ask(home, service, "e", "/with") == ("200", "Bearer " + VALUE % 1)
    ok(revoke(home, "e", "KEY"))
    ok(add(home, "e", name="SHORT", hosts=[service.host], value=VALUE % 2, expiresMs=8000), 201)
    child = download(home, service, "e")
    assert child.wait(120) != 0 and service.cut.wait(60)
    assert "expired" in refusal(home, service, "e")
    assert grants(home, "e")["SHORT"]["state"] == "expired"
    # What has ended is in nobody's way.
    ok(add(home, "e", name="NEXT", hosts=[service.host], value=VALUE % 3, uses=1), 201)
    assert ask(home, service, "e", "/next") == ("200", "Bearer " + VALUE % 3)
    assert "used up" in refusal(home, service, "e")
    assert grants(home, "e")["NEXT"]["state"] == "used up"


def test_stored_credentials_come_back_by_themselves(home, service, clean):
    store(home, "STORED", VALUE % 1, hosts=[service.host], uses=10, ttl="1h", methods=["GET"], paths=["/a/**", "/b"])
    for wide, what in (
        ({"hosts": [service.host, "x.test"]}, "x.test"), ({"methods": ["POST"]}, "POST"), ({"paths": ["/**"]}, "/**"),
        ({"paths": ["/a/x", "/b/**"]}, "/b/**"), ({"uses": 11}, "uses"), ({"expiresMs": 3600001}, "expiresMs"),
        ({"inject": {"kind": "query", "name": "k"}}, "inject"), ({"value": "x"}, "value"),
    ):  # fmt: skip
        message = ok(run(home, service, "s", {"stored": "STORED", **wide}), 400)["message"]
        assert "STORED" in message and what in message, message
    ok(run(home, service, "s", {"stored": "NOBODY"}), 404)
    ok(run(home, service, "s", {"stored": "STORED", "paths": ["/a/*/c"], "uses": 3}))
    shown = grants(home, "s")["STORED"]
    assert shown["stored"] == "STORED" and shown["uses"] == 3 and shown["paths"] == ["/a/*/c"] and shown["expiresAt"]
    assert home.inspect("s")["secrets"] == [{"name": "STORED", "hosts": [service.host], "stored": "STORED"}]
    assert ask(home, service, "s", "/a/1/c") == ("200", "Bearer " + VALUE % 1)
    assert ask(home, service, "s", "/a/1/d") == ("200", None)

    home.ok("pause", "s")
    store(home, "STORED", VALUE % 2, hosts=[service.host], uses=10, ttl="1h", methods=["GET"], paths=["/a/**", "/b"])
    assert ask(home, service, "s", "/a/2/c") == ("200", "Bearer " + VALUE % 2)
    assert grants(home, "s")["STORED"]["used"] == 2
    assert ask(home, service, "s", "/a/3/c")[0] == "200"
    assert ask(home, service, "s", "/a/4/c") == ("403", None)
    assert grants(home, "s")["STORED"]["state"] == "used up"

    # Who is removed from the store is granted to nobody.
    ok(run(home, service, "t", {"stored": "STORED"}))
    assert ask(home, service, "t", "/b") == ("200", "Bearer " + VALUE % 2)
    ok(call(home, "DELETE", "/secrets/STORED"))
    eventually(lambda: grants(home, "t")["STORED"]["state"] == "revoked", lambda: grants(home, "t"))
    assert ask(home, service, "t", "/b")[0] == "403"


def test_a_next_spaced_goes_on_with_them(own_node, service):
    node = own_node
    service.requests.clear()
    store(node, "STORED", VALUE % 1, hosts=[service.host])
    ok(run(node, service, "kept", {"stored": "STORED"}))
    assert ask(node, service, "kept", "/1") == ("200", "Bearer " + VALUE % 1)
    ok(run(node, service, "gone", {"stored": "STORED"}))
    end(node.daemon_pid(), signal.SIGKILL)
    assert ask(node, service, "kept", "/2") == ("200", "Bearer " + VALUE % 1)
    assert grants(node, "kept")["STORED"]["used"] == 2
    store(node, "STORED", VALUE % 2, hosts=[service.host])
    eventually(lambda: ask(node, service, "kept", "/3") == ("200", "Bearer " + VALUE % 2), "the value is not renewed")
    ok(revoke(node, "gone", "STORED"), 204)
    end(node.daemon_pid(), signal.SIGKILL)
    assert ask(node, service, "gone", "/4") == ("403", None)
    assert ask(node, service, "kept", "/5") == ("200", "Bearer " + VALUE % 2)
    rm(node, "kept", "gone")


def test_children_have_what_is_granted_to_them(home, service, clean):
    slot = {"kind": "placeholder", "header": "X-Key"}
    store(home, "STORED", VALUE % 1, hosts=[service.host], uses=7, inject=slot)

    def send(name, path, placeholder):
        """In the one slot where a placeholder is replaced, if the gateway knows it."""
        status, _ = ask(home, service, name, path, "-H", "X-Key: " + placeholder)
        return status, [h["X-Key"] for _, p, h, _ in service.requests if p == path][-1:]

    ok(run(home, service, "p", {"stored": "STORED"}))
    placeholder = grants(home, "p")["STORED"]["variables"]["STORED"]
    assert send("p", "/parent", placeholder) == ("200", [VALUE % 1])
    ok(call(home, "POST", "/sandboxes/p/fork", {"names": ["bare"]}), 201)
    ok(call(home, "POST", "/sandboxes/p/fork", {"names": ["child"], "grants": True}), 201)
    assert grants(home, "bare") == {} and ask(home, service, "bare", "/bare")[0] == "200"
    child = grants(home, "child")["STORED"]
    own = child["variables"]["STORED"]
    assert own != placeholder and child["uses"] == 6 and child["used"] == 0
    # Its processes have the parent's; those that start have its own.
    assert home.ok("exec", "child", "--", "printenv", "STORED") == own + "\n"
    assert send("child", "/own", own) == send("child", "/its", placeholder) == ("200", [VALUE % 1])
    ok(revoke(home, "p", "STORED"))
    assert send("p", "/p", placeholder)[0] == "403"
    ok(call(home, "POST", "/sandboxes/child/fork", {"names": ["grandchild"], "grants": True}), 201)
    assert send("grandchild", "/g", placeholder) == ("200", [VALUE % 1])
    ok(call(home, "DELETE", "/secrets/STORED"))


def script(tmp_path, name, text):
    path = tmp_path / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def test_many_share_a_token_that_is_fetched_once(home, service, clean, tmp_path):
    server = Authorization(tmp_path)
    source = {"oauth2": {"grant": "client_credentials", "tokenURL": server.url + "/token", "clientID": CLIENT}}
    ok(call(home, "PUT", "/secrets/SHARED", {"definition": {"hosts": [service.host], "source": source}, "values": {"clientSecret": CLIENT_SECRET}}))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        task = {"cmd": "sh", "args": ["-c", "curl -s --cacert $1 $0/$E2B_SANDBOX_ID; sleep 100000", service.url, CA]}
        made = list(pool.map(lambda i: ok(run(home, service, "n%d" % i, {"stored": "SHARED"}, process=task)), range(SHARERS)))
    paths = {"/" + one["sandboxID"] for one in made}
    eventually(lambda: {path for _, path, _, _ in service.requests} == paths, lambda: home.ok("audit", "show", "n0") + log_of(home), timeout=240)
    assert {headers["Authorization"] for _, _, headers, _ in service.requests} == {"Bearer " + server.issued[0]}
    assert len(server.requests) == len(server.issued) == 1
    assert len({grants(home, one["name"])["SHARED"]["variables"]["SHARED"] for one in made}) == SHARERS
    ok(call(home, "DELETE", "/secrets/SHARED"))
    server.close()


def test_a_task_waits_for_its_values(home, service, clean, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = script(tmp_path, "helper", "cat %s\n" % fifo)
    store(home, "SLOW", hosts=[service.host], source={"command": [command], "timeoutSeconds": 60})
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        made = pool.submit(run, home, service, "w", {"stored": "SLOW"})
        with open(fifo, "w") as end_of_it:
            with pytest.raises(concurrent.futures.TimeoutError):
                made.result(timeout=5)
            end_of_it.write('{"token":"%s"}\n' % (VALUE % 1))
        ok(made.result())
    assert ask(home, service, "w", "/w") == ("200", "Bearer " + VALUE % 1)


def test_a_source_that_fails_is_told_and_nothing_leaves_without(home, service, clean, tmp_path):
    command = script(tmp_path, "helper", "exit 1\n")
    store(home, "FAILS", hosts=[service.host], source={"command": [command]})
    ok(run(home, service, "f", {"stored": "FAILS"}))
    assert ask(home, service, "f", "/f") == ("503", None)
    shown = grants(home, "f")["FAILS"]
    assert shown["state"] == "unavailable" and "FAILS" in shown["reason"]
    assert "status 1" in shown["reason"]
    told = refusal(home, service, "f")
    assert "FAILS" in told and "its source fails" in told and "status 1" not in told
    script(tmp_path, "helper", "echo '{\"token\":\"%s\"}'\n" % (VALUE % 1))
    assert ok(call(home, "POST", "/secrets/FAILS/test"))["ok"]
    eventually(lambda: grants(home, "f")["FAILS"]["state"] == "good", lambda: grants(home, "f"))
    assert ask(home, service, "f", "/f") == ("200", "Bearer " + VALUE % 1)
    assert [r["name"] for r in records(home, "f", "grant.unavailable")] == ["FAILS"]


def test_what_has_ended_is_left_alone(home, service, clean):
    store(home, "ONCE", VALUE % 1, hosts=[service.host], uses=1)
    ok(run(home, service, "o", {"stored": "ONCE"}))
    before = len(log_of(home))
    assert ask(home, service, "o", "/o1") == ("200", "Bearer " + VALUE % 1)
    assert grants(home, "o")["ONCE"]["state"] == "used up"
    for i in range(2):
        ok(add(home, "o", name="NEXT%d" % i, hosts=[service.host], value=VALUE % 2), 201)
        assert ask(home, service, "o", "/o2") == ("200", "Bearer " + VALUE % 2)
        ok(revoke(home, "o", "NEXT%d" % i), 204)
    store(home, "ONCE", VALUE % 3, hosts=[service.host], uses=1)
    assert ok(call(home, "POST", "/secrets/ONCE/test"))["ok"]
    assert ask(home, service, "o", "/o3")[0] == "403"
    assert "there is no" not in log_of(home)[before:]
    ok(call(home, "DELETE", "/secrets/ONCE"))


def test_a_canary_alarms(home, service, clean):
    ok(run(home, service, "c", {"name": "BAIT", "hosts": [service.host], "value": VALUE % 1, "canary": True}))
    assert ask(home, service, "c", "/c") == ("403", None)
    shown = grants(home, "c")["BAIT"]
    assert shown["canary"] and shown["alarmed"]
    assert "alarm of BAIT" in log_of(home)


def ended(home, name):
    """The ends of its download."""
    lines = [json.loads(line) for line in home.ok("audit", "show", "--json", name).splitlines()]
    (begun,) = [r["id"] for r in lines if r["kind"] == "egress.request" and r["path"] == "/endless"]
    return [r for r in lines if r["kind"] == "egress.response" and r["id"] == begun]


@pytest.mark.parametrize("how", ["pause", "rm", "timeout", "shutdown"])
def test_what_is_open_has_an_end_in_the_log(home, service, clean, how):
    ok(run(home, service, "e", **({"timeout": 5} if how == "timeout" else {})))
    child = download(home, service, "e")
    box = home.inspect("e")["sandboxID"]
    if how == "pause":
        home.ok("pause", "e")
    elif how == "rm":
        home.ok("rm", "-f", "e")
    elif how == "shutdown":
        end(home.daemon_pid())
    eventually(lambda: ended(home, box), "no end is recorded")
    (last,) = ended(home, box)
    assert last["error"] == "the sandbox stopped"
    assert last["bytes_down"] > 0
    child.kill()
    child.wait()


GUESSABLE = "qwErtYuiOp4aSdFgH"


def test_what_is_being_guessed_is_taken_back(home, service, clean):
    ok(run(home, service, "g", {"name": "KEY", "hosts": [service.host], "value": GUESSABLE}))
    assert ask(home, service, "g", "/g")[0] == "200"
    for known in range(5, 8):
        home.space("exec", "g", "--", "curl", "-sS", service.url + "/cut/" + GUESSABLE[:known])
    eventually(lambda: grants(home, "g")["KEY"]["state"] == "revoked", lambda: grants(home, "g"))
    assert grants(home, "g")["KEY"]["alarmed"]
    assert "alarm of KEY" in log_of(home) and "being guessed" in log_of(home)
    assert records(home, "g", "grant.revoke")[0]["name"] == "KEY"
    assert ask(home, service, "g", "/later")[0] == "403"
    home.ok("pause", "g")
    home.ok("resume", "g")
    assert ask(home, service, "g", "/later")[0] == "403"
    assert "revoked, ALARM" in home.ok("grant", "ls", "g")


CREDENTIALS = """\
credentials:
  - name: KEY
    hosts: [%(host)s]
    inject: {kind: header, name: X-Key}
    source: {env: MINE}
"""


def test_a_policy_defines_them(home, service, clean, tmp_path):
    policy = tmp_path / "p.yaml"
    text = service.policy()
    lines = text.count("\n")
    policy.write_text(text + CREDENTIALS % {"host": service.host})
    assert json.loads(home.ok("policy", "check", "--json", policy))["ok"]
    home.ok("run", "-d", "--name", "d", "--policy", policy, "--", "sleep", "100000", env={"MINE": VALUE % 1})
    assert ask(home, service, "d", "/d") == ("200", None)
    assert [h["X-Key"] for _, path, h, _ in service.requests if path == "/d"] == [VALUE % 1]
    assert grants(home, "d")["KEY"]["kind"] == "header"

    done = home.space("policy", "set", "d", policy)
    assert done.returncode == 125 and b"p.yaml:%d:" % (lines + 2) in done.stderr and b"credentials" in done.stderr
    for wrong, line, what in (
        (CREDENTIALS % {"host": "elsewhere.test"}, 2, b"elsewhere.test"), (CREDENTIALS % {"host": '"*x"'}, 3, b"hosts"),
        (CREDENTIALS.replace("X-Key", "Host") % {"host": service.host}, 4, b"inject"),
        (CREDENTIALS.replace("hosts", "hots") % {"host": service.host}, 3, b"hots"),
        (CREDENTIALS % {"host": service.host} + "  - {name: KEY, hosts: [%s]}\n" % service.host, 6, b"another of that name"),
        ("credentials: 5\n", 1, b"list"),
    ):  # fmt: skip
        policy.write_text(text + wrong)
        done = home.space("policy", "check", policy)
        assert done.returncode and b"p.yaml:%d:" % (lines + line) in done.stderr + done.stdout and what in done.stderr + done.stdout, (wrong, done)
    # A value that nobody defines is no business of ours; one that is missing is.
    ok(run(home, service, "m", policy=text + CREDENTIALS % {"host": service.host}), 400)
    ok(run(home, service, "m", values={"OTHER": "x"}), 400)
