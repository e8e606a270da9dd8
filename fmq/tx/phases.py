"""What transactions append: all of it in one phase, or in two, the second then as copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from zlib import crc32

from fmq.disk import Buffer
from fmq.store.columns import Content
from fmq.store.encoding import DECISION_BYTES, TX_RUN_BYTES, names_of, size_of
from fmq.store.journal import encode_all
from fmq.store.kinds import COMMIT, PRE_MESSAGE, TX_MESSAGE, AckRange, Acks, Prepare, Run
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
from fmq.tx.ledger import Entry, Ledger, Topic
from fmq.tx.seal import SEALED, digest
from fmq.tx.state import State
from fmq.tx.straight import Straight, U32_pack, tail_of

T = TypeVar("T")
COMMITTED = State.COMMITTED
pack_run, pack_commit, pack_sealed = TX_HEAD.pack, DECISION_FRONT.pack, SEALED.pack


class Prepared(Straight):
    """The first of two phases: PREPARE and PRE_MESSAGEs."""

    __slots__ = ("prepare", "runs")

    def __init__(self, known: dict[str, Topic], prepare: Prepare, runs: list[Run]) -> None:
        """`prepare` states `runs`; both become what the entry of the transaction holds."""
        super().__init__(known, [run.topic for run in runs], prepare.producer)
        self.prepare, self.runs = prepare, runs
        prepare.size = size_of(prepare)
        size_of_all, tx_id = aligned(prepare.size), prepare.tx_id.encode()
        for run in runs:
            content = run.content
            assert content is not None
            names = names_of(run.topic, prepare.producer)[2] + tx_id
            run.tail = tail = tail_of(names, content)
            run.size = size = TX_RUN_BYTES + len(tail) + len(content.bodies)
            size_of_all += (size + 7) & ~7
        self.size = size_of_all

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        self.position, flags, now, prepare = position, FIRST, self.time_us, self.prepare
        at = position
        if self.made:
            at, chain = encode_all(self.made, at, FIRST, durable_to, seed, chain, buffers)
            flags = 0
        runs, producer_bytes, tx_id_bytes = self.runs, len(utf8(self.producer)), len(prepare.tx_id)
        prepare.tx = tx = at
        prepare.time_us = prepare.prepared_us = now
        flags = flags if runs else flags | LAST
        at, chain = encode_all((prepare,), at, flags, durable_to, seed, chain, buffers)
        last = runs[-1] if runs else None
        for run in runs:
            content, size, lag = run.content, run.size, at - durable_to
            assert content is not None
            bodies = content.bodies
            head = pack_run(
                size, size - len(bodies), at, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN,
                content.bodies_crc, PRE_MESSAGE,
                content.flags if run is not last else content.flags | LAST,
                run.queue, tx, 0, now, run.count,
                len(utf8(run.topic)), producer_bytes, tx_id_bytes,
            ) + run.tail  # fmt: skip
            crc = U32_pack(crc32(head, seed))
            chain = crc32(crc, chain)
            buffers += (MAGIC, crc, head, bodies, PADDING[size & 7])
            run.tx, run.time_us, run.position = tx, now, at
            at += (size + 7) & ~7
        return chain

    def publish(self, ledger: Ledger) -> None:
        self._publish_rows(ledger)
        prepare_applied(ledger, self.prepare, self.runs, self.position)


class Commit(Straight):
    """What publishes a transaction, as copies: TX_MESSAGEs, an ACK if it acks, and COMMIT."""

    __slots__ = ("acks", "asked", "bytes", "commit_size", "entry", "messages", "prepared_us",
                 "seal", "tx")  # fmt: skip

    def __init__(
        self,
        known: dict[str, Topic],
        topics: Iterable[str],
        tx_id: str,
        producer: str,
        acks: Sequence[AckRange],
    ) -> None:
        super().__init__(known, topics, producer)
        self.tx_id = tx_id
        self.entry: Entry | None = None  # of a transaction that was prepared
        self.tx = self.prepared_us = self.messages = self.bytes = self.asked = 0
        self.seal = b""
        self.commit_size = size = DECISION_BYTES + len(utf8(producer)) + len(tx_id)
        self.size = (size + 7) & ~7
        self.acks = [Acks(acks, 0)] if acks else []
        for record in self.acks:
            record.size = size = size_of(record)
            self.size += aligned(size)

    @classmethod
    def at_once(
        cls,
        known: dict[str, Topic],
        tx_id: str,
        producer: str,
        runs: Mapping[tuple[str, int], Sequence[T]],
        encode: Callable[[Sequence[T], int | None], Content],
        compress_bytes_min: int | None,
        acks: Sequence[AckRange],
    ) -> Commit:
        """In one phase: `runs` are the messages for each topic and queue, which `encode` puts
        into columns.
        """
        commit = cls(known, [topic for topic, _ in runs], tx_id, producer, acks)
        rows, tx_id_bytes = commit.rows, tx_id.encode()
        sealed: list[bytes] = []
        size_of_all = messages = raw_bytes = 0
        for (topic, number), items in runs.items():
            content = encode(items, compress_bytes_min)
            topic_bytes, _, names = names_of(topic, producer)
            columns, count = content.columns, content.count
            tail = tail_of(names + tx_id_bytes, content)
            size = TX_RUN_BYTES + len(tail) + len(content.bodies)
            rows.append((topic, number, content, tail, size, topic_bytes))
            sealed += (
                pack_sealed(number, count, content.bodies_crc, crc32(columns) if columns else 0),
                names[:topic_bytes],
            )
            size_of_all += (size + 7) & ~7
            messages += count
            raw_bytes += content.raw_bytes
        commit.messages, commit.bytes = messages, raw_bytes
        commit.seal = digest(sealed)
        commit.size += size_of_all
        return commit

    @classmethod
    def of_prepared(cls, known: dict[str, Topic], entry: Entry) -> Commit | None:
        """The second of two phases; None if not all that was prepared is kept in memory."""
        prepare = entry.prepare
        # Its topics have come into being with what was prepared.
        commit = cls(known, (), prepare.tx_id, prepare.producer, prepare.acks)
        for run in entry.runs:
            content = run.content
            if content is None:
                return None
            # A TX_MESSAGE says of itself what its PRE_MESSAGE says, in as many bytes.
            row = run.topic, run.queue, content, run.tail, run.size, len(utf8(run.topic))
            commit.rows.append(row)
            commit.size += aligned(run.size)
        commit.entry, commit.tx, commit.prepared_us = entry, prepare.tx, prepare.prepared_us
        commit.messages, commit.bytes, commit.seal = prepare.messages, prepare.bytes, prepare.seal
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
        tx = self.tx or at  # in one phase its number is the position of its first record
        producer, tx_id_bytes = utf8(self.producer), len(self.tx_id)
        producer_bytes = len(producer)
        for name, number, content, tail, size, topic_bytes in self.rows:
            topic = self.known[name]
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
            self.places.append((topic, queue, offset, at, content))
            at += (size + 7) & ~7
            flags = 0
        for acks in self.acks:
            acks.tx, acks.time_us = tx, now
            at, chain = encode_all((acks,), at, flags, durable_to, seed, chain, buffers)
            flags = 0
        size, lag = self.commit_size, at - durable_to
        head = pack_commit(
            size, size, at, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN, 0, COMMIT, flags | LAST, 0,
            tx, now, self.prepared_us or now, position, len(self.rows), self.messages, self.bytes,
            self.seal, self.asked, producer_bytes, tx_id_bytes, 0, 0,
        ) + producer + self.tx_id.encode()  # fmt: skip
        crc = U32_pack(crc32(head, seed))
        buffers += (MAGIC, crc, head, PADDING[size & 7])
        return crc32(crc, chain)

    def publish(self, ledger: Ledger) -> None:
        entry = self.entry
        if entry is not None:
            forget(ledger, entry)
            entry.state = COMMITTED
        self._publish_rows(ledger)
        for acks in self.acks:
            for ack in acks.ranges:
                ack_applied(ledger, ack)
        commit = self.position + self.size - aligned(self.commit_size)
        ledger.index.add_outcome_at(self.tx_id, commit)
