"""The end of what a consumer holds: its messages are acked, rejected or given back.

Deliveries call this, and so does an engine process for the deliveries of its clients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn, TypeVar

from fmq.basics.counts import GroupTally
from fmq.basics.tuples import tuple_maker
from fmq.consume.calls.in_hand import InHand
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.handed import OwnedRange, found_twice, lost, of_another_engine
from fmq.consume.claims.membership import Member
from fmq.consume.groups.burial import Burying
from fmq.consume.groups.tries import Tries
from fmq.errors import Closed, OffsetGone
from fmq.steps.call_steps import Durable, Steps
from fmq.steps.thread_driver import drive
from fmq.store.bytes.kinds import AckRange, Acks, Append
from fmq.tx.commands.writer import Writer
from fmq.tx.looks.messages import Messages

T = TypeVar("T")


class Acking(NamedTuple):
    """An ack of messages that `claim` holds, and the append that writes it."""

    claim: Claim
    first: int
    end: int
    append: Append


made_acking = tuple_maker(Acking)


class Settler(InHand):
    """A member of a group, as its deliveries know it."""

    def __init__(
        self,
        messages: Messages,
        writer: Writer,
        check: Callable[[], None],
        member: Member,
        group: str,
        lease_seconds: float,
        after: Callable[[], None],
        burying: Burying,
        tally: GroupTally,
    ) -> None:
        super().__init__(messages.clock)
        self._messages = messages
        self.writer = writer
        self.check_engine = check
        # Stands for the consumer in its claims, which may outlive the consumer.
        self.entry = member
        self.group = group
        self.named = group  # the group's name as the caller gave it
        self.lease_seconds = lease_seconds
        self.after = after
        self.burying = burying
        self.tally = tally
        self.tries = Tries(writer, group, messages.clock, messages.wake_for, tally)

    def drive(self, call: Steps[T]) -> T:
        """Carry out the steps of `call` in this thread."""
        return drive(call, self.writer.commit_queue, self.clock)

    def ack(self, claim: Claim, first: int, end: int, sync: bool | None) -> None:
        acking = self.acking(claim, first, end)
        self.writer.commit_queue.run(self.plan_ack, acking, sync)
        if self.draining.is_on:
            self.draining.changed()
        self.after()

    def ack_all(self, ranges: list[OwnedRange[Claim]], sync: bool | None) -> None:
        """Ack several ranges, in one append."""
        self.writer.commit_queue.run(self.plan_ack_all, self.acking_all(ranges), sync)
        self.draining.changed()
        self.after()

    def acking_all(self, held: list[OwnedRange[Claim]]) -> tuple[list[OwnedRange[Claim]], Append]:
        """Return the argument for `plan_ack_all`. Raises LeaseLost if a message is in the list
        twice.
        """
        self.check()
        if (twice := found_twice(held)) is not None:
            self._refuse(*twice)
        return held, [Acks([self.range_of(*each) for each in held], 0)]

    def plan_ack_all(self, what: tuple[list[OwnedRange[Claim]], Append]) -> None:
        """Plan the ack of several ranges. The caller holds the engine's lock."""
        held, append = what
        self.writer.release_dropped()
        self.entry.seen = now = self.clock.monotonic()
        for claim, first, end in held:
            self.check_held(claim, first, end, claim)
        self.writer.send(append)
        for claim, *_ in held:
            self.tally.handled[int((now - claim.since) * 1e9).bit_length()] += 1

    def extend(self, claim: Claim, first: int, end: int, seconds: float) -> None:
        self.check()

        def extend() -> None:
            now = self.clock.monotonic()
            self.entry.seen = now
            self.check_held(claim, first, end, claim)
            claim.holds.extend(first, end, now + seconds)

        self.writer.change(extend)

    def reject(self, claim: Claim, first: int, end: int, reason: str) -> None:
        """Do what `rejecting` does, in this thread."""
        self.drive(self.rejecting(claim, first, end, reason))
        self.after()

    def rejecting(self, claim: Claim, first: int, end: int, reason: str) -> Steps[None]:
        """Move a range to the dead letters of the group, in one append with its ack."""
        self.check()
        self.check_held(claim, first, end, claim)
        what = self.group, claim.queue, first, end, reason, claim.holds.count_of
        try:
            appends = self.burying.appends_of(*what)
            while (part := (yield partial(next, appends, None))) is not None:
                at, stop, append = part
                yield Durable(self.plan_ack, Acking(claim, at, stop, append), True)
        except OffsetGone:
            self.check_held(claim, first, end, claim)  # the topic was deleted meanwhile
            raise
        self.draining.changed()

    def acking(self, claim: Claim, first: int, end: int, extension: bytes = b"") -> Acking:
        """Return the argument for `plan_ack`."""
        queue = claim.queue
        acks = Acks((AckRange(self.group, queue.topic, queue.number, first, end),), 0)
        acks.extension = extension
        return made_acking((claim, first, end, [acks]))

    def plan_ack(self, acking: Acking) -> None:
        """Plan an ack. The caller holds the engine's lock."""
        claim, first, end, append = acking
        self.check_engine()
        if self.is_closed:
            self.check()
        if self.writer.dropped:
            self.writer.release_dropped()
        self.entry.seen = now = self.clock.monotonic()
        self.check_held(claim, first, end, claim)
        self.writer.send(append)
        self.tally.handled[int((now - claim.since) * 1e9).bit_length()] += 1

    def range_of(self, claim: Claim, first: int, end: int) -> AckRange:
        return AckRange(self.group, claim.queue.topic, claim.queue.number, first, end)

    def give_back(self, claim: Claim, first: int, end: int, delay: float, *, count: bool) -> None:
        """Do what `giving_back` does, in this thread. Without `count` the attempt does not
        count.
        """
        call = self.giving_back(claim, first, end, delay, None if count else claim.count + 1)
        drive(call, self.writer.commit_queue, self.clock)

    def giving_back(
        self, claim: Claim, first: int, end: int, delay: float, uncounted: int | None
    ) -> Steps[None]:
        """Hand a range out again after `delay` seconds. `uncounted` is the number of an attempt
        that does not count: the attempt of `claim`, or an earlier one that a client names.
        """
        self.check()
        if not (yield self.tries.given_back(claim, first, end, delay, uncounted)):
            self._refuse(claim, first)
        self.draining.changed()

    def try_give_back(self, claim: Claim, first: int, end: int) -> None:
        """Give back, as untried, what `claim` still holds of the range."""

        def give_back() -> None:
            claim.holds.give_back_held(first, end, claim)
            self._messages.wake_for(claim.queue)

        self.writer.change(give_back)

    def hold_for_transaction(
        self, claim: Claim, first: int, end: int, keeper: object, holder: object
    ) -> AckRange:
        self.check()
        if keeper is not self.writer:
            raise of_another_engine(claim.queue.topic, claim.queue.number, first)
        self.writer.change(partial(self._transfer, claim, first, end, holder))
        self.draining.changed()
        return self.range_of(claim, first, end)

    def _transfer(self, claim: Claim, first: int, end: int, holder: object) -> None:
        """Pass the range from `claim` to `holder`, without a deadline. The caller holds the
        engine's lock.
        """
        if not claim.holds.transfer(first, end, claim, holder):
            self._refuse(claim, first)

    def check_held(self, claim: Claim, first: int, end: int, holder: object) -> None:
        """Raise LeaseLost for the first message of the range that `holder` does not hold."""
        is_held = claim.holds.is_held_by
        if not is_held(first, end, holder):
            lost = (at for at in range(first, end) if not is_held(at, at + 1, holder))
            self._refuse(claim, next(lost, first))

    def take_back(self, claim: Claim, first: int, end: int, holder: object) -> None:
        """Pass the range back to `claim` from `holder`, which does not ack it.

        If the consumer has closed, the range is redelivered instead. The caller holds the engine's
        lock.
        """
        self.entry.seen = self.clock.monotonic()  # the member is alive: its lease begins anew
        holds = claim.holds
        if not holds.is_held_by(first, end, holder):
            return
        if self.is_closed:
            holds.give_back(first, end)
        else:
            deadline = self._messages.clock.monotonic() + self.lease_seconds
            holds.transfer_back(first, end, claim, deadline)
        self._messages.wake_for(claim.queue)

    def _refuse(self, claim: Claim, first: int) -> NoReturn:
        raise lost(claim.queue.topic, claim.queue.number, first, self.lease_seconds)

    def check(self) -> None:
        self.check_engine()
        if self.is_closed:
            raise Closed("the consumer is closed; make another one with engine.consumer(...)")
