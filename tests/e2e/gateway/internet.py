# SPDX-License-Identifier: Apache-2.0
"""What a gateway has around it when its own namespace is not the tests': addresses that are public, private, and its own."""
from dnsserver import DnsServer
from netns import Netns
from upstream import Upstream, response

PUBLIC, SECOND, CLOSED, OWN = "93.184.216.34", "93.184.216.35", "93.184.216.36", "93.184.216.99"


class Internet:
    """Two namespaces: `here`, where the gateway lives, and one that has public addresses."""

    def __init__(self):
        self.here, self.there = Netns(), Netns()
        there = self.there.path
        self.here.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
        self.here.run("ip", "link", "set", "up1", "netns", there)
        self.here.run("ip", "address", "add", "10.99.0.1/24", "dev", "up0")
        self.here.run("ip", "address", "add", OWN + "/32", "dev", "lo")
        self.here.run("ip", "link", "set", "up0", "up")
        self.here.run("ip", "route", "add", "default", "via", "10.99.0.2")
        self.there.run("ip", "address", "add", "10.99.0.2/24", "dev", "up1")
        self.there.run("ip", "link", "set", "up1", "up")
        for address in (PUBLIC, SECOND, CLOSED):
            self.there.run("ip", "address", "add", address + "/32", "dev", "lo")
        self.there.run("ip", "route", "add", OWN + "/32", "via", "10.99.0.1")
        self.public = Upstream(address=PUBLIC, port=80, netns=self.there)
        self.second = Upstream(address=SECOND, port=80, netns=self.there)
        self.private = Upstream(address="10.99.0.2", port=80, netns=self.there)
        self.loopback = Upstream(address="127.0.0.1", port=80, netns=self.here)
        self.own = Upstream(address=OWN, port=80, netns=self.here)
        self.servers = (self.public, self.second, self.private, self.loopback, self.own)
        for server in self.servers:  # so that each request is a connect of its own
            server.script["/"] = response(fields=["Connection: close"])
        self.dns = DnsServer({}, netns=self.here)

    def close(self):
        self.dns.close()
        for server in self.servers:
            server.close()
        self.here.close()
        self.there.close()
