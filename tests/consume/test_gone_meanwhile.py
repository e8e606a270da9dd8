"""A topic or a group is deleted in the middle of a call that reads from it: the call ends well, or
says what has gone, and the engine lives on.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from fmq import Engine, FmqError, Message, errors, filters
from fmq.faces.steps import found_messages
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.inside import inside
from fmq.testing.transport import MemoryServer
from tests.small import check, opened, remove, segments

EARLY, LATE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)


def delete_topic(engine: Engine) -> None:
    engine.topic("t").delete()


def make_topic_again(engine: Engine) -> None:
    engine.topic("t").delete()
    engine.send("t", b"new")


def delete_group(engine: Engine) -> None:
    engine.group("g").delete()


def make_group_again(engine: Engine) -> None:
    engine.group("g").delete()
    engine.create_group("g", "t")


GOES: dict[str, Callable[[Engine], None]] = {
    "topic": delete_topic,
    "topic, and is made again": make_topic_again,
    "group": delete_group,
    "group, and is made again": make_group_again,
}


def poll(engine: Engine, **named: Any) -> Callable[[], object]:
    return engine.consumer("t", group="g", **named).poll


def poll_what_it_wants(engine: Engine, wanted: Any) -> Callable[[], object]:
    engine.group("g").set_filter("t", wanted)
    return engine.consumer("t", group="g").poll


def poll_batch(engine: Engine) -> Callable[[], object]:
    return engine.consumer("t", group="g").poll_batch


def take(engine: Engine) -> Callable[[], object]:
    return engine.consumer("t", group="g").take


def reject(engine: Engine) -> Callable[[], object]:
    found = engine.consumer("t", group="g").poll()
    for _ in range(2):
        engine.send("other", b"x" * 3000)
    engine.read("other", limit=1)  # so that what was read for the poll is not in memory any more
    return min(found, key=lambda delivery: delivery.offset).reject


def buried(engine: Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer.poll():
            delivery.reject("no")
    engine.send_many("t", [b"more", b"of it"])


def letters(engine: Engine) -> Callable[[], object]:
    buried(engine)
    return engine.dead_letters("g").list


def replay(engine: Engine) -> Callable[[], object]:
    buried(engine)
    return engine.dead_letters("g").replay


def purge(engine: Engine) -> Callable[[], object]:
    buried(engine)
    return lambda: engine.dead_letters("g").purge(before=LATE)


def poll_what_was_replayed(engine: Engine) -> Callable[[], object]:
    buried(engine)
    engine.dead_letters("g").replay()
    return engine.consumer("t", group="g").poll


CALLS: dict[str, Callable[[Engine], Callable[[], object]]] = {
    "poll": poll,
    "poll by tag": lambda engine: poll_what_it_wants(engine, filters.tags("t")),
    "poll by header": lambda engine: poll_what_it_wants(engine, filters.sql("n > 0")),
    "poll in order": lambda engine: poll(engine, ordered=True),
    "poll_batch": poll_batch,
    "take": take,
    "reject": reject,
    "list": letters,
    "replay": replay,
    "purge": purge,
    "poll what was replayed": poll_what_was_replayed,
    "read": lambda engine: lambda: engine.read("t"),
    "unread": lambda engine: lambda: engine.unread("g", "t"),
    "find": lambda engine: lambda: engine.find("t", key="k"),
    "offset_at": lambda engine: lambda: engine.offset_at("t", 0, EARLY),
}
# What may be said; all else would be false.
MAY_SAY = errors.UnknownGroup, errors.LeaseLost, errors.UnknownDeadLetter


def filled(engine: Engine) -> None:
    engine.create_group("g", "t")
    for number in range(3):
        more: dict[str, Any] = {
            "key": "k",
            "tag": "t",
            "headers": {"n": "1"},
            "priority": number,
        }
        engine.send_many("t", [Message(b"%d" % number, **more), b"x"])
    engine.send("t", b"the last one, which is read from memory")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("what", GOES)
def test_a_deletion_during_a_read_ends_no_engine(call: str, what: str) -> None:
    """It goes before each read of the disk in turn."""
    tried = 0
    for nth in range(20):
        disk, clock = CrashDisk(), FakeClock()
        door = FaultDisk(disk)
        with opened(door, clock) as engine:
            filled(engine)
            made = CALLS[call](engine)
            clock.advance(1)
            gone: list[bool] = []

            def go(engine: Engine = engine, gone: list[bool] = gone) -> None:
                gone.append(True)
                GOES[what](engine)

            door.before("read", go, nth=nth, names="*.seg")
            try:
                made()
            except FmqError as error:
                if not isinstance(error, MAY_SAY):
                    raise
            door.heal()
            engine.send("t", b"it lives on")
            assert engine.stats().trouble is None
        check(disk)
        if not gone:
            break
        tried += 1
    assert tried, "it never read"


def test_a_silent_member_of_a_deleted_group_gets_an_error(clock: FakeClock) -> None:
    disk = CrashDisk()
    with opened(disk, clock, member_timeout_seconds=5) as engine:
        engine.send("t", b"x")
        silent = engine.consumer("t", group="g")
        with engine.consumer("t", group="g") as other:
            clock.advance(6)
            other.poll()  # puts the silent one out
        engine.group("g").delete()
        for _ in range(2):
            with pytest.raises(errors.UnknownGroup, match="was deleted"):
                silent.poll()
        engine.send("t", b"it lives on")
        with engine.consumer("t", group="g") as anew:
            found = [each.body for _ in range(2) for each in anew.poll()]
            assert found == [b"x", b"it lives on"]
    check(disk)


def test_a_consumer_whose_group_is_deleted_while_it_joins_is_refused(clock: FakeClock) -> None:
    """Between its record, which a sync makes durable, and the consumer's entry."""
    disk = CrashDisk()
    with opened(disk, clock) as engine:
        engine.send("t", b"x")
        with engine.consumer("t", group="g"):
            pass
        consumer = engine.consumer("t", group="g")
        engine.group("g").delete()
        engine.create_group("g", "u")
        with pytest.raises(errors.UnknownGroup):
            consumer.poll()
    check(disk)


def test_a_segment_that_is_missing_is_damage_to_each_look(clock: FakeClock) -> None:
    """Retention has not dropped it, so no look passes over it in silence, or with a bare error."""
    disk = CrashDisk()
    with opened(disk, clock) as engine:
        engine.create_group("g", "t")
        for number in range(30):
            engine.send("t", b"x" * 500, key="k" if number == 9 else None)
    missing = segments(disk)[1]
    with opened(disk, clock) as engine:
        remove(disk, missing)
        with engine.consumer("t", group="g") as consumer:
            for delivery in consumer.poll(limit=6):
                delivery.ack()
        assert [info.acked_below for info in engine.groups("g")] == [6]
        for look in (
            lambda: engine.find("t", key="k"),
            lambda: engine.read("t", offset=8),
            lambda: engine.offset_at("t", 0, EARLY),
        ):
            with pytest.raises(errors.Damaged, match=f"{missing}.*is missing"):
                look()


def test_a_message_of_a_topic_that_is_made_again_is_not_found_by_the_key_of_an_older_one(
    clock: FakeClock,
) -> None:
    """It has the place at which the other one was found."""

    class SlowDoor:
        """The topic is made again between two steps of a call."""

        def look(self, name: str, *args: Any) -> Any:
            places = getattr(inside(engine).finder, name.removesuffix("_of"))(*args)
            assert places
            engine.topic("t").delete()
            engine.send("t", b"new", key="other")
            return places

        def read_batch(self, topic: str, queue: int, offset: int, limit: int, _: float) -> Any:
            return engine.read_batch(topic, queue=queue, offset=offset, limit=limit)

    with opened(CrashDisk(), clock) as engine:
        engine.send("t", b"old", key="k")
        door: Any = SlowDoor()
        assert found_messages(door, "t", "k", 9) == []


@pytest.mark.parametrize("remote", [False, True])
def test_a_refused_ack_of_a_batch_names_the_message(clock: FakeClock, remote: bool) -> None:
    with opened(CrashDisk(), clock) as engine:
        server = MemoryServer(engine, clock)
        face: Any = server.connect() if remote else engine
        face.send_many("t", [b"1", b"2", b"3", b"4", b"5"])
        with face.consumer("t", group="g") as consumer:
            (batch,) = islice(consumer.batches(5, 20), 1)
            engine.group("g").skip("t", 0, 3)
            batch[:] = [each for each in batch if each.offset != 1]
            with pytest.raises(errors.LeaseLost, match="offset 3"):
                batch.ack()
        server.close()
