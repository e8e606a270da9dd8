"""Schedules: a message that is published again and again, each due time once."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fmq
from fmq.basics.clock import as_us
from fmq.errors import (
    BadOption,
    ExtraMissing,
    ReadOnly,
    ScheduleDiffers,
    TooLarge,
    UnknownSchedule,
)
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.tx.schedules.cron import next_due_us
from tests.small import opened

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = "* * * * *"


def due(engine: Any, topic: str = "t") -> list[str]:
    """Return the due times that were published, as hours and minutes, with their day if that is not
    the first one.
    """
    texts = [(each.headers or {})["fmq-due"] for each in engine.read(topic, limit=9999)]
    return [text[11:16] if text.startswith("2026-01-01") else text[5:16] for text in texts]


def pass_time(engine: Any, clock: FakeClock, seconds: float) -> None:
    """Let time pass, and the engine see what is due."""
    clock.advance(seconds)
    engine.sync()


def clock_at(*when: int) -> FakeClock:
    return FakeClock(as_us(datetime(*when, tzinfo=UTC)))  # type: ignore[misc,arg-type]


def test_a_schedule_publishes_its_message_at_each_due_time() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        headers = {"a": "b"}
        engine.schedule("m", "0 3 * * *", "t", b"go", key="k", tag="x", headers=headers, by="ann")
        pass_time(engine, clock, 3 * 3600 - 1)
        assert engine.queues("t")[0].next == 0
        pass_time(engine, clock, 1)
        pass_time(engine, clock, 24 * 3600)
        (message, second) = engine.read("t")
        assert (message.body, message.key, message.tag) == (b"go", "k", "x")
        said = {"a": "b", "fmq-schedule": "m", "fmq-due": "2026-01-01T03:00:00Z"}
        assert message.headers == said
        assert as_us(message.time or START) == clock.time_us() - 24 * 3600 * 1_000_000
        assert second.headers == said | {"fmq-due": "2026-01-02T03:00:00Z"}
        (info,) = engine.schedules()
        assert info == engine.scheduled("m").info()
        assert (info.name, info.cron, info.timezone, info.topic) == ("m", "0 3 * * *", "UTC", "t")
        assert (info.body, info.key, info.tag, info.headers) == (b"go", "k", "x", headers)
        assert info.last == START + timedelta(days=1, hours=3)
        assert info.next == START + timedelta(days=2, hours=3)
        assert (info.missed, info.by, info.paused) == ("once", "ann", None)


def test_a_sixth_field_in_front_is_seconds() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("s", "*/20 * * * * *", "t", b"")
        for _ in range(6):
            pass_time(engine, clock, 10)
        assert len(engine.read("t")) == 3


def test_an_engine_that_is_late_by_less_than_a_minute_publishes_all() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("s", "* * * * * *", "t", b"")
        pass_time(engine, clock, 45)
        assert len(engine.read("t")) == 45


@pytest.mark.parametrize(("missed", "found"), [("once", ["00:01", "00:10"]), ("skip", ["00:10"])])
def test_missed_due_times_are_published_once_or_not_at_all(missed: str, found: list[str]) -> None:
    """Ten minutes without an engine: nine due times are missed, and the last one is only late."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.schedule("m", MINUTE, "t", b"", missed=missed)
    clock.advance(600 + 30)
    with opened(disk, clock) as engine:
        engine.sync()
        assert due(engine) == found
        assert engine.schedules()[0].next == START + timedelta(minutes=11)


@pytest.mark.parametrize("is_by_checkpoint", [True, False])
def test_a_schedule_outlives_the_engine(is_by_checkpoint: bool) -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.schedule("m", MINUTE, "t", "äöü".encode(), timezone="Europe/Berlin")
        engine.schedule("n", "0 0 * * *", "u", b"").pause(reason="never mind", by="ann")
        pass_time(engine, clock, 60)
        before = engine.schedules()
    directory = disk.directory("data", make=False)
    for name in [] if is_by_checkpoint else directory.names():
        if name.startswith("checkpoint"):
            directory.remove(name)
    with opened(disk, clock) as engine:
        assert engine.schedules() == before
        pass_time(engine, clock, 60)
        assert due(engine) == ["00:01", "00:02"]


def test_a_schedule_outlives_the_segment_with_its_record() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_bytes=8192) as engine:
        engine.schedule("m", MINUTE, "t", b"")
        for _ in range(20):
            engine.send("f", bytes(1800))
        assert engine.stats().first_position > 4096
        pass_time(engine, clock, 60)
    with opened(disk, clock, retain_bytes=8192) as engine:
        pass_time(engine, clock, 60)
        assert engine.queues("t")[0].next == 2


def test_a_clock_that_is_set_back_publishes_no_due_time_twice() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("m", "*/30 * * * *", "t", b"")
        pass_time(engine, clock, 1800)
        clock.set_wall_clock(clock.time_us() - 7200 * 1_000_000)
        for _ in range(6):
            pass_time(engine, clock, 1800)
        assert due(engine) == ["00:30", "01:00", "01:30"]


def test_a_schedule_that_is_replaced_is_not_due_again_after_a_clock_was_set_back() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("m", "*/30 * * * *", "t", b"1")
        pass_time(engine, clock, 1800)
        clock.set_wall_clock(clock.time_us() - 1200 * 1_000_000)
        engine.schedule("m", "*/30 * * * *", "t", b"2", replace=True)
        pass_time(engine, clock, 3000)
        assert due(engine) == ["00:30", "01:00"]
        assert [each.body for each in engine.read("t")] == [b"1", b"2"]


# --- daylight saving -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "hour", "times"),
    [
        ("30 2 * * *", 0, ["10-24T00:30", "10-25T00:30", "10-26T01:30"]),
        ("30 1,3 * * *", 12, ["10-24T23:30", "10-25T02:30", "10-26T00:30"]),
        ("0 * * * *", 22, ["10-24T23:00", "10-25T00:00", "10-25T01:00", "10-25T02:00"]),
    ],
)
def test_a_fixed_time_is_due_once_over_the_hour_that_comes_twice(
    cron: str, hour: int, times: list[str]
) -> None:
    """In Berlin it is 2:00 to 3:00 twice: from midnight and from one o'clock in UTC. What comes
    each hour comes in both.
    """
    clock = clock_at(2026, 10, 24, hour, 10)
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("m", cron, "t", b"", timezone="Europe/Berlin")
        while engine.queues("t")[0].next < len(times):
            pass_time(engine, clock, 600)
        assert due(engine) == times


@pytest.mark.parametrize(
    ("cron", "times"),
    [
        ("30 2 * * *", ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        ("10,40 2 * * *", ["03-28T01:10", "03-28T01:40", "03-29T01:00", "03-30T00:10"]),
        ("0 */6 * * *", ["03-28T05:00", "03-28T11:00", "03-28T17:00", "03-28T23:00"]),
    ],
)
def test_a_time_that_a_clock_leaves_out_is_due_right_after_the_gap(
    cron: str, times: list[str]
) -> None:
    """In Berlin 2:00 to 3:00 is left out: at one o'clock in UTC. Times in it are due once."""
    clock = clock_at(2026, 3, 28)
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("m", cron, "t", b"", timezone="Europe/Berlin")
        while engine.queues("t")[0].next < len(times):
            pass_time(engine, clock, 600)
        assert due(engine) == times


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
CRONS = (
    "30 2 * * *",
    "*/7 * * * *",
    "15 */2 * * *",
    "0 1,2,3 * * *",
    "*/50 * * * * *",
    "0 0 L * *",
)
CHANGES = [datetime(2026, *day, tzinfo=UTC) for day in ((3, 8), (3, 29), (4, 4), (10, 3), (10, 25))]


@given(
    cron=st.sampled_from(CRONS),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(CHANGES),
    hours=st.floats(-6, 40),
    part=st.floats(0, 1),
)
@example("30 2 * * *", "Europe/Berlin", CHANGES[-1], 1.2, 0.5)
def test_the_next_due_time_is_the_same_at_each_moment_before_it(
    cron: str, zone: str, day: datetime, hours: float, part: float
) -> None:
    """So it does not matter when an engine asks, and a chain of due times has no gap, and none
    twice.
    """
    after_us = as_us(day) + round(hours * 3600e6)
    first = next_due_us(cron, zone, after_us)
    second = next_due_us(cron, zone, first)
    assert after_us < first < second
    between = first + round(part * (second - 1 - first))
    assert next_due_us(cron, zone, between) == second


# --- making and changing -------------------------------------------------------------------------


def test_making_a_schedule_again_with_equal_arguments_changes_nothing() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("m", MINUTE, "t", b"1", by="ann")
        pass_time(engine, clock, 60)
        position = engine.stats().position
        engine.schedule("m", MINUTE, "t", b"1", by="bob")
        engine.schedule("m", MINUTE, "t", b"1", replace=True)
        assert engine.stats().position == position
        assert engine.schedules()[0].by == "ann"


@pytest.mark.parametrize(
    "other",
    [
        {"cron": "0 * * * *"},
        {"timezone": "Europe/Berlin"},
        {"topic": "u"},
        {"body": b"2"},
        {"key": "k"},
        {"headers": {"a": "b"}},
        {"missed": "skip"},
    ],
    ids=str,
)
def test_another_schedule_of_this_name_is_refused_or_replaces_it(other: dict[str, Any]) -> None:
    what = {"cron": MINUTE, "topic": "t", "body": b"1"}
    with opened(CrashDisk()) as engine:
        engine.schedule("m", **what).pause(reason="slow")  # type: ignore[arg-type]
        with pytest.raises(ScheduleDiffers, match=f"'m' has the {next(iter(other))} "):
            engine.schedule("m", **(what | other))
        engine.schedule("m", **(what | other), replace=True)
        (info,) = engine.schedules()
        name, value = next(iter(other.items()))
        assert getattr(info, name) == value
        assert info.paused is not None
        assert info.paused.reason == "slow"


def test_a_paused_schedule_publishes_nothing_and_passes_over_what_is_due() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        schedule = engine.schedule("m", MINUTE, "t", b"")
        pass_time(engine, clock, 60)
        schedule.pause(reason="the printer is broken", by="ann")
        pass_time(engine, clock, 50)
        pass_time(engine, clock, 120)
        pause = schedule.info().paused
        assert pause is not None
        assert (pause.of, pause.by, pause.reason) == (
            "schedule",
            "ann",
            "the printer is broken",
        )
        schedule.resume()
        schedule.resume()
        pass_time(engine, clock, 10)
        assert due(engine) == ["00:01", "00:04"]


def test_run_now_publishes_at_once_and_changes_no_due_time() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        schedule = engine.schedule("m", "0 * * * *", "t", b"x")
        pass_time(engine, clock, 120)
        schedule.run_now(reason="a look", by="ann")
        assert due(engine) == ["00:02"]
        schedule.pause(reason="")
        schedule.run_now()
        assert due(engine) == ["00:02"] * 2
        schedule.resume()
        pass_time(engine, clock, 58 * 60)
        assert due(engine) == ["00:02", "00:02", "01:00"]


def test_a_schedule_that_is_removed_publishes_no_more() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        schedule = engine.schedule("m", MINUTE, "t", b"")
        schedule.remove()
        pass_time(engine, clock, 60)
        assert engine.schedules() == []
        assert engine.read("t") == []
        for call in (
            schedule.info,
            schedule.remove,
            schedule.resume,
            schedule.run_now,
            lambda: schedule.pause(reason=""),
            lambda: engine.scheduled("m"),
        ):
            with pytest.raises(UnknownSchedule, match="no schedule named 'm'"):
                call()


def test_a_topic_that_is_deleted_takes_its_schedules_along() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.schedule("m", MINUTE, "t", b"")
        engine.schedule("n", MINUTE, "u", b"")
        engine.topic("t").delete()
        pass_time(engine, clock, 60)
        assert [each.name for each in engine.schedules()] == ["n"]
        assert engine.read("t") == []
        assert len(engine.read("u")) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"cron": "61 * * * *"}, "cron='61 .*Bad minute.*five fields"),
        ({"cron": "* * *"}, "cron=.*number of fields"),
        ({"cron": "0 0 30 2 *"}, "cron=.*Bad day-of-month"),
        ({"cron": "* * */20 * 1L"}, "names no time in 50 years"),
        ({"timezone": "Europe/Nowhere"}, "timezone='Europe/Nowhere': is not known here"),
        ({"timezone": "America"}, "timezone='America'"),
        ({"missed": "twice"}, "missed='twice': is 'once' or 'skip'"),
    ],
)
def test_impossible_arguments_of_a_schedule_are_refused(
    arguments: dict[str, str], text: str
) -> None:
    with opened(CrashDisk()) as engine:
        before = engine.stats().position
        with pytest.raises(BadOption, match=text):
            engine.schedule("m", **({"cron": MINUTE, "topic": "t", "body": b""} | arguments))  # type: ignore[arg-type]
        assert engine.stats().position == before
        assert engine.schedules() == []


def test_a_body_of_a_schedule_has_a_limit() -> None:
    with opened(CrashDisk()) as engine, pytest.raises(TooLarge, match="the body of a schedule"):
        engine.schedule("m", MINUTE, "t", bytes(16 * 1024 + 1))


def test_a_reader_shows_schedules_and_refuses_to_change_them() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.schedule("m", MINUTE, "t", b"")
        pass_time(engine, clock, 60)
        with fmq.open("data", read_only=True, disk=disk, clock=clock) as reader:
            assert reader.schedules() == engine.schedules()
            schedule = reader.scheduled("m")
            assert schedule.info() == engine.schedules()[0]
            with pytest.raises(ReadOnly):
                schedule.remove()


# --- what publishes them -------------------------------------------------------------------------


def test_a_thread_publishes_schedules() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with fmq.open("data", disk=disk, clock=clock) as engine:
        engine.schedule("paused", MINUTE, "t", b"").pause(reason="so nothing is due")
        timers = inside(engine).chores.timer_thread
        clock.until(lambda: timers is not None and timers._thread is not None)
        engine.schedule("m", "0 * * * * *", "t", b"1")
        for minutes in range(1, 4):
            clock.advance(60)
            clock.until(lambda: engine.queues("t")[0].next == minutes)  # noqa: B023


def test_a_schedule_that_is_paused_meanwhile_is_not_published() -> None:
    """Between the look at the clock and the plan, another thread pauses it."""
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        schedule = engine.schedule("m", MINUTE, "t", b"")
        schedules = inside(engine).schedules
        clock.advance(60)
        (met,) = inside(engine).ledger.schedules.values()
        found = [schedules._published(met, clock.time_us())]
        pausing = schedules.pausing("m", "ann", "")
        inside(engine).commit_queue.run(lambda _: inside(engine).writer.send(pausing), None)
        inside(engine).commit_queue.run(schedules._plan_due, found)
        assert engine.read("t") == []
        assert schedule.info().paused is not None


def test_a_schedule_without_its_library_waits_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.schedule("m", MINUTE, "t", b"")
        monkeypatch.setitem(sys.modules, "cronsim", None)
        with pytest.raises(ExtraMissing, match=r"cronsim.*pip install 'fmq-engine\[cron\]'"):
            engine.schedule("n", MINUTE, "t", b"")
        pass_time(engine, clock, 60)
        assert engine.read("t") == []
        assert "'m' is due, and waits on" in str(engine.stats().trouble)
        assert "fmq-engine[cron]" in str(engine.stats().trouble)
        monkeypatch.undo()
    with opened(disk, clock) as engine:
        engine.sync()
        assert due(engine) == ["00:01"]
        assert engine.stats().trouble is None


def test_a_schedule_that_fits_no_segment_any_more_waits_and_the_engine_goes_on() -> None:
    """The directory was made with larger segments."""
    disk, clock = CrashDisk(), FakeClock()
    body = bytes(each * each % 251 for each in range(12_000))
    with opened(disk, clock, segment_bytes=1 << 16) as engine:
        engine.schedule("m", MINUTE, "t", body)
        engine.schedule("n", MINUTE, "u", b"small")
    with opened(disk, clock, segment_bytes=4096) as engine:
        pass_time(engine, clock, 60)
        assert engine.read("t") == []
        assert "'m' is due, and waits on" in str(engine.stats().trouble)
        pass_time(engine, clock, 60)
        assert due(engine, "u") == ["00:01", "00:02"]
