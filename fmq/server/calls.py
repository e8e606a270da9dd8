"""The calls that clients make by name: those that are not made often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fmq.message import Receipt
from fmq.server.host import Host

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


CALLS: dict[str, Call] = {
    **{
        name: _of_engine(name)
        for name in (
            *("checkpoint", "decide", "groups", "mark", "outcome", "queues", "stats", "sync"),
            "undecided",
        )
    },
    "check_unused": _check_unused,
    "commit_prepared": _commit_prepared,
    "outcome_of": _outcome_of,
    "queues_of": _queues_of,
    "roll_back_prepared": _roll_back_prepared,
}
