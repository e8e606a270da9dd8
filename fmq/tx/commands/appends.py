"""The records that a transaction appends. With one phase it appends all of them at once. With two
phases it appends the records of its prepare first, and those of its decision later.

An append is made outside of the lock, where its bodies are joined, hashed and compressed. It gets
its place, offsets and time when it is planned (`writer.py`), and the plan also applies its records.
"""

from __future__ import annotations

from collections.abc import Set

from fmq.store.bytes.content import (
    RECORD_MESSAGES_MAX,
    columns_crc,
    copy_of,
    in_records,
)
from fmq.store.bytes.extension import extension_of
from fmq.store.bytes.extras import ids_only
from fmq.store.bytes.kinds import (
    COMMIT,
    REF_MESSAGE,
    TIMER,
    TX_MESSAGE,
    Acks,
    Append,
    Decided,
    Kind,
    Marks,
    Prepare,
    Run,
)
from fmq.store.bytes.timing import timing_in, with_timing
from fmq.store.index.id_table import id_keys_of
from fmq.store.journal.segment import Segment
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.ledger.ledger import Entry
from fmq.tx.looks.outcomes import Outcomes

NO_SEAL = b""  # apply.py makes the seal when the append is planned


def runs_of(
    kind: Kind, transaction: TransactionBuffer, compress_bytes_min: int | None
) -> list[Run]:
    """Return the messages of `transaction` as runs of `kind`, one run for each record."""
    tx_id, producer = transaction.tx_id, transaction.producer
    encode, runs = transaction.encode, []
    for (topic, number, timing), items in transaction.runs.items():
        for part in (items,) if len(items) <= RECORD_MESSAGES_MAX else in_records(items):
            run = encode(part, compress_bytes_min)
            run.kind, run.topic, run.queue = kind, topic, number
            run.tx_id, run.producer = tx_id, producer
            if timing is not None:
                run.extension = with_timing(run.extension, timing)
                if kind == TX_MESSAGE:
                    run.kind = TIMER
            if run.columns or run.extension:
                run.columns_crc = columns_crc(run)
            runs.append(run)
    return runs


def one_phase(transaction: TransactionBuffer, runs: list[Run]) -> Append:
    """Return TX_MESSAGEs, ACK and MARK if needed, and the COMMIT that states and seals them."""
    tx_id, producer = transaction.tx_id, transaction.producer
    commit = Decided(COMMIT, 0, tx_id, producer, 0, 0, len(runs), *_totals_of(runs), NO_SEAL)
    if transaction.request is not None:
        commit.extension = extension_of(transaction.request)
    acks = [Acks(transaction.acks, 0)] if transaction.acks else []
    marks = [Marks(transaction.marks.changes(), 0)] if transaction.marks else []
    return [*runs, *acks, *marks, commit]


def _totals_of(runs: list[Run]) -> tuple[int, int]:
    """Return how many messages `runs` hold, and how many bytes their bodies take."""
    messages = size = 0
    for run in runs:
        messages += run.count
        size += run.raw_bytes
    return messages, size


def two_phases(transaction: TransactionBuffer, runs: list[Run]) -> Append:
    """Return PREPARE, the PRE_MESSAGEs `runs` that it states and seals, and MARK if the transaction
    sets marks.
    """
    prepare = _prepare_of(transaction, runs)
    marks = [Marks(prepare.marks, 0)] if prepare.marks else []
    return [prepare, *runs, *marks]


def _prepare_of(transaction: TransactionBuffer, runs: list[Run]) -> Prepare:
    prepare = Prepare(
        transaction.tx_id,
        transaction.producer,
        0,
        len(runs),
        *_totals_of(runs),
        NO_SEAL,
        transaction.acks,
        check_after_ms=transaction.check_after_ms,
    )
    prepare.bound = transaction.bound
    prepare.marks = transaction.marks.changes()
    if transaction.request is not None:
        prepare.extension = extension_of(transaction.request)
    return prepare


def decision_on(
    prepare: Prepare, kind: Kind, decided_by: str = "", reason: str = "", asked: int = 0
) -> Decided:
    """Return the COMMIT or ROLLBACK of what `prepare` states. A COMMIT counts what it publishes."""
    commits = kind == COMMIT
    return Decided(
        kind,
        prepare.tx,
        prepare.tx_id,
        prepare.producer,
        0,
        prepare.prepared_us,
        prepare.records if commits else 0,
        prepare.messages if commits else 0,
        prepare.bytes,
        prepare.seal,
        decided_by,
        reason,
        asked=asked,
    )


class Ending:
    """The records that end one prepared transaction: references or copies of what was prepared,
    acks, and the decision.

    A run is referred to where its PRE_MESSAGE lies in the segment being written and is not small;
    otherwise it is copied. So a segment holds the bodies of all that is published in it.
    """

    def __init__(
        self, entry: Entry, decided: Decided, outcomes: Outcomes, reference_bytes_min: int
    ) -> None:
        self.entry, self.prepare = entry, entry.prepare
        self._outcomes = outcomes
        self._reference_bytes_min = reference_bytes_min
        self.decided = decided
        self.runs: list[Run] = []
        self._read: dict[int, Run] = {}  # runs that were read ahead, by position
        self._lost: Set[int] = frozenset()

    def leave_out(self, lost: Set[int]) -> None:
        """Do not publish what was prepared at the positions `lost`, where it is damaged."""
        self._lost = lost

    def read_ahead(self, segment: Segment, runs: list[Run]) -> None:
        """Read, outside of the lock, the bodies among `runs` that the commit will have to copy:
        bodies that are small or lie in an older segment, and are not in memory.
        """
        if self.decided.kind == Kind.ROLLBACK:
            return
        for run in runs:
            if run.bodies is None and run.position not in self._lost:
                small = run.raw_bytes < self._reference_bytes_min
                if small or run.position < segment.base:
                    self._read[run.position] = self._outcomes.whole(run.position)

    def records(self, segment: Segment) -> Append:
        """Return the append's records, provided that it is written into `segment`."""
        if self.decided.kind == Kind.ROLLBACK:
            return [self.decided]
        entry = self.entry
        base, lost = segment.base, self._lost
        self.runs = [self._published(pre, base) for pre in entry.runs if pre.position not in lost]
        if lost:
            self.decided.records = len(self.runs)
            self.decided.messages = sum(run.count for run in self.runs)
        acks = [Acks(entry.prepare.acks, 0, entry.tx)] if entry.prepare.acks else []
        marks = [Marks(entry.prepare.marks, 0, entry.tx)] if entry.prepare.marks else []
        return [*self.runs, *acks, *marks, self.decided]

    def _published(self, pre: Run, base: int) -> Run:
        whole = self._read.get(pre.position) if pre.bodies is None else pre
        small = whole is not None and len(whole.bodies or b"") < self._reference_bytes_min
        waits = pre.extension and timing_in(pre.extension) is not None
        if pre.position >= base and not small and not waits:
            run = _reference_to(pre)
        else:
            if whole is None:
                # This happens only if the journal rolled after `read_ahead`. That is rare enough to
                # read under the lock.
                whole = self._outcomes.whole(pre.position)
            run = copy_of(whole, TIMER if waits else TX_MESSAGE)
            # The copy has the names and columns of the original, so its encoded end can be reused.
            if whole is pre:
                run.tail = pre.tail
        if pre.extension:
            run.id_keys = id_keys_of(pre)
        return run


def _reference_to(pre: Run) -> Run:
    """Return the REF_MESSAGE that publishes `pre`."""
    run = Run(REF_MESSAGE, pre.count, raw_bytes=pre.raw_bytes)
    run.topic, run.queue, run.producer, run.tx, run.tx_id = (
        pre.topic, pre.queue, pre.producer, pre.tx, pre.tx_id
    )  # fmt: skip
    run.body_position = pre.position
    if pre.extension:
        # With the ids repeated here, the index of a segment finds them without the PRE_MESSAGE.
        run.extension = ids_only(pre.extension)
    return run
