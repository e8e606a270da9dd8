"""The calls that clients make by their names: those that are rare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from fmq.basics.message import Receipt
from fmq.faces.table import CHANGES, LOOKS
from fmq.server.host import Host

Call = Callable[..., object]


class Prepared(NamedTuple):
    """A prepared transaction of a client, for a decision by its own handle."""

    tx_id: str
    number: int
    left_out: tuple[()] = ()


def _look(name: str, host: Host, *args: Any) -> object:
    return host.door.look(name, *args)


def _change(name: str, host: Host, *args: Any, **named: Any) -> object:
    return host.door.change(name, *args, **named)


def _queues_of(host: Host, topic: str) -> int:
    """Return how many queues a topic has; if it does not exist, how many it would get."""
    known = host.parts.ledger.topics.get(topic)
    return host.parts.writer.options.queues_of(topic) if known is None else len(known.queues)


def _commit_prepared(host: Host, tx_id: str, number: int, sync: bool | None) -> list[Receipt]:
    decisions = host.parts.manager.decisions
    return decisions.commit_prepared(Prepared(tx_id, number), sync)()


def _confirm_prepared(host: Host, tx_id: str, number: int) -> None:
    host.parts.manager.decisions.commit_prepared(Prepared(tx_id, number), posted=True)


def _roll_back_prepared(host: Host, tx_id: str, number: int, unused: None) -> None:
    host.parts.manager.decisions.roll_back_prepared(Prepared(tx_id, number))


def _of_questions(name: str) -> Call:
    def call(host: Host, *args: Any) -> object:
        return getattr(host.parts.questions, name)(*args)

    return call


def _make_all_due(host: Host, producers: list[str]) -> list[object]:
    """Make questions due, and return a baseline of each undecided transaction."""
    found = host.parts.questions.make_all_due(producers)
    host.watch(found)
    return [
        [each.tx_id, each.question.entry.tx, each.producer, each.parked, each.tries]
        for each in found
    ]


def _prepared(host: Host, tx_id: str, number: int) -> list[object]:
    """Return the messages of an undecided transaction, as lists of values."""
    found = host.parts.manager.decisions.prepared(tx_id, number)
    return [[[*each[:4], *each[6:]], [*(each.origin or ())]] for each in found]


def _became(host: Host, asked: list[list[Any]]) -> list[str | None]:
    """Return the state of each transaction; None if no try has ended since its baseline."""
    found: list[str | None] = []
    for tx_id, tx, tries in asked:
        watched = host.watched.get(tx)
        if watched is None:  # the engine process that was asked before has ended
            now = host.door.look("outcome", tx_id).state
            found.append(None if now == "undecided" else now.upper().replace(" ", "_"))
        else:
            (state,) = host.parts.questions.became([watched._replace(tries=tries)])
            found.append(None if state is None else state.name)
    return found


CALLS: dict[str, Call] = {
    **{name: partial(_look, name) for name in LOOKS},
    **{name: partial(_change, name) for name in CHANGES if name != "recall"},
    **{
        name: _of_questions(name)
        for name in (
            *("count_decision", "count_unknown", "end_try", "finish_decisions", "has_bound"),
            *("make_due", "take_one"),
        )
    },
    "became": _became,
    "check_dead": lambda host, *args: host.parts.burying.check(*args),
    "commit_prepared": _commit_prepared,
    "confirm_prepared": _confirm_prepared,
    "give_way": lambda host: host.give_way(),
    "make_all_due": _make_all_due,
    "outcome_of": partial(_look, "outcome"),
    "prepared": _prepared,
    "queues_of": _queues_of,
    "roll_back_prepared": _roll_back_prepared,
    "stats": lambda host: host.door.stats(),
}
"""The calls of the faces, and those that a client makes to carry out its own."""
