# SPDX-License-Identifier: Apache-2.0
"""tools/check-rooms sees what it is there to see."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(src):
    return subprocess.run([ROOT / "tools" / "check-rooms", src], capture_output=True, text=True)


def test_our_own_tree_is_clean():
    done = check(ROOT / "src")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "room, line, text",
    [
        ("cli", '#include "daemon/api.h"', "cli may not use daemon"),
        ("base", '# include "http/msg.h"', "base may not use http"),
        ("egress", '\t#include "agent/agent.h"', "egress may not use agent"),
        ("policy", '#include "http/msg.h"', "policy may not use http"),
        ("agent", '#include "rpc.h"', "not named by its room"),
        ("agent", '#include "../daemon/api.h"', "is in no room"),
        ("http", "#include <sqlite3.h>", "stays in daemon"),
        ("nonsense", "", "a directory that is no room"),
    ],
)
def test_breach_is_named_with_its_line(tmp_path, room, line, text):
    (tmp_path / room).mkdir()
    (tmp_path / room / "x.c").write_text('/* head */\n#include "%s/x.h"\n%s\n' % (room, line))
    done = check(tmp_path)
    assert done.returncode == 1
    assert text in done.stdout
    assert not line or "x.c:3: " in done.stdout


def test_allowed_includes_pass(tmp_path):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "x.c").write_text('#include <uv.h>\n#include "base/err.h"\n#include "http/client.h"\n')
    assert check(tmp_path).returncode == 0
