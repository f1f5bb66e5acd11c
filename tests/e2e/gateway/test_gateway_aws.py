# SPDX-License-Identifier: Apache-2.0
"""Requests for AWS are signed anew outside: botocore is the guest's client, with keys that are worth nothing, and what the
server checks signatures with."""
import base64
import hashlib
import json
import os
import pathlib
import zlib

import pytest

pytest.importorskip("botocore", reason="needs python3-botocore")
from aws_server import Aws  # noqa: E402
from h2client import Client  # noqa: E402
from lab import Lab, Response  # noqa: E402

HERE = pathlib.Path(__file__).parent
REGION = "eu-central-1"
KEY_ID, KEY, TOKEN = "AKIAREALREALREALREAL", "real/Secret+Key/0123456789abcdefghijklmn", "real//session+token=="
GUEST_ID, GUEST_KEY = "AKIAPLACEHOLDER00001", "placeholder-of-the-secret-key-0123456789"
SERVICES = {"s3": "s3.test", "dynamodb": "dynamodb.test", "sts": "sts.test"}
MIB = 1024 * 1024
STREAM = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


def entry(service, **members):
    value = {"accessKeyId": KEY_ID, "secretAccessKey": KEY}
    if service != "s3":
        value["sessionToken"] = TOKEN
    return {"name": f"AWS_{service.upper()}", "hosts": [SERVICES[service]], "value": value,
            "inject": {"kind": "sigv4", "service": service, "region": REGION},
            "variables": {"AWS_ACCESS_KEY_ID": GUEST_ID + service.upper(), "AWS_SECRET_ACCESS_KEY": GUEST_KEY + service}, **members}


class Place:
    """A gateway before the three services, and the guest's client behind it."""

    def __init__(self, world, where):
        self.world, self.servers, tls = world, {}, world.outside.server("aws", list(SERVICES.values()))
        for service in SERVICES:
            self.servers[service] = Aws(tls, KEY_ID, KEY, None if service == "s3" else TOKEN, service, REGION)
        rules = [world.rule(host, self.servers[service].port) for service, host in SERVICES.items()]
        policy = {"egress": rules + [world.rule("trap.test", 443)], "resolve": [world.pin(host, world.outside) for host in SERVICES.values()]}
        self.lab = Lab(where, world.node, policy, [entry(service) for service in SERVICES])

    def close(self):
        self.lab.close()
        for server in self.servers.values():
            server.close()

    def client(self, service, *calls, region=REGION):
        """What came of each call, and the requests that the server saw."""
        server = self.servers[service]
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": GUEST_ID + service.upper(), "AWS_SECRET_ACCESS_KEY": GUEST_KEY + service,
                       "AWS_CONFIG_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"}
        done = self.lab.run("/usr/bin/python3", HERE / "aws_client.py", f"https://{SERVICES[service]}:{server.port}", service, region,
                            self.world.node.pem, json.dumps([[*call, {}][:3] for call in calls]), env=environment)
        return json.loads(done.stdout), server.requests

    def send(self, service, method, path, fields=(), body=b"", pieces=1):
        server, host = self.servers[service], SERVICES[service]
        with self.lab.tls(host, server.port) as sock:
            head = [f"{method} {path} HTTP/1.1", f"Host: {host}:{server.port}", *fields]
            if not any(f.lower().startswith(("content-length:", "transfer-encoding:")) for f in head) and body:
                head.append(f"Content-Length: {len(body)}")
            data = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
            step = max(1, -(-len(data) // pieces))
            for at in range(0, len(data), step):
                sock.sendall(data[at:at + step])
            return Response(sock, method)


@pytest.fixture(scope="module")
def shared_place(world, tmp_path_factory):
    made = Place(world, tmp_path_factory.mktemp("aws"))
    yield made
    made.close()


@pytest.fixture
def place(shared_place):
    for server in shared_place.servers.values():
        server.forget()
    yield shared_place
    assert not shared_place.lab.ended, "the gateway ended during the test"
    for server in shared_place.servers.values():
        assert not server.refusals
        for request in server.requests:
            assert GUEST_ID.encode() not in request.raw and KEY.encode() not in request.raw


# -- what the SDK sends --

@pytest.mark.parametrize("s3, arguments, payload", [
    ({}, {}, "UNSIGNED-PAYLOAD"),
    ({"payload_signing_enabled": True}, {}, hashlib.sha256(b"hello").hexdigest()),
    ({}, {"ChecksumAlgorithm": "CRC32"}, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
    ({}, {"Metadata": {"spaces": "a   b  c", "Case": "Mixed"}, "ContentType": "text/x; a=b"}, "UNSIGNED-PAYLOAD")],
    ids=["unsigned", "signed", "trailer", "metadata"])
def test_aws_objects_are_put_and_got(place, s3, arguments, payload):
    since = place.lab.mark()
    key = {"Bucket": "bucket", "Key": "a/b c+d(1)~ä'!.txt"}
    results, requests = place.client("s3", ["put_object", {**key, "Body": {"text": "hello"}, **arguments}, s3], ["get_object", key, s3])
    assert "error" not in results[0] and results[1]["Body"] == "hello"
    assert [r.payload for r in requests] == [payload, hashlib.sha256(b"").hexdigest()]
    record = place.lab.wait_record("egress.request", since, method="PUT")
    assert record["credential"] == "AWS_S3" and record["use"] > 0


def test_aws_large_bodies_stream(place):
    body = {"Bucket": "bucket", "Key": "large"}
    results, requests = place.client("s3", ["put_object", {**body, "Body": {"bytes": 2 * MIB}}],
                                     ["put_object", {**body, "Body": {"bytes": 2 * MIB}, "ChecksumAlgorithm": "CRC32"}])
    assert [r.get("error") for r in results] == [None, None]
    assert [len(r.content) for r in requests] == [2 * MIB, 2 * MIB]


def test_aws_queries_are_signed_in_their_order(place):
    results, requests = place.client("s3", ["list_objects_v2", {"Bucket": "bucket", "Prefix": "ä b+c/=&", "Delimiter": "/", "MaxKeys": 3}])
    assert results[0]["KeyCount"] == 0 and "prefix=" in requests[0].target


def test_aws_bodies_of_other_services_are_held_and_hashed(place):
    item = {"TableName": "table", "Item": {"k": {"S": "x" * 50000}}}
    results, requests = place.client("dynamodb", ["put_item", item])
    assert "error" not in results[0]
    assert requests[0].payload == hashlib.sha256(requests[0].body).hexdigest()
    results, requests = place.client("sts", ["get_caller_identity", {}])
    assert results[0]["Account"] == "123456789012"
    assert requests[0].get("X-Amz-Security-Token") == TOKEN


# -- what no SDK sends --

def authorization(service="s3", region=REGION, algorithm="AWS4-HMAC-SHA256", key_id=None):
    return (f"Authorization: {algorithm} Credential={key_id or GUEST_ID + service.upper()}/20260101/{region}/{service}/aws4_request, "
            f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}")


def test_aws_requests_without_a_signature_get_one(place):
    assert place.send("s3", "PUT", "/bucket/plain", body=b"x" * 1000).status == 200
    assert place.send("dynamodb", "POST", "/", ["Content-Type: application/x-amz-json-1.0"], b'{"a": 1}').status == 200
    assert place.servers["s3"].requests[0].payload == "UNSIGNED-PAYLOAD"


def test_aws_fields_of_the_guest_give_way(place):
    answer = place.send("dynamodb", "POST", "/", [authorization("dynamodb"), "X-Amz-Date: 20010101T000000Z", "x-amz-security-token: own",
                                                  "X-Amz-Target: DynamoDB_20120810.PutItem", "Authorization: Bearer own"], b"{}")
    assert answer.status == 200
    request = place.servers["dynamodb"].requests[0]
    assert request.all("X-Amz-Security-Token") == [TOKEN] and not request.get("X-Amz-Date").startswith("2001")
    assert "x-amz-target" in request.signed


def test_aws_one_pair_of_variables_serves_all_grants(place):
    """The variables hold the placeholders of one; where they are put beside a signature they are a leak all the same."""
    since, foreign = place.lab.mark(), GUEST_ID + "S3"
    assert place.send("dynamodb", "POST", "/", [authorization("dynamodb", key_id=foreign)], b"{}").status == 200
    assert place.servers["dynamodb"].requests
    answer = place.send("dynamodb", "POST", "/", [authorization("dynamodb", key_id=foreign), f"X-Amz-Meta-Key: {foreign}"], b"{}")
    assert answer.status == 403 and len(place.servers["dynamodb"].requests) == 1
    assert place.lab.wait_record("egress.deny", since)["leak"] == "AWS_S3"


def test_aws_canary_is_none_of_them(place):
    since, canary = place.lab.mark(), "AKIACANARYCANARY0001"
    entry_of_it = {**entry("s3"), "name": "AWS_TRAP", "hosts": ["trap.test"], "canary": True, "variables": {"AWS_ACCESS_KEY_ID": canary}}
    assert place.lab.tell({"type": "secret", "put": entry_of_it})["ok"]
    assert place.send("dynamodb", "POST", "/", [authorization("dynamodb", key_id=canary)], b"{}").status == 403
    assert place.lab.wait_record("egress.deny", since)["alarm"] == "AWS_TRAP"
    assert place.lab.tell({"type": "secret", "revoke": "AWS_TRAP"})["ok"]


def test_aws_held_bodies_come_with_their_length(place):
    body = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (b'{"a"', b": 1}")) + b"0\r\n\r\n"
    assert place.send("dynamodb", "POST", "/", ["Transfer-Encoding: chunked"], body, pieces=len(body)).status == 200
    request = place.servers["dynamodb"].requests[0]
    assert request.all("Content-Length") == ["8"] and not request.get("Transfer-Encoding") and request.body == b'{"a": 1}'


@pytest.mark.parametrize("declared", [True, False])
def test_aws_bodies_too_long_to_hold_are_refused(place, declared):
    since = place.lab.mark()
    if declared:
        answer = place.send("dynamodb", "POST", "/", [f"Content-Length: {MIB + 1}"])
    else:
        answer = place.send("dynamodb", "POST", "/", ["Transfer-Encoding: chunked"],
                            b"%x\r\n" % (MIB + 1) + b"x" * (MIB + 1) + b"\r\n0\r\n\r\n")
    assert answer.status == 413 and "1 MiB" in answer.json()["message"]
    assert "1 MiB" in place.lab.wait_record("egress.deny", since)["reason"]
    assert not place.servers["dynamodb"].requests


def test_aws_body_of_just_the_most_is_held(place):
    body = json.dumps({"a": "x" * (MIB - 9)}).encode()
    assert len(body) == MIB and place.send("dynamodb", "POST", "/", body=body).status == 200


@pytest.mark.parametrize("fields, body", [(["Content-Length: 0"], b""), (["Transfer-Encoding: chunked"], b"0\r\n\r\n")])
def test_aws_bodies_without_a_byte(place, fields, body):
    assert place.send("sts", "POST", "/", fields, body).status == 200
    assert place.servers["sts"].requests[0].payload == hashlib.sha256(b"").hexdigest()


def test_aws_bodies_that_wait_to_be_asked_for(place):
    server, body = place.servers["sts"], b"Action=Hello"
    with place.lab.tls(SERVICES["sts"], server.port) as sock:
        head = f"POST / HTTP/1.1\r\nHost: {SERVICES['sts']}:{server.port}\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        sock.sendall(head.encode())
        assert sock.recv(4096).startswith(b"HTTP/1.1 100 ")
        assert not server.requests
        sock.sendall(body)
        assert Response(sock).status == 200
    assert server.requests[0].content == body


def test_aws_bodies_of_http2(place):
    server = place.servers["dynamodb"]
    with Client(place.lab, place.world, SERVICES["dynamodb"], port=server.port) as client:
        streams = [client.open(client.head("/", "POST"), end=False) for _ in range(3)]
        for stream in streams:
            client.data(stream, b'{"a":')
        for stream in reversed(streams):
            client.data(stream, b" %d}" % stream, end=True)
        assert [client.wait(stream).status for stream in streams] == [200, 200, 200]
    assert sorted(r.body for r in server.requests) == sorted(b'{"a": %d}' % stream for stream in streams)


def test_aws_bodies_held_at_once_have_a_cap(place):
    """64 MiB together; what one gives back is another's."""
    server, since = place.servers["dynamodb"], place.lab.mark()
    head = f"POST / HTTP/1.1\r\nHost: {SERVICES['dynamodb']}:{server.port}\r\nContent-Length: {MIB}\r\n\r\n".encode()
    held = []
    try:
        for _ in range(64):
            held.append(place.lab.tls(SERVICES["dynamodb"], server.port))
            held[-1].sendall(head)
        place.lab.wait(lambda: sum(r["kind"] == "egress.request" for r in place.lab.records[since:]) == 64)
        assert place.send("dynamodb", "POST", "/", body=b"{}").status == 503
        assert "try again" in place.lab.wait_record("egress.deny", since, host=SERVICES["dynamodb"])["reason"]
        assert place.send("s3", "PUT", "/bucket/unsigned", body=b"x").status == 200
        held.pop().close()
        place.lab.wait_record("egress.response", since, error="the guest closed the connection")
        assert place.send("dynamodb", "POST", "/", body=b"{}").status == 200
    finally:
        for sock in held:
            sock.close()


def test_aws_grant_that_ends_while_a_body_is_held(place):
    server, since = place.servers["sts"], place.lab.mark()
    with place.lab.tls(SERVICES["sts"], server.port) as sock:
        sock.sendall(f"POST / HTTP/1.1\r\nHost: {SERVICES['sts']}:{server.port}\r\nContent-Length: 10\r\n\r\nhalf".encode())
        place.lab.wait_record("egress.request", since)
        assert place.lab.tell({"type": "secret", "revoke": "AWS_STS"})["ok"]
        assert Response(sock).status == 403
    assert not server.requests
    assert place.lab.tell({"type": "secret", "put": entry("sts")})["ok"]


# -- signed chunks --

def chunks(data, size, signature="a" * 64):
    parts = [data[at:at + size] for at in range(0, len(data), size)] + [b""]
    return b"".join(b"%x;chunk-signature=%s\r\n%s%s" % (len(p), signature.encode(), p, b"\r\n" if p else b"") for p in parts)


def chunk_fields(data, kind=STREAM):
    return [authorization(), f"x-amz-content-sha256: {kind}", "Content-Encoding: aws-chunked", f"x-amz-decoded-content-length: {len(data)}"]


@pytest.mark.parametrize("size, pieces", [(8192, 1), (8192, 97), (65536, 3), (100000, 1000), (MIB, 5)])
def test_aws_chunks_are_signed_anew(place, size, pieces):
    data = os.urandom(300000) * (4 if size == MIB else 1)
    assert place.send("s3", "PUT", "/bucket/chunks", chunk_fields(data), chunks(data, size) + b"\r\n", pieces).status == 200
    request = place.servers["s3"].requests[0]
    assert place.servers["s3"].objects["/bucket/chunks"] == data
    assert request.payload == STREAM and request.chunks.sizes[0] == size and b"a" * 64 not in request.body


def test_aws_trailers_are_signed_anew(place):
    data = os.urandom(100000)
    checksum = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    body = chunks(data, 65536) + f"x-amz-checksum-crc32:{checksum}\r\nx-amz-trailer-signature:{'b' * 64}\r\n\r\n".encode()
    fields = chunk_fields(data, STREAM + "-TRAILER") + ["x-amz-trailer: x-amz-checksum-crc32"]
    assert place.send("s3", "PUT", "/bucket/trailer", fields, body, 10).status == 200
    assert place.servers["s3"].objects["/bucket/trailer"] == data
    assert place.servers["s3"].requests[0].chunks.trailers == {"x-amz-checksum-crc32": checksum}


@pytest.mark.parametrize("body, why", [
    (b"5\r\nhello\r\n0\r\n\r\n", "chunk-signature"), (chunks(b"hello", 9), "cut short"),
    (chunks(b"x" * (MIB + 1), MIB + 1) + b"\r\n", "1048577 bytes"), (chunks(b"hello", 9) + b"\r\nx", "behind its end")])
def test_aws_chunks_that_do_not_read_are_refused(place, body, why):
    since = place.lab.mark()
    answer = place.send("s3", "PUT", "/bucket/bad", chunk_fields(b"hello"), body)
    assert answer.status == 400 and why in answer.json()["message"]
    assert why in place.lab.wait_record("egress.deny", since)["reason"]
    place.lab.wait_record("egress.response", since, status=400)
    assert "/bucket/bad" not in place.servers["s3"].objects


# -- what is refused --

@pytest.mark.parametrize("fields, path, status, words", [
    ([authorization("dynamodb")], "/", 403, ["AWS_S3", "service s3 in eu-central-1", "dynamodb in eu-central-1"]),
    ([authorization(region="us-east-1")], "/", 403, ["s3 in us-east-1"]),
    ([authorization(algorithm="AWS4-ECDSA-P256-SHA256")], "/", 403, ["AWS4-HMAC-SHA256"]),
    (["Authorization: AWS4-HMAC-SHA256 Credential=x"], "/", 403, ["AWS4-HMAC-SHA256"]),
    ([authorization(region="a\"b")], "/", 403, ["AWS4-HMAC-SHA256"]),
    (["x-amz-content-sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"], "/", 403, ["STREAMING-AWS4-ECDSA"]),
    (["x-amz-content-sha256: UNSIGNED-PAYLOAD", "X-Amz-Content-SHA256: " + "0" * 64], "/", 400, ["more than one"]),
    ([], f"/o?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={GUEST_ID}S3%2F20260101&X-Amz-Signature=0", 403, ["presigned", "Authorization"]),
    ([], "/o?X-Amz%2DSignature=0", 403, ["presigned"])])
def test_aws_refusals_say_why(place, fields, path, status, words):
    since = place.lab.mark()
    answer = place.send("s3", "GET", path, fields)
    assert answer.status == status
    reason = place.lab.wait_record("egress.deny", since)["reason"]
    assert answer.json()["message"] == reason and all(w in reason for w in words), reason
    assert not place.servers["s3"].requests


def test_aws_client_for_another_region_hears_why(place):
    results, requests = place.client("s3", ["get_object", {"Bucket": "bucket", "Key": "k"}], region="us-west-2")
    assert "403" in results[0]["error"] and not requests


def test_aws_keys_are_renewed_between_requests(place):
    assert place.send("sts", "POST", "/", body=b"Action=A").status == 200
    value = {"accessKeyId": KEY_ID, "secretAccessKey": KEY, "sessionToken": "another"}
    assert place.lab.tell({"type": "secret", "renew": {"name": "AWS_STS", "value": value}})["ok"]
    assert place.send("sts", "POST", "/", body=b"Action=A").status == 403
    assert place.servers["sts"].refusals == ["the session token"]
    place.servers["sts"].forget()
    assert place.lab.tell({"type": "secret", "renew": {"name": "AWS_STS", "value": {**value, "sessionToken": TOKEN}}})["ok"]


@pytest.mark.parametrize("service", ["dynamodb", "s3"])
def test_aws_placeholders_in_bodies_are_leaks(place, service):
    since, body = place.lab.mark(), f'{{"key": "{GUEST_KEY}{service}"}}'.encode()
    fields, sent = ([], body) if service == "dynamodb" else (chunk_fields(body), chunks(body, 30000) + b"\r\n")
    answer = place.send(service, "PUT", "/bucket/leak", fields, sent, pieces=40)
    assert answer.status == 403
    assert place.lab.wait_record("egress.deny", since)["leak"] == f"AWS_{service.upper()}"
    assert "/bucket/leak" not in place.servers[service].objects
    assert service == "s3" or not place.servers[service].requests


def test_aws_answers_are_redacted(place):
    place.servers["s3"].objects["/bucket/echo"] = f"before {KEY} after {KEY_ID}".encode()
    answer = place.send("s3", "GET", "/bucket/echo")
    assert answer.status == 200 and answer.body == b"before " + b"*" * len(KEY) + b" after " + b"*" * len(KEY_ID), answer.body
