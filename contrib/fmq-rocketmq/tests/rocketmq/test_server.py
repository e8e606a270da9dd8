"""The door itself: all calls are answered, who may call, and what it does with wrong requests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from shutil import which
from typing import Any

import grpc
import pytest

import fmq
import fmq_rocketmq
from fmq_rocketmq import protocol
from fmq_rocketmq.access import read_keys
from fmq_rocketmq.protocol import Code
from fmq_rocketmq.server import UNSUPPORTED
from fmq_rocketmq.testing import Answered, Broker, Caller

STREAMS = {"ReceiveMessage", "PullMessage"}
UNARY = [each.name for each in protocol.calls() if each.name not in STREAMS | {"Telemetry"}]
PACKAGE = Path(fmq_rocketmq.__file__).parent.parent
ROOT = Path(fmq.__file__).parent.parent


def status_of(caller: Caller, name: str, data: bytes) -> int:
    call = next(each for each in protocol.calls() if each.name == name)
    answer = protocol.class_of(call.output_type).FromString(caller.call_with_bytes(name, data))
    code: int = answer.status.code
    return code


def test_the_protocol_has_seventeen_calls_and_each_is_answered(rocketmq: Broker) -> None:
    """An empty request is refused by most calls, and none leaves its status out."""
    assert len(protocol.calls()) == 17
    with Caller(rocketmq.address) as caller:
        found = {name: status_of(caller, name, b"") for name in UNARY}
        refused = {name for name, code in found.items() if code == Code.UNSUPPORTED}
        assert refused == set(UNSUPPORTED) - STREAMS
        assert {name for name, code in found.items() if code == Code.OK} == {
            *("Heartbeat", "NotifyClientTermination")
        }
        assert 0 not in found.values()
        (pulled,) = caller.stream("PullMessage")
        assert pulled.status.code == Code.UNSUPPORTED
        assert "Nothing was changed" in pulled.status.message


@pytest.mark.parametrize("name", UNARY)
def test_bytes_that_are_no_request_are_refused_and_others_are_unharmed(
    rocketmq: Broker, name: str
) -> None:
    with Caller(rocketmq.address) as caller:
        for data in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", os.urandom(64) + b"\xff"):
            assert status_of(caller, name, data) in (
                *(Code.BAD_REQUEST, Code.OK, Code.UNSUPPORTED),
                *(Code.ILLEGAL_TOPIC, Code.ILLEGAL_CONSUMER_GROUP, Code.INVALID_TRANSACTION_ID),
            )
        assert status_of(caller, name, b"\xff") == Code.BAD_REQUEST
        assert caller.send("orders", b"1").status.code == Code.OK


def test_a_call_without_a_client_id_is_refused(rocketmq: Broker) -> None:
    with Caller(rocketmq.address, "") as caller:
        assert caller.send("orders", b"1").status.code == Code.CLIENT_ID_REQUIRED
        with pytest.raises(Answered) as caught:
            caller.receive("orders")
        assert caught.value.code == Code.CLIENT_ID_REQUIRED


def test_a_route_leads_back_to_where_the_client_came_from(rocketmq: Broker) -> None:
    came = {"scheme": 1, "addresses": [{"host": "10.1.2.3", "port": 99}]}
    with Caller(rocketmq.address) as caller:
        topic, group = {"name": "orders"}, {"name": "g"}
        (queue,) = caller.call("QueryRoute", topic=topic, endpoints=came).message_queues
        assert queue.broker.endpoints.addresses[0].host == "10.1.2.3"
        assert queue.topic.name == "orders"
        assigned = caller.call("QueryAssignment", topic=topic, group=group).assignments
        address = assigned[0].message_queue.broker.endpoints.addresses[0]
        assert f"{address.host}:{address.port}" == rocketmq.address


def test_a_namespace_is_a_prefix(rocketmq: Broker) -> None:
    name = {"resource_namespace": "shop", "name": "orders"}
    made = protocol.Message(topic=name, body=b"1")
    made.system_properties.message_id = "id"
    with Caller(rocketmq.address) as caller:
        caller.call("SendMessage", messages=[made])
        found = caller.stream(
            "ReceiveMessage",
            group=name,
            message_queue={"topic": name},
            batch_size=1,
            auto_renew=True,
        )
    assert len(rocketmq.engine.read("shop%orders")) == 1
    assert found[1].message.topic.resource_namespace == "shop"
    assert found[1].message.topic.name == "orders"


def test_only_a_client_with_a_key_is_served(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"ak": "secret"}))
    keys.chmod(0o600)
    with Broker(tmp_path / "a", keys_file=str(keys)) as broker:
        for key, code in (
            (("ak", "secret"), Code.OK),
            (("ak", "other"), Code.UNAUTHORIZED),
            (("other", "secret"), Code.UNAUTHORIZED),
            (("", ""), Code.UNAUTHORIZED),
            (None, Code.UNAUTHORIZED),
        ):
            with Caller(broker.address, key=key) as caller:
                assert caller.send("orders", b"1").status.code == code
                stream = caller.telemetry()
                assert (stream.publishes("orders").status.code == Code.OK) == (code == Code.OK)
                stream.close()
        assert len(broker.engine.read("orders")) == 1


@pytest.mark.skipif(which("openssl") is None, reason="openssl is missing, which makes certificates")
def test_with_a_certificate_a_client_must_speak_tls(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    made += ["-nodes", "-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, check=True, capture_output=True)
    how: dict[str, Any] = {"tls_cert": str(cert), "tls_key": str(key)}
    with Broker(tmp_path / "a", **how) as broker:
        with Caller(broker.address, tls_cert=cert.read_bytes()) as caller:
            assert caller.send("orders", b"1").status.code == Code.OK
        with Caller(broker.address) as caller, pytest.raises(grpc.RpcError):
            caller.send("orders", b"2")
        assert len(broker.engine.read("orders")) == 1


def test_a_file_of_keys_that_others_read_or_that_has_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    for text, mode in (('{"ak": "s"}', 0o644), ("[]", 0o600), ('{"ak": 1}', 0o600), ("{}", 0o600)):
        file.write_text(text)
        file.chmod(mode)
        with pytest.raises(fmq.BadOption, match="Nothing was opened"):
            read_keys(str(file))


@pytest.mark.parametrize(
    ("where", "how"),
    [
        ("0.0.0.0:0", {}),
        ("example.org:0", {}),
        ("0.0.0.0:0", {"keys": {"ak": "secret"}}),
        ("127.0.0.1", {}),
        ("127.0.0.1:x", {}),
        (":1", {}),
        ("127.0.0.1:0", {"tls_cert": "x"}),
        ("127.0.0.1:0", {"workers": 1}),
    ],
)
def test_a_door_that_would_be_wrong_is_not_opened(
    tmp_path: Path, where: str, how: dict[str, object]
) -> None:
    with fmq.open(tmp_path / "a") as engine, pytest.raises(fmq.BadOption, match="Nothing was"):
        fmq_rocketmq.serve(engine, where, **how)  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_an_error(rocketmq: Broker) -> None:
    with pytest.raises(OSError, match="cannot listen"):
        fmq_rocketmq.serve(rocketmq.engine, rocketmq.address)


def waits(engine: fmq.Engine) -> bool:
    """Return whether a member of the group waits in a poll."""
    try:
        return any(each.seen_seconds == 0 for each in engine.group("group").members())
    except fmq.UnknownGroup:
        return False


def test_a_close_ends_polls_and_streams_at_once(tmp_path: Path) -> None:
    """A receive that would wait for 20 s and an open stream do not hold it up."""
    with Broker(tmp_path / "a") as broker, Caller(broker.address) as caller:
        broker.engine.create_topic("orders")
        stream = caller.telemetry()
        stream.publishes("orders")
        found: list[object] = []
        poll = threading.Thread(target=lambda: found.append(caller.receive("orders", wait=20.0)))
        poll.start()
        while not waits(broker.engine):
            pass
        broker.server.close()
        broker.server.close()
        poll.join()
        with pytest.raises(StopIteration):
            stream.next()
    assert len(found) == 1


def test_fmq_serve_opens_the_door(tmp_path: Path, installed: str) -> None:
    options = ("--rocketmq-options", json.dumps({"fifo_groups": ["g"]}))
    command = (sys.executable, "-m", "fmq", "serve", str(tmp_path / "d"))
    server = subprocess.Popen(
        [*command, "--rocketmq", "127.0.0.1:0", *options],
        env=os.environ | {"PYTHONPATH": installed},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        note, address = "", None
        while address is None and (line := server.stderr.readline()):
            note += line
            address = re.search(r"RocketMQ's clients at (127\.0\.0\.1:\d+)", note)
        assert address is not None, note
        with Caller(address[1]) as caller:
            assert caller.send("orders", b"1").status.code == Code.OK
            stream = caller.telemetry()
            assert stream.subscribes("g").settings.subscription.fifo
            stream.close()
        with fmq.connect(tmp_path / "d") as engine:
            assert [each.body for each in engine.read("orders")] == [b"1"]
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        assert server.returncode == 0
    finally:
        server.kill()
        server.communicate()
