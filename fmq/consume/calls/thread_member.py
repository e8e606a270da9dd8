"""A member of a group of this process's engine, as threads use it: each call waits itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import finalize

from fmq.basics.message import Message
from fmq.consume.calls.advance import (
    Handled,
    advancing,
    end_handled,
    is_worth_it,
    keep,
    note_handled,
)
from fmq.consume.calls.member import GroupMember
from fmq.consume.calls.take import take_for_good
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.delivery import Delivery, DeliveryBatch
from fmq.consume.claims.handed import range_of
from fmq.consume.claims.poll import Poll
from fmq.steps.call_steps import Steps
from fmq.steps.thread_driver import drive
from fmq.store.bytes.internal import is_internal
from fmq.store.reading.batch import Batch

D = TypeVar("D")


class ThreadMember(GroupMember):
    """A member of a group of this process's engine. If it is dropped, it leaves the group."""

    def __init__(self, *what: Any) -> None:
        """`what` are the arguments of a GroupMember."""
        super().__init__(*what)
        self.name, self.is_ordered = self.entry.name, self.entry.is_ordered
        self._if_dropped = finalize(self, self.writer.dropped.append, self.leave)
        self._if_dropped.atexit = False

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        """Return deliveries; none if none comes within `timeout` seconds, or while draining."""
        found = self.drive(self.taking(Poll(self.clock, limit, timeout, counts=True)))
        return [] if found is None else self.deliveries(Delivery, self, *found)

    def poll_batch(self, limit: int, timeout: float) -> DeliveryBatch | None:
        """Return messages of one queue; None if none comes within `timeout` seconds, or if the
        member drains.
        """
        how = {"as_batch": True, "in_one_piece": True, "counts": True}
        found = self.drive(self.taking(Poll(self.clock, limit, timeout, **how)))
        return None if found is None else self.delivery_batch(DeliveryBatch, self, *found)

    def take(self, limit: int, timeout: float, sync: bool | None) -> list[Message]:
        """Return messages of one queue and ack them. `sync` says whether the ack is synced."""
        poll = Poll(self.clock, limit, timeout, as_batch=True, in_one_piece=True)
        messages = drive(take_for_good(self, poll, sync), self.writer.commit_queue, self.clock)
        self.after()
        return messages or []

    def advance(self, done: Delivery) -> Delivery | None:
        """Ack the handled delivery `done`, and return the next one; None if there is none yet.

        If the lease of `done` was lost meanwhile, that is logged.
        """
        if not is_worth_it(self):
            end_handled(done)
            return None
        handled = Handled(*range_of(done))
        try:
            keep(self, handled)
            found = self.drive(self.taking(Poll(self.clock, 1, 0.0, tells=False)))
            deliveries = [] if found is None else self.deliveries(Delivery, self, *found)
        except BaseException:
            # An error that is about the next message must not keep `done` from being acked.
            end_handled(done)
            raise
        if found is None or not deliveries:
            end_handled(done)
            return None
        one = self.drive(advancing(self, handled, *found))
        note_handled(done, is_acked=one.is_acked)
        self.after()
        return deliveries[0] if one.left else None

    def deliveries(
        self, make: Callable[..., D], member: object, claim: Claim, pieces: list[list[Message]]
    ) -> list[D]:
        """Return the claimed messages as deliveries that `make` makes. `member` will ack them or
        give them back. Leave out replayed dead letters that are gone.
        """
        attempt = claim.count + 1
        if not is_internal(claim.queue.topic):
            return [make(member, claim, it, attempt, it.offset) for each in pieces for it in each]
        were = partial(self.burying.as_they_were, claim.queue.topic)
        return [
            make(member, claim, shown, attempt, it.offset)
            for each in pieces
            for it, shown in zip(each, were(each), strict=False)
        ]

    def delivery_batch(
        self, make: Callable[..., D], member: object, claim: Claim, batches: list[Batch]
    ) -> D | None:
        """Return the one claimed batch as a delivery that `make` makes; None if its messages are
        replayed dead letters that are gone.
        """
        (batch,) = batches
        shown = self.burying.shown_of(batch)
        if shown is not None and not shown:
            return None
        return make(member, claim, batch, claim.count + 1, shown)

    def leaving(self, *, counts: bool) -> Steps[None]:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
        self._if_dropped.detach()
        return super().leaving(counts=counts)
