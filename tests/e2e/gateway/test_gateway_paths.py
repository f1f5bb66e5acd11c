# SPDX-License-Identifier: Apache-2.0
"""Paths (conformance.py, section paths)."""
import pytest

from lab import refused

REFUSED = {
    "dots": ["/a/../b", "/..", "/a/./b", "/.", "/%2e%2e/b", "/a/%2E%2E", "/a/.%2e/b", "/a/%2e/b", "/a/..;x/b"],
    "empty": ["//", "//a", "/a//b"],
    "backslash": ["/a%5Cb", "/a%5c..%5cb", "/a\\b"],
    "nul": ["/a%00b"],
    "slash": ["/a%2f..%2fb"],
    "double": ["/%252e%252e/b", "/a%25%32%65"],
    "form": ["/a%", "/a%2", "/a%zz", "/a%0d%0aX:%20y", "/%c0%ae%c0%ae/"],
}


@pytest.mark.parametrize("path", [
    pytest.param(path, marks=pytest.mark.conformance(f"paths: {line}")) for line, paths in REFUSED.items() for path in paths])
def test_paths_that_are_refused(lab, world, host, path):
    refused(lab, world, b"GET " + path.encode() + b" HTTP/1.1\r\n" + host + b"\r\n\r\n", 400)


@pytest.mark.conformance("paths: form", "paths: query")
@pytest.mark.parametrize("path,sent", [
    ("/", "/"), ("/a/b/", "/a/b/"), ("/%61%62", "/ab"), ("/a%20b", "/a%20b"), ("/a%3bb", "/a%3Bb"), ("/a;b=c", "/a;b=c"),
    ("/~x/%7Ey", "/~x/~y"), ("/%e2%82%ac", "/%E2%82%AC"), ("/a?x=../..&y=%2F//%00", "/a?x=../..&y=%2F//%00"),
    ("/@scope/pkg", "/@scope/pkg"), ("/...", "/..."), ("/.well-known/x", "/.well-known/x")])
def test_paths_reach_the_server_in_the_form_that_was_judged(lab, world, path, sent):
    since = lab.mark()
    assert lab.get("api.test", world.port, path).json()["target"] == sent
    assert lab.wait_record("egress.request", since)["path"] == sent.split("?")[0]


@pytest.mark.conformance("paths: form", "paths: query", "paths: slash")
def test_paths_rules_judge_what_is_sent(own_lab, world):
    """Another spelling of a path is the same path; the query is neither part of it nor a way around; %2F where a rule says so alone."""
    rules = [{**world.rule("api.test", world.port), "methods": ["GET"], "paths": ["/open/**", "/one/*/x"]},
             {**world.rule("other.test", world.port), "paths": ["/@scope%2Fname", "/@scope/*"], "encodedSlash": True}]
    lab = own_lab({"egress": rules, "resolve": [world.pin(h, world.outside) for h in ("api.test", "other.test")]})

    def status(path, method="GET", host="api.test"):
        return lab.get(host, world.port, path, method).status
    assert [status(p) for p in ("/open/a", "/%6fpen/%61/b", "/open/a?x=/shut/../..%00", "/one/a/x")] == [200] * 4
    assert [r.target for r in world.https.requests] == ["/open/a", "/open/a/b", "/open/a?x=/shut/../..%00", "/one/a/x"]
    assert [status(p) for p in ("/shut", "/shut?/open/a", "/openly", "/one/a/b/x", "/OPEN/a", "/open%2Fa/..")] == [403] * 5 + [400]
    assert status("/open/a", "POST") == 403
    assert status("/@scope%2fname", host="other.test") == 200
    assert world.https.requests[-1].target == "/@scope%2Fname"
    denied = lab.get("api.test", world.port, "/shut", "DELETE").json()
    assert "/shut" in denied["allow_with"] and "DELETE" in denied["allow_with"]
