"""A commit that its caller does not wait for: it takes no sync of its own, and calls that look see
it once it is durable.

The block of a bound transaction confirms in this way, once its database has committed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import current_thread
from typing import Any

import pytest

import fmq
from fmq.bind.bound_transaction import BoundTransaction
from fmq.errors import AlreadyDecided, EngineFailed, MarkMoved
from fmq.faces.blocking.handles import TopicHandle
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.inside import inside
from tests.conftest import OPTIONS, PATH


@pytest.fixture
def engine(disk: CrashDisk, clock: FakeClock) -> Iterator[fmq.Engine]:
    """An engine with its threads, on a clock that stands still: no pause ever ends by itself."""
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock) as engine:
        yield engine


def commit_posted(tx: Any) -> None:
    """Post the commit of a prepared transaction, as a bound block does at its end."""
    BoundTransaction.commit_posted(tx)


def post(
    engine: fmq.Engine,
    tx_id: str = "order",
    *,
    acks: Iterable[fmq.Delivery] = (),
    mark: int = 7,
    expect: int | None = None,
) -> fmq.Transaction:
    """Prepare a transaction, and post its commit."""
    tx = engine.transaction(tx_id=tx_id, producer="shop")
    tx.send("orders", tx_id.encode())
    tx.mark("last", mark, expect=expect)
    for each in acks:
        tx.ack(each)
    tx.prepare()
    commit_posted(tx)
    return tx


def is_visible(engine: fmq.Engine, topic: str = "orders") -> bool:
    """Return whether a message of the topic is visible, without looking as a caller does."""
    queue = inside(engine).ledger.queue(topic, 0)
    return queue is not None and queue.next > 0


def test_a_posted_commit_shares_the_next_sync(engine: fmq.Engine) -> None:
    before = engine.stats().syncs
    tx = post(engine)
    assert tx.phase.value == "committed"
    assert not is_visible(engine), "its sync is still to come"
    engine.send("other", b"takes it along")
    assert is_visible(engine)
    assert engine.stats().syncs == before + 2, "one for the prepare, and one for the send"


LOOKS: dict[str, Callable[[fmq.Engine], object]] = {
    "read": lambda engine: engine.read("orders"),
    "poll": lambda engine: engine.consumer("orders", group="g").poll(),
    "poll and wait": lambda engine: engine.consumer("orders", group="g").poll(timeout=5),
    "take": lambda engine: engine.consumer("orders", group="g").take(),
    "queues": lambda engine: engine.queues("orders"),
    "mark": lambda engine: engine.mark("last"),
    "outcome": lambda engine: engine.outcome("order").state == "committed",
    "stats": lambda engine: engine.stats().messages,
    "settle": lambda engine: not engine.settle().unknown,
    "nothing undecided": lambda engine: not engine.undecided(),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_call_that_looks_sees_appends_posted_before_it(engine: fmq.Engine, look: str) -> None:
    engine.consumer("orders", group="g").close()
    post(engine)
    assert LOOKS[look](engine), look
    assert is_visible(engine)


CHANGES: dict[str, Callable[[fmq.Group, TopicHandle], object]] = {
    "a seek": lambda group, topic: group.seek("orders", to="latest"),
    "a seek to its message": lambda group, topic: group.seek("orders", offset=2),
    "skip": lambda group, topic: group.skip("orders", 0, 1),
    "the end of the group": lambda group, topic: group.delete(),
    "the end of the topic": lambda group, topic: topic.delete(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_groups_and_topics_sees_a_posted_commit(
    engine: fmq.Engine, change: str
) -> None:
    """The caller's block has ended, so nothing of it is undecided."""
    engine.send("orders", b"before")
    with engine.consumer("orders", group="g") as consumer:
        handles = engine.group("g"), engine.topic("orders")
        post(engine, acks=consumer.poll())
        CHANGES[change](*handles)


def test_the_next_transaction_sees_the_marks_of_a_posted_commit(engine: fmq.Engine) -> None:
    """Without a sync in between."""
    before = engine.stats().syncs
    post(engine, "1", mark=7)
    post(engine, "2", mark=8, expect=7)
    with pytest.raises(MarkMoved):
        post(engine, "3", mark=8, expect=7)
    with engine.transaction() as tx:
        tx.mark("last", 9, expect=8)
    assert engine.stats().syncs == before + 3, "of two prepares, and of a commit"
    assert engine.mark("last") == fmq.Mark(9)


def test_a_posted_commit_is_not_counted_as_undecided(disk: CrashDisk, clock: FakeClock) -> None:
    options = replace(OPTIONS, transactions_max=1)
    with fmq.open(PATH, options, disk=disk, clock=clock) as engine:
        post(engine, "1")
        post(engine, "2")
        assert len(engine.read("orders")) == 2


def test_a_poll_that_finds_nothing_waits_for_one_write_only(clock: FakeClock) -> None:
    """Others may post all the time, here during each sync."""
    disk = FaultDisk(CrashDisk())
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock) as engine, ThreadPoolExecutor(1) as pool:
        prepared = [engine.transaction(tx_id=str(number)) for number in range(9)]
        for tx in prepared:
            tx.send("orders", b"1")
            tx.prepare()

        def post_next() -> None:
            commit_posted(prepared.pop())
            if prepared:
                disk.before("write", lambda: pool.submit(post_next).result(), names="*.seg")

        with engine.consumer("other", group="g") as consumer:
            post_next()
            assert consumer.poll() == []
        disk.heal()
        assert len(prepared) >= 6


def test_receipts_of_a_posted_commit_are_durable(engine: fmq.Engine, disk: CrashDisk) -> None:
    (receipt,) = post(engine).commit()
    with fmq.open(PATH, disk=disk.after_power_loss(7), clock=FakeClock()) as again:
        (found,) = again.read("orders", offset=receipt.offset)
    assert found.body == b"order"


def test_a_waiting_consumer_gets_a_posted_commit_at_once(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    """The clock stands still, so no pause of the committer ends."""
    with engine.consumer("orders", group="g") as consumer, ThreadPoolExecutor(1) as pool:
        polled = pool.submit(consumer.poll, timeout=5)
        while not inside(engine).ledger.is_awaited("orders"):
            pass
        post(engine)
        try:
            (delivery,) = polled.result(timeout=60)
        finally:
            clock.advance(10)  # if it has not come, the poll ends, and so does the test
        assert delivery.body == b"order"


@pytest.mark.parametrize("seed", range(10))
def test_a_posted_commit_that_was_seen_survives_a_power_cut(
    engine: fmq.Engine, disk: CrashDisk, seed: int
) -> None:
    engine.send("orders", b"before")
    post(engine)
    seen = engine.read("orders")
    with fmq.open(PATH, disk=disk.after_power_loss(seed), clock=FakeClock()) as again:
        assert again.read("orders") == seen, seed
        assert again.outcome("order").state == "committed", seed


@pytest.mark.parametrize("seed", range(10))
def test_a_posted_commit_that_no_caller_saw_may_be_undecided_after_a_power_cut(
    engine: fmq.Engine, disk: CrashDisk, seed: int
) -> None:
    """Or committed, if its bytes got to the disk; but never lost, and never rolled back."""
    post(engine)
    with fmq.open(PATH, disk=disk.after_power_loss(seed), clock=FakeClock()) as again:
        if again.outcome("order").state == "undecided":
            assert again.read("orders") == [], seed
            again.decide("order", "commit")
        assert [each.body for each in again.read("orders")] == [b"order"], seed


def test_a_kill_before_the_write_leaves_a_posted_commit_undecided(
    engine: fmq.Engine, disk: CrashDisk
) -> None:
    post(engine)
    with fmq.open(PATH, disk=disk.after_kill(), clock=FakeClock()) as again:
        assert [each.tx_id for each in again.undecided()] == ["order"]


def test_another_decision_after_a_posted_commit_is_refused(engine: fmq.Engine) -> None:
    post(engine)
    with pytest.raises(AlreadyDecided):
        engine.decide("order", "rollback")
    assert engine.decide("order", "commit").state == "committed"


def test_closing_makes_a_posted_commit_durable(disk: CrashDisk, clock: FakeClock) -> None:
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock) as engine:
        post(engine)
    with fmq.open(PATH, disk=disk.after_power_loss(7), clock=clock) as again:
        assert again.outcome("order").state == "committed"


def test_a_look_leaves_the_write_to_the_committer(clock: FakeClock) -> None:
    """So an interrupt of the look does not end the engine."""
    disk = FaultDisk(CrashDisk())
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock) as engine:
        post(engine)
        writers: list[str] = []
        disk.before("write", lambda: writers.append(current_thread().name), names="*.seg")
        assert len(engine.read("orders")) == 1
        assert writers == ["fmq committer"]


def test_a_failed_write_hides_a_posted_commit_and_blocks_no_look(clock: FakeClock) -> None:
    disk = FaultDisk(CrashDisk())
    engine = fmq.open(PATH, OPTIONS, disk=disk, clock=clock)
    engine.send("orders", b"before")
    post(engine)
    disk.fail("write", error=errno.EIO, names="*.seg")
    assert [each.body for each in engine.read("orders")] == [b"before"]
    with pytest.raises(EngineFailed):
        engine.send("orders", b"after")
    assert not inside(engine).commit_queue.watches_posts, "the committer sleeps"
    engine.close()


def test_without_threads_a_posted_commit_is_durable_on_return(
    disk: CrashDisk, clock: FakeClock
) -> None:
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as engine:
        post(engine)
        assert is_visible(engine)
