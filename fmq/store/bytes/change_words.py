"""The text that tells people what a CHANGE record has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fmq.basics.clock import as_datetime
from fmq.store.bytes.kinds import Changed, ChangeKind

BECAME = {0: "purged", 1: "replayed", 2: "carried forward"}


def change_said(change: Changed) -> str:
    """Return the text of `change`, without the name of its topic. Other names are as the caller
    gave them.
    """
    return SAYS[change.asked](change)


def _make_group(change: Changed) -> str:
    where = _places(change, "at") or " at the first message"
    filtered = f", with the filter {change.text}" if change.text else ""
    return f"group {change.group} begins{where}{filtered}"


def _seek(change: Changed) -> str:
    return f"group {change.group} goes on{_places(change, 'at')}"


def _skip(change: Changed) -> str:
    count = "1 message" if change.value == 1 else f"{change.value:,} messages"
    by, reason = said_by(change)
    who = (f", by {by}" if by else "") + (f": {reason}" if reason else "")
    return f"group {change.group} passes over {count}{_places(change, 'from')}{who}"


def _filter(change: Changed) -> str:
    has = f"has the filter {change.text}" if change.text else "has no filter any more"
    return f"group {change.group} {has}"


def _retain(change: Changed) -> str:
    if not change.value:
        return "the topic keeps messages as the options say"
    return f"the topic keeps messages for {change.value / 1000:g} s"


def _end_dead(change: Changed) -> str:
    count = sum(place.offset for place in change.places[1::3])
    count -= sum(place.offset for place in change.places[::3])
    what = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    became = BECAME.get(change.value, "ended")
    because = f": {change.text}" if change.text else ""
    return f"{what} of group {change.group} {became}{because}"


def _recall(change: Changed) -> str:
    return f"{_timers(change)} recalled, due {as_datetime(change.value):%Y-%m-%d %H:%M:%S}"


def said_by(change: Changed) -> tuple[str, str]:
    """Return who asked for `change`, and why. The text of such a change has both."""
    by, _, reason = change.text.partition("\n")
    return by, reason


def _by(what: str) -> Callable[[Changed], str]:
    """Return the text of a change that a person made: what changed, by whom, and why."""

    def say(change: Changed) -> str:
        by, reason = said_by(change)
        whom = f"group {change.group}" if change.group else "the topic"
        return f"{whom} {what} by {by}" + (f": {reason}" if reason else "")

    return say


def _configure(change: Changed) -> str:
    try:
        said = json.loads(change.text)
        parts = [f"{name} as {value}" for name, value in said["set"].items()]
        parts += [f"nothing for {name}" for name in said["reset"]]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return f"the directory stores {change.text}"
    return f"the directory stores {', '.join(parts)}"


def said_as_json(change: Changed) -> dict[str, Any]:
    """Return the content of a change whose text is JSON; an empty dict if it cannot be read."""
    try:
        said = json.loads(change.text)
    except (ValueError, RecursionError):
        return {}
    return said if type(said) is dict else {}


def _schedule(change: Changed) -> str:
    said = said_as_json(change)
    when = f"{said.get('cron')} in {said.get('timezone')}"
    paused = said.get("paused")
    if type(paused) is list and len(paused) == 3:
        whom = _by_whom({"by": paused[0], "reason": paused[1]})
        return f"schedule {said.get('name')} ({when}) is paused{whom}"
    return f"schedule {said.get('name')} ({when}) waits, by {said.get('by')}"


def _due(change: Changed) -> str:
    said = said_as_json(change)
    due_us = said.get("due")
    if type(due_us) is not int or not due_us:
        return f"schedule {said.get('name')} published at once{_by_whom(said)}"
    became = "passed over" if said.get("passed") else "published"
    return f"schedule {said.get('name')} {became}, due {as_datetime(due_us):%Y-%m-%d %H:%M:%S}"


def _unschedule(change: Changed) -> str:
    said = said_as_json(change)
    return f"schedule {said.get('name')} is removed{_by_whom(said)}"


def _by_whom(said: dict[str, Any]) -> str:
    return f" by {said.get('by')}" + (f": {said['reason']}" if said.get("reason") else "")


def _limit(change: Changed) -> str:
    said = said_as_json(change)
    parts = [
        name if each is True else f"{name}={each:g}"
        for name, each in said.items()
        if name not in ("by", "reason") and type(each) in (int, float, bool) and each
    ]
    has = f"has the limit {', '.join(parts)}" if parts else "has no limit any more"
    return f"group {change.group} {has}, by {said.get('by')}" + (
        f": {said['reason']}" if said.get("reason") else ""
    )


def _codec(change: Changed) -> str:
    said = said_as_json(change)
    return f"bodies of the topic are made by {said.get('name')}, version {said.get('version')}"


def _timers(change: Changed) -> str:
    if len(change.places) == 1:
        return f"timer {change.places[0].offset}"
    return f"{len(change.places)} timers"


def _places(change: Changed, word: str) -> str:
    """Return the place, or the number of places if there are several."""
    if len(change.places) == 1:
        queue, offset = change.places[0]
        return f" {word} offset {offset} of queue {queue}"
    return f" {word} places in {len(change.places)} queues" if change.places else ""


SAYS: dict[int, Callable[[Changed], str]] = {
    ChangeKind.MAKE_GROUP: _make_group,
    ChangeKind.SEEK: _seek,
    ChangeKind.SKIP: _skip,
    ChangeKind.FILTER: _filter,
    ChangeKind.DELETE_GROUP: lambda change: f"group {change.group} is deleted",
    ChangeKind.ADD_QUEUES: lambda change: f"the topic has {change.value} queues",
    ChangeKind.RETAIN: _retain,
    ChangeKind.TRIM: lambda change: f"the topic begins{_places(change, 'at')}",
    ChangeKind.DELETE_TOPIC: lambda change: "the topic is deleted",
    ChangeKind.BEGIN_DEAD: lambda change: f"group {change.group} has dead letters",
    ChangeKind.END_DEAD: _end_dead,
    ChangeKind.FIRE: lambda change: f"{_timers(change)} published",
    ChangeKind.RECALL: _recall,
    ChangeKind.PAUSE: _by("is paused"),
    ChangeKind.RESUME: _by("is resumed"),
    ChangeKind.CONFIGURE: _configure,
    ChangeKind.SCHEDULE: _schedule,
    ChangeKind.DUE: _due,
    ChangeKind.UNSCHEDULE: _unschedule,
    ChangeKind.LIMIT: _limit,
    ChangeKind.CODEC: _codec,
}
"""What each kind says. A kind that is new gets its words here."""
