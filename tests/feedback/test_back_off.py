"""Answers "unknown": asked later and later, then parked or rolled back, and resumed."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Engine
from fmq.errors import AlreadyDecided, UnknownTransaction
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import schedule_of
from tests.feedback.asking import asked, asked_one, prepared
from tests.small import bodies, opened


def answer_unknown(engine: Engine, times: int, clock: FakeClock) -> None:
    """Answer "unknown" `times` times, each as soon as the question is due."""
    for _ in range(times):
        clock.advance(600)
        assert engine.feedback.answer(asked_one(engine), "unknown") is None


def waited(engine: Engine, clock: FakeClock) -> float:
    """Return how long after an "unknown" the question is due again."""
    question = asked_one(engine)
    began = clock.monotonic()
    assert engine.feedback.answer(question, "unknown") is None
    assert asked(engine) == []
    (tx_id,) = asked(engine, wait=10_000.0)
    assert tx_id == question.tx_id
    ended = clock.monotonic()
    clock.advance(engine.options.check_lease_seconds)
    return ended - began


def test_each_unknown_puts_the_question_off_for_longer(clock: FakeClock) -> None:
    """The time doubles, up to ten times as long, and is shortened at random by up to a half."""
    with opened(CrashDisk(), clock, check_backoff_seconds=3.0) as engine:
        prepared(engine, "T")
        found = [waited(engine, clock) for _ in range(12)]
    longest = [3.0, 6.0, 12.0, 24.0, *[30.0] * 8]
    for seconds, limit in zip(found, longest, strict=True):
        assert limit / 2 <= round(seconds, 5) <= limit
    shares = [round(seconds / limit, 3) for seconds, limit in zip(found, longest, strict=True)]
    assert len(set(shares)) > 6, "questions put off together are due together"


def test_the_back_off_grows_from_one_minute_to_ten_by_default(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        found = [waited(engine, clock) for _ in range(7)]
        for seconds, limit in zip(found, [60, 120, 240, 480, 600, 600, 600], strict=True):
            assert limit / 2 <= round(seconds, 5) <= limit
        assert engine.undecided()[0].answers == 7


def test_the_back_off_never_overflows(clock: FakeClock) -> None:
    """With "ask" the number of answers is unlimited, and 2 to the power of it is too large."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        answer_unknown(engine, 1100, clock)
        assert engine.undecided()[0].answers == 1100


def test_only_answers_count_towards_the_maximum(clock: FakeClock) -> None:
    """A question whose lease ended does not: perhaps no checker was there."""
    with opened(CrashDisk(), clock, on_undecided="rollback", check_answers_max=2) as engine:
        prepared(engine, "T")
        for _ in range(10):
            assert asked(engine) == ["T"]
            clock.advance(30)
        assert engine.undecided()[0].answers == 0
        answer_unknown(engine, 1, clock)
        assert engine.undecided()[0].answers == 1


def test_a_question_has_the_number_of_its_answers(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        answer_unknown(engine, 3, clock)
        clock.advance(600)
        assert asked_one(engine).answers == 3


# --- on_undecided ---------------------------------------------------------------------------------


def test_with_ask_the_question_is_asked_for_ever(clock: FakeClock) -> None:
    """The maximum of answers does not count."""
    with opened(CrashDisk(), clock, on_undecided="ask", check_answers_max=3) as engine:
        prepared(engine, "T")
        answer_unknown(engine, 20, clock)
        assert not engine.undecided()[0].parked


def parked(clock: FakeClock, disk: CrashDisk | None = None) -> Engine:
    engine = opened(disk or CrashDisk(), clock, on_undecided="park", check_answers_max=3)
    prepared(engine, "T")
    answer_unknown(engine, 2, clock)
    assert not engine.undecided()[0].parked
    answer_unknown(engine, 1, clock)
    return engine


def test_with_park_the_question_is_parked_after_the_last_answer(clock: FakeClock) -> None:
    """The transaction stays listed, and its question delays no other."""
    with parked(clock) as engine:
        (undecided,) = engine.undecided()
        assert (undecided.parked, undecided.answers) == (True, 3)
        prepared(engine, "U")
        assert asked(engine) == ["U"]
        clock.advance(100_000)
        assert asked(engine) == ["U"]
        assert asked(engine, topics="orders", wait=1000.0) == ["U"]


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_parked_transaction_can_be_decided(clock: FakeClock, decision: Any) -> None:
    with parked(clock) as engine:
        outcome = engine.decide("T", decision, reason="looked it up", decided_by="anna")
        assert (outcome.decided_by, outcome.reason) == ("anna", "looked it up")
        assert engine.undecided() == []
        assert len(bodies(engine, "orders")) == (decision == "commit")


def test_a_parked_transaction_can_be_resumed(clock: FakeClock) -> None:
    """The question is due at once, and its answers count from the beginning."""
    with parked(clock) as engine:
        engine.feedback.resume("T")
        (undecided,) = engine.undecided()
        assert (undecided.parked, undecided.answers) == (False, 0)
        question = asked_one(engine)
        assert engine.feedback.answer(question, "unknown") is None
        answer_unknown(engine, 1, clock)
        assert not engine.undecided()[0].parked
        answer_unknown(engine, 1, clock)
        assert engine.undecided()[0].parked


def test_ask_about_leaves_a_parked_transaction_parked(clock: FakeClock) -> None:
    """ask_about returns the question to its caller. Calls of ask do not get it."""
    with parked(clock) as engine:
        (question,) = engine.feedback.ask_about("T")
        clock.advance(1000)
        assert engine.undecided()[0].parked
        assert asked(engine) == []
        assert engine.feedback.answer(question, "unknown") is None
        assert engine.undecided()[0].parked
        schedule_of(engine)._check()


def test_a_resumed_question_is_due_after_the_lease_of_ask_about(clock: FakeClock) -> None:
    with parked(clock) as engine:
        (question,) = engine.feedback.ask_about("T")
        engine.feedback.resume("T")
        assert asked(engine) == []
        clock.advance(question.lease_seconds)
        assert asked(engine) == ["T"]
        assert not engine.undecided()[0].parked


def test_a_parked_transaction_is_asked_about_after_a_restart(clock: FakeClock) -> None:
    disk = CrashDisk()
    parked(clock, disk).close()
    with opened(disk, clock) as engine:
        assert not engine.undecided()[0].parked
        assert asked(engine) == ["T"]


def test_with_rollback_the_last_unknown_rolls_back(clock: FakeClock) -> None:
    """The journal records the reason and the number of answers."""
    disk = CrashDisk()
    with opened(disk, clock, on_undecided="rollback", check_answers_max=3) as engine:
        prepared(engine, "T")
        answer_unknown(engine, 2, clock)
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


def test_resume_makes_a_waiting_question_due(clock: FakeClock) -> None:
    """It waited for check_after or after an answer. Its answers stay counted."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T", check_after=1000.0)
        engine.feedback.resume("T")
        assert engine.feedback.answer(asked_one(engine), "unknown") is None
        engine.feedback.resume("T")
        assert asked_one(engine).answers == 1


def test_resume_leaves_a_leased_question_alone(clock: FakeClock) -> None:
    """No other call gets the question, and the answer counts."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        engine.feedback.resume("T")
        assert asked(engine) == []
        assert engine.feedback.answer(question, "commit") is not None


@pytest.mark.parametrize("tx_id", ["T", "never heard of", "open"])
def test_resume_of_a_decided_transaction_is_refused(clock: FakeClock, tx_id: str) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T").commit()
        engine.transaction(tx_id="open")
        with pytest.raises(UnknownTransaction, match=tx_id):
            engine.feedback.resume(tx_id)
