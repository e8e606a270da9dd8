"""The transitions of CHANGE: what it makes of the groups and topics in the ledger.

`tx/transitions` calls `apply_change` for each CHANGE, in a replay and in the running engine.
"""

from __future__ import annotations

from collections.abc import Callable

from fmq.options import QUEUES_MAX
from fmq.store.kinds import Changed, ChangeKind
from fmq.store.timing import Timing
from fmq.tx import dead_letters
from fmq.tx.ledger import Ledger, Queue
from fmq.tx.state import IllegalStep


def apply_change(ledger: Ledger, change: Changed) -> None:
    """Change `ledger` as `change` says; raise IllegalStep if it cannot be where it is."""
    CHANGES[change.asked](ledger, change)
    if ledger.listener is not None:
        ledger.listener.changed(change)


def _make_group(ledger: Ledger, change: Changed) -> None:
    if (change.group, change.topic) in ledger.subscriptions:
        raise IllegalStep(f"the group {change.group!r} of {change.topic!r} is made a second time")
    ledger.subscribe(change.group, change.topic).filter = change.text
    _move(ledger, change)


def _seek(ledger: Ledger, change: Changed) -> None:
    _check_group(ledger, change)
    for number, offset in change.places:
        acked = ledger.acked_of(change.group, change.topic, number)
        low = max(acked.floor, _queue(ledger, change, number).first)
        if offset > low:  # what lies between is passed over, damaged or not
            skipped = acked.count_gaps(low, offset)
            ledger.subscribe(change.group, change.topic).skipped += skipped
    _move(ledger, change)


def _move(ledger: Ledger, change: Changed) -> None:
    for number, offset in change.places:
        queue = _queue(ledger, change, number)
        if offset > queue.next and queue.settled:
            raise IllegalStep(f"a group at {offset} of {queue.topic}/{number}, beyond its end")
        key = change.group, change.topic, number
        ledger.acked_of(*key).move_to(max(offset, queue.first))
        ledger.tried.pop(key, None)


def _skip(ledger: Ledger, change: Changed) -> None:
    _check_group(ledger, change)
    for number, offset in change.places:
        end = offset + change.value
        queue = _queue(ledger, change, number)
        if end > queue.next and queue.settled:
            raise IllegalStep(f"a group skips {queue.topic}/{number} up to {end}, beyond its end")
        acked = ledger.acked_of(change.group, change.topic, number)
        skipped = acked.count_gaps(offset, end)
        acked.add(offset, end)
        ledger.tried_of(change.group, change.topic, number).drop(offset, end)
        ledger.subscribe(change.group, change.topic).skipped += skipped


def _filter(ledger: Ledger, change: Changed) -> None:
    _check_group(ledger, change)
    ledger.subscribe(change.group, change.topic).filter = change.text


def _delete_group(ledger: Ledger, change: Changed) -> None:
    gone = [key for key in ledger.subscriptions if key[0] == change.group]
    if not gone and not ledger.unsettled:
        raise IllegalStep(f"the group {change.group!r}, which does not exist, is deleted")
    for key in gone:
        del ledger.subscriptions[key]
    for place in [key for key in ledger.acked if key[0] == change.group]:
        del ledger.acked[place]
    dead_letters.forget(ledger, change.group)
    for place in [key for key in ledger.tried if key[0] == change.group]:
        del ledger.tried[place]


def _add_queues(ledger: Ledger, change: Changed) -> None:
    topic = ledger.topics.get(change.topic)
    if topic is None and ledger.unsettled:
        return  # STATE says how many there are
    if topic is None or not len(topic.queues) < change.value <= QUEUES_MAX:
        raise IllegalStep(f"the topic {change.topic!r} gets {change.value} queues")
    for number in range(len(topic.queues), change.value):
        topic.queues.append(Queue(topic.name, number))


def _retain(ledger: Ledger, change: Changed) -> None:
    topic = ledger.topics.get(change.topic)
    if topic is not None:
        topic.retain_ms = change.value
    elif not ledger.unsettled:
        raise IllegalStep(f"a change of the topic {change.topic!r}, which was never made")


def _trim(ledger: Ledger, change: Changed) -> None:
    for number, offset in change.places:
        queue = _queue(ledger, change, number)
        if offset > queue.next and queue.settled:
            raise IllegalStep(f"{queue.topic}/{number} begins at {offset}, beyond its end")
        ledger.raise_first(queue, offset)


def _delete_topic(ledger: Ledger, change: Changed) -> None:
    topic = ledger.topics.pop(change.topic, None)
    if topic is None and not ledger.unsettled:
        raise IllegalStep(f"the topic {change.topic!r}, which does not exist, is deleted")
    if topic is not None:
        ledger.awaited.setdefault(topic.name, []).extend(topic.waiting)
        for queue in topic.queues:
            queue.first = queue.next  # who still reads it is told that its messages are gone
    for place in [key for key in ledger.acked if key[1] == change.topic]:
        del ledger.acked[place]
    for place in [key for key in ledger.tried if key[1] == change.topic]:
        del ledger.tried[place]
    ledger.index.forget(change.topic)
    ledger.deleted[change.topic] = change.position


def _fire(ledger: Ledger, change: Changed) -> None:
    for _, number in change.places:
        ledger.timers.fire(number, change.time_us)


def _recall(ledger: Ledger, change: Changed) -> None:
    for _, number in change.places:
        ledger.timers.recall(Timing(change.value, number))


def _check_group(ledger: Ledger, change: Changed) -> None:
    if (change.group, change.topic) not in ledger.subscriptions and not ledger.unsettled:
        raise IllegalStep(f"the group {change.group!r} does not take from {change.topic!r}")


def _queue(ledger: Ledger, change: Changed, number: int) -> Queue:
    queue = ledger.queue_met(change.topic, number)
    if queue is None:
        raise IllegalStep(f"a change of {change.topic}/{number}, which was never made")
    return queue


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
    ChangeKind.BEGIN_DEAD: dead_letters.begin,
    ChangeKind.END_DEAD: dead_letters.end,
    ChangeKind.FIRE: _fire,
    ChangeKind.RECALL: _recall,
}
