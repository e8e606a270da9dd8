"""Dead letters: messages that a group rejects are kept until they are replayed or purged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fmq import Engine, Message, Retry, filters
from fmq.basics.clock import as_datetime
from fmq.errors import (
    BadName,
    BadOption,
    LeaseLost,
    TooLarge,
    UnknownDeadLetter,
    UnknownGroup,
    UnknownTopic,
)
from fmq.store.bytes.internal import dead_topic, replay_topic
from tests.small import CrashDisk, FakeClock, check, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk) as engine:
        for number in range(6):
            engine.send("t", b"%d" % number, key=f"k{number % 2}", tag="tag", headers={"n": "v"})
        yield engine
    check(disk)


def reject(
    engine: Engine, *offsets: int, group: str = "g", topic: str = "t", **more: object
) -> None:
    """Reject the messages of these offsets, and ack all others."""
    with engine.consumer(topic, group=group, **more) as consumer:  # type: ignore[arg-type]
        while deliveries := consumer.poll():
            for delivery in deliveries:
                if delivery.offset in offsets:
                    delivery.reject(f"no {delivery.offset}")
                else:
                    delivery.ack()


def numbers(engine: Engine, group: str = "g") -> list[int]:
    return [letter.number for letter in engine.dead_letters(group).list()]


def test_a_rejected_message_is_acked_and_kept_as_it_was(engine: Engine, disk: CrashDisk) -> None:
    (sent,) = engine.read("t", offset=3, limit=1)
    reject(engine, 1, 3)
    assert [info.unread for info in engine.groups("g")] == [0]
    engine.close()
    with opened(disk) as again:
        dead = again.dead_letters("g")
        assert (len(dead), dead.count(), again.stats().dead_letters) == (2, 2, 2)
        first, second = dead
        assert (first.number, second.number) == (0, 1)
        assert second.message == sent
        assert (second.reason, second.topic, second.queue, second.offset) == ("no 3", "t", 0, 3)
        assert dead.get(1) == second
        assert dead.list(after=0) == dead.list(limit=1, after=0) == [second]


def test_a_batch_is_rejected_as_a_whole(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        batch = consumer.poll_batch(limit=4)
        assert batch is not None
        batch.reject("all")
        with pytest.raises(LeaseLost):
            batch.reject("again")
        assert [letter.body for letter in engine.dead_letters("g")] == [b"0", b"1", b"2", b"3"]
        assert [delivery.body for delivery in consumer.poll()] == [b"4", b"5"]


def test_a_message_whose_lease_was_lost_cannot_be_rejected(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        delivery, *_ = consumer.poll()
        delivery.ack()
        with pytest.raises(LeaseLost):
            delivery.reject()
        with pytest.raises(TypeError):
            delivery.reject(7)  # type: ignore[arg-type]
    assert numbers(engine) == []


def test_a_replayed_message_goes_to_its_group_alone(engine: Engine, disk: CrashDisk) -> None:
    reject(engine, 1, 3)
    reject(engine, group="other")
    assert engine.dead_letters("g").replay(1) == 1
    assert numbers(engine) == [0]
    with engine.consumer("t", group="other") as other:
        assert other.poll() == []
    engine.close()
    with opened(disk) as again:
        with again.consumer("t", group="g") as consumer:
            (delivery,) = consumer.poll()
            assert (delivery.topic, delivery.queue, delivery.offset) == ("t", 0, 3)
            assert (delivery.body, delivery.key, delivery.tag) == (b"3", "k1", "tag")
            assert delivery.message == again.read("t", offset=3, limit=1)[0]
            delivery.ack()
            assert consumer.poll() == []
        assert numbers(again) == [0]


def test_a_replayed_message_may_be_released_expire_and_fail_again(
    engine: Engine, disk: CrashDisk
) -> None:
    reject(engine, 2)
    engine.dead_letters("g").replay()
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll()
        delivery.release()
        (delivery,) = consumer.poll()
    with engine.consumer("t", group="g") as consumer:  # the first one has left with it
        (delivery,) = consumer.poll()
        delivery.reject("twice")
        (letter,) = engine.dead_letters("g")
        assert (letter.topic, letter.offset, letter.reason) == ("t", 2, "twice")
        assert consumer.poll() == []
    assert engine.dead_letters("g").replay() == 1
    with engine.consumer("t", group="g") as consumer:
        batch = consumer.poll_batch()
        assert batch is not None
        assert (batch.topic, batch.offset, batch.messages[0].offset) == ("t", 2, 2)
        batch.ack()


def test_a_replayed_message_may_be_taken_for_good(engine: Engine) -> None:
    reject(engine, 2)
    engine.dead_letters("g").replay()
    with engine.consumer("t", group="g") as consumer:
        assert consumer.take() == engine.read("t", offset=2, limit=1)
        assert consumer.take() == []


def test_a_replay_wakes_a_poll_that_waits(engine: Engine) -> None:
    reject(engine, 2)
    with engine.consumer("t", group="g") as consumer:
        assert consumer.poll() == []
        engine.dead_letters("g").replay()
        assert [each.offset for each in consumer.poll()] == [2]


def test_a_replay_ignores_the_present_filter_of_its_group(engine: Engine) -> None:
    from fmq import filters

    reject(engine, 2)
    engine.group("g").set_filter("t", filters.tags("other"))
    engine.dead_letters("g").replay()
    with engine.consumer("t", group="g") as consumer:
        assert [each.offset for each in consumer.poll()] == [2]


def test_an_ordered_group_goes_on_after_a_rejected_message(engine: Engine) -> None:
    """The key is not blocked; what is replayed comes in the order of its key."""
    with engine.consumer("t", group="g", ordered=True) as consumer:
        first, *_ = consumer.poll(limit=1)
        first.reject("skipped")
        assert [each.offset for each in consumer.poll()] == [1, 2, 3, 4, 5]
    reject(engine, 2, 4, ordered=True)
    engine.dead_letters("g").replay()
    with engine.consumer("t", group="g", ordered=True) as consumer:
        first, *_ = consumer.poll(limit=1)
        assert first.offset == 0
        assert consumer.poll() == [], "2 and 4 have the key of 0, which is in hand"
        first.ack()
        assert [each.offset for each in consumer.poll()] == [2, 4]


def test_a_group_with_a_strategy_gets_replayed_messages(engine: Engine) -> None:
    reject(engine, 5)
    engine.dead_letters("g").replay()
    with engine.consumer("t", group="g", strategy="average") as consumer:
        assert [each.offset for each in consumer.poll()] == [5]


def test_purged_letters_are_gone(disk: CrashDisk) -> None:
    clock = FakeClock()
    with opened(disk, clock) as engine:
        engine.send_many("t", [b"0", b"1", b"2", b"3"])
        reject(engine, 0, 1)
        clock.advance(100)
        middle = as_datetime(clock.time_us())
        clock.advance(1)
        reject(engine)
        engine.send_many("t", [b"4", b"5"])
        reject(engine, 4, 5)
        dead = engine.dead_letters("g")
        for wrong in ({}, {"all": True, "before": middle}):
            with pytest.raises(BadOption):
                dead.purge(**wrong)  # type: ignore[arg-type]
        with pytest.raises(UnknownDeadLetter):
            dead.purge([0, 9])
        assert dead.purge(before=middle) == 2
        assert dead.purge([3]) == 1
        assert numbers(engine) == [2]
        assert dead.purge(before=middle - timedelta(1)) == 0
    with opened(disk) as engine:
        dead = engine.dead_letters("g")
        assert numbers(engine) == [2]
        with pytest.raises(UnknownDeadLetter):
            dead.get(3)
        with pytest.raises(UnknownDeadLetter):
            dead.replay([2, 3])
        assert dead.purge(all=True) == 1
        assert dead.replay() == 0
        assert len(dead) == 0
    check(disk)


def test_callers_cannot_use_internal_topics(engine: Engine) -> None:
    reject(engine, 1)
    engine.dead_letters("g").replay()
    assert {info.topic for info in engine.queues()} == {"t"}
    assert {info.topic for info in engine.groups()} == {"t"}
    assert engine.stats().topics == 1
    for name in (dead_topic("g"), replay_topic("g", "t")):
        with pytest.raises(BadName):
            engine.send(name, b"x")
        with pytest.raises(BadName):
            engine.send_many(name, [b"x"])
        with pytest.raises(BadName), engine.transaction() as tx:
            tx.send(name, b"x")
        with pytest.raises(BadName):
            engine.consumer(name, group="h")
        with pytest.raises(UnknownTopic):
            engine.topic(name)


def test_names_of_full_length_do_not_collide() -> None:
    long = "x" * 255
    names = {dead_topic(long), dead_topic(long[:254] + "y"), replay_topic(long, long)}
    names.add(replay_topic(long, "x" * 254))
    assert len(names) == 4
    assert all(len(name.encode()) <= 255 for name in names)


def test_dead_letters_go_with_their_group_and_stay_without_their_topic(
    engine: Engine, disk: CrashDisk
) -> None:
    reject(engine, 1)
    engine.topic("t").delete()
    dead = engine.dead_letters("g")
    assert [letter.body for letter in dead] == [b"1"]
    dead.replay()
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll()
        assert (delivery.body, delivery.offset) == (b"1", 1)
        delivery.reject("again")
    engine.group("g").delete()
    with pytest.raises(UnknownGroup):
        engine.dead_letters("g")
    engine.send("t", b"new")
    reject(engine, 0)
    engine.close()
    with opened(disk) as again:
        assert [(each.number, each.body) for each in again.dead_letters("g")] == [(0, b"new")]


def fill_segments(engine: Engine, segments: int = 4) -> None:
    """Send so much that retention drops all that is there now."""
    last = engine.stats().position
    while engine.stats().first_position < last:
        engine.send("filler", b"x" * 500)


def test_dead_letters_outlive_the_segments_that_they_were_in(disk: CrashDisk) -> None:
    with opened(disk, retain_bytes=12288) as engine:
        engine.send_many("t", [b"%d" % number for number in range(6)])
        reject(engine, 1, 2, 4)
        before = engine.dead_letters("g").list()
        engine.dead_letters("g").purge(1)
        for _ in range(3):
            fill_segments(engine)
            assert numbers(engine) == [0, 2]
        assert engine.stats().segments <= 4
    check(disk)
    with opened(disk, retain_bytes=12288) as engine:
        dead = engine.dead_letters("g")
        assert dead.list() == [before[0], before[2]]
        assert dead.get(2) == before[2]
        engine.send_many("t", [b"6"])
        reject(engine, 6)
        assert numbers(engine)[:2] == [0, 2]
        assert dead.replay(2) == 1
        with engine.consumer("t", group="g") as consumer:
            assert [each.offset for each in consumer.poll()] == [4]
        with pytest.raises(UnknownDeadLetter):
            dead.get(2)
        assert dead.purge(0) == 1
        (left,) = dead
        assert left.body == b"6"
    check(disk)
    with opened(disk, retain_bytes=12288) as engine:
        assert engine.dead_letters("g").list() == [left]


def test_retention_does_not_carry_dead_letters_for_ever(disk: CrashDisk) -> None:
    """More dead letters than retention may keep: the journal grows with them, and no faster."""
    with opened(disk, retain_bytes=8192) as engine:
        for number in range(40):
            engine.send("t", b"%d" % number * 300)
            reject(engine, number)
        kept = sum(len(letter.body) for letter in engine.dead_letters("g"))
        written, sent = engine.stats().position, 0
        while sent < 2 * kept:
            engine.send("filler", b"x" * 500)
            sent += 500
        assert engine.dead_letters("g").count() == 40
        assert engine.stats().position - written < 4 * sent
    check(disk)


def test_a_message_that_fills_a_segment_needs_a_larger_one_to_be_moved(
    disk: CrashDisk,
) -> None:
    body = b"x" * (4096 - 250)
    with opened(disk) as engine:
        engine.send("t", body)
        with engine.consumer("t", group="g") as consumer:
            (delivery,) = consumer.poll()
            with pytest.raises(TooLarge, match="segment_bytes"):
                delivery.reject("r" * 500)
            assert numbers(engine) == []
            delivery.release()  # it is still in hand
    with opened(disk, segment_bytes=8192) as engine:
        reject(engine, 0)
        (letter,) = engine.dead_letters("g")
        assert letter.body == body
    check(disk)


def test_a_reason_is_cut_to_what_fits(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        first, second, *_ = consumer.poll()
        first.reject("ä" * 1000)
        second.reject("a\udc80b")
    assert [letter.reason for letter in engine.dead_letters("g")] == ["ä" * 512, "a?b"]


def test_a_dead_letter_keeps_all_properties_of_its_message(disk: CrashDisk) -> None:
    clock = FakeClock()
    late = as_datetime(clock.time_us() + 10**12)
    with opened(disk, clock) as engine:
        engine.send("t", b"x", message_id="once", priority=7, expires_at=late)
        with engine.transaction(tx_id="T", producer="p") as tx:
            tx.send("t", b"y")
        reject(engine, 0, 1)
        first, second = engine.dead_letters("g")
        assert (first.message_id, first.priority, first.expires_at) == ("once", 7, late)
        assert (second.tx_id, second.producer) == ("T", "p")
        engine.dead_letters("g").replay()
        with engine.consumer("t", group="g") as consumer:
            found = consumer.poll()
            assert [each.message for each in found] == engine.read("t")
        engine.send("t", b"again", message_id="once")
        assert engine.queues("t")[0].next == 2, "the id is taken still, and once"
    check(disk)


def test_an_undecided_transaction_holds_the_dead_letters_that_it_acks(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        first, *_ = consumer.poll()
        tx = engine.transaction()
        tx.ack(first)
        with pytest.raises(LeaseLost):
            first.reject("too late")
        tx.rollback()
        first.reject("now")
    assert [letter.body for letter in engine.dead_letters("g")] == [b"0"]


def test_a_transaction_can_ack_replayed_messages(engine: Engine, disk: CrashDisk) -> None:
    reject(engine, 2)
    engine.dead_letters("g").replay()
    with engine.consumer("t", group="g") as consumer:
        (delivery,) = consumer.poll()
        with engine.transaction() as tx:
            tx.ack(delivery)
            tx.send("u", b"done")
    engine.close()
    with opened(disk) as again, again.consumer("t", group="g") as consumer:
        assert consumer.poll() == []


def test_a_message_that_a_new_filter_excludes_is_no_dead_letter(disk: CrashDisk) -> None:
    """Its attempts are used up, but the group does not want it any more."""
    clock = FakeClock()
    one: dict[str, Any] = {"group": "g", "lease_seconds": 5, "retry": Retry(1)}
    with opened(disk, clock) as engine:
        engine.send("t", b"x", tag="a")
        with engine.consumer("t", filter=filters.tags("a"), **one) as consumer:
            assert consumer.poll()
            clock.advance(6)
        engine.group("g").set_filter("t", filters.tags("b"))
        with engine.consumer("t", **one) as consumer:
            assert consumer.poll() == []
        engine.sync()
        assert engine.dead_letters("g").count() == 0
        assert engine.groups("g")[0].unread == 0


def test_a_used_up_message_of_an_ordered_group_waits_for_those_before_it(disk: CrashDisk) -> None:
    """They are given back at a restart, which forgets who waits for whom."""
    clock = FakeClock()
    one: dict[str, Any] = {"group": "g", "lease_seconds": 5, "retry": Retry(1), "ordered": True}
    with opened(disk, clock) as engine:
        engine.send_many("t", [Message(b"1", key="k"), Message(b"2", key="k")], queue=0)
        with engine.consumer("t", **one) as consumer:
            first, _ = consumer.poll()
            first.release(delay=60, count=False)
    with opened(disk, clock) as engine, engine.consumer("t", **one) as consumer:
        clock.advance(30)
        assert consumer.poll() == []
        assert engine.dead_letters("g").count() == 0
        clock.advance(31)
        (first,) = consumer.poll()
        assert first.body == b"1"
        first.ack()
        assert consumer.poll() == []
        assert [each.body for each in engine.dead_letters("g")] == [b"2"]


def test_the_reason_of_a_used_up_message_says_that_it_was_given_back(engine: Engine) -> None:
    """Method: it is released as often as it may be tried, each time without a wait."""
    engine.send("u", b"x")
    with engine.consumer("u", group="g", retry=Retry(2)) as consumer:
        for _ in range(2):
            (delivery,) = consumer.poll()
            delivery.release(delay=0)
        assert consumer.poll() == []
    (dead,) = engine.dead_letters("g").list()
    assert dead.reason == "attempt 2 was given back, and there is no other one"
