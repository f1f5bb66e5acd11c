# SPDX-License-Identifier: Apache-2.0
"""Says whether the value of DEMO_TOKEN is in the given files: plain, in base64 or reversed. Exit code 1 when it is."""
import base64
import mmap
import os
import sys

value = os.environ["DEMO_TOKEN"].encode()
forms = {value, value[::-1]} | {
    base64.b64encode(b"x" * shift + value)[4 if shift else 0 : -4] for shift in range(3)
}
found = False
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            sys.exit("%s is empty" % path)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            hits = [form for form in forms if data.find(form) >= 0]
    print("  %s: %d KiB searched, %s" % (os.path.basename(path), size >> 10, "FOUND" if hits else "not there"))
    found = found or bool(hits)
sys.exit(1 if found else 0)
