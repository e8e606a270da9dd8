"""The transitions: how a durable append changes the ledger, in a replay and in the running engine.

`apply` takes a whole append. Of a transaction, only COMMIT publishes anything: the runs and acks
before it in the same append take effect when COMMIT is reached, and never without it.

A sound record can still break a rule, and each rule is checked here by raising IllegalStep. In a
replay it means that the directory was damaged or mixed up, and recovery stops there. The running
engine makes the Step of each transaction's append before the append is written. So it never writes
a transaction that recovery would refuse. Offsets and topics are given out by the frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fmq.message import Mark, Origin
from fmq.options import QUEUES_MAX
from fmq.store.extension import EXPIRED_ACKS, request_in
from fmq.store.extras import NO_EXTRAS, Extras, has_extras
from fmq.store.id_table import id_keys_of
from fmq.store.index import SegmentIndex
from fmq.store.kinds import (
    COMMIT,
    PRE_MESSAGE,
    TIMER,
    AckRange,
    Acks,
    Carryover,
    Changed,
    ChangeKind,
    Decided,
    IdsKept,
    Kind,
    MarkChange,
    Marks,
    Prepare,
    Record,
    Run,
    TopicMade,
    Tried,
)
from fmq.store.latest_run import LATEST_RUN_BYTES_MAX, LatestRun
from fmq.store.pieces import BadColumns
from fmq.tx.carryover import check_carried, from_json
from fmq.tx.changes import CHANGES, apply_change
from fmq.tx.ledger import Amount, Entry, Ledger, Queue, Topic
from fmq.tx.seal import seal_of
from fmq.tx.state import NEXT, IllegalStep, after
from fmq.tx.state import State as TxState

OFFSET_MAX = 1 << 63
ABSENT, UNDECIDED = TxState.ABSENT, TxState.UNDECIDED


def apply(ledger: Ledger, append: Sequence[Record], step: Step | None = None) -> None:
    """Change `ledger` as `append` says.

    `step` is the Step of the append, if it was made and checked before the append was written.
    """
    for record in append:
        kind = record.kind
        if record.extension:
            _extension(ledger, record)
        if kind in OUTSIDE:
            OUTSIDE[kind](ledger, record)
        elif step is None:
            step = Step(ledger, append)
    if step is not None:
        step.change(ledger, append[0].position)
    if record.time_us > ledger.last_us:
        ledger.last_us = record.time_us
    ledger.applied_upto = ledger.index.end = record.position + (record.size + 7 & ~7)


class Step:
    """The change that one append makes to its transaction.

    Making a Step raises IllegalStep if the state of the transaction does not allow the change. It
    changes nothing; `change` does.
    """

    __slots__ = ("acks", "decided", "entry", "marks", "messages", "prepare", "runs", "state", "tx")

    def __init__(self, ledger: Ledger, append: Sequence[Record]) -> None:
        self.tx = 0
        self.entry: Entry | None = None
        self.state = ABSENT
        self.prepare: Prepare | None = None
        self.runs: list[Run] = []
        self.messages = 0
        self.acks: list[AckRange] = []
        self.marks: tuple[MarkChange, ...] = ()
        self.decided: Decided | None = None
        run_kind = 0
        for record in append:
            kind = record.kind
            if kind == run_kind and record.tx == self.tx:  # type: ignore[union-attr]
                self._add(record)  # type: ignore[arg-type]
            elif kind not in OUTSIDE or (kind in EITHER and record.tx):  # type: ignore[union-attr]
                self._advance(ledger, record)  # type: ignore[arg-type]
                TAKE[type(record)](self, ledger, record)
                # One more run of the same kind changes no state.
                run_kind = kind if type(record) is Run else 0
        if self.prepare is not None and self.state is UNDECIDED:
            self._check_sealed(self.prepare)
            self.prepare.marks = self.marks
        elif self.marks and self.decided is None:
            raise IllegalStep("marks without a PREPARE or COMMIT")

    def _advance(self, ledger: Ledger, record: Prepare | Run | Decided | Acks | Marks) -> None:
        tx, kind = record.tx, record.kind
        if tx != self.tx:
            if self.tx:
                raise IllegalStep(f"an append about two transactions, {self.tx} and {tx}")
            self.tx = tx
            self.entry = ledger.undecided.get(tx)
            if self.entry is not None:
                self.state = self.entry.state
            elif tx < ledger.known_from:
                self.state = UNDECIDED  # its PREPARE was in a segment that retention has dropped
            elif tx != record.position and kind != Kind.PREPARE:
                raise IllegalStep(
                    f"{Kind(kind).name} cannot follow absent: {tx} was never prepared, and begins "
                    "in one phase only with the record at that position"
                )
        self.state = NEXT.get((self.state, kind)) or after(self.state, kind)

    def _add(self, run: Run) -> None:
        self.runs.append(run)
        self.messages += run.count

    def take_run(self, ledger: Ledger, run: Run) -> None:
        """Hold a run until the end of the append."""
        if run.kind == PRE_MESSAGE and self.prepare is None:
            raise IllegalStep("a PRE_MESSAGE outside of its PREPARE's append")
        self._add(run)

    def take_acks(self, ledger: Ledger, acks: Acks) -> None:
        """Hold acks until the end of the append."""
        self.acks += acks.ranges

    def take_marks(self, ledger: Ledger, marks: Marks) -> None:
        """Hold marks until the end of the append."""
        if self.marks:
            raise IllegalStep("a second MARK of one transaction")
        self.marks = marks.changes

    def take_prepare(self, ledger: Ledger, prepare: Prepare) -> None:
        """Check what a PREPARE says about its transaction; its messages come after it."""
        if prepare.replaces:
            if self.entry is not None and self.entry.prepare.position != prepare.replaces:
                raise IllegalStep(
                    f"a relocation of the PREPARE at {prepare.replaces}, not the newest"
                )
            if self.entry is None and prepare.tx >= ledger.known_from:
                raise IllegalStep("a relocation of a transaction that is not undecided")
        elif prepare.tx != prepare.position:
            raise IllegalStep(f"a PREPARE at {prepare.position} with the number {prepare.tx}")
        elif prepare.tx_id in ledger.by_tx_id:
            raise IllegalStep(f"a second PREPARE of the undecided {prepare.tx_id!r}")
        self.prepare = prepare

    def _check_sealed(self, prepare: Prepare) -> None:
        """Check that all messages that a PREPARE states follow it, and that its seal fits them."""
        if self.messages != prepare.messages or len(self.runs) != prepare.records:
            raise IllegalStep(
                f"{self.messages} messages prepared where {prepare.messages} were stated"
            )
        if seal_of(self.runs) != prepare.seal:
            raise IllegalStep("the seal does not match what was prepared")

    def take_decided(self, ledger: Ledger, decided: Decided) -> None:
        """Check that COMMIT or ROLLBACK fits what was prepared, and covers all of it."""
        stated = self.entry.prepare if self.entry is not None else self.prepare
        if stated is not None and (stated.seal != decided.seal or stated.tx_id != decided.tx_id):
            raise IllegalStep(f"a decision for {decided.tx_id!r} that does not fit its PREPARE")
        if self.prepare is not None:
            self._check_sealed(self.prepare)
        if decided.kind == COMMIT:
            self._check_complete(decided, stated)
            if stated is None and decided.tx >= ledger.known_from:
                # In one phase there is no PREPARE. COMMIT itself states and seals its runs.
                if decided.tx_id in ledger.by_tx_id:
                    raise IllegalStep(f"a COMMIT in one phase of the undecided {decided.tx_id!r}")
                if seal_of(self.runs) != decided.seal:
                    raise IllegalStep("the seal does not match what is committed")
        self.decided = decided

    def _check_complete(self, decided: Decided, stated: Prepare | None) -> None:
        """Check that a COMMIT publishes and acks all that was prepared."""
        records, messages = len(self.runs), self.messages
        if records != decided.records or messages != decided.messages:
            raise IllegalStep("a COMMIT that does not publish what was prepared")
        if stated is not None:
            published = records, messages, tuple(self.acks), self.marks
            if published != (stated.records, stated.messages, stated.acks, stated.marks):
                raise IllegalStep("a COMMIT of something else than what its PREPARE stated")

    def change(self, ledger: Ledger, start: int) -> None:
        """Apply the change to `ledger`. The append begins at `start`."""
        decided, entry = self.decided, self.entry
        if decided is None:
            if self.prepare is not None and self.state is UNDECIDED:
                prepare_applied(ledger, self.prepare, self.runs, start)
            return
        if entry is not None:
            forget(ledger, entry)
            entry.state = self.state
        if decided.kind == COMMIT:
            said = {} if entry is None else {pre.position: pre.extension for pre in entry.runs}
            for run in self.runs:
                if run.kind == TIMER:
                    _timer_waits(ledger, run)
                else:
                    publish_run(ledger, run, said.get(run.body_position, b""))
            for ack in self.acks:
                ack_applied(ledger, ack)
            for change in self.marks:
                mark_applied(ledger, change)
        elif entry is not None and ledger.listener is not None:
            for ack in entry.prepare.acks:
                ledger.listener.freed(ack)
        ledger.index.add_outcome(decided)


TAKE: dict[type, Callable[..., None]] = {
    Run: Step.take_run,
    Prepare: Step.take_prepare,
    Decided: Step.take_decided,
    Acks: Step.take_acks,
    Marks: Step.take_marks,
}


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


def _tried(ledger: Ledger, record: Tried) -> None:
    for each in record.ranges:
        if each.first >= each.end or each.end > OFFSET_MAX:
            raise IllegalStep(f"tries from {each.first} to {each.end}")
    for group, topic, queue, first, end, count, due_us in record.ranges:
        tried = ledger.tried_of(group, topic, queue)
        for low, high in ledger.acked_of(group, topic, queue).gaps(first, end):
            tried.put(low, high, count, due_us)


def mark_applied(ledger: Ledger, change: MarkChange) -> None:
    if change.data is None:
        ledger.marks.pop(change.name, None)
    else:
        ledger.marks[change.name] = Mark(change.value, change.data)


def floor_of(state: Carryover) -> int:
    """Return the floor that `state` carries, or 0. No record below it is kept."""
    try:
        return int(_carried_by(state)["floor"])
    except (ValueError, RecursionError):
        return 0


def _carried_by(state: Carryover) -> dict[str, Any]:
    return check_carried(from_json(state.json))


def _state(ledger: Ledger, state: Carryover) -> None:
    carried = _carried_by(state)
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


def _extension(ledger: Ledger, record: Record) -> None:
    """Note the request of a client that `record` carries out, if it names one."""
    request = request_in(record.extension)
    if request is not None:
        ledger.requests.note(request, record)


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
        _timer_waits(ledger, run)


def _timer_waits(ledger: Ledger, run: Run) -> None:
    ledger.timers.add(run)
    ledger.index.ids.add_run(run)
    if ledger.id_window is not None:
        ledger.id_window.note_run(ledger.index.ids, id_keys_of(run).keys)


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


def collect(ledger: Ledger, append: Sequence[Record]) -> None:
    """Apply only what may still be undecided. The checkpoint holds everything else of `append`."""
    prepare: Prepare | None = None
    runs: list[Run] = []
    for record in append:
        if isinstance(record, Prepare):
            prepare = record
        elif isinstance(record, Run):
            if record.kind == PRE_MESSAGE:
                runs.append(record)
        elif isinstance(record, Marks):
            if prepare is not None:
                prepare.marks = record.changes
        elif isinstance(record, Decided):
            entry = ledger.undecided.get(record.tx)
            if entry is not None:
                forget(ledger, entry)
            prepare = None
    if prepare is not None:
        prepare_applied(ledger, prepare, runs, append[0].position)


def apply_to_timers(ledger: Ledger, append: Sequence[Record]) -> None:
    """Apply only what waits for its time. The checkpoint holds everything else of `append`."""
    is_committed = append[-1].kind == COMMIT
    for record in append:
        if isinstance(record, Run):
            if record.kind == TIMER and (is_committed or not record.tx):
                ledger.timers.add(record)
        elif isinstance(record, Changed) and record.asked in (ChangeKind.FIRE, ChangeKind.RECALL):
            CHANGES[record.asked](ledger, record)


def apply_to_index(index: SegmentIndex, append: Sequence[Record]) -> None:
    """Apply only what the index of a segment says of `append`.

    `apply` does the same to the index of its ledger. This is for an append that was applied before.
    """
    published: list[Run] = []
    for record in append:
        if isinstance(record, Run):
            if record.kind == Kind.MESSAGE:
                index.add(record)
            elif record.kind == TIMER and not record.tx:
                index.ids.add_run(record)
            elif record.kind != PRE_MESSAGE:
                published.append(record)
        elif isinstance(record, Changed):
            if record.asked == ChangeKind.DELETE_TOPIC:
                index.forget(record.topic)
        elif isinstance(record, IdsKept):
            index.ids.extend(record.table)
        elif isinstance(record, Decided):
            if record.kind == COMMIT:
                for run in published:
                    if run.kind == TIMER:
                        index.ids.add_run(run)
                    else:
                        index.add(run)
            index.add_outcome(record)
    last = append[-1]
    index.end = last.position + (last.size + 7 & ~7)
