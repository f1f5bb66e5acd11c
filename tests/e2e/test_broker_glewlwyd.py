# SPDX-License-Identifier: Apache-2.0
"""OAuth 2 with a server that is not ours: Debian's glewlwyd, on 127.0.0.1."""
import gzip
import http.cookies
import json
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import urllib.parse
import urllib.request

import pytest

from node import eventually
from test_broker import daemon, nowhere  # noqa: F401

DATABASE = pathlib.Path("/usr/share/doc/glewlwyd/database/init.sqlite3.sql.gz")
SAMPLE = pathlib.Path("/usr/share/doc/glewlwyd/glewlwyd.conf.sample.gz")
CLIENT, SECRET = "space-test", "client-secret-0123456789"

pytestmark = pytest.mark.skipif(not shutil.which("glewlwyd"), reason="no glewlwyd: tools/install-packages test")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Glewlwyd:
    """With one client, one user, and refresh tokens that are good once."""

    def __init__(self, directory):
        self.port = free_port()
        self.api = "http://127.0.0.1:%d/api" % self.port
        self.token_url = self.api + "/oidc/token"
        with sqlite3.connect(directory / "glewlwyd.db") as db:
            db.executescript(gzip.open(DATABASE, "rt").read())
        db.close()
        settings = gzip.open(SAMPLE, "rt").read()
        for name, value in (("port", "%d" % self.port), ("external_url", '"http://127.0.0.1:%d"' % self.port), ("cookie_secure", "0"),
                            ("cookie_domain", '"127.0.0.1"'), ("#bind_address", '"127.0.0.1"')):
            settings, found = re.subn("(?m)^%s *=.*$" % name, "%s=%s" % (name.lstrip("#"), value), settings)
            assert found == 1, name
        settings = settings.replace("/var/cache/glewlwyd/glewlwyd.db", str(directory / "glewlwyd.db"))
        (directory / "glewlwyd.conf").write_text(settings)
        self.log = open(directory / "glewlwyd.log", "wb")
        self.process = subprocess.Popen(["glewlwyd", "-c", directory / "glewlwyd.conf", "-m", "console"], stdout=self.log, stderr=self.log)
        self.cookie = None
        eventually(self.listens, lambda: (directory / "glewlwyd.log").read_text()[-2000:])
        self.set_up()

    def listens(self):
        assert self.process.poll() is None
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) is not None
        self.log.close()

    def admin(self, path, body):
        headers = {"Content-Type": "application/json", **({"Cookie": self.cookie} if self.cookie else {})}
        request = urllib.request.Request(self.api + path, json.dumps(body).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            for morsel in http.cookies.SimpleCookie(answer.headers.get("Set-Cookie", "")).values():
                self.cookie = "%s=%s" % (morsel.key, morsel.value)

    def set_up(self):
        self.admin("/auth/", {"username": "admin", "password": "password"})
        self.admin("/scope/", {"name": "api", "display_name": "api", "password_required": False})
        self.admin("/mod/plugin/", {"module": "oidc", "name": "oidc", "display_name": "oidc", "parameters": {
            "iss": "http://127.0.0.1", "jwt-type": "sha", "jwt-key-size": "256", "key": "0123456789abcdef" * 2, "allow-non-oidc": True,
            "access-token-duration": 3600, "refresh-token-duration": 86400, "code-duration": 600, "refresh-token-rolling": True,
            "refresh-token-one-use": "always", "auth-type-client-enabled": True, "auth-type-password-enabled": True,
            "auth-type-refresh-enabled": True, "auth-type-code-enabled": True, "auth-type-id-token-enabled": True,
            "auth-type-token-enabled": False, "auth-type-none-enabled": False, "scope": [{"name": "api", "refresh-token-rolling": True}]}})  # fmt: skip
        self.admin("/client/", {
            "client_id": CLIENT, "name": CLIENT, "confidential": True, "client_secret": SECRET, "enabled": True, "scope": ["api"],
            "authorization_type": ["client_credentials", "password", "refresh_token"],
            "token_endpoint_auth_method": ["client_secret_basic", "client_secret_post"], "redirect_uri": ["http://localhost/x"]})  # fmt: skip
        self.admin("/user/", {"username": "ann", "name": "ann", "password": "ann's password", "scope": ["api"], "enabled": True})

    def refresh_token(self):
        """As a person gets one who signs in."""
        form = {"grant_type": "password", "username": "ann", "password": "ann's password", "scope": "api",
                "client_id": CLIENT, "client_secret": SECRET}  # fmt: skip
        with urllib.request.urlopen(self.token_url, urllib.parse.urlencode(form).encode(), timeout=30) as answer:
            return json.load(answer)["refresh_token"]


@pytest.fixture
def server(tmp_path):
    s = Glewlwyd(tmp_path)
    yield s
    s.close()


@pytest.mark.parametrize("how", ["basic", "post"])
def test_client_credentials(daemon, server, how):  # noqa: F811
    source = {"oauth2": {"grant": "client_credentials", "tokenURL": server.token_url, "clientID": CLIENT, "scope": "api", "clientAuth": how}}
    daemon.set("API", source, {"clientSecret": SECRET})
    answer = daemon.test("API")
    assert answer["ok"] and answer["expiresAt"]
    nowhere(daemon, SECRET)
    daemon.set("API", source, {"clientSecret": "wrong-" + SECRET}, status=200)
    problem = daemon.fails("API")
    assert server.token_url in problem and SECRET not in problem


def test_refresh_tokens_that_are_good_once(daemon, server):  # noqa: F811
    source = {"oauth2": {"grant": "refresh_token", "tokenURL": server.token_url, "clientID": CLIENT}}
    token = server.refresh_token()
    daemon.set("API", source, {"refreshToken": token, "clientSecret": SECRET})
    for sig in (signal.SIGTERM, signal.SIGKILL):
        assert daemon.test("API")["ok"]
        assert daemon.test("API")["ok"]
        daemon.restart(sig)
    assert daemon.test("API")["ok"]
    nowhere(daemon, SECRET, token)
    # It was used: as another holder of it would find.
    daemon.set("LATE", source, {"refreshToken": token, "clientSecret": SECRET})
    problem = daemon.fails("LATE")
    assert token not in problem and "space secret set" in problem
