"""The calls that clients make by name: those that are not made often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fmq.message import Receipt
from fmq.server.host import Host
from fmq.tx.state import State

Call = Callable[..., object]


class Prepared(NamedTuple):
    """A prepared transaction of a client, for the decision of its own handle."""

    tx_id: str
    number: int


def _of_engine(name: str) -> Call:
    def call(host: Host, *args: Any, **named: Any) -> object:
        return getattr(host.engine, name)(*args, **named)

    return call


def _queues_of(host: Host, topic: str) -> int:
    """Return how many queues a topic has, or will have."""
    known = host.parts.ledger.topics.get(topic)
    return host.parts.writer.options.queues_of(topic) if known is None else len(known.queues)


def _commit_prepared(host: Host, tx_id: str, number: int, sync: bool | None) -> list[Receipt]:
    decisions = host.parts.manager.decisions
    return decisions.commit_prepared(Prepared(tx_id, number), sync)()


def _roll_back_prepared(host: Host, tx_id: str, number: int, sync: bool | None) -> None:
    host.parts.manager.decisions.roll_back_prepared(Prepared(tx_id, number), sync)


def _outcome_of(host: Host, tx_id: str, number: int) -> object:
    return host.parts.manager.decisions.outcome(tx_id, number)


def _check_unused(host: Host, tx_id: str) -> None:
    """Raise TxIdInUse if the id that a user has chosen is in use."""
    manager = host.parts.manager
    manager.in_use.release(manager.buffer_for(tx_id, None, None))


def _of_questions(name: str) -> Call:
    def call(host: Host, *args: Any) -> object:
        return getattr(host.parts.questions, name)(*args)

    return call


def _make_all_due(host: Host, producers: list[str]) -> list[object]:
    """Return a baseline of each transaction that is undecided."""
    found = host.parts.questions.make_all_due(producers)
    return [
        [each.tx_id, each.question.entry.tx, each.producer, each.parked, each.tries]
        for each in found
    ]


def _became(host: Host, asked: list[list[Any]]) -> list[str | None]:
    """Return the state of each transaction; None if no try has ended since its baseline."""
    found: list[str | None] = []
    for tx_id, tx, tries in asked:
        now = host.parts.questions.find_tries(tx)
        if now is not None:
            found.append(None if now == tries else State.UNDECIDED.name)
        else:
            outcome = host.parts.manager.decisions.outcome(tx_id, tx)
            found.append(STATES[outcome.state].name)
    return found


STATES = {
    "committed": State.COMMITTED,
    "rolled back": State.ROLLED_BACK,
    "undecided": State.UNDECIDED,
}
CALLS: dict[str, Call] = {
    **{
        name: _of_engine(name)
        for name in (
            *("checkpoint", "decide", "groups", "mark", "outcome", "queues", "stats", "sync"),
            "undecided",
        )
    },
    **{
        name: _of_questions(name)
        for name in (
            *("count_decision", "count_unknown", "end_try", "finish_decisions", "has_bound"),
            *("make_due", "take_one"),
        )
    },
    "became": _became,
    "check_unused": _check_unused,
    "commit_prepared": _commit_prepared,
    "make_all_due": _make_all_due,
    "outcome_of": _outcome_of,
    "queues_of": _queues_of,
    "roll_back_prepared": _roll_back_prepared,
}
