"""What goes by default: segments that every group has acked, beyond a bounded rest."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.errors import OffsetGone
from fmq.testing.inside import inside
from tests.retention.sending import KEEP, first_of, send
from tests.small import CrashDisk, FakeClock, bodies, check, content, opened

ACKED: dict[str, Any] = {"retain_acked_bytes": KEEP}


def work(engine: Engine, jobs: int, topic: str = "t", group: str = "g") -> None:
    """Send jobs, and ack each."""
    with engine.consumer(topic, group=group) as consumer:
        for _ in range(jobs):
            engine.send(topic, b"x" * 500)
            consumer.poll()[0].ack()


def kept_by(engine: Engine) -> str:
    kept = engine.stats().kept
    assert kept is not None
    return kept.by


def test_segments_that_all_groups_have_acked_are_dropped_but_for_a_bounded_rest() -> None:
    disk = CrashDisk()
    with opened(disk, **ACKED) as engine:
        work(engine, 300)
        stats = engine.stats()
        assert stats.segments <= 3
        assert 0 < first_of(engine) < 300 - 5
        assert stats.kept is None
        with pytest.raises(OffsetGone):
            engine.read("t")
    check(disk)
    assert sum(map(len, content(disk).values())) < 2 * KEEP + 8 * 4096
    with opened(disk, **ACKED) as engine:
        assert engine.groups("g")[0].acked_below == 300


def test_retain_acked_bytes_has_a_default_and_none_keeps_everything() -> None:
    assert fmq.Options().retain_acked_bytes == 32 << 20
    with opened(CrashDisk(), retain_acked_bytes=None) as engine:
        work(engine, 100)
        assert first_of(engine) == 0


def test_a_group_that_lags_keeps_its_messages() -> None:
    with opened(CrashDisk(), **ACKED, keep_unread=False) as engine:
        engine.create_group("slow", "t")
        work(engine, 100)
        assert first_of(engine) == 0
        assert "group 'slow', which has not acked t/0" in kept_by(engine)
        assert engine.groups("slow")[0].lost == 0
        engine.group("slow").seek("t", to="latest")
        work(engine, 10)
        assert first_of(engine) > 50


def test_a_topic_without_groups_keeps_everything() -> None:
    with opened(CrashDisk(), **ACKED) as engine:
        engine.send("audit", b"kept")
        work(engine, 100)
        assert first_of(engine) == 0
        assert kept_by(engine) == "the topic 'audit', which no group reads"
        assert bodies(engine, "audit") == [b"kept"]
        work(engine, 1, "audit")
        work(engine, 10)
        assert first_of(engine) > 50


def test_a_topic_with_a_time_of_its_own_keeps_messages_for_that_time() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock, **ACKED) as engine:
        engine.create_topic("audit", retain_seconds=100)
        engine.send("audit", b"kept")
        work(engine, 100)
        assert "the topic 'audit', which keeps messages for a time of its own" in kept_by(engine)
        clock.advance(101)
        work(engine, 10)
        assert first_of(engine) > 50


def test_other_limits_of_retention_replace_the_default_one() -> None:
    with opened(CrashDisk(), **ACKED, retain_bytes=4 * KEEP) as engine:
        work(engine, 100)
        assert engine.stats().segments > 8
    with opened(CrashDisk(), **ACKED, retain_seconds=1000) as engine:
        work(engine, 100)
        assert first_of(engine) == 0


def test_undecided_delayed_and_dead_messages_are_kept() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, **ACKED, relocate_bytes=8192) as engine:
        engine.send("later", b"delayed", delay=1000)
        engine.send("t", b"bad")
        with engine.consumer("t", group="g") as consumer:
            consumer.poll()[0].reject("it is bad")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"prepared")
        tx.prepare()
        work(engine, 300)
        assert engine.stats().first_position > 0
        assert [each.body for each in engine.dead_letters("g").list()] == [b"bad"]
        assert [each.tx_id for each in engine.undecided()] == ["T"]
    check(disk)
    with opened(disk, clock, **ACKED) as engine:
        engine.decide("T", "commit")
        clock.advance(1001)
        work(engine, 1, "later")
        assert b"delayed" in bodies(engine, "later")
        assert b"prepared" in bodies(engine, "t", offset=first_of(engine))


def test_a_group_that_is_made_while_segments_are_chosen_keeps_them() -> None:
    with opened(CrashDisk(), retain_acked_bytes=1 << 20) as engine:
        work(engine, 60)
        engine.checkpoint()
        retention = inside(engine).chores.retention
        object.__setattr__(retention._options, "retain_acked_bytes", 4096)
        segments = retention.choose(inside(engine).chores.checkpointer.scan_from)
        assert segments
        engine.create_group("new", "t", at="earliest")
        assert not retention.carry_over(segments)
        assert "group 'new'" in kept_by(engine)
        assert len(bodies(engine, "t")) == 60


def test_a_group_that_lags_costs_no_checkpoint_for_each_call() -> None:
    with opened(CrashDisk(), **ACKED) as engine:
        engine.create_group("slow", "t")
        work(engine, 100)
        before = engine.stats().checkpoints
        send(engine, 20)
        assert engine.stats().checkpoints == before
