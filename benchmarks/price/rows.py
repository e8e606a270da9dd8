"""The public calls that have a price. Each is written once, for blocking calls and for asyncio.

A row is a generator. It yields what a call returns, and gets its result back: at once from a
blocking face, awaited from one of asyncio. What lies between START and END has a price, and is done
again and again, so set-up stands before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from fmq import Message

START, END = "start", "end"
BODY = bytes(100)
BACKLOG = 64  # messages, enough for all rounds of a row
Row = Generator[Any, Any, None]
ROWS: dict[str, Callable[[Any], Row]] = {}


def priced(name: str) -> Callable[[Callable[[Any], Row]], Callable[[Any], Row]]:
    """Enter a row under `name`."""

    def enter(row: Callable[[Any], Row]) -> Callable[[Any], Row]:
        ROWS[name] = row
        return row

    return enter


def calls(name: str, before: Callable[[Any], Any], call: Callable[[Any], Any]) -> None:
    """Enter a row of one call, which needs that `before` was called once."""

    def row(engine: Any) -> Row:
        yield before(engine)
        while True:
            yield START
            yield call(engine)
            yield END

    ROWS[name] = row


def nothing(engine: Any) -> None:
    """Set nothing up."""


def one_message(engine: Any) -> Any:
    """Send a message, so that its topic is there."""
    return engine.send("a", BODY, key="k")


def block(context: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what enters and what leaves a `with` block of either kind, without an error."""
    kind = "__aenter__" if hasattr(context, "__aenter__") else "__enter__"
    leave = getattr(context, kind.replace("enter", "exit"))
    return getattr(context, kind), lambda: leave(None, None, None)


def transaction(*topics: str) -> Callable[[Any], Row]:
    """Return a row that commits a block with a message for each of `topics`."""

    def row(engine: Any) -> Row:
        while True:
            yield START
            enter, leave = block(engine.transaction())
            tx = yield enter()
            for topic in topics:
                tx.send(topic, BODY)
            yield leave()
            yield END

    return row


def prepared(engine: Any) -> Generator[Any, Any, Any]:
    """Prepare a transaction of two messages outside of its price."""
    tx = engine.transaction()
    tx.send("a", BODY)
    tx.send("b", BODY)
    yield tx.prepare()
    return tx


calls("send", nothing, lambda engine: engine.send("a", BODY))
calls("send with a key, a tag and headers", nothing,
      lambda engine: engine.send("a", BODY, key="k", tag="t", headers={"h": "1"}))  # fmt: skip
calls("send_many of 100", nothing, lambda engine: engine.send_many("a", [BODY] * 100))
calls("send later", nothing, lambda engine: engine.send("a", BODY, delay=3600.0))
ROWS["transaction of 2"] = transaction("a", "b")
ROWS["transaction of 10 on 3"] = transaction(*("abc" * 4)[:10])


@priced("send with an id")
def send_with_an_id(engine: Any) -> Row:
    number = 0
    while True:
        number += 1
        yield START
        yield engine.send("a", BODY, message_id=f"id-{number}")
        yield END


@priced("recall")
def recall(engine: Any) -> Row:
    while True:
        receipt = yield engine.send("a", BODY, delay=3600.0)
        yield START
        yield engine.recall(receipt)
        yield END


@priced("prepare and commit of 2")
def two_phases(engine: Any) -> Row:
    while True:
        yield START
        tx = engine.transaction()
        tx.send("a", BODY)
        tx.send("b", BODY)
        yield tx.prepare()
        yield tx.commit()
        yield END


@priced("roll back of 2")
def roll_back(engine: Any) -> Row:
    while True:
        tx = yield from prepared(engine)
        yield START
        yield tx.rollback()
        yield END


@priced("decide")
def decide(engine: Any) -> Row:
    while True:
        tx = yield from prepared(engine)
        yield START
        yield engine.decide(tx.tx_id, "commit")
        yield END


@priced("mark in a transaction")
def set_a_mark(engine: Any) -> Row:
    number = 0
    while True:
        number += 1
        yield START
        enter, leave = block(engine.transaction())
        tx = yield enter()
        tx.mark("m", number)
        yield leave()
        yield END


@priced("consume, transform, produce")
def consume_and_produce(engine: Any) -> Row:
    yield engine.send_many("a", [BODY] * BACKLOG)
    consumer = engine.consumer("a", group="g")
    while True:
        yield START
        [delivery] = yield consumer.poll(limit=1)
        enter, leave = block(engine.transaction())
        tx = yield enter()
        yield tx.ack(delivery)
        tx.send("b", BODY)
        yield leave()
        yield END


# --- looks ---

calls("read of 100", lambda engine: engine.send_many("a", [BODY] * 100),
      lambda engine: engine.read("a"))  # fmt: skip
calls("find by a key", one_message, lambda engine: engine.find("a", key="k"))
calls("outcome", lambda engine: engine.transaction(tx_id="t").commit(),
      lambda engine: engine.outcome("t"))  # fmt: skip
calls("undecided", nothing, lambda engine: engine.undecided())
calls("mark", nothing, lambda engine: engine.mark("m"))
calls("queues", one_message, lambda engine: engine.queues())
calls("groups", one_message, lambda engine: engine.groups())
calls("stats", one_message, lambda engine: engine.stats())


# --- consuming ---


def consuming(
    settle: Callable[[Any], Any], *, limit: int = 1, single: bool = False
) -> Callable[[Any], Row]:
    """Return a row that polls messages sent one by one, or in one record, and settles each poll."""

    def row(engine: Any) -> Row:
        if single:
            for _ in range(BACKLOG):
                yield engine.send("a", BODY)
        else:
            yield engine.send_many("a", [BODY] * (BACKLOG * limit))
        consumer = engine.consumer("a", group="g")
        while True:
            yield START
            deliveries = yield consumer.poll(limit=limit)
            yield settle(deliveries)
            yield END

    return row


ROWS["poll and ack of 1"] = consuming(lambda found: found[0].ack(), single=True)
ROWS["poll and ack of 1, sent 64 a record"] = consuming(lambda found: found[0].ack())
ROWS["poll and release of 1"] = consuming(lambda found: found[0].release(delay=3600.0))
ROWS["poll and reject of 1"] = consuming(lambda found: found[0].reject("bad"))


@priced("poll_batch and ack of 100")
def poll_batch(engine: Any) -> Row:
    for _ in range(BACKLOG):
        yield engine.send_many("a", [BODY] * 100)
    consumer = engine.consumer("a", group="g")
    while True:
        yield START
        batch = yield consumer.poll_batch(limit=100)
        yield batch.ack()
        yield END


@priced("take of 1")
def take(engine: Any) -> Row:
    yield engine.send_many("a", [BODY] * BACKLOG)
    consumer = engine.consumer("a", group="g")
    while True:
        yield START
        yield consumer.take(limit=1)
        yield END


@priced("poll of nothing")
def poll_nothing(engine: Any) -> Row:
    yield engine.send("a", BODY)
    consumer = engine.consumer("a", group="g")
    [delivery] = yield consumer.poll()
    yield delivery.ack()
    while True:
        yield START
        yield consumer.poll()
        yield END


@priced("poll and ack of 1, ordered by key")
def ordered(engine: Any) -> Row:
    yield engine.send_many("a", [Message(BODY, key=f"k{i}") for i in range(BACKLOG)])
    consumer = engine.consumer("a", group="g", ordered=True)
    while True:
        yield START
        [delivery] = yield consumer.poll(limit=1)
        yield delivery.ack()
        yield END


def limited(**limits: Any) -> Callable[[Any], Row]:
    """Return a row that polls and acks in a group with limits."""

    def row(engine: Any) -> Row:
        yield engine.send_many("a", [Message(BODY, key=f"k{i % 8}") for i in range(BACKLOG)])
        yield engine.create_group("g", "a")
        group = yield engine.group("g")
        yield group.limit(reason="its price", **limits)
        consumer = engine.consumer("a", group="g")
        while True:
            yield START
            [delivery] = yield consumer.poll(limit=1)
            yield delivery.ack()
            yield END

    return row


ROWS["poll and ack of 1, at most 8 at once"] = limited(concurrency=8)
ROWS["poll and ack of 1, keys take turns"] = limited(fair=True)


# --- administration ---


@priced("create_topic")
def create_topic(engine: Any) -> Row:
    number = 0
    while True:
        number += 1
        yield START
        yield engine.create_topic(f"t{number}")
        yield END


@priced("create_group")
def create_group(engine: Any) -> Row:
    yield engine.send("a", BODY)
    number = 0
    while True:
        number += 1
        yield START
        yield engine.create_group(f"g{number}", "a")
        yield END


@priced("seek")
def seek(engine: Any) -> Row:
    yield engine.send("a", BODY)
    yield engine.create_group("g", "a")
    group = yield engine.group("g")
    while True:
        yield START
        yield group.seek("a", to="earliest")
        yield END
