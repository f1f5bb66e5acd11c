# SPDX-License-Identifier: Apache-2.0
"""A user without privileges, with subordinate ids, who runs a node. The accounts and the device that this takes are there for the
processes of the tests alone, in a mount namespace of their own."""
import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile

from node import IMAGES

NAME, UID = "space-tester", 54321
SUBORDINATES = 1_000_000_000, 65536

# $1: a directory with the files to be in /etc, and tun; the rest is the command.
ENTER = """
cd "$1"; shift
for file in passwd group subuid subgid; do [ -e /etc/$file ] || : >/etc/$file; mount --bind $file /etc/$file; done
mount --bind tun /dev/net/tun
exec setpriv --reuid %d --regid %d --clear-groups "$@"
""" % (UID, UID)


class User:
    """command: what goes before a command that the user is to run."""

    def __init__(self, subordinates=True, tun=True):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="space-e2e-user."))
        atexit.register(shutil.rmtree, self.root, ignore_errors=True)
        self.root.chmod(0o711)
        self.home = self.root / "home"
        self.home.mkdir(mode=0o700)
        etc = self.root / "etc"
        etc.mkdir(mode=0o755)
        account = "%s:x:%d:%d::%s:/bin/sh\n" % (NAME, UID, UID, self.home)
        (etc / "passwd").write_text(pathlib.Path("/etc/passwd").read_text() + account)
        (etc / "group").write_text(pathlib.Path("/etc/group").read_text() + "%s:x:%d:\n" % (NAME, UID))
        for file in ("subuid", "subgid"):
            (etc / file).write_text("%s:%d:%d\n" % (NAME, *SUBORDINATES) if subordinates else "")
        os.mknod(etc / "tun", 0o20600, os.makedev(10, 200))
        (etc / "tun").chmod(0o666 if tun else 0o600)
        self.own(self.home)
        self.command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", ENTER, "sh", str(etc)]
        self._images = None

    def own(self, path):
        subprocess.run(["chown", "-R", "%d:%d" % (UID, UID), path], check=True)

    def images(self):
        """As IMAGES, the user's own."""
        if not self._images:
            self._images = self.root / "images"
            self._images.mkdir(mode=0o711)
            for name in ("images", "ca"):
                subprocess.run(["cp", "-a", "--sparse=always", IMAGES / name, self._images / name], check=True)
            self.own(self._images)
        return self._images

