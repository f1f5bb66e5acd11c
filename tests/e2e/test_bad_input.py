# SPDX-License-Identifier: Apache-2.0
"""What cannot work: each is one line that says what to do, exit code 125, and nothing left behind."""
import os
import subprocess

import pytest

from node import SPACE, leftovers


@pytest.mark.parametrize(
    "args, text",
    [
        (["--image", "nope"], "space image build"),
        (["--memory", "1"], "memory"),
        (["--memory", "9999G"], "memory"),
        (["--cpus", "1000"], "cpus"),
        (["--allow-host", "not a host"], "host"),
        (["--allow-host", "10.0.0.1"], "10.0.0.1"),
        (["--allow-host", "-x.example"], "-x.example"),
        (["--allow-host", "a..b"], "a..b"),
        (["--allow-host", "a.example:99999"], "99999"),
        (["--allow-host", "*"], "*"),
        (["--allow-host", "a.example", "--secret", "TOKEN@b.example"], "b.example"),
        (["--allow-host", "a.example", "--secret", "TOKEN@1.2.3.4"], "IP address"),
        (["--allow-host", "a.example", "--secret", "BAD_TOKEN@a.example"], "BAD_TOKEN"),
        (["--secret", "UNSET_TOKEN@a.example", "--allow-host", "a.example"], "UNSET_TOKEN"),
    ],
)
def test_refused_before_anything_is_made(node, args, text):
    done = node.space("run", *args, "--", "true", env={"TOKEN": "v", "BAD_TOKEN": "a\r\nb: c"}, timeout=30)
    assert done.returncode == 125, done
    assert done.stdout == b""
    line = done.stderr.decode()
    assert line.startswith("space: ") and line.count("\n") == 1, line
    assert text in line
    assert "\r" not in line and "a\\r" not in line
    assert node.names() == [] or all(n.startswith(("m-", "net-")) for n in node.names())


@pytest.mark.parametrize(
    "policy, where, text",
    [
        ("egress:\n  - host: a.example\n    prots: [443]\n", "p.yaml:3:", "prots"),
        ("egress:\n  - host: 10.0.0.1\n", "p.yaml:2:", "IP address"),
        ("egress:\n  - host: a.example\n    ports: [0]\n", "p.yaml:3:", "0"),
        ("egress:\n\t- host: a\n", "p.yaml:2:", ""),
        ("egress: [\n", "p.yaml:", ""),
        ("egress:\n  - host: a.example\n    host: b.example\n", "p.yaml:3:", "twice"),
        ('{"egress": [{"host": "a.example", "scheme": "gopher"}]}', "p.yaml:1:", "scheme"),
        ("egres: []\n", "p.yaml:1:", "egres"),
    ],
)
def test_policy_errors_name_file_line_and_column(node, tmp_path, policy, where, text):
    path = tmp_path / "p.yaml"
    path.write_text(policy)
    done = node.space("run", "--policy", path, "--", "true", timeout=30)
    line = done.stderr.decode()
    assert done.returncode == 125
    assert line.count("\n") == 1 and where in line and text in line


def test_policy_that_is_no_text(node, tmp_path):
    (tmp_path / "p").write_bytes(b"\xff\xfe\0")
    done = node.space("run", "--policy", tmp_path / "p", "--", "true", timeout=30)
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1


def test_name_that_is_taken(node):
    name = "taken-%d" % os.getpid()
    node.ok("run", "-d", "--name", name, "--no-network", "--", "sleep", "1000")
    try:
        done = node.space("run", "--name", name, "--", "true", timeout=30)
        assert done.returncode == 125
        assert name.encode() in done.stderr and b"space rm" in done.stderr and done.stderr.count(b"\n") == 1
        done = node.space("exec", "-u", "no-such-user", name, "--", "true")
        assert done.returncode == 125 and b"no-such-user" in done.stderr
        done = node.space("exec", "-w", "/no/such/dir", name, "--", "true")
        assert done.returncode == 125 and b"/no/such/dir" in done.stderr
    finally:
        node.ok("rm", name)


@pytest.mark.parametrize("verb", [["exec", "nope", "--", "true"], ["logs", "nope"], ["rm", "nope"], ["inspect", "nope"], ["cp", "nope:/x", "."]])
def test_sandbox_that_is_not_there(node, verb):
    done = node.space(*verb, timeout=30)
    assert done.returncode == 125
    assert b"nope" in done.stderr and done.stderr.count(b"\n") == 1


def test_disk_full_at_start(own_node):
    node = own_node
    scratch = node.state / "scratch"
    scratch.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", scratch], check=True)
    try:
        done = node.space("run", "--no-network", "--", "true", timeout=60)
        assert done.returncode == 125, done
        assert done.stderr.count(b"\n") == 1 and b"make room" in done.stderr
        assert node.names() == []
        left = leftovers(node)
        left.pop("mounts", None)
        assert left == {}
    finally:
        node.stop()
        subprocess.run(["umount", scratch], check=True)


def test_state_that_cannot_be_written(tmp_path):
    done = subprocess.run(
        [SPACE, "ls"], env={**os.environ, "SPACE_STATE_DIR": "/proc/nope", "SPACE_RUN_DIR": str(tmp_path / "run")},
        capture_output=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 125
    assert done.stderr.startswith(b"space: spaced did not start: ") and b"/proc/nope" in done.stderr


def test_socket_path_in_use_by_another(own_node):
    node = own_node
    (node.run_dir / "spaced.sock").mkdir()
    done = node.space("ls", timeout=30)
    assert done.returncode == 125 and done.stderr.count(b"\n") == 1
    assert b"spaced.sock" in done.stderr
    (node.run_dir / "spaced.sock").rmdir()
