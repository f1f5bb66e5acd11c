# SPDX-License-Identifier: Apache-2.0
"""Real clients in a microVM through its gateway: what the image trusts, and what its own clients make of it.

With SPACE_CLIENTS=1 also clients that the image base does not have (Node, npm, requests, httpx, aiohttp, gRPC, a program in Go), in an
image that is built for them first, which takes a minute; with nginx and gRPC servers where the host has them.
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import textwrap
import time

import pytest

from node import DEADLINE, new_node
from origin import Origin

BUNDLE, CA = "/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates/space.crt"
VARIABLES = {
    "SSL_CERT_FILE": BUNDLE, "SSL_CERT_DIR": "/etc/ssl/certs", "CURL_CA_BUNDLE": BUNDLE, "REQUESTS_CA_BUNDLE": BUNDLE, "PIP_CERT": BUNDLE,
    "GIT_SSL_CAINFO": BUNDLE, "NODE_EXTRA_CA_CERTS": CA, "NODE_USE_SYSTEM_CA": "1", "DENO_CERT": CA, "DENO_TLS_CA_STORE": "system,mozilla",
    "CARGO_HTTP_CAINFO": BUNDLE, "UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true", "AWS_CA_BUNDLE": BUNDLE,
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": BUNDLE, "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": BUNDLE, "HTTPLIB2_CA_CERTS": BUNDLE,
    "NIX_SSL_CERT_FILE": BUNDLE}
MORE = ["nodejs", "npm", "python3-requests", "python3-httpx", "python3-aiohttp", "python3-grpcio", "python3-h2"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


class NginxServer:
    """h2 and h1 over TLS with the origin's certificate."""

    CONFIG = """daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr error; user root;
        events {{ worker_connections 64; }}
        http {{ access_log {dir}/nginx.log; client_body_temp_path {dir}/1; proxy_temp_path {dir}/2; fastcgi_temp_path {dir}/3;
          uwsgi_temp_path {dir}/4; scgi_temp_path {dir}/5; root {dir}/files;
          server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem; }} }}"""

    def __init__(self, origin):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        config = pathlib.Path(origin.dir.name) / "nginx.conf"
        config.write_text(self.CONFIG.format(dir=origin.dir.name, port=self.port))
        self.log = pathlib.Path(origin.dir.name) / "nginx.log"
        self.url = f"https://{origin.host}:{self.port}"
        self.process = subprocess.Popen(["nginx", "-c", config], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert self.process.poll() is None and time.monotonic() < deadline, "nginx does not listen"

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def origin():
    o = Origin()
    yield o
    o.close()


@pytest.fixture(scope="module")
def nginx(origin):
    if not shutil.which("nginx"):
        yield None
        return
    server = NginxServer(origin)
    yield server
    server.close()


def start(node, origin, tmp_path_factory, image, *ports):
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(origin.policy(*ports))
    name = f"clients-{image}-{os.getpid()}"
    node.ok("run", "-d", "--name", name, "--image", image, "--policy", path, "--", "sleep", "100000")
    return name


@pytest.fixture(scope="module")
def box(node, origin, nginx, tmp_path_factory):
    name = start(node, origin, tmp_path_factory, "base", *([nginx.port] if nginx else []))
    yield name
    node.space("rm", "-f", name)


@pytest.fixture
def sh(node, box):
    return lambda script, user="user": node.ok("exec", "-u", user, box, "--", "bash", "-c", script)


# -- what the image trusts --


@pytest.mark.conformance("trust: store")
def test_trust_the_authority_is_in_the_system_store(sh):
    assert sh(f"openssl verify -CApath /etc/ssl/certs {CA}").strip().endswith(": OK")
    ours = "".join(sh(f"openssl x509 -in {CA}").split())
    assert ours in "".join(sh(f"cat {BUNDLE}").split())


@pytest.mark.conformance("trust: ca")
def test_trust_the_authority_is_one_that_strict_verifiers_take(sh):
    text = sh(f"openssl x509 -in {CA} -noout -text")
    assert re.search(r"Basic Constraints: critical\s+CA:TRUE", text)
    assert re.search(r"Key Usage: critical\s+Certificate Sign(, CRL Sign)?\n", text)
    assert "X509v3 Subject Key Identifier" in text


@pytest.mark.conformance("trust: variables")
def test_trust_every_process_has_the_variables(sh):
    env = dict(line.split("=", 1) for line in sh("env").splitlines() if "=" in line)
    assert {name: env.get(name) for name in VARIABLES} == VARIABLES
    java = sh("test -e /etc/ssl/certs/java/cacerts && echo yes || echo no").strip()
    assert ("JAVA_TOOL_OPTIONS" in env) == (java == "yes")


@pytest.mark.conformance("trust: files")
def test_trust_files_say_so_where_variables_do_not_reach(sh):
    lines = sh("cat /etc/environment").splitlines()
    assert all(f"{name}={value}" in lines for name, value in VARIABLES.items())
    env = dict(line.split("=", 1) for line in sh("sudo env").splitlines() if "=" in line)
    assert {name: env.get(name) for name in VARIABLES} == VARIABLES
    assert f"cert = {BUNDLE}" in sh("cat /etc/pip.conf")
    assert sh("env -i git config --system http.sslCAInfo").strip() == BUNDLE
    assert f'Acquire::https::CAInfo "{BUNDLE}"' in sh("apt-config dump")


# -- clients of the image base --


@pytest.mark.conformance("trust: system-clients")
def test_clients_that_need_the_system_store_alone(sh, origin):
    url = origin.url + "/hello"
    assert sh(f"env -i curl -sS {url}") == "hello, world\n"
    assert sh(f"env -i wget -qO- {url}") == "hello, world\n"
    assert sh(f"env -i python3 -c 'import urllib.request as u; print(u.urlopen(\"{url}\").read())'") == "b'hello, world\\n'\n"


@pytest.mark.conformance("trust: system-clients")
def test_clients_git_clones_and_pushes(sh, origin):
    out = sh(f"cd $(mktemp -d) && env -i PATH=$PATH git clone -q {origin.url}/git/demo.git && cd demo && cat README && git config user.name a && "
             "git config user.email a@b && dd if=/dev/urandom of=big bs=1M count=3 status=none && git add big && git commit -q -m second && "
             "git push -q && git fetch && git log --format=%s origin/main")
    assert out.split() == ["cloned", "second", "first"]


@pytest.mark.conformance("trust: system-clients")
def test_clients_apt_updates_and_installs(sh, origin):
    out = sh("cp -r /etc/apt /tmp/apt && rm -f /tmp/apt/sources.list /tmp/apt/sources.list.d/* && "
             f"echo 'deb [trusted=yes] {origin.url}/apt stable main' >/tmp/apt/sources.list && "
             "apt-get -qq -o Dir::Etc=/tmp/apt update && apt-get -qq -y -o Dir::Etc=/tmp/apt install spacedemo >/tmp/log 2>&1 && "
             "cat /usr/share/spacedemo/text", user="root")
    assert out == "from apt\n"


def test_clients_curl_speaks_both_versions(sh, origin, nginx):
    for url in [origin.url] + ([nginx.url] if nginx else []):
        for option, version in (("--http1.1", "1.1"), ("--http2", "2")):
            assert sh(f"curl -sS {option} -w '%{{http_version}}' {url}/hello") == "hello, world\n" + version
    many = " ".join(f"{origin.url}/hello" for _ in range(20))
    assert sh(f"curl -sS --http2 -Z {many}").count("hello") == 20


def test_clients_an_upload_and_a_download(sh, origin):
    (origin.files / "large").write_bytes(os.urandom(1 << 20) * 8)
    out = sh(f"for v in --http1.1 --http2; do curl -sS $v {origin.url}/large | sha256sum; done; "
             f"head -c 4000000 /dev/zero | tr '\\0' x | curl -sS -H 'Expect: 100-continue' --data-binary @- {origin.url}/echo | wc -c").split()
    want = subprocess.run(["sha256sum", origin.files / "large"], capture_output=True, text=True, check=True).stdout.split()[0]
    assert out[0] == out[2] == want and int(out[4]) > 4000000


@pytest.mark.conformance("trust: variable-clients")
def test_clients_requests_that_pip_brings(sh, origin):
    """pip itself is in test_keys.py."""
    assert sh(f"python3 -c 'from pip._vendor import requests; print(requests.get(\"{origin.url}/hello\").text, end=\"\")'") == "hello, world\n"


def test_clients_a_websocket(sh, origin):
    program = textwrap.dedent(f"""
        import base64, os, socket, ssl
        s = ssl.create_default_context().wrap_socket(socket.create_connection(("{origin.host}", {origin.port})), server_hostname="{origin.host}")
        key = base64.b64encode(os.urandom(16)).decode()
        s.sendall(f"GET /socket HTTP/1.1\\r\\nHost: {origin.host}:{origin.port}\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                  f"Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: {{key}}\\r\\n\\r\\n".encode())
        f = s.makefile("rb")
        print(f.readline().decode().split()[1])
        while f.readline() != b"\\r\\n":
            pass
        for text in (b"one", b"two"):
            s.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)
            print(f.read(2 + len(text))[2:].decode())
        """)
    assert sh(f"python3 - <<'END'\n{program}\nEND").split() == ["101", "one", "two"]


def test_clients_events(sh, origin):
    assert sh(f"curl -sSN {origin.url}/events").split() == ["data:", "0", "data:", "1", "data:", "2"]


# -- clients that base does not have --


@pytest.fixture(scope="module")
def more_node(tmp_path_factory):
    if not os.environ.get("SPACE_CLIENTS"):
        pytest.skip("builds an image: set SPACE_CLIENTS=1")
    recipes = tmp_path_factory.mktemp("recipes")
    shutil.copytree(ROOT / "images/base", recipes / "clients")
    recipe = recipes / "clients/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("packages:\n", "packages:\n" + "".join(f"  - {p}\n" for p in MORE)))
    with new_node(ready=0, templates=False) as n:
        (n.state / "images").unlink()
        n.ok("image", "build", "clients", env={"SPACE_RECIPES": str(recipes)}, timeout=600)
        yield n


@pytest.fixture(scope="module")
def grpc_port(origin):
    """A gRPC server that answers each message of a stream with it, in capitals; None without python3-grpcio on this host."""
    try:
        import grpc
    except ImportError:
        yield None
        return
    from concurrent import futures

    class Echo(grpc.GenericRpcHandler):
        def service(self, details):
            def talk(messages, context):
                fields = dict(context.invocation_metadata())
                for message in messages:
                    yield message.upper()
                context.set_trailing_metadata((("x-agent", fields.get("x-agent", "")),))
            return grpc.stream_stream_rpc_method_handler(talk)
    server = grpc.server(futures.ThreadPoolExecutor(4), (Echo(),))
    files = [pathlib.Path(path).read_bytes() for path in (origin.key, origin.certificate)]
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([files]))
    server.start()
    yield port
    server.stop(None)


@pytest.fixture(scope="module")
def more_box(more_node, origin, nginx, grpc_port, tmp_path_factory):
    ports = [p for p in (nginx and nginx.port, grpc_port) if p]
    yield start(more_node, origin, tmp_path_factory, "clients", *ports)


@pytest.fixture
def more(more_node, more_box):
    return lambda script, timeout=DEADLINE: more_node.ok("exec", more_box, "--", "bash", "-c", script, timeout=timeout)


def python(program):
    return f"python3 - <<'END'\n{textwrap.dedent(program)}\nEND"


@pytest.mark.conformance("trust: variable-clients")
@pytest.mark.parametrize("program", [
    "import requests; print(requests.get(URL).text, end='')",
    "import httpx; print(httpx.get(URL).text, end='')",
    "import httpx; print(httpx.Client(http2=True).get(URL).text, end='')",
    """
    import aiohttp, asyncio, ssl
    async def main():
        async with aiohttp.ClientSession() as session, session.get(URL) as answer:
            print(await answer.text(), end='')
    asyncio.run(main())
    """], ids=["requests", "httpx", "httpx-h2", "aiohttp"])
def test_clients_python_libraries(more, origin, program):
    assert more(python(f"URL = '{origin.url}/hello'\n" + textwrap.dedent(program))) == "hello, world\n"


@pytest.mark.conformance("trust: variable-clients")
def test_clients_node_fetches(more, origin):
    program = (f"fetch('{origin.url}/echo',{{method:'POST',body:'x'.repeat(100000)}}).then(r=>r.json())"
               ".then(j=>console.log(j.body.length))")
    assert more(f'node -e "{program}"').strip() == "100000"
    program = f"const s=require('http2').connect('{origin.url}').request({{':path':'/hello'}});s.on('data',d=>process.stdout.write(d));s.on('end',()=>process.exit())"
    assert more(f'node -e "{program}"') == "hello, world\n"


def test_clients_npm_installs(more, origin):
    options = f"--registry {origin.url}/npm --no-audit --no-fund --no-update-notifier --loglevel error"
    # minutes under emulation on a busy host
    out = more(f"cd $(mktemp -d) && npm {options} install spacedemo && node -e 'require(\"spacedemo\")'", timeout=900)
    assert "from npm" in out


def test_clients_grpc_streams_both_ways(more, origin, grpc_port):
    if not grpc_port:
        pytest.skip("needs python3-grpcio")
    program = f"""
        import grpc, os
        roots = open(os.environ['GRPC_DEFAULT_SSL_ROOTS_FILE_PATH'], 'rb').read()
        channel = grpc.secure_channel('{origin.host}:{grpc_port}', grpc.ssl_channel_credentials(roots))
        call = channel.stream_stream('/test.Echo/Talk')(iter([b'one', b'two', b'three' * 30000]), metadata=(('x-agent', 'me'),))
        print([len(m) for m in call], call.code(), dict(call.trailing_metadata()))
        """
    assert more(python(program)).strip() == "[3, 3, 150000] StatusCode.OK {'x-agent': 'me'}"


def test_clients_a_program_in_go(more_node, more_box, more, origin, tmp_path):
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if not go:
        pytest.skip("needs a Go compiler")
    (tmp_path / "main.go").write_text(textwrap.dedent("""
        package main

        import ("fmt"; "io"; "net/http"; "os")

        func main() {
            for range [2]int{} {
                r, e := http.Get(os.Args[1])
                if e != nil { fmt.Println(e); os.Exit(1) }
                b, _ := io.ReadAll(r.Body)
                fmt.Print(r.ProtoMajor, " ", string(b))
            }
        }
        """))
    subprocess.run([go, "build", "-o", "fetch", "main.go"], cwd=tmp_path, check=True,
                   env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off"})
    more_node.ok("cp", tmp_path / "fetch", f"{more_box}:/home/user/fetch")
    assert more(f"chmod +x fetch && ./fetch {origin.url}/hello") == "2 hello, world\n" * 2
