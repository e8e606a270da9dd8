"""The calls that clients make by name: those that are not made often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fmq.message import Receipt
from fmq.server.host import Host
from fmq.tx.find import check_find
from fmq.tx.names import check_count, check_texts

Call = Callable[..., object]


class Prepared(NamedTuple):
    """A prepared transaction of a client, for the decision of its own handle."""

    tx_id: str
    number: int
    left_out: tuple[()] = ()


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


def _confirm_prepared(host: Host, tx_id: str, number: int) -> None:
    host.parts.manager.decisions.commit_prepared(Prepared(tx_id, number), posted=True)


def _roll_back_prepared(host: Host, tx_id: str, number: int, unused: None) -> None:
    host.parts.manager.decisions.roll_back_prepared(Prepared(tx_id, number))


def _members_of(host: Host, group: str) -> object:
    return host.parts.group_changes.members(group)


def _of_groups(name: str) -> Call:
    def call(host: Host, *args: Any) -> None:
        getattr(host.parts.group_changes, name)(*args)

    return call


def _outcome_of(host: Host, tx_id: str, number: int) -> object:
    return host.parts.manager.decisions.outcome(tx_id, number)


def _of_questions(name: str) -> Call:
    def call(host: Host, *args: Any) -> object:
        return getattr(host.parts.questions, name)(*args)

    return call


def _make_all_due(host: Host, producers: list[str]) -> list[object]:
    """Return a baseline of each transaction that is undecided."""
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


def _places_of(host: Host, topic: str, key: str, limit: int) -> list[list[int]]:
    """Return queue and offset of each message with a key, the newest first."""
    return [[*place] for place in host.parts.finder.places(*check_find(topic, key, limit))]


def _became(host: Host, asked: list[list[Any]]) -> list[str | None]:
    """Return the state of each transaction; None if no try has ended since its baseline."""
    found: list[str | None] = []
    for tx_id, tx, tries in asked:
        watched = host.watched.get(tx)
        if watched is None:  # the process that was asked before has ended
            now = host.engine.outcome(tx_id).state
            found.append(None if now == "undecided" else now.upper().replace(" ", "_"))
        else:
            (state,) = host.parts.questions.became([watched._replace(tries=tries)])
            found.append(None if state is None else state.name)
    return found


def _replay_dead(host: Host, group: str, numbers: list[int] | None) -> int:
    return host.parts.burying.replay(group, numbers, or_gone=True)


def _purge_dead(host: Host, group: str, numbers: list[int] | None, before_us: int | None) -> int:
    return host.parts.burying.purge(group, numbers, before_us, or_gone=True)


def _marks(host: Host, names: list[str], prefix: str | None) -> object:
    return host.engine.marks(*names, prefix=prefix)


def _unacked(host: Host, group: str, topic: str, limit: int) -> object:
    what = *check_texts(group, topic), check_count("limit", limit)
    return host.parts.messages.unacked(*what)


CALLS: dict[str, Call] = {
    **{
        name: _of_engine(name)
        for name in (
            *("checkpoint", "decide", "delayed", "groups", "mark", "offset_at", "outcome"),
            *("queues", "stats", "sync", "undecided"),
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
    "check_group": _of_groups("check_known"),
    "check_topic": _of_groups("check_topic"),
    "check_dead": lambda host, *args: host.parts.burying.check(*args),
    "count_dead": lambda host, group: host.parts.burying.count(group),
    "page_of_dead": lambda host, *args: host.parts.burying.page(*args),
    "purge_dead": _purge_dead,
    "replay_dead": _replay_dead,
    "replayed": lambda host, *args: host.parts.burying.replayed(*args),
    "marks": _marks,
    "members_of": _members_of,
    "give_way": lambda host: host.give_way(),
    "commit_prepared": _commit_prepared,
    "confirm_prepared": _confirm_prepared,
    "make_all_due": _make_all_due,
    "outcome_of": _outcome_of,
    "places_of": _places_of,
    "prepared": _prepared,
    "queues_of": _queues_of,
    "roll_back_prepared": _roll_back_prepared,
    "unacked": _unacked,
}

LOOKS = {"groups", "mark", "marks", "members_of", "queues", "queues_of", "replayed", "unacked"}
"""Calls that change nothing: they need what their own client has written, and nothing else."""
