"""The public calls of an engine, one by one, and what each sync mode promises."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import fmq
from fmq import Engine, Message, Options, Receipt
from fmq.basics.clock import Waitable
from fmq.errors import BadName, BadOption, Closed, EngineFailed
from fmq.machine.disk import Disk
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.small import bodies, check, fill, opened


@pytest.fixture
def store() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def shop(store: CrashDisk) -> Iterator[Engine]:
    with opened(store, topic_queues={"wide": 3}) as engine:
        yield engine
    check(store)


# --- sending --------------------------------------------------------------------------------------


def test_a_receipt_has_the_place_of_the_message(shop: Engine) -> None:
    first, second = shop.send("t", b"0"), shop.send("t", b"1")
    assert (first.topic, first.queue, first.offset, first.count) == ("t", 0, 0, 1)
    assert second.offset == 1
    assert second.position > first.position
    assert [message.position for message in shop.read("t")] == [first.position, second.position]


@pytest.mark.parametrize("body", [b"bytes", bytearray(b"array"), memoryview(b"view"), b""])
def test_a_body_may_be_any_bytes_like_object(shop: Engine, body: Any) -> None:
    shop.send("t", body)
    shop.send("t", body, key="k")
    shop.send_many("t", [body, Message(body)])
    with shop.transaction() as tx:
        tx.send("t", body)
        tx.send_many("t", [body, Message(body, tag="x")])
    assert bodies(shop, "t") == [bytes(body)] * 7


@pytest.mark.parametrize("body", ["text", 7, None, ["list"], {"a": 1}])
def test_any_other_body_raises_type_error_and_writes_nothing(shop: Engine, body: Any) -> None:
    position = shop.stats().position
    tx = shop.transaction()
    for call in (
        lambda: shop.send("t", body),
        lambda: shop.send("t", body, key="k"),
        lambda: shop.send_many("t", [b"good", body]),
        lambda: shop.send_many("t", [Message(body)]),
        lambda: tx.send("t", body),
        lambda: tx.send_many("t", [b"good", body]),
        lambda: tx.send_many("t", [Message(body)]),
    ):
        with pytest.raises(TypeError):
            call()
    assert tx.commit() == []
    assert not shop.queues("t")
    assert shop.read("t") == []
    assert position < shop.stats().position  # the empty transaction


def test_a_body_is_sent_as_it_was_at_the_call(shop: Engine) -> None:
    body = bytearray(b"before")
    with shop.transaction() as tx:
        tx.send("t", body)
        tx.send("t", body, key="k")
        tx.send_many("t", [body])
        body[:] = b"behind"
    assert bodies(shop, "t") == [b"before"] * 3


def test_send_many_gives_one_receipt_for_each_run_in_a_queue(shop: Engine) -> None:
    assert shop.send_many("t", []) == []
    (receipt,) = shop.send_many("t", [b"a", b"b", b"c"])
    assert receipt == Receipt("t", 0, 0, receipt.position, 3)
    keyed = [Message(b"%d" % number, key=f"k{number}") for number in range(20)]
    receipts = shop.send_many("wide", keyed)
    assert sum(receipt.count for receipt in receipts) == 20
    assert len({receipt.queue for receipt in receipts}) == len(receipts) == 3
    found = [shop.read("wide", queue=queue) for queue in range(3)]
    for one in found:
        assert [message.offset for message in one] == list(range(len(one)))
    assert {message.key for message in itertools.chain(*found)} == {m.key for m in keyed}


def test_messages_with_one_key_go_to_one_queue(store: CrashDisk) -> None:
    placed: dict[str, set[int]] = {}
    for _ in range(3):
        with opened(store, queues=5) as engine:
            for number in range(20):
                key = f"k{number}"
                with engine.transaction() as tx:
                    tx.send("t", b"", key=key)
                queue = tx.commit()[0].queue
                placed.setdefault(key, set()).update((queue, engine.send("t", b"", key=key).queue))
    assert all(len(queues) == 1 for queues in placed.values())
    assert len(set.union(*placed.values())) == 5


def test_without_a_key_queues_are_used_in_turn(shop: Engine) -> None:
    queues = [shop.send("wide", b"").queue for _ in range(9)]
    assert sorted(queues) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("queue", [-1, 3, 4096])
def test_a_queue_that_the_topic_does_not_have_is_refused(shop: Engine, queue: int) -> None:
    shop.send("wide", b"", queue=2)
    position = shop.stats().position
    for call in (
        lambda: shop.send("wide", b"", queue=queue),
        lambda: shop.send_many("wide", [b""], queue=queue),
        lambda: shop.transaction().send("wide", b"", queue=queue),
    ):
        with pytest.raises(BadName, match="queues 0 to 2"):
            call()
    assert shop.stats().position == position


def test_a_topic_is_created_by_its_first_message(shop: Engine) -> None:
    tx = shop.transaction()
    tx.send("t", b"")
    assert shop.queues("t") == []
    tx.rollback()
    assert shop.queues("t") == []
    shop.send("t", b"")
    assert [(info.queue, info.first, info.next) for info in shop.queues("t")] == [(0, 0, 1)]


# --- reading --------------------------------------------------------------------------------------


def test_read_returns_nothing_where_there_are_no_messages(shop: Engine) -> None:
    shop.send("t", b"0")
    assert shop.read("nothing") == []
    assert shop.read("t", offset=1) == []
    assert shop.read("t", offset=1 << 60) == []
    assert shop.read_batch("t", offset=1) is None


@pytest.mark.parametrize("wrong", [{"offset": -1}, {"limit": -1}])
def test_a_negative_offset_or_limit_is_refused(shop: Engine, wrong: dict[str, int]) -> None:
    with pytest.raises(BadOption):
        shop.read_batch("t", **wrong)


def test_read_waits_until_its_timeout(store: CrashDisk) -> None:
    clock = FakeClock()
    with opened(store, clock) as engine:
        assert engine.read("t", timeout=7) == []
        assert clock.monotonic() == 7
        engine.send("t", b"0")
        assert bodies(engine, "t") == [b"0"]
        assert engine.read("t", timeout=7)[0].offset == 0
        assert clock.monotonic() == 7


def test_a_read_over_runs_and_segments_returns_exactly_its_limit(store: CrashDisk) -> None:
    with opened(store, read_ahead_bytes=512) as engine:
        for number in range(40):
            engine.send_many("t", [b"%d-%d" % (number, i) + b"x" * 50 for i in range(5)])
        everything = [message.body for message in engine.read("t", limit=200)]
        assert len(set(everything)) == 200
        for offset, limit in itertools.product((0, 1, 4, 5, 77, 199), (1, 2, 5, 33, 200)):
            found = engine.read("t", offset=offset, limit=limit)
            assert [message.body for message in found] == everything[offset : offset + limit]


def test_time_never_goes_back_within_a_queue(store: CrashDisk) -> None:
    """Neither a change of the wall clock, a transaction nor a restart makes it go back."""
    clock = FakeClock()
    times = []
    for step in range(4):
        with opened(store, clock) as engine:
            engine.send("t", b"")
            clock.set_wall_clock(1_000_000_000_000_000 * (5 - step))
            with engine.transaction() as tx:
                tx.send("t", b"")
            times = [message.time for message in engine.read("t") if message.time]
    assert times == sorted(times)
    assert len(times) == 8
    assert times[0].utcoffset() == timedelta(0)


# --- sync modes -----------------------------------------------------------------------------------


def live(disk: Disk, clock: FakeClock, **options: Any) -> Engine:
    """An engine with a thread of its own, which does nothing while time stands still."""
    chosen = Options(segment_bytes=4096, checkpoint_idle_seconds=60, **options)
    return fmq.open("data", chosen, disk=disk, clock=clock)


class WatchedClock(FakeClock):
    """A FakeClock that says whether the engine's thread waits."""

    waiting = False

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        self.waiting = True
        try:
            return super().wait(lock, timeout)
        finally:
            self.waiting = False


def soon(clock: FakeClock, seconds: float, seen: Any) -> None:
    """`seen` within `seconds` of the moment at which the engine's thread begins to wait."""

    def step() -> Any:
        clock.advance(seconds)  # again, if the thread was not waiting yet
        return seen()

    clock.until(step)


def test_with_always_a_send_that_returned_is_durable_and_visible(store: CrashDisk) -> None:
    with live(store, FakeClock()) as engine:
        engine.send("t", b"0")
        assert bodies(engine, "t") == [b"0"]
        for state in store.states():
            with opened(state) as after:
                assert bodies(after, "t") == [b"0"]


def test_with_interval_a_send_right_after_a_sync_is_synced_in_time(store: CrashDisk) -> None:
    """The thread then waits until the engine is idle, which must not delay the next sync."""
    clock = WatchedClock()
    with live(store, clock, sync="interval", sync_interval_seconds=0.05) as engine:
        for number in range(3):
            engine.send("t", b"%d" % number)
            engine.sync()
            clock.until(lambda: clock.waiting)
            sent = clock.monotonic()
            engine.send("u", b"%d" % number)
            soon(clock, 0.05, lambda number=number: len(bodies(engine, "u")) == number + 1)
            assert clock.monotonic() - sent < 50, "it waited for the idle moment"


def test_with_interval_a_failing_chore_does_not_delay_syncs(store: CrashDisk) -> None:
    """The thread pauses before it tries the chore again, but not before it syncs."""
    clock, disk = WatchedClock(), FaultDisk(store)
    disk.fail("create", error=errno.EIO, persistently=True, names="*.idx*")
    with live(disk, clock, sync="interval", sync_interval_seconds=0.05) as engine:
        fill(engine)
        soon(clock, 0.06, lambda: engine.stats().trouble)
        for number in range(3):
            clock.until(lambda: clock.waiting)
            sent = clock.monotonic()
            engine.send("u", b"%d" % number)
            soon(clock, 0.06, lambda number=number: len(bodies(engine, "u")) == number + 1)
            assert clock.monotonic() - sent < 50, "it waited for the pause to end"
        assert engine.stats().trouble
        disk.heal()


def test_with_interval_messages_are_visible_in_time_once_durable(
    store: CrashDisk,
) -> None:
    """Repeat it, also after the engine has been idle."""
    clock = FakeClock()
    with live(store, clock, sync="interval", sync_interval_seconds=0.05) as engine:
        for number in range(3):
            engine.send("t", b"%d" % number)
            engine.send("u", b"%d" % number)
            for info in engine.queues():
                shown = bodies(engine, info.topic)
                with opened(store.after_power_loss(number)) as after:
                    assert bodies(after, info.topic)[: len(shown)] == shown
            soon(clock, 0.06, lambda number=number: len(bodies(engine, "u")) == number + 1)
            with opened(store.after_power_loss(number)) as after:
                assert len(bodies(after, "u")) == number + 1
            soon(clock, 61, lambda: engine.stats().checkpointed_upto == engine.stats().position)


def test_with_interval_a_prepare_and_a_sync_are_durable_at_once(
    store: CrashDisk,
) -> None:
    with live(store, FakeClock(), sync="interval", sync_interval_seconds=5) as engine:
        engine.send("t", b"0")
        tx = engine.transaction(tx_id="T")
        tx.prepare()
        with opened(store.after_power_loss(1)) as after:
            assert [each.tx_id for each in after.undecided()] == ["T"]
            assert bodies(after, "t") == [b"0"]
        engine.send("t", b"1", sync=True)
        assert bodies(engine, "t") == [b"0", b"1"]
        engine.send("t", b"2")
        engine.sync()
        assert bodies(engine, "t") == [b"0", b"1", b"2"]
        tx.rollback()


def test_with_never_written_messages_are_visible_and_survive_a_kill(store: CrashDisk) -> None:
    with live(store, FakeClock(), sync="never") as engine:
        for number in range(30):
            engine.send("t", b"%d" % number + b"x" * 300)
            assert len(bodies(engine, "t")) == number + 1
        with opened(store.after_kill()) as after:
            assert len(bodies(after, "t")) == 30
        for state in (store.after_power_loss(seed) for seed in range(10)):
            with opened(state) as after:
                found = bodies(after, "t")
                assert found == [b"%d" % number + b"x" * 300 for number in range(len(found))]
            check(state)
    with opened(store.after_power_loss(1)) as engine:
        assert len(bodies(engine, "t")) == 30, "a clean close makes everything durable"


def test_a_send_without_sync_is_visible_after_the_next_sync(store: CrashDisk) -> None:
    with live(store, FakeClock()) as engine:
        receipt = engine.send("t", b"0", sync=False)
        (many,) = engine.send_many("t", [b"1", b"2"], sync=False)
        assert (receipt.offset, many.offset) == (0, 1)
        engine.send("u", b"")
        assert bodies(engine, "t") == [b"0", b"1", b"2"]
        with opened(store.after_power_loss(1)) as after:
            assert bodies(after, "t") == [b"0", b"1", b"2"]


CALLS = ("send", "send_many", "ack", "one phase", "two phases")


def call_with(engine: Engine, call: str, sync: bool | None) -> None:
    """Make one call with this `sync`. Everything that it needs before is durable."""
    tx = engine.transaction()
    tx.send("t", b"1")
    match call:
        case "send":
            engine.send("t", b"1", sync=sync)
        case "send_many":
            engine.send_many("t", [b"1"], sync=sync)
        case "ack":
            with engine.consumer("t", group="g") as consumer:
                consumer.poll()[0].ack(sync=sync)
        case "one phase":
            assert len(tx.commit(sync=sync)) == 1
        case "two phases":
            tx.prepare()
            assert len(tx.commit(sync=sync)) == 1


def has_happened(disk: CrashDisk, call: str) -> bool:
    with opened(disk) as after:
        if call == "ack":
            return any(info.acked_below for info in after.groups("g"))
        return len(bodies(after, "t")) == 2


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("mode", ["always", "interval", "never"])
def test_the_argument_sync_overrides_the_mode_of_the_engine(
    store: CrashDisk, mode: str, call: str
) -> None:
    """With True no power cut takes the call back. With False some do, in the modes in which that
    can happen.
    """
    for sync in (True, False, None):
        disk = CrashDisk()
        clock = FakeClock()
        options = {"sync_interval_seconds": 5} if mode == "interval" else {}
        with live(disk, clock, sync=mode, **options) as engine:
            engine.send("t", b"0")
            engine.sync()
            call_with(engine, call, sync)
            kept = {has_happened(state, call) for state in disk.states()}
            if sync or (sync is None and mode == "always"):
                assert kept == {True}, sync
            else:
                assert False in kept or (mode, sync) == ("always", False), sync
            engine.sync()
            assert has_happened(disk.after_power_loss(1), call)


def test_a_second_commit_can_wait_for_one_without_sync(store: CrashDisk) -> None:
    """It returns the same receipts. A wrong value of sync is refused before anything happens."""
    with live(store, FakeClock(), sync="interval", sync_interval_seconds=5) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"0")
        with pytest.raises(TypeError, match="sync='always'"):
            tx.commit(sync="always")  # type: ignore[arg-type]
        tx.send("t", b"1")
        receipts = tx.commit(sync=False)
        assert tx.commit() == tx.commit(sync=False) == receipts
        with opened(store.after_power_loss(1)) as after:
            assert bodies(after, "t") == []
        with pytest.raises(TypeError, match="sync=1"):
            tx.commit(sync=1)  # type: ignore[arg-type]
        assert tx.commit(sync=True) == receipts
        with opened(store.after_power_loss(1)) as after:
            assert bodies(after, "t") == [b"0", b"1"]


@pytest.mark.parametrize("phases", [1, 2])
def test_a_repeated_commit_waits_as_the_mode_says(store: CrashDisk, phases: int) -> None:
    """It does not wait if the first commit did, whatever has become of the engine since."""
    disk = FaultDisk(store)
    engine = live(disk, FakeClock())  # sync="always", and its thread sleeps
    first, second, third = (engine.transaction(tx_id=name) for name in "123")
    for tx in (first, second, third):
        tx.send("t", tx.tx_id.encode())
        if phases == 2:
            tx.prepare()
    receipts = first.commit(sync=False)
    assert first.commit() == receipts
    with opened(store.after_power_loss(1)) as after:
        assert after.outcome("1").state == "committed"
    assert second.commit()
    third.commit(sync=False)
    disk.fail("write", short=0)
    with pytest.raises(EngineFailed):
        engine.sync()
    assert first.commit() == receipts
    assert second.commit()[0].offset == 1
    with pytest.raises(EngineFailed):
        third.commit()
    engine.close()


@pytest.mark.parametrize("mode", ["interval", "never"])
@pytest.mark.parametrize("again", ["commit", "sync"])
def test_a_decision_that_did_not_wait_can_be_waited_for(mode: str, again: str) -> None:
    """The producer commits once more, or has all made durable."""
    disk = CrashDisk()
    with live(disk, FakeClock(), sync=mode) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"0")
        tx.prepare()
        assert engine.decide("T", "commit").state == "committed"
        with opened(disk.after_power_loss(1)) as after:
            assert after.outcome("T").state == "undecided"
        if again == "commit":
            tx.commit(sync=True)
        else:
            engine.sync()
        with opened(disk.after_power_loss(1)) as after:
            assert after.outcome("T").state == "committed"


# --- the end --------------------------------------------------------------------------------------


def test_a_closed_engine_refuses_every_call_but_close(store: CrashDisk) -> None:
    with opened(store) as engine:
        engine.send("t", b"0")
        begun, named = engine.transaction(), engine.transaction(tx_id="N")
        begun.send("t", b"1")
        prepared = engine.transaction(tx_id="T")
        prepared.prepare()
        consumer = engine.consumer("t", group="g")
        (delivery,) = consumer.poll()
    engine.close()
    operations = store.operations
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: engine.send("t", b""),
        "send_many": lambda: engine.send_many("t", [b""]),
        "transaction": engine.transaction,
        "read": lambda: engine.read("t"),
        "queues": engine.queues,
        "groups": engine.groups,
        "outcome": lambda: engine.outcome("T"),
        "undecided": engine.undecided,
        "decide": lambda: engine.decide("T", "commit"),
        "consumer": lambda: engine.consumer("t", group="g"),
        "sync": engine.sync,
        "checkpoint": engine.checkpoint,
        "commit": begun.commit,
        "commit of nothing": named.commit,
        "prepare": begun.prepare,
        "commit prepared": prepared.commit,
        "rollback prepared": prepared.rollback,
        "poll": consumer.poll,
        "ack": delivery.ack,
        "enter": lambda: engine.__enter__().send("t", b""),
    }
    for name, call in calls.items():
        with pytest.raises(Closed, match="closed"):
            pytest.fail(f"{name} gave {call()!r}")
    assert store.operations == operations
    with opened(store) as engine:
        assert [each.tx_id for each in engine.undecided()] == ["T"], "close decides nothing"
        assert bodies(engine, "t") == [b"0"]


def test_an_open_transaction_can_be_rolled_back_after_close(
    store: CrashDisk,
) -> None:
    """Rolling back before prepare writes nothing."""
    with opened(store) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"1")
    operations = store.operations
    tx.rollback()
    assert store.operations == operations
    with opened(store) as engine:
        assert engine.queues() == []


def test_stats_are_a_frozen_snapshot(shop: Engine) -> None:
    before = shop.stats()
    shop.send("t", b"0")
    after = shop.stats()
    assert (before.messages, after.messages) == (0, 1)
    assert after.position > before.position
    with pytest.raises(AttributeError):
        after.messages = 5  # type: ignore[misc]
