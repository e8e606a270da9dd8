"""Messages that a consumer has read ahead. Its claims are served from them.

A batch is kept until its last message is taken, or its queue belongs to another member.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any, NamedTuple

from fmq.basics.message import Message
from fmq.consume.claims.by_priority import SpanWanted
from fmq.consume.claims.claim import Claim
from fmq.errors import Damaged, NewerFormat, OffsetGone
from fmq.store.reading.batch import Batch
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.queues import Queue
from fmq.tx.ledger.spans import UNREADABLE
from fmq.tx.looks.messages import Messages

READ_AHEAD_MESSAGES = 256
LATEST_MAX = 16  # a longer latest run is read outside of the lock


class BatchAhead(NamedTuple):
    """A batch, with its first offset and the offset after its last message."""

    batch: Batch
    offset: int
    next: int


class ReadAhead:
    """What one consumer has read of each queue and not handed out yet."""

    def __init__(self, messages: Messages, check_engine: Callable[[], None]) -> None:
        """`check_engine` raises if the engine is closed or has failed."""
        self._messages = messages
        self._check_engine = check_engine
        self.batches: dict[Queue, BatchAhead] = {}
        self._ends: dict[Queue, int] = {}  # queue -> the offset after the last message read

    def take_messages(self, queue: Queue, first: int, count: int) -> list[Message]:
        """Return the claimed messages. Make Message objects of everything that was read ahead."""
        ahead, offset, end = self._read_ahead(queue, first, count)
        try:
            _ = ahead.messages
        except (Damaged, NewerFormat):
            # Hand out the messages before the damage. The next poll begins with the damage, and
            # raises.
            self.batches.pop(queue, None)
            ahead = ahead.part(first, len(ahead)).sound()
            offset, end = first, ahead.next
            self.batches[queue] = BatchAhead(ahead, offset, end)
        if first + count >= end:
            self.batches.pop(queue, None)
        return ahead.messages_from(first, count)

    def take_batch(self, queue: Queue, first: int, count: int) -> Batch:
        """Return the claimed messages as a batch, which makes Message objects only when asked."""
        ahead, _, end = self._read_ahead(queue, first, count)
        if first + count >= end:
            self.batches.pop(queue, None)  # this claim has its last message: free the memory
        return ahead.part(first, count)

    def take_warm(self, claim: Claim, *, as_batch: bool) -> list[Any]:
        """Return the pieces of `claim` if all of them are in memory, else an empty list. The caller
        holds the engine's lock, so this makes few objects and does not raise Damaged.
        """
        queue, pieces = claim.queue, []
        for first, end in claim.ranges:
            kept = self.batches.get(queue)
            if kept is None or not kept.offset <= first < kept.next:
                kept = self._latest(queue, first)
            if kept is None or end > kept.next or not (as_batch or kept.batch.built is not None):
                return []
            take = kept.batch.part if as_batch else kept.batch.messages_from
            pieces.append(take(first, end - first))
            if end == kept.next:
                self.batches.pop(queue, None)
        return pieces

    def _latest(self, queue: Queue, first: int) -> BatchAhead | None:
        """Keep and return the latest run of a queue if it begins with `first` and is short."""
        latest = queue.latest
        if latest is None or latest.offset != first or latest.counts[0] > LATEST_MAX:
            return None
        batch = latest.batch(LATEST_MAX)
        _ = batch.messages
        return self._keep(queue, batch)

    def _keep(self, queue: Queue, batch: Batch) -> BatchAhead:
        self._ends[queue] = batch.next
        kept = self.batches[queue] = BatchAhead(batch, batch.offset, batch.next)
        return kept

    def _read_ahead(self, queue: Queue, first: int, count: int) -> BatchAhead:
        """Return a batch that contains the offset `first`. Usually that is the batch that was read
        last.
        """
        kept = self.batches.get(queue)
        if kept is not None and kept.offset <= first < kept.next:
            return kept
        # Read only `count`: with a filter or with priorities the next claim is probably elsewhere.
        wanted = count
        if self._ends.get(queue, first) == first:
            # The last read ended here, so claims are consecutive: read more than `count`. Read a
            # multiple of `count`, so that the end of a batch cuts no poll of `count` short.
            wanted = -(-READ_AHEAD_MESSAGES // count) * count
        try:
            return self._keep(queue, self._messages.batch_of(queue, first, wanted))
        except OSError:
            self._check_engine()  # raises Closed if closing the engine has caused the error
            raise

    def drop(self, lost: Container[tuple[str, int]]) -> None:
        """Drop what was read of the queues in `lost`, given by topic and number: the member has
        lost them.
        """
        for queue in [*self.batches]:
            if (queue.topic, queue.number) in lost:
                self.batches.pop(queue, None)

    def clear(self) -> None:
        """Drop all that was read."""
        self.batches.clear()


def read_priorities(messages: Messages, writer: Writer, wanted: SpanWanted) -> None:
    """Read the priority of each message in `wanted`, for the next claim. If a message cannot be
    read, the poll that hands it out raises the error.
    """
    queue, first, end = wanted
    found = bytearray()
    try:
        while first + len(found) < end:
            at = first + len(found)
            for carried in messages.carried(queue, at, end - at):
                found += carried.priorities()
    except OffsetGone:
        # Retention has dropped the messages meanwhile. The next claim looks at what is left.
        return
    except (Damaged, NewerFormat):
        found += UNREADABLE * (end - first - len(found))
    writer.change(partial(messages.ledger.know_priorities, queue, first, found))
