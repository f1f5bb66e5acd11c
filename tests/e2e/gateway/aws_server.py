# SPDX-License-Identifier: Apache-2.0
"""Services of AWS as far as their authentication goes: every request is checked, by botocore's signing code and, for signed
chunks, by the S3 API Reference, and refused as AWS refuses it when its signature is not the right one."""
import base64
import hashlib
import hmac
import json
import re
import zlib
from urllib.parse import parse_qs

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from upstream import Upstream, response

AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                           r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})")
EMPTY = hashlib.sha256(b"").hexdigest()


class Mismatch(Exception):
    pass


def expect(truth, what):
    if not truth:
        raise Mismatch(what)


class Chunks:
    """Decodes an aws-chunked body; its signatures are checked when there is a key."""

    def __init__(self, body, key=None, stamp=None, scope=None, seed=None):
        self.rest, self.key, self.previous, self.head = body, key, seed, f"{stamp}\n{scope}"
        self.data, self.sizes, self.trailers = b"", [], {}

    def line(self):
        line, end, self.rest = self.rest.partition(b"\r\n")
        expect(end, "a line has no end")
        return line.decode()

    def sign(self, kind, *what):
        text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", self.head, self.previous, *what])
        self.previous = hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
        return self.previous

    def read(self, trailers):
        size = None
        while size != 0:
            head, _, signature = self.line().partition(";chunk-signature=")
            size = int(head, 16)
            chunk, self.rest = self.rest[:size], self.rest[size:]
            if self.key:
                expect(signature == self.sign("PAYLOAD", EMPTY, hashlib.sha256(chunk).hexdigest()), f"the signature of chunk {len(self.sizes)}")
            expect(not size or self.line() == "", "a chunk is longer than it says")
            self.sizes.append(size)
            self.data += chunk
        while trailers and (line := self.line()):
            name, _, value = line.partition(":")
            self.trailers[name.lower()] = value.strip()
        if trailers and self.key:
            signature = self.trailers.pop("x-amz-trailer-signature", None)
            text = "".join(f"{name}:{value}\n" for name, value in sorted(self.trailers.items()))
            expect(signature == self.sign("TRAILER", hashlib.sha256(text.encode()).hexdigest()), "the signature of the trailers")
        expect(self.rest in ((b"",) if trailers else (b"\r\n",)), f"behind the last chunk: {self.rest!r}")
        return self.data


class Aws(Upstream):
    """`requests` has what came, each with .payload (what was signed for its body), .signed (names of fields) and .content."""

    def __init__(self, tls, key_id, key, session=None, service="s3", region="eu-central-1"):
        self.credentials, self.service, self.region = Credentials(key_id, key, session), service, region
        self.objects, self.refusals = {}, []
        super().__init__(tls=tls)
        self.script = self

    def get(self, _path):
        return self.answer

    def forget(self):
        self.requests.clear()
        self.refusals.clear()
        self.objects.clear()

    def answer(self, connection, request):
        connection.read_body(request)
        try:
            self.check(request)
        except Mismatch as e:
            self.refusals.append(str(e))
            text = f"<Error><Code>SignatureDoesNotMatch</Code><Message>{e}</Message></Error>"
            connection.send(response(text, "403 Forbidden", ["Content-Type: application/xml"]))
            return True
        connection.send(self.serve(request))
        return True

    # -- authentication --

    def check(self, request):
        fields = request.all("Authorization")
        expect(len(fields) == 1, f"{len(fields)} Authorization fields")
        parts = AUTHORIZATION.fullmatch(fields[0])
        expect(parts, "the form of Authorization")
        key_id, day, region, service, names, signature = parts.groups()
        stamp, request.signed = request.get("X-Amz-Date") or "", names.split(";")
        expect((key_id, region, service) == (self.credentials.access_key, self.region, self.service), "the scope")
        expect(stamp.startswith(day + "T"), "the day")
        expect(request.get("X-Amz-Security-Token") == self.credentials.token, "the session token")
        must = {n.lower() for n, _ in request.fields if n.lower().startswith("x-amz-") or n.lower() in ("host", "content-type")}
        expect(must <= set(request.signed), f"not signed: {must - set(request.signed)}")
        request.payload = request.get("X-Amz-Content-Sha256")
        expect(request.payload or self.service != "s3", "S3 is not told of the payload")
        expect(signature == self.signature(request, stamp), "the signature")
        self.check_body(request, stamp, f"{day}/{region}/{service}/aws4_request", signature)

    def signature(self, request, stamp):
        url = f"https://{request.get('Host')}{request.target}"
        made = AWSRequest(method=request.method, url=url, data=request.body)
        for name, value in request.fields:
            if name.lower() in request.signed:
                made.headers.add_header(name, value)
        made.context["timestamp"] = stamp
        auth = (S3SigV4Auth if self.service == "s3" else SigV4Auth)(self.credentials, self.service, self.region)
        if request.payload is None:
            request.payload = auth.payload(made)
        return auth.signature(auth.string_to_sign(made, auth.canonical_request(made)), made)

    def check_body(self, request, stamp, scope, signature):
        request.content = request.body
        if request.payload.startswith("STREAMING-"):
            key = None
            if request.payload.startswith("STREAMING-AWS4"):
                key = ("AWS4" + self.credentials.secret_key).encode()
                for word in scope.split("/"):
                    key = hmac.new(key, word.encode(), hashlib.sha256).digest()
            request.chunks = Chunks(request.body, key, stamp, scope, signature)
            request.content = request.chunks.read(request.payload.endswith("-TRAILER"))
            expect(len(request.content) == int(request.get("X-Amz-Decoded-Content-Length")), "the decoded length")
            if (checksum := request.chunks.trailers.get("x-amz-checksum-crc32")):
                expect(base64.b64decode(checksum) == zlib.crc32(request.content).to_bytes(4, "big"), "the checksum")
        elif request.payload != "UNSIGNED-PAYLOAD":
            expect(request.payload == hashlib.sha256(request.body).hexdigest(), "the hash of the body")

    # -- what it serves --

    def serve(self, request):
        path, _, query = request.target.partition("?")
        if self.service == "dynamodb":
            return response(json.dumps({"Item": json.loads(request.content).get("Item", {})}),
                            fields=["Content-Type: application/x-amz-json-1.0"])
        if self.service == "sts":
            action = parse_qs(request.content.decode()).get("Action", ["None"])[0]
            return response(f"<{action}Response><{action}Result><Account>123456789012</Account></{action}Result></{action}Response>",
                            fields=["Content-Type: text/xml"])
        if request.method == "PUT":
            self.objects[path] = request.content
            return response(fields=['ETag: "1"'])
        if "list-type" in parse_qs(query):
            return response("<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>", fields=["Content-Type: application/xml"])
        if path in self.objects:
            return response(self.objects[path], fields=['ETag: "1"'])
        return response("<Error><Code>NoSuchKey</Code></Error>", "404 Not Found", ["Content-Type: application/xml"])
