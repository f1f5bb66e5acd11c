# SPDX-License-Identifier: Apache-2.0
"""Fixtures: nodes and sandboxes in real microVMs."""
import os
import pathlib
import signal
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent / "gateway"))

import conformance  # noqa: E402
from node import IMAGES, new_node  # noqa: E402


def out_of_time(*args):
    raise TimeoutError("this test has run for too long")


@pytest.fixture(autouse=True)
def limit():
    """A test that hangs is a test that failed."""
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(600 + 10 * int(os.environ.get("SPACE_SOAK", "4")))
    yield
    signal.alarm(0)


def need_image():
    if not (IMAGES / "images" / "base").exists():
        pytest.skip("no image base in %s: run 'space image build base' first" % IMAGES)


@pytest.fixture(scope="session")
def node():
    """The node that most tests share."""
    need_image()
    with new_node() as n:
        yield n


@pytest.fixture
def own_node():
    """A node for one test: for those that kill its daemon or count what is left. It keeps nothing ready."""
    need_image()
    with new_node(ready=0) as n:
        yield n


@pytest.fixture
def ready_node():
    """As own_node, but it keeps places ready, as nodes do."""
    need_image()
    with new_node() as n:
        yield n


@pytest.fixture(scope="module")
def sandbox(node, request):
    """A sandbox without network that stays for a module's tests, by name."""
    name = "m-" + request.module.__name__.replace("_", "-")
    node.ok("run", "-d", "--name", name, "--no-network", "--", "sleep", "100000")
    yield name
    node.space("rm", "-f", name)


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: few that show the whole works; also run with sanitizers")
    conformance.register(config)
