"""A consumer: one member of a group that shares the messages of some topics.

Every message goes to one member, which has it until it acks, closes, or its lease ends; then it
comes again, to whoever asks next. An ack is durable before it returns, and can be part of a
transaction instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isnan
from threading import get_ident
from types import TracebackType
from typing import NoReturn, TypeVar
from weakref import finalize

from fmq.consume.delivery import (
    Delivery,
    DeliveryBatch,
    Lease,
    deliveries_of,
    delivery_batch_of,
)
from fmq.consume.groups import Groups
from fmq.consume.holds import QueueHolds
from fmq.consume.ranges import Claim, Hold
from fmq.errors import BadOption, Closed, Damaged, LeaseLost, NewerFormat, OffsetGone
from fmq.message import Message
from fmq.store.batch import Batch
from fmq.store.journal import Append
from fmq.store.kinds import AckRange, Acks
from fmq.tx.ledger import Queue
from fmq.tx.messages import Messages
from fmq.tx.names import check_count, check_seconds
from fmq.tx.writer import Writer

READ_AHEAD_MESSAGES = 256
C = TypeVar("C", Batch, list[Message])


class Consumer:
    """A member of a group. Safe for threads."""

    def __init__(
        self,
        messages: Messages,
        groups: Groups,
        writer: Writer,
        check: Callable[[], None],
        topics: tuple[str, ...],
        group: str,
        lease_seconds: float,
        after: Callable[[], None],
    ) -> None:
        self._after = after
        self._messages = messages
        self._groups = groups
        self._writer = writer
        self._check_engine = check
        self.topics = topics
        self.group = group
        self._lease_seconds = lease_seconds
        self._turn = 0
        self._ahead: dict[Queue, Batch] = {}
        self._closed = False
        self._member = object()  # what its holds know of it: they do not keep it alive
        leave = partial(_leave, messages, groups, topics, group, self._member)
        self._if_dropped = finalize(self, writer.dropped.append, leave)
        self._if_dropped.atexit = False

    def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Up to `limit` deliveries, as soon as there is one; empty after `timeout` seconds."""
        claimed = self._claim(limit, timeout, self._messages_from)
        return [] if claimed is None else deliveries_of(self, *claimed)

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Up to `limit` messages of one queue, to be acked together; None after `timeout`."""
        claimed = self._claim(limit, timeout, self._batch_from)
        return None if claimed is None else delivery_batch_of(self, *claimed)

    def _claim(
        self, limit: int, timeout: float, take: Callable[[Queue, int, int], C]
    ) -> tuple[Claim, Queue, QueueHolds, int, C] | None:
        """What was claimed, from which offset on, and what `take` makes of it."""
        if type(limit) is not int or limit < 1:
            limit = check_count("limit", limit)
        if type(timeout) is not float or isnan(timeout):
            timeout = check_seconds("timeout", timeout)
        clock, groups = self._messages.clock, self._groups
        now = clock.monotonic()
        deadline = now + timeout
        claim = Claim(self._member)
        group = self._writer.commit_queue
        group.refuse_nested(get_ident())
        while True:
            wakeup = None
            with group.lock, group.changing:
                self._check()
                self._writer.release_dropped()
                self._turn += 1
                found = groups.claim(
                    self.group,
                    self.topics,
                    self._turn,
                    limit,
                    claim,
                    now,
                    now + self._lease_seconds,
                )
                if found is None:
                    if now >= deadline:
                        return None
                    wakeup = self._messages.listen(self.topics)
                    until = min(deadline, groups.next_deadline(self.group, self.topics))
                    if groups.await_transactions(self.group, self.topics):
                        # One that is dropped without an end tells nobody.
                        until = min(until, now + self._lease_seconds)
            if found is not None:
                queue, holds, hold = found
                try:
                    return claim, queue, holds, hold.first, self._read(found, claim, take)
                except OffsetGone:
                    continue  # retention dropped it since: what it has kept comes next
            assert wakeup is not None
            try:
                if not self._writer.dropped:  # by what the garbage collector has just ended
                    clock.wait(wakeup.lock, until - now)
            finally:
                self._messages.stop_listening(wakeup, self.topics)
            now = clock.monotonic()

    def _read(
        self,
        found: tuple[Queue, QueueHolds, Hold],
        claim: Claim,
        take: Callable[[Queue, int, int], C],
    ) -> C:
        """What `take` finds of the claim; the rest of it, or all if that fails, comes again."""
        queue, holds, hold = found
        first, end = hold.first, hold.end
        try:
            taken = take(queue, first, end - first)
        except BaseException:
            self._let_come_again(queue, holds, first, end, claim)
            raise
        if first + len(taken) < end:
            self._let_come_again(queue, holds, first + len(taken), end, claim)
        return taken

    def _let_come_again(
        self, queue: Queue, holds: QueueHolds, first: int, end: int, owner: object
    ) -> bool:
        """Redeliver what `owner` holds; return False if it is another's by now."""

        def give_back() -> bool:
            if not holds.held_by(first, end, owner):
                return False
            holds.give_back(first, end)
            self._wake(queue)
            return True

        return self._writer.change(give_back)

    def _wake(self, queue: Queue) -> None:
        """Something of `queue` comes again, or may do so sooner. Under the lock."""
        self._messages.ledger.arrived.add(queue.topic)
        self._messages.wake()

    def _messages_from(self, queue: Queue, first: int, count: int) -> list[Message]:
        """The messages claimed, built together with those that were read ahead."""
        ahead = self._read_ahead(queue, first, count)
        try:
            _ = ahead.messages
        except (Damaged, NewerFormat):
            # What lies before the damage is delivered; it is for who begins there to be told.
            self._ahead.pop(queue, None)
            ahead = self._ahead[queue] = ahead.part(first, len(ahead)).sound()
        if first + count >= ahead.next:
            self._ahead.pop(queue, None)
        return ahead.messages_from(first, count)

    def _batch_from(self, queue: Queue, first: int, count: int) -> Batch:
        """The same as a batch, whose messages are built when somebody asks for them."""
        ahead = self._read_ahead(queue, first, count)
        if first + count >= ahead.next:
            self._ahead.pop(queue, None)  # nothing is left of it, and it holds what it was cut from
        return ahead.part(first, count)

    def _read_ahead(self, queue: Queue, first: int, count: int) -> Batch:
        """A batch with the offset `first` in it: mostly what the last call has read ahead."""
        ahead = self._ahead.get(queue)
        if ahead is not None and ahead.offset <= first < ahead.next:
            return ahead
        # A multiple, so that the same call again and again always gets as many as it asks for.
        wanted = -(-READ_AHEAD_MESSAGES // count) * count
        try:
            ahead = self._messages.batch(queue.topic, queue.number, first, wanted)
        except OSError:
            self._check_engine()  # closed since then, and its files with it
            raise
        assert ahead is not None, "what is claimed is visible"
        self._ahead[queue] = ahead
        return ahead

    def _ack(self, lease: Lease, sync: bool | None) -> None:
        # Until it is durable it is nobody's: neither its lease nor this consumer's end may let a
        # message come again whose ack is on its way.
        self._check()
        writer = self._writer

        def plan(ack: Append) -> None:
            writer.release_dropped()
            self._check_held(lease)
            writer.send(ack)
            self._exchange(lease, ack)

        writer.commit_queue.run(plan, Append([Acks((lease._range(),), 0)]), sync)
        after = self._after
        after()

    def _give_back(self, lease: Lease) -> None:
        self._check()
        what = lease._queue, lease._holds, lease._first, lease._end, lease._claim
        if not self._let_come_again(*what):
            self._refuse(lease)

    def _hold_for_transaction(self, lease: Lease, writer: Writer, holder: object) -> AckRange:
        self._check()
        if writer is not self._writer:
            raise BadOption(
                f"{lease!r} is of another engine than the transaction, which cannot ack it there. "
                "Nothing was changed; consume and produce with one engine, or ack it by itself."
            )
        writer.change(partial(self._exchange, lease, holder))
        return lease._range()

    def _check_held(self, lease: Lease) -> None:
        """Raise LeaseLost unless `lease` is this consumer's. Under the lock."""
        if not lease._holds.held_by(lease._first, lease._end, lease._claim):
            self._refuse(lease)

    def _exchange(self, lease: Lease, holder: object) -> None:
        """Hand the range of `lease` to `holder`, without a deadline. Under the lock."""
        if not lease._holds.exchange(lease._first, lease._end, lease._claim, holder):
            self._refuse(lease)

    def _released(self, lease: Lease, holder: object) -> None:
        """What `holder` had, and does not ack, is this consumer's again, or anybody's if that one
        has closed. Under the lock.
        """
        holds, first, end = lease._holds, lease._first, lease._end
        if not holds.held_by(first, end, holder):
            return
        if self._closed:
            holds.give_back(first, end)
        else:
            deadline = self._messages.clock.monotonic() + self._lease_seconds
            holds.hand_over(first, end, lease._claim, deadline)
        self._wake(lease._queue)

    def _refuse(self, lease: Lease) -> NoReturn:
        queue = lease._queue
        raise LeaseLost(
            f"{queue.topic}/{queue.number} offset {lease._first}: no longer this consumer's. "
            "It was acked before, given back, is part of a transaction, or its lease of "
            f"{self._lease_seconds:g} s ended and the message came again. Nothing was changed; "
            "if handling takes longer, ask for a longer lease."
        )

    def _check(self) -> None:
        check = self._check_engine
        check()
        if self._closed:
            raise Closed("the consumer is closed; make another one with engine.consumer(...)")

    def close(self) -> None:
        """Leave the group; what is not acked comes again to the others."""
        self._closed = True
        self._ahead.clear()
        what = self._messages, self._groups, self.topics, self.group, self._member
        self._writer.change(partial(_leave, *what))
        self._if_dropped.detach()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _leave(
    messages: Messages, groups: Groups, topics: tuple[str, ...], group: str, member: object
) -> None:
    """Redeliver to the rest of `group` what `member` holds. Under the lock."""
    groups.release(group, topics, member)
    messages.ledger.arrived.update(topics)
    messages.wake()
