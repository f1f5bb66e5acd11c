# SPDX-License-Identifier: Apache-2.0
"""Sandboxes start as clones of a template: made when first needed, never used when damaged or of something else, and nobody's.

What all clones of a template share, as it is the kernel's and was there before: /proc/sys/kernel/random/boot_id.
"""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from machines import (
    CLOCK, DAMAGE, WHO, Conversation, assert_clock, assert_differ, call, clock_offset, cloning_node, data_offset, edit_manifest, forge_state, flip, log_of,
    printable, rm, template_names,
)  # fmt: skip
from node import DEADLINE, end, eventually, monitors, new_node
from service import Service

USUAL = "base-1c-512m"
SMALL = "base-1c-256m"


@pytest.fixture(scope="module")
def home(node):
    with cloning_node(node) as n:
        yield n


@pytest.fixture(scope="module")
def service():
    s = Service()
    yield s
    s.close()


@pytest.fixture
def policy(service, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(service.policy())
    return path


def start_of(node, *args):
    """How a sandbox with these flags began."""
    name = "s-%d" % time.monotonic_ns()
    node.ok("run", "-d", "--name", name, "--no-network", *args, "--", "sleep", "100000")
    try:
        return node.inspect(name)["start"]
    finally:
        rm(node, name)


# -- what a clone is --


def test_two_clones_have_nothing_in_common(home):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        two = list(pool.map(lambda _: json.loads(home.ok("run", "--no-network", "--", "python3", "-c", WHO)), range(2)))
    assert_differ(two)
    for one in two:
        assert len(one["machine_id"]) == 32 and one["hostname"] == one["id"]


def test_generators_of_the_kernel_differ_from_the_first_byte(home):
    script = "head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo; cat /proc/sys/kernel/random/uuid"
    outs = [home.ok("run", "--no-network", "--", "sh", "-c", script).split() for _ in range(3)]
    assert len({value for out in outs for value in out}) == 6


def test_clock_is_right_from_the_start(home):
    before = time.time_ns()
    talk = Conversation(home, "run", "-i", "--no-network", "--", "sh", "-c", "date +%s%N; exec python3 -u -c \"$0\"", CLOCK)
    first = int(talk.process.stdout.readline())
    after = time.time_ns()
    assert before - 50e6 <= first <= after + 50e6, ((first - before) / 1e6, (first - after) / 1e6)
    assert_clock(clock_offset(lambda: int(talk.ask())))
    assert talk.close() == 0


def test_tls_works_at_once(home, service, policy):
    done = home.space("run", "--policy", policy, "--", "curl", "-sS", "--fail", service.url + "/first")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["path"] == "/first"


def test_clone_and_cold_boot_are_told_apart(home):
    assert start_of(home) == "clone"
    assert start_of(home, "--cold") == "cold"


def test_disks_of_clones_are_their_own(home):
    home.ok("run", "-d", "--name", "a", "--no-network", "--", "sh", "-c", "echo a >/tmp/mine; sleep 100000")
    home.ok("run", "-d", "--name", "b", "--no-network", "--", "sleep", "100000")
    try:
        home.ok("exec", "a", "--", "sh", "-c", "until [ -s /tmp/mine ]; do sleep 0.05; done; sync")
        assert home.space("exec", "b", "--", "ls", "/tmp/mine").returncode != 0
        assert home.space("run", "--no-network", "--", "ls", "/tmp/mine").returncode != 0
    finally:
        rm(home, "a", "b")


def test_clone_without_network_reaches_nothing(home, service):
    done = home.space("run", "--no-network", "--", "curl", "-sS", "--max-time", "20", service.url + "/none")
    assert done.returncode != 0
    assert not [r for r in service.requests if r[1] == "/none"]


def test_clones_of_one_template_at_once(home):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        outs = list(pool.map(lambda i: home.ok("run", "--no-network", "-e", "ME=%d" % i, "--", "sh", "-c", "echo $ME"), range(6)))
    assert outs == ["%d\n" % i for i in range(6)]


# -- templates --


def test_first_use_of_a_size_makes_a_template_that_holds_nothing_of_the_user(home):
    assert SMALL not in template_names(home)
    secret, variable = "s3cr3t-of-a-task-4711", "variable-of-a-task-0815"
    flags = ("--memory", "256", "--allow-host", "api.example.com", "--secret", "TOKEN@api.example.com", "-e", "V=" + variable)
    script = "cat /etc/machine-id; echo $TOKEN; echo $E2B_SANDBOX_ID; hostname"

    def run(i):
        return home.ok("run", "--name", "first-of-its-size-%d" % i, *flags, "--", "sh", "-c", script, env={"TOKEN": secret}).split()

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        outs = list(pool.map(run, range(3)))
    assert SMALL in template_names(home)
    assert log_of(home).count("template %s is being made" % SMALL) == 1  # for all three
    pieces = printable(home.state / "templates" / SMALL)
    for text in (secret, variable, *(text for out in outs for text in out)):
        assert len(text) > 8 and not any(text.encode() in piece for piece in pieces), text
    memory = home.ok("run", "--memory", "256", "--no-network", "--", "grep", "MemTotal", "/proc/meminfo")
    assert 180 << 10 < int(memory.split()[1]) <= 256 << 10
    assert log_of(home).count("template %s is being made" % SMALL) == 1


def test_removed_template_takes_nothing_from_its_clones(home):
    home.ok("run", "-d", "--memory", "256", "--name", "w", "--no-network", "--", "sleep", "100000")
    try:
        home.ok("template", "rm", SMALL)
        # What was not in memory yet is read now.
        assert home.ok("exec", "w", "--", "python3", "-c", "import sqlite3, venv, decimal; print(6*7)") == "42\n"
    finally:
        rm(home, "w")


def test_build_ls_and_rm(home):
    home.space("template", "rm", "-f", SMALL)
    status, made = call(home, "POST", "/templates", {"image": "base", "memoryMB": 256})
    assert status == 201
    assert (made["name"], made["kind"], made["image"], made["cpus"], made["memoryMB"], made["stale"]) == (
        SMALL, "template", "base", 1, 256, False,
    )  # fmt: skip
    assert 10 << 20 < made["sizeBytes"] < 256 << 20
    assert call(home, "POST", "/templates", {"image": "base", "memoryMB": 256})[0] == 200
    assert home.ok("template", "build", "base", "--memory", "256") == SMALL + "\n"
    assert template_names(home) == [SMALL, USUAL]
    home.ok("template", "rm", SMALL)
    assert template_names(home) == [USUAL]
    assert not (home.state / "templates" / SMALL).exists()
    assert call(home, "DELETE", "/templates/" + SMALL)[0] == 404
    assert home.space("template", "rm", "-f", SMALL).returncode == 0


@pytest.mark.parametrize(
    "body, status",
    [
        ({"image": "none"}, 404),
        ({"image": "../base"}, 400),
        ({"image": "base", "cpus": 0}, 400),
        ({"image": "base", "memoryMB": 1}, 400),
        ({"image": "base", "colour": "red"}, 400),
        ({}, 400),
        ([], 400),
    ],
)
def test_wrong_wishes_for_a_template_are_refused(home, body, status):
    assert call(home, "POST", "/templates", body)[0] == status


def test_no_path_leads_out_of_the_templates(home):
    for name in ("..", ".", "", "%2e%2e", "..%2fsandboxes", "a/b"):
        assert call(home, "DELETE", "/templates/" + name)[0] == 404, name
    assert (home.state / "templates" / USUAL).exists()


# -- damage --


@pytest.fixture(scope="module")
def pristine(home):
    """A template, copied: the one to be damaged, and how it is put back."""
    home.ok("template", "build", "base")
    path = home.state / "templates" / USUAL
    kept = home.root / "kept"
    kept.mkdir(mode=0o700)
    subprocess.run(["cp", "-a", "--sparse=always", path, kept], check=True)
    # Its files are other templates' too, of which none is to be damaged here.
    shutil.rmtree(path)

    def restore():
        home.space("template", "rm", "-f", USUAL)
        subprocess.run(["cp", "-a", "--sparse=always", kept / USUAL, path.parent], check=True)
        return path

    restore()
    return restore


def begins_anew(node, args=("run", "--no-network", "--", "true")):
    """Whether the next start makes the template anew; its makers are not waited for."""
    seen = len(log_of(node))
    process = node.popen(*args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(
            lambda: "is being made" in log_of(node)[seen:] or process.poll() is not None,
            lambda: log_of(node)[seen:], timeout=60,
        )  # fmt: skip
        anew = "is being made" in log_of(node)[seen:]
        assert anew or process.returncode == 0
        return anew
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_template_is_found_and_not_used(home, pristine, what):
    path = pristine()
    end(home.daemon_pid())
    DAMAGE[what](path)
    assert begins_anew(home), what
    end(home.daemon_pid())  # ends the making


@pytest.mark.parametrize("what", ["memory: one bit", "memory: unreadable for others", "state: one bit", "disk: one bit", "manifest: other text"])
def test_template_that_was_damaged_after_its_first_use_is_found(home, pristine, what):
    path = pristine()
    assert home.ok("run", "--no-network", "--", "echo", "fine") == "fine\n"
    assert not begins_anew(home)
    DAMAGE[what](path)
    assert begins_anew(home), what
    end(home.daemon_pid())


def test_damaged_template_is_made_anew(home, pristine):
    path = pristine()
    end(home.daemon_pid())
    DAMAGE["memory: one bit"](path)
    assert home.ok("run", "--no-network", "--", "echo", "fine") == "fine\n"
    assert "template %s is made anew: " % USUAL in log_of(home)
    assert not begins_anew(home)
    end(home.daemon_pid())  # the next spaced verifies the new one too
    assert not begins_anew(home)
    home.ok("audit", "verify")


def test_stale_templates_are_made_anew(home, pristine):
    """Of another image, of another monitor; neither can be told from a manifest that was only damaged, so both are made in due form."""
    for member in ("fingerprint", "hash"):
        path = pristine()
        end(home.daemon_pid())

        def change(extra):
            (extra if member == "fingerprint" else extra["image"])[member] = "another"

        edit_manifest(path, change)
        [listed] = [t for t in json.loads(home.ok("template", "ls", "--json")) if t["name"] == USUAL]
        assert listed["stale"] and "problem" not in listed
        seen = len(log_of(home))
        assert begins_anew(home)
        assert "is damaged" not in log_of(home)[seen:]
        end(home.daemon_pid())
    pristine()
    assert not [t for t in json.loads(home.ok("template", "ls", "--json")) if t["stale"]]


def test_template_that_looks_whole_and_is_no_machine_is_made_anew(home, pristine):
    path = pristine()
    end(home.daemon_pid())
    state = (path / "state").read_bytes()
    forge_state(path, state)
    assert not begins_anew(home)  # the sums are taken as they are here
    end(home.daemon_pid())
    forge_state(path, b"no machine" + state[10:])
    failed = home.space("run", "--no-network", "--", "true")
    assert failed.returncode == 125 and b"can't be restored" in failed.stderr, failed
    assert home.ok("run", "--no-network", "--", "echo", "fine") == "fine\n"


# -- snapshots as images --


@pytest.fixture(scope="module")
def snapshot(home):
    home.ok("run", "-d", "--name", "origin", "--no-network", "--", "sleep", "100000")
    home.ok("exec", "origin", "--", "sh", "-c", "echo kept >file; python3 -c \"$0\" >who", WHO)
    home.ok("snapshot", "origin", "prepared")
    yield "prepared"
    rm(home, "origin")
    home.space("template", "rm", "-f", "prepared")


def test_snapshot_is_an_image(home, snapshot):
    [listed] = [t for t in json.loads(home.ok("template", "ls", "--json")) if t["name"] == snapshot]
    assert (listed["kind"], listed["image"], listed["cpus"], listed["memoryMB"], listed["stale"]) == ("snapshot", "base", 1, 512, False)
    outs = [
        home.ok("run", "--image", snapshot, "--no-network", "--", "sh", "-c", "cat file; python3 -c \"$0\"", WHO).splitlines()
        for _ in range(2)
    ]
    assert [out[0] for out in outs] == ["kept", "kept"]
    assert_differ([json.loads(out[1]) for out in outs] + [json.loads(home.ok("exec", "origin", "--", "cat", "who"))])


def test_what_ran_in_a_snapshot_runs_in_its_copies(home, snapshot):
    assert home.ok("run", "--image", snapshot, "--no-network", "--", "pgrep", "-fc", "^sleep 100000") == "1\n"


def test_snapshot_keeps_its_size(home, snapshot):
    done = home.space("run", "--image", snapshot, "--memory", "256", "--", "true")
    assert done.returncode == 125 and b"1 CPUs and 512 MiB" in done.stderr, done
    assert home.space("run", "--image", snapshot, "--cpus", "2", "--", "true").returncode == 125
    assert home.ok("run", "--image", snapshot, "--memory", "512", "--no-network", "--", "echo", "x") == "x\n"


def test_snapshot_does_not_boot(home, snapshot):
    done = home.space("run", "--image", snapshot, "--cold", "--", "true")
    assert done.returncode == 125 and b"can't boot" in done.stderr


@pytest.mark.parametrize("name, status", [("prepared", 409), ("base", 409), ("../x", 400), ("", 400), ("a b", 400), (7, 400)])
def test_name_of_a_snapshot_is_checked(home, snapshot, name, status):
    assert call(home, "POST", "/sandboxes/origin/snapshot", {"name": name})[0] == status
    assert home.inspect("origin")["state"] == "running"


def test_snapshot_outlives_its_sandbox_and_spaced(home):
    home.ok("run", "-d", "--name", "short", "--no-network", "--", "sleep", "100000")
    home.ok("exec", "short", "--", "sh", "-c", "echo there >/tmp/f")
    home.ok("snapshot", "short", "longer")
    home.ok("rm", "short")
    end(home.daemon_pid(), signal.SIGKILL)
    assert home.ok("run", "--image", "longer", "--no-network", "--", "cat", "/tmp/f") == "there\n"
    home.ok("template", "rm", "longer")
    assert home.space("run", "--image", "longer", "--", "true").returncode == 125


def test_damaged_snapshot_is_refused_and_kept(home, snapshot):
    path = home.state / "snapshots" / snapshot
    at = data_offset(path / "memory") + 777
    for what, damage, back in (
        ("memory", lambda: flip(path / "memory", at), lambda: flip(path / "memory", at)),
        ("state", lambda: flip(path / "state", 77), lambda: flip(path / "state", 77)),
        ("disk", lambda: (path / "disk").rename(path / "d"), lambda: (path / "d").rename(path / "disk")),
        ("frozen.json", lambda: flip(path / "frozen.json", 99), lambda: flip(path / "frozen.json", 99)),
    ):
        damage()
        done = home.space("run", "--image", snapshot, "--no-network", "--", "true")
        assert done.returncode == 125 and ("%s/%s" % (snapshot, what)).encode() in done.stderr, (what, done)
        assert done.stderr.count(b"\n") == 1
        back()
        assert home.ok("run", "--image", snapshot, "--no-network", "--", "echo", "whole") == "whole\n", what


def test_secret_of_a_snapshotted_sandbox_is_not_in_it(home):
    secret = "v4lue-that-only-the-gateway-has"
    home.ok(
        "run", "-d", "--name", "holder", "--allow-host", "api.example.com", "--secret", "T@api.example.com", "--", "sleep", "100000",
        env={"T": secret},
    )  # fmt: skip
    try:
        home.ok("snapshot", "holder", "held")
        for piece in printable(home.state / "snapshots" / "held"):
            assert secret.encode() not in piece
    finally:
        rm(home, "holder")
        home.space("template", "rm", "-f", "held")


# -- what goes by itself --


def test_old_templates_go_and_used_ones_stay(node):
    with cloning_node(node, {"templates": {"maxAgeDays": 2}}) as n:
        templates = n.state / "templates"
        shutil.copytree(templates / USUAL, templates / "other-1c-512m", copy_function=os.link)
        (templates / ".new-abcdef").mkdir()
        two_days_ago = time.time() - 2 * 86400 - 60
        os.utime(templates / USUAL, (two_days_ago, two_days_ago))
        assert template_names(n) == ["other-1c-512m"]
        assert sorted(p.name for p in templates.iterdir()) == ["other-1c-512m"]


def test_templates_that_take_too_much_go_oldest_first(node):
    with cloning_node(node, {"templates": {"maxMB": 150}}) as n:
        templates = n.state / "templates"
        size = sum(f.lstat().st_blocks * 512 for f in (templates / USUAL).iterdir() if f.name != "root")
        assert 75 << 20 < size < 150 << 20, "one is to fit, two are not: choose another maxMB"
        for age, name in ((300, "third-1c-512m"), (200, "other-1c-512m"), (100, USUAL)):
            if name != USUAL:
                shutil.copytree(templates / USUAL, templates / name, copy_function=os.link)
            os.utime(templates / name, (time.time() - age, time.time() - age))
        assert template_names(n) == [USUAL]


def test_wrong_configuration_is_named(node):
    with new_node() as n:
        n.config.write_text("pool:\n  base: {sise: 2}\n")
        done = n.space("ls")
        assert done.returncode == 125 and b"spaced.yaml:2" in done.stderr and b"sise" in done.stderr, done.stderr


# -- pools --


def ready(node):
    return call(node, "GET", "/version")[1]["ready"]


def wait_pool(node, least=1, lasting=0.0):
    """Until so many are ready, and stay so: one that is ready is taken away for a while, to be warmed further."""
    since = []

    def enough():
        if ready(node)["pools"]["base"] < least:
            since.clear()
        elif not since:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] >= lasting

    eventually(enough, lambda: (ready(node), log_of(node)), timeout=60)


@pytest.fixture(scope="module")
def pooled(node):
    with new_node(ready=1, config={"pool": {"base": {"size": 2}}}) as n:
        yield n


def test_pool_fills_is_used_and_fills_again(pooled):
    pooled.names()
    wait_pool(pooled, 2, lasting=0.7)
    names = ["p1", "p2", "p3"]
    for name in names:
        pooled.ok("run", "-d", "--name", name, "--no-network", "--", "sleep", "100000")
    try:
        starts = [pooled.inspect(name)["start"] for name in names]
        assert starts[:2] == ["pool", "pool"], starts
        assert_differ([json.loads(pooled.ok("exec", name, "--", "python3", "-c", WHO)) for name in names])
        wait_pool(pooled)
        assert json.loads(pooled.ok("ls", "--json")).__len__() == 3  # those of the pool are nobody's
    finally:
        rm(pooled, *names)


def test_pooled_start_is_whole(pooled):
    wait_pool(pooled)
    before = time.time_ns()
    talk = Conversation(pooled, "run", "-i", "--no-network", "--name", "w", "--", "sh", "-c", "date +%s%N; hostname; exec python3 -u -c \"$0\"", CLOCK)
    first = int(talk.process.stdout.readline())
    assert before - 50e6 <= first <= time.time_ns() + 50e6
    assert talk.process.stdout.readline() == b"w\n"
    assert_clock(clock_offset(lambda: int(talk.ask())))
    assert pooled.inspect("w")["start"] == "pool"
    assert talk.close() == 0


def test_policy_and_secrets_come_with_the_task(pooled, service, policy, tmp_path):
    """Two warm sandboxes, of which nobody said whose they will be."""
    other = Service("other.test.internal")
    try:
        other_policy = tmp_path / "other.yaml"
        other_policy.write_text(other.policy())
        wait_pool(pooled, 2, lasting=0.7)
        script = "echo $T; for u in %s/x %s/x; do curl -sS -o /dev/null -w '%%{http_code}\\n' -H \"Authorization: Bearer $T\" $u; done" % (
            service.url, other.url,
        )  # fmt: skip
        runs = [
            pooled.popen(
                "run", "--name", "q%d" % i, "--policy", p, "--secret", "T@" + s.host, "--", "sh", "-c", script + "; sleep 0.2",
                env={"T": "value-%d" % i}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for i, (p, s) in enumerate(((policy, service), (other_policy, other)))
        ]  # fmt: skip
        outs = [run.communicate(timeout=DEADLINE)[0].decode().splitlines() for run in runs]
        assert outs[0][1:] == ["200", "000"] and outs[1][1:] == ["000", "200"], outs
        assert outs[0][0] != outs[1][0] and not {o[0] for o in outs} & {"value-0", "value-1"}
        for i, s in enumerate((service, other)):
            assert [r[2]["Authorization"] for r in s.requests if r[1] == "/x"] == ["Bearer value-%d" % i]
    finally:
        other.close()


def test_other_sizes_do_not_take_from_the_pool(pooled):
    wait_pool(pooled)
    assert start_of(pooled, "--cold") == "cold"
    pooled.ok("template", "build", "base", "--memory", "256")
    assert start_of(pooled, "--memory", "256") == "clone"
    wait_pool(pooled, 2)


def test_killed_warm_sandbox_is_replaced(pooled):
    wait_pool(pooled)
    pids = monitors(pooled)
    for pid in pids:
        end(pid, signal.SIGKILL)
    eventually(lambda: len(monitors(pooled)) >= len(pids) and not set(monitors(pooled)) & set(pids), lambda: log_of(pooled), timeout=60)
    wait_pool(pooled)
    assert start_of(pooled) == "pool"


def test_pool_of_another_image_hash_is_not_used(pooled):
    """What waits was made from an image that is no longer what its name means."""
    wait_pool(pooled)
    images = pooled.state / "images"
    original = images.resolve()
    images.unlink()
    try:
        images.mkdir(mode=0o755)
        copy = images / "base-2"
        shutil.copytree((original / "base").resolve(), copy, copy_function=os.link)
        text = (copy / "image.json").read_text()
        (copy / "image.json").unlink()
        doc = json.loads(text)
        doc["hash"] = "0" * 64
        (copy / "image.json").write_text(json.dumps(doc))
        copy.rename(images / ("base-" + "0" * 16))
        (images / "base").symlink_to("base-" + "0" * 16)
        done = pooled.space("run", "-d", "--name", "n", "--no-network", "--", "sleep", "100000")
        assert done.returncode == 0, done.stderr
        assert pooled.inspect("n")["start"] == "clone"
    finally:
        rm(pooled, "n")
        shutil.rmtree(images)
        images.symlink_to(original)


def test_pool_is_drained_when_memory_is_short(node):
    with new_node(config={"pool": {"base": {"size": 2}}, "memoryReserveMB": 1000000}) as n:
        n.names()
        eventually(lambda: ready(n)["places"] == 2, lambda: ready(n))
        eventually(lambda: "short of memory" in log_of(n), lambda: log_of(n))
        assert ready(n)["pools"] == {"base": 0}
        assert start_of(n) == "clone"


def test_pool_and_prepared_places_end_with_spaced(pooled):
    wait_pool(pooled)
    pids = monitors(pooled)
    assert len(pids) >= 2
    end(pooled.daemon_pid())
    eventually(lambda: not monitors(pooled), lambda: monitors(pooled))
    pooled.names()
    wait_pool(pooled)
    pids = monitors(pooled)
    end(pooled.daemon_pid(), signal.SIGKILL)
    pooled.names()  # the next one ends what nobody will adopt
    eventually(lambda: not set(monitors(pooled)) & set(pids), lambda: monitors(pooled))
    wait_pool(pooled)
    assert start_of(pooled) == "pool"
