"""Appends that go straight: from what was sent to bytes, and once durable from there to the index.

Most appends of a busy engine have one of two shapes: MESSAGEs, or a transaction in one phase, its
TX_MESSAGEs and COMMIT. Made one by one, their records are objects to be sized, placed, encoded and
applied. Here two loops do all of it, because behind a sync each step of Python counts. What they
write are the same records, and what they publish is what `apply` makes of these:
tests/tx/test_straight.py compares both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from zlib import crc32

from fmq.disk import Buffer
from fmq.message import Receipt, receipt
from fmq.store.columns import COMPRESSED, U32, Content
from fmq.store.encoding import (
    DECISION_BYTES,
    MESSAGE_BYTES,
    TX_RUN_BYTES,
    encode,
    names_of,
    size_of,
)
from fmq.store.kinds import (
    COMMIT,
    MESSAGE,
    PRE_MESSAGE,
    TX_MESSAGE,
    AckRange,
    Acks,
    Prepare,
    Record,
    Run,
    TopicMade,
)
from fmq.store.record import (
    DECISION_FRONT,
    FIRST,
    LAG_UNKNOWN,
    LAST,
    MAGIC,
    MESSAGE_HEAD,
    PADDING,
    TX_HEAD,
    aligned,
    utf8,
)
from fmq.tx.apply import ack_applied, forget, prepare_applied, queue_begins, topic_applied
from fmq.tx.ledger import Entry, Ledger, Queue, Topic
from fmq.tx.seal import SEALED, digest
from fmq.tx.state import State

T = TypeVar("T")
COMMITTED = State.COMMITTED
U32_pack, pack_message, pack_run, pack_commit, pack_sealed = (
    U32.pack, MESSAGE_HEAD.pack, TX_HEAD.pack, DECISION_FRONT.pack, SEALED.pack
)  # fmt: skip

# Messages for one queue, and what their record says of them wherever it stands: the names and
# columns at the end of its head, its size, and the bytes of the topic's name.
Row = tuple[str, int, Content, bytes, int, int]
# Where they stand: topic, queue, offset and the record's position.
Place = tuple[Topic, Queue, int, int]


class Straight(ABC):
    """What both shapes share: topics that come into being, and runs of messages."""

    __slots__ = ("known", "made", "places", "position", "producer", "rows", "size", "time_us",
                 "topics")  # fmt: skip

    def __init__(self, known: dict[str, Topic], topics: Iterable[str], producer: str) -> None:
        """`known` are the topics that there are, `topics` those that it is for."""
        self.known = known
        self.topics = topics
        self.producer = producer
        self.rows: list[Row] = []
        self.places: list[Place] = []
        self.made: Sequence[TopicMade] = ()
        self.size = 0  # of all its records, padding included
        self.position = 0
        self.time_us = 0

    def make(self, topics: Sequence[TopicMade], size: int) -> None:
        """Let TOPIC records, of `size` bytes together, stand before the others."""
        self.made = topics
        self.size += size

    @abstractmethod
    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        """Take offsets, and append its bytes, to stand at `position`; the chain behind them."""

    @abstractmethod
    def publish(self, ledger: Ledger) -> None:
        """It is durable: let memory say so. Under the lock."""

    def _publish_rows(self, ledger: Ledger) -> None:
        for made in self.made:
            topic_applied(ledger, made)
        index, now = ledger.index, self.time_us
        base, lanes = index.base, index.lanes
        for row, (topic, queue, offset, at) in zip(self.rows, self.places, strict=True):
            if queue.next != offset or not queue.settled:
                queue_begins(queue, offset)
            name, number, content = row[:3]
            lane = lanes.get((name, number))
            if lane is None:
                lane = index.begin_lane(name, number, offset, now)
            count, place = content.count, at - base
            lane.starts.append(offset - lane.first)
            lane.counts.append(count)
            lane.records.append(place)
            lane.bodies.append(place)
            lane.last_us = now
            lane.next = queue.next = offset + count
            if topic.waiting:
                ledger.arrived.add(name)
        if now > ledger.last_us:
            ledger.last_us = now
        ledger.applied_upto = index.end = self.position + self.size

    def receipts(self) -> list[Receipt]:
        """Where the messages stand, for who has sent them."""
        return [
            receipt(row[0], row[1], offset, at, row[2].count)
            for row, (_, _, offset, at) in zip(self.rows, self.places, strict=True)
        ]


class Sent(Straight):
    """MESSAGEs: what `send` and `send_many` append."""

    __slots__ = ()

    def __init__(
        self,
        known: dict[str, Topic],
        topic: str,
        producer: str,
        contents: Iterable[tuple[int, Content]],
    ) -> None:
        """`contents` go to the queues named with them."""
        super().__init__(known, (topic,), producer)
        topic_bytes, _, names = names_of(topic, producer)
        size_of_all = 0
        for number, content in contents:
            tail = _tail(names, content)
            size = MESSAGE_BYTES + len(tail) + len(content.bodies)
            self.rows.append((topic, number, content, tail, size, topic_bytes))
            size_of_all += (size + 7) & ~7
        self.size = size_of_all

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        self.position = at = position
        flags, now, last = FIRST, self.time_us, self.rows[-1]
        producer_bytes = len(utf8(self.producer))
        if self.made:
            at, chain = encode_all(self.made, at, FIRST, durable_to, seed, chain, buffers)
            flags = 0
        for row in self.rows:
            name, number, content, tail, size, topic_bytes = row
            topic = self.known[name]
            queue = topic.queues[number]
            offset, count, bodies = queue.assigned, content.count, content.bodies
            queue.assigned = offset + count
            lag = at - durable_to
            head = pack_message(
                size, size - len(bodies), at, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN,
                content.bodies_crc, MESSAGE,
                (flags if row is not last else flags | LAST) | content.flags,
                number, offset, now, count, topic_bytes, producer_bytes, 0,
            ) + tail  # fmt: skip
            crc = U32_pack(crc32(head, seed))
            chain = crc32(crc, chain)
            buffers += (MAGIC, crc, head, bodies, PADDING[size & 7])
            self.places.append((topic, queue, offset, at))
            at += (size + 7) & ~7
            flags = 0
        return chain

    def publish(self, ledger: Ledger) -> None:
        self._publish_rows(ledger)


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
            run.tail = tail = _tail(names, content)
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
                 "seal", "tx", "tx_id")  # fmt: skip

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
            tail = _tail(names + tx_id_bytes, content)
            size = TX_RUN_BYTES + len(tail) + len(content.bodies)
            rows.append((topic, number, content, tail, size, topic_bytes))
            sealed += (
                pack_sealed(number, count, content.bodies_crc, crc32(columns) if columns else 0),
                utf8(topic),
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
            self.places.append((topic, queue, offset, at))
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


def _tail(names: bytes, content: Content) -> bytes:
    """What ends the head of a record that holds `content`."""
    if content.flags & COMPRESSED:
        names += U32_pack(content.raw_bytes)
    return names + content.columns


def encode_all(
    records: Iterable[Record],
    at: int,
    flags: int,
    durable_to: int,
    seed: int,
    chain: int,
    buffers: list[Buffer],
) -> tuple[int, int]:
    """Bytes of records of other kinds, the first with `flags`; where they end, and the chain."""
    for record in records:
        record.position, record.flags = at, flags
        encoded = encode(record, durable_to, seed)
        chain = crc32(encoded[1], chain)
        buffers += encoded
        at += aligned(record.size)
        flags = 0
    return at, chain
