"""The open questions of an engine process, for the feedback service of a client."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fmq.basics.clock import Clock, sleep
from fmq.basics.message import Decision, Message, Origin
from fmq.basics.results import Outcome
from fmq.feedback.question import Question
from fmq.feedback.schedule import QuestionKey
from fmq.remote.link import Link
from fmq.tx.ledger.state import State
from fmq.wire.frames import Op
from fmq.wire.values import decode_values, encode_values

LOOK_SECONDS = 0.05


class RemoteBaseline(NamedTuple):
    """An undecided transaction, and how often its question had been tried at that time."""

    tx_id: str
    tx: int
    producer: str
    parked: bool
    tries: int


class RemoteQuestions:
    """Implements Questions, by calls of an engine process."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    def take(self, keys: list[QuestionKey], limit: int, wait: float) -> list[Question]:
        """Return up to `limit` questions for `keys`, as soon as one is due."""
        said = encode_values([[*map(list, keys)], limit, wait])
        answer = self._link.ask(Op.ASK, said, patience=wait)
        found: list[Question] = decode_values(answer) if answer else []
        return [replace(each, _read=self.messages_of) for each in found]

    def take_one(self, tx_id: str) -> list[Question]:
        """Return a list with the question about one transaction, even if another caller has a lease
        on it. The list is empty if the transaction is decided.
        """
        found: list[Question] = self._link.call("take_one", tx_id)
        return [replace(each, _read=self.messages_of) for each in found]

    def messages_of(self, asked: Question) -> list[Message]:
        """Return the messages of the transaction that is asked about."""
        found = self._link.call("prepared", asked.tx_id, asked.tx)
        return [
            Message(body, key, tag, headers, None, Origin(*where), *extras)
            for (body, key, tag, headers, *extras), where in found
        ]

    def count_decision(self, asked: Question) -> None:
        """Note that an answer decides the transaction."""
        self._link.call("count_decision", asked)

    def count_unknown(self, asked: Question) -> bool:
        """Count an answer "unknown". Return True if the options allow no further one."""
        return bool(self._link.call("count_unknown", asked))

    def end_try(self, asked: Question) -> None:
        """End a try of the question whose checker has failed."""
        self._link.call("end_try", asked)

    def make_due(self, tx_id: str) -> None:
        """Make the question about one transaction due now."""
        self._link.call("make_due", tx_id)

    def has_bound(self, producer: str) -> bool:
        """Return whether an undecided transaction of `producer` is bound to a database."""
        return bool(self._link.call("has_bound", producer))

    def release_waiting(self) -> None:
        """Do nothing: a waiting call returns after a few seconds."""

    def make_all_due(self, producers: Container[str]) -> list[RemoteBaseline]:
        """Make the questions to `producers` due, except leased and parked ones. Return a baseline
        of every question.
        """
        names: Any = producers
        found: list[list[Any]] = self._link.call("make_all_due", [*names])
        return [RemoteBaseline(*each) for each in found]

    def has_ended(self, baseline: RemoteBaseline) -> bool:
        """Return whether a try has ended since `baseline`."""
        return self.became([baseline]) != [None]

    def wait_for_end(
        self, baseline: RemoteBaseline, keys: list[QuestionKey], seconds: float
    ) -> None:
        """Wait for a short time: another process is asking the question."""
        sleep(self._clock, min(seconds, LOOK_SECONDS))

    def finish_decisions(self) -> None:
        """Wait until planned decisions are durable."""
        self._link.call("finish_decisions")

    def became(self, baselines: Sequence[RemoteBaseline]) -> list[State | None]:
        """Return the state of each transaction now; None if it is undecided and no try has ended
        since its baseline.
        """
        asked = [[each.tx_id, each.tx, each.tries] for each in baselines]
        states: list[str | None] = self._link.call("became", asked)
        return [None if each is None else State[each] for each in states]


class RemoteDecisions:
    """Implements Decider, by calls of an engine process."""

    def __init__(self, link: Link) -> None:
        self._link = link

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
        named = {"reason": reason, "decided_by": decided_by, "seal": seal}
        found: Outcome = self._link.call("decide", tx_id, decision, **named)
        return found

    def refuse_nested(self) -> None:
        """Do nothing: a connection raises Nested itself if a call of this thread is using it."""
