"""The step from a delivery that was handled to the next one, with one write.

`run` acks a delivery when it asks for the next one. So the ack and the attempt of the next message
are one append. The next message is claimed before; if there is none, the append is only the ack.
Decision 58.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from fmq.consume.claims.claim import Claim
from fmq.consume.claims.delivery import Delivery
from fmq.consume.claims.handed import held_by, lost, settle
from fmq.consume.claims.poll import offsets_of
from fmq.errors import LeaseLost
from fmq.steps.call_steps import Durable, Steps
from fmq.store.bytes.kinds import Acks, Append

if TYPE_CHECKING:
    from fmq.consume.calls.member import GroupMember

logger = logging.getLogger("fmq.consumers")


class Handled(NamedTuple):
    """A range of messages that the program has handled and that is to be acked."""

    claim: Claim
    first: int
    end: int


def keep(member: GroupMember, handled: Handled) -> None:
    """Extend the lease of what was handled, before the next message is claimed. The claim
    redelivers messages whose lease has ended, and it must not redeliver what was handled.
    """
    claim, first, end = handled

    def extend() -> None:
        if claim.holds.is_held_by(first, end, claim):
            claim.holds.extend(first, end, member.clock.monotonic() + member.lease_seconds)

    member.writer.change(extend)


class Advance:
    """One append: the ack of what was handled, and an attempt of the messages that were claimed
    next.
    """

    __slots__ = ("_handled", "_member", "_next", "_ranges", "is_acked", "left")

    def __init__(
        self,
        member: GroupMember,
        handled: Handled,
        claim: Claim,
        ranges: list[tuple[int, int]],
    ) -> None:
        """`ranges` are the next messages. `claim` holds them."""
        self._member = member
        self._handled = handled
        self._next = claim
        self._ranges = ranges
        self.is_acked = False
        """Whether the consumer still held what was handled, so that it is acked now."""
        self.left: list[tuple[int, int]] = []
        """The ranges that are counted: those that `claim` still holds."""

    def plan(self, what: object = None) -> None:
        """Plan the append. The caller holds the engine's lock. A refusal changes nothing; a lost
        lease is no refusal.
        """
        member, handled = self._member, self._handled
        member.writer.release_dropped()
        member.entry.seen = now = member.clock.monotonic()
        done, first, end = handled
        self.is_acked = done.holds.is_held_by(first, end, done)
        left = member.tries.still_held(self._next, self._ranges)
        append: Append = [Acks((member.range_of(*handled),), 0)] if self.is_acked else []
        if left:
            member.writer.count(member.tries.attempt(self._next, left), append)
        elif append:
            member.writer.send(append)
        self._next.holds.count_tries(left)
        if self.is_acked:
            member.tally.handled[int((now - done.since) * 1e9).bit_length()] += 1
        self.left = left


def advancing(
    member: GroupMember,
    handled: Handled,
    claim: Claim,
    pieces: list[Any],
    sync: bool | None = None,
) -> Steps[Advance]:
    """Ack what was `handled`, and count an attempt of the `pieces` of `claim`, in one append."""
    one = Advance(member, handled, claim, [offsets_of(piece) for piece in pieces])
    try:
        yield Durable(one.plan, None, sync)
    except BaseException:
        member.give_back_pieces(claim, pieces)
        raise
    member.draining.changed()
    return one


def is_worth_it(member: GroupMember) -> bool:
    """Return whether it pays to look for the next message before the ack.

    It does not if the ack is not synced: there is no sync to save. Nor where the order of keys is
    kept: the next message may have to wait for the ack, and finding that out takes a look at the
    whole backlog of its key.
    """
    return member.writer.commit_queue.waits(None) and not member.entry.is_ordered


def end_handled(done: Delivery) -> None:
    """Ack a delivery that was handled. If its lease was lost, log that."""
    try:
        done.ack()
    except LeaseLost as error:
        logger.warning("handled, and not acked: %s", error)


def note_handled(done: Delivery, *, is_acked: bool) -> None:
    """Note that a delivery was acked together with the next attempt. If its lease was lost, log
    that.
    """
    if is_acked:
        settle([done])
    else:
        member, *_ = held_by(done)
        error = lost(done.topic, done.queue, done.offset, member.lease_seconds)
        logger.warning("handled, and not acked: %s", error)
