"""The members of a group: they come and go, and queues move with them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Any

import pytest

import fmq
from fmq import Delivery, Engine
from fmq.allocation import (
    average,
    by_configuration,
    by_room,
    consistent_hash,
    describe,
    nearby,
    sticky,
)
from fmq.basics.clock import as_us
from fmq.errors import (
    BadAllocation,
    BadName,
    LeaseLost,
    MemberReplaced,
    StrategyDiffers,
    TopicsDiffer,
)
from fmq.testing.inside import inside
from fmq.testing.transport import MemoryServer
from tests.small import CrashDisk, FakeClock, check, opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[Engine]:
    disk = CrashDisk()
    # All messages are in one segment, because a poll ends where a segment does.
    with opened(disk, clock, queues=4, segment_bytes=16384) as engine:
        for number in range(40):
            engine.send("t", b"%d" % number, queue=number % 4)
        yield engine
    check(disk)


class Heard:
    """What `on_change` was told."""

    def __init__(self) -> None:
        self.news: list[tuple[list[int], list[int]]] = []

    def __call__(self, lost: Sequence[tuple[str, int]], gained: Sequence[tuple[str, int]]) -> None:
        self.news.append(([queue for _, queue in lost], [queue for _, queue in gained]))


def joined(
    engine: Engine,
    name: str,
    heard: Heard | None = None,
    topics: str | list[str] = "t",
    **how: Any,
) -> fmq.Consumer:
    how.setdefault("strategy", "by_circle")
    return engine.consumer(topics, group="g", member=name, on_change=heard, **how)


def polled(consumer: fmq.Consumer) -> list[Delivery]:
    """Everything that the consumer can get now."""
    found = []
    while deliveries := consumer.poll():
        found += deliveries
    return found


def queues(deliveries: list[Delivery]) -> set[int]:
    return {each.queue for each in deliveries}


def test_members_are_shown_as_they_are_at_one_instant(engine: Engine) -> None:
    """Another thread that is changing them ends that first."""
    consumer = joined(engine, "a")
    members = engine.group("g").members
    found: list[list[fmq.MemberInfo]] = []
    looking = Thread(target=lambda: found.append(members()))
    with inside(engine).lock:
        looking.start()
        looking.join(0.05)
        assert not found, "it did not wait for who is changing them"
    looking.join(60)
    assert [[each.name for each in look] for look in found] == [[consumer.member]]


def test_each_queue_belongs_to_one_member(engine: Engine) -> None:
    heard = Heard()
    with joined(engine, "a", heard) as a, joined(engine, "b") as b:
        assert queues(polled(a)) == {0, 2}
        assert queues(polled(b)) == {1, 3}
        assert heard.news == [([], [0, 2])]
        owns = {info.name: info.owns for info in engine.group("g").members()}
        assert owns == {"a": (("t", 0), ("t", 2)), "b": (("t", 1), ("t", 3))}


def test_a_member_that_comes_later_takes_over_queues(engine: Engine) -> None:
    heard, later = Heard(), Heard()
    with joined(engine, "a", heard) as a:
        mine = polled(a)
        assert queues(mine) == {0, 1, 2, 3}
        with joined(engine, "b", later) as b:
            theirs = polled(b)
            assert (queues(theirs), later.news) == ({1, 3}, [([], [1, 3])])
            for each in mine:
                if each.queue in (1, 3):
                    with pytest.raises(LeaseLost):
                        each.ack()  # it does no harm
                else:
                    each.ack()
            for each in theirs:
                each.ack()
            assert polled(a) == []
            assert heard.news == [([], [0, 1, 2, 3]), ([1, 3], [])]
    assert sum(info.unread for info in engine.groups("g")) == 0


def test_queues_of_a_leaving_member_go_to_the_others(engine: Engine) -> None:
    with joined(engine, "a") as a:
        with joined(engine, "b") as b:
            assert len(polled(b)) == 20
        assert len(polled(a)) == 40


def test_a_member_without_a_sign_of_life_is_out_and_comes_in_again(
    engine: Engine, clock: FakeClock
) -> None:
    heard = Heard()
    with (
        joined(engine, "a", lease_seconds=1000) as a,
        joined(engine, "b", heard, lease_seconds=1000) as b,
    ):
        (late, *_) = polled(b)
        clock.advance(59)
        mine = a.poll()
        clock.advance(2)
        assert len(mine) + len(polled(a)) == 40
        assert [info.name for info in engine.group("g").members()] == ["a"]
        with pytest.raises(LeaseLost):
            late.ack()
        assert len(polled(b)) == 20
        assert heard.news == [([], [1, 3]), ([1, 3], [1, 3])]


def test_an_ack_is_a_sign_of_life(engine: Engine, clock: FakeClock) -> None:
    with joined(engine, "a") as a, joined(engine, "b", lease_seconds=1000) as b:
        mine = polled(b)
        for delivery in mine[:3]:
            clock.advance(50)
            delivery.ack()
            a.poll()
        mine[3].ack()


def test_a_consumer_of_the_same_name_takes_over(engine: Engine) -> None:
    with joined(engine, "a") as old:
        (first, *_) = polled(old)
        with joined(engine, "a") as new:
            assert len(polled(new)) == 40
            with pytest.raises(LeaseLost):
                first.ack()
            with pytest.raises(MemberReplaced, match="'a' of the group 'g'"):
                old.poll()
        assert old.member == "a"


def test_all_members_need_the_same_strategy(engine: Engine) -> None:
    with joined(engine, "a"):
        with pytest.raises(StrategyDiffers, match="no strategy"):
            joined(engine, "b", strategy=None)
        with joined(engine, "b"):
            pass
    with joined(engine, "c", strategy=None):
        pass


def test_members_may_read_different_topics(engine: Engine) -> None:
    engine.send("u", b"x", queue=1)
    with joined(engine, "a") as a, joined(engine, "b", topics=["t", "u"]) as b:
        assert queues(polled(a)) == {0, 2}
        assert {(each.topic, each.queue) for each in polled(b)} == {("t", 1), ("t", 3), ("u", 1)}
        with pytest.raises(TopicsDiffer, match="'c' reads u and 'a' reads t"):
            joined(engine, "c", topics="u", strict=True)


def test_a_topic_that_is_made_later_is_shared_out(engine: Engine) -> None:
    with joined(engine, "a", topics="new") as a, joined(engine, "b", topics="new") as b:
        assert polled(a) == []
        for queue in range(4):
            engine.send("new", b"x", queue=queue)
        assert (queues(polled(a)), queues(polled(b))) == ({0, 2}, {1, 3})


def test_without_a_strategy_members_compete(engine: Engine) -> None:
    with joined(engine, "a", strategy=None) as a, joined(engine, "b", strategy=None) as b:
        first, second = a.poll(), b.poll()
        assert queues(first).isdisjoint(queues(second))
        assert len(first) + len(second) + len(polled(a)) == 40
        assert "compete" in engine.group("g").explain()


def test_a_queue_that_was_given_back_reaches_its_next_owner(engine: Engine) -> None:
    """Whatever the order of joins, releases and leaves, each message can be had."""
    with joined(engine, "a") as a:
        held = polled(a)
        with joined(engine, "b") as b:
            for each in held:
                if each.queue in (0, 2):
                    each.release()
            assert queues(polled(b)) == {1, 3}
        assert len(polled(a)) == 40
    with joined(engine, "c", strategy=None) as c:
        assert len(polled(c)) == 40


def test_a_bad_name_of_a_member_is_refused(engine: Engine) -> None:
    with pytest.raises(BadName, match="member"):
        joined(engine, "")


def test_a_function_of_the_program_may_be_the_strategy(engine: Engine) -> None:
    def all_to_the_first(queues: Sequence[int], members: Sequence[str]) -> dict[str, list[int]]:
        return {members[0]: [*queues]}

    with (
        joined(engine, "a", strategy=all_to_the_first) as a,
        joined(engine, "b", strategy=all_to_the_first) as b,
    ):
        assert (len(polled(b)), len(polled(a))) == (0, 40)
        assert "shared among a, b by" in engine.group("g").explain()


def test_a_strategy_that_gives_a_queue_twice_is_refused(engine: Engine) -> None:
    def wrong(queues: Sequence[int], members: Sequence[str]) -> dict[str, list[int]]:
        return {name: [*queues] for name in members}

    with joined(engine, "a", strategy=wrong) as a:
        with pytest.raises(BadAllocation, match="wrong"):
            joined(engine, "b", strategy=wrong)
        assert names_of(engine) == ["a"]
        assert len(polled(a)) == 40


ROOMS = {0: "east", 1: "east", 2: "west"}
PEOPLE = {"a": "east", "b": "west"}
TABLES: list[tuple[Any, list[int], list[int]]] = [
    (average, [0, 1], [2, 3]),
    (consistent_hash(), [], [0, 1, 2, 3]),
    (consistent_hash(virtual_nodes=20), [0], [1, 2, 3]),
    (by_room(["east"], ROOMS), [0], [1]),
    (by_configuration({"a": [3], "b": [2, 0], "c": []}), [3], [0, 2]),
    (nearby(average, ROOMS, PEOPLE), [0, 1, 3], [2]),
    (nearby(sticky, ROOMS, {"a": "east"}), [0, 1, 2], [3]),
    (nearby(consistent_hash(22), {}, PEOPLE), [0, 3], [1, 2]),
]


def text_of(value: Any) -> str:
    return describe(value) if callable(value) else str(value)


@pytest.mark.parametrize(("strategy", "of_a", "of_b"), TABLES, ids=text_of)
def test_a_strategy_with_a_table_shares_by_it(
    engine: Engine, strategy: Any, of_a: list[int], of_b: list[int]
) -> None:
    with joined(engine, "a", strategy=strategy), joined(engine, "b", strategy=strategy):
        members = {each.name: each for each in engine.group("g").members()}
        assert {each.strategy for each in members.values()} == {describe(strategy)}
        assert [queue for _, queue in members["a"].owns] == of_a
        assert [queue for _, queue in members["b"].owns] == of_b


DIFFERENT: list[tuple[Any, Any]] = [
    (consistent_hash(3), consistent_hash(4)),
    (by_room(["east"], ROOMS), by_room(["east"], {**ROOMS, 3: "east"})),
    (by_configuration({"a": [0]}), by_configuration({"a": [0], "b": []})),
    (nearby(average, ROOMS, PEOPLE), nearby(sticky, ROOMS, PEOPLE)),
    (nearby(average, ROOMS, PEOPLE), nearby(average, ROOMS, {"a": "east"})),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=text_of)
def test_a_strategy_with_other_arguments_is_another_strategy(
    engine: Engine, one: Any, other: Any
) -> None:
    with joined(engine, "a", strategy=one), pytest.raises(StrategyDiffers):
        joined(engine, "b", strategy=other)


def test_queues_and_members_without_a_row_in_a_table_are_not_refused(engine: Engine) -> None:
    """Queues and members without a row form a room of their own, and none of them is refused."""
    strategy = nearby(average, ROOMS, PEOPLE)
    with joined(engine, "a", strategy=strategy), joined(engine, "new", strategy=strategy):
        engine.topic("t").add_queues(1)
        members = {each.name: each for each in engine.group("g").members()}
        assert [queue for _, queue in members["new"].owns] == [3, 4]
    with joined(engine, "new", strategy=strategy) as new:
        assert queues(polled(new)) == {0, 1, 2, 3}


@pytest.mark.parametrize("strategy", ["by_magic", 7])
def test_a_wrong_strategy_is_refused(engine: Engine, strategy: object) -> None:
    with pytest.raises((BadAllocation, TypeError), match=r"fmq\.allocation"):
        joined(engine, "a", strategy=strategy)


def names_of(engine: Any) -> list[str]:
    return [info.name for info in engine.group("g").members()]


@pytest.mark.parametrize("face", ["engine", "server"])
def test_a_silent_member_is_not_listed(engine: Engine, clock: FakeClock, face: str) -> None:
    at = engine if face == "engine" else MemoryServer(engine, clock).connect()
    consumer = at.consumer("t", group="g", member="a", strategy="by_circle")
    assert names_of(at) == ["a"]
    clock.advance(1_402)
    assert names_of(at) == []
    assert "shared among" not in at.group("g").explain()
    assert len(consumer.poll()) > 0
    assert names_of(at) == ["a"]
    consumer.close()


def test_a_silent_member_is_given_no_queues(engine: Engine, clock: FakeClock) -> None:
    with joined(engine, "a") as silent, joined(engine, "b") as leaving:
        clock.advance(59)
        leaving.poll()
        clock.advance(2)
        with joined(engine, "c") as c:
            mine = queues(polled(c))
            assert len(mine) == 2
            leaving.close()
            assert queues(polled(c)) == {0, 1, 2, 3} - mine
            assert names_of(engine) == ["c"]
        silent.close()


def test_a_member_may_come_with_another_strategy_once_others_are_silent(
    engine: Engine, clock: FakeClock
) -> None:
    with joined(engine, "a"):
        clock.advance(61)
        with joined(engine, "b", strategy=None) as b:
            assert len(polled(b)) == 40


def test_a_member_beyond_its_limit_joins_again_first(engine: Engine, clock: FakeClock) -> None:
    heard = Heard()
    with joined(engine, "a", heard, lease_seconds=1000) as a:
        held = polled(a)
        clock.advance(61)
        assert len(polled(a)) == 40
        assert heard.news == [([], [0, 1, 2, 3]), ([0, 1, 2, 3], [0, 1, 2, 3])]
        with pytest.raises(LeaseLost):
            held[0].ack()


def test_a_wait_in_a_poll_is_a_sign_of_life(engine: Engine, clock: FakeClock) -> None:
    heard = Heard()
    with joined(engine, "a", heard, lease_seconds=1000) as a:
        held = polled(a)
        assert a.poll(timeout=200) == []
        held[0].ack()
        clock.advance(59)
        engine.send("t", b"x")
        assert names_of(engine) == ["a"]
        assert heard.news == [([], [0, 1, 2, 3])]


def test_a_call_puts_silent_members_out(
    engine: Engine, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a thread for chores, the end of a call does it."""
    with joined(engine, "a", lease_seconds=1000) as a:
        held = polled(a)
        clock.advance(61)
        engine.send("t", b"x")
        assert "member 'a' of group 'g' is out" in caplog.text
        with pytest.raises(LeaseLost):
            held[0].ack()


def test_a_timer_puts_silent_members_out(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """No call is made: the thread for chores does it, and not before the time has come."""
    disk = CrashDisk()

    def is_out(times: int) -> bool:
        if caplog.text.count("member 'a' of group 'g' is out") == times:
            return True
        clock.advance(61)  # again, if the thread began to wait only after the last time
        return False

    with fmq.open("data", disk=disk, clock=clock, background=True) as engine:
        engine.send("t", b"1")
        engine.checkpoint()
        a = engine.consumer("t", group="g", member="a", lease_seconds=1_000_000)
        for times in (1, 2):
            (held,) = a.poll()
            clock.advance(59)
            engine.send("u", b"2")
            assert caplog.text.count("is out") == times - 1
            clock.until(lambda times=times: is_out(times))  # type: ignore[misc]
            with pytest.raises(LeaseLost):
                held.ack()
    check(disk)


def test_a_waiting_poll_gets_messages_of_a_silent_member(engine: Engine, clock: FakeClock) -> None:
    with (
        joined(engine, "a", lease_seconds=1000) as a,
        joined(engine, "b", lease_seconds=1000) as b,
    ):
        assert len(polled(a)) == 20
        assert len(polled(b)) == 20
        assert queues(b.poll(timeout=100)) <= {0, 2}
        assert names_of(engine) == ["b"]


# --- who is out -----------------------------------------------------------------------------------


def out_of(engine: Engine) -> list[tuple[str, str, int]]:
    return [(each.name, each.why, each.held) for each in engine.group("g").former_members()]


def test_members_that_are_out_are_remembered_the_last_one_first(
    engine: Engine, clock: FakeClock
) -> None:
    a, b = joined(engine, "a", lease_seconds=1000), joined(engine, "b", lease_seconds=1000)
    group = engine.group("g")
    assert group.former_members() == []
    assert len(a.poll(limit=3)) == 3
    group.put_out("a", reason="it hangs", by="ann")
    (put_out,) = group.former_members()
    assert (put_out.name, put_out.topics, put_out.why) == ("a", ("t",), "put out")
    assert (put_out.by, put_out.reason, put_out.held) == ("ann", "it hangs", 3)
    assert (put_out.host, put_out.pid) == (socket.gethostname(), os.getpid())
    assert as_us(put_out.out_at) == clock.time_us()
    a.close()
    assert group.former_members() == [put_out], "it was out already"
    assert len(b.poll(limit=2)) == 2
    clock.advance(1)
    new = joined(engine, "b", lease_seconds=1000)
    assert len(new.poll(limit=4)) == 4
    clock.advance(61)
    assert out_of(engine) == [("b", "silent", 4), ("b", "replaced", 2), ("a", "put out", 3)]
    assert (engine.groups("g")[0].members, names_of(engine)) == (0, [])
    new.poll(limit=1)  # it comes in again
    assert [info.members for info in engine.groups("g")] == [1] * 4
    assert sum(info.in_hand or 0 for info in engine.groups("g")) == 1
    new.close()
    assert out_of(engine)[0] == ("b", "left", 1)
    counts = engine.stats().counts
    assert counts is not None
    assert counts.groups["g"].out == {"put out": 1, "replaced": 1, "silent": 1, "left": 1}
    for number in range(20):
        joined(engine, f"m{number}").close()
    assert [name for name, *_ in out_of(engine)] == [f"m{number}" for number in range(19, 9, -1)]
    group.delete()
    engine.create_group("g", "t")
    assert engine.group("g").former_members() == []
