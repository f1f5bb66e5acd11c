# SPDX-License-Identifier: Apache-2.0
"""What the tests of the gateway share: authorities, servers outside, one gateway for tests that leave it as it was."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from authority import Authority  # noqa: E402
from lab import Lab, SLOT_RUN  # noqa: E402
from upstream import Upstream  # noqa: E402

HOSTS = ["api.test", "other.test", "key.test", "both.test", "plain.test", "x.wild.test", "wild.test",
         "a.b.wild.test", "deep.test", "x.deep.test"]
SECRET = "s3cr3t-Value/42+abc=="


def pytest_collection_modifyitems(items):
    reason = None
    if os.geteuid() != 0:
        reason = "needs root for network namespaces"
    elif not SLOT_RUN.exists():
        reason = f"needs {SLOT_RUN}: set SPACE_BUILD to the build directory"
    for item in items:
        if reason and pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


class World:
    """Servers on loopback and the policy that leads to them."""

    def __init__(self, where):
        self.node = Authority(where, "node")
        self.outside = Authority(where, "outside")
        self.stranger = Authority(where, "stranger")
        self.https = Upstream(tls=self.outside.server("server", HOSTS))
        self.http = Upstream()
        self.untrusted = Upstream(tls=self.stranger.server("untrusted", ["untrusted.test"]))
        self.wrong_name = Upstream(tls=self.outside.server("wrong", ["somebody-else.test"]))
        self.port, self.http_port = self.https.port, self.http.port
        self.secrets = [{"name": "API_TOKEN", "value": SECRET, "hosts": ["key.test", "both.test"],
                         "placeholder": "sp_API_TOKEN_0123"}]

    def rule(self, host, port, scheme="https"):
        return {"host": host, "ports": [port], "scheme": scheme}

    def pin(self, host, ca=None, address="127.0.0.1"):
        pin = {"host": host, "address": address}
        if ca:
            pin["ca"] = ca.pem.read_text()
        return pin

    def policy(self):
        https = ["api.test", "other.test", "key.test", "both.test", "*.wild.test", "**.deep.test"]
        rules = [self.rule(h, self.port) for h in https]
        rules += [self.rule(h, self.http_port, "http") for h in ("plain.test", "both.test")]
        rules += [self.rule("untrusted.test", self.untrusted.port), self.rule("wrong.test", self.wrong_name.port)]
        rules += [self.rule("closed.test", 1)]
        pins = [self.pin(h, self.outside) for h in HOSTS + ["untrusted.test", "wrong.test", "closed.test"]]
        return {"egress": rules, "resolve": pins}

    def close(self):
        for server in (self.https, self.http, self.untrusted, self.wrong_name):
            server.close()


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
