# SPDX-License-Identifier: Apache-2.0
"""Network namespaces: code runs in one on a thread of its own, sockets keep the one they were made in."""
import concurrent.futures
import ctypes
import os
import subprocess
import threading

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


class Netns:
    """A namespace that exists (of process `pid`, or at `path`) or, without, a new one with its loopback up."""

    def __init__(self, pid=None, path=None):
        self._path = path or (f"/proc/{pid}/ns/net" if pid else None)
        self._pool = concurrent.futures.ThreadPoolExecutor(1, initializer=self._enter)
        self.path = self.call(lambda: f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")

    def _enter(self):
        if self._path is None:
            _check(_libc.unshare(CLONE_NEWNET), "unshare")
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            return
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(fd, CLONE_NEWNET), "setns")
        finally:
            os.close(fd)

    def call(self, function, *args, **kwargs):
        return self._pool.submit(function, *args, **kwargs).result(30)

    def run(self, *command, **kwargs):
        """Runs a program inside; its output as text."""
        return self.call(subprocess.run, command, check=kwargs.pop("check", True), text=True,
                         capture_output=True, **kwargs)

    def close(self):
        self._pool.shutdown()
