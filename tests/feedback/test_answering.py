"""Answers: which ones count, and what they do. The first durable decision wins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import fmq
from fmq import Engine, Question
from fmq.errors import (
    AlreadyDecided,
    BadOption,
    Closed,
    EngineFailed,
    LeaseLost,
    ReadOnly,
    TooLarge,
    UnknownTransaction,
)
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.inside import inside
from tests.feedback.asking import LAZY, asked, asked_one, prepared, with_threads
from tests.small import bodies, opened

DECISIONS = [("commit", "committed"), ("rollback", "rolled back")]


@pytest.mark.parametrize(("decision", "state"), DECISIONS)
def test_an_answer_decides_and_is_recorded_with_its_reason(
    clock: FakeClock, decision: Any, state: str
) -> None:
    """A commit shows the messages, a roll back does not. A restart changes neither."""
    disk = CrashDisk()
    engine = opened(disk, clock)
    prepared(engine, "T")
    outcome = engine.feedback.answer(asked_one(engine), decision, reason="row 17 is there")
    assert outcome is not None
    assert (outcome.state, outcome.decided_by) == (state, "checker")
    assert outcome.reason == "row 17 is there"
    assert engine.undecided() == []
    assert asked(engine) == []
    for each in (engine, opened(disk.after_power_loss(1), clock)):
        assert each.outcome("T") == outcome
        assert bodies(each, "orders") == [b"orders of T"] * (decision == "commit")
        each.close()


def test_the_answer_unknown_decides_nothing(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        assert engine.feedback.answer(asked_one(engine), "unknown", reason="locked") is None
        (undecided,) = engine.undecided()
        assert (undecided.answers, undecided.parked) == (1, False)


@pytest.mark.parametrize("answer", ["COMMIT", "", None, True, "committed"])
def test_a_wrong_kind_of_answer_is_refused(clock: FakeClock, answer: Any) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        with pytest.raises(BadOption, match="commit, rollback, unknown"):
            engine.feedback.answer(question, answer)
        assert engine.feedback.answer(question, "commit") is not None


def test_a_reason_that_is_too_long_leaves_the_question_as_it_was(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        with pytest.raises(TooLarge):
            engine.feedback.answer(question, "commit", reason="x" * 100_000)
        assert engine.feedback.answer(question, "commit", reason="x") is not None


# --- leases ---------------------------------------------------------------------------------------


def test_an_unknown_does_not_count_once_the_question_was_asked_again(
    clock: FakeClock,
) -> None:
    """Nothing is decided or counted. The caller that has the question now can answer."""
    with opened(CrashDisk(), clock, check_lease_seconds=9.0) as engine:
        prepared(engine, "T")
        late = asked_one(engine)
        clock.advance(9)
        question = asked_one(engine)
        with pytest.raises(LeaseLost, match="'T'"):
            engine.feedback.answer(late, "unknown")
        assert engine.undecided()[0].answers == 0
        assert engine.feedback.answer(question, "rollback") is not None


@pytest.mark.parametrize(("decision", "state"), DECISIONS)
def test_a_decision_counts_even_if_the_question_was_asked_again(
    clock: FakeClock, decision: Any, state: str
) -> None:
    """An answer names the transaction by number and seal, whichever question it is for.

    A second equal decision is a success, an opposite one is refused.
    """
    with opened(CrashDisk(), clock, check_lease_seconds=9.0) as engine:
        prepared(engine, "T")
        late = asked_one(engine)
        clock.advance(9)
        question = asked_one(engine)
        outcome = engine.feedback.answer(late, decision)
        assert outcome is not None and outcome.state == state
        assert engine.feedback.answer(question, decision) == outcome
        with pytest.raises(AlreadyDecided):
            engine.feedback.answer(question, "rollback" if decision == "commit" else "commit")


def test_a_decision_with_another_seal_does_not_count(clock: FakeClock) -> None:
    """This holds during the lease and after it."""
    with opened(CrashDisk(), clock, check_lease_seconds=9.0) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        for _ in range(2):
            with pytest.raises(UnknownTransaction, match="seal"):
                engine.feedback.answer(replace(question, seal="0" * 32), "commit")
            clock.advance(10)
            asked_one(engine)
        assert len(engine.undecided()) == 1


def test_a_late_answer_counts_until_the_question_is_asked_again(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock, check_lease_seconds=9.0) as engine:
        prepared(engine, "T")
        late = asked_one(engine)
        clock.advance(100)
        assert engine.feedback.answer(late, "commit") is not None


def test_an_unknown_counts_once_for_each_question(clock: FakeClock) -> None:
    """The first "unknown" ends the question's lease, so the second one raises LeaseLost."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        assert engine.feedback.answer(question, "unknown") is None
        with pytest.raises(LeaseLost):
            engine.feedback.answer(question, "unknown")
        assert engine.undecided()[0].answers == 1
        assert engine.feedback.answer(question, "commit") is not None


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_restart_voids_every_lease(clock: FakeClock, end: str) -> None:
    disk = CrashDisk()
    engine = opened(disk, clock)
    prepared(engine, "T")
    question = asked_one(engine)
    if end == "kill":
        disk = disk.after_kill()
    else:
        engine.close()
    with opened(disk, clock) as again:
        with pytest.raises(LeaseLost):
            again.feedback.answer(question, "unknown")
        assert asked_one(again).token != question.token
        with pytest.raises(LeaseLost):
            again.feedback.answer(question, "unknown")
        assert again.feedback.answer(question, "commit") is not None
    engine.close()


def test_an_invented_token_is_refused(clock: FakeClock) -> None:
    """Before the first question the token is empty, and an empty one is refused too."""
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T1")
        question = asked_one(engine)
        prepared(engine, "T2")
        for token in ("", "0" * 16):
            with pytest.raises(LeaseLost):
                engine.feedback.answer(replace(question, token=token), "unknown")
        for token in ("", question.token):
            with pytest.raises(LeaseLost):
                engine.feedback.answer(replace(question, tx_id="T2", token=token), "commit")
        assert len(engine.undecided()) == 2


# --- another caller was faster -------------------------------------------------------------------


@pytest.mark.parametrize(("decision", "state"), DECISIONS)
def test_the_same_decision_of_another_caller_is_a_success(
    clock: FakeClock, decision: Any, state: str
) -> None:
    """The answer returns the outcome with the name of the caller that decided."""
    with opened(CrashDisk(), clock) as engine:
        tx = prepared(engine, "T")
        question = asked_one(engine)
        tx.commit() if decision == "commit" else tx.rollback()
        outcome = engine.feedback.answer(question, decision, reason="too late")
        assert outcome == engine.outcome("T")
        assert (outcome.state, outcome.decided_by, outcome.reason) == (state, None, None)


def test_the_opposite_decision_of_another_caller_stands(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        engine.decide("T", "rollback", decided_by="anna")
        with pytest.raises(AlreadyDecided, match="by anna"):
            engine.feedback.answer(question, "commit")
        assert bodies(engine, "orders") == []


def test_an_unknown_after_a_decision_is_no_error(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        engine.decide("T", "commit")
        assert engine.feedback.answer(question, "unknown") is None
        assert engine.outcome("T").state == "committed"


def test_the_last_unknown_does_not_overrule_a_commit_on_its_way(clock: FakeClock) -> None:
    """The options roll back after this answer, but the commit is on its way to the disk."""
    options = {"on_undecided": "rollback", "check_answers_max": 1, **LAZY}
    with with_threads(clock=clock, **options) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        engine.decide("T", "commit")
        ledger = inside(engine).ledger
        assert ledger.decided_at >= ledger.shown_to, "it is durable by now"
        assert engine.feedback.answer(question, "unknown") is None
        assert engine.outcome("T").state == "committed"


# --- of another transaction -----------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["commit", "unknown"])
def test_a_question_of_another_store_is_refused(clock: FakeClock, answer: Any) -> None:
    """The store has a transaction with the same id and the same content."""
    disk, other = CrashDisk(), CrashDisk()
    other.random(1)  # so that the two draw differently
    with opened(disk, clock) as engine, opened(other, clock) as stranger:
        prepared(engine, "T")
        prepared(stranger, "T")
        question = asked_one(stranger)
        assert question.seal == asked_one(engine).seal
        with pytest.raises(UnknownTransaction, match="store"):
            engine.feedback.answer(question, answer)
        assert len(engine.undecided()) == 1


def test_a_late_answer_never_decides_a_later_transaction_with_the_same_id(clock: FakeClock) -> None:
    """After the window an id can be used again, with the same content and so the same seal."""
    with opened(CrashDisk(), clock, outcome_window_seconds=10.0) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        engine.decide("T", "rollback")
        clock.advance(11)
        prepared(engine, "T")
        for _ in range(2):
            with pytest.raises(LeaseLost):
                engine.feedback.answer(question, "commit")
            assert asked_one(engine).seal == question.seal
            clock.advance(60)


def test_an_answer_after_the_window_raises_unknown_transaction(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock, outcome_window_seconds=10.0) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        engine.decide("T", "rollback")
        clock.advance(11)
        with pytest.raises(UnknownTransaction, match="window"):
            engine.feedback.answer(question, "commit")


# --- engines that have ended ----------------------------------------------------------------------


def refuses_everything(engine: Engine, question: Question, error: type[fmq.FmqError]) -> None:
    feedback = engine.feedback
    for call in (
        lambda: feedback.ask("p", wait=0.0),
        lambda: feedback.ask("p"),
        lambda: feedback.answer(question, "commit"),
        lambda: feedback.answer(question, "unknown"),
        lambda: feedback.resume("T"),
        engine.settle,
        lambda: engine.checker("p"),
        lambda: engine.send_in_transaction([("t", b"1")], lambda _: "commit"),
    ):
        with pytest.raises(error):
            call()


def test_a_closed_engine_gives_no_question_and_takes_no_answer(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
    refuses_everything(engine, question, Closed)
    with pytest.raises(Closed):
        engine.undecided()
    assert clock.monotonic() == 0.0, "a call waited"


def test_a_failed_engine_gives_no_question_and_takes_no_answer(clock: FakeClock) -> None:
    """It still lists the undecided transactions."""
    disk = FaultDisk(CrashDisk())
    with opened(disk, clock) as engine:
        prepared(engine, "T")
        question = asked_one(engine)
        disk.fail("write")
        with pytest.raises(EngineFailed):
            engine.send("t", b"1")
        refuses_everything(engine, question, EngineFailed)
        assert [tx.tx_id for tx in engine.undecided()] == ["T"]


def test_a_read_only_engine_lists_the_undecided_and_has_no_feedback(clock: FakeClock) -> None:
    disk = CrashDisk()
    with opened(disk, clock) as engine:
        prepared(engine, "T")
    with fmq.open("data", read_only=True, disk=disk) as reader:
        (undecided,) = reader.undecided()
        assert (undecided.tx_id, undecided.answers, undecided.parked) == ("T", 0, False)
        for name in ("feedback", "checker", "settle", "send_in_transaction"):
            with pytest.raises(ReadOnly, match=name):
                getattr(reader, name)
