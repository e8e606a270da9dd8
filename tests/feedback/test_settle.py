"""settle: ask about everything that is undecided now, at once, and report."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fmq import Engine, Question, Settled
from fmq.errors import Closed
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import has_lock
from tests.feedback.asking import (
    Call,
    WatchedClock,
    asked,
    asked_one,
    prepared,
)
from tests.interrupts import in_thread
from tests.small import opened


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


def by_id(question: Question) -> Any:
    """Return a checker whose answers are given by the id of the transaction."""
    return question.tx_id.partition(" ")[0]


def settled(engine: Engine, **more: Any) -> Settled:
    result: Settled = in_thread(lambda: engine.settle(**more), "settle")
    return result


def test_settle_asks_about_each_undecided_transaction_at_once(clock: WatchedClock) -> None:
    """It waits neither for check_after nor for the back-off."""
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        engine.checker("")(by_id)
        for tx_id in ("commit 1", "rollback 1", "unknown 1", "commit 2"):
            prepared(engine, tx_id, check_after=1000.0)
        prepared(engine, "commit 3", None)
        prepared(engine, "commit 4", "unknown")
        assert engine.settle() == Settled(
            committed=("commit 1", "commit 2", "commit 3"),
            rolled_back=("rollback 1",),
            unknown=("unknown 1",),
            unasked=("commit 4",),
        )
        assert clock.monotonic() == 0.0
        assert [tx.answers for tx in engine.undecided()] == [1, 0]
        again = engine.settle()
        assert (again.unknown, again.unasked) == (("unknown 1",), ("commit 4",))
        assert clock.monotonic() == 0.0


def test_the_report_is_empty_if_nothing_is_undecided(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        assert engine.settle() == Settled((), (), (), ())
        engine.checker("p")(by_id)
        assert engine.settle() == Settled((), (), (), ())
        assert clock.monotonic() == 0.0


def test_a_last_unknown_is_reported_as_rolled_back(clock: WatchedClock) -> None:
    """The options roll back after two answers. The first is reported as unknown."""
    with opened(CrashDisk(), clock, on_undecided="rollback", check_answers_max=2) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "unknown")
        assert engine.settle().unknown == ("unknown",)
        assert engine.settle().rolled_back == ("unknown",)


def test_parked_transactions_are_left_alone(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock, on_undecided="park", check_answers_max=1) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "unknown")
        assert engine.settle().unknown == ("unknown",)
        assert engine.undecided()[0].parked
        assert engine.settle() == Settled((), (), (), ("unknown",))
        assert engine.undecided()[0].parked
        assert clock.monotonic() == 0.0


@pytest.mark.parametrize("answer", [ZeroDivisionError(), "nonsense"])
def test_a_checker_that_raises_delays_no_other(clock: WatchedClock, answer: Any) -> None:
    """Its transactions are reported as unknown, and no answer is counted."""

    def fails(question: Question) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        engine.checker("q")(fails)
        prepared(engine, "commit 1")
        prepared(engine, "q1", "q")
        prepared(engine, "commit 2")
        prepared(engine, "q2", "q")
        for _ in range(2):
            report = engine.settle()
            assert report.unknown == ("q1", "q2")
        assert [tx.answers for tx in engine.undecided()] == [0, 0]
        assert clock.monotonic() == 0.0


def test_a_transaction_whose_checker_just_raised_is_asked_about_again(clock: WatchedClock) -> None:
    """Its lease has not ended, but no checker works on it."""
    answers = [ZeroDivisionError(), "commit"]

    def check(question: Question) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(check)
        prepared(engine, "T")
        assert engine.settle().unknown == ("T",)
        assert engine.settle().committed == ("T",)


# --- leased questions -----------------------------------------------------------------------


def test_settle_waits_for_the_answer_of_another_caller(clock: WatchedClock) -> None:
    """It does not ask a second time."""
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        prepared(engine, "rollback, says the checker")
        question = asked_one(engine, limit=1)
        call = Call(lambda: engine.settle(timeout=10.0))
        clock.until_a_thread_waits()
        engine.feedback.answer(question, "commit")
        assert call.ended().committed == ("commit 1",)


def test_an_unknown_of_another_caller_ends_the_wait(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        question = asked_one(engine)
        call = Call(lambda: engine.settle(timeout=10.0))
        clock.until_a_thread_waits()
        engine.feedback.answer(question, "unknown")
        assert call.ended().unknown == ("commit 1",)


def test_a_question_without_an_answer_in_time_is_reported_as_unasked(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        question = asked_one(engine)
        prepared(engine, "commit 2")
        report = engine.settle(timeout=10.0)
        assert (report.committed, report.unasked) == (("commit 2",), ("commit 1",))
        assert clock.monotonic() == pytest.approx(10.0)
        assert engine.feedback.answer(question, "commit") is not None, "its lease still runs"


def test_settle_asks_when_the_lease_of_another_caller_ends(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock, check_lease_seconds=9.0) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        assert asked(engine) == ["commit 1"]
        assert engine.settle(timeout=10.0).committed == ("commit 1",)
        assert clock.monotonic() == pytest.approx(9.0)


def test_questions_left_when_the_time_runs_out_are_reported_as_unasked(clock: WatchedClock) -> None:
    """A running checker is not interrupted, and no other is called."""

    def slow(question: Question) -> Any:
        clock.advance(4.0)
        return "commit"

    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(slow)
        for number in range(5):
            prepared(engine, f"T{number}")
        report = engine.settle(timeout=10.0)
        assert (report.committed, report.unasked) == (("T0", "T1", "T2"), ("T3", "T4"))
        assert engine.settle(timeout=0.0).unasked == ("T3", "T4")


class EventClock(FakeClock):
    """A clock that lets `happen` run once, after it was read a number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.engine: Engine | None = None

    def monotonic(self) -> float:
        self.left -= 1
        engine = self.engine
        if engine is not None and self.left <= 0 and not has_lock(engine):
            self.engine = None
            engine.decide("commit 1", "rollback")
        return super().monotonic()


@pytest.mark.parametrize("left", range(2, 6))
def test_settle_notices_an_end_just_before_it_waits(left: int) -> None:
    """No time passes until the report, whenever the end comes."""
    clock = EventClock()
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        assert asked(engine) == ["commit 1"]
        clock.engine, clock.left = engine, left
        assert engine.settle(timeout=10.0).rolled_back == ("commit 1",)
        assert clock.monotonic() == 0.0


def test_settle_waits_for_a_decision_by_hand_and_reports_it(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        assert asked(engine) == ["commit 1"]
        call = Call(lambda: engine.settle(timeout=10.0))
        clock.until_a_thread_waits()
        engine.decide("commit 1", "rollback")
        assert call.ended().rolled_back == ("commit 1",)


def test_a_decision_that_left_the_window_is_reported(clock: WatchedClock) -> None:
    """The journal may not have it any more, but settle waited for it."""
    with opened(CrashDisk(), clock, outcome_window_seconds=1.0) as engine:

        def slow(question: Question) -> Any:
            clock.advance(3.0)
            return by_id(question)

        engine.checker("p")(slow)
        for tx_id in ("commit 1", "rollback 1"):
            prepared(engine, tx_id)
        report = engine.settle()
        assert (report.committed, report.rolled_back) == (("commit 1",), ("rollback 1",))


def test_the_end_of_the_engine_ends_settle(clock: WatchedClock) -> None:
    engine = opened(CrashDisk(), clock)
    engine.checker("p")(by_id)
    prepared(engine, "commit 1")
    assert asked(engine) == ["commit 1"]
    call = Call(lambda: engine.settle(timeout=10.0))
    clock.until_a_thread_waits()
    engine.close()
    with pytest.raises(Closed):
        call.ended()


# --- what it costs ------------------------------------------------------------------------------


def test_the_cost_of_a_question_does_not_grow_with_their_number(clock: WatchedClock) -> None:
    """Count the functions of Python that settle calls, checkers included."""

    def calls(number: int) -> int:
        with opened(CrashDisk(), clock, segment_bytes=1 << 20) as engine:
            engine.checker("p")(by_id)
            for each in range(number):
                prepared(engine, f"unknown {each}")
            count = 0

            def called(frame: object, event: str, _: object) -> None:
                nonlocal count
                count += event == "call"

            sys.setprofile(called)
            try:
                engine.settle()
            finally:
                sys.setprofile(None)
            return count

    calls(10)  # the first one imports what it needs
    assert calls(400) <= 4.2 * calls(100)
