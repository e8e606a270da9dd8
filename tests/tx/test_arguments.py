"""What is no name, no queue, no text is refused before anything is changed, in all ways to send."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

import fmq
from fmq import Engine, Message
from fmq.errors import BadName, BadOption, TooLarge
from tests.small import CrashDisk, bodies, check, opened

Send = Callable[..., Any]


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk, queues=2) as engine:
        engine.send("old", b"before", queue=0)
        yield engine
        engine.send("old", b"after", queue=0)
        assert bodies(engine, "old") == [b"before", b"after"]
    check(disk)
    with opened(disk) as engine:
        assert bodies(engine, "old") == [b"before", b"after"]
        assert [info.topic for info in engine.queues()] == ["old", "old"]


def ways(engine: Engine) -> list[Send]:
    """Each takes what `send` takes."""

    def many(topic: str, body: Any, *, queue: Any = None, **carried: Any) -> None:
        engine.send_many(topic, [Message(body, **carried)], queue=queue)

    def in_transaction(topic: str, body: Any, **more: Any) -> None:
        with engine.transaction() as tx:
            tx.send(topic, body, **more)

    def many_in_transaction(topic: str, body: Any, *, queue: Any = None, **carried: Any) -> None:
        with engine.transaction() as tx:
            tx.send_many(topic, [Message(body, **carried)], queue=queue)

    return [engine.send, many, in_transaction, many_in_transaction]


@pytest.mark.parametrize("queue", [0.0, 1.0, Decimal(1), "0"])
@pytest.mark.parametrize("topic", ["old", "new"])
def test_a_queue_that_is_no_int(engine: Engine, topic: str, queue: object) -> None:
    """A float that is equal to one would do until a list is asked for its element."""
    for send in ways(engine):
        with pytest.raises(TypeError, match="queue"):
            send(topic, b"x", queue=queue)
    with pytest.raises(TypeError, match="queue"):
        engine.send_many(topic, [b"x"], queue=queue)  # type: ignore[arg-type]


@pytest.mark.parametrize("sync", ["never", "always", "", 0, 1, ()], ids=repr)
def test_a_sync_that_is_neither_true_nor_false(engine: Engine, sync: Any) -> None:
    """A mode in its place, "never" above all, would be taken for the opposite of what it says."""
    with engine.consumer("old", group="g") as consumer:
        (delivery,) = consumer.poll()
        for call in (
            lambda: engine.send("old", b"x", sync=sync),
            lambda: engine.send_many("new", [b"x"], sync=sync),
            lambda: delivery.ack(sync=sync),
        ):
            with pytest.raises(TypeError, match=r"sync=.*True, False or None"):
                call()
        delivery.ack()


@pytest.mark.parametrize(
    "carried",
    [
        {"key": 5},
        {"tag": b"x"},
        {"headers": {"a": 1}},
        {"headers": {1: "a"}},
        {"headers": [("a", "b")]},
        {"headers": "x"},
    ],
    ids=str,
)
def test_what_is_no_text(engine: Engine, carried: dict[str, Any]) -> None:
    for send in ways(engine):
        with pytest.raises(TypeError):
            send("old", b"x", **carried)


@pytest.mark.parametrize(
    "carried", [{"key": "\ud800"}, {"tag": "\ud800"}, {"headers": {"a": "\ud800"}}], ids=repr
)
def test_text_that_utf8_cannot_write(engine: Engine, carried: dict[str, Any]) -> None:
    for send in ways(engine):
        with pytest.raises(BadName):
            send("old", b"x", **carried)


def test_a_transaction_sends_what_was_there_when_it_was_told_to() -> None:
    with opened(CrashDisk()) as engine:
        headers, body = {"n": ""}, bytearray(1)
        with engine.transaction() as tx:
            for number in range(3):
                headers["n"], body[:] = str(number), b"%d" % number
                tx.send("t", body, headers=headers)
                tx.send_many("t", [Message(body, headers=headers), body])
        found = engine.read("t")
        assert [message.body for message in found] == [b"%d" % (i // 3) for i in range(9)]
        assert [message.headers for message in found] == [
            None if i % 3 == 2 else {"n": str(i // 3)} for i in range(9)
        ]


def test_views_of_wide_items_are_as_large_as_their_bytes() -> None:
    with opened(CrashDisk(), message_bytes_max=100) as engine:
        wide = memoryview(array("Q", [0] * 13))
        for send in (engine.send, lambda topic, body: engine.send_many(topic, [b"", body])):
            with pytest.raises(TooLarge, match="104"):
                send("t", wide)
        engine.send_many("t", [bytes(60), bytes(60)])
        assert [len(body) for body in bodies(engine, "t")] == [60, 60]


@pytest.mark.parametrize("place", [{"queue": -1}, {"offset": -1}, {"limit": 0}], ids=str)
def test_a_place_where_nothing_can_be(place: dict[str, int]) -> None:
    """A negative number is no damage, and no way to count from the end."""
    disk = CrashDisk()
    with opened(disk, queues=4) as engine:
        engine.send("t", b"x", queue=3)
        engine.checkpoint()
        with fmq.open("data", read_only=True, disk=disk) as reader:
            for one in (engine, reader):
                with pytest.raises(BadOption, match=next(iter(place))):
                    one.read_batch("t", **place)
                if place != {"limit": 0}:
                    with pytest.raises(BadOption, match=next(iter(place))):
                        one.read("t", **place)
                with pytest.raises(TypeError):
                    one.read_batch("t", **dict.fromkeys(place, 1.5))  # type: ignore[arg-type]
                assert one.read("t", limit=0) == []


@pytest.mark.parametrize(
    ("reason", "error"), [("\udcff", BadName), (5, TypeError), ("r" * 1025, TooLarge)]
)
def test_a_reason_that_no_record_can_hold(reason: Any, error: type[Exception]) -> None:
    with opened(CrashDisk()) as engine:
        engine.transaction(tx_id="T").prepare()
        with pytest.raises(error):
            engine.decide("T", "commit", reason=reason)
        engine.decide("T", "commit", reason="käse")
