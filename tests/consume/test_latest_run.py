"""The run that wakes a consumer is delivered from memory, equal to what the journal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmq
from fmq.errors import OffsetGone
from fmq.store.reading.latest_run import LATEST_RUN_BYTES_MAX
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.inside import inside
from tests.small import listening

TEXTS = st.none() | st.sampled_from(["", "k", "käse"])
HEADERS = st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from(["", "x"]), max_size=2)
EXTRAS = {
    "message_id": st.none(),
    "priority": st.none() | st.integers(0, 9),
    "expires_at": st.none(),
}
MESSAGES = st.builds(fmq.Message, st.binary(max_size=60), TEXTS, TEXTS, HEADERS, **EXTRAS)


class Sleeper:
    """An engine on which a consumer waits for "t" whenever a message is sent."""

    def __init__(self, compress_bytes_min: int | None = None) -> None:
        self.disk = FaultDisk(CrashDisk())
        options = fmq.Options(compress_bytes_min=compress_bytes_min)
        self.engine = fmq.open("shop", options, disk=self.disk, clock=FakeClock(), background=False)

    def waking(self, send: Callable[[], Any]) -> None:
        wakeup = listening(self.engine, "t")
        send()
        assert wakeup.woken

    def forget(self) -> None:
        for topic in inside(self.engine).ledger.topics.values():
            for queue in topic.queues:
                queue.latest = None


def contents(messages: list[fmq.Message]) -> list[Any]:
    return [
        (m.body, m.key, m.tag, dict(m.headers or {}), m.offset, m.origin, m.priority)
        for m in messages
    ]


@pytest.mark.parametrize("producer", [None, "p"])
@given(st.lists(MESSAGES, min_size=1, max_size=5), st.sampled_from([None, 8]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_run_from_memory_equals_a_read_of_the_journal(
    producer: str | None, sent: list[fmq.Message], compress: int | None, in_transaction: bool
) -> None:
    """Compare bodies, keys, tags, headers, offsets and origin, of the run and of each end of it."""
    sleeper = Sleeper(compress)
    engine = sleeper.engine
    engine.send_many("t", [b"before", b"and"])

    def send() -> None:
        if not in_transaction:
            engine.send_many("t", sent, producer=producer)
            return
        with engine.transaction(producer=producer) as tx:
            tx.send_many("t", sent)
            tx.send("another", b"x")

    sleeper.waking(send)
    at_once = [contents(engine.read("t", offset=2, limit=limit)) for limit in (1, 3, 10)]
    later = [contents(engine.read("t", offset=at)) for at in (0, 3)]
    sleeper.forget()
    assert at_once == [contents(engine.read("t", offset=2, limit=limit)) for limit in (1, 3, 10)]
    assert later == [contents(engine.read("t", offset=at)) for at in (0, 3)]
    engine.close()


def test_a_woken_consumer_reads_nothing_from_the_disk() -> None:
    sleeper = Sleeper()
    engine = sleeper.engine
    consumer = engine.consumer("t", group="g")
    assert consumer.poll() == []
    sleeper.waking(lambda: engine.send("t", b"one"))
    sleeper.disk.fail("read", persistently=True)
    (delivery,) = consumer.poll(limit=1)
    assert delivery.message.body == b"one"
    engine.send("t", b"two")  # no consumer waited, so it is read from the journal
    with pytest.raises(OSError, match="Input/output error"):
        consumer.poll()
    sleeper.disk.heal()
    engine.close()


def test_a_large_run_is_read_from_the_disk() -> None:
    """Otherwise each queue with a waiting consumer would keep a whole record in memory."""
    sleeper = Sleeper()
    engine = sleeper.engine
    sleeper.waking(lambda: engine.send("t", bytes(LATEST_RUN_BYTES_MAX)))
    sleeper.waking(lambda: engine.send("t", bytes(LATEST_RUN_BYTES_MAX + 1)))
    (queue,) = inside(engine).ledger.topics["t"].queues
    assert queue.latest is not None
    assert queue.latest.offset == 0
    assert [len(message.body) for message in engine.read("t")] == [65536, 65537]
    engine.close()


def test_a_run_that_retention_dropped_is_not_delivered_from_memory() -> None:
    sleeper = Sleeper()
    engine = sleeper.engine
    sleeper.waking(lambda: engine.send("t", b"one"))
    (queue,) = inside(engine).ledger.topics["t"].queues
    queue.first = 1
    with pytest.raises(OffsetGone):
        engine.read("t", offset=0)
    engine.close()
