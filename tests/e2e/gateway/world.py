# SPDX-License-Identifier: Apache-2.0
"""What there is outside: servers on loopback, and the policy that leads to them."""
from authority import Authority
from upstream import Upstream

HOSTS = ["api.test", "other.test", "key.test", "both.test", "plain.test", "x.wild.test", "wild.test",
         "a.b.wild.test", "deep.test", "x.deep.test"]
SECRET = "s3cr3t-Value/42+abc=="


class World:
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
                         "variables": {"API_TOKEN": "sp_API_TOKEN_0123"}}]

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
