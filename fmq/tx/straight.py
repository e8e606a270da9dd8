"""Appends that go straight: from what was sent to bytes, and once durable from there to the index.

Most appends of a busy engine are of few shapes: MESSAGEs, an ACK (`sent.py`), and the steps of a
transaction (`phases.py`). Made one by one, their records are objects to be sized, placed, encoded
and applied. Here a loop or two do all of it, because behind a sync each step of Python counts. What
they write are the same records, and what they publish is what `apply` makes of these:
tests/tx/test_straight.py compares both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from fmq.disk import Buffer
from fmq.message import Origin, Receipt, receipt
from fmq.store.columns import U32
from fmq.store.content import Content
from fmq.store.fresh import FRESH_BYTES_MAX, Fresh
from fmq.store.index import SegmentIndex
from fmq.store.kinds import TopicMade
from fmq.tx.apply import queue_begins, topic_applied
from fmq.tx.ledger import Ledger, Queue, Topic

U32_pack = U32.pack

# Where they stand, once they have offsets: topic, queue, offset, the record's position, and them.
Placed = tuple[Topic, Queue, int, int, Content]


class Straight(ABC):
    """What all shapes share: topics that come into being, and runs of messages. Each sets what it
    needs of the attributes by itself: one is made for each call.
    """

    __slots__ = ("known", "made", "placed", "position", "producer", "size", "time_us", "topics")

    known: dict[str, Topic]  # that there are
    topics: Iterable[str]  # that may have to come into being with it
    made: Sequence[TopicMade]  # those that do
    producer: str
    placed: list[Placed]
    size: int  # of all its records, padding included
    position: int
    time_us: int

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
        """It is durable: let memory say so. Under the lock.

        `_applied` comes last: until then half of it may be visible, and if the engine fails there
        nothing is shown any more (`Parts.check_whole`).
        """

    def _publish_rows(self, ledger: Ledger, tx_id: str = "") -> None:
        if self.made:
            self._publish_topics(ledger)
        index, now = ledger.index, self.time_us
        for topic, queue, offset, at, content in self.placed:
            show(index, queue, offset, content.count, at, now)
            if topic.waiting:
                self._arrived(ledger, queue, offset, at, content, tx_id)
        self._applied(ledger)

    def _publish_topics(self, ledger: Ledger) -> None:
        for made in self.made:
            topic_applied(ledger, made)

    def _applied(self, ledger: Ledger) -> None:
        if self.time_us > ledger.last_us:
            ledger.last_us = self.time_us
        ledger.applied_upto = ledger.index.end = self.position + self.size

    def _arrived(
        self, ledger: Ledger, queue: Queue, offset: int, at: int, content: Content, tx_id: str = ""
    ) -> None:
        """Whom these messages wake, need not read them from the disk."""
        ledger.arrived.add(queue.topic)
        if len(content.bodies) <= FRESH_BYTES_MAX:
            place = queue.topic, queue.number, at
            origin = Origin(*place, self.time_us, tx_id or None, self.producer or None)
            queue.fresh = Fresh(offset, content, origin)

    def receipts(self) -> list[Receipt]:
        """Where the messages stand, for who has sent them."""
        return [
            receipt(queue.topic, queue.number, offset, at, content.count)
            for _, queue, offset, at, content in self.placed
        ]


def show(index: SegmentIndex, queue: Queue, offset: int, count: int, at: int, now: int) -> None:
    """The record at `at` publishes `count` messages, which are visible from now on."""
    if queue.next != offset or not queue.settled:
        queue_begins(queue, offset)
    lane = queue.lane
    if lane.base != index.base:
        lane = queue.lane = index.lane_of(queue.topic, queue.number, offset, now)
    place = at - lane.base
    lane.starts.append(offset - lane.first)
    lane.counts.append(count)
    if lane.bodies is not lane.records:
        lane.bodies.append(place)
    lane.records.append(place)
    lane.last_us = now
    lane.next = queue.next = offset + count
