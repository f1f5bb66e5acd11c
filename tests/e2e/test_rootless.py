# SPDX-License-Identifier: Apache-2.0
"""What other files show of root's nodes, on a node of a user without privileges; and what such a user is told that lacks something."""
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

from conftest import need_image
from node import DEADLINE, SPACE, SPACED, end, find_processes, monitors, new_node
from rootless import SUBORDINATES, UID, User

# The same tests, with the fixtures of this file.
from test_clone import test_clones_of_one_template_at_once  # noqa: F401
from test_fork import family, test_children_are_somebody_else, test_credentials_are_granted_anew_or_not_at_all  # noqa: F401
from test_lifecycle import (  # noqa: F401
    test_killed_daemon_leaves_what_is_detached_and_the_next_one_takes_it_over,
    test_many_clients_start_one_daemon,
    test_what_is_prepared_dies_with_its_daemon_or_at_the_next_ones_start,
)
from test_network import (  # noqa: F401
    box,
    test_dns_to_any_server_is_answered_by_the_gateway,
    test_jailed_programs_can_write_no_file_but_the_disk,
    test_sandboxes_do_not_reach_each_other,
    test_secret_is_added_outside,
    test_what_no_rule_names_is_refused,
)
from service import Service


@pytest.fixture(scope="module")
def user():
    return User()


@pytest.fixture(scope="module")
def node(user):
    need_image()
    with new_node(user=user) as n:
        yield n


@pytest.fixture(scope="module")
def home(node):
    return node


@pytest.fixture
def own_node(user):
    need_image()
    with new_node(ready=0, user=user) as n:
        yield n


@pytest.fixture
def ready_node(user):
    need_image()
    with new_node(user=user) as n:
        yield n


@pytest.fixture(scope="module")
def service():
    s = Service()
    yield s
    s.close()


@pytest.fixture(scope="module")
def policy(service, user):
    path = user.root / "policy.yaml"
    path.write_text(service.policy())
    path.chmod(0o644)
    return path


def ids(pid):
    """The four uids of a process, as the host sees them."""
    for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines():
        if line.startswith("Uid:"):
            return {int(word) for word in line.split()[1:]}
    raise AssertionError(pid)


def test_no_process_has_an_id_that_is_not_the_users(node):
    name = "rootless-ids"
    node.ok("run", "-d", "--name", name, "--", "sleep", "1000")
    first, count = SUBORDINATES
    found = {pid: ids(pid) for pid in find_processes(node)}
    assert len(monitors(node)) >= 1
    assert ids(node.daemon_pid()) == {UID}
    for pid, uids in found.items():
        assert all(uid == UID or first <= uid < first + count for uid in uids), (pid, uids)
    for pid in monitors(node):
        assert min(ids(pid)) >= first
    node.ok("rm", "-f", name)


def test_it_pauses_resumes_and_is_frozen(node):
    node.ok("run", "-d", "--name", "p", "--no-network", "--", "sh", "-c", "echo up; sleep 1000")
    node.ok("exec", "p", "--", "sh", "-c", "echo kept >/home/user/file")
    node.ok("pause", "p")
    assert node.inspect("p")["state"] == "paused"
    assert node.ok("exec", "p", "--", "cat", "/home/user/file") == "kept\n"
    node.ok("snapshot", "p", "rootless-snap")
    assert node.ok("run", "--image", "rootless-snap", "--no-network", "--", "cat", "/home/user/file") == "kept\n"
    node.ok("rm", "-f", "p")
    node.ok("template", "rm", "rootless-snap")


def doctor(node):
    return {line["check"]: line for line in json.loads(node.space("doctor", "--json").stdout)}


def test_doctor_says_who_it_is(node):
    checks = doctor(node)
    assert checks["user"]["grade"] == "ok" and str(UID) in checks["user"]["detail"]
    assert checks["network"]["grade"] == "ok"


def start(user):
    """The words of a spaced that can't start."""
    with tempfile.TemporaryDirectory(prefix="space-e2e.") as root:
        os.chmod(root, 0o711)
        user.own(root)
        env = dict(os.environ, SPACE_STATE_DIR=root + "/state", SPACE_RUN_DIR=root + "/run")
        done = subprocess.run([*user.command, SPACED, "doctor"], env=env, capture_output=True, timeout=60)
        return done.returncode, (done.stdout + done.stderr).decode()


def test_user_without_subordinate_ids_is_told_what_to_do():
    code, text = start(User(subordinates=False))
    assert code == 125 and "usermod --add-subuids" in text, text


def test_user_who_may_not_use_the_tap_device_is_told():
    code, text = start(User(tun=False))
    assert code == 1 and "FAIL  network" in text and "/dev/net/tun" in text, text


def test_directories_are_where_a_user_expects_them():
    """Also in a home that nobody else may enter, which monitors and gateways have to do without."""
    need_image()
    user = User()
    state, runtime = user.home / ".local/state/space", user.home / "runtime"
    env = {"HOME": str(user.home), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime)}
    state.parent.mkdir(parents=True)
    runtime.mkdir(mode=0o700)
    user.images().rename(state)
    user.own(user.home)
    assert user.home.stat().st_mode & 0o777 == 0o700

    def space(*args):
        return subprocess.run([*user.command, SPACE, *args], env=env, check=True, capture_output=True, timeout=DEADLINE, text=True).stdout

    try:
        assert space("run", "--allow-host", "a.example", "--", "getent", "hosts", "a.example").endswith("a.example\n")
    finally:
        end(int(space("version").rsplit(" ", 1)[1].rstrip(")\n")))
    assert (runtime / "space/spaced.log").exists() and (state / "templates").is_dir()
