"""The calls that clients make by their names, which are the rare calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fmq.errors import HomeRefused
from fmq.faces.table import IN_STEPS, LOOKS
from fmq.machine.disk import home_of
from fmq.server.host import Host
from fmq.server.long_polls import LongPolls
from fmq.steps.call_steps import Steps
from fmq.wire.frames import Frame
from fmq.wire.requests import CallAsked
from fmq.wire.values import encode_values

NamedCall = Callable[..., object]


def _look(name: str, host: Host, *args: Any) -> object:
    return host.door.look(name, *args)


def _queues_of(host: Host, topic: str) -> int:
    """Return how many queues a topic has; if it does not exist, how many it would get."""
    known = host.parts.ledger.topics.get(topic)
    return host.parts.writer.options.queues_of(topic) if known is None else len(known.queues)


def _of_questions(name: str) -> NamedCall:
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


def _commit_prepared(host: Host, tx_id: str, number: int, sync: bool | None = None) -> Steps[bytes]:
    decisions = host.parts.manager.decisions
    receipts = yield from decisions.committing_prepared(tx_id, number, sync)
    return encode_values(receipts())


def _confirm_prepared(host: Host, tx_id: str, number: int) -> Steps[bytes]:
    yield from host.parts.manager.decisions.committing_prepared(tx_id, number, posted=True)
    return encode_values(None)


def _in_steps(name: str, host: Host, *args: Any, **named: Any) -> Steps[bytes]:
    return encode_values((yield from IN_STEPS[name](host.parts)(*args, **named)))


def _roll_back_prepared(host: Host, tx_id: str, number: int, unused: None = None) -> Steps[bytes]:
    yield from host.parts.manager.decisions.rolling_back(tx_id, number)
    return encode_values(None)


def _beat(host: Host, every: float, during: float) -> None:
    """Give a standby signs of life through the home."""
    if home_of(host.parts.directory) is None:
        raise HomeRefused(f"{host.door.path}: has no home, so nobody can stand by for it.")
    host.beats.ask(every, during)


WRITING: dict[str, Callable[..., Steps[bytes]]] = {
    **{name: partial(_in_steps, name) for name in IN_STEPS},
    "commit_prepared": _commit_prepared,
    "confirm_prepared": _confirm_prepared,
    "roll_back_prepared": _roll_back_prepared,
}
"""The calls that write. What they write is ordered, and shares a sync."""
DECISIONS = {"commit_prepared", "confirm_prepared", "decide", "roll_back_prepared"}

CALLS: dict[str, NamedCall] = {
    **WRITING,
    **{name: partial(_look, name) for name in LOOKS},
    **{
        name: _of_questions(name)
        for name in (
            *("count_decision", "count_unknown", "end_try", "finish_decisions", "has_bound"),
            *("make_due", "take_one"),
        )
    },
    "beat": _beat,
    "became": _became,
    "check_dead": lambda host, *args: host.parts.burying.check(*args),
    "give_way": lambda host: host.give_way(),
    "make_all_due": _make_all_due,
    "outcome_of": partial(_look, "outcome"),
    "prepared": _prepared,
    "queues_of": _queues_of,
    "stats": lambda host: host.door.stats(),
    "stop": lambda host, seconds: host.stop(seconds),
}
"""The calls of the faces, and those that a client makes to carry out its own."""


class NamedCalls:
    """The calls of one client."""

    def __init__(self, host: Host, client: bytes, polls: LongPolls) -> None:
        self._host = host
        self._client = client
        self._polls = polls

    def serve(self, asked: Frame, said: CallAsked) -> bytes | Steps[bytes]:
        """Make a call by name."""
        name, args, named = said
        host = self._host
        if name not in DECISIONS or args[0] not in host.parts.ledger.by_tx_id:
            # Requests of a client take effect in the order of its asking.
            host.commit_own(self._client)
        if name in WRITING:
            return WRITING[name](host, *args, **named)
        host.commit_queue.catch_up()
        found: Any = CALLS[name](host, *args, **named)
        if name == "take_one":
            self._polls.asked(found)
        return encode_values(found)
