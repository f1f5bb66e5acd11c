# SPDX-License-Identifier: Apache-2.0
"""What the tests of the gateway share: authorities, servers outside, one gateway for tests that leave it as it was."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import conformance  # noqa: E402
from lab import Lab, SLOT_RUN  # noqa: E402
from world import World  # noqa: E402


def pytest_configure(config):
    conformance.register(config)


def pytest_collection_modifyitems(items):
    reason = None
    if os.geteuid() != 0:
        reason = "needs root for network namespaces"
    elif not SLOT_RUN.exists():
        reason = f"needs {SLOT_RUN}: set SPACE_BUILD to the build directory"
    for item in items:
        if reason and pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    w = World(tmp_path_factory.mktemp("world"))
    yield w
    w.close()


@pytest.fixture(scope="session")
def shared(world, tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("lab"), world.node, world.policy(), world.secrets) as lab:
        yield lab


@pytest.fixture
def lab(shared, world):
    """The shared gateway; servers forget what earlier tests did."""
    for server in (world.https, world.http, world.untrusted, world.wrong_name):
        server.requests.clear()
        server.script.clear()
    yield shared
    assert not shared.ended, "the gateway ended during the test"


@pytest.fixture
def host(world):
    return f"Host: api.test:{world.port}".encode()


@pytest.fixture
def own_lab(world, tmp_path):
    """Makes gateways of a test's own."""
    made = []

    def make(policy=None, secrets=None, **kwargs):
        where = tmp_path / str(len(made))
        where.mkdir()
        made.append(Lab(where, world.node, policy or world.policy(), secrets if secrets is not None else () if policy else world.secrets,
                        **kwargs))
        return made[-1]
    world.https.requests.clear()
    world.https.script.clear()
    world.http.requests.clear()
    world.http.script.clear()
    yield make
    for lab in made:
        lab.close()
