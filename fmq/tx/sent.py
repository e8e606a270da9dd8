"""What most appends are outside of transactions: messages sent, and a range acked."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from fmq.disk import Buffer
from fmq.store.columns import Content
from fmq.store.encoding import ACKS_BYTES, MESSAGE_BYTES, ack_names_of, names_of
from fmq.store.journal import encode_all
from fmq.store.kinds import MESSAGE, AckRange, Kind
from fmq.store.record import (
    ACK_RANGE,
    ACKS_FRONT,
    FIRST,
    LAG_UNKNOWN,
    LAST,
    MAGIC,
    MESSAGE_HEAD,
    PADDING,
    utf8,
)
from fmq.tx.apply import ack_applied
from fmq.tx.drafts import Row, tail_of
from fmq.tx.ledger import Ledger, Topic
from fmq.tx.straight import Straight, U32_pack

ACK = Kind.ACK
ACK_RANGE_BYTES = ACK_RANGE.size
pack_message, pack_acks, pack_ack_range = MESSAGE_HEAD.pack, ACKS_FRONT.pack, ACK_RANGE.pack


class Sent(Straight):
    """MESSAGEs: what `send` and `send_many` append."""

    __slots__ = ("rows",)

    def __init__(
        self,
        known: dict[str, Topic],
        topic: str,
        producer: str,
        contents: Iterable[tuple[int, Content]],
    ) -> None:
        """`contents` go to the queues named with them."""
        super().__init__(known, (topic,), producer)
        self.rows: list[Row] = []
        topic_bytes, _, names = names_of(topic, producer)
        size_of_all = 0
        for number, content in contents:
            tail = tail_of(names, content)
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
            self.placed.append((topic, queue, offset, at, content))
            at += (size + 7) & ~7
            flags = 0
        return chain

    def publish(self, ledger: Ledger) -> None:
        self._publish_rows(ledger)


class AckSent(Straight):
    """What one group is done with in one queue: an ACK."""

    __slots__ = ("range",)

    def __init__(self, known: dict[str, Topic], done: AckRange) -> None:
        super().__init__(known, (), "")
        self.range = done
        names = ack_names_of(done.group, done.topic, done.queue)
        self.size = (ACKS_BYTES + len(names) + ACK_RANGE_BYTES + 7) & ~7

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        self.position = position
        done, lag = self.range, position - durable_to
        names = ack_names_of(done.group, done.topic, done.queue)
        size = ACKS_BYTES + len(names) + ACK_RANGE_BYTES
        head = b"".join((
            pack_acks(
                size, size, position, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN, 0, ACK,
                FIRST | LAST, 0, 0, self.time_us, 1,
            ),
            names,
            pack_ack_range(done.first, done.end),
        ))  # fmt: skip
        crc = U32_pack(crc32(head, seed))
        buffers += (MAGIC, crc, head, PADDING[size & 7])
        return crc32(crc, chain)

    def publish(self, ledger: Ledger) -> None:
        ack_applied(ledger, self.range)
        self._publish_rows(ledger)
