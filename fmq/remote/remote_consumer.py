"""A consumer of a client. The engine process keeps its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar
from weakref import finalize

from fmq.basics.message import Message
from fmq.consume.calls.advance import note_handled
from fmq.consume.calls.any_consumer import AnyConsumer
from fmq.consume.claims.delivery import Delivery, DeliveryBatch
from fmq.consume.claims.handed import range_of
from fmq.consume.claims.membership import OwnedQueue
from fmq.errors import FmqError, LeaseLost
from fmq.remote.link import Link
from fmq.remote.remote_claims import ClaimedBatch, Membership, RemoteClaim, RemoteQueue
from fmq.remote.remote_manager import RemoteKeeper
from fmq.remote.remote_settlement import RemoteSettler
from fmq.store.reading.batch import Batch
from fmq.wire.batches import ReplayedRead, decode_batch
from fmq.wire.claims import (
    ADVANCED,
    CLAIM,
    NEWS,
    PIECE,
    AckAsked,
    encode_ack,
    encode_take,
)
from fmq.wire.frames import Op
from fmq.wire.values import decode_values, encode_values

D = TypeVar("D")


class RemoteMember(RemoteSettler):
    """A member of a group in another process. If it is dropped, it leaves the group."""

    loop_seconds = 60.0

    def __init__(
        self,
        link: Link,
        keeper: RemoteKeeper,
        members: dict[int, Membership],
        handle: int,
        membership: Membership,
    ) -> None:
        """`members` are all members of the client, by handle."""
        super().__init__(link, keeper, handle, membership)
        self._members = members
        link.ask(Op.JOIN, membership.said(), handle=handle)
        members[handle] = membership
        leave = partial(_leave, link, members, handle)
        self._if_dropped = finalize(self, keeper.dropped.append, leave)
        self._if_dropped.atexit = False

    # --- what it takes --------------------------------------------------------------------------

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        """Return deliveries; none if none comes within `timeout` seconds, or while draining."""
        return self.deliveries(Delivery, self, self._poll(limit, timeout, in_one_piece=False))

    def poll_batch(self, limit: int, timeout: float) -> DeliveryBatch | None:
        """Return messages of one queue; None if none comes within `timeout` seconds, or if the
        member drains.
        """
        found = self._poll(limit, timeout, in_one_piece=True)
        return self.delivery_batch(DeliveryBatch, self, found)

    def take(self, limit: int, timeout: float, sync: bool | None) -> list[Message]:
        """Return messages of one queue and ack them. `sync` says whether the ack is synced."""
        found = self.take_now(limit, sync)
        if found or timeout <= 0:
            return found
        batch = self.poll_batch(limit, timeout)
        if batch is None:
            return []
        batch.ack(sync=sync)
        return batch.messages

    def take_now(self, limit: int, sync: bool | None) -> list[Message]:
        """Take messages that are there now, without waiting."""
        self.begin()
        while answer := self.link.write(Op.TAKE, encode_take, limit, sync, handle=self.handle):
            if CLAIM.unpack_from(answer) != (NEWS,):
                return [each for batch in _batches(answer) for each in batch.messages]
            self._tell(*decode_values(answer[CLAIM.size :]))
        return []

    def advance(self, done: Delivery) -> Delivery | None:
        """Ack `done`, and return the next delivery if there is one at once. One answer
        brings both.
        """
        self.check()
        claim, first, end = range_of(done)
        said = encode_ack(AckAsked(claim.number, first, end, None, *claim.queue))
        try:
            answer = self.ask(Op.ADVANCE, said, claim, first, end)
        except LeaseLost:
            note_handled(done, is_acked=False)
            return None
        note_handled(done, is_acked=bool(answer[0]))
        found = self.deliveries(Delivery, self, self._pieces(answer[ADVANCED.size :]))
        return found[0] if found else None

    def _poll(self, limit: int, timeout: float, *, in_one_piece: bool) -> list[ClaimedBatch]:
        self.begin()
        while not self.draining.is_on:
            said = encode_values([limit, timeout, in_one_piece])
            answer = self.link.ask(Op.POLL, said, handle=self.handle, patience=timeout)
            found = self.answered(answer)
            if found is not None:
                return found
        return []

    def begin(self) -> None:
        """Begin a poll: release what was dropped. Raises Closed."""
        self.check()
        self.keeper.change(_nothing)

    def answered(self, answer: bytes) -> list[ClaimedBatch] | None:
        """Return the pieces that a poll has brought. If the answer is news, tell the program and
        return None.
        """
        if not answer or CLAIM.unpack_from(answer) != (NEWS,):
            return self._pieces(answer)
        self._tell(*decode_values(answer[CLAIM.size :]))
        return None

    def _pieces(self, answer: bytes) -> list[ClaimedBatch]:
        """Return the pieces of a poll's answer. Note a claim for each."""
        found, at = [], 0
        until = self.monotonic() + self.lease_seconds
        while at < len(answer):
            number, attempt, size = PIECE.unpack_from(answer, at)
            at += PIECE.size
            is_last = at + size == len(answer)
            batch = decode_batch(answer, at) if is_last else decode_batch(answer[at : at + size])
            at += size
            topic = batch.place if isinstance(batch, ReplayedRead) else batch.topic
            queue = RemoteQueue(topic, batch.queue)
            claim = RemoteClaim(number, queue, batch.offset, batch.next, attempt, until)
            self.membership.claims[number] = claim
            found.append((claim, batch))
        return found

    def deliveries(
        self, make: Callable[..., D], member: object, pieces: list[ClaimedBatch]
    ) -> list[D]:
        """Return `pieces` as deliveries that `make` makes. `member` will carry out their calls."""
        return [
            make(member, claim, message, claim.attempt, first)
            for claim, batch in pieces
            for first, message in enumerate(_shown(batch) or batch.messages, batch.offset)
        ]

    def delivery_batch(
        self, make: Callable[..., D], member: object, pieces: list[ClaimedBatch]
    ) -> D | None:
        """Return the one piece as a delivery that `make` makes; None if there is none."""
        for claim, batch in pieces:
            return make(member, claim, batch, claim.attempt, _shown(batch))
        return None

    def _tell(self, lost: list[list[Any]], gained: list[list[Any]]) -> None:
        """Tell the program which queues the member has lost, and which it has gained."""
        on_change = self.membership.asked.on_change
        assert on_change is not None, "else there is no news"
        on_change([OwnedQueue(*each) for each in lost], [OwnedQueue(*each) for each in gained])

    # --- what it has in hand --------------------------------------------------------------------

    def in_hand(self) -> tuple[int, float]:
        """Return how many messages are in hand, and when the first of their leases ends."""
        now, count, first_end = self.monotonic(), 0, inf
        for claim in [*self.membership.claims.values()]:
            left = claim.end - claim.first - len(claim.spent)
            if left and claim.until > now:
                count += left
                first_end = min(first_end, claim.until)
        return count, first_end

    def stop_taking(self) -> None:
        """Let the consumer take nothing new."""
        self.draining.is_on = True
        self.link.ask(Op.DRAIN, b"", handle=self.handle)

    def count_members(self) -> int:
        """Return how many members the group has."""
        return len(self.link.call("members", self.named))

    def close(self, *, counts: bool) -> None:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
        if not self.is_closed:
            self.is_closed = True
            self.draining.changed()
            self._if_dropped.detach()
            _leave(self.link, self._members, self.handle, counts=counts)


class RemoteConsumer(AnyConsumer):
    """A consumer: a member of a group. Its engine is in another process. Safe for threads."""


def _leave(link: Link, members: dict[int, Membership], handle: int, *, counts: bool = True) -> None:
    """Give back what a consumer holds. Errors are not raised: an engine process that is gone holds
    nothing.
    """
    if members.pop(handle, None) is not None:
        with suppress(FmqError):
            link.ask(Op.LEAVE, encode_values([counts]), handle=handle)


def _shown(batch: Batch) -> list[Message] | None:
    """Return replayed dead letters with the topic and offsets where they failed; None for other
    messages.
    """
    return batch.shown if isinstance(batch, ReplayedRead) else None


def _batches(answer: bytes) -> Iterator[Batch]:
    """Yield the batches in the answer to a TAKE."""
    at = 0
    while at < len(answer):
        *_, size = PIECE.unpack_from(answer, at)
        at += PIECE.size
        yield decode_batch(answer[at : at + size])
        at += size


def _nothing() -> None:
    pass
