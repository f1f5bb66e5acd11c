# SPDX-License-Identifier: Apache-2.0
"""gRPC through the gateway: a real server outside, a real client in the guest's place, every kind of call."""
import concurrent.futures
import contextlib
import json
import pathlib
import socket
import ssl
import threading

import pytest

grpc = pytest.importorskip("grpc", reason="needs python3-grpcio")
HERE = pathlib.Path(__file__).parent
SECRET = [{"name": "T", "value": "value-of-t", "hosts": ["key.test"]}]


class Server:
    def __init__(self, world):
        self.metadata, self.cancelled = {}, threading.Event()
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self._unary), "Abort": grpc.unary_unary_rpc_method_handler(self._abort),
            "Down": grpc.unary_stream_rpc_method_handler(self._down), "Up": grpc.stream_unary_rpc_method_handler(self._up),
            "Both": grpc.stream_stream_rpc_method_handler(self._both), "Large": grpc.unary_unary_rpc_method_handler(lambda data, _: data),
            "Hang": grpc.unary_stream_rpc_method_handler(self._hang)}
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=options)
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", handlers)])
        certificate, key = (pathlib.Path(p).read_bytes() for p in world.outside.server("grpc", ["api.test", "key.test"]))
        self.port = self._server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
        self._server.start()

    def close(self):
        self._server.stop(None).wait(10)

    def _unary(self, data, context):
        metadata = dict(context.invocation_metadata())
        if "x-mine" in metadata:
            self.metadata = metadata
        context.send_initial_metadata([("x-head", "first")])
        context.set_trailing_metadata([("x-tail", "last"), ("x-tail-bin", b"\x00\x01")])
        return data

    def _abort(self, _data, context):
        context.set_trailing_metadata([("x-tail", "aborted")])
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today, and never mit Umlaut \u00e4")

    def _down(self, data, context):
        for i in range(int(data)):
            yield b"%d" % i
        context.set_trailing_metadata([("x-tail", "down")])

    def _up(self, pieces, _context):
        return b"%d" % sum(len(p) for p in pieces)

    def _both(self, pieces, context):
        yield from pieces
        context.set_trailing_metadata([("x-tail", "both")])

    def _hang(self, _data, context):
        context.add_callback(self.cancelled.set)
        yield b"first"
        self.cancelled.wait(20)


def speaks_http2(world, make_lab):
    """Whether the gateway offers HTTP/2 to guests and to servers."""
    offered = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*world.outside.server("alpn", ["api.test"]))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            sock, _ = listener.accept()
            with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as secure:
                offered.append(secure.selected_alpn_protocol())
            sock.close()
        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        lab = make_lab({"egress": [{"host": "api.test", "ports": [port]}], "resolve": [world.pin("api.test", world.outside)]})
        lab.get("api.test", port)
        thread.join(20)
        with lab.tls("api.test", port, alpn=["h2", "http/1.1"]) as guest:
            offered.append(guest.selected_alpn_protocol())
    return offered == ["h2", "h2"]


@pytest.fixture
def server(world, own_lab):
    if not speaks_http2(world, own_lab):
        pytest.skip("this gateway does not speak HTTP/2 on both sides")
    s = Server(world)
    yield s
    s.close()


def policy(world, server, *rules, **members):
    return {"egress": [{"host": "api.test", "ports": [server.port], **rule} for rule in rules or ({},)],
            "resolve": [world.pin(h, world.outside) for h in ("api.test", "key.test")], **members}


def client(lab, host, server, *names):
    run = lab.run("env", "GRPC_DNS_RESOLVER=native", "GRPC_VERBOSITY=NONE", "/usr/bin/python3", HERE / "grpc_client.py",
                  f"{host}:{server.port}", lab.authority.pem, *names)
    return json.loads(run.stdout)


@pytest.mark.conformance("http2: grpc")
def test_grpc_every_kind_of_call_passes_with_its_trailers(own_lab, world, server):
    lab = own_lab(policy(world, server))
    found = client(lab, "api.test", server)
    assert found["unary"] == {"answer": "hello", "code": "OK", "head": "first", "trailers": {"x-tail": "last", "x-tail-bin": "0001"}}
    assert server.metadata["x-mine"] == "1" and server.metadata["x-bin-bin"] == b"\x00\xff"
    assert server.metadata["authorization"] == "Bearer placeholder"
    assert found["aborted"] == {"code": "FAILED_PRECONDITION", "details": "not today, and never mit Umlaut \u00e4",
                                "trailers": {"x-tail": "aborted"}}
    assert found["unknown"]["code"] == "UNIMPLEMENTED"
    assert found["down"] == {"answers": True, "trailers": {"x-tail": "down"}}
    assert found["up"] == {"bytes": sum(range(200))}
    assert found["both"] == {"answers": True, "trailers": {"x-tail": "both"}}
    assert found["large"] == {"same": True} and found["at_once"] == {"same": True}
    assert found["cancelled"] == {"first": "first"} and server.cancelled.wait(20)
    record = lab.wait_record("egress.request", path="/test.Echo/Both")
    assert record["method"] == "POST"
    assert lab.wait_record("egress.response", id=record["id"])["status"] == 200


@pytest.mark.conformance("http2: grpc")
def test_grpc_a_credential_is_put_in(own_lab, world, server):
    lab = own_lab(policy(world, server, {"host": "key.test"}), SECRET)
    found = client(lab, "key.test", server, "unary", "both")
    assert found["unary"]["code"] == "OK" and found["both"]["answers"]
    assert server.metadata["authorization"] == "Bearer value-of-t"


def test_grpc_methods_are_paths_and_a_refusal_is_an_error(own_lab, world, server):
    lab = own_lab(policy(world, server, {"methods": ["POST"], "paths": ["/test.Echo/Unary"]}))
    found = client(lab, "api.test", server, "unary", "down")
    assert found["unary"]["code"] == "OK"
    assert "PERMISSION_DENIED" in found["down"]["failed"]
    lab.wait_record("egress.deny", path="/test.Echo/Down")
