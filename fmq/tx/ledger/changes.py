"""The transitions of CHANGE: how this record changes groups, topics and options in the ledger.

`tx/transitions` calls `apply_change` for each CHANGE, in a replay and in the running engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fmq.arguments.options import QUEUES_MAX
from fmq.store.bytes.change_words import said_by
from fmq.store.bytes.kinds import Changed, ChangeKind
from fmq.store.bytes.timing import Timing
from fmq.tx.ledger import dead_changes, schedule_changes
from fmq.tx.ledger.carryover import check_list, check_number, check_options, check_text
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.queues import Queue
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.said.codec_met import codec_in
from fmq.tx.said.limit_met import limit_in
from fmq.tx.said.pauses import PauseMet

ENDS_TIMERS = frozenset((ChangeKind.FIRE, ChangeKind.RECALL))


def apply_change(ledger: Ledger, change: Changed) -> None:
    """Change `ledger` as `change` says. Raises IllegalStep if it must not follow here, and then
    nothing was changed.
    """
    CHANGES[change.asked](ledger, change)
    if change.asked not in ENDS_TIMERS:
        ledger.changed_at = ledger.end
    if ledger.listener is not None:
        ledger.listener.changed(change)


def _make_group(ledger: Ledger, change: Changed) -> None:
    if (change.group, change.topic) in ledger.subscriptions:
        raise IllegalStep(f"the group {change.group!r} of {change.topic!r} is made a second time")
    check_text("a group", change.group)
    check_text("a topic", change.topic)
    queues = _queues_to_move(ledger, change)
    ledger.subscribe(change.group, change.topic).filter = change.text
    _move(ledger, change, queues)


def _seek(ledger: Ledger, change: Changed) -> None:
    _check_group(ledger, change)
    queues = _queues_to_move(ledger, change)
    for (number, offset), queue in zip(change.places, queues, strict=True):
        acked = ledger.acked_of(change.group, change.topic, number)
        low = max(acked.floor, queue.first)
        # A seek forward passes the messages between over, damaged ones included.
        if offset > low:
            skipped = acked.count_gaps(low, offset)
            ledger.subscribe(change.group, change.topic).skipped += skipped
    _move(ledger, change, queues)


def _queues_to_move(ledger: Ledger, change: Changed) -> list[Queue]:
    """Return the queue of each place of `change`. Raise IllegalStep if a group cannot be there."""
    return _queues_up_to(ledger, change, 0, "a group is moved in")


def _move(ledger: Ledger, change: Changed, queues: list[Queue]) -> None:
    for (number, offset), queue in zip(change.places, queues, strict=True):
        key = change.group, change.topic, number
        acked = ledger.acked_of(*key)
        acked.move_to(max(offset, queue.first))
        for first, end in ledger.erasures.of(change.topic, number):
            acked.add(first, end)
        ledger.tried.pop(key, None)


def _skip(ledger: Ledger, change: Changed) -> None:
    _check_group(ledger, change)
    _queues_up_to(ledger, change, change.value, "a group skips")
    for number, offset in change.places:
        end = offset + change.value
        acked = ledger.acked_of(change.group, change.topic, number)
        skipped = acked.count_gaps(offset, end)
        acked.add(offset, end)
        ledger.tried_of(change.group, change.topic, number).drop(offset, end)
        ledger.subscribe(change.group, change.topic).skipped += skipped


def _filter(ledger: Ledger, change: Changed) -> None:
    _check_group(ledger, change)
    ledger.subscribe(change.group, change.topic).filter = change.text


def _delete_group(ledger: Ledger, change: Changed) -> None:
    gone = ledger.subscriptions.topics_of(change.group)
    if not gone and not ledger.unsettled:
        raise IllegalStep(f"the group {change.group!r}, which does not exist, is deleted")
    for topic in gone:
        del ledger.subscriptions[change.group, topic]
    ledger.pauses.pop((change.group, ""), None)
    ledger.limits.pop(change.group, None)
    for place in [key for key in ledger.acked if key[0] == change.group]:
        del ledger.acked[place]
    dead_changes.forget(ledger, change.group)
    for place in [key for key in ledger.tried if key[0] == change.group]:
        del ledger.tried[place]


def _add_queues(ledger: Ledger, change: Changed) -> None:
    topic = ledger.topics.get(change.topic)
    if topic is None and ledger.unsettled:
        # In a replay: a later STATE says how many queues the topic has.
        return
    if topic is None or not len(topic.queues) < change.value <= QUEUES_MAX:
        raise IllegalStep(f"the topic {change.topic!r} gets {change.value} queues")
    ledger.grow(topic, change.value)


def _retain(ledger: Ledger, change: Changed) -> None:
    check_number("a topic's retention", change.value)
    topic = ledger.topics.get(change.topic)
    if topic is not None:
        topic.retain_ms = change.value
    elif not ledger.unsettled:
        raise IllegalStep(f"a change of the topic {change.topic!r}, which was never made")


def _codec(ledger: Ledger, change: Changed) -> None:
    try:
        codec = codec_in(change.text)
    except ValueError as error:
        raise IllegalStep(str(error)) from None
    topic = ledger.topics.get(change.topic)
    if topic is not None:
        topic.codec = codec
    elif not ledger.unsettled:
        raise IllegalStep(f"a codec of the topic {change.topic!r}, which was never made")


def _trim(ledger: Ledger, change: Changed) -> None:
    queues = _queues_up_to(ledger, change, 0, "a retention drops")
    for (_, offset), queue in zip(change.places, queues, strict=True):
        ledger.raise_first(queue, offset)


def _delete_topic(ledger: Ledger, change: Changed) -> None:
    topic = ledger.topics.pop(change.topic, None)
    if topic is None and not ledger.unsettled:
        raise IllegalStep(f"the topic {change.topic!r}, which does not exist, is deleted")
    if topic is not None:
        ledger.awaited.setdefault(topic.name, []).extend(topic.waiting)
        for queue in topic.queues:
            # A caller that still reads the topic learns from `first` that its messages are gone.
            queue.first = queue.next
    for place in [key for key in ledger.acked if key[1] == change.topic]:
        del ledger.acked[place]
    for place in [key for key in ledger.tried if key[1] == change.topic]:
        del ledger.tried[place]
    ledger.pauses.pop(("", change.topic), None)
    schedule_changes.forget(ledger, change.topic)
    ledger.index.forget(change.topic)
    ledger.erasures.forget(change.topic)
    ledger.deleted[change.topic] = change.position


def _fire(ledger: Ledger, change: Changed) -> None:
    for _, number in change.places:
        ledger.timers.check_due(number, change.time_us)
    for _, number in change.places:
        ledger.timers.fire(number, change.time_us)
    ledger.timers.changed_at = ledger.end


def _recall(ledger: Ledger, change: Changed) -> None:
    for _, number in change.places:  # all places of a CHANGE share its time
        ledger.timers.recall(Timing(change.value, number))
    ledger.timers.changed_at = ledger.end


def _pause(ledger: Ledger, change: Changed) -> None:
    key = _to_pause(ledger, change)
    ledger.pauses[key] = PauseMet(*said_by(change), change.time_us)


def _resume(ledger: Ledger, change: Changed) -> None:
    key = _to_pause(ledger, change)
    if ledger.pauses.pop(key, None) is None and not ledger.unsettled:
        raise IllegalStep(f"{key[0] or key[1]!r} is resumed, and it is not paused")


def _to_pause(ledger: Ledger, change: Changed) -> tuple[str, str]:
    """Return the group or the topic that `change` pauses or resumes. Raises IllegalStep if it is
    neither.
    """
    group, topic = change.group, change.topic
    if bool(group) == bool(topic):
        raise IllegalStep(f"the group {group!r} and the topic {topic!r} are paused at once")
    known = topic in ledger.topics or bool(ledger.subscriptions.topics_of(group))
    if not known and not ledger.unsettled:
        raise IllegalStep(f"{group or topic!r}, which does not exist, is paused or resumed")
    return group, topic


def _limit(ledger: Ledger, change: Changed) -> None:
    try:
        limit = limit_in(change.text, change.time_us)
    except ValueError as error:
        raise IllegalStep(str(error)) from None
    group = change.group
    check_text("a group", group)
    if not ledger.unsettled and not ledger.subscriptions.topics_of(group):
        raise IllegalStep(f"the group {group!r}, which does not exist, gets a limit")
    if limit.is_empty:
        ledger.limits.pop(group, None)
    else:
        ledger.limits[group] = limit


def _configure(ledger: Ledger, change: Changed) -> None:
    try:
        said = json.loads(change.text)
        values, reset = said["set"], said["reset"]
        check_options(values)
        for name in check_list("options", reset):
            check_text("an option", name)
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise IllegalStep(f"options that cannot be read: {error!r:.80}") from None
    for name in reset:
        ledger.options.pop(name, None)
    ledger.options.update(values)
    if ledger.listener is not None:
        ledger.listener.configured()


def _check_group(ledger: Ledger, change: Changed) -> None:
    check_text("a group", change.group)
    check_text("a topic", change.topic)
    if (change.group, change.topic) not in ledger.subscriptions and not ledger.unsettled:
        raise IllegalStep(f"the group {change.group!r} does not take from {change.topic!r}")


def _queues_up_to(ledger: Ledger, change: Changed, count: int, what: str) -> list[Queue]:
    """Return the queue of each (queue, offset) in `change.places`. Raises IllegalStep, whose text
    begins with `what`, if a queue does not exist or ends before offset + count.
    """
    found = []
    for number, offset in change.places:
        queue = ledger.queue_met(change.topic, number)
        if queue is None:
            raise IllegalStep(f"{what} {change.topic}/{number}, which was never made")
        check_number("an offset", offset + count)
        if offset + count > queue.end and queue.is_placed:
            raise IllegalStep(
                f"{what} {change.topic}/{number} up to {offset + count}, beyond its end"
            )
        found.append(queue)
    return found


CHANGES: dict[int, Callable[[Ledger, Changed], None]] = {
    ChangeKind.MAKE_GROUP: _make_group,
    ChangeKind.SEEK: _seek,
    ChangeKind.SKIP: _skip,
    ChangeKind.FILTER: _filter,
    ChangeKind.DELETE_GROUP: _delete_group,
    ChangeKind.ADD_QUEUES: _add_queues,
    ChangeKind.RETAIN: _retain,
    ChangeKind.TRIM: _trim,
    ChangeKind.DELETE_TOPIC: _delete_topic,
    ChangeKind.BEGIN_DEAD: dead_changes.begin,
    ChangeKind.END_DEAD: dead_changes.end,
    ChangeKind.FIRE: _fire,
    ChangeKind.RECALL: _recall,
    ChangeKind.PAUSE: _pause,
    ChangeKind.RESUME: _resume,
    ChangeKind.CONFIGURE: _configure,
    ChangeKind.SCHEDULE: schedule_changes.schedule,
    ChangeKind.DUE: schedule_changes.due,
    ChangeKind.UNSCHEDULE: schedule_changes.unschedule,
    ChangeKind.LIMIT: _limit,
    ChangeKind.CODEC: _codec,
}
