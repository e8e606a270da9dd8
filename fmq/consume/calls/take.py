"""Taking messages for good: a poll and an ack in one call, for programs that never give back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from fmq.basics.message import Message
from fmq.consume.claims.poll import Poll
from fmq.errors import FmqError
from fmq.steps.call_steps import Durable, Steps
from fmq.store.reading.batch import Batch

if TYPE_CHECKING:
    from fmq.consume.calls.member import GroupMember

T = TypeVar("T")


def take_for_good(
    member: GroupMember, poll: Poll, sync: bool | None
) -> Steps[list[Message] | None]:
    """Return messages of one queue, whose ack is written as `sync` says; None if there are none."""
    return take_batch(member, poll, sync, messages_of)


def messages_of(batch: Batch, shown: list[Message] | None) -> list[Message]:
    """Return the messages of a batch. If they were replayed, return `shown`: the messages as they
    were where they failed.
    """
    return batch.messages if shown is None else shown


def take_batch(
    member: GroupMember,
    poll: Poll,
    sync: bool | None,
    make: Callable[[Batch, list[Message] | None], T],
    extension: bytes = b"",
    fitting: Callable[[Batch], Batch] | None = None,
) -> Steps[T | None]:
    """Return what `make` makes of a batch whose ack, with the `extension`, is written; None if
    there is none. `fitting` returns as much of a batch as is wanted.
    """
    found = yield from member.taking(poll)
    if found is None:
        return None
    claim, (whole,) = found
    first, end = whole.offset, whole.next
    try:
        batch = whole if fitting is None else fitting(whole)
        shown = member.burying.shown_of(batch)
        if shown is not None and not shown:
            return None  # the replayed dead letters are gone
        made = make(batch, shown)
        if claim.holds.limiter is not None:
            claim.holds.limiter.handed(member.clock.monotonic(), claim.holds, [(first, batch.next)])
        acking = member.acking(claim, first, batch.next, extension)
        yield Durable(member.plan_ack, acking, sync)
        first = batch.next
    finally:
        # Give back what the program has not seen. What was acked all the same is not held any more.
        if first < end:
            with suppress(FmqError):
                member.try_give_back(claim, first, end)
    if member.draining.is_on:
        member.draining.changed()
    return made
