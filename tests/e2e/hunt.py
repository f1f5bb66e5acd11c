# SPDX-License-Identifier: Apache-2.0
"""Looking for values where none may be: in files, in the memory of a guest, in what /proc says of processes."""
import base64
import contextlib
import os
import pathlib
import subprocess
import tempfile
import urllib.parse


def forms(value):
    """A value as it may show up: plain, reversed, hexadecimal, percent-encoded, in base64 at each offset and of both alphabets."""
    raw = value.encode()
    found = {raw, raw[::-1], raw.hex().encode(), raw.hex().upper().encode(), urllib.parse.quote(value, safe="").encode(),
             "".join("%%%02x" % byte for byte in raw).encode(), "".join("%%%02X" % byte for byte in raw).encode()}
    for n in range(3):
        text = base64.b64encode(b"x" * n + raw)[4 if n else 0:-4]
        found |= {text, text.replace(b"+", b"-").replace(b"/", b"_")}
    return found


def extents(file):
    """What is in a file, without its holes."""
    end, at = os.fstat(file.fileno()).st_size, 0
    while at < end:
        try:
            at = os.lseek(file.fileno(), at, os.SEEK_DATA)
        except OSError:
            return
        until = os.lseek(file.fileno(), at, os.SEEK_HOLE)
        while at < until:
            data = os.pread(file.fileno(), min(until - at, 1 << 20), at)
            if not data:
                return
            yield data
            at += len(data)


class Hunt:
    """values: by name, for what is said of a find; never the value."""

    def __init__(self, values):
        self.forms = [(name, form) for name, value in values.items() for form in forms(value)]
        assert all(len(form) >= 8 for _, form in self.forms), "too short to tell from noise"

    def in_bytes(self, data, where):
        return [f"{name} is in {where}" for name, form in self.forms if data.find(form) >= 0]

    def in_file(self, path):
        """grep looks for all forms in one pass; lines end with NUL, for memory has few other ends."""
        with tempfile.NamedTemporaryFile() as patterns, open(path, "rb") as file:
            patterns.write(b"\n".join(form for _, form in self.forms))
            patterns.flush()
            grep = subprocess.Popen(["grep", "-qazFf", patterns.name], stdin=subprocess.PIPE, env={"LC_ALL": "C"})
            with contextlib.suppress(BrokenPipeError), grep.stdin:
                for data in extents(file):
                    grep.stdin.write(data)
            if grep.wait() == 1:
                return []
            assert grep.returncode == 0, "grep failed"
            return sum((self.in_bytes(data, path) for data in extents(file)), []) or [f"something is in {path}"]

    def below(self, directory):
        """Regular files; what vanishes meanwhile is not there."""
        found = []
        for path in pathlib.Path(directory).rglob("*"):
            if path.is_file() and not path.is_symlink():
                found += self.in_file(path)
        return found

    def in_processes(self, pids):
        """Arguments and environment, and open files that have no name (any more), as the disks of sandboxes."""
        found = []
        for pid in pids:
            process = pathlib.Path(f"/proc/{pid}")
            try:
                for what in ("cmdline", "environ"):
                    found += self.in_bytes((process / what).read_bytes(), f"{what} of {pid}")
                for fd in (process / "fd").iterdir():
                    link = os.readlink(fd)
                    if link.endswith("(deleted)") and os.path.isfile(fd):
                        found += self.in_file(fd)
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found
