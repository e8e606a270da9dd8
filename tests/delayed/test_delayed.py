"""Messages with a delay: they appear when they are due, once, and not before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import fmq
from fmq import DelayedReceipt, Message
from fmq.errors import BadOption, Closed, TooLarge
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.fake_clock import START_US
from tests.small import bodies, fill, opened

START = datetime(2026, 1, 1, tzinfo=UTC)
TEN_YEARS = timedelta(days=3650)


def pass_time(engine: Any, clock: FakeClock, seconds: float) -> None:
    """Let time pass, and the engine see what is due."""
    clock.advance(seconds)
    engine.sync()


def test_a_message_appears_when_it_is_due_and_not_before() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        receipt = engine.send("t", b"later", delay=60)
        assert receipt.offset is None
        assert (receipt.topic, receipt.queue, receipt.count) == ("t", 0, 1)
        engine.send("t", b"now")
        pass_time(engine, clock, 59.9)
        assert bodies(engine, "t") == [b"now"]
        pass_time(engine, clock, 0.1)
        assert bodies(engine, "t") == [b"now", b"later"]
        (message,) = engine.read("t", offset=1)
        assert message.time >= START + timedelta(seconds=60)
        assert engine.stats().delayed == 0
        pass_time(engine, clock, 600)
        assert bodies(engine, "t") == [b"now", b"later"]


def test_messages_appear_in_the_order_in_which_they_are_due() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        for seconds in (30, 10, 20, 10):
            engine.send("t", b"%d" % seconds, delay=seconds)
        pass_time(engine, clock, 25)
        assert bodies(engine, "t") == [b"10", b"10", b"20"]
        pass_time(engine, clock, 25)
        assert bodies(engine, "t") == [b"10", b"10", b"20", b"30"]


def test_a_due_time_may_have_any_time_zone() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        zone = timezone(timedelta(hours=5))
        receipt = engine.send("t", b"1", deliver_at=datetime(2026, 1, 1, 5, 1, tzinfo=zone))
        assert isinstance(receipt, DelayedReceipt)
        assert receipt.due == START + timedelta(minutes=1)
        engine.send("t", b"2", deliver_at=START + timedelta(seconds=30))
        pass_time(engine, clock, 30)
        assert bodies(engine, "t") == [b"2"]
        pass_time(engine, clock, 30)
        assert bodies(engine, "t") == [b"2", b"1"]


def test_no_delay_and_a_time_in_the_past_mean_now() -> None:
    with opened(CrashDisk()) as engine:
        assert engine.send("t", b"1", delay=0).offset == 0
        assert engine.send("t", b"2", deliver_at=START - timedelta(days=1)).offset == 1
        assert bodies(engine, "t") == [b"1", b"2"]


def test_a_delayed_message_keeps_its_properties() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.create_topic("t", queues=3)
        engine.send(
            *("t", b"body"), key="k", tag="x", headers={"a": "b"}, queue=2, producer="me",
            priority=7, expires_at=START + timedelta(days=1), delay=1,
        )  # fmt: skip
        pass_time(engine, clock, 1)
        (message,) = engine.read("t", queue=2)
        assert (message.key, message.tag, message.headers) == ("k", "x", {"a": "b"})
        assert (message.producer, message.priority) == ("me", 7)
        assert message.expires_at == START + timedelta(days=1)


def test_many_delayed_messages_are_published_together() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        (receipt,) = engine.send_many("t", [b"1", Message(b"2", tag="x"), b"3"], delay=5)
        assert isinstance(receipt, DelayedReceipt)
        assert receipt.count == 3
        assert engine.stats().delayed == 3
        pass_time(engine, clock, 5)
        assert [(each.body, each.tag) for each in engine.read("t")] == [
            (b"1", None),
            (b"2", "x"),
            (b"3", None),
        ]


def test_a_waiting_poll_gets_a_message_that_becomes_due() -> None:
    """The wait of the owner of a FakeClock moves time on, so the poll meets the time."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine, engine.consumer("t", group="g") as consumer:
        engine.send("t", b"1", delay=60)
        assert consumer.poll() == []
        pass_time(engine, clock, 60)
        (delivery,) = consumer.poll()
        assert delivery.body == b"1"
        delivery.ack()


# --- restarts, clocks ----------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_delayed_messages_survive_a_restart(clean: bool) -> None:
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock)
    engine.send("t", b"1", delay=60)
    engine.send("t", b"2", delay=90)
    left = disk if clean else disk.after_kill()
    engine.close()
    with opened(left, clock) as engine:
        assert engine.stats().delayed == 2
        assert engine.stats().next_due == START + timedelta(seconds=60)
        pass_time(engine, clock, 60)
        assert bodies(engine, "t") == [b"1"]
    with opened(left, clock) as engine:
        pass_time(engine, clock, 30)
        assert bodies(engine, "t") == [b"1", b"2"]


def test_messages_that_became_due_without_an_engine_appear_at_the_next_opening() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.send("t", b"1", delay=60)
    clock.advance(3600)
    with opened(disk, clock) as engine:
        engine.sync()
        assert bodies(engine, "t") == [b"1"]


def test_a_clock_that_goes_back_makes_messages_wait_longer() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.send("t", b"1", delay=10)
        engine.send("t", b"2", delay=60)
        pass_time(engine, clock, 10)
        clock.set_wall_clock(START_US - 3600 * 1_000_000)
        pass_time(engine, clock, 60)
        assert bodies(engine, "t") == [b"1"]  # what was published stays so
        engine.send("t", b"3", delay=1)
        pass_time(engine, clock, 0.5)
        assert bodies(engine, "t") == [b"1"]  # not due, although a record has a later time
        pass_time(engine, clock, 0.5)
        assert bodies(engine, "t") == [b"1", b"3"]
        pass_time(engine, clock, 3600)
        assert bodies(engine, "t") == [b"1", b"3", b"2"]


# --- transactions --------------------------------------------------------------------------------


def test_a_transaction_sends_with_a_delay() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        with engine.transaction(tx_id="T") as tx:
            tx.send("t", b"now")
            tx.send("t", b"later", delay=60)
            tx.send_many("t", [b"a", b"b"], deliver_at=START + timedelta(seconds=30))
            assert engine.stats().delayed == 0
        receipts = tx.commit()
        assert [each.offset for each in receipts] == [0, None, None]
        assert list(engine.outcome("T").receipts) == receipts
        assert engine.stats().delayed == 3
        pass_time(engine, clock, 30)
        assert bodies(engine, "t") == [b"now", b"a", b"b"]
        assert engine.recall(receipts[1])
        pass_time(engine, clock, 300)
        assert bodies(engine, "t") == [b"now", b"a", b"b"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_prepared_message_waits_from_its_commit_on(restarts: bool, decision: Any) -> None:
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock, checker_threads=1)
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"x" * 600, delay=60)
    tx.send("t", b"now")
    tx.prepare()
    if restarts:
        left = disk.after_kill()
        engine.close()
        engine = opened(left, clock)
    pass_time(engine, clock, 100)
    assert engine.stats().delayed == 0
    engine.decide("T", decision)
    engine.sync()
    expected = [b"now", b"x" * 600] if decision == "commit" else []
    assert bodies(engine, "t") == expected
    engine.close()


def test_a_message_of_a_relocated_transaction_keeps_its_time() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, relocate_bytes=1) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"later", delay=60)
        tx.prepare()
        for _ in range(4):
            fill(engine)
        tx.commit()
        assert engine.stats().delayed == 1
        pass_time(engine, clock, 60)
        assert bodies(engine, "t") == [b"later"]


# --- recall --------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_a_recalled_message_never_appears(restarts: bool) -> None:
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock)
    receipts = [engine.send("t", b"%d" % n, delay=60) for n in range(3)]
    assert engine.recall(receipts[1])
    assert not engine.recall(receipts[1])
    if restarts:
        left = disk.after_kill()
        engine.close()
        engine = opened(left, clock)
        assert not engine.recall(receipts[1])
    pass_time(engine, clock, 60)
    assert bodies(engine, "t") == [b"0", b"2"]
    assert not engine.recall(receipts[0])
    engine.close()


def test_recalling_a_message_that_was_not_delayed_is_always_too_late() -> None:
    with opened(CrashDisk()) as engine:
        assert not engine.recall(engine.send("t", b"1"))
        with pytest.raises(TypeError, match="recall takes the receipt"):
            engine.recall("t")  # type: ignore[arg-type]


def test_a_message_that_was_sent_without_waiting_can_be_recalled() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock, sync="interval") as engine:
        receipt = engine.send("t", b"1", delay=60)
        assert engine.recall(receipt)
        pass_time(engine, clock, 60)
        assert engine.stats().delayed == 0


def test_a_receipt_of_a_lost_message_recalls_no_other_message() -> None:
    """After a power cut another message may lie at the position of one that was not durable."""
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock)
    engine.create_topic("t")
    left = disk.after_kill()
    lost = engine.send("t", b"1", delay=60)
    engine.close()
    with opened(left, clock) as engine:
        other = engine.send("t", b"2", delay=61)
        assert other.position == lost.position
        assert not engine.recall(lost)
        assert engine.recall(other)


# --- looking -------------------------------------------------------------------------------------


def test_waiting_messages_are_listed_by_time() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        sent = [engine.send(topic, b"1", delay=s) for topic, s in (("a", 30), ("b", 10), ("a", 20))]
        assert engine.delayed() == [sent[1], sent[2], sent[0]]
        assert engine.delayed("a") == [sent[2], sent[0]]
        assert engine.delayed(limit=1) == [sent[1]]
        assert engine.delayed("none") == []
        pass_time(engine, clock, 10)
        assert engine.delayed() == [sent[2], sent[0]]
        assert repr(sent[0]) == (
            f"DelayedReceipt(topic='a', queue=0, position={sent[0].position}, count=1, "
            "due=2026-01-01T00:00:30+00:00)"
        )


# --- deleted topics ------------------------------------------------------------------------------


def test_a_delayed_message_for_a_deleted_topic_never_appears() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.send("t", b"old", delay=60)
        engine.topic("t").delete()
        assert engine.delayed() == []
        pass_time(engine, clock, 60)
        assert engine.queues("t") == []
        engine.send("t", b"old, too", delay=60)
        engine.topic("t").delete()
        engine.send("t", b"new", delay=30)
        pass_time(engine, clock, 60)
        assert bodies(engine, "t") == [b"new"]
        assert engine.stats().delayed == 0


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "says"),
    [
        ({"delay": -1}, "must be from 0 to 316,224,000 seconds"),
        ({"delay": 316_224_001}, "which is ten years"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": 1, "deliver_at": START}, "only one of them"),
        ({"deliver_at": datetime(2026, 5, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"deliver_at": START + TEN_YEARS * 2}, "within the next ten years"),
    ],
)
def test_an_impossible_due_time_is_refused(when: dict[str, Any], says: str) -> None:
    with opened(CrashDisk()) as engine:
        calls: list[Any] = [engine.send, engine.send_many]
        tx = engine.transaction()
        calls += [tx.send, tx.send_many]
        for call, body in zip(calls, [b"", [b""], b"", [b""]], strict=True):
            with pytest.raises(BadOption, match=says) as caught:
                call("t", body, **when)
            assert "Nothing was changed" in str(caught.value)
        tx.rollback()
        assert engine.queues() == []
        assert engine.stats().delayed == 0


def test_a_time_of_another_type_is_refused() -> None:
    with opened(CrashDisk()) as engine:
        with pytest.raises(TypeError, match="deliver_at"):
            engine.send("t", b"", deliver_at="tomorrow")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="delay"):
            engine.send("t", b"", delay="1")  # type: ignore[arg-type]


def test_a_closed_engine_delays_and_recalls_no_message() -> None:
    engine = opened(CrashDisk())
    receipt = engine.send("t", b"1", delay=60)
    engine.close()
    for call in (
        lambda: engine.send("t", b"1", delay=1),
        lambda: engine.recall(receipt),
        engine.delayed,
    ):
        with pytest.raises(Closed):
            call()


def test_a_delay_of_ten_years_is_accepted() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.send("t", b"1", delay=10 * 366 * 24 * 3600)
        engine.send("t", b"2", deliver_at=START + TEN_YEARS)
    clock.advance(TEN_YEARS.total_seconds())
    with opened(disk, clock) as engine:
        engine.sync()
        assert bodies(engine, "t") == [b"2"]


def test_a_message_too_large_to_publish_later_is_refused_at_its_send() -> None:
    """Publishing takes a few bytes more than the record that waits."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        size = 4096
        while True:
            try:
                engine.send("t", b"x" * size, delay=1)
                break
            except TooLarge:
                size -= 1
        assert size > 3700
        pass_time(engine, clock, 1)
        assert bodies(engine, "t") == [b"x" * size]


def test_the_public_name_is_that_of_a_receipt() -> None:
    with opened(CrashDisk()) as engine:
        receipt = engine.send("t", b"1", delay=1)
        assert type(receipt) is fmq.DelayedReceipt
        assert isinstance(receipt, fmq.Receipt)
