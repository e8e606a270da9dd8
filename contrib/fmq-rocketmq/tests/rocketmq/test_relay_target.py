"""A relay into RocketMQ, tried on fmq's own server of its protocol."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.relay import MessageRefused, Relay, RelayError
from fmq.testing.relay import CASES, RelayWorld
from fmq_rocketmq.relay_target import RocketMQTarget
from fmq_rocketmq.testing import Broker, Caller

NUMBERS = count()
PACKAGE = Path(__file__).parent.parent.parent


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "outbox") as opened:
        yield opened


def relayed(engine: fmq.Engine, target: RocketMQTarget, **how: Any) -> None:
    relay = Relay(engine, target, topics=["t"], name="n", **how)
    try:
        relay.run(once=True)
    finally:
        relay.close()


@pytest.mark.parametrize("case", [*CASES])
def test_the_target_loses_nothing_and_keeps_the_order(rocketmq: Broker, case: str) -> None:
    """The server leaves out a message that has come before, as its message id is the same."""
    prefix, address = f"r{next(NUMBERS)}-", f"rocketmq://{rocketmq.address}"

    class System:
        def target(self) -> RocketMQTarget:
            return RocketMQTarget(world.engine, address, "n", prefix=prefix)

        def shown(self) -> list[Any]:
            return []

    world = RelayWorld(System)
    try:
        CASES[case](world)
        world.relay()
        found = [
            (each.headers or {})["fmq-id"].split("/")[1:]
            for topic in ("a", "b")
            for each in rocketmq.engine.read(prefix + topic)
        ]
        shown = [(topic, int(queue), int(offset)) for topic, queue, offset in found]
        assert shown == sorted(world.sent)
    finally:
        world.close()


def test_a_consumer_gets_all_that_a_message_has(rocketmq: Broker, engine: fmq.Engine) -> None:
    with engine.transaction(tx_id="T") as tx:
        tx.send("t", b"\0body", key="k", tag="paid", headers={"a": "ü"}, message_id="m")
    relayed(engine, RocketMQTarget(engine, f"rocketmq://{rocketmq.address}", prefix="all-"))
    (sent,) = engine.read("t")
    assert sent.origin is not None
    with Caller(rocketmq.address) as caller:
        (found,) = caller.receive("all-t")
    system = found.system_properties
    assert (found.body, system.tag, [*system.keys]) == (b"\0body", "paid", ["k"])
    assert len(system.message_id) == 34
    assert system.born_timestamp.ToMilliseconds() == sent.origin.time_us // 1000
    assert dict(found.user_properties) == {
        "a": "ü",
        "fmq-id": f"{engine.feedback.store}/t/0/0",
        "fmq-time": str(sent.origin.time_us),
        "fmq-key": "k",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "fmq-tx": "T",
        "fmq-tx-count": "1",
    }


def test_a_fifo_topic_gets_its_keys_as_message_groups(rocketmq: Broker, engine: fmq.Engine) -> None:
    engine.send("t", b"1", key="a key")
    engine.send("t", b"2")
    relayed(engine, RocketMQTarget(engine, f"rocketmq://{rocketmq.address}", fifo=["t"]))
    with Caller(rocketmq.address) as caller:
        groups = [each.system_properties.message_group for each in caller.receive("t")]
    assert groups == ["a key", "queue-0"]


def test_a_message_that_is_refused_is_named_and_may_be_parked(
    rocketmq: Broker, engine: fmq.Engine
) -> None:
    engine.send_many("t", [b"1", b"", b"3"])
    target = f"rocketmq://{rocketmq.address}"
    with pytest.raises(MessageRefused, match="t/0 offset 1"):
        relayed(engine, RocketMQTarget(engine, target, "n"))
    relayed(engine, RocketMQTarget(engine, target, "n"), on_refused="park")
    assert [each.body for each in rocketmq.engine.read("t")] == [b"1", b"3"]
    (letter,) = engine.dead_letters("relay-n")
    assert letter.offset == 1


def test_a_server_with_access_keys_takes_the_key_of_the_address(
    tmp_path: Path, engine: fmq.Engine
) -> None:
    engine.send("t", b"1")
    with Broker(tmp_path / "b", keys={"me": "s/cret"}) as broker:
        with pytest.raises(RelayError, match="KEY:SECRET"):
            relayed(engine, RocketMQTarget(engine, f"rocketmq://{broker.address}", "n"))
        relayed(engine, RocketMQTarget(engine, f"rocketmq://me:s%2Fcret@{broker.address}", "n"))
        assert [each.body for each in broker.engine.read("t")] == [b"1"]


@pytest.mark.parametrize("address", ["rocketmq://", "rocketmq://host", "kafka://a:secret@host:1"])
def test_an_address_that_is_none_is_refused_without_its_secret(address: str) -> None:
    with pytest.raises(fmq.BadOption) as caught:
        RocketMQTarget(None, address)
    assert "secret" not in str(caught.value)


def test_fmq_relay_finds_the_target_of_an_installed_package(
    rocketmq: Broker, tmp_path: Path, installed: str
) -> None:
    """Once with the package, and once without it."""
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"1")
    command = [sys.executable, "-m", "fmq", "relay", str(tmp_path / "d"), "--topics", "t", "--once"]
    command += ["--to", f"rocketmq://{rocketmq.address}"]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode != 0
    assert "pip install fmq-rocketmq" in run.stderr
    environment = os.environ | {"PYTHONPATH": installed}
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert [each.body for each in rocketmq.engine.read("t")] == [b"1"]


@pytest.mark.skipif(find_spec("rocketmq") is None, reason="needs rocketmq-python-client")
def test_the_example_does_what_has_come_twice_once(
    rocketmq: Broker, engine: fmq.Engine, tmp_path: Path
) -> None:
    """Method: what a relay sends again comes under another message id, as RocketMQ keeps it."""
    engine.send_many("t", [b"1", b"2"])
    relayed(engine, RocketMQTarget(engine, f"rocketmq://{rocketmq.address}", "n"))
    with Caller(rocketmq.address) as caller:
        for each in rocketmq.engine.read("t"):
            caller.send("t", each.body, properties={"fmq-id": (each.headers or {})["fmq-id"]})
    assert len(rocketmq.engine.read("t")) == 4
    program = PACKAGE / "examples" / "drop_repeats.py"
    command = [sys.executable, str(program), rocketmq.address, "t", str(tmp_path / "db")]
    subprocess.run(command, check=True, timeout=120)
    database = sqlite3.connect(tmp_path / "db")
    assert database.execute("SELECT body FROM work ORDER BY body").fetchall() == [(b"1",), (b"2",)]
    database.close()
    assert rocketmq.engine.groups("once")[0].unread == 0
