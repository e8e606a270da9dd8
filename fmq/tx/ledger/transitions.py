"""What each kind of record changes in the ledger. `apply` (apply.py) calls these functions.

A record that breaks a rule raises IllegalStep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fmq.arguments.options import QUEUES_MAX
from fmq.basics.message import Origin
from fmq.store.bytes.columns import COUNT_MAX
from fmq.store.bytes.extension import EXPIRED_ACKS
from fmq.store.bytes.extras import NO_EXTRAS, Extras, has_extras
from fmq.store.bytes.kinds import (
    COMMIT,
    TIMER,
    AckRange,
    Acks,
    Carryover,
    Decided,
    Hole,
    IdsKept,
    Joint,
    Kind,
    Prepare,
    Run,
    TopicMade,
    Tried,
    TriedRange,
)
from fmq.store.bytes.pieces import BadColumns
from fmq.store.index.id_table import id_keys_of
from fmq.store.reading.latest_run import LATEST_RUN_BYTES_MAX, LatestRun
from fmq.tx.ledger.carryover import (
    NUMBER_MAX,
    carried_by,
    carry,
    check_number,
    check_place,
    check_queue,
    check_text,
)
from fmq.tx.ledger.changes import apply_change
from fmq.tx.ledger.erasure_step import erased
from fmq.tx.ledger.ledger import Amount, Entry, Ledger
from fmq.tx.ledger.queues import Queue
from fmq.tx.ledger.state import IllegalStep


def publish_run(ledger: Ledger, run: Run, prepared: bytes = b"") -> None:
    """Publish the messages of `run`. If it is a reference, `prepared` is the extension of the
    PRE_MESSAGE that it refers to.
    """
    queue: Queue = run.target or _queue_met(ledger, run)
    said = prepared or run.extension
    extras = _extras_of(run, said) if said else NO_EXTRAS
    offset = run.offset
    if offset != queue.end or not queue.is_placed:
        queue_begins(queue, offset)
    queue.lane = ledger.index.add(run, queue.lane)
    queue.end = offset + run.count
    ledger.shows.append((run.position, queue, run))
    if said or queue.spans is not None:
        _note_extras(ledger, queue, run, extras)


def _queue_met(ledger: Ledger, run: Run) -> Queue:
    """Return the queue of a run in a replay, where no plan has set it. Raises IllegalStep."""
    queue = ledger.queue_met(run.topic, run.queue)
    if queue is None:
        raise IllegalStep(f"a message for {run.topic}/{run.queue}, which was never made")
    return queue


def _extras_of(run: Run, said: bytes) -> Extras:
    """Return the extras that the extension `said` gives for `run`. Raises IllegalStep."""
    if not has_extras(said):
        return NO_EXTRAS
    try:
        return Extras(said, run.count)
    except BadColumns as error:
        raise IllegalStep(f"extras of {run.topic}/{run.queue}: {error}") from None


def show(ledger: Ledger, upto: int) -> None:
    """Show what was applied below `upto`, which is durable now: tell readers and listeners."""
    shows = ledger.shows
    while shows and shows[0][0] < upto:
        _, shown, what = shows.popleft()
        if type(shown) is not Queue:  # a function: one of the listener, or of an entry
            shown(what)
            continue
        queue: Queue = shown
        queue.next = what.offset + what.count
        if queue.idle:
            queue.end_idle()
        if queue.owner.waiting:
            _arrived(ledger, queue, what)
    ledger.shown_to = upto


def _note_extras(ledger: Ledger, queue: Queue, run: Run, extras: Extras) -> None:
    """Note the ids of the messages of `run`, their priorities, and when they expire."""
    if run.extension and ledger.id_window is not None:
        ledger.id_window.note_run(ledger.index.ids, id_keys_of(run).keys)
    if queue.spans is None and extras.priority_bytes is None and extras.expiries_us is None:
        return
    spans = ledger.spans_of(queue)
    spans.note(queue.first, run.offset, extras, run.count)
    if spans.masks.numbers:
        queue.owner.has_priorities = True


def _arrived(ledger: Ledger, queue: Queue, run: Run) -> None:
    """Note that consumers wait for `run`. They will get it from memory."""
    ledger.arrived.add(queue.topic)
    if run.bodies is not None and len(run.bodies) <= LATEST_RUN_BYTES_MAX:
        place = queue.topic, queue.number, run.position
        origin = Origin(*place, run.time_us, run.tx_id or None, run.producer or None)
        queue.latest = LatestRun(run, origin)


def queue_begins(queue: Queue, offset: int) -> None:
    """Let `queue` begin at `offset`. Raises IllegalStep if the queue is known to have
    another end.
    """
    if offset != queue.end:
        check_number("an offset", offset, 0, NUMBER_MAX - COUNT_MAX)
        if queue.is_placed or offset < queue.end:
            raise IllegalStep(
                f"{queue.topic}/{queue.number} continues at offset {offset}, not {queue.end}"
            )
        # After a HOLE the offsets between are lost, and the index says so when they are read.
        if not queue.end:
            queue.first = offset
    queue.is_placed = True


def prepare_applied(ledger: Ledger, prepare: Prepare, runs: list[Run], start: int) -> None:
    """Apply a PREPARE, new or relocated, with its `runs`. Its append begins at `start`."""
    entry = ledger.undecided.pop(prepare.tx, None)
    if entry is None:
        entry = Entry(prepare)
        ledger.undecided_in_all.add(prepare)
        mine = ledger.undecided_of.get(prepare.producer)
        if mine is None:
            mine = ledger.undecided_of[prepare.producer] = Amount()
        mine.add(prepare)
    is_new = entry.prepare is prepare  # an entry that existed before is relocated
    entry.prepare, entry.runs, entry.start = prepare, runs, start
    ledger.undecided[prepare.tx] = entry
    ledger.by_tx_id[prepare.tx_id] = entry
    for change in prepare.marks:
        ledger.held_marks[change.name] = prepare.tx
    for run in runs:
        if run.extension:
            ledger.held_ids.update(dict.fromkeys(id_keys_of(run).keys, prepare.tx))
    if is_new and ledger.listener is not None:
        ledger.shows.append((ledger.end, ledger.listener.undecided, entry))


def forget(ledger: Ledger, entry: Entry) -> None:
    """Remove a transaction that was decided from the undecided ones."""
    del ledger.undecided[entry.tx]
    del ledger.by_tx_id[entry.prepare.tx_id]
    ledger.decided_at = ledger.end
    if ledger.listener is not None:
        ledger.shows.append((ledger.end, ledger.listener.decided, entry))
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


def check_acks(ledger: Ledger, ranges: Iterable[AckRange]) -> None:
    """Raise IllegalStep if one of the ranges cannot be acked."""
    for ack in ranges:
        if not ack.group or ack.first > ack.end:
            raise IllegalStep(f"an ack from {ack.first} to {ack.end} of {ack.group!r}")
        # In a replay, the messages of the ack may have been dropped.
        if ledger.is_live:
            try:
                end = ledger.topics[ack.topic].queues[ack.queue].end
            except LookupError:
                end = -1
            if ack.end > end:
                raise IllegalStep(f"an ack of {ack.topic}/{ack.queue} up to {ack.end}")
        else:
            check_queue(ack.topic, ack.queue)
            check_number("the end of an ack", ack.end)


def ack_applied(ledger: Ledger, ack: AckRange) -> None:
    """Apply an ack that `check_acks` has passed."""
    ledger.acked_at = ledger.end
    group, topic, first, end = ack.group, ack.topic, ack.first, ack.end
    subscription = ledger.subscriptions.get((group, topic))
    if subscription is None:
        # An older fmq wrote no CHANGE that makes the subscription.
        subscription = ledger.subscribe(group, topic)
    subscription.acked += end - first
    key = group, topic, ack.queue
    acked = ledger.acked.get(key) or ledger.acked_of(*key)
    acked.add(first, end)
    tried = ledger.tried.get(key)
    if tried is not None:
        tried.drop(first, end)
    if ledger.listener is not None:
        ledger.listener.acked(ack)


def timer_waits(ledger: Ledger, run: Run) -> None:
    check_queue(run.topic, run.queue)
    check_number("an offset", run.offset)
    ledger.timers.add(run)
    ledger.timers.changed_at = ledger.end
    ledger.index.ids.add_run(run)
    if ledger.id_window is not None:
        ledger.id_window.note_run(ledger.index.ids, id_keys_of(run).keys)


def _acks(ledger: Ledger, acks: Acks) -> None:
    check_acks(ledger, acks.ranges)
    for ack in acks.ranges:
        if acks.extension == EXPIRED_ACKS:
            acked = ledger.acked_of(ack.group, ack.topic, ack.queue)
            subscription = ledger.subscribe(ack.group, ack.topic)
            subscription.expired += acked.count_gaps(ack.first, ack.end)
        ack_applied(ledger, ack)


def _tried(ledger: Ledger, record: Tried) -> None:
    for each in record.ranges:
        check_place(each.group, each.topic, each.queue)
        if not each.first < each.end < NUMBER_MAX:
            raise IllegalStep(f"tries from {each.first} to {each.end}")
    tries_applied(ledger, record.ranges)


def tries_applied(ledger: Ledger, ranges: Iterable[TriedRange]) -> None:
    """Apply attempts, of a TRIED or of the page ATTEMPTS."""
    for group, topic, queue, first, end, count, due_us in ranges:
        key = group, topic, queue
        tried, acked = ledger.tried.get(key), ledger.acked.get(key) or ledger.acked_of(*key)
        if tried is None:
            tried = ledger.tried_of(*key)
        for low, high in acked.gaps(first, end):
            tried.put(low, high, count, due_us)


def _state(ledger: Ledger, state: Carryover) -> None:
    try:
        carried = carried_by(state)
    except (ValueError, RecursionError) as error:
        raise IllegalStep(f"a STATE of an unknown shape: {error}") from None
    if carried["floor"] > ledger.index.base:
        raise IllegalStep(f"a STATE that drops its own segment: all below {carried['floor']}")
    for name, ranges in carried["topics"].items():
        if name in ledger.topics and len(ranges) < len(ledger.topics[name].queues):
            raise IllegalStep(f"STATE says that {name} has {len(ranges)} queues, not more")
        for number, (_, after_last) in enumerate(ranges):
            queue = ledger.queue(name, number)
            if queue is not None and queue.is_placed and queue.end != after_last:
                raise IllegalStep(
                    f"STATE says that {name}/{number} ends at {after_last}, not {queue.end}"
                )
    if ledger.unsettled:
        _forget_others(ledger, carried)
    carry(ledger, carried)
    ledger.unsettled = False


def _forget_others(ledger: Ledger, carried: dict[str, Any]) -> None:
    """Forget what a STATE does not name: the records that removed it are missing."""
    groups = {(group, topic) for group, topic, *_ in carried.get("groups", ledger.subscriptions)}
    for of_group in (ledger.acked, ledger.tried):
        for key in [key for key in of_group if key[:2] not in groups]:
            del of_group[key]
    for subscription in ledger.subscriptions.keys() - groups:
        del ledger.subscriptions[subscription]
    for mark in ledger.marks.keys() - carried.get("marks", ledger.marks).keys():
        del ledger.marks[mark]
    for topic in ledger.topics.keys() - carried["topics"].keys():
        del ledger.topics[topic]
        ledger.index.forget(topic)


def _ids(ledger: Ledger, kept: IdsKept) -> None:
    ids = ledger.index.ids
    before = len(ids)
    ids.extend(kept.table)
    if ledger.id_window is not None:
        ledger.id_window.note(ids, len(ids) - before)


def _hole(ledger: Ledger, hole: Hole) -> None:
    """Note that records are missing. As at the beginning of a journal whose first segments were
    dropped, what follows may need them, and the next STATE says what is left.
    """
    if ledger.is_live:
        raise IllegalStep("a hole, which only a salvage writes")
    ledger.unsettled = True
    end = hole.position + hole.size
    ledger.known_from = max(ledger.known_from, end)
    ledger.timers.known_from = max(ledger.timers.known_from, end)
    for topic in ledger.topics.values():
        for queue in topic.queues:
            queue.is_placed = False


def topic_applied(ledger: Ledger, made: TopicMade) -> None:
    """Apply a TOPIC record."""
    if not 1 <= made.queues <= QUEUES_MAX:
        raise IllegalStep(f"the topic {made.topic!r} is made with {made.queues} queues")
    check_text("a topic", made.topic)
    topic = ledger.topic(made.topic, made.queues)
    if topic.has_record or len(topic.queues) != made.queues:
        raise IllegalStep(f"the topic {made.topic!r} is made a second time")
    topic.has_record = True
    ledger.changed_at = ledger.end
    for queue in topic.queues:
        queue.is_placed = True


def joint_applied(ledger: Ledger, joint: Joint) -> None:
    """Apply a JOINT: its mark moves, and its endings must follow.

    Once it is durable, its transactions are decided. Nothing comes between it and its last ending:
    the engine plans all of them in one step. After a crash some may be missing. Then an opening
    writes them before anything else, and other readers show nothing from the JOINT on.
    """
    numbers = joint.transactions
    if (
        joint.decision not in (COMMIT, Kind.ROLLBACK)
        or not numbers
        or len(set(numbers)) < len(numbers)
    ):
        raise IllegalStep(f"a joint decision {joint.decision} over {len(numbers)} transactions")
    for tx in numbers:
        # Retention may have dropped the PREPARE of one that was decided.
        if tx not in ledger.undecided and (ledger.is_live or tx >= ledger.known_from):
            raise IllegalStep(f"a joint decision over {tx}, which is not undecided")
    for change in joint.marks:
        check_text("a mark", change.name)
    for change in joint.marks:
        ledger.set_mark(change)
    ledger.joint, ledger.endings_left = joint, len(numbers)


def check_ending(ledger: Ledger, append: Sequence[Any]) -> None:
    """Count `append`, the next ending of the joint decision. Raises IllegalStep if it is not."""
    joint, left = ledger.joint, ledger.endings_left
    assert joint is not None
    decided = append[-1]
    if decided.kind == Kind.HOLE:  # what a salvage has left out may have been the endings
        ledger.endings_left = 0
        return
    due = joint.transactions[-left]
    if type(decided) is not Decided or decided.kind != joint.decision or decided.tx != due:
        raise IllegalStep(f"{left} endings of a joint decision have to follow, first {due}")
    ledger.endings_left = left - 1


# Kinds that belong to no transaction, each with its transition.
OUTSIDE: dict[int, Callable[..., None]] = {
    Kind.MESSAGE: publish_run,
    Kind.CHANGE: apply_change,
    Kind.TRIED: _tried,
    Kind.STATE: _state,
    Kind.IDS: _ids,
    Kind.TOPIC: topic_applied,
    Kind.HOLE: _hole,
    Kind.ERASE: erased,
    Kind.JOINT: joint_applied,
}
# Kinds that may belong to a transaction. If they do, they take effect with its COMMIT.
EITHER: dict[int, Callable[..., None]] = {Kind.ACK: _acks, TIMER: timer_waits}
