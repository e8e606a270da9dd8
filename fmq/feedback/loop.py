"""The loop that a producer runs: ask for questions, and answer them with checkers.

It needs only two calls, `ask` and `answer`, so it works in process and over a network alike.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from fmq.arguments.names import check_count, check_names, check_seconds
from fmq.basics.clock import Clock, SystemClock
from fmq.basics.results import Outcome
from fmq.errors import (
    AlreadyDecided,
    EngineFailed,
    LeaseLost,
    UnknownTransaction,
    UsageError,
)
from fmq.feedback.answers import ANSWERS, Answer, check_callable, is_answer
from fmq.feedback.question import Question

TROUBLE_SECONDS = 1.0  # seconds to pause after a failed call
LOG = logging.getLogger("fmq.feedback")


class QuestionSource(Protocol):
    """Gives questions and takes answers, as `engine.feedback` does."""

    def ask(
        self,
        producer: str | Iterable[str],
        topics: Iterable[str] | None = None,
        *,
        limit: int = 32,
        wait: float = 5.0,
    ) -> list[Question]: ...

    def answer(
        self, question: Question, decision: Answer, *, reason: str = ""
    ) -> Outcome | None: ...


class CheckLoop:
    """Asks for the questions to one or more producers, and answers them with their checkers.

    One call waits for a question for `wait` seconds. Between two calls the loop pauses for `pause`
    seconds.
    """

    def __init__(
        self,
        feedback: QuestionSource,
        checkers: Mapping[str, Callable[[Question], Answer]],
        *,
        topics: str | Iterable[str] | None = None,
        limit: int = 32,
        wait: float = 5.0,
        pause: float = 0.1,
        clock: Clock | None = None,
        gave_up: Callable[[Question], None] | None = None,
    ) -> None:
        """`gave_up` is called with each question that got no answer, for any reason."""
        if not all(callable(getattr(feedback, call, None)) for call in ("ask", "answer")):
            raise TypeError(
                f"feedback={feedback!r}: must be an object with ask() and answer(), not "
                f"{type(feedback).__name__}. Give it engine.feedback. Nothing was begun."
            )
        if not isinstance(checkers, Mapping):
            raise TypeError(
                f"checkers={checkers!r}: must be a mapping of producers to checkers, as "
                f'in {{"shop": check}}, not {type(checkers).__name__}. Nothing was begun.'
            )
        for checker in checkers.values():
            check_callable("checker", checker)
        self._feedback = feedback
        self._checkers = checkers
        self._topics = None if topics is None else check_names("topic", topics)
        self._limit = check_count("limit", limit)
        self._wait = check_seconds("wait", wait)
        self._pause = check_seconds("pause", pause)
        self._clock = clock or SystemClock()
        self._gave_up = gave_up
        self._stopped = False
        self._stopping = threading.Lock()
        self._stopping.acquire()

    def run(self) -> None:
        """Ask and answer until `stop` is called, or the engine closes or fails."""
        while not self._stopped:
            pause = self._pause
            try:
                self.once()
            except (UsageError, EngineFailed):
                return  # the engine is closed, or this is a forked child
            except Exception:
                LOG.exception("asking about undecided transactions failed; it is tried again")
                pause = max(pause, TROUBLE_SECONDS)
            if pause:
                self._clock.wait(self._stopping, pause)

    def stop(self) -> None:
        """Make `run` return once its current questions are answered. Any thread may call it."""
        self._stopped = True
        with suppress(RuntimeError):  # another call has released the lock
            self._stopping.release()

    def __enter__(self) -> CheckLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def once(self, *, wait: float | None = None) -> list[tuple[Question, Answer | None]]:
        """Ask once and answer each question. Return each with its answer, or None if it failed."""
        questions = self._feedback.ask(
            list(self._checkers),
            self._topics,
            limit=self._limit,
            wait=self._wait if wait is None else wait,
        )
        asked = self._clock.monotonic()
        answered: list[tuple[Question, Answer | None]] = []
        for question in questions:
            # After the lease has ended, another loop may have asked the question, too.
            late = self._clock.monotonic() - asked >= question.lease_seconds
            answer = None if late else self._answer(question)
            if answer is None and self._gave_up is not None:
                self._gave_up(question)
            answered.append((question, answer))
        return answered

    def _answer(self, question: Question) -> Answer | None:
        """Answer one question. Return None if its checker failed: then the question is asked
        again.
        """
        began = self._clock.monotonic()
        decision = self._decision_on(question)
        seconds = self._clock.monotonic() - began
        if seconds > question.lease_seconds:
            LOG.warning(
                "the checker of %r took %.1f s to answer about %s, longer than its lease of %g s "
                "(check_lease_seconds), so the same question may have been asked again meanwhile",
                question.producer, seconds, question.tx_id, question.lease_seconds,
            )  # fmt: skip
        if decision is None:
            return None
        try:
            self._feedback.answer(question, decision)
        except LeaseLost:
            return None
        except (AlreadyDecided, UnknownTransaction) as error:
            LOG.warning("the checker of %r comes too late: %s", question.producer, error)
            return None
        except (UsageError, EngineFailed):
            raise
        except Exception:
            # Go on with the other questions that were taken with this one.
            LOG.exception("%s: %r could not be written", question.tx_id, decision)
            return None
        return decision

    def _decision_on(self, question: Question) -> Answer | None:
        """Return the checker's answer, or None if it raised or returned something else."""
        try:
            decision = self._checkers[question.producer](question)
        except BaseException as error:
            is_main = threading.current_thread() is threading.main_thread()
            if is_main and not isinstance(error, Exception):
                raise  # an interrupt or an exit of the program must not be handled here
            LOG.exception("the checker of %r failed on %s", question.producer, question.tx_id)
            return None
        if not is_answer(decision):
            LOG.error(
                "the checker of %r answered %r about %s; it may say one of %s",
                question.producer, decision, question.tx_id, ", ".join(ANSWERS),
            )  # fmt: skip
            return None
        return decision
