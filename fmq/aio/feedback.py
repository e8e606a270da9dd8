"""The feedback service, with calls that are awaited. Threads carry them out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fmq.basics.results import Outcome
from fmq.feedback import service as blocking_service
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question


class AsyncFeedback:
    """The feedback service of one engine: it hands out questions and takes answers."""

    def __init__(self, side: Any, feedback: blocking_service.Feedback) -> None:
        self._threads = side.threads
        self._feedback = feedback

    @property
    def store(self) -> str:
        """The id of the directory, which each Question names."""
        return self._feedback.store

    async def ask(
        self,
        producer: str | Iterable[str],
        topics: str | Iterable[str] | None = None,
        *,
        limit: int = 32,
        wait: float = 5.0,
    ) -> list[Question]:
        """Return up to `limit` questions about transactions that `producer` has prepared, as soon
        as one is due.

        If the call is cancelled, its questions are due again when their lease has ended.
        """
        found: list[Question] = await self._threads.long(
            self._feedback.ask, producer, topics, limit=limit, wait=wait
        )
        return found

    async def ask_about(self, tx_id: str) -> list[Question]:
        """Return the question about one transaction, and take it from any caller that has it."""
        found: list[Question] = await self._threads.run(self._feedback.ask_about, tx_id)
        return found

    async def answer(
        self, question: Question, decision: Answer, *, reason: str = ""
    ) -> Outcome | None:
        """Answer a question. Return the outcome if the answer decides its transaction."""
        found: Outcome | None = await self._threads.run(
            self._feedback.answer, question, decision, reason=reason
        )
        return found

    async def resume(self, tx_id: str) -> None:
        """Make the question about `tx_id` due now, even if it is parked."""
        await self._threads.run(self._feedback.resume, tx_id)
