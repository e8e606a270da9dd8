"""A call that waits for a question wakes when one is due, and when the engine ends.

The asker is a thread on a clock that stands still, so only a wake-up ends its wait. The test goes
on when the asker has begun to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from fmq import Engine
from fmq.errors import Closed, EngineFailed
from fmq.testing import CrashDisk, FaultDisk
from fmq.testing.inside import inside
from tests.feedback.asking import Call, Counter, WatchedClock, ask, asked, asked_one, ids, prepared
from tests.small import opened

HOUR = 3600.0


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
def engine(clock: WatchedClock) -> Iterator[Engine]:
    with opened(CrashDisk(), clock, check_lease_seconds=9.0) as engine:
        yield engine


@contextmanager
def waiting(engine: Engine, clock: WatchedClock, *args: Any, **more: Any) -> Iterator[Call]:
    """Run a call of `ask` that waits for an hour. It must have ended when the block ends."""
    call = Call(lambda: asked(engine, *args, **{"wait": HOUR, **more}))
    clock.until_a_thread_waits()
    yield call
    call.ended()
    assert inside(engine).questions._waiters._for_due == {}, "a call that has ended is woken"


def test_a_new_question_that_is_due_wakes_a_waiting_call(
    engine: Engine, clock: WatchedClock
) -> None:
    with waiting(engine, clock) as call:
        prepared(engine, "T")
        assert call.ended() == ["T"]


@pytest.mark.parametrize("asked_for", [("p", "emails"), (["q", "p"], ["t", "orders"])])
def test_a_question_wakes_a_call_that_waits_for_one_of_its_topics(
    engine: Engine, clock: WatchedClock, asked_for: tuple[Any, Any]
) -> None:
    with waiting(engine, clock, *asked_for) as call:
        prepared(engine, "T", topics=("orders", "emails"))
        assert call.ended() == ["T"]


def test_a_waiting_call_returns_when_a_question_becomes_due(
    engine: Engine, clock: WatchedClock
) -> None:
    """The transaction became undecided after the call began."""
    with waiting(engine, clock) as call:
        prepared(engine, "later", check_after=200.0)
        clock.until_a_thread_waits()
        prepared(engine, "T", check_after=100.0)
        clock.until_a_thread_waits()
        clock.advance(100)
        assert call.ended() == ["T"]


def test_resume_wakes_a_waiting_call(engine: Engine, clock: WatchedClock) -> None:
    prepared(engine, "T", check_after=1000.0)
    with waiting(engine, clock) as call:
        engine.feedback.resume("T")
        assert call.ended() == ["T"]


def test_the_end_of_a_lease_wakes_a_waiting_call(engine: Engine, clock: WatchedClock) -> None:
    prepared(engine, "T")
    assert asked(engine) == ["T"]
    with waiting(engine, clock) as call:
        clock.advance(9)
        assert call.ended() == ["T"]


def test_a_back_off_shorter_than_the_lease_wakes_a_waiting_call(
    clock: WatchedClock,
) -> None:
    """The call sleeps until the new time, and no longer."""
    options = {"check_lease_seconds": 1000.0, "check_backoff_seconds": 8.0}
    with opened(CrashDisk(), clock, **options) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        with waiting(engine, clock) as call:
            engine.feedback.answer(question, "unknown")
            clock.until_a_thread_waits()
            clock.advance(8)
            assert call.ended() == ["T"]


def test_a_question_goes_to_one_of_the_waiting_calls(engine: Engine, clock: WatchedClock) -> None:
    """The others wait for the rest of their time."""
    got = Counter()

    def work() -> list[str]:
        found = asked(engine, limit=1, wait=8.0)
        got.add(len(found))
        return found

    calls = [Call(work) for _ in range(4)]
    for _ in calls:
        clock.until_a_thread_waits()
    prepared(engine, "T")
    prepared(engine, "U")
    got.wait_for(2)
    clock.advance(8)
    assert sorted(each for call in calls for each in call.ended()) == ["T", "U"]


def test_a_waiting_call_returns_nothing_when_its_time_is_up(
    engine: Engine, clock: WatchedClock
) -> None:
    """Later questions, and those of other producers or topics, change nothing."""
    with waiting(engine, clock, "p", "emails", wait=50.0) as call:
        prepared(engine, "T1", topics=("orders",))
        prepared(engine, "T2", "q", topics=("emails",))
        prepared(engine, "T3", topics=("emails",), check_after=60.0)
        clock.advance(50)
        assert call.ended() == []


def test_prepare_and_decide_wake_no_call_without_a_question(
    engine: Engine, clock: WatchedClock
) -> None:
    """Otherwise each transaction would cost a switch to every waiting thread."""
    with waiting(engine, clock, wait=50.0) as call:
        for number in range(100):
            prepared(engine, f"T{number}", check_after=60.0).commit()
        prepared(engine, "U")
        assert call.ended() == ["U"]
    assert clock.waits == 1


def close(engine: Engine, disk: FaultDisk) -> None:
    engine.close()


def fail(engine: Engine, disk: FaultDisk) -> None:
    disk.fail("write")
    with pytest.raises(EngineFailed):
        engine.send("t", b"1")


@pytest.mark.parametrize(("end", "error"), [(close, Closed), (fail, EngineFailed)])
def test_the_end_of_an_engine_wakes_every_waiting_call(
    clock: WatchedClock, end: Callable[[Engine, FaultDisk], None], error: type[Exception]
) -> None:
    """Each call raises the reason at once."""
    disk = FaultDisk(CrashDisk())
    engine = opened(disk, clock)
    prepared(engine, "T", check_after=1000.0)
    calls = [
        Call(lambda: ask(engine, wait=HOUR)),
        Call(lambda: ask(engine, "unknown", wait=HOUR)),
        Call(lambda: engine.read("nothing", timeout=HOUR)),
        Call(lambda: engine.consumer("nothing", group="g").poll(timeout=HOUR)),
    ]
    for _ in calls:
        clock.until_a_thread_waits()
    end(engine, disk)
    if error is EngineFailed:
        reader = calls.pop(2)  # what was visible can be read, so it goes on waiting
    for call in calls:
        with pytest.raises(error):
            call.ended()
    engine.close()
    if error is EngineFailed:
        with pytest.raises(Closed):
            reader.ended()


def test_a_wait_without_end_ends(engine: Engine, clock: WatchedClock) -> None:
    with waiting(engine, clock, wait=float("inf")) as call:
        prepared(engine, "T")
        assert call.ended() == ["T"]


def test_many_threads_share_the_questions_and_none_hangs(clock: WatchedClock) -> None:
    """Four threads ask for batches while two prepare. Each question goes to one of them."""
    with opened(CrashDisk(), clock, segment_bytes=1 << 20) as engine:
        answered = Counter()

        def prepare(name: str) -> None:
            for number in range(100):
                prepared(engine, f"{name}{number}")

        def answer() -> list[str]:
            seen: list[str] = []
            while questions := ask(engine, limit=3, wait=5.0):
                for question in questions:
                    engine.feedback.answer(question, "commit")
                    answered.add(1)
                seen += ids(questions)
            return seen

        askers = [Call(answer) for _ in range(4)]
        for call in [Call(partial(prepare, name)) for name in "ab"]:
            call.ended()
        answered.wait_for(200)
        clock.until(lambda: len(clock.waiting) == len(askers))
        clock.advance(5)
        seen = [tx_id for call in askers for tx_id in call.ended()]
        assert sorted(seen) == sorted(f"{name}{i}" for name in "ab" for i in range(100))
        assert engine.undecided() == []
