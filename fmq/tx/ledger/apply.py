"""How an append changes the ledger, in a replay and in the running engine alike.

`apply` takes a whole append. Of a transaction, only COMMIT publishes anything: the runs and acks
before it in the same append take effect when COMMIT is reached, and never without it. What one
record changes is in transitions.py.

A sound record can still break a rule, and each rule is checked by raising IllegalStep. In a replay
it means that the directory was damaged or mixed up, and recovery stops there. The running engine
applies each append when it plans it, before a byte is written. So it never writes what recovery
would refuse. What is applied becomes visible by `show` (transitions.py), once it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fmq.store.bytes.extension import Request, request_in
from fmq.store.bytes.kinds import (
    ACK,
    COMMIT,
    HAS_ERASED,
    PRE_MESSAGE,
    PREPARE,
    TIMER,
    AckRange,
    Decided,
    Kind,
    MarkChange,
    Prepare,
    Run,
    TopicMade,
)
from fmq.store.bytes.record import BadRecord
from fmq.tx.ledger.carryover import WrongValue, check_text
from fmq.tx.ledger.done_requests import STEP_US_MAX, check_request
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.seal import seal_of
from fmq.tx.ledger.state import NEXT, IllegalStep, after
from fmq.tx.ledger.state import State as TxState
from fmq.tx.ledger.transitions import (
    EITHER,
    OUTSIDE,
    ack_applied,
    check_acks,
    check_ending,
    forget,
    prepare_applied,
    publish_run,
    timer_waits,
)

CarriedOut = list[tuple[Request, Any]]
"""The requests of clients that an append carries out, each with its record."""
ABSENT, UNDECIDED = TxState.ABSENT, TxState.UNDECIDED


def apply(ledger: Ledger, append: Sequence[Any], end: int, step: Step | None = None) -> None:
    """Change `ledger` as `append` says, which ends at the position `end`. Note in `ledger.shows`
    what readers will see of it.

    `step` is the Step of its transaction, if it was made before. Raises IllegalStep if the append
    must not follow those before it.
    """
    requests: CarriedOut = []
    changed = False  # True once a record has changed the ledger
    try:
        if ledger.endings_left:
            check_ending(ledger, append)
        if step is None or type(append[0]) is TopicMade:
            of_transaction: list[Any] = []
            for record in append:
                change = OUTSIDE.get(record.kind)
                if change is None:
                    if record.tx or record.kind not in EITHER:
                        of_transaction.append(record)
                        continue
                    change = EITHER[record.kind]
                if record.extension:
                    _note_request(record, requests)
                change(ledger, record)
                changed = True
            if of_transaction and step is None:
                step = Step(ledger, of_transaction)
        if step is not None:
            changed = True
            step.change(ledger, append[0].position)
            requests += step.requests
    except (IllegalStep, BadRecord, WrongValue) as error:
        raise IllegalStep(str(error), is_first=not changed) from error
    now = append[-1].time_us
    if now > ledger.last_us:
        if now - ledger.last_us > STEP_US_MAX:
            ledger.requests.leave_out(now - ledger.last_us - STEP_US_MAX)
        ledger.last_us = now
    for request, each in requests:
        ledger.requests.note(request, each)
    ledger.end = ledger.index.end = end


def _note_request(record: Any, requests: CarriedOut) -> None:
    """Add the client's request that `record` carries out to `requests`, if there is one."""
    request = request_in(record.extension)
    if request is not None:
        check_request(request, record)
        requests.append((request, record))


class Step:
    """The change that the records of one append make to their transaction.

    Making a Step raises IllegalStep if the state of the transaction does not allow the change. It
    changes nothing in the ledger; `change` does. A PREPARE or COMMIT that is planned has no seal
    yet, and gets the one over its runs; in a replay its seal must be that one.
    """

    __slots__ = (
        *("acks", "decided", "entry", "marks", "messages", "prepare", "requests", "runs", "state"),
    )

    def __init__(self, ledger: Ledger, records: Sequence[Any]) -> None:
        tx = records[0].tx
        self.requests: CarriedOut = []
        self.entry = entry = ledger.undecided.get(tx)
        self.prepare: Prepare | None = None
        runs: list[Run] = []
        self.runs = runs
        self.acks: list[AckRange] = []
        self.marks: tuple[MarkChange, ...] = ()
        self.decided: Decided | None = None
        state = _state_before(ledger, records[0]) if entry is None else entry.state
        messages = run_kind = 0
        for record in records:
            if record.tx != tx:
                raise IllegalStep(f"an append about two transactions, {tx} and {record.tx}")
            if record.extension:
                _note_request(record, self.requests)
            kind: int = record.kind
            if kind != run_kind:  # a second run of a kind in a row does not change the state
                state = NEXT.get((state, kind)) or after(state, kind)
                run_kind = kind if type(record) is Run else 0
            if run_kind:
                runs.append(record)
                messages += record.count
            elif type(record) is Decided:
                self.decided = record
            elif kind == PREPARE:
                self.prepare = record
            elif kind == ACK:
                check_acks(ledger, record.ranges)
                self.acks += record.ranges
            elif self.marks:
                raise IllegalStep("a second MARK of one transaction")
            else:
                self.marks = record.changes
                for mark in self.marks:
                    check_text("a mark", mark.name)
        self.state, self.messages = state, messages
        self._check(ledger)

    def _check(self, ledger: Ledger) -> None:
        """Check that the records fit each other, and fit what was prepared before."""
        prepare, decided = self.prepare, self.decided
        if prepare is not None:
            self._check_prepare(ledger, prepare)
            if decided is not None or self.state is UNDECIDED:
                self._check_sealed(prepare)
                if decided is None:
                    prepare.marks = self.marks
        elif self.runs and self.runs[0].kind == PRE_MESSAGE:
            raise IllegalStep("a PRE_MESSAGE outside of its PREPARE's append")
        if decided is not None:
            self._check_decided(ledger, decided)
        elif self.marks and (prepare is None or self.state is not UNDECIDED):
            raise IllegalStep("marks without a PREPARE or COMMIT")

    def _check_prepare(self, ledger: Ledger, prepare: Prepare) -> None:
        """Check what a PREPARE says about its transaction."""
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

    def _check_sealed(self, prepare: Prepare) -> None:
        """Check that all messages that a PREPARE states follow it, and that its seal fits them."""
        if self.messages != prepare.messages or len(self.runs) != prepare.records:
            raise IllegalStep(
                f"{self.messages} messages prepared where {prepare.messages} were stated"
            )
        if not self._seal_or_check(prepare):
            raise IllegalStep("the seal does not match what was prepared")

    def _seal_or_check(self, stated: Prepare | Decided) -> bool:
        """Return whether `stated` has the seal over the runs. Give it this seal if it has none."""
        seal = seal_of(self.runs)
        if not stated.seal:
            stated.seal = seal
        return stated.seal == seal or any(run.flags & HAS_ERASED for run in self.runs)

    def _check_decided(self, ledger: Ledger, decided: Decided) -> None:
        """Check that COMMIT or ROLLBACK fits what was prepared, and covers all of it."""
        stated = self.prepare if self.entry is None else self.entry.prepare
        if stated is not None and (stated.seal != decided.seal or stated.tx_id != decided.tx_id):
            raise IllegalStep(f"a decision for {decided.tx_id!r} that does not fit its PREPARE")
        if decided.kind != COMMIT:
            return
        records, messages = len(self.runs), self.messages
        if records != decided.records or messages != decided.messages:
            raise IllegalStep("a COMMIT that does not publish what was prepared")
        if stated is not None:
            lost = () if self.entry is None else self.entry.lost(ledger.damaged)
            # The transaction was committed without its lost messages.
            if lost and records < stated.records:
                records, messages = records + len(lost), messages + sum(run.count for run in lost)
            published = records, messages, tuple(self.acks), self.marks
            if published != (stated.records, stated.messages, stated.acks, stated.marks):
                raise IllegalStep("a COMMIT of something else than what its PREPARE stated")
        elif decided.tx >= ledger.known_from:
            # A transaction of one phase has no PREPARE: its COMMIT states and seals its runs.
            if decided.tx_id in ledger.by_tx_id:
                raise IllegalStep(f"a COMMIT in one phase of the undecided {decided.tx_id!r}")
            if not self._seal_or_check(decided):
                raise IllegalStep("the seal does not match what is committed")

    def change(self, ledger: Ledger, start: int) -> None:
        """Apply the change to `ledger`. The append begins at `start`."""
        decided, entry = self.decided, self.entry
        if decided is None:
            if self.prepare is not None and self.state is UNDECIDED:
                prepare_applied(ledger, self.prepare, self.runs, start)
            return
        if entry is not None:
            ledger.shows.append((ledger.end, entry.ended, self.state))
            forget(ledger, entry)
        if decided.kind == COMMIT:
            ledger.commits += 1
            said: dict[int, bytes] = {}  # the extension of each PRE_MESSAGE, by its position
            for run in self.runs:
                if run.kind == TIMER:
                    timer_waits(ledger, run)
                elif entry is None or not run.body_position:
                    publish_run(ledger, run)
                else:
                    said = said or {pre.position: pre.extension for pre in entry.runs}
                    publish_run(ledger, run, said.get(run.body_position, b""))
            for ack in self.acks:
                ack_applied(ledger, ack)
            for change in self.marks:
                ledger.set_mark(change)
        else:
            ledger.rollbacks += 1
            if entry is not None and ledger.listener is not None:
                for ack in entry.prepare.acks:
                    ledger.shows.append((ledger.end, ledger.listener.freed, ack))
        ledger.index.add_outcome(decided)


def _state_before(ledger: Ledger, first: Any) -> TxState:
    """Return the state of a transaction that is not undecided, before its record `first`."""
    tx = first.tx
    if 0 < tx < ledger.known_from:
        return UNDECIDED  # retention has dropped the segment with its PREPARE
    if tx and tx != first.position and first.kind != PREPARE:
        raise IllegalStep(
            f"{Kind(first.kind).name} cannot follow absent: {tx} was never prepared, and begins in "
            "one phase only with the record at that position"
        )
    return ABSENT
