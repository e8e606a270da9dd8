"""settle beside the threads of checkers: they share the questions, and none hangs."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Answer, Engine, Question, Settled
from tests.feedback.asking import Call, Counter, Gate, prepared, with_threads
from tests.interrupts import in_thread


def settled(engine: Engine, **more: Any) -> Settled:
    result: Settled = in_thread(lambda: engine.settle(**more), "settle")
    return result


@pytest.mark.parametrize("checker_threads", [1, 4])
def test_checker_threads_and_settle_share_the_questions(checker_threads: int) -> None:
    """Each question is asked once, and settle ends after the last answer."""
    with with_threads(checker_threads=checker_threads, segment_bytes=1 << 20) as engine:
        for number in range(200):
            prepared(engine, f"T{number}", check_after=1000.0)
        seen: list[str] = []

        @engine.checker("p")
        def check(question: Question) -> Answer:
            seen.append(question.tx_id)
            return "commit"

        report = settled(engine)
        assert report.committed == tuple(f"T{number}" for number in range(200))
        assert sorted(seen) == sorted(report.committed)


def test_a_checker_that_raises_in_a_thread_does_not_make_settle_wait() -> None:
    """Settle waits neither for the lease nor until its timeout, in either order."""
    with with_threads() as engine:
        count = Counter()

        @engine.checker("p")
        def check(question: Question) -> Answer:
            count.add(1)
            raise ZeroDivisionError

        for number in range(30):
            prepared(engine, f"T{number}")
        count.wait_for(1)
        report = settled(engine, timeout=600.0)
        assert len(report.unknown) == 30
        assert settled(engine, timeout=600.0).unknown == report.unknown


def test_settle_waits_for_a_hanging_checker_until_its_timeout() -> None:
    gate = Gate()
    with with_threads(checker_threads=1) as engine:

        @engine.checker("p")
        def check(question: Question) -> Answer:
            if question.tx_id == "T":
                gate.pass_through()
            return "commit"

        prepared(engine, "T")
        gate.wait_for_one()
        prepared(engine, "U", check_after=1000.0)
        report = settled(engine, timeout=0.05)
        assert (report.committed, report.unasked) == (("U",), ("T",))
        gate.let_one_pass()
        settled(engine)
        assert engine.outcome("T").state == "committed"


def test_several_threads_can_settle_at_once() -> None:
    with with_threads(segment_bytes=1 << 20) as engine:
        engine.checker("p")(lambda _: "commit")
        for number in range(60):
            prepared(engine, f"T{number}", check_after=1000.0)
        reports = [Call(engine.settle) for _ in range(3)]
        for each in reports:
            assert each.ended().unasked == each.ended().unknown == ()
        assert engine.undecided() == []
