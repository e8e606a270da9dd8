"""What transactions append: all of it in one phase, or in two, the second then as copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from fmq.disk import Buffer
from fmq.store.encoding import DECISION_BYTES, size_of
from fmq.store.journal import encode_all
from fmq.store.kinds import COMMIT, PRE_MESSAGE, TX_MESSAGE, AckRange, Acks, Prepare
from fmq.store.record import (
    DECISION_FRONT,
    FIRST,
    LAG_UNKNOWN,
    LAST,
    MAGIC,
    PADDING,
    TX_HEAD,
    aligned,
    utf8,
)
from fmq.tx.apply import ack_applied, forget, prepare_applied
from fmq.tx.drafts import Draft
from fmq.tx.ledger import Entry, Ledger, Topic
from fmq.tx.state import State
from fmq.tx.straight import Straight, U32_pack

COMMITTED = State.COMMITTED
pack_run, pack_commit = TX_HEAD.pack, DECISION_FRONT.pack


class Prepared(Straight):
    """The first of two phases: PREPARE and PRE_MESSAGEs."""

    __slots__ = ("draft", "is_kept", "prepare")

    def __init__(self, known: dict[str, Topic], prepare: Prepare, draft: Draft) -> None:
        """`prepare` states `draft`; both become what the entry of the transaction holds."""
        self.known, self.topics, self.producer = known, draft.topics, prepare.producer
        self.made, self.placed = (), []
        self.prepare, self.draft = prepare, draft
        self.is_kept = False  # in memory, until it is decided
        prepare.size = size_of(prepare)
        self.size = aligned(prepare.size) + draft.size

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        self.position, flags, now, prepare = position, FIRST, self.time_us, self.prepare
        at = position
        if self.made:
            at, chain = encode_all(self.made, at, FIRST, durable_to, seed, chain, buffers)
            flags = 0
        rows = self.draft.rows
        producer_bytes, tx_id_bytes = len(utf8(self.producer)), len(prepare.tx_id)
        prepare.tx = tx = at
        prepare.time_us = prepare.prepared_us = now
        flags = flags if rows else flags | LAST
        at, chain = encode_all((prepare,), at, flags, durable_to, seed, chain, buffers)
        last = rows[-1] if rows else None
        for row in rows:
            _, number, content, tail, size, topic_bytes = row
            bodies, lag = content.bodies, at - durable_to
            head = pack_run(
                size, size - len(bodies), at, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN,
                content.bodies_crc, PRE_MESSAGE,
                content.flags if row is not last else content.flags | LAST,
                number, tx, 0, now, content.count, topic_bytes, producer_bytes, tx_id_bytes,
            ) + tail  # fmt: skip
            crc = U32_pack(crc32(head, seed))
            chain = crc32(crc, chain)
            buffers += (MAGIC, crc, head, bodies, PADDING[size & 7])
            at += (size + 7) & ~7
        return chain

    def publish(self, ledger: Ledger) -> None:
        draft, prepare = self.draft, self.prepare
        what = draft if self.is_kept else draft.runs(prepare, kept=False)
        prepare_applied(ledger, prepare, what, self.position)
        self._publish_rows(ledger)


class Commit(Straight):
    """What publishes a transaction, as copies: TX_MESSAGEs, an ACK if it acks, and COMMIT."""

    __slots__ = (
        "acks",
        "asked",
        "commit_size",
        "decided_at",
        "draft",
        "entry",
        "prepared_us",
        "tx",
        "tx_id",
    )

    def __init__(
        self,
        known: dict[str, Topic],
        topics: Iterable[str],
        tx_id: str,
        producer: str,
        draft: Draft,
        acks: Sequence[AckRange],
    ) -> None:
        """`topics` are those that may have to come into being with it."""
        self.known, self.topics, self.producer = known, topics, producer
        self.made, self.placed = (), []
        self.tx_id, self.draft = tx_id, draft
        self.entry: Entry | None = None  # of a transaction that was prepared
        self.tx = self.prepared_us = self.asked = 0
        self.commit_size = size = DECISION_BYTES + len(utf8(producer)) + len(tx_id)
        self.size = draft.size + ((size + 7) & ~7)
        self.acks = [Acks(acks, 0)] if acks else []
        for record in self.acks:
            record.size = size = size_of(record)
            self.size += aligned(size)

    @classmethod
    def of_prepared(cls, known: dict[str, Topic], entry: Entry) -> Commit | None:
        """The second of two phases; None if what was prepared is not kept in memory."""
        prepare, kept = entry.prepare, entry.kept
        if kept is None:
            return None
        # Its topics have come into being with what was prepared.
        commit = cls(known, (), prepare.tx_id, prepare.producer, kept, prepare.acks)
        commit.entry, commit.tx, commit.prepared_us = entry, prepare.tx, prepare.prepared_us
        commit.asked = entry.asked
        return commit

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        self.position = at = position
        flags, now = FIRST, self.time_us
        if self.made:
            at, chain = encode_all(self.made, at, FIRST, durable_to, seed, chain, buffers)
            flags = 0
        draft, known, placed = self.draft, self.known, self.placed
        # In one phase its number is the position of its first record.
        self.tx = tx = self.tx or at
        producer, tx_id_bytes = utf8(self.producer), len(self.tx_id)
        producer_bytes = len(producer)
        for name, number, content, tail, size, topic_bytes in draft.rows:
            topic = known[name]
            queue = topic.queues[number]
            offset, count, bodies = queue.assigned, content.count, content.bodies
            queue.assigned = offset + count
            lag = at - durable_to
            head = pack_run(
                size, size - len(bodies), at, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN,
                content.bodies_crc, TX_MESSAGE, flags | content.flags,
                number, tx, offset, now, count, topic_bytes, producer_bytes, tx_id_bytes,
            ) + tail  # fmt: skip
            crc = U32_pack(crc32(head, seed))
            chain = crc32(crc, chain)
            buffers += (MAGIC, crc, head, bodies, PADDING[size & 7])
            placed.append((topic, queue, offset, at, content))
            at += (size + 7) & ~7
            flags = 0
        for acks in self.acks:
            acks.tx, acks.time_us = tx, now
            at, chain = encode_all((acks,), at, flags, durable_to, seed, chain, buffers)
            flags = 0
        self.decided_at, size, lag = at, self.commit_size, at - durable_to
        head = pack_commit(
            size, size, at, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN, 0, COMMIT, flags | LAST, 0,
            tx, now, self.prepared_us or now, position, len(draft.rows), draft.messages,
            draft.bytes, draft.seal, self.asked, producer_bytes, tx_id_bytes, 0, 0,
        ) + producer + self.tx_id.encode()  # fmt: skip
        crc = U32_pack(crc32(head, seed))
        buffers += (MAGIC, crc, head, PADDING[size & 7])
        return crc32(crc, chain)

    def publish(self, ledger: Ledger) -> None:
        entry = self.entry
        if entry is not None:
            forget(ledger, entry)
            entry.state = COMMITTED
        for acks in self.acks:
            for ack in acks.ranges:
                ack_applied(ledger, ack)
        ledger.index.add_outcome_at(self.tx_id, self.decided_at)
        self._publish_rows(ledger, self.tx_id)
