"""What most appends are outside of transactions: messages sent, and a range acked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

from fmq.disk import Buffer
from fmq.message import Receipt, receipt
from fmq.store.content import Content
from fmq.store.encoding import ACKS_BYTES, MESSAGE_BYTES, ack_names_of, names_of
from fmq.store.journal import encode_all
from fmq.store.kinds import MESSAGE, Kind
from fmq.store.record import (
    ACK_RANGE,
    ACKS_FRONT,
    FIRST,
    LAG_UNKNOWN,
    LAST,
    MAGIC,
    MESSAGE_HEAD,
    PADDING,
)
from fmq.tx.acks import Acked
from fmq.tx.drafts import Row, tail_of
from fmq.tx.ledger import Ledger, Queue, Topic
from fmq.tx.straight import Straight, U32_pack, show

ACK = Kind.ACK
ACK_RANGE_BYTES, FIRST_AND_LAST = ACK_RANGE.size, FIRST | LAST
pack_message, pack_acks, pack_ack_range = MESSAGE_HEAD.pack, ACKS_FRONT.pack, ACK_RANGE.pack


class Sent(Straight):
    """MESSAGEs: what `send` and `send_many` append."""

    __slots__ = ("producer_bytes", "rows")

    def __init__(
        self,
        known: dict[str, Topic],
        topic: str,
        producer: str,
        contents: Iterable[tuple[int, Content]],
    ) -> None:
        """`contents` go to the queues named with them."""
        self.known, self.topics, self.producer = known, (topic,), producer
        self.made, self.placed = (), []
        topic_bytes, self.producer_bytes, names = names_of(topic, producer)
        self.rows: list[Row] = []
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
        flags, now, rows, placed = FIRST, self.time_us, self.rows, self.placed
        last = rows[-1]
        if self.made:
            at, chain = encode_all(self.made, at, FIRST, durable_to, seed, chain, buffers)
            flags = 0
        for row in rows:
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
                number, offset, now, count, topic_bytes, self.producer_bytes, 0,
            ) + tail  # fmt: skip
            crc = U32_pack(crc32(head, seed))
            chain = crc32(crc, chain)
            buffers += (MAGIC, crc, head, bodies, PADDING[size & 7])
            placed.append((topic, queue, offset, at, content))
            at += (size + 7) & ~7
            flags = 0
        return chain

    def publish(self, ledger: Ledger) -> None:
        self._publish_rows(ledger)

    def receipt(self) -> Receipt:
        """Where the first of the messages stands."""
        return self.receipts()[0]


class One(Straight):
    """A MESSAGE with one body alone, for a topic that is there: what most sends are."""

    __slots__ = ("body", "crc", "names", "offset", "queue", "topic")

    def __init__(self, topic: Topic, number: int, producer: str, body: bytes) -> None:
        """`body` goes to the queue with this number."""
        self.topics = self.made = ()
        self.topic, self.queue, self.producer = topic, topic.queues[number], producer
        self.body, self.crc = body, crc32(body)
        self.names = names = names_of(topic.name, producer)
        self.size = (MESSAGE_BYTES + len(names[2]) + len(body) + 7) & ~7

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        self.position = position
        queue, body, lag = self.queue, self.body, position - durable_to
        self.offset = offset = queue.assigned
        queue.assigned = offset + 1
        topic_bytes, producer_bytes, names = self.names
        head_size = MESSAGE_BYTES + len(names)
        size = head_size + len(body)
        head = pack_message(
            size, head_size, position, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN,
            self.crc, MESSAGE, FIRST_AND_LAST,
            queue.number, offset, self.time_us, 1, topic_bytes, producer_bytes, 0,
        ) + names  # fmt: skip
        crc = U32_pack(crc32(head, seed))
        buffers += (MAGIC, crc, head, body, PADDING[size & 7])
        return crc32(crc, chain)

    def publish(self, ledger: Ledger) -> None:
        queue, at = self.queue, self.position
        show(ledger.index, queue, self.offset, 1, at, self.time_us)
        if self.topic.waiting:
            content = Content(1, 0, b"", self.body, self.crc, len(self.body))
            self._arrived(ledger, queue, self.offset, at, content)
        self._applied(ledger)

    def receipt(self) -> Receipt:
        """Where it stands."""
        queue = self.queue
        return receipt(queue.topic, queue.number, self.offset, self.position, 1)


class AckSent(Straight):
    """What one group is done with in one queue: an ACK."""

    __slots__ = ("acked", "done", "end", "first", "names")

    def __init__(
        self,
        group: str,
        queue: Queue,
        first: int,
        end: int,
        acked: Acked,
        done: Callable[[int, int], None],
    ) -> None:
        """`acked` and `done` are what the ledger, and who hands out its messages, has of `group` in
        `queue`: they are told once it is durable.
        """
        self.topics = self.made = ()
        self.first, self.end, self.acked, self.done = first, end, acked, done
        self.names = names = ack_names_of(group, queue.topic, queue.number)
        self.size = (ACKS_BYTES + len(names) + ACK_RANGE_BYTES + 7) & ~7

    def encode(
        self, position: int, durable_to: int, seed: int, chain: int, buffers: list[Buffer]
    ) -> int:
        self.position = position
        names, lag = self.names, position - durable_to
        size = ACKS_BYTES + len(names) + ACK_RANGE_BYTES
        head = pack_acks(
            size, size, position, lag if lag < LAG_UNKNOWN else LAG_UNKNOWN, 0, ACK,
            FIRST_AND_LAST, 0, 0, self.time_us, 1,
        ) + names + pack_ack_range(self.first, self.end)  # fmt: skip
        crc = U32_pack(crc32(head, seed))
        buffers += (MAGIC, crc, head, PADDING[size & 7])
        return crc32(crc, chain)

    def publish(self, ledger: Ledger) -> None:
        self.acked.add(self.first, self.end)
        self.done(self.first, self.end)
        self._applied(ledger)
