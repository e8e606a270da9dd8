"""The feedback service: producers ask which of their transactions are undecided, and decide them.

A call gets questions, each with a lease. Until the lease ends no other call gets the same one. If
no question is due, the call waits for the next one. In process a few threads ask for the
registered checkers. Over a network the same two calls serve producers elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from fmq.arguments.names import check_count, check_names, check_seconds, check_tx_id
from fmq.arguments.options import Options
from fmq.basics.results import Outcome
from fmq.errors import AlreadyDecided, BadOption, UnknownTransaction
from fmq.feedback.answers import ANSWERS, Answer, is_answer
from fmq.feedback.needs import Decider, Questions
from fmq.feedback.question import Question
from fmq.feedback.schedule import QuestionKey
from fmq.tx.commands.decisions import check_reason


class Feedback:
    """The questions and answers of one engine. Any thread may call it."""

    def __init__(
        self,
        questions: Questions[Any],
        decisions: Decider,
        options: Options,
        store: str,
        after: Callable[[], None],
    ) -> None:
        """`after` is called after each decision."""
        self._questions = questions
        self._decisions = decisions
        self._options = options
        self._store = store
        self._after = after

    @property
    def store(self) -> str:
        """Return the UUID of the store, which each Question names."""
        return self._store

    def ask(
        self,
        producer: str | Iterable[str],
        topics: str | Iterable[str] | None = None,
        *,
        limit: int = 32,
        wait: float = 5.0,
    ) -> list[Question]:
        """Return up to `limit` questions about what `producer` prepared, as soon as one is due.

        Return an empty list after `wait` seconds. It may also be empty sooner: then ask again.
        Several producers may be given, and "" is the one without a name. With `topics`, ask only
        about transactions with a message for one of these.
        """
        self._decisions.refuse_nested()
        limit, wait = check_count("limit", limit), check_seconds("wait", wait)
        return self._questions.take(_keys(producer, topics), limit, wait)

    def ask_about(self, tx_id: str) -> list[Question]:
        """Return the question about `tx_id`, and end the lease of any other call on it.

        Return an empty list if the transaction is decided.
        """
        self._decisions.refuse_nested()
        check_tx_id(tx_id)
        return self._questions.take_one(tx_id)

    def answer(self, question: Question, decision: Answer, *, reason: str = "") -> Outcome | None:
        """Decide the transaction of `question`. Return None if "unknown" leaves it undecided.

        If another caller decided it meanwhile, the same decision is a success, and the opposite
        raises AlreadyDecided. A decision names the transaction's number and seal, so it counts
        even after the lease has ended. "unknown" raises LeaseLost then, if the question was asked
        again.
        """
        self._decisions.refuse_nested()
        if not is_answer(decision):
            raise BadOption(
                f"answer {decision!r}: must be one of {', '.join(ANSWERS)}. Nothing was changed."
            )
        if not hasattr(question, "token"):
            raise TypeError(
                f"an answer takes a Question, as ask gives them, not {type(question).__name__}. "
                "Nothing was changed."
            )
        check_reason(reason)
        if question.store != self._store:
            raise UnknownTransaction(
                f"transaction {question.tx_id!r} is one of the store {question.store}, not of "
                f"{self._store}: nothing was changed. Answer where the question was asked."
            )
        if decision != "unknown":
            self._questions.count_decision(question)
            return self._decide(question, decision, reason)
        if self._questions.count_unknown(question) and self._options.on_undecided == "rollback":
            why = f"{self._options.check_answers_max} answers were unknown"
            with suppress(AlreadyDecided):  # another caller decided the transaction just now
                return self._decide(question, "rollback", why)
        return None

    def _decide(self, question: Question, decision: Answer, reason: str) -> Outcome:
        assert decision != "unknown"
        outcome = self._decisions.decide(
            question.tx_id, decision, reason=reason, decided_by="checker", seal=question.seal
        )
        self._after()
        return outcome

    def resume(self, tx_id: str) -> None:
        """Make the question about `tx_id` due now, even if it is parked.

        Raises UnknownTransaction if the transaction is decided.
        """
        self._decisions.refuse_nested()
        check_tx_id(tx_id)
        self._questions.make_due(tx_id)


def _keys(producer: str | Iterable[str], topics: str | Iterable[str] | None) -> list[QuestionKey]:
    producers = check_names("producer", producer, or_none=True)
    if topics is None:
        return [(each, None) for each in producers]
    names = check_names("topic", topics)
    return [(each, topic) for each in producers for topic in names]
