"""Helpers of the tests of feedback: undecided transactions, and calls and threads that ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import fmq
from fmq import Engine, Question
from fmq.basics.clock import Waitable
from fmq.testing import CrashDisk, FakeClock
from tests.interrupts import PATIENCE_SECONDS


def prepared(
    engine: Engine,
    tx_id: str,
    producer: str | None = "p",
    topics: Iterable[str] = ("orders",),
    check_after: float | None = 0.0,
) -> fmq.Transaction:
    """Prepare a transaction that waits for its decision. By default its question is due at once."""
    tx = engine.transaction(tx_id=tx_id, producer=producer, check_after=check_after)
    for topic in topics:
        tx.send(topic, f"{topic} of {tx_id}".encode())
    tx.prepare()
    return tx


def ask(engine: Engine, producer: Any = "p", topics: Any = None, **more: Any) -> list[Question]:
    """Return the questions that are due now."""
    return engine.feedback.ask(producer, topics, **{"wait": 0.0, **more})


def ids(questions: Iterable[Question]) -> list[str]:
    return [question.tx_id for question in questions]


def asked(engine: Engine, producer: Any = "p", topics: Any = None, **more: Any) -> list[str]:
    """Ask, and return the ids of the transactions in the questions."""
    return ids(ask(engine, producer, topics, **more))


def asked_one(engine: Engine, producer: Any = "p", **more: Any) -> Question:
    (question,) = ask(engine, producer, **more)
    return question


# Only a call that says so syncs, once the clock stands still.
LAZY: dict[str, Any] = {
    "sync": "interval",
    "sync_interval_seconds": 10_000.0,
    "checkpoint_idle_seconds": 10_000.0,
}


def with_threads(disk: CrashDisk | None = None, clock: Any = None, **options: Any) -> Engine:
    """Return an engine whose own threads ask the checkers."""
    chosen = fmq.Options(**{"segment_bytes": 65536, **options})
    return fmq.open("data", chosen, disk=disk or CrashDisk(), clock=clock)


class Call:
    """A call that runs in a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._answer: tuple[Any, BaseException | None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._work(), None
        except BaseException as error:
            self._answer = None, error

    def ended(self) -> Any:
        """Return what the call returned, or raise what it raised.

        A call that hangs fails the test.
        """
        self._thread.join(PATIENCE_SECONDS)
        assert self._answer is not None, "a call without an answer"
        result, error = self._answer
        if error is not None:
            raise error
        return result


class Counter:
    """A count that threads add to and a test waits for."""

    def __init__(self) -> None:
        self._counted = threading.Semaphore(0)

    def add(self, count: int) -> None:
        for _ in range(count):
            self._counted.release()

    def wait_for(self, count: int) -> None:
        for number in range(count):
            assert self._counted.acquire(timeout=PATIENCE_SECONDS), f"{number} of {count}"


class Gate:
    """A point at which a checker waits until the test lets it pass."""

    def __init__(self) -> None:
        self._reached = threading.Semaphore(0)
        self._open = threading.Semaphore(0)

    def pass_through(self) -> None:
        self._reached.release()
        assert self._open.acquire(timeout=PATIENCE_SECONDS), "the gate stays shut"

    def wait_for_one(self) -> None:
        """Wait until a checker has reached the gate."""
        assert self._reached.acquire(timeout=PATIENCE_SECONDS), "no checker has reached the gate"

    def let_one_pass(self) -> None:
        self._open.release()


class WatchedClock(FakeClock):
    """A FakeClock that reports when a thread other than that of the test begins to wait.

    By then it is fixed until when the thread waits, so the test may advance the clock at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begun = threading.Semaphore(0)
        self.waits = 0
        self.waiting: set[int] = set()  # threads

    def _wait_for_others(self, lock: Waitable, deadline: float) -> bool:
        self.waits += 1
        self.waiting.add(threading.get_ident())
        self._begun.release()
        try:
            return super()._wait_for_others(lock, deadline)
        finally:
            self.waiting.discard(threading.get_ident())

    def until_a_thread_waits(self) -> None:
        assert self._begun.acquire(timeout=PATIENCE_SECONDS), "no thread waits"


class NotingChecker:
    """A checker that notes its questions and gives the answer that it was made with."""

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
