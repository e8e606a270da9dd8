"""Checkers of this process: registered by producer, asked by threads, never trusted to be well."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import fmq
from fmq import Answer, CheckLoop, Engine, Question
from fmq.errors import BadName, BadOption, Closed
from fmq.testing import CrashDisk, FakeClock
from tests.feedback.asking import Counter, Gate, WatchedClock, asked, prepared, with_threads
from tests.interrupts import in_thread
from tests.small import bodies, opened


def threads_of_checkers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("fmq checker")}


class Checked:
    """A checker that notes what it was asked and says what it is told to."""

    def __init__(self, answer: Any = "commit") -> None:
        self.answer = answer
        self.questions: list[Question] = []
        self.count = Counter()

    def __call__(self, question: Question) -> Any:
        self.questions.append(question)
        self.count.add(1)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


# --- registering ----------------------------------------------------------------------------------


def test_a_registered_checker_is_asked_about_its_producer() -> None:
    """Of what a crash left, of what was prepared since, and of nobody else's."""
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
        checkers = {name: Checked() for name in ("p", "q", "")}
        for name, checker in checkers.items():
            engine.checker(name)(checker)
        for name in checkers:
            prepared(engine, f"T{name}", name or None)
        for name, checker in checkers.items():
            checker.count.wait_for(1)
            assert [question.producer for question in checker.questions] == [name]


def test_two_checkers_for_one_producer_are_refused() -> None:
    """Two could contradict each other; the first one stays."""
    with with_threads() as engine:
        first = Checked()
        engine.checker("p")(first)
        with pytest.raises(BadOption, match="'p' has a checker"):
            engine.checker("p")(Checked("rollback"))
        prepared(engine, "T")
        first.count.wait_for(1)
        assert engine.settle(timeout=5.0).committed in (("T",), ())
        assert engine.outcome("T").state == "committed"


def test_a_name_that_cannot_be_one_is_refused() -> None:
    with opened(CrashDisk()) as engine, pytest.raises(BadName):
        engine.checker("p\n")(Checked())


def test_without_threads_nobody_is_asked_but_by_settle(clock: FakeClock) -> None:
    without = fmq.Options(checker_threads=0)
    for options, background in ((fmq.Options(), False), (without, True)):
        disk = CrashDisk()
        with fmq.open("data", options, disk=disk, clock=clock, background=background) as engine:
            before = threads_of_checkers()
            checker = Checked()
            engine.checker("p")(checker)
            prepared(engine, "T")
            assert threads_of_checkers() == before
            assert checker.questions == []
            assert engine.settle().committed == ("T",)


# --- checkers that are not well -------------------------------------------------------------------


def asks_again(engine: Engine, clock: FakeClock, checker: Checked) -> None:
    """Nothing was decided or counted, and the question comes again when the lease ends."""
    assert engine.undecided()[0].answers == 0
    assert asked(engine) == []
    clock.advance(29.9)
    assert asked(engine) == []
    clock.advance(0.1)
    checker.answer = "commit"
    loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
    assert [answer for _, answer in loop.once()] == ["commit"]


def test_a_checker_that_raises_has_not_answered(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        checker = Checked(ZeroDivisionError("no database"))
        loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
        ((question, answer),) = loop.once()
        assert (question.tx_id, answer) == ("T", None)
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("fmq.feedback", logging.ERROR)
        assert "'p' failed on T" in record.getMessage()
        assert "no database" in caplog.text
        asks_again(engine, clock, checker)


@pytest.mark.parametrize("nonsense", [None, True, "", "COMMIT", "yes", 1, ["commit"], object()])
def test_an_answer_that_is_none_has_not_answered(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, nonsense: Any
) -> None:
    with opened(CrashDisk(), clock) as engine:
        prepared(engine, "T")
        checker = Checked(nonsense)
        loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
        assert [answer for _, answer in loop.once()] == [None]
        assert f"answered {nonsense!r} about T" in caplog.text
        asks_again(engine, clock, checker)


def test_a_checker_that_comes_too_late_is_told_in_the_log(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody decided otherwise while it looked, or what was decided is behind the window."""
    with opened(CrashDisk(), clock, outcome_window_seconds=10.0) as engine:

        def check(question: Question) -> Any:
            engine.decide(question.tx_id, "rollback", decided_by="anna")
            clock.advance(20.0 if question.tx_id == "U" else 0.0)
            return "commit"

        loop = CheckLoop(engine.feedback, {"p": check}, wait=0.0, clock=clock)
        for tx_id, why in (("T", "by anna"), ("U", "window")):
            prepared(engine, tx_id)
            assert [answer for _, answer in loop.once()] == [None]
            assert "comes too late" in caplog.text
            assert why in caplog.text
        assert bodies(engine, "orders") == []


def test_one_that_cannot_be_decided_holds_back_none_that_were_asked_with_it(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its body cannot be read, so it cannot be committed: all others are."""
    disk = fmq.testing.FaultDisk(CrashDisk())
    with opened(disk, clock, reference_bytes_min=1) as engine:
        prepared(engine, "T0")
        for _ in range(12):
            engine.send("fill", b"f" * 400)
        for number in range(1, 4):
            prepared(engine, f"T{number}")
        checker = Checked()
        loop = CheckLoop(engine.feedback, {"p": checker}, wait=0.0, clock=clock)
        disk.fail("read", nth=0)
        assert [answer for _, answer in loop.once()] == [None, *["commit"] * 3]
        assert "T0" in caplog.text
        assert [tx.tx_id for tx in engine.undecided()] == ["T0"]
        clock.advance(30)
        assert [answer for _, answer in loop.once()] == ["commit"]


def test_a_loop_that_waits_for_longer_than_a_lease_answers_what_comes(clock: FakeClock) -> None:
    """The lease begins when the question is given, and not when it was asked for."""
    with opened(CrashDisk(), clock, check_lease_seconds=2.0) as engine:
        prepared(engine, "T", check_after=4.0)
        loop = CheckLoop(engine.feedback, {"p": Checked()}, wait=5.0, clock=clock)
        assert [answer for _, answer in loop.once()] == ["commit"]


def test_a_question_whose_lease_ended_in_the_batch_is_left_to_the_next(clock: FakeClock) -> None:
    """It comes again, and two checkers may be at it otherwise."""
    with opened(CrashDisk(), clock, check_lease_seconds=10.0) as engine:
        for number in range(4):
            prepared(engine, f"T{number}")

        def slow(question: Question) -> Any:
            clock.advance(6.0)
            return "commit"

        loop = CheckLoop(engine.feedback, {"p": slow}, wait=0.0, clock=clock)
        assert [answer for _, answer in loop.once()] == ["commit", "commit", None, None]
        assert [answer for _, answer in loop.once()] == ["commit", "commit"]


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(1), KeyboardInterrupt()])
def test_no_exception_of_a_checker_ends_the_threads(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with with_threads(check_lease_seconds=0.01) as engine:
        checker = Checked(error)
        engine.checker("p")(checker)
        prepared(engine, "T")
        checker.count.wait_for(4)
        checker.answer = "commit"
        others = Checked()
        prepared(engine, "U", "q")
        engine.checker("q")(others)
        others.count.wait_for(1)
    assert "failed on T" in caplog.text


# --- threads --------------------------------------------------------------------------------------


def test_the_threads_end_with_the_engine() -> None:
    before = threads_of_checkers()
    engine = with_threads(checker_threads=3)
    assert threads_of_checkers() == before, "nobody has registered anything"
    for name in ("p", "q", "r"):
        engine.checker(name)(Checked())
    assert len(threads_of_checkers() - before) >= 3
    engine.close()
    assert threads_of_checkers() == before
    with pytest.raises(Closed):
        engine.checker("s")


def test_of_many_registered_one_by_one_all_are_served_and_no_thread_is_left() -> None:
    before = threads_of_checkers()
    with with_threads() as engine:
        checkers = [Checked() for _ in range(20)]
        for number, checker in enumerate(checkers):
            engine.checker(f"p{number}")(checker)
        for number, checker in enumerate(checkers):
            prepared(engine, f"T{number}", f"p{number}")
            checker.count.wait_for(1)
    assert threads_of_checkers() == before


def test_close_waits_for_a_checker_that_runs_and_takes_no_answer_from_it() -> None:
    """What it was asked about stays undecided: the next process asks again."""
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


def test_a_checker_that_hangs_holds_back_neither_senders_nor_readers_nor_others() -> None:
    gate, other = Gate(), Checked()
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

        in_thread(work, "somebody who has nothing to do with it")
        gate.let_one_pass()
        assert engine.settle(timeout=5.0).unasked == ()
        assert engine.outcome("T").state == "committed"


def test_a_loop_of_ones_own_ends_when_it_is_stopped() -> None:
    """Between two questions, and between two calls; twice is once."""
    clock = WatchedClock()
    with opened(CrashDisk(), clock) as engine:
        checker = Checked()
        loop = CheckLoop(engine.feedback, {"p": checker}, pause=1000.0, clock=clock)
        prepared(engine, "T")
        thread = threading.Thread(target=loop.run)
        thread.start()
        checker.count.wait_for(1)
        clock.until_somebody_waits()  # it pauses
        loop.stop()
        loop.stop()
        in_thread(thread.join, "the loop")
        assert engine.outcome("T").state == "committed"


def test_a_loop_ends_when_the_engine_closes() -> None:
    clock = WatchedClock()
    engine = opened(CrashDisk(), clock)
    loop = CheckLoop(engine.feedback, {"p": Checked()}, wait=1000.0, clock=clock)
    thread = threading.Thread(target=loop.run)
    thread.start()
    clock.until_somebody_waits()
    engine.close()
    in_thread(thread.join, "the loop")
