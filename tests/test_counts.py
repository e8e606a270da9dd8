"""What `stats().counts` counts, and what `since` makes of two looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.basics.counts import BUCKETS
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside


def counts_of(engine: Any) -> fmq.Counts:
    found: fmq.Counts | None = engine.stats().counts
    assert found is not None
    return found


def test_each_message_is_counted_once_in_each_way(engine: fmq.Engine) -> None:
    """Of four messages one fails twice and is rejected, one is acked, and two wait."""
    engine.send_many("orders", [b"one", b"two"])
    with engine.transaction() as tx:
        tx.send("orders", b"three")
        tx.send("orders", b"four")
    with engine.consumer("orders", group="mail") as consumer:
        consumer.poll(limit=1)[0].ack()
        for _ in range(3):
            (delivery,) = consumer.poll(limit=1)
            while delivery.offset != 1:  # new messages take turns with those given back
                delivery.release(count=False)
                (delivery,) = consumer.poll(limit=1)
            if delivery.attempt < 3:
                delivery.release(delay=0)
            else:
                delivery.reject("no")
    found = counts_of(engine)
    mail = found.groups["mail"]
    assert found.sent == {"orders": 4}
    assert (found.commits, found.rollbacks) == (1, 0)
    assert (mail.failures, mail.rejected, mail.acked) == (2, 1, {"orders": 2})
    assert (mail.attempts, mail.retries) == (4, 2)


def test_a_delivery_that_a_program_never_saw_is_no_attempt(engine: fmq.Engine) -> None:
    engine.send_many("orders", [b"one", b"two"])
    with engine.consumer("orders", group="mail") as consumer:
        first, second = consumer.poll(limit=2)
        first.release(count=False)
        assert counts_of(engine).groups["mail"].attempts == 1
        second.release(count=False)
    mail = counts_of(engine).groups["mail"]
    assert (mail.attempts, mail.retries, mail.failures) == (0, 0, 0)


def test_prepared_transactions_are_counted_when_they_are_decided(engine: fmq.Engine) -> None:
    for decision in ("commit", "rollback"):
        tx = engine.transaction(tx_id=decision, producer="shop")
        tx.send("orders", b"one")
        tx.prepare()
        engine.decide(decision, decision)
    found = counts_of(engine)
    assert (found.commits, found.rollbacks, found.sent) == (1, 1, {"orders": 1})


def test_questions_and_answers_are_counted(engine: fmq.Engine) -> None:
    tx = engine.transaction(tx_id="t", producer="shop", check_after=0.0)
    tx.send("orders", b"one")
    tx.prepare()
    answers = iter(("unknown", "commit"))
    engine.checker("shop")(lambda question: next(answers))
    assert engine.settle().unknown == ("t",)
    assert engine.settle().committed == ("t",)
    found = counts_of(engine)
    assert (found.questions, found.answers) == (2, 2)


def test_times_are_those_of_the_clock(engine: fmq.Engine, clock: FakeClock) -> None:
    """A message waits for 3 s until it is polled, and is handled for 0.1 s."""
    engine.send("orders", b"one")
    clock.advance(3)
    with engine.consumer("orders", group="mail") as consumer:
        (delivery,) = consumer.poll(limit=1)
        clock.advance(0.1)
        delivery.ack()
    mail = counts_of(engine).groups["mail"]
    assert mail.handed_over.count == mail.handled.count == 1
    assert mail.handed_over.within(1.0) == pytest.approx(4.3, abs=0.1)
    assert mail.handled.within(0.5) == pytest.approx(0.134, abs=0.001)


def test_a_second_attempt_is_no_hand_over(engine: fmq.Engine, clock: FakeClock) -> None:
    engine.send("orders", b"one")
    with engine.consumer("orders", group="mail") as consumer:
        for _ in range(3):
            consumer.poll(limit=1)[0].release(delay=0)
    assert counts_of(engine).groups["mail"].handed_over.count == 1


def test_a_wall_clock_that_goes_back_makes_no_long_time(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    engine.send("orders", b"one")
    clock.set_wall_clock(clock.time_us() - 3_600_000_000)
    with engine.consumer("orders", group="mail") as consumer:
        consumer.poll(limit=1)
    assert counts_of(engine).groups["mail"].handed_over.buckets[0] == 1


def test_each_write_is_timed_and_each_sync_is_one(engine: fmq.Engine) -> None:
    before = counts_of(engine)
    for _ in range(5):
        engine.send("orders", b"one")
    assert counts_of(engine).since(before).written.count == 5
    assert engine.stats().syncs == counts_of(engine).written.count


def test_two_readers_do_not_disturb_each_other(engine: fmq.Engine, clock: FakeClock) -> None:
    """Each compares with its own earlier look."""
    first = counts_of(engine)
    engine.send("orders", b"one")
    clock.advance(1)
    second = counts_of(engine)
    engine.send_many("orders", [b"two", b"three"])
    clock.advance(1)
    now = counts_of(engine)
    assert (now.since(first).sent, now.since(first).seconds) == ({"orders": 3}, 2)
    assert (now.since(second).sent, now.since(second).seconds) == ({"orders": 2}, 1)
    assert now.since(now).written.count == 0


def test_counts_begin_with_zero_when_an_engine_is_opened(disk: CrashDisk) -> None:
    """After a loss of power, too: what a replay meets does not happen anew."""
    with fmq.open("data", disk=disk, background=False) as engine:
        with engine.transaction() as tx:
            tx.send("orders", b"one")
        with engine.consumer("orders", group="mail") as consumer:
            consumer.poll(limit=1)[0].reject("no")
        earlier = counts_of(engine)
        lost = disk.after_power_loss(1)
    with fmq.open("data", disk=lost, background=False) as engine:
        now = counts_of(engine)
        mail = now.groups["mail"]
        assert (now.sent, now.commits, now.written.count) == ({"orders": 0}, 0, 0)
        assert (mail.attempts, mail.acked, mail.rejected) == (0, {"orders": 0}, 0)
        engine.send("orders", b"two")
        assert counts_of(engine).since(earlier).sent == {"orders": 1}, "all since the opening"


def test_a_client_gets_the_counts_of_the_process(tmp_path: Path) -> None:
    with fmq.open(tmp_path) as engine, engine.serve(), fmq.connect(tmp_path) as client:
        client.send("orders", b"one")
        with client.consumer("orders", group="mail") as consumer:
            consumer.poll(limit=1, timeout=10)[0].ack()
        mine, theirs = counts_of(engine), counts_of(client)
        assert theirs.groups == mine.groups
        assert mine.groups["mail"].attempts == 1
        assert mine.groups["mail"].handled.count == 1


def test_a_reader_of_the_files_has_no_counts(tmp_path: Path) -> None:
    fmq.open(tmp_path).close()
    with fmq.open(tmp_path, read_only=True) as reader:
        assert reader.stats().counts is None


def test_a_group_that_is_deleted_takes_its_counts_along(engine: fmq.Engine) -> None:
    engine.send("orders", b"one")
    with engine.consumer("orders", group="mail") as consumer:
        consumer.poll(limit=1)[0].ack()
    engine.group("mail").delete()
    assert counts_of(engine).groups == {}
    assert inside(engine).groups.tallies == {}


def test_a_percentile_of_times_is_the_end_of_a_bucket() -> None:
    buckets = [0] * BUCKETS
    for nanoseconds in (0, 1, 1000, 1_000_000):
        buckets[nanoseconds.bit_length()] += 1
    times = fmq.Times(tuple(buckets))
    assert times.count == 4
    assert times.within(0.75) == 1024 / 1e9
    assert times.within(1.0) == 1_048_576 / 1e9
    assert fmq.Times((0,) * BUCKETS).within(0.5) is None
