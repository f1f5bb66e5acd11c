# SPDX-License-Identifier: Apache-2.0
"""A gRPC client in the guest's place: makes each kind of call, and prints what came of it as JSON. Arguments: HOST:PORT, the CA's file."""
import json
import sys
import threading

import grpc

target, authority = sys.argv[1:3]
found = {}
MANY = 200


def trailers(call):
    return {k: v.hex() if isinstance(v, bytes) else v for k, v in call.trailing_metadata() if not k.startswith("grpc-")}


def unary(channel):
    answer, call = channel.unary_unary("/test.Echo/Unary").with_call(
        b"hello", timeout=20, metadata=[("x-mine", "1"), ("authorization", "Bearer placeholder"), ("x-bin-bin", b"\x00\xff")])
    return {"answer": answer.decode(), "code": call.code().name, "trailers": trailers(call), "head": dict(call.initial_metadata())["x-head"]}


def failing(channel, method):
    try:
        channel.unary_unary(f"/test.Echo/{method}")(b"x", timeout=20)
    except grpc.RpcError as e:
        return {"code": e.code().name, "details": e.details(), "trailers": trailers(e)}
    return None


def server_stream(channel):
    call = channel.unary_stream("/test.Echo/Down")(b"%d" % MANY, timeout=20)
    return {"answers": [int(a) for a in call] == list(range(MANY)), "trailers": trailers(call)}


def client_stream(channel):
    answer = channel.stream_unary("/test.Echo/Up")((b"x" * i for i in range(MANY)), timeout=20)
    return {"bytes": int(answer)}


def ping_pong(channel):
    """Each message is sent when the last has been answered: what lies anywhere on the way holds up all."""
    turn, count = threading.Semaphore(1), 50

    def pings():
        for i in range(count):
            if not turn.acquire(timeout=20):
                return
            yield b"%d" % i
    call, answers = channel.stream_stream("/test.Echo/Both")(pings(), timeout=20), []
    for answer in call:
        answers.append(int(answer))
        turn.release()
    return {"answers": answers == list(range(count)), "trailers": trailers(call)}


def large(channel):
    data = bytes(range(256)) * 4096 * 8
    return {"same": channel.unary_unary("/test.Echo/Large")(data, timeout=60) == data}


def at_once(channel):
    calls = [channel.unary_unary("/test.Echo/Unary").future(b"%d" % i, timeout=30) for i in range(50)]
    return {"same": [int(c.result()) for c in calls] == list(range(50))}


def cancelled(channel):
    call = channel.unary_stream("/test.Echo/Hang")(b"x", timeout=20)
    first = next(call)
    call.cancel()
    return {"first": first.decode()}


def main():
    with open(authority, "rb") as f:
        credentials = grpc.ssl_channel_credentials(f.read())
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0)]
    with grpc.secure_channel(target, credentials, options) as channel:
        for name, act in [("unary", unary), ("aborted", lambda c: failing(c, "Abort")), ("unknown", lambda c: failing(c, "None")),
                          ("down", server_stream), ("up", client_stream), ("both", ping_pong), ("large", large), ("at_once", at_once),
                          ("cancelled", cancelled)]:
            if len(sys.argv) > 3 and name not in sys.argv[3:]:
                continue
            try:
                found[name] = act(channel)
            except grpc.RpcError as e:
                found[name] = {"failed": f"{e.code().name}: {e.details()}"}
    print(json.dumps(found))


main()
