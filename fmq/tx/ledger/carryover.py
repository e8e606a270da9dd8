"""What a ledger carries over in checkpoints and STATE records: what a replay cannot find in the
segments that are left, as JSON.

`carried_of` writes it, `check_carried` checks its shape, and `carry` takes it over. A new key has a
line in each of them, and one in docs/format.md.

A checksum shows that the bytes are the bytes that were written, not that fmq wrote them. So each
value is checked before a ledger takes it over. A wrong value raises ValueError.

What is refused here can never be checkpointed. So the transitions refuse it as well, in the record
that says it, and call `check_text` and `check_number` for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fmq.arguments.options import QUEUES_MAX
from fmq.basics.message import Mark
from fmq.store.bytes.kinds import Carryover
from fmq.store.index.index import QueueKey
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.attempts import ATTEMPTS_MAX
from fmq.tx.ledger.dead_letters import DeadLetterState
from fmq.tx.ledger.done_requests import CLIENT_BYTES
from fmq.tx.ledger.ledger import Ledger, Subscription
from fmq.tx.said.codec_met import codec_in, codec_text
from fmq.tx.said.limit_met import limit_in
from fmq.tx.said.pauses import PauseMet
from fmq.tx.said.schedule_met import schedule_in

NUMBER_MAX = 1 << 63  # offsets, positions and times are below this number
# A mask has one bit for each of the priorities 0 to 9.
MASKS = 1 << 10


class WrongValue(ValueError):
    """Raised for a value that no ledger can have. `apply` turns it into IllegalStep."""


def to_json(value: Any) -> bytes:
    """Return `value` as the bytes of a checkpoint or a STATE record."""
    data: str = json.dumps(value, separators=(",", ":"))
    return data.encode()


def from_json(data: bytes) -> Any:
    """Return the value in `data`. Raises ValueError or RecursionError if `data` is no JSON."""
    return json.loads(data)


def check_number(what: str, value: Any, low: int = 0, high: int = NUMBER_MAX) -> int:
    """Return `value` if it is an int from `low` up to, not including, `high`."""
    if type(value) is not int or not low <= value < high:
        raise WrongValue(f"{what} is {str(value)[:40]}")
    return value


def check_list(what: str, value: Any, length: int | None = None) -> list[Any]:
    if type(value) is not list or (length is not None and len(value) != length):
        raise WrongValue(f"{what} is {str(value)[:40]}")
    return value


def check_text(what: str, value: Any) -> str:
    if type(value) is not str or not value:
        raise WrongValue(f"{what} is {str(value)[:40]!r}")
    return value


def check_queue(topic: object, number: object) -> None:
    """Check that a topic can have this name, and this queue."""
    check_text("a topic", topic)
    check_number("a queue", number, 0, QUEUES_MAX)


def check_place(group: object, topic: object, number: object) -> None:
    """Check that a group can have this name and read this queue."""
    check_text("a group", group)
    check_queue(topic, number)


def carried_of(ledger: Ledger, firsts: Mapping[QueueKey, int] | None = None) -> dict[str, Any]:
    """Return for JSON what a replay cannot find in the remaining segments.

    With `firsts`, return this as it will be once the queues begin at these offsets.
    """
    firsts = firsts or {}
    return {
        "floor": ledger.floor,
        "last_us": ledger.last_us,
        "topics": {
            topic.name: [
                [max(queue.first, firsts.get((topic.name, queue.number), 0)), queue.end]
                for queue in topic.queues
            ]
            for topic in ledger.made_topics()
        },
        "spans": _carried_spans(ledger, firsts),
        "retained": {
            topic.name: topic.retain_ms for topic in ledger.made_topics() if topic.retain_ms
        },
        "codecs": {
            topic.name: codec_text(topic.codec) for topic in ledger.made_topics() if topic.codec
        },
        "deleted": {
            name: position for name, position in ledger.deleted.items() if position >= ledger.floor
        },
        "acks": [
            [*key, *acked.beyond(firsts.get(key[1:], 0))]
            for key, acked in sorted(ledger.acked.items())
            if not acked.is_empty  # leave out groups that have polled and not acked
        ],
        "tried": [
            [*key, left]
            for key, tried in sorted(ledger.tried.items())
            if (left := tried.beyond(firsts.get(key[1:], 0)))
        ],
        "groups": [
            [*key, each.filter, each.skipped, each.lost + _lost_below(ledger, each, firsts)]
            for key, each in sorted(ledger.subscriptions.items())
        ],
        "dead": [
            dead.carried(firsts.get((dead.topic, 0), 0)) for _, dead in sorted(ledger.dead.items())
        ],
        "expired": [
            [*key, each.expired]
            for key, each in sorted(ledger.subscriptions.items())
            if each.expired
        ],
        "paused": [[*key, *pause] for key, pause in sorted(ledger.pauses.items())],
        "limits": [
            [group, limit.text(), limit.time_us] for group, limit in sorted(ledger.limits.items())
        ],
        "schedules": [each.carried() for _, each in sorted(ledger.schedules.items())],
        "requests": ledger.requests.carried(),
        "erased": ledger.erasures.carried(ledger.floor, _firsts(ledger, firsts)),
        "options": dict(ledger.options),
        "marks": {name: [value, data.hex()] for name, (value, data) in ledger.marks.items()},
    }


def _firsts(ledger: Ledger, firsts: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    """Return where each queue with erased messages begins, or will begin as `firsts` say."""
    found = {}
    for key in ledger.erasures.ranges:
        queue = ledger.queue(*key)
        found[key] = max(0 if queue is None else queue.first, firsts.get(key, 0))
    return found


def _carried_spans(ledger: Ledger, firsts: Mapping[QueueKey, int]) -> list[list[Any]]:
    carried = []
    for topic in ledger.made_topics():
        for queue in topic.queues:
            if queue.spans is not None:
                first = max(queue.first, firsts.get((topic.name, queue.number), 0))
                said = queue.spans.carried(first)
                if any(said):
                    carried.append([topic.name, queue.number, *said])
    return sorted(carried)  # sorted, because a checkpoint changes the order of topics


def carry(ledger: Ledger, state: dict[str, Any]) -> None:
    """Take over what `carried_of` returned at an earlier time."""
    ledger.last_us = max(ledger.last_us, state["last_us"])
    ledger.floor = max(ledger.floor, state["floor"])
    for name, ranges in state["topics"].items():
        topic = ledger.topic(name, len(ranges))
        ledger.grow(topic, len(ranges))
        topic.has_record = True
        for queue, (first, after) in zip(topic.queues, ranges, strict=True):
            # The records that would tell where the queue begins may be missing.
            queue.first = first if ledger.unsettled else max(queue.first, first)
            # Only in a replay: a running engine knows all messages before `after`.
            if queue.end < after:
                queue.next = queue.end = after
            queue.is_placed = True
            if queue.spans is not None:
                queue.spans.drop_below(queue.first)
    for name, number, *spans in state.get("spans", ()):  # an older fmq wrote no "spans"
        topic = ledger.topics[name]
        ledger.spans_of(topic.queues[number]).carry(spans)
        topic.has_priorities = topic.has_priorities or bool(spans[0])
    ledger.deleted.update(state.get("deleted", {}))
    for name, retain_ms in state.get("retained", {}).items():
        ledger.topics[name].retain_ms = retain_ms
    for name, text in state.get("codecs", {}).items():  # an older fmq wrote no "codecs"
        ledger.topics[name].codec = codec_in(text)
    for group, name, number, floor, ranges in state["acks"]:
        if not floor and not ranges and "groups" not in state:
            continue  # an older fmq wrote this for a group that had polled and not acked
        ledger.subscribe(group, name)  # an older fmq carried no "groups"
        acked = ledger.acked_of(group, name, number)
        # The group has this floor from its making or a seek, even if it has acked nothing.
        acked.is_empty = False
        acked.add(0, floor)
        for first, end in ranges:
            acked.add(first, end)
    for group, name, wanted, skipped, lost in state.get("groups", ()):
        subscription = ledger.subscribe(group, name)
        # A replay that began after acks were dropped has counted too many lost messages. Set
        # the right number.
        subscription.filter, subscription.skipped, subscription.lost = wanted, skipped, lost
    if "dead" in state:  # an older fmq had no dead letters
        ledger.dead.clear()
        ledger.again.clear()
        for group, floor, ranges, moved, again in state["dead"]:
            dead = ledger.dead[group] = DeadLetterState(group)
            dead.carry(floor, ranges, moved)
            for name in again:
                ledger.note_replay(dead, name)
    for group, name, number, tries in state.get("tried", ()):
        tried = ledger.tried_of(group, name, number)
        for first, end, count, due_us in tries:
            # Attempts that the replay has found already are as new as `state`, or newer: keep
            # them.
            tried.fill(first, end, count, due_us)
    for group, name, expired in state.get("expired", ()):  # an older fmq wrote no "expired"
        ledger.subscribe(group, name).expired = expired
    ledger.erasures.carry(state.get("erased", []))  # an older fmq wrote no "erased"
    if "paused" in state:  # an older fmq paused nothing
        ledger.pauses = {(group, name): PauseMet(*pause) for group, name, *pause in state["paused"]}
    if "limits" in state:  # an older fmq limited nothing
        ledger.limits = {group: limit_in(*limit) for group, *limit in state["limits"]}
    if "schedules" in state:  # an older fmq had no schedules
        found = [schedule_in(*each) for each in state["schedules"]]
        ledger.schedules = {each.name: each for each in found}
        ledger.timers.sooner = True
    ledger.requests.carry(state.get("requests", []))
    if "options" in state:  # an older fmq wrote no options
        ledger.options.clear()
        ledger.options.update(state["options"])
    for name, (value, data) in state.get("marks", {}).items():
        ledger.marks[name] = Mark(value, bytes.fromhex(data))
    # Do it for all groups, not only those in `state`: an older fmq left ranges below the first
    # message.
    for (_, name, number), acked in ledger.acked.items():
        if (known := ledger.queue(name, number)) is not None:
            acked.drop_below(known.first)
    for dead in ledger.dead.values():
        if (known := ledger.queue(dead.topic, 0)) is not None:
            dead.closed.drop_below(known.first)
    for key, tried in ledger.tried.items():
        acked = ledger.acked_of(*key)
        for first, end, *_ in tried.all():
            at = first
            for low, high in acked.gaps(first, end):
                tried.drop(at, low)
                at = high
            tried.drop(at, end)


def _lost_below(ledger: Ledger, subscription: Subscription, firsts: Mapping[QueueKey, int]) -> int:
    """Return how many messages the group loses if the queues begin at `firsts`."""
    lost = 0
    for (topic, number), first in firsts.items():
        queue = ledger.queue(topic, number) if topic == subscription.topic else None
        if queue is not None:
            acked = ledger.acked.get((subscription.group, topic, number)) or AckSet(queue.first)
            lost += acked.count_gaps(acked.floor, first)
    return lost


def check_carried(state: Any) -> dict[str, Any]:
    """Return `state` if it has the shape that `carried_of` makes."""
    if type(state) is not dict or type(state.get("topics")) is not dict:
        raise ValueError(f"no topics in {str(state)[:40]}")
    for name in ("floor", "last_us"):
        check_number(name, state.get(name))
    for topic, queues in state["topics"].items():
        check_text("a topic", topic)
        if not 0 < len(check_list("queues", queues)) <= QUEUES_MAX:
            raise ValueError(f"{topic} has {len(queues)} queues")
        for bounds in queues:
            first, after = check_list("a queue", bounds, 2)
            check_number("a queue's end", after, check_number("a queue's first", first))
    retained = state.get("retained", {})  # an older fmq wrote no "retained"
    if type(retained) is not dict or not retained.keys() <= state["topics"].keys():
        raise ValueError(f"retained topics are {str(retained)[:40]}")
    for retain_ms in retained.values():
        check_number("a topic's retention", retain_ms, 1)
    codecs = state.get("codecs", {})
    if type(codecs) is not dict or not codecs.keys() <= state["topics"].keys():
        raise ValueError(f"topics with codecs are {str(codecs)[:40]}")
    for text in codecs.values():
        codec_in(text)
    for queue in check_list("spans", state.get("spans", [])):  # an older fmq wrote no "spans"
        _check_spans(queue, state["topics"])
    deleted = state.get("deleted", {})
    if type(deleted) is not dict:
        raise ValueError(f"deleted topics are {str(deleted)[:40]}")
    for position in deleted.values():
        check_number("where a topic was deleted", position, 1)
    for ack in check_list("acks", state.get("acks")):
        _check_ack(ack)
    for group in check_list("groups", state.get("groups", [])):  # an older fmq wrote no "groups"
        _check_group(group)
    for dead in check_list("dead letters", state.get("dead", [])):
        _check_dead(dead)
    for tried in check_list("tries", state.get("tried", [])):  # an older fmq wrote no "tried"
        _check_tried(tried)
    for subscription in check_list("what expired", state.get("expired", [])):
        group, topic, expired = check_list("what expired", subscription, 3)
        check_text("a group", group)
        check_text("a topic", topic)
        check_number("what expired", expired, 1)
    _check_erased(check_list("what was erased", state.get("erased", [])))
    for pause in check_list("pauses", state.get("paused", [])):  # an older fmq paused nothing
        group, topic, by, reason, time_us = check_list("a pause", pause, 5)
        if not all(type(each) is str for each in (group, topic, by, reason)):
            raise ValueError(f"a pause is {str(pause)[:40]}")
        if bool(group) == bool(topic):
            raise ValueError("a pause is of one group or of one topic")
        check_number("the time of a pause", time_us, -NUMBER_MAX)
    for limit in check_list("limits", state.get("limits", [])):  # an older fmq limited nothing
        group, *said = check_list("a limit", limit, 3)
        check_text("a group", group)
        if limit_in(*said).is_empty:
            raise ValueError("a limit that limits nothing")
    # An older fmq had no schedules.
    for schedule in check_list("schedules", state.get("schedules", [])):
        schedule_in(*check_list("a schedule", schedule, 4))
    for request in check_list("requests", state.get("requests", [])):
        _check_requests(request)
    check_options(state.get("options", {}))  # an older fmq wrote no "options"
    marks = state.get("marks", {})  # an older fmq wrote no "marks"
    if type(marks) is not dict:
        raise ValueError(f"marks are {str(marks)[:40]}")
    for name, mark in marks.items():
        check_text("a mark", name)
        value, data = check_list("a mark", mark, 2)
        check_number("a mark's value", value, 0, 1 << 64)
        if type(data) is not str or bytes.fromhex(data).hex() != data:
            raise ValueError(f"a mark's data is {str(data)[:40]}")
    return state


def check_options(options: Any) -> dict[str, Any]:
    """Return `options` if they are names with values. What a value means is checked where it
    counts, as a newer fmq may know more of it.
    """
    if type(options) is not dict:
        raise ValueError(f"options are {str(options)[:40]}")
    for name, value in options.items():
        check_text("an option", name)
        if type(value) not in (int, float, str, bool, type(None)):
            raise ValueError(f"the option {name[:40]} is {str(value)[:40]}")
    return options


def carried_by(state: Carryover) -> dict[str, Any]:
    """Return what a STATE record carries. Raises ValueError or RecursionError if its bytes are not
    the JSON of a state.
    """
    return check_carried(from_json(state.json))


def floor_of(state: Carryover) -> int:
    """Return the floor that `state` carries, or 0. No record below the floor is kept."""
    try:
        return int(carried_by(state)["floor"])
    except (ValueError, RecursionError):
        return 0


def _check_spans(spans: Any, topics: dict[str, Any]) -> None:
    topic, queue, masks, expiries = check_list("the spans of a queue", spans, 4)
    check_text("a topic", topic)
    if topic not in topics:
        raise ValueError(f"spans of the topic {topic[:40]}, which there is not")
    check_number("a queue", queue, 0, len(topics[topic]))
    for values, low, high in ((masks, 1, MASKS), (expiries, -NUMBER_MAX, NUMBER_MAX)):
        last = -1
        for number in check_list("spans", values)[::2]:
            last = check_number("a span", number, last + 1)
        for value in values[1::2]:
            check_number("what a span has", value, low, high)
        if len(values) % 2:
            raise ValueError(f"{len(values)} numbers of spans")


def _check_group(subscription: Any) -> None:
    group, topic, wanted, skipped, lost = check_list("a group", subscription, 5)
    check_text("a group", group)
    check_text("a topic", topic)
    if type(wanted) is not str:
        raise ValueError(f"a filter is {str(wanted)[:40]}")
    check_number("what was skipped", skipped)
    check_number("what was lost", lost)


def _check_dead(dead: Any) -> None:
    group, floor, ranges, moved, again = check_list("dead letters", dead, 5)
    check_text("a group", group)
    check_number("where dead letters begin", floor)
    for each in check_list("ranges", ranges):
        first, end = check_list("a range", each, 2)
        check_number("a range's end", end, check_number("a range's first", first) + 1)
    for each in check_list("moved dead letters", moved):
        for number in check_list("moved dead letters", each, 3):
            check_number("where dead letters are", number)
    for topic in check_list("replayed topics", again):
        check_text("a topic", topic)


def _check_tried(tried: Any) -> None:
    group, topic, queue, ranges = check_list("tries of a group", tried, 4)
    check_place(group, topic, queue)
    last = 0
    for each in check_list("tries", ranges):
        first, end, count, due_us = check_list("tries", each, 4)
        last = check_number("the end of tries", end, check_number("the first", first, last) + 1)
        check_number("how often something was tried", count, 0, ATTEMPTS_MAX + 1)
        check_number("when something is due", due_us, -NUMBER_MAX)


def _check_erased(erased: list[Any]) -> None:
    if not erased:
        return
    number, queues, segments = check_list("what was erased", erased, 3)
    check_number("the number of an erasure", number, 1, 1 << 64)
    for each in check_list("erased messages", queues):
        topic, queue, ranges = check_list("erased messages", each, 3)
        check_queue(topic, queue)
        last = 0
        for bounds in check_list("ranges", ranges):
            first, end = check_list("a range", bounds, 2)
            last = check_number("a range's end", end, check_number("its first", first, last) + 1)
    for each in check_list("segments", segments):
        for position in check_list("a segment", each, 2):
            check_number("a position", position)


def _check_requests(client: Any) -> None:
    name, last, last_us, done = check_list("a client", client, 4)
    if len(bytes.fromhex(check_text("a client", name))) != CLIENT_BYTES:
        raise ValueError(f"a client is {name[:40]}")
    check_number("a sequence", last, 0, 1 << 64)
    check_number("a client's time", last_us, -NUMBER_MAX)
    for each in check_list("requests", done):
        # An older fmq wrote 7 fields, without the due time.
        length = 8 if type(each) is list and len(each) == 8 else 7
        first, count, position, topic, queue, offset, messages, *due = check_list(
            "a request", each, length
        )
        for when in due:
            check_number("when a request is due", when)
        check_number("a request's first", first, 0, 1 << 64)
        check_number("a request's count", count, 1)
        check_number("a request's position", position)
        check_number("a request's offset", offset)
        check_number("a request's messages", messages)
        check_number("a request's queue", queue, 0, QUEUES_MAX)
        if type(topic) is not str:
            raise ValueError(f"a request's topic is {str(topic)[:40]}")


def _check_ack(ack: Any) -> None:
    group, topic, queue, floor, ranges = check_list("an ack", ack, 5)
    check_place(group, topic, queue)
    last = check_number("a floor", floor)
    for each in check_list("ranges", ranges):
        first, end = check_list("a range", each, 2)
        last = check_number("a range's end", end, check_number("its first", first, last) + 1)
