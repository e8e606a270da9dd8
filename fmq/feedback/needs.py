"""The interfaces that the feedback service needs: open questions and decisions, of this process or
of another.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Protocol, TypeVar

from fmq.basics.message import Decision
from fmq.basics.results import Outcome
from fmq.feedback.question import Question
from fmq.feedback.schedule import QuestionKey
from fmq.tx.ledger.state import State


class Watched(Protocol):
    """A transaction that was undecided at one moment."""

    @property
    def tx_id(self) -> str: ...

    @property
    def producer(self) -> str: ...

    @property
    def parked(self) -> bool: ...


B = TypeVar("B", bound=Watched)


class Questions(Protocol[B]):
    """The open questions of an engine."""

    def take(self, keys: list[QuestionKey], limit: int, wait: float) -> list[Question]:
        """Return up to `limit` questions under `keys`, as soon as one is due; none after `wait`
        seconds.
        """

    def take_one(self, tx_id: str) -> list[Question]:
        """Return the question about `tx_id`, even if another call has leased it; None if it is
        decided.
        """

    def count_decision(self, asked: Question) -> None:
        """Count an answer that decides the transaction."""

    def count_unknown(self, asked: Question) -> bool:
        """Count an answer "unknown". Return True if the options allow no further one."""

    def end_try(self, asked: Question) -> None:
        """End a try whose checker failed: the question is asked again."""

    def make_due(self, tx_id: str) -> None:
        """Make the question about `tx_id` due now."""

    def has_bound(self, producer: str) -> bool:
        """Return whether an undecided transaction of `producer` is bound to a database."""

    def release_waiting(self) -> None:
        """Make every waiting call of this process return."""

    def make_all_due(self, producers: Container[str]) -> list[B]:
        """Make all questions to `producers` due, except leased and parked ones. Return a baseline
        of every question.
        """

    def has_ended(self, baseline: B) -> bool:
        """Return whether a try has ended since `baseline`."""

    def wait_for_end(self, baseline: B, keys: list[QuestionKey], seconds: float) -> None:
        """Wait until any question ends or one under `keys` is due, for at most `seconds`."""

    def finish_decisions(self) -> None:
        """Wait for decisions that are being written."""

    def became(self, baselines: Sequence[B]) -> list[State | None]:
        """Return the state of each transaction now; None if it is undecided and no try has ended
        since.
        """


class Decider(Protocol):
    """The part of the engine that writes decisions."""

    def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str = "",
        decided_by: str = "",
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back a transaction. If the same decision was made before, return its
        outcome.
        """

    def refuse_nested(self) -> None:
        """Raise Nested if a signal handler makes this call inside of another call."""
