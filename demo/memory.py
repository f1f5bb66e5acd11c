# SPDX-License-Identifier: Apache-2.0
"""Asks spaced to write a sandbox's RAM to a file: memory.py SANDBOX FILE."""
import http.client
import json
import os
import socket
import sys


class Spaced(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.environ.get("SPACE_RUN_DIR", "/run/space") + "/spaced.sock")


sandbox, path = sys.argv[1:]
spaced = Spaced("localhost")
spaced.request(
    "POST", "/sandboxes/%s/memory" % sandbox, json.dumps({"path": path}), {"Content-Type": "application/json"}
)
answer = spaced.getresponse()
if answer.status != 204:
    sys.exit("memory of %s: %s" % (sandbox, answer.read().decode()))
