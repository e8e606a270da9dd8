"""Checkers of this process: registered for a producer and asked by threads of the engine."""

from __future__ import annotations

import threading

import pytest

import fmq
from fmq import Answer, Question
from fmq.errors import BadName, BadOption, Closed
from fmq.testing import CrashDisk, FakeClock
from tests.feedback.asking import (
    Call,
    Counter,
    Gate,
    NotingChecker,
    asked,
    prepared,
    with_threads,
)
from tests.interrupts import in_thread
from tests.small import bodies, opened


def threads_of_checkers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("fmq checker")}


# --- registering ----------------------------------------------------------------------------------


def test_a_registered_checker_is_asked_about_its_producer() -> None:
    """It is asked about what a crash left and what was prepared since, of its producer alone."""
    disk = CrashDisk()
    with opened(disk) as engine:
        prepared(engine, "before")
    decided = Counter()
    with with_threads(disk) as engine:

        @engine.checker("p")
        def check(question: Question) -> Answer:
            decided.add(1)
            return "commit" if question.tx_id == "before" else "rollback"

        decided.wait_for(1)
        prepared(engine, "since")
        prepared(engine, "other", "q")
        decided.wait_for(1)
        engine.settle(timeout=5.0)
        assert engine.outcome("before").state == "committed"
        assert engine.outcome("before").decided_by == "checker"
        assert engine.outcome("since").state == "rolled back"
        assert [tx.tx_id for tx in engine.undecided()] == ["other"]
        assert check.__name__ == "check", "the decorator hands back what it was given"


def test_checkers_of_several_producers_serve_side_by_side() -> None:
    with with_threads() as engine:
        checkers = {name: NotingChecker() for name in ("p", "q", "")}
        for name, checker in checkers.items():
            engine.checker(name)(checker)
        for name in checkers:
            prepared(engine, f"T{name}", name or None)
        for name, checker in checkers.items():
            checker.count.wait_for(1)
            assert [question.producer for question in checker.questions] == [name]


def test_two_checkers_for_one_producer_are_refused() -> None:
    """Two could contradict each other. The first one stays."""
    with with_threads() as engine:
        first = NotingChecker()
        engine.checker("p")(first)
        with pytest.raises(BadOption, match="'p' has a checker"):
            engine.checker("p")(NotingChecker("rollback"))
        prepared(engine, "T")
        first.count.wait_for(1)
        assert engine.settle(timeout=5.0).committed in (("T",), ())
        assert engine.outcome("T").state == "committed"


def test_a_bad_name_of_a_producer_is_refused() -> None:
    with opened(CrashDisk()) as engine, pytest.raises(BadName):
        engine.checker("p\n")(NotingChecker())


def test_without_threads_only_settle_asks(clock: FakeClock) -> None:
    without = fmq.Options(checker_threads=0)
    for options, background in ((fmq.Options(), False), (without, True)):
        disk = CrashDisk()
        with fmq.open("data", options, disk=disk, clock=clock, background=background) as engine:
            before = threads_of_checkers()
            checker = NotingChecker()
            engine.checker("p")(checker)
            prepared(engine, "T")
            assert threads_of_checkers() == before
            assert checker.questions == []
            assert engine.settle().committed == ("T",)


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(1), KeyboardInterrupt()])
def test_no_exception_of_a_checker_ends_the_threads(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with with_threads(check_lease_seconds=0.01) as engine:
        checker = NotingChecker(error)
        engine.checker("p")(checker)
        prepared(engine, "T")
        checker.count.wait_for(4)
        checker.answer = "commit"
        others = NotingChecker()
        prepared(engine, "U", "q")
        engine.checker("q")(others)
        others.count.wait_for(1)
    assert "failed on T" in caplog.text


# --- threads --------------------------------------------------------------------------------------


def test_the_threads_end_with_the_engine() -> None:
    before = threads_of_checkers()
    engine = with_threads(checker_threads=3)
    assert threads_of_checkers() == before, "there are threads without a checker"
    for name in ("p", "q", "r"):
        engine.checker(name)(NotingChecker())
    assert len(threads_of_checkers() - before) >= 3
    engine.close()
    assert threads_of_checkers() == before
    with pytest.raises(Closed):
        engine.checker("s")


def test_many_checkers_are_all_asked_and_leave_no_thread() -> None:
    before = threads_of_checkers()
    with with_threads() as engine:
        checkers = [NotingChecker() for _ in range(20)]
        for number, checker in enumerate(checkers):
            engine.checker(f"p{number}")(checker)
        for number, checker in enumerate(checkers):
            prepared(engine, f"T{number}", f"p{number}")
            checker.count.wait_for(1)
    assert threads_of_checkers() == before


def test_close_waits_for_a_running_checker_and_takes_no_answer() -> None:
    """Its transaction stays undecided, and the next process asks again."""
    disk, gate = CrashDisk(), Gate()
    engine = with_threads(disk)

    @engine.checker("p")
    def check(question: Question) -> Answer:
        gate.pass_through()
        return "commit"

    prepared(engine, "T")
    gate.wait_for_one()
    closer = threading.Thread(target=engine.close)
    closer.start()
    gate.let_one_pass()
    in_thread(closer.join, "close")
    with opened(disk) as again:
        (undecided,) = again.undecided()
        assert undecided.tx_id == "T"
        assert asked(again) == ["T"]


def test_a_checker_may_close_the_engine() -> None:
    closed = Counter()
    engine = with_threads()

    @engine.checker("p")
    def check(question: Question) -> Answer:
        engine.close()
        closed.add(1)
        return "commit"

    prepared(engine, "T")
    closed.wait_for(1)
    with pytest.raises(Closed):
        engine.send("t", b"1")


def test_a_checker_that_hangs_delays_no_other_call() -> None:
    gate, other = Gate(), NotingChecker()
    with with_threads() as engine:
        consumer = engine.consumer("orders", group="g")

        @engine.checker("p")
        def hangs(question: Question) -> Answer:
            gate.pass_through()
            return "commit"

        engine.checker("q")(other)
        prepared(engine, "T")
        gate.wait_for_one()

        def work() -> None:
            engine.send("orders", b"1")
            with engine.transaction() as tx:
                tx.send("orders", b"2")
            prepared(engine, "by hand", check_after=None).commit()
            assert bodies(engine, "orders") == [b"1", b"2", b"orders of by hand"]
            assert len(consumer.poll()) == 3
            engine.checkpoint()
            prepared(engine, "U", "q")
            other.count.wait_for(1)

        in_thread(work, "a call that needs no checker")
        gate.let_one_pass()
        assert engine.settle(timeout=5.0).unasked == ()
        assert engine.outcome("T").state == "committed"


def test_a_slow_checker_decides_although_two_threads_share_the_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each thread takes the question from the other before it answers.

    The answer counts, and the log says how slow the checker is.
    """
    clock, gate = FakeClock(), Gate()
    with with_threads(clock=clock, checker_threads=2, check_lease_seconds=9.0) as engine:

        @engine.checker("p")
        def check(question: Question) -> Answer:
            gate.pass_through()
            return "commit"

        prepared(engine, "T")
        gate.wait_for_one()
        clock.advance(10)
        engine.feedback.resume("T")
        gate.wait_for_one()  # the other thread has the question now
        clock.advance(10)
        assert asked(engine) == ["T"]  # and now neither has
        call = Call(lambda: engine.read("orders", timeout=1.0))
        gate.let_one_pass()
        gate.let_one_pass()
        assert len(call.ended()) == 1
        assert engine.outcome("T").state == "committed"
    assert "longer than its lease of 9 s" in caplog.text
    assert "'p'" in caplog.text
