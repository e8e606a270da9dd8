"""What the pages show, and what their readers can do: each act is one public call of an engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import fmq
from fmq.basics.message import Decision
from fmq.findings.bound import bound_said
from fmq.findings.text import plain, preview

LETTERS_MAX = 100  # of each group


class ShownRow(NamedTuple):
    """One line of a page."""

    key: str
    """Names for an act what was shown, also if something else has its name by then."""
    cells: tuple[object, ...]


class AdminAct(NamedTuple):
    """One thing that a reader can do with the lines that are chosen."""

    label: str
    effect: str
    carry_out: Callable[[fmq.RemoteEngine, list[Any], str, str], object]
    """Is called with the engine, the keys, the reason, and who asks."""


class ShownPage(NamedTuple):
    """One page."""

    columns: tuple[str, ...]
    rows: Callable[[fmq.AnyEngine], Iterator[ShownRow]]
    acts: Mapping[str, AdminAct]


def _row(key: object, *cells: object) -> ShownRow:
    return ShownRow(
        json.dumps(key), tuple(plain(each) if isinstance(each, str) else each for each in cells)
    )


def _undecided(engine: fmq.AnyEngine) -> Iterator[ShownRow]:
    for each in engine.undecided():
        topics = ", ".join(each.topics)
        state = "parked" if each.parked else f"{each.answers} answers were unknown"
        state = f"bound, {state}" if each.bound else state
        cells = each.tx_id, each.producer or "", each.prepared_at, each.messages, topics, state
        yield _row([each.tx_id, each.seal], *cells)


def _decide(decision: Decision) -> Callable[[fmq.RemoteEngine, list[Any], str, str], None]:
    def carry_out(engine: fmq.RemoteEngine, keys: list[Any], reason: str, by: str) -> None:
        bound = {each.tx_id: each for each in engine.undecided() if each.bound}
        for tx_id, seal in keys:
            if tx_id in bound:
                raise fmq.errors.BadOption(bound_said(str(engine.path), bound[tx_id]))
            engine.decide(tx_id, decision, reason=reason, decided_by=by, seal=seal)

    return carry_out


def _letters(engine: fmq.AnyEngine) -> Iterator[ShownRow]:
    for group in sorted({each.group for each in engine.groups() if each.dead_letters}):
        for each in engine.dead_letters(group).list(limit=LETTERS_MAX):
            place = f"{each.topic}/{each.queue} {each.offset}"
            cells = group, each.number, place, each.died_at, each.attempts, each.reason
            yield _row([group, each.number], *cells, preview(each.body))


def _by_group(keys: Iterable[list[Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for group, number in keys:
        found.setdefault(group, []).append(number)
    return found


def _replay(engine: fmq.RemoteEngine, keys: list[Any], reason: str, by: str) -> None:
    for group, numbers in _by_group(keys).items():
        engine.dead_letters(group).replay(numbers)


def _purge(engine: fmq.RemoteEngine, keys: list[Any], reason: str, by: str) -> None:
    for group, numbers in _by_group(keys).items():
        engine.dead_letters(group).purge(numbers)


def _groups(engine: fmq.AnyEngine) -> Iterator[ShownRow]:
    for each in engine.groups():
        paused = f"by {each.paused.by}: {each.paused.reason}" if each.paused else ""
        cells = (
            each.group,
            f"{each.topic}/{each.queue}",
            each.unread,
            f"{each.behind_seconds:.0f} s",
        )
        yield _row(each.group, *cells, each.dead_letters, each.lost, paused)


def _pause(engine: fmq.RemoteEngine, keys: list[Any], reason: str, by: str) -> None:
    for group in dict.fromkeys(keys):
        engine.group(group).pause(reason=reason, by=by)


def _resume(engine: fmq.RemoteEngine, keys: list[Any], reason: str, by: str) -> None:
    for group in dict.fromkeys(keys):
        engine.group(group).resume(reason=reason, by=by)


COMMIT = "Their messages become visible. Nothing takes that back."
ROLL_BACK = "Their messages are dropped. Nothing brings them back."
REPLAY = "The group gets them again, and its attempts begin anew."
DROP = "They are gone. Nothing brings them back."
PAUSE = "They are handed nothing until somebody resumes them."

UNDECIDED = ShownPage(
    ("transaction", "producer", "prepared at", "messages", "topics", "asked"),
    _undecided,
    {
        "commit": AdminAct("Commit", COMMIT, _decide("commit")),
        "rollback": AdminAct("Roll back", ROLL_BACK, _decide("rollback")),
    },
)
DEAD_LETTERS = ShownPage(
    ("group", "number", "topic/queue offset", "died at", "attempts", "reason", "body"),
    _letters,
    {"replay": AdminAct("Replay", REPLAY, _replay), "purge": AdminAct("Drop", DROP, _purge)},
)
GROUPS = ShownPage(
    ("group", "topic/queue", "unread", "behind", "dead letters", "lost", "paused"),
    _groups,
    {
        "pause": AdminAct("Pause", PAUSE, _pause),
        "resume": AdminAct("Resume", "They go on at once.", _resume),
    },
)
