"""The loop that every producer runs: what it does with faulty checkers, and how it ends."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from fmq import CheckLoop, Engine, Question
from fmq.errors import EngineFailed
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.feedback.asking import (
    NotingChecker,
    WatchedClock,
    asked,
    prepared,
)
from tests.interrupts import in_thread
from tests.small import bodies, opened

# --- faulty checkers -------------------------------------------------------------------


def asks_again(engine: Engine, clock: FakeClock, checker: NotingChecker) -> None:
    """Check that nothing was decided or counted, and that the question is due after its lease."""
    assert engine.undecided()[0].answers == 0
    assert asked(engine) == []
    clock.advance(29.9)
    assert asked(engine) == []
    clock.advance(0.1)
    checker.answer = "commit"
    loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
    assert [answer for _, answer in loop.once()] == ["commit"]


def test_an_exception_of_a_checker_is_no_answer(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        checker = NotingChecker(ZeroDivisionError("no database"))
        loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
        ((question, answer),) = loop.once()
        assert (question.tx_id, answer) == ("T", None)
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("fmq.feedback", logging.ERROR)
        assert "'p' failed on T" in record.getMessage()
        assert "no database" in caplog.text
        asks_again(engine, clock, checker)


@pytest.mark.parametrize("nonsense", [None, True, "", "COMMIT", "yes", 1, ["commit"], object()])
def test_a_wrong_kind_of_answer_is_no_answer(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, nonsense: Any
) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        checker = NotingChecker(nonsense)
        loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
        assert [answer for _, answer in loop.once()] == [None]
        assert f"answered {nonsense!r} about T" in caplog.text
        asks_again(engine, clock, checker)


def test_a_late_answer_of_a_checker_is_logged(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Another caller decided the opposite meanwhile, or the decision left the window."""
    with opened(CrashDisk(), clock, outcome_window_seconds=10.0) as engine:

        def check(question: Question) -> Any:
            engine.decide(question.tx_id, "rollback", decided_by="anna")
            clock.advance(20.0 if question.tx_id == "U" else 0.0)
            return "commit"

        loop = CheckLoop(engine.feedback, {"p": check}, wait=0.0, clock=clock)
        for tx_id, why in (("T", "by anna"), ("U", "window")):
            caplog.clear()
            prepared(engine, tx_id)
            assert [answer for _, answer in loop.once()] == [None]
            assert "comes too late" in caplog.text
            assert why in caplog.text
        assert bodies(engine, "orders") == []


def test_a_transaction_that_cannot_be_decided_delays_no_other(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its body cannot be read, so it cannot be committed. All others are."""
    disk = FaultDisk(CrashDisk())
    with opened(disk, clock, reference_bytes_min=1) as engine:
        prepared(engine, "T0")
        for _ in range(12):
            engine.send("fill", b"f" * 400)
        for number in range(1, 4):
            prepared(engine, f"T{number}")
        checker = NotingChecker()
        loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
        disk.fail("read", nth=0)
        assert [answer for _, answer in loop.once()] == [None, *["commit"] * 3]
        assert "T0" in caplog.text
        assert [tx.tx_id for tx in engine.undecided()] == ["T0"]
        clock.advance(30)
        assert [answer for _, answer in loop.once()] == ["commit"]


def test_a_loop_can_wait_for_longer_than_a_lease(clock: FakeClock) -> None:
    """The lease begins when the question is given, not when the call began."""
    with opened(CrashDisk(), clock, check_lease_seconds=2.0) as engine:
        prepared(engine, "T", check_after=4.0)
        loop = CheckLoop(engine.feedback, {"p": NotingChecker()}, wait=5.0, clock=clock)
        assert [answer for _, answer in loop.once()] == ["commit"]


def test_a_question_whose_lease_ended_in_the_batch_is_not_checked(clock: FakeClock) -> None:
    """It is asked again, so two checkers could work on it."""
    with opened(CrashDisk(), clock, check_lease_seconds=10.0) as engine:
        for number in range(4):
            prepared(engine, f"T{number}")

        def slow(question: Question) -> Any:
            clock.advance(6.0)
            return "commit"

        loop = CheckLoop(engine.feedback, {"p": slow}, wait=0.0, clock=clock)
        assert [answer for _, answer in loop.once()] == ["commit", "commit", None, None]
        assert [answer for _, answer in loop.once()] == ["commit", "commit"]


# --- its end ------------------------------------------------------------------------------------


def test_a_loop_ends_when_it_is_stopped() -> None:
    """It ends between two questions or two calls. A second stop changes nothing."""
    clock = WatchedClock()
    with opened(CrashDisk(), clock) as engine:
        checker = NotingChecker()
        loop = CheckLoop(engine.feedback, {"p": checker}, pause=1000.0, clock=clock)
        prepared(engine, "T")
        thread = threading.Thread(target=loop.run)
        thread.start()
        checker.count.wait_for(1)
        clock.until_a_thread_waits()  # it pauses
        loop.stop()
        loop.stop()
        in_thread(thread.join, "the loop")
        assert engine.outcome("T").state == "committed"


@pytest.mark.parametrize("fails", [False, True])
def test_a_loop_ends_with_the_engine(fails: bool) -> None:
    """It ends when the engine is closed or has failed. Then the next process asks."""
    clock, disk = WatchedClock(), FaultDisk(CrashDisk())
    engine = opened(disk, clock)
    loop = CheckLoop(engine.feedback, {"p": NotingChecker()}, wait=1000.0, clock=clock)
    thread = threading.Thread(target=loop.run)
    thread.start()
    clock.until_a_thread_waits()
    if fails:
        disk.fail("write")
        with pytest.raises(EngineFailed):
            engine.send("t", b"1")
    else:
        engine.close()
    in_thread(thread.join, "the loop")
    engine.close()


def test_a_loop_that_cannot_ask_pauses_before_it_tries_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unreachable:
        def ask(self, *_: Any, **__: Any) -> list[Question]:
            raise ConnectionError("no route to the host")

        def answer(self, *_: Any, **__: Any) -> None:
            raise AssertionError

    clock = WatchedClock()
    loop = CheckLoop(Unreachable(), {"p": NotingChecker()}, pause=0.0, clock=clock)
    thread = threading.Thread(target=loop.run)
    thread.start()
    clock.until_a_thread_waits()
    loop.stop()
    in_thread(thread.join, "the loop")
    assert "tried again" in caplog.text
