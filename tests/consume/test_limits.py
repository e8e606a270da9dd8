"""Limits of a group: so many messages in hand at once, so many a second, whoever takes them."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq.errors import BadOption, TooLarge, UnknownGroup
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import OPTIONS, PATH

AT_ONCE = fmq.Retry(backoff=0)


@pytest.fixture(autouse=True)
def messages(engine: fmq.Engine) -> None:
    engine.send_many("t", [b"%d" % each for each in range(12)])
    engine.create_group("g", "t")


def limit_of(engine: Any, group: str = "g") -> fmq.Limit | None:
    found: fmq.Limit | None = engine.group(group).infos()[0].limit
    return found


# --- so many at once ------------------------------------------------------------------------------


def test_no_more_are_in_hand_at_once_however_many_members_there_are(engine: fmq.Engine) -> None:
    engine.group("g").limit(concurrency=3)
    with engine.consumer("t", group="g") as one, engine.consumer("t", group="g") as other:
        first = one.poll(limit=2)
        second = other.poll(limit=9)
        assert [len(first), len(second)] == [2, 1]
        assert (one.poll(), other.poll_batch(), other.take()) == ([], None, [])
        first[0].ack()
        assert len(other.poll(limit=9)) == 1
        second[0].release()
        assert len(one.poll(limit=9)) == 1
        assert other.poll() == []


def test_all_topics_of_a_group_share_its_limit(engine: fmq.Engine) -> None:
    engine.send_many("u", [b"0", b"1"])
    engine.send_many("other", [b"0", b"1", b"2"])
    with engine.consumer(("t", "u"), group="g") as consumer:
        engine.group("g").limit(concurrency=3)
        found = [each for _ in range(4) for each in consumer.poll(limit=1)]
        assert len({each.topic for each in found}) == 2 and len(found) == 3
        with engine.consumer("other", group="free") as free:
            assert len(free.poll()) == 3


def test_a_lease_that_ends_frees_its_place(engine: fmq.Engine, clock: FakeClock) -> None:
    engine.group("g").limit(concurrency=2)
    with (
        engine.consumer("t", group="g", lease_seconds=5, retry=AT_ONCE) as slow,
        engine.consumer("t", group="g") as other,
    ):
        assert len(slow.poll(limit=2)) == 2
        before = clock.monotonic()
        assert len(other.poll(limit=2, timeout=9.0)) == 2
        assert clock.monotonic() - before == 5.0


def test_a_poll_that_waits_is_woken_by_what_ends(engine: fmq.Engine, clock: FakeClock) -> None:
    engine.group("g").limit(concurrency=1)
    with engine.consumer("t", group="g") as consumer:
        [held] = consumer.poll()
        assert consumer.poll(timeout=1.0) == []
        held.ack()
        assert len(consumer.poll(timeout=1.0)) == 1
        assert consumer.poll() == []
    with engine.consumer("t", group="g") as another:  # what the first had was given back
        assert len(another.poll()) == 1


def test_messages_that_a_transaction_acks_are_in_hand_until_its_decision(
    engine: fmq.Engine,
) -> None:
    engine.group("g").limit(concurrency=1)
    with engine.consumer("t", group="g") as consumer:
        tx = engine.transaction(tx_id="T")
        tx.ack(consumer.poll(limit=1)[0])
        tx.prepare()
        assert consumer.poll() == []
        tx.commit()
        assert len(consumer.poll()) == 1


def test_a_lower_limit_takes_nothing_back(engine: fmq.Engine) -> None:
    group = engine.group("g")
    with engine.consumer("t", group="g") as consumer:
        held = consumer.poll(limit=4)
        group.limit(concurrency=2)
        for each in held[:3]:
            assert consumer.poll() == []
            each.ack()
        assert len(consumer.poll()) == 1
        group.limit(concurrency=5)
        assert len(consumer.poll()) == 3
        group.limit()
        assert limit_of(engine) is None
        assert len(consumer.poll()) == 12 - 8


def test_messages_that_a_filter_passes_over_take_no_place(engine: fmq.Engine) -> None:
    tagged = [fmq.Message(b"%d" % each, tag="ab"[each % 2]) for each in range(40)]
    engine.send_many("u", tagged)
    engine.create_group("h", "u", filter=fmq.filters.tags("b"))
    engine.group("h").limit(concurrency=3)
    with engine.consumer("u", group="h") as consumer:
        found = [each.offset for each in consumer.poll(limit=9)]
        assert found == [1, 3, 5]
        assert consumer.poll() == []


def test_a_seek_ends_what_is_in_hand(engine: fmq.Engine) -> None:
    engine.group("g").limit(concurrency=2)
    with engine.consumer("t", group="g") as consumer:
        consumer.poll(limit=2)
        engine.group("g").seek("t", to="latest")
        engine.send("t", b"new")
        assert [each.body for each in consumer.poll()] == [b"new"]


# --- so many a second -----------------------------------------------------------------------------


def test_no_second_has_more_than_the_rate(engine: fmq.Engine, clock: FakeClock) -> None:
    engine.group("g").limit(rate=4)
    with engine.consumer("t", group="g") as consumer:
        assert len(consumer.poll(limit=3)) == 3
        clock.advance(0.5)
        assert len(consumer.poll(limit=3)) == 1
        assert consumer.poll() == []
        clock.advance(0.5)
        assert len(consumer.take(limit=9)) == 3
        assert consumer.poll() == []
        clock.advance(0.5)
        assert len(consumer.poll(limit=9)) == 1


def test_a_poll_waits_until_the_next_message_is_due(engine: fmq.Engine, clock: FakeClock) -> None:
    engine.group("g").limit(rate=0.1)
    with engine.consumer("t", group="g") as consumer:
        before, times = clock.monotonic(), []
        for _ in range(3):
            consumer.poll(limit=5, timeout=60.0)[0].ack()
            times.append(clock.monotonic() - before)
        assert times == pytest.approx([0.0, 10.0, 20.0])


def test_an_attempt_counts_each_time(engine: fmq.Engine, clock: FakeClock) -> None:
    engine.group("g").limit(rate=2)
    with engine.consumer("t", group="g", retry=AT_ONCE) as consumer:
        for each in consumer.poll():
            each.release()
        assert consumer.poll() == []
        clock.advance(1.0)
        assert len(consumer.poll()) == 2


def test_messages_that_a_filter_passes_over_do_not_count_for_a_limit(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    tagged = [fmq.Message(b"%d" % each, tag="ab"[each % 5 == 0]) for each in range(60)]
    engine.send_many("u", tagged)
    engine.create_group("h", "u", filter=fmq.filters.tags("b"))
    engine.group("h").limit(rate=3)
    with engine.consumer("u", group="h") as consumer:
        assert [each.offset for each in consumer.poll(limit=9)] == [0, 5, 10]
        assert consumer.poll() == []
        clock.advance(1.0)
        assert [each.offset for each in consumer.poll(limit=9)] == [15, 20, 25]


def test_a_rate_holds_over_a_restart(engine: fmq.Engine, disk: CrashDisk, clock: FakeClock) -> None:
    engine.group("g").limit(rate=2)
    with engine.consumer("t", group="g") as consumer:
        for each in consumer.poll():
            each.ack()
    engine.close()
    clock.advance(0.4)
    with (
        fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as again,
        again.consumer("t", group="g") as consumer,
    ):
        assert consumer.poll() == []
        clock.advance(0.6)
        assert len(consumer.poll()) == 2


# --- who has set it -------------------------------------------------------------------------------


def test_a_limit_outlives_the_engine_with_and_without_its_checkpoint(
    engine: fmq.Engine, disk: CrashDisk, clock: FakeClock
) -> None:
    engine.group("g").limit(concurrency=2, reason="a slow database", by="ann")
    limit = limit_of(engine)
    assert limit is not None
    assert (limit.concurrency, limit.rate, limit.by) == (2, None, "ann")
    engine.close()
    directory = disk.directory(PATH, make=False)
    for is_by_checkpoint in (True, False):
        for name in [] if is_by_checkpoint else directory.names():
            if name.startswith("checkpoint"):
                directory.remove(name)
        with fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as again:
            assert limit_of(again) == limit
            with again.consumer("t", group="g") as consumer:
                assert len(consumer.poll()) == 2


def test_explain_and_the_list_of_groups_show_the_limit(engine: fmq.Engine) -> None:
    group = engine.group("g")
    group.limit(concurrency=2000, rate=0.5, reason="slow", by="ann")
    first, *_ = group.explain().splitlines()
    assert first.startswith("group g, limited: 2,000 at once, 0.5 a second, since 20")
    assert first.endswith("by ann: slow")
    engine.create_group("g", "u")
    assert {each.limit for each in group.infos()} == {limit_of(engine)}
    group.limit(rate=3, by="bob")  # a call replaces the limit, and adds nothing to it
    limit = limit_of(engine)
    assert limit is not None
    assert (limit.concurrency, limit.rate, limit.by, limit.reason) == (None, 3.0, "bob", "")


def test_a_limit_ends_with_its_group(engine: fmq.Engine) -> None:
    engine.group("g").limit(concurrency=1)
    engine.group("g").delete()
    engine.create_group("g", "t")
    assert limit_of(engine) is None
    with engine.consumer("t", group="g") as consumer:
        assert len(consumer.poll()) == 12


def test_wrong_limits_are_refused(engine: fmq.Engine) -> None:
    group = engine.group("g")
    before = engine.stats().position
    wrong: dict[str, Any]
    for wrong in ({"concurrency": 0}, {"rate": 0}, {"rate": float("nan")}, {"rate": 1e-9}):
        with pytest.raises(BadOption, match="Nothing was changed"):
            group.limit(**wrong)
    for wrong in ({"concurrency": 1.5}, {"rate": "3"}, {"rate": True}):
        with pytest.raises(TypeError, match="Nothing was changed"):
            group.limit(**wrong)
    with pytest.raises(TooLarge):
        group.limit(rate=1, reason="x" * 1025)
    with pytest.raises(UnknownGroup):
        engine.group("nobody").limit(rate=1)
    group.limit()  # there is none: nothing is written
    assert engine.stats().position == before
