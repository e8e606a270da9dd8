"""Asking about everything that is undecided now, at once, and what the report says."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from fmq import Engine, Question, Settled
from fmq.errors import Closed
from fmq.store.section import is_mine
from fmq.testing import CrashDisk, FakeClock
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
    """A checker that says what the id of the transaction says."""
    return question.tx_id.partition(" ")[0]


def settled(engine: Engine, **more: Any) -> Settled:
    result: Settled = in_thread(lambda: engine.settle(**more), "settle")
    return result


def test_everything_is_asked_about_at_once(clock: WatchedClock) -> None:
    """Not after check_after, nor after the back-off, and no second passes."""
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        engine.checker("")(by_id)
        for tx_id in ("commit 1", "rollback 1", "unknown 1", "commit 2"):
            prepared(engine, tx_id, check_after=1000.0)
        prepared(engine, "commit 3", None)
        prepared(engine, "commit 4", "nobody's")
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


def test_with_nothing_undecided_there_is_nothing_to_report(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        assert engine.settle() == Settled((), (), (), ())
        engine.checker("p")(by_id)
        assert engine.settle() == Settled((), (), (), ())
        assert clock.monotonic() == 0.0


def test_what_the_answers_make_of_it_is_reported(clock: WatchedClock) -> None:
    """Rolled back after so many of them, if that was asked for."""
    with opened(CrashDisk(), clock, on_undecided="rollback", check_answers_max=2) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "unknown")
        assert engine.settle().unknown == ("unknown",)
        assert engine.settle().rolled_back == ("unknown",)


def test_parked_ones_are_left_alone(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock, on_undecided="park", check_answers_max=1) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "unknown")
        assert engine.settle().unknown == ("unknown",)
        assert engine.undecided()[0].parked
        assert engine.settle() == Settled((), (), (), ("unknown",))
        assert engine.undecided()[0].parked
        assert clock.monotonic() == 0.0


@pytest.mark.parametrize("answer", [ZeroDivisionError(), "nonsense"])
def test_a_checker_that_fails_neither_hangs_nor_holds_back_the_others(
    clock: WatchedClock, answer: Any
) -> None:
    """Its transactions are reported as unknown, and nothing is counted."""

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


def test_what_a_checker_has_just_failed_on_is_asked_about_again(clock: WatchedClock) -> None:
    """Nobody is at it any more, though its lease has not ended."""
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


# --- questions that are out -----------------------------------------------------------------------


def test_it_waits_for_the_answer_of_somebody_else(clock: WatchedClock) -> None:
    """Who has been asked already is not asked a second time."""
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        prepared(engine, "rollback, says the checker")
        question = asked_one(engine, limit=1)
        call = Call(lambda: engine.settle(timeout=10.0))
        clock.until_somebody_waits()
        engine.feedback.answer(question, "commit")
        assert call.ended().committed == ("commit 1",)


def test_somebody_who_cannot_tell_is_an_answer(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        question = asked_one(engine)
        call = Call(lambda: engine.settle(timeout=10.0))
        clock.until_somebody_waits()
        engine.feedback.answer(question, "unknown")
        assert call.ended().unknown == ("commit 1",)


def test_who_does_not_answer_in_time_leaves_it_unasked(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        question = asked_one(engine)
        prepared(engine, "commit 2")
        report = engine.settle(timeout=10.0)
        assert (report.committed, report.unasked) == (("commit 2",), ("commit 1",))
        assert clock.monotonic() == pytest.approx(10.0)
        assert engine.feedback.answer(question, "commit") is not None, "its lease still runs"


def test_when_the_lease_of_somebody_else_ends_it_asks_itself(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock, check_lease_seconds=9.0) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        assert asked(engine) == ["commit 1"]
        assert engine.settle(timeout=10.0).committed == ("commit 1",)
        assert clock.monotonic() == pytest.approx(9.0)


def test_time_that_runs_out_leaves_the_rest_unasked(clock: WatchedClock) -> None:
    """A checker that runs is not interrupted; no further one is begun."""

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


class Eventful(FakeClock):
    """Lets something happen when it is asked for the time, once, after so many times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.engine: Engine | None = None

    def monotonic(self) -> float:
        self.left -= 1
        engine = self.engine
        if engine is not None and self.left <= 0 and not is_mine(engine._parts.lock):
            self.engine = None
            engine.decide("commit 1", "rollback")
        return super().monotonic()


@pytest.mark.parametrize("left", range(2, 6))
def test_an_end_just_before_it_waits_is_not_slept_through(left: int) -> None:
    """Whenever it comes, no time passes until the report."""
    clock = Eventful()
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        assert asked(engine) == ["commit 1"]
        clock.engine, clock.left = engine, left
        assert engine.settle(timeout=10.0).rolled_back == ("commit 1",)
        assert clock.monotonic() == 0.0


def test_a_decision_by_hand_is_waited_for_and_reported(clock: WatchedClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(by_id)
        prepared(engine, "commit 1")
        assert asked(engine) == ["commit 1"]
        call = Call(lambda: engine.settle(timeout=10.0))
        clock.until_somebody_waits()
        engine.decide("commit 1", "rollback")
        assert call.ended().rolled_back == ("commit 1",)


def test_what_was_decided_behind_the_window_is_reported_as_well(clock: WatchedClock) -> None:
    """The journal may not tell any more, who has waited for it does."""
    with opened(CrashDisk(), clock, outcome_window_seconds=1.0) as engine:

        def slow(question: Question) -> Any:
            clock.advance(3.0)
            return by_id(question)

        engine.checker("p")(slow)
        for tx_id in ("commit 1", "rollback 1"):
            prepared(engine, tx_id)
        report = engine.settle()
        assert (report.committed, report.rolled_back) == (("commit 1",), ("rollback 1",))


def test_an_engine_that_closes_ends_it(clock: WatchedClock) -> None:
    engine = opened(CrashDisk(), clock)
    engine.checker("p")(by_id)
    prepared(engine, "commit 1")
    assert asked(engine) == ["commit 1"]
    call = Call(lambda: engine.settle(timeout=10.0))
    clock.until_somebody_waits()
    engine.close()
    with pytest.raises(Closed):
        call.ended()


# --- what it costs ------------------------------------------------------------------------------


def test_each_of_many_costs_no_more_than_each_of_few(clock: WatchedClock) -> None:
    """Counted are the functions of Python that settle calls, checkers included."""

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
