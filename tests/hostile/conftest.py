# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a node with a neighbour whose life goes on, and sandboxes that attack."""
import pathlib
import signal
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "e2e"))

from host import Host, table  # noqa: E402
from node import IMAGES, new_node  # noqa: E402
from service import Service  # noqa: E402

TIMEOUT_S = 240


def out_of_time(*args):
    raise TimeoutError("this test has run for too long")


@pytest.fixture(autouse=True)
def limit():
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(TIMEOUT_S)
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def host(tmp_path_factory, request):
    """A node, its neighbour and the service that both may reach."""
    if not (IMAGES / "images" / "base").exists():
        pytest.skip("no image base in %s: run 'space image build base' first" % IMAGES)
    service = Service()
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(service.policy())
    with new_node(ready=1) as node:
        made = Host(node, service, policy, request.config.figures)
        made.node.ok("run", "-d", "--name", "neighbour", "--policy", policy, "--", "sleep", "100000")
        yield made
    service.close()


def pytest_configure(config):
    config.figures = []
    config.pluginmanager.register(Figures(config))


class Figures:
    """Brings the figures from xdist's workers, and prints them at the end."""

    def __init__(self, config):
        self.config = config

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["figures"] = self.config.figures

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.config.figures += getattr(node, "workeroutput", {}).get("figures", [])

    def pytest_terminal_summary(self, terminalreporter):
        if self.config.figures:
            terminalreporter.write_line(table(self.config.figures))
