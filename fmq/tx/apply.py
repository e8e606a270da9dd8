"""What a durable append changes in memory: all of a replay, and what runs but for the usual.

Sends, acks and transactions of a running engine go straight (`straight.py`); tests hold that they
change what a replay of them changes. `apply` takes whole appends, so COMMIT alone publishes: the
runs and acks before it in the same append are held until it is met, and nothing without it.

Every rule that a sound record could break is checked here, and breaking one is IllegalStep:
in a replay it means that the directory was damaged or mixed up, in a running engine a defect
of ours. Nothing is applied of an append that is refused for its first records, and recovery
stops at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fmq.bounds import QUEUES_MAX
from fmq.store.kinds import (
    COMMIT,
    MESSAGE,
    PRE_MESSAGE,
    AckRange,
    Acks,
    Decided,
    Kind,
    Prepare,
    Record,
    Run,
    State,
    TopicMade,
)
from fmq.store.record import aligned
from fmq.tx.carried import check_carried, from_json
from fmq.tx.drafts import Draft
from fmq.tx.ledger import Amount, Entry, Ledger, Queue
from fmq.tx.seal import seal_of
from fmq.tx.state import NEXT, IllegalStep, after
from fmq.tx.state import State as TxState

ACK, PREPARE = Kind.ACK, Kind.PREPARE
ABSENT, UNDECIDED = TxState.ABSENT, TxState.UNDECIDED


def apply(ledger: Ledger, append: Sequence[Record]) -> None:
    """Let memory say what the journal says, `append` included."""
    held: _Held | None = None
    for record in append:
        kind = record.kind
        if kind == MESSAGE:
            _publish(ledger, record)  # type: ignore[arg-type]
        elif held is not None and kind == held.kind and record.tx == held.tx:  # type: ignore[union-attr]
            held.add(record)  # type: ignore[arg-type]
        elif kind == ACK and not record.tx:  # type: ignore[union-attr]
            for ack in record.ranges:  # type: ignore[union-attr]
                ack_applied(ledger, ack)
        else:
            if held is None:
                held = _Held()
            APPLY[type(record)](ledger, record, held)
    if held is not None and held.open is not None and held.state is UNDECIDED:
        _undecided(ledger, held, append[0].position)
    if record.time_us > ledger.last_us:
        ledger.last_us = record.time_us
    ledger.applied_upto = ledger.index.end = record.position + aligned(record.size)


class _Held:
    """What an append has said so far of the one transaction that it is about."""

    __slots__ = ("acks", "entry", "kind", "messages", "open", "runs", "state", "tx")

    def __init__(self) -> None:
        self.tx = 0
        self.entry: Entry | None = None
        self.state = ABSENT
        self.open: Prepare | None = None  # a PREPARE of this append
        self.kind = 0  # of the runs; one more of them changes no state
        self.runs: list[Run] = []
        self.messages = 0
        self.acks: list[AckRange] = []

    def step(self, ledger: Ledger, record: Prepare | Run | Decided | Acks) -> None:
        tx, kind = record.tx, record.kind
        if tx != self.tx:
            if self.tx:
                raise IllegalStep(f"an append about two transactions, {self.tx} and {tx}")
            self.tx = tx
            self.entry = ledger.undecided.get(tx)
            if self.entry is not None:
                self.state = self.entry.state
            elif tx < ledger.known_from:
                self.state = UNDECIDED  # prepared before what is left of the journal
            elif tx != record.position and kind != PREPARE:
                raise IllegalStep(
                    f"{Kind(kind).name} cannot follow absent: {tx} was never prepared, and begins "
                    "in one phase only with the record at that position"
                )
        self.kind = 0
        self.state = NEXT.get((self.state, kind)) or after(self.state, kind)

    def add(self, run: Run) -> None:
        self.runs.append(run)
        self.messages += run.count


def _publish(ledger: Ledger, run: Run) -> None:
    topic = ledger.topics.get(run.topic)
    if topic is None or run.queue >= len(topic.queues):
        if ledger.queue_met(run.topic, run.queue) is None:
            raise IllegalStep(f"a message for {run.topic}/{run.queue}, which was never made")
        topic = ledger.topics[run.topic]
    queue = topic.queues[run.queue]
    if run.offset != queue.next or not queue.settled:
        queue_begins(queue, run.offset)
    queue.next = run.offset + run.count
    if queue.next > queue.assigned:
        queue.assigned = queue.next
    ledger.index.add(run)
    if topic.waiting:
        ledger.arrived.add(run.topic)


def queue_begins(queue: Queue, offset: int) -> None:
    """Messages from `offset` on are the first that are met of `queue`, or IllegalStep."""
    if offset != queue.next:
        if queue.settled:
            raise IllegalStep(
                f"{queue.topic}/{queue.number} continues at offset {offset}, not {queue.next}"
            )
        queue.first = offset
    queue.settled = True


def _tx_run(ledger: Ledger, run: Run, held: _Held) -> None:
    held.step(ledger, run)
    if run.kind == PRE_MESSAGE and held.open is None:
        raise IllegalStep("a PRE_MESSAGE outside of its PREPARE's append")
    held.kind = run.kind
    held.add(run)


def _prepare(ledger: Ledger, prepare: Prepare, held: _Held) -> None:
    held.step(ledger, prepare)
    if prepare.replaces:
        if held.entry is not None and held.entry.prepare.position != prepare.replaces:
            raise IllegalStep(f"a relocation of the PREPARE at {prepare.replaces}, not the newest")
        if held.entry is None and prepare.tx >= ledger.known_from:
            raise IllegalStep("a relocation of a transaction that is not undecided")
    elif prepare.tx != prepare.position:
        raise IllegalStep(f"a PREPARE at {prepare.position} with the number {prepare.tx}")
    elif prepare.tx_id in ledger.by_tx_id:
        raise IllegalStep(f"a second PREPARE of the undecided {prepare.tx_id!r}")
    held.open = prepare


def _check_sealed(prepare: Prepare, held: _Held) -> None:
    """Behind a PREPARE either all of it follows and is sealed, or the append is refused."""
    if held.messages != prepare.messages or len(held.runs) != prepare.records:
        raise IllegalStep(f"{held.messages} messages prepared where {prepare.messages} were stated")
    if seal_of(held.runs) != prepare.seal:
        raise IllegalStep("the seal does not match what was prepared")


def _undecided(ledger: Ledger, held: _Held, start: int) -> None:
    """The append was a PREPARE and its messages, and no decision."""
    prepare = held.open
    assert prepare is not None
    _check_sealed(prepare, held)
    prepare_applied(ledger, prepare, held.runs, start)


def prepare_applied(ledger: Ledger, prepare: Prepare, what: Draft | list[Run], start: int) -> None:
    """All of `what` is prepared, or written again, by an append that begins at `start`."""
    entry = ledger.undecided.pop(prepare.tx, None)
    if entry is None:
        entry = Entry(prepare)
        ledger.undecided_in_all.add(prepare)
        mine = ledger.undecided_of.get(prepare.producer)
        if mine is None:
            mine = ledger.undecided_of[prepare.producer] = Amount()
        mine.add(prepare)
    is_new = entry.prepare is prepare  # and not written again
    entry.prepared(prepare, what, start)
    entry.busy = entry.moving = False
    ledger.undecided[prepare.tx] = entry
    ledger.by_tx_id[prepare.tx_id] = entry
    if is_new and ledger.on_undecided is not None:
        ledger.on_undecided(entry)


def _decided(ledger: Ledger, decided: Decided, held: _Held) -> None:
    held.step(ledger, decided)
    entry = held.entry
    stated = entry.prepare if entry is not None else held.open
    if stated is not None and (stated.seal != decided.seal or stated.tx_id != decided.tx_id):
        raise IllegalStep(f"a decision for {decided.tx_id!r} that does not fit its PREPARE")
    if held.open is not None:
        _check_sealed(held.open, held)
    if decided.kind == COMMIT:
        _check_complete(decided, stated, held)
        if stated is None and decided.tx >= ledger.known_from:
            _check_one_phase(ledger, decided, held)
    if entry is not None:
        forget(ledger, entry)
    if decided.kind == COMMIT:
        for run in held.runs:
            _publish(ledger, run)
        for ack in held.acks:
            ack_applied(ledger, ack)
    elif entry is not None and ledger.on_free is not None:
        for ack in entry.prepare.acks:
            ledger.on_free(ack)
    if entry is not None:
        entry.state = held.state
    ledger.index.add_outcome(decided)


def _check_complete(decided: Decided, stated: Prepare | None, held: _Held) -> None:
    """A COMMIT publishes all that was prepared, and acks it: never a part."""
    records, messages = len(held.runs), held.messages
    if records != decided.records or messages != decided.messages:
        raise IllegalStep("a COMMIT that does not publish what was prepared")
    if stated is not None:
        published = records, messages, tuple(held.acks)
        if published != (stated.records, stated.messages, stated.acks):
            raise IllegalStep("a COMMIT that does not publish or ack what its PREPARE stated")


def _check_one_phase(ledger: Ledger, decided: Decided, held: _Held) -> None:
    """Without a PREPARE it is COMMIT alone that states and seals what stands before it."""
    if decided.tx_id in ledger.by_tx_id:
        raise IllegalStep(f"a COMMIT in one phase of the undecided {decided.tx_id!r}")
    if seal_of(held.runs) != decided.seal:
        raise IllegalStep("the seal does not match what is committed")


def forget(ledger: Ledger, entry: Entry) -> None:
    """The transaction is undecided no more."""
    del ledger.undecided[entry.tx]
    del ledger.by_tx_id[entry.prepare.tx_id]
    if ledger.on_decided is not None:
        ledger.on_decided(entry)
    prepare = entry.prepare
    ledger.undecided_in_all.take(prepare)
    mine = ledger.undecided_of[prepare.producer]
    mine.take(prepare)
    if not mine.transactions:
        del ledger.undecided_of[prepare.producer]


def _acks(ledger: Ledger, acks: Acks, held: _Held) -> None:
    held.step(ledger, acks)
    held.acks += acks.ranges


def ack_applied(ledger: Ledger, ack: AckRange) -> None:
    if ack.first > ack.end:
        raise IllegalStep(f"an ack from {ack.first} to {ack.end}")
    ledger.acked_of(ack.group, ack.topic, ack.queue).add(ack.first, ack.end)
    on_ack = ledger.on_ack
    if on_ack is not None:
        on_ack(ack)


def floor_of(state: State) -> int:
    """Below what position nothing is kept, as `state` says; 0 if it is of an unknown shape."""
    try:
        return int(_carried_by(state)["floor"])
    except (ValueError, RecursionError):
        return 0


def _carried_by(state: State) -> dict[str, Any]:
    return check_carried(from_json(state.json))


def _state(ledger: Ledger, state: State, held: _Held) -> None:
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


def _topic(ledger: Ledger, made: TopicMade, held: _Held) -> None:
    topic_applied(ledger, made)


def topic_applied(ledger: Ledger, made: TopicMade) -> None:
    """A topic came into being."""
    if not 1 <= made.queues <= QUEUES_MAX:
        raise IllegalStep(f"the topic {made.name!r} is made with {made.queues} queues")
    topic = ledger.topic(made.name, made.queues)
    if topic.made or len(topic.queues) != made.queues:
        raise IllegalStep(f"the topic {made.name!r} is made a second time")
    topic.made = True
    for queue in topic.queues:
        queue.settled = True


APPLY: dict[type, Callable[..., None]] = {
    Run: _tx_run,
    Prepare: _prepare,
    Decided: _decided,
    Acks: _acks,
    State: _state,
    TopicMade: _topic,
}


def collect(ledger: Ledger, append: Sequence[Record]) -> None:
    """Remember only what is still open: for appends that a checkpoint has applied already."""
    held = _Held()
    for record in append:
        if isinstance(record, Prepare):
            held.open = record
        elif isinstance(record, Run):
            if record.kind == PRE_MESSAGE:
                held.add(record)
        elif isinstance(record, Decided):
            entry = ledger.undecided.get(record.tx)
            if entry is not None:
                forget(ledger, entry)
            held.open = None
    if held.open is not None:
        _undecided(ledger, held, append[0].position)
