"""Pauses: a group, or every group of a topic, is handed nothing until the pause ends."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq.errors import BadName, TooLarge, UnknownGroup, UnknownTopic
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import OPTIONS, PATH


@pytest.fixture(autouse=True)
def messages(engine: fmq.Engine) -> None:
    engine.send_many("t", [b"0", b"1", b"2", b"3"])
    engine.create_group("g", "t")


def why(pause: fmq.Pause | None) -> tuple[str, str, str] | None:
    return None if pause is None else (pause.of, pause.by, pause.reason)


def of_group(engine: Any, group: str = "g") -> tuple[str, str, str] | None:
    return why(engine.group(group).infos()[0].paused)


def test_a_paused_group_is_handed_nothing_until_it_is_resumed(engine: fmq.Engine) -> None:
    group = engine.group("g")
    with engine.consumer("t", group="g") as consumer:
        [held] = consumer.poll(limit=1)
        group.pause(reason="the database is slow", by="ann")
        assert consumer.poll() == []
        assert consumer.poll_batch() is None
        assert consumer.take() == []
        assert of_group(engine) == ("group", "ann", "the database is slow")
        held.ack()  # what is in hand goes on
        group.resume(by="bob")
        assert of_group(engine) is None
        assert [each.offset for each in consumer.poll()] == [1, 2, 3]


def test_a_pause_of_one_group_does_not_stop_other_groups(engine: fmq.Engine) -> None:
    engine.group("g").pause(reason="mine alone")
    with engine.consumer("t", group="other") as consumer:
        assert len(consumer.poll()) == 4


def test_a_paused_topic_is_handed_to_no_group_and_still_accepts_sends(engine: fmq.Engine) -> None:
    engine.send("open", b"o")
    engine.topic("t").pause(reason="bad messages", by="ann")
    for group in ("g", "new"):
        with engine.consumer(("t", "open"), group=group) as consumer:
            assert [each.topic for each in consumer.poll()] == ["open"]
            assert consumer.poll() == []
    assert engine.send("t", b"4").offset == 4
    assert len(engine.read("t")) == 5
    assert {why(each.paused) for each in engine.queues("t")} == {("topic", "ann", "bad messages")}
    assert engine.queues("open")[0].paused is None
    assert {(each.topic, why(each.paused)) for each in engine.groups("new")} == {
        ("t", ("topic", "ann", "bad messages")),
        ("open", None),
    }
    engine.topic("t").resume()
    with engine.consumer("t", group="g") as consumer:
        assert len(consumer.poll()) == 5


def test_a_pause_outlives_the_engine_with_and_without_its_checkpoint(
    engine: fmq.Engine, disk: CrashDisk, clock: FakeClock
) -> None:
    engine.group("g").pause(reason="at night", by="ann")
    engine.topic("t").pause(reason="", by="bob")
    since = engine.groups("g")[0].paused
    engine.close()
    directory = disk.directory(PATH, make=False)
    for is_by_checkpoint in (True, False):
        for name in [] if is_by_checkpoint else directory.names():
            if name.startswith("checkpoint"):
                directory.remove(name)
        with fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as again:
            assert again.groups("g")[0].paused == since
            assert why(again.queues("t")[0].paused) == ("topic", "bob", "")
            with again.consumer("t", group="g") as consumer:
                assert consumer.poll() == []


def test_a_resume_wakes_a_poll_that_waits(engine: fmq.Engine, clock: FakeClock) -> None:
    group = engine.group("g")
    group.pause(reason="a moment")
    with engine.consumer("t", group="g") as consumer:
        before = clock.monotonic()
        assert consumer.poll(timeout=5.0) == []
        assert clock.monotonic() - before >= 5.0
        group.resume()
        assert len(consumer.poll(timeout=5.0)) == 4


def test_a_lease_that_ends_in_a_pause_is_redelivered_after_it(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    group = engine.group("g")
    with engine.consumer("t", group="g", lease_seconds=10, retry=fmq.Retry(backoff=0)) as consumer:
        consumer.poll(limit=2)
        group.pause(reason="look first")
        clock.advance(20)
        assert consumer.poll(timeout=3.0) == []
        group.resume()
        found = [each.offset for _ in range(9) for each in consumer.poll()]
        assert sorted(found) == [0, 1, 2, 3]


def test_a_second_pause_has_the_new_reason_and_one_resume_ends_it(engine: fmq.Engine) -> None:
    group = engine.group("g")
    group.resume()  # of nothing: changes nothing
    group.pause(reason="one", by="ann")
    group.pause(reason="two", by="bob")
    assert of_group(engine) == ("group", "bob", "two")
    group.resume()
    assert of_group(engine) is None


def test_replayed_dead_letters_wait_for_the_end_of_a_pause(engine: fmq.Engine) -> None:
    with engine.consumer("t", group="g") as consumer:
        consumer.poll(limit=1)[0].reject("bad")
        engine.topic("t").pause(reason="wait")
        engine.dead_letters("g").replay()
        assert consumer.poll() == []
        engine.topic("t").resume()
        found = [each for _ in range(9) for each in consumer.poll()]
        assert len(found) == 4


def test_a_pause_ends_with_its_group_and_its_topic(engine: fmq.Engine) -> None:
    engine.group("g").pause(reason="old")
    engine.topic("t").pause(reason="old")
    engine.group("g").delete()
    engine.topic("t").delete()
    engine.send("t", b"new")
    with engine.consumer("t", group="g") as consumer:
        assert len(consumer.poll()) == 1


def test_explain_says_who_has_paused_a_group_and_why(engine: fmq.Engine) -> None:
    engine.topic("t").pause(reason="bad", by="bob")
    assert " by bob: bad" in engine.group("g").explain().splitlines()[1]
    engine.group("g").pause(reason="slow", by="ann")
    first, second, *_ = engine.group("g").explain().splitlines()
    assert first.startswith("group g, paused since ")
    assert first.endswith(" by ann: slow")
    assert "paused" not in second


def test_a_pause_without_a_name_is_by_the_process(engine: fmq.Engine) -> None:
    engine.group("g").pause(reason="")
    found = of_group(engine)
    assert found is not None
    assert found[1].startswith("process ")


def test_a_pause_with_wrong_arguments_changes_nothing(engine: fmq.Engine) -> None:
    group, topic = engine.group("g"), engine.topic("t")
    with pytest.raises(BadName):
        group.pause(reason="x", by="two\nlines")
    with pytest.raises(TooLarge):
        group.pause(reason="x" * 1025)
    group.delete()
    with pytest.raises(UnknownGroup):
        group.pause(reason="x")
    topic.delete()
    with pytest.raises(UnknownTopic):
        topic.resume()


def test_a_pause_also_stops_ordered_groups_and_priorities(engine: fmq.Engine) -> None:
    for number in range(3):
        engine.send("keys", b"", key="k", priority=number)
    for ordered in (True, False):
        name = f"ordered {ordered}"
        with engine.consumer("keys", group=name, ordered=ordered) as consumer:
            engine.group(name).pause(reason="wait")
            assert consumer.poll(timeout=1.0) == []
            engine.group(name).resume()
            assert sorted(each.offset for _ in range(4) for each in consumer.poll()) == [0, 1, 2]
