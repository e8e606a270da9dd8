"""What follows when nobody can tell: later and later, parked, or rolled back; and asked anew."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Engine
from fmq.errors import AlreadyDecided, UnknownTransaction
from fmq.testing import CrashDisk, FakeClock
from tests.feedback.asking import asked, asked_one, prepared
from tests.small import bodies, opened


def tell(engine: Engine, times: int, clock: FakeClock) -> None:
    """Answer "unknown" so many times, as soon as the question comes."""
    for _ in range(times):
        clock.advance(600)
        assert engine.feedback.answer(asked_one(engine), "unknown") is None


def waited(engine: Engine, clock: FakeClock) -> float:
    """How long after an "unknown" the question comes again."""
    question = asked_one(engine)
    began = clock.monotonic()
    assert engine.feedback.answer(question, "unknown") is None
    assert asked(engine) == []
    (tx_id,) = asked(engine, wait=10_000.0)
    assert tx_id == question.tx_id
    ended = clock.monotonic()
    clock.advance(engine.options.check_lease_seconds)
    return ended - began


def test_the_next_question_comes_later_and_later(clock: FakeClock) -> None:
    """Doubled each time up to the maximum, and shortened at random by up to a half."""
    options = {"check_backoff_seconds": 3.0, "check_backoff_max_seconds": 40.0}
    with opened(CrashDisk(), clock, **options) as engine:
        prepared(engine, "T")
        found = [waited(engine, clock) for _ in range(12)]
    longest = [3.0, 6.0, 12.0, 24.0, *[40.0] * 8]
    for seconds, limit in zip(found, longest, strict=True):
        assert limit / 2 <= round(seconds, 5) <= limit
    shares = [round(seconds / limit, 3) for seconds, limit in zip(found, longest, strict=True)]
    assert len(set(shares)) > 6, "those who fail together come again together"


def test_by_default_a_minute_becomes_ten(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        found = [waited(engine, clock) for _ in range(7)]
        for seconds, limit in zip(found, [60, 120, 240, 480, 600, 600, 600], strict=True):
            assert limit / 2 <= round(seconds, 5) <= limit
        assert engine.undecided()[0].answers == 7


def test_a_maximum_below_the_first_step_is_the_maximum(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock, check_backoff_max_seconds=5.0) as engine:
        prepared(engine, "T")
        assert waited(engine, clock) <= 5.0


def test_it_never_overflows(clock: FakeClock) -> None:
    """Asked for ever means for ever: 2 to the power of the answers does not."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        tell(engine, 1100, clock)
        assert engine.undecided()[0].answers == 1100


def test_only_answers_count(clock: FakeClock) -> None:
    """Not questions whose lease ended: nobody may have been there."""
    with opened(CrashDisk(), clock, on_undecided="rollback", check_answers_max=2) as engine:
        prepared(engine, "T")
        for _ in range(10):
            assert asked(engine) == ["T"]
            clock.advance(30)
        assert engine.undecided()[0].answers == 0
        tell(engine, 1, clock)
        assert engine.undecided()[0].answers == 1


def test_a_question_says_how_often_it_was_answered(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        tell(engine, 3, clock)
        clock.advance(600)
        assert asked_one(engine).answers == 3


# --- on_undecided ---------------------------------------------------------------------------------


def test_ask_asks_for_ever(clock: FakeClock) -> None:
    """Whatever the maximum of answers is."""
    with opened(CrashDisk(), clock, on_undecided="ask", check_answers_max=3) as engine:
        prepared(engine, "T")
        tell(engine, 20, clock)
        assert not engine.undecided()[0].parked


def parked(clock: FakeClock, disk: CrashDisk | None = None) -> Engine:
    engine = opened(disk or CrashDisk(), clock, on_undecided="park", check_answers_max=3)
    prepared(engine, "T")
    tell(engine, 2, clock)
    assert not engine.undecided()[0].parked
    tell(engine, 1, clock)
    return engine


def test_park_asks_no_more_after_so_many_answers(clock: FakeClock) -> None:
    """It stays to be seen, and holds back nothing else."""
    with parked(clock) as engine:
        (undecided,) = engine.undecided()
        assert (undecided.parked, undecided.answers) == (True, 3)
        prepared(engine, "U")
        assert asked(engine) == ["U"]
        clock.advance(100_000)
        assert asked(engine) == ["U"]
        assert asked(engine, topics="orders", wait=1000.0) == ["U"]


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_parked_one_takes_a_decision(clock: FakeClock, decision: Any) -> None:
    with parked(clock) as engine:
        outcome = engine.decide("T", decision, reason="looked it up", decided_by="anna")
        assert (outcome.decided_by, outcome.reason) == ("anna", "looked it up")
        assert engine.undecided() == []
        assert len(bodies(engine, "orders")) == (decision == "commit")


def test_a_parked_one_can_be_resumed(clock: FakeClock) -> None:
    """It is asked about at once, and its answers count from the beginning."""
    with parked(clock) as engine:
        engine.feedback.resume("T")
        (undecided,) = engine.undecided()
        assert (undecided.parked, undecided.answers) == (False, 0)
        question = asked_one(engine)
        assert engine.feedback.answer(question, "unknown") is None
        tell(engine, 1, clock)
        assert not engine.undecided()[0].parked
        tell(engine, 1, clock)
        assert engine.undecided()[0].parked


def test_a_question_about_a_parked_one_brings_it_back_to_nobody_else(clock: FakeClock) -> None:
    """Whoever wants to know of it may ask; the others are not asked again by that."""
    with parked(clock) as engine:
        (question,) = engine.feedback.ask_about("T")
        clock.advance(1000)
        assert engine.undecided()[0].parked
        assert asked(engine) == []
        assert engine.feedback.answer(question, "unknown") is None
        assert engine.undecided()[0].parked
        engine.feedback._questions._schedule._check()


def test_a_parked_one_is_resumed_behind_the_question_that_is_out(clock: FakeClock) -> None:
    with parked(clock) as engine:
        (question,) = engine.feedback.ask_about("T")
        engine.feedback.resume("T")
        assert asked(engine) == []
        clock.advance(question.lease_seconds)
        assert asked(engine) == ["T"]
        assert not engine.undecided()[0].parked


def test_what_was_parked_is_asked_about_after_a_restart(clock: FakeClock) -> None:
    disk = CrashDisk()
    parked(clock, disk).close()
    with opened(disk, clock) as engine:
        assert not engine.undecided()[0].parked
        assert asked(engine) == ["T"]


def test_rollback_ends_it_after_so_many_answers(clock: FakeClock) -> None:
    """The journal says that nobody could tell, and how often."""
    disk = CrashDisk()
    with opened(disk, clock, on_undecided="rollback", check_answers_max=3) as engine:
        prepared(engine, "T")
        tell(engine, 2, clock)
        clock.advance(600)
        outcome = engine.feedback.answer(asked_one(engine), "unknown")
        assert outcome is not None
        assert (outcome.state, outcome.decided_by) == ("rolled back", "checker")
        assert outcome.reason == "3 answers were unknown"
        assert engine.undecided() == []
        assert asked(engine) == []
    with opened(disk, clock) as engine:
        assert engine.outcome("T") == outcome
        with pytest.raises(AlreadyDecided):
            engine.decide("T", "commit")


# --- resume ---------------------------------------------------------------------------------------


def test_resume_asks_now_about_what_waits(clock: FakeClock) -> None:
    """For its time behind prepare, or behind an answer; the answers stay counted."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T", check_after=1000.0)
        engine.feedback.resume("T")
        assert engine.feedback.answer(asked_one(engine), "unknown") is None
        engine.feedback.resume("T")
        assert asked_one(engine).answers == 1


def test_resume_leaves_alone_who_is_being_asked(clock: FakeClock) -> None:
    """Nobody else gets the question, and the answer is taken."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        engine.feedback.resume("T")
        assert asked(engine) == []
        assert engine.feedback.answer(question, "commit") is not None


@pytest.mark.parametrize("tx_id", ["T", "never heard of", "open"])
def test_what_is_not_undecided_cannot_be_resumed(clock: FakeClock, tx_id: str) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T").commit()
        engine.transaction(tx_id="open")
        with pytest.raises(UnknownTransaction, match=tx_id):
            engine.feedback.resume(tx_id)
