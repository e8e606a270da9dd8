"""The transaction manager: what is open, what is undecided, and what was decided.

Everything a commit writes is one append, and COMMIT, its last record, alone publishes. A
prepared message is published by reference where its body lies in the segment that the commit
is written to and is not small, and by a copy otherwise; so every segment holds the bodies of
all that is published in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from weakref import WeakValueDictionary

from fmq.clock import as_datetime
from fmq.errors import (
    AlreadyDecided,
    BadOption,
    TooLarge,
    TooMany,
    TxIdInUse,
    UnknownTransaction,
)
from fmq.message import Decision, Message, Outcome, Receipt, UndecidedTransaction
from fmq.store.columns import Content, encode_bodies, encode_messages, encode_one
from fmq.store.kinds import AckRange, Acks, Decided, Kind, Prepare, Record, Run
from fmq.store.record import aligned, size_of, utf8
from fmq.store.segment import HEADER_BYTES
from fmq.tx.ledger import Entry, seal_text
from fmq.tx.names import check_name, check_tx_id, make_tx_id
from fmq.tx.outcomes import Outcomes, outcome_of
from fmq.tx.seal import seal_of
from fmq.tx.transaction import Transaction
from fmq.tx.writer import Writer

FRAME_BYTES = 512  # PREPARE and COMMIT without their names and reason
RUN_BYTES = 104  # a PRE_MESSAGE's head without its names, padding and a REF's position included
REASON_BYTES_MAX = 1024
CACHED_BYTES_MAX = 16 << 20


class TransactionManager:
    """The transactions of one engine."""

    def __init__(self, writer: Writer, outcomes: Outcomes) -> None:
        self.writer = writer
        self._outcomes = outcomes
        self._ledger = writer.ledger
        self._journal = writer.journal
        self._group = writer.group
        self._options = writer.options
        self._open: WeakValueDictionary[str, Transaction] = WeakValueDictionary()
        self._preparing: dict[str, Transaction] = {}
        self._per_producer: dict[str, int] = {}
        self._reserved_bytes = 0
        self._cached_bytes = 0
        for entry in self._ledger.undecided.values():
            self._reserve_for(entry)
        self._journal.spares.needed = self._spares_for(self._reserved_bytes)

    # --- begin -------------------------------------------------------------------------------------

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None
    ) -> Transaction:
        """A new transaction; TxIdInUse if its id is open or was decided within the window."""
        if producer is not None:
            check_name("producer", producer)
        check_after_ms = -1 if check_after is None else round(check_after * 1000)
        if check_after_ms < -1:
            raise BadOption(f"check_after={check_after}: must not be negative")
        if tx_id is None:
            made = make_tx_id(self.writer.clock.time_us())
            return Transaction(self, made, producer or "", check_after_ms)
        check_tx_id(tx_id)
        transaction = Transaction(self, tx_id, producer or "", check_after_ms)
        with self._group.lock:
            self._group.check()
            self._refuse_in_use(tx_id)
            self._open[tx_id] = transaction
        try:
            decided = self._outcomes.find(tx_id)
        except BaseException:
            self.let_go(transaction)
            raise
        if decided is not None:
            self.let_go(transaction)
            raise TxIdInUse(
                f"transaction {tx_id!r} was {_word(decided)} at {as_datetime(decided.time_us)}, "
                "within the window; an id is not used twice. engine.outcome() tells all about it."
            )
        return transaction

    def _refuse_in_use(self, tx_id: str) -> None:
        if tx_id in self._ledger.by_tx_id or tx_id in self._preparing:
            raise TxIdInUse(
                f"transaction {tx_id!r} is undecided; engine.decide({tx_id!r}, ...) ends it"
            )
        if tx_id in self._open:
            raise TxIdInUse(f"transaction {tx_id!r} is open; commit or roll back that one first")

    def let_go(self, transaction: Transaction) -> None:
        """The transaction is over without having written anything, or is known by the journal."""
        self._open.pop(transaction.tx_id, None)

    # --- limits, checked at each send --------------------------------------------------------------

    def size_of(self, item: Message | bytes) -> int:
        """What the message adds to an append, at the most; TooLarge if it alone is too much."""
        if isinstance(item, bytes):
            size = len(item)
            self.writer.check_size(size)
            return size + 4
        size = len(item.body)
        self.writer.check_size(size)
        size += 4 + sum(len(utf8(text)) + 2 for text in (item.key, item.tag) if text)
        for name, value in (item.headers or {}).items():
            size += len(name.encode()) + len(value.encode()) + 4
        return size + 12

    def run_overhead(self, transaction: Transaction, topic: str) -> int:
        """What one more run costs, at the most, its TOPIC record included."""
        names = len(utf8(transaction.producer)) + len(transaction.tx_id)
        return RUN_BYTES + names + 2 * len(utf8(topic)) + 80

    @staticmethod
    def ack_size(ack: AckRange) -> int:
        return 2 * (20 + len(utf8(ack.group)) + len(utf8(ack.topic)))

    def check_limits(self, transaction: Transaction, size: int) -> None:
        """TooLarge or TooMany if the transaction cannot take what would make it `size` bytes."""
        limit = self._journal.append_bytes_max
        names = 3 * (len(utf8(transaction.producer)) + len(transaction.tx_id))
        size += FRAME_BYTES + names + REASON_BYTES_MAX
        if size > limit:
            raise TooLarge(
                f"transaction {transaction.tx_id!r} in bytes", size, limit, "segment_bytes"
            )
        if transaction.messages >= self._options.transaction_messages_max:
            raise TooMany(
                f"messages in transaction {transaction.tx_id!r}",
                transaction.messages + 1,
                self._options.transaction_messages_max,
                "transaction_messages_max",
            )

    # --- one phase ---------------------------------------------------------------------------------

    def commit_at_once(self, transaction: Transaction) -> list[Receipt]:
        """PREPARE, TX_MESSAGEs, ACK and COMMIT in one append, with one sync."""
        runs = self._runs(transaction, Kind.TX_MESSAGE)
        prepare = self._prepare_record(transaction, runs)
        acks = Acks(transaction.acks, 0) if transaction.acks else None
        decided = Decided(
            Kind.COMMIT,
            0,
            prepare.tx_id,
            prepare.producer,
            0,
            0,
            prepare.records,
            prepare.messages,
            prepare.bytes,
            prepare.seal,
        )
        writer = self.writer

        def plan() -> None:
            if prepare.tx_id in self._ledger.by_tx_id or prepare.tx_id in self._preparing:
                self._refuse_in_use(prepare.tx_id)
            now = writer.now_us()
            records: list[Record] = [*writer.new_topics(runs, now), prepare, *runs]
            if acks is not None:
                records.append(acks)
            records.append(decided)
            writer.make_room(records, ordinary=True)
            writer.publish(runs, now)
            writer.place(records)
            self._number(prepare, runs, now)
            decided.tx = prepare.position
            decided.time_us = decided.prepared_us = now
            decided.append_start = records[0].position
            if acks is not None:
                acks.tx, acks.time_us = prepare.position, now
            self._group.plan(records)

        self._group.run(plan, wait=writer.waits(None))
        self.let_go(transaction)
        return receipts(runs)

    def _runs(self, transaction: Transaction, kind: Kind) -> list[Run]:
        runs = []
        for (topic, queue), items in transaction.runs.items():
            content = encode_items(items, self._options.compress_bytes_min)
            run = Run(
                kind,
                topic,
                queue,
                0,
                content.count,
                0,
                0,
                transaction.tx_id,
                transaction.producer,
                0,
                content,
                content.raw_bytes,
            )
            run.bodies_crc = content.bodies_crc
            run.columns_crc = zlib.crc32(content.columns)
            runs.append(run)
        return runs

    def _prepare_record(self, transaction: Transaction, runs: list[Run]) -> Prepare:
        return Prepare(
            transaction.tx_id,
            transaction.producer,
            0,
            len(runs),
            transaction.messages,
            sum(run.raw_bytes for run in runs),
            seal_of(runs),
            transaction.acks,
            check_after_ms=transaction.check_after_ms,
        )

    @staticmethod
    def _number(prepare: Prepare, runs: Iterable[Run], now: int) -> None:
        """The transaction's number is the position of its first PREPARE."""
        prepare.time_us = now
        if not prepare.tx:
            prepare.tx = prepare.position
            prepare.prepared_us = now
        for run in runs:
            run.tx = prepare.tx
            run.time_us = now

    # --- two phases --------------------------------------------------------------------------------

    def prepare(self, transaction: Transaction) -> None:
        """PREPARE and PRE_MESSAGEs in one append, durable whatever the mode."""
        runs = self._runs(transaction, Kind.PRE_MESSAGE)
        prepare = self._prepare_record(transaction, runs)
        writer, tx_id = self.writer, transaction.tx_id

        def plan() -> None:
            self._check_open_limits(prepare)
            now = writer.now_us()
            records: list[Record] = [*writer.new_topics(runs, now), prepare, *runs]
            needs = self._room_to_end(records)
            reserved = self._reserved_bytes + needs
            self._journal.measure(records)
            self._journal.spares.reserve(self._spares_for(reserved))
            try:
                writer.make_room(records, ordinary=True)
            except BaseException:
                self._journal.spares.needed = self._spares_for(self._reserved_bytes)
                raise
            self._reserved_bytes = reserved
            for run in runs:
                self._ledger.topic(run.topic, self._options.queues_of(run.topic))
            writer.place(records)
            self._number(prepare, runs, now)
            self._preparing[tx_id] = transaction
            self._group.plan(records)

        try:
            self._group.run(plan, force=True)
        finally:
            self._preparing.pop(tx_id, None)
        self.let_go(transaction)
        with self._group.lock:
            entry = self._ledger.by_tx_id.get(tx_id)
            if entry is not None:  # else another thread has decided it already
                entry.reserved = self._room_to_end([entry.prepare, *entry.runs])
            self._drop_large_contents(runs)

    def _check_open_limits(self, prepare: Prepare) -> None:
        options, ledger = self._options, self._ledger
        self_count = len(ledger.undecided) + len(self._preparing)
        if self_count >= options.transactions_max:
            raise TooMany("undecided transactions", self_count + 1, options.transactions_max,
                          "transactions_max")  # fmt: skip
        size = ledger.undecided_bytes + prepare.bytes
        if size > options.undecided_bytes_max:
            raise TooMany("bytes of undecided transactions", size, options.undecided_bytes_max,
                          "undecided_bytes_max")  # fmt: skip
        if prepare.producer and options.producer_transactions_max < options.transactions_max:
            mine = 1 + sum(
                entry.prepare.producer == prepare.producer for entry in ledger.undecided.values()
            )
            if mine > options.producer_transactions_max:
                raise TooMany(
                    f"undecided transactions of {prepare.producer!r}",
                    mine,
                    options.producer_transactions_max,
                    "producer_transactions_max",
                )

    def _room_to_end(self, records: Iterable[Record]) -> int:
        """What the transaction may still have to write: its commit as copies, or its roll back,
        and one relocation.
        """
        size = sum(aligned(record.size or size_of(record)) for record in records)
        return 2 * size + FRAME_BYTES + 2 * REASON_BYTES_MAX

    def _reserve_for(self, entry: Entry) -> None:
        entry.reserved = self._room_to_end([entry.prepare, *entry.runs])
        self._reserved_bytes += entry.reserved

    def _spares_for(self, reserved: int) -> int:
        """How many empty segments hold `reserved` bytes, however the appends fall."""
        # An append is not split, so a segment may stay half empty, and never more than half.
        return -(-2 * reserved // (self._options.segment_bytes - HEADER_BYTES))

    def _drop_large_contents(self, runs: Iterable[Run]) -> None:
        """Keep small bodies in memory: they will be copied, and need not be read again."""
        for run in runs:
            content = run.content
            if content is None:
                continue
            size = len(content.bodies) + len(content.columns)
            if len(content.bodies) >= self._options.reference_bytes_min or (
                self._cached_bytes + size > CACHED_BYTES_MAX
            ):
                run.content = None
            else:
                self._cached_bytes += size

    # --- decisions ---------------------------------------------------------------------------------

    def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str = "",
        decided_by: str = "",
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back; the same decision again is a success."""
        check_tx_id(tx_id)
        if decision not in ("commit", "rollback"):
            raise BadOption(f"decision {decision!r}: must be 'commit' or 'rollback'")
        if len(reason.encode()) > REASON_BYTES_MAX:
            raise TooLarge("a reason in bytes", len(reason.encode()), REASON_BYTES_MAX, "fixed")
        if decided_by:
            check_name("name of who decides", decided_by)
        kind = Kind.COMMIT if decision == "commit" else Kind.ROLLBACK
        while True:
            entry = self._ledger.by_tx_id.get(tx_id)
            if entry is None:
                return self._decided_before(tx_id, kind)
            if seal is not None and seal != seal_text(entry.prepare.seal):
                raise UnknownTransaction(
                    f"transaction {tx_id!r} has the seal {seal_text(entry.prepare.seal)}, not "
                    f"{seal}: the decision is for another one, and nothing was changed"
                )
            outcome = self._decide(entry, kind, reason, decided_by)
            if outcome is not None:
                return outcome
            # Somebody else is at it: once that is durable, look again.
            self._group.flush()

    def _decide(self, entry: Entry, kind: Kind, reason: str, decided_by: str) -> Outcome | None:
        copies = self._contents(entry) if kind == Kind.COMMIT else {}
        prepare = entry.prepare
        runs: list[Run] = []
        decided = Decided(
            kind,
            entry.tx,
            prepare.tx_id,
            prepare.producer,
            0,
            prepare.prepared_us,
            prepare.records if kind == Kind.COMMIT else 0,
            prepare.messages if kind == Kind.COMMIT else 0,
            prepare.bytes,
            prepare.seal,
            decided_by,
            reason,
        )
        writer, journal = self.writer, self._journal

        def plan() -> bool:
            if entry.busy or self._ledger.undecided.get(entry.tx) is not entry:
                return False
            now = writer.now_us()
            records = self._ending(entry, decided, copies, runs)
            if not journal.fits(journal.measure(records)):
                journal.roll(ordinary=False)
                # What could be referred to now lies in another segment.
                records = self._ending(entry, decided, copies, runs)
                journal.measure(records)
            writer.publish(runs, now)
            writer.place(records)
            decided.time_us = now
            decided.append_start = records[0].position
            for record in records:
                record.time_us = now
            entry.busy = True
            self._group.plan(records)
            return True

        if not self._group.run(plan, wait=writer.waits(None)):
            return None
        self._release(entry)
        return outcome_of(decided, receipts(runs))

    def _ending(
        self, entry: Entry, decided: Decided, copies: dict[int, Content], runs: list[Run]
    ) -> list[Record]:
        """The records of the decision's append, for the segment that is current now."""
        runs.clear()
        if decided.kind == Kind.ROLLBACK:
            return [decided]
        base = self._journal.current.base
        for pre in entry.runs:
            content = copies.get(pre.position)
            small = content is not None and len(content.bodies) < self._options.reference_bytes_min
            refer = pre.position >= base and not small
            if not refer and content is None:
                content = self._outcomes.content(pre.position)
            run = Run(
                Kind.REF_MESSAGE if refer else Kind.TX_MESSAGE,
                pre.topic,
                pre.queue,
                0,
                pre.count,
                0,
                entry.tx,
                entry.prepare.tx_id,
                entry.prepare.producer,
                pre.position if refer else 0,
                None if refer else content,
                pre.raw_bytes,
            )
            runs.append(run)
        acks = [Acks(entry.prepare.acks, 0, entry.tx)] if entry.prepare.acks else []
        return [*runs, *acks, decided]

    def _contents(self, entry: Entry) -> dict[int, Content]:
        """What will have to be copied, read outside the lock: what is small or lies elsewhere."""
        base = self._journal.current.base
        contents = {}
        for run in list(entry.runs):
            if run.content is not None:
                contents[run.position] = run.content
            elif run.position < base or run.raw_bytes < self._options.reference_bytes_min:
                contents[run.position] = self._outcomes.content(run.position)
        return contents

    def _release(self, entry: Entry) -> None:
        with self._group.lock:
            self._reserved_bytes -= entry.reserved
            entry.reserved = 0
            self._journal.spares.needed = self._spares_for(self._reserved_bytes)
            for run in entry.runs:
                if run.content is not None:
                    self._cached_bytes -= len(run.content.bodies) + len(run.content.columns)

    def _decided_before(self, tx_id: str, kind: Kind) -> Outcome:
        outcome = self.outcome(tx_id)
        if outcome.state == ("committed" if kind == Kind.COMMIT else "rolled back"):
            return outcome
        raise AlreadyDecided(outcome)

    # --- asking ------------------------------------------------------------------------------------

    def outcome(self, tx_id: str) -> Outcome:
        """What became of the transaction; UnknownTransaction if the journal does not say."""
        check_tx_id(tx_id)
        with self._group.lock:
            entry = self._ledger.by_tx_id.get(tx_id)
            if entry is not None:
                return undecided_outcome(entry)
            if tx_id in self._open:
                raise UnknownTransaction(
                    f"transaction {tx_id!r} is open and has not been prepared: nothing of it is "
                    "in the journal yet"
                )
        decided = self._outcomes.find(tx_id)
        if decided is None:
            raise UnknownTransaction(
                f"no transaction {tx_id!r} is undecided or was decided within the window "
                f"({self._outcomes.window()}). It was never prepared, was rolled back before, or "
                "was decided earlier than that."
            )
        return self._outcomes.outcome(decided)

    def undecided(self) -> list[UndecidedTransaction]:
        """All that wait for their decision, the oldest first."""
        with self._group.lock:
            return [undecided_view(entry) for entry in self._ledger.undecided.values()]

    # --- relocation --------------------------------------------------------------------------------

    def relocate_oldest(self) -> bool:
        """Append the oldest undecided transaction again if it is too far behind; whether it was."""
        with self._group.lock:
            entry = next(iter(self._ledger.undecided.values()), None)
            if entry is None or entry.busy:
                return False
            behind = self._journal.position - entry.prepare.position
        if behind <= self._options.relocate_bytes:
            return False
        old = entry.prepare
        contents = {run.position: self._outcomes.content(run.position) for run in entry.runs}
        writer = self.writer
        prepare = Prepare(
            old.tx_id,
            old.producer,
            0,
            old.records,
            old.messages,
            old.bytes,
            old.seal,
            old.acks,
            tx=old.tx,
            prepared_us=old.prepared_us,
            replaces=old.position,
            check_after_ms=old.check_after_ms,
        )

        def plan() -> bool:
            if entry.busy or self._ledger.undecided.get(entry.tx) is not entry:
                return False
            runs = [_again(run, contents[run.position]) for run in entry.runs]
            records: list[Record] = [prepare, *runs]
            writer.make_room(records, ordinary=False)
            writer.place(records)
            self._number(prepare, runs, writer.now_us())
            entry.busy = True
            self._group.plan(records)
            return True

        return bool(self._group.run(plan, force=True))


def _again(run: Run, content: Content) -> Run:
    """The same PRE_MESSAGE, to be written a second time."""
    new = Run(
        Kind.PRE_MESSAGE,
        run.topic,
        run.queue,
        0,
        run.count,
        0,
        run.tx,
        run.tx_id,
        run.producer,
        0,
        content,
        run.raw_bytes,
    )
    new.bodies_crc, new.columns_crc = run.bodies_crc, run.columns_crc
    return new


def encode_items(items: list[Message | bytes], compress_bytes_min: int | None) -> Content:
    """Bodies and Messages of one run, encoded."""
    if len(items) == 1 and type(items[0]) is bytes:
        return encode_one(items[0], compress_bytes_min)
    if any(isinstance(item, Message) for item in items):
        messages = [item if isinstance(item, Message) else Message(item) for item in items]
        return encode_messages(messages, compress_bytes_min)
    return encode_bodies(items, compress_bytes_min)  # type: ignore[arg-type]


def receipts(runs: Iterable[Run]) -> list[Receipt]:
    return [Receipt(run.topic, run.queue, run.offset, run.position, run.count) for run in runs]


def _word(decided: Decided) -> str:
    return "committed" if decided.kind == Kind.COMMIT else "rolled back"


def undecided_view(entry: Entry) -> UndecidedTransaction:
    """An undecided transaction as users see it."""
    prepare = entry.prepare
    return UndecidedTransaction(
        prepare.tx_id,
        prepare.producer or None,
        as_datetime(prepare.prepared_us),
        prepare.messages,
        prepare.bytes,
        tuple(dict.fromkeys(run.topic for run in entry.runs)),
        prepare.position,
        seal_text(prepare.seal),
    )


def undecided_outcome(entry: Entry) -> Outcome:
    """The same, as the answer to what became of it."""
    prepare = entry.prepare
    return Outcome(
        prepare.tx_id,
        "undecided",
        prepare.producer or None,
        as_datetime(prepare.prepared_us),
        prepare.messages,
        prepare.bytes,
        seal_text(prepare.seal),
        position=prepare.position,
    )
