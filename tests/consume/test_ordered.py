"""A group that keeps the order of each key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmq
from fmq import Engine, filters
from fmq.consume.calls import member as members
from fmq.consume.groups import sieve
from fmq.consume.groups.sieve import Sieve
from fmq.errors import LeaseLost, StrategyDiffers
from tests.interrupts import in_thread
from tests.small import CrashDisk, FakeClock, check, opened
from tests.store.lines import Lines, at_each_line


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[Engine]:
    disk = CrashDisk()
    with opened(disk, clock) as engine:
        yield engine
    check(disk)


def send(engine: Engine, *keys: str) -> None:
    """A message for each key; its body says which and the how manyth."""
    for number, key in enumerate(keys):
        engine.send("t", f"{key}{number}".encode(), key=key or None)


def joined(engine: Engine, name: str = "m", **how: object) -> fmq.Consumer:
    return engine.consumer("t", group="g", member=name, ordered=True, **how)  # type: ignore[arg-type]


def bodies(deliveries: list[fmq.Delivery]) -> list[str]:
    return [each.body.decode() for each in deliveries]


def test_the_next_message_of_a_key_comes_after_the_ack_of_the_one_before(engine: Engine) -> None:
    send(engine, "a", "b", "a", "c", "a")
    with joined(engine) as consumer:
        (first,) = consumer.poll(limit=1)
        second = consumer.poll(limit=1)
        assert bodies([first, *second]) == ["a0", "b1"]
        third = consumer.poll()
        assert bodies(third) == ["c3"]
        first.ack()
        (next_one,) = consumer.poll(limit=1)
        assert bodies([next_one, *consumer.poll()]) == ["a2"]
        next_one.ack()
        assert bodies(consumer.poll()) == ["a4"]


def looks() -> Iterator[Lines]:
    """Something at each line of a look at keys, one after the other."""
    return at_each_line(lambda at: Lines(sieve, at, function=Sieve.look.__code__))


def test_an_ack_while_another_thread_looks_strands_no_message() -> None:
    """Method: before each line of a look at the keys of new messages, another thread acks."""
    for lines in looks():
        with opened(CrashDisk()) as engine, joined(engine) as consumer:
            send(engine, "a")
            (first,) = consumer.poll()
            send(engine, "c", "a", "b")
            lines.act = partial(in_thread, first.ack, "the ack")
            found: Any = lines.run(consumer.poll)
            if not lines.met:
                first.ack()
            found += consumer.poll()
            assert sorted(bodies(found)) == ["a1", "b2", "c0"], lines.met


def test_a_release_while_another_thread_looks_strands_no_message() -> None:
    """It takes back later messages of its key from their claim."""
    for lines in looks():
        with opened(CrashDisk()) as engine, joined(engine) as consumer:
            send(engine, "a", "a")
            first, later = consumer.poll()
            send(engine, "b", "b", "a", "b", "a")
            lines.act = partial(in_thread, first.release, "the release")
            batch: Any = lines.run(consumer.poll_batch)
            if not lines.met:
                first.release()
            with pytest.raises(LeaseLost):
                later.ack()
            found = [each.decode() for each in batch.bodies]
            batch.ack()
            found += acked(consumer)
            assert sorted(found) == ["a0", "a1", "a2", "a4", "b0", "b1", "b3"], lines.met


def test_a_skip_before_an_attempt_is_counted_strands_no_message() -> None:
    """It takes a part of what the poll has claimed, and the poll gives back the rest at once, not
    when its lease ends.
    """
    count = members.GroupMember._reading.__code__
    for lines in at_each_line(lambda at: Lines(members, at, function=count)):
        with opened(CrashDisk()) as engine, joined(engine) as consumer:
            send(engine, "a", "b", "c")
            group = engine.group("g")
            lines.act = partial(in_thread, partial(group.skip, "t", 0, 1), "the skip")
            deliveries: Any = lines.run(consumer.poll)
            if not lines.met:
                group.skip("t", 0, 1)
            for each in deliveries:
                with suppress(LeaseLost):
                    each.ack()
            found = {*bodies(deliveries), *acked(consumer)}
            assert {"a0", "c2"} <= found <= {"a0", "b1", "c2"}, lines.met


def test_a_message_acked_while_another_thread_looks_blocks_no_later_one() -> None:
    """Method: another thread looks at the same messages, handles and acks them, before each line
    of the look.
    """
    for lines in looks():
        with opened(CrashDisk()) as engine, joined(engine) as consumer:
            send(engine, "a")
            (first,) = consumer.poll()
            send(engine, "b", "a", "b", "a")
            found: list[str] = []
            lines.act = partial(in_thread, partial(go_on, first, consumer, found), "it")
            deliveries: Any = lines.run(consumer.poll)
            for each in deliveries:
                each.ack()
            found += bodies(deliveries)
            if not lines.met:
                go_on(first, consumer, found)
            engine.send("t", b"a5", key="a")
            found += acked(consumer)
            assert sorted(found) == ["a0", "a1", "a3", "a5", "b0", "b2"], lines.met


def test_an_interrupted_look_at_new_messages_is_repeated(clock: FakeClock) -> None:
    """Of what does not match, some may be passed over when the lease of the poll has ended."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    for lines in looks():
        with opened(CrashDisk(), clock) as engine:
            for number in range(5):
                engine.send("t", b"%d" % number, key="a", tag="x" if number % 2 else "y")
            with joined(engine, filter=filters.tags("x"), lease_seconds=5) as consumer:
                lines.act = interrupt
                found: list[str] = []
                with suppress(KeyboardInterrupt):
                    found += cast(list[str], lines.run(partial(acked, consumer)))
                clock.advance(6)
                found += acked(consumer)
                assert found == ["1", "3"], lines.met
            [info] = engine.groups("g")
            assert info.acked_below == 5, lines.met


def go_on(first: fmq.Delivery, consumer: fmq.Consumer, found: list[str]) -> None:
    first.release()
    found += acked(consumer)


def acked(consumer: fmq.Consumer) -> list[str]:
    """Ack all that can be polled. Return the bodies."""
    found: list[str] = []
    while deliveries := consumer.poll():
        found += bodies(deliveries)
        for each in deliveries:
            each.ack()
    return found


def test_one_batch_may_hold_several_messages_of_a_key(engine: Engine) -> None:
    send(engine, "a", "b", "a", "a")
    with joined(engine) as consumer:
        assert bodies(consumer.poll()) == ["a0", "b1", "a2", "a3"]
        assert consumer.poll() == []


def test_a_failing_message_blocks_its_key_and_no_other(engine: Engine) -> None:
    send(engine, "a", "b", "a", "b")
    with joined(engine) as consumer:
        first, second, later, last = consumer.poll()
        first.release()
        with pytest.raises(LeaseLost):
            later.ack()
        second.ack()
        last.ack()
        (again,) = consumer.poll(limit=1)
        assert bodies([again]) == ["a0"]
        assert consumer.poll() == []
        again.ack()
        assert bodies(consumer.poll()) == ["a2"]


def test_the_end_of_a_lease_keeps_the_order(engine: Engine, clock: FakeClock) -> None:
    send(engine, "a", "a", "b")
    with joined(engine, lease_seconds=5) as consumer:
        consumer.poll(limit=1)
        clock.advance(6)
        assert bodies(consumer.poll()) == ["b2"]
        assert bodies(consumer.poll()) == ["a0"]
        assert consumer.poll() == []


def test_leases_that_end_together_are_all_redelivered(engine: Engine, clock: FakeClock) -> None:
    """The first one takes the second from its claim, which then has no lease that could end."""
    send(engine, "a", "b", "a")
    with joined(engine, lease_seconds=5) as consumer:
        consumer.poll()[1].ack()
        clock.advance(6)
        (first,) = consumer.poll()
        first.ack()
        assert bodies([first, *consumer.poll()]) == ["a0", "a2"]


def test_a_message_that_is_rolled_back_blocks_the_later_ones_in_hand(engine: Engine) -> None:
    send(engine, "a", "b", "a")
    with joined(engine) as consumer:
        first, other, later = consumer.poll()
        tx = engine.transaction(tx_id="pay")
        tx.ack(first)
        tx.prepare()
        tx.rollback()
        with pytest.raises(LeaseLost):
            later.ack()
        other.ack()
        (again,) = consumer.poll()
        assert bodies([again]) == ["a0"]
        again.ack()
        assert bodies(consumer.poll()) == ["a2"]


def test_the_order_holds_across_members_and_restarts() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        send(engine, "a", "a", "b", "a")
        with joined(engine) as consumer:
            tx = engine.transaction(tx_id="pay")
            tx.ack(consumer.poll(limit=1)[0])
            tx.prepare()
    with opened(disk) as engine, joined(engine) as consumer:
        assert bodies(consumer.poll()) == ["b2"]
        engine.decide("pay", "rollback")
        assert bodies(consumer.poll()) == ["a0"]


def test_messages_without_a_key_are_in_order(engine: Engine) -> None:
    send(engine, "", "", "a")
    with joined(engine) as consumer:
        consumer.poll(limit=1)
        assert bodies(consumer.poll()) == ["a2"]


def test_excluded_messages_do_not_block_their_key(engine: Engine) -> None:
    for number in range(6):
        engine.send("t", b"%d" % number, key="a", tag="paid" if number % 2 else "open")
    with joined(engine, filter=filters.tags("paid")) as consumer:
        (first,) = consumer.poll(limit=1)
        assert consumer.poll() == []
        first.ack()
        assert bodies(consumer.poll()) == ["3", "5"]


def test_all_members_keep_the_order_or_none_does(engine: Engine) -> None:
    with joined(engine, "a"):
        with pytest.raises(StrategyDiffers, match="sticky, in order"):
            engine.consumer("t", group="g", strategy="sticky")
        with joined(engine, "b"):
            pass


@given(st.data())
def test_each_key_is_acked_in_its_order(data: st.DataObject) -> None:
    """It holds for any sequence of polls, releases, acks and lost leases."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        keys = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
        send(engine, *keys)
        done: list[str] = []
        hands: list[fmq.Delivery] = []
        with joined(engine, "m", lease_seconds=10) as consumer:
            for _ in range(40):
                step = data.draw(st.sampled_from(["poll", "ack", "ack", "release", "wait"]))
                if step == "poll":
                    hands += consumer.poll(limit=data.draw(st.integers(1, 5)))
                elif step == "wait":
                    clock.advance(data.draw(st.sampled_from([1, 11])))
                elif hands:
                    number = 0 if step == "ack" else data.draw(st.integers(0, len(hands) - 1))
                    delivery = hands.pop(number)
                    try:
                        delivery.ack() if step == "ack" else delivery.release()
                    except LeaseLost:
                        continue
                    done += bodies([delivery]) if step == "ack" else []
            clock.advance(11)
            while deliveries := consumer.poll(limit=3, timeout=3600):  # longer than any retry waits
                for delivery in deliveries:
                    delivery.ack()
                    done += bodies([delivery])
        assert len(done) == len(keys)
        for key in "abc":
            mine = [int(each[1:]) for each in done if each[0] == key]
            assert mine == sorted(mine)
