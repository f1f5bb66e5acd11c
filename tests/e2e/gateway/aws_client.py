# SPDX-License-Identifier: Apache-2.0
"""The guest's SDK: botocore with what the variables hold, made to do what its arguments say. Prints what came of each, as JSON.

    aws_client.py ENDPOINT SERVICE REGION CA '[["put_object", {…}, {S3 CONFIGURATION}], …]'

In arguments {"bytes": N} is a body of N bytes of x, {"stream": N} one that can't be sought, {"text": T} that text."""
import io
import json
import sys

from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError
from botocore.session import Session


class Stream(io.RawIOBase):
    def __init__(self, data):
        self.data = io.BytesIO(data)

    def readable(self):
        return True

    def read(self, n=-1):
        return self.data.read(n)


def value(v):
    if isinstance(v, dict) and set(v) == {"bytes"}:
        return b"x" * v["bytes"]
    if isinstance(v, dict) and set(v) == {"stream"}:
        return Stream(b"x" * v["stream"])
    if isinstance(v, dict) and set(v) == {"text"}:
        return v["text"].encode()
    return v


def plain(answer):
    answer.pop("ResponseMetadata", None)
    if "Body" in answer:
        answer["Body"] = answer["Body"].read().decode("latin-1")
    return answer


def main(endpoint, service, region, ca, calls):
    results = []
    for name, arguments, s3 in json.loads(calls):
        config = Config(s3={"addressing_style": "path", **s3}, retries={"max_attempts": 0}, connect_timeout=10, read_timeout=20)
        client = Session().create_client(service, region_name=region, endpoint_url=endpoint, verify=ca, config=config)
        try:
            results.append(plain(getattr(client, name)(**{k: value(v) for k, v in arguments.items()})))
        except (ClientError, HTTPClientError) as e:
            results.append({"error": str(e)})
    print(json.dumps(results, default=str))


main(*sys.argv[1:])
