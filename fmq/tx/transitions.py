"""What one durable record changes in the ledger. `apply` (apply.py) calls these for each append.

A record that breaks a rule raises IllegalStep.
"""

from __future__ import annotations

from collections.abc import Callable

from fmq.message import Mark, Origin
from fmq.options import QUEUES_MAX
from fmq.store.extension import EXPIRED_ACKS
from fmq.store.extras import NO_EXTRAS, Extras, has_extras
from fmq.store.id_table import id_keys_of
from fmq.store.kinds import (
    TIMER,
    AckRange,
    Acks,
    Carryover,
    IdsKept,
    Kind,
    MarkChange,
    Prepare,
    Run,
    TopicMade,
    Tried,
)
from fmq.store.latest_run import LATEST_RUN_BYTES_MAX, LatestRun
from fmq.store.pieces import BadColumns
from fmq.tx.carryover import carried_by
from fmq.tx.changes import apply_change
from fmq.tx.ledger import Amount, Entry, Ledger, Queue, Topic
from fmq.tx.state import IllegalStep

OFFSET_MAX = 1 << 63


def publish_run(ledger: Ledger, run: Run, prepared: bytes = b"") -> None:
    """Show the messages of `run`. `prepared` is the extension of the record that it refers to."""
    topic = ledger.topics.get(run.topic)
    if topic is None or run.queue >= len(topic.queues):
        if ledger.queue_met(run.topic, run.queue) is None:
            raise IllegalStep(f"a message for {run.topic}/{run.queue}, which was never made")
        topic = ledger.topics[run.topic]
    queue = topic.queues[run.queue]
    if run.offset != queue.next or not queue.settled:
        queue_begins(queue, run.offset)
    queue.next = run.offset + run.count
    if queue.idle:
        queue.end_idle()
    ledger.index.add(run)
    if run.extension and ledger.id_window is not None:
        ledger.id_window.note_run(ledger.index.ids, id_keys_of(run).keys)
    if run.extension or prepared or queue.spans is not None:
        _extras(ledger, topic, queue, run, prepared or run.extension)
    if topic.waiting:
        _arrived(ledger, topic, queue, run)


def _extras(ledger: Ledger, topic: Topic, queue: Queue, run: Run, extension: bytes) -> None:
    """Note which priorities the messages of `run` have, and when they expire."""
    extras = NO_EXTRAS
    if has_extras(extension):
        try:
            extras = Extras(extension, run.count)
        except BadColumns as error:
            raise IllegalStep(f"extras of {run.topic}/{run.queue}: {error}") from None
    if queue.spans is None and extras.priority_bytes is None and extras.expiries_us is None:
        return
    spans = ledger.spans_of(queue)
    spans.note(queue.first, run.offset, extras, run.count)
    if spans.masks.numbers:
        topic.has_priorities = True


def _arrived(ledger: Ledger, topic: Topic, queue: Queue, run: Run) -> None:
    """Note that consumers are waiting for `run`. They will be handed it from memory."""
    ledger.arrived.add(topic.name)
    content = run.content
    if content is not None and len(content.bodies) <= LATEST_RUN_BYTES_MAX:
        place = topic.name, queue.number, run.position
        origin = Origin(*place, run.time_us, run.tx_id or None, run.producer or None)
        queue.latest = LatestRun(run.offset, content, origin)


def queue_begins(queue: Queue, offset: int) -> None:
    """Let `queue` begin at `offset`; raise IllegalStep if it is known to go on elsewhere."""
    if offset != queue.next:
        if queue.settled:
            raise IllegalStep(
                f"{queue.topic}/{queue.number} continues at offset {offset}, not {queue.next}"
            )
        queue.first = offset
    queue.settled = True


def prepare_applied(ledger: Ledger, prepare: Prepare, runs: list[Run], start: int) -> None:
    """Apply a PREPARE with its `runs`, new or relocated, of an append that begins at `start`."""
    entry = ledger.undecided.pop(prepare.tx, None)
    if entry is None:
        entry = Entry(prepare)
        ledger.undecided_in_all.add(prepare)
        mine = ledger.undecided_of.get(prepare.producer)
        if mine is None:
            mine = ledger.undecided_of[prepare.producer] = Amount()
        mine.add(prepare)
    is_new = entry.prepare is prepare  # else it was relocated
    entry.prepare, entry.runs, entry.start = prepare, runs, start
    ledger.undecided[prepare.tx] = entry
    ledger.by_tx_id[prepare.tx_id] = entry
    for change in prepare.marks:
        ledger.held_marks[change.name] = prepare.tx
    for run in runs:
        if run.extension:
            ledger.held_ids.update(dict.fromkeys(id_keys_of(run).keys, prepare.tx))
    if is_new and ledger.listener is not None:
        ledger.listener.undecided(entry)


def forget(ledger: Ledger, entry: Entry) -> None:
    """Remove a transaction that is no longer undecided."""
    del ledger.undecided[entry.tx]
    del ledger.by_tx_id[entry.prepare.tx_id]
    if ledger.listener is not None:
        ledger.listener.decided(entry)
    prepare = entry.prepare
    for change in prepare.marks:
        del ledger.held_marks[change.name]
    for run in entry.runs:
        if run.extension:
            for key in id_keys_of(run).keys:
                ledger.held_ids.pop(key, None)
    ledger.undecided_in_all.take(prepare)
    mine = ledger.undecided_of[prepare.producer]
    mine.take(prepare)
    if not mine.transactions:
        del ledger.undecided_of[prepare.producer]


def ack_applied(ledger: Ledger, ack: AckRange) -> None:
    if ack.first > ack.end:
        raise IllegalStep(f"an ack from {ack.first} to {ack.end}")
    ledger.subscribe(ack.group, ack.topic)  # an older fmq wrote no CHANGE before it
    key = ack.group, ack.topic, ack.queue
    ledger.acked_of(*key).add(ack.first, ack.end)
    tried = ledger.tried.get(key)
    if tried:
        tried.drop(ack.first, ack.end)
    if ledger.listener is not None:
        ledger.listener.acked(ack)


def mark_applied(ledger: Ledger, change: MarkChange) -> None:
    if change.data is None:
        ledger.marks.pop(change.name, None)
    else:
        ledger.marks[change.name] = Mark(change.value, change.data)


def timer_waits(ledger: Ledger, run: Run) -> None:
    ledger.timers.add(run)
    ledger.index.ids.add_run(run)
    if ledger.id_window is not None:
        ledger.id_window.note_run(ledger.index.ids, id_keys_of(run).keys)


def _acks(ledger: Ledger, acks: Acks) -> None:
    if not acks.tx:  # the acks of a transaction take effect with its COMMIT
        for ack in acks.ranges:
            if acks.extension == EXPIRED_ACKS:
                acked = ledger.acked_of(ack.group, ack.topic, ack.queue)
                subscription = ledger.subscribe(ack.group, ack.topic)
                subscription.expired += acked.count_gaps(ack.first, ack.end)
            ack_applied(ledger, ack)


def _timer(ledger: Ledger, run: Run) -> None:
    if not run.tx:  # those of a transaction take effect with its COMMIT
        timer_waits(ledger, run)


def _tried(ledger: Ledger, record: Tried) -> None:
    for each in record.ranges:
        if each.first >= each.end or each.end > OFFSET_MAX:
            raise IllegalStep(f"tries from {each.first} to {each.end}")
    for group, topic, queue, first, end, count, due_us in record.ranges:
        tried = ledger.tried_of(group, topic, queue)
        for low, high in ledger.acked_of(group, topic, queue).gaps(first, end):
            tried.put(low, high, count, due_us)


def _state(ledger: Ledger, state: Carryover) -> None:
    carried = carried_by(state)
    if carried["floor"] > ledger.index.base:
        raise IllegalStep(f"a STATE that drops its own segment: all below {carried['floor']}")
    for name, ranges in carried["topics"].items():
        for number, (_, after_last) in enumerate(ranges):
            queue = ledger.queue(name, number)
            if queue is not None and queue.settled and queue.next != after_last:
                raise IllegalStep(
                    f"STATE says that {name}/{number} ends at {after_last}, not {queue.next}"
                )
    ledger.carry(carried)
    ledger.unsettled = False


def _ids(ledger: Ledger, kept: IdsKept) -> None:
    ids = ledger.index.ids
    before = len(ids)
    ids.extend(kept.table)
    if ledger.id_window is not None:
        ledger.id_window.note(ids, len(ids) - before)


def topic_applied(ledger: Ledger, made: TopicMade) -> None:
    """Apply a TOPIC record."""
    if not 1 <= made.queues <= QUEUES_MAX:
        raise IllegalStep(f"the topic {made.name!r} is made with {made.queues} queues")
    topic = ledger.topic(made.name, made.queues)
    if topic.made or len(topic.queues) != made.queues:
        raise IllegalStep(f"the topic {made.name!r} is made a second time")
    topic.made = True
    for queue in topic.queues:
        queue.settled = True


# The kinds of records that may stand outside of a transaction.
OUTSIDE: dict[int, Callable[..., None]] = {
    Kind.MESSAGE: publish_run,
    Kind.ACK: _acks,
    Kind.CHANGE: apply_change,
    Kind.TRIED: _tried,
    Kind.STATE: _state,
    Kind.IDS: _ids,
    Kind.TOPIC: topic_applied,
    Kind.TIMER: _timer,
}
EITHER = frozenset((Kind.ACK, TIMER))  # they may also belong to one
