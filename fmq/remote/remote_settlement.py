"""The end of what a client's consumer holds: its messages are acked, rejected or given back.

The engine process carries it out. The client notes what it has asked for. So no range is asked for
twice, and a new engine process can be told what is left.
"""

from __future__ import annotations

from contextlib import suppress

from fmq.consume.calls.in_hand import InHand
from fmq.consume.claims.handed import OwnedRange, joined, lost, of_another_engine
from fmq.errors import Closed, FmqError, LeaseLost
from fmq.remote.link import Link
from fmq.remote.remote_claims import Membership, RemoteClaim
from fmq.remote.remote_manager import RemoteKeeper
from fmq.store.bytes.kinds import AckRange
from fmq.wire.claims import ACKS_MAX, AckAsked, encode_ack
from fmq.wire.frames import Op
from fmq.wire.values import encode_values


class RemoteSettler(InHand):
    """A member of a group, as its deliveries know it."""

    def __init__(
        self, link: Link, keeper: RemoteKeeper, handle: int, membership: Membership
    ) -> None:
        super().__init__(link.clock)
        self.link = link
        self.keeper = keeper
        self.handle = handle
        self.membership = membership
        asked = membership.asked
        self.topics, self.named, self.name = asked.entry.topics, asked.group, asked.entry.name
        self.lease_seconds, self.retry = asked.lease_seconds, asked.entry.retry
        self.is_ordered = asked.entry.is_ordered

    def ack(self, claim: RemoteClaim, first: int, end: int, sync: bool | None) -> None:
        self.check()
        asked = AckAsked(claim.number, first, end, sync, *claim.queue)
        self.ask(Op.ACK, encode_ack(asked), claim, first, end)

    def ack_all(self, ranges: list[OwnedRange[RemoteClaim]], sync: bool | None) -> None:
        """Ack several ranges, in one append for each ACKS_MAX."""
        ranges = joined(ranges)
        for at in range(0, len(ranges), ACKS_MAX):
            self._ack_ranges(ranges[at : at + ACKS_MAX], sync)

    def _ack_ranges(self, ranges: list[OwnedRange[RemoteClaim]], sync: bool | None) -> None:
        if len(ranges) == 1:  # the usual case, with a shorter request
            self.ack(*ranges[0], sync)
            return
        self.check()
        said = [
            encode_ack(AckAsked(claim.number, first, end, sync, *claim.queue))
            for claim, first, end in ranges
        ]
        self._spend_all(ranges)
        try:
            self.link.ask(Op.ACK_ALL, b"".join(said), handle=self.handle)
        except BaseException:
            # If one range is lost, the engine process has acked none, and each may be tried alone.
            for claim, first, end in ranges:
                claim.spent.difference_update(range(first, end))
            raise
        for each in ranges:
            self.done(*each)

    def extend(self, claim: RemoteClaim, first: int, end: int, seconds: float) -> None:
        self.check()
        said = encode_values([claim.number, first, end, seconds])
        try:
            self.link.ask(Op.EXTEND, said, handle=self.handle)
        except LeaseLost as error:
            raise self._lost(claim, first) from error
        claim.until = max(claim.until, self.monotonic() + seconds)

    def give_back(
        self, claim: RemoteClaim, first: int, end: int, delay: float, *, count: bool
    ) -> None:
        self.check()
        said = encode_values([claim.number, first, end, delay, count, claim.attempt])
        self.ask(Op.RELEASE, said, claim, first, end)

    def reject(self, claim: RemoteClaim, first: int, end: int, reason: str) -> None:
        self.check()
        said = encode_values([claim.number, first, end, *claim.queue, reason])
        self.ask(Op.REJECT, said, claim, first, end)

    def ask(self, op: Op, payload: bytes, claim: RemoteClaim, first: int, end: int) -> bytes:
        """Send `op`, which acks, rejects or gives back the range, to the engine process. Return its
        answer. The range is spent meanwhile. After an error the caller may try it again, unless the
        lease is lost.
        """
        self.spend(claim, first, end)
        try:
            answer = self.link.ask(op, payload, handle=self.handle)
        except BaseException as error:
            better = self.unspend(claim, first, end, error)
            if better is not None:
                raise better from error
            raise
        self.done(claim, first, end)
        return answer

    def unspend(
        self, claim: RemoteClaim, first: int, end: int, error: BaseException | None
    ) -> LeaseLost | None:
        """Let the range be acked again after an error. Return a better error if there is one."""
        if isinstance(error, LeaseLost):
            return self._lost(claim, first)
        claim.spent.difference_update(range(first, end))
        return None

    def done(self, claim: RemoteClaim, first: int, end: int) -> None:
        """Note that the engine process has acked the range or given it back."""
        self.draining.changed()
        claim.done.update(range(first, end))
        if len(claim.done) == claim.end - claim.first:
            self.membership.claims.pop(claim.number, None)

    def hold_for_transaction(
        self, claim: RemoteClaim, first: int, end: int, keeper: object, holder: object
    ) -> AckRange:
        self.check()
        if keeper is not self.keeper:
            raise of_another_engine(*claim.queue, first)
        self.spend(claim, first, end)
        try:
            self._hold(Op.HOLD, claim, first, end)
        except BaseException as error:
            claim.spent.difference_update(range(first, end))
            if isinstance(error, LeaseLost):
                raise self._lost(claim, first) from error
            raise
        claim.held[first, end] = holder
        self.draining.changed()
        return AckRange(self.named, *claim.queue, first, end)

    def take_back(self, claim: RemoteClaim, first: int, end: int, holder: object) -> None:
        """Let the range be acked by other calls again, if `holder` holds it. The caller holds the
        keeper's lock.
        """
        if claim.held.get((first, end)) is not holder:
            return
        del claim.held[first, end]
        claim.spent.difference_update(range(first, end))
        with suppress(FmqError):  # an engine process that is gone holds nothing
            self._hold(Op.END_HOLD, claim, first, end)

    def _hold(self, op: Op, claim: RemoteClaim, first: int, end: int) -> None:
        self.link.ask(op, encode_values([claim.number, first, end]), handle=self.handle)

    def spend(self, claim: RemoteClaim, first: int, end: int) -> None:
        """Note that the range is being settled. Raises LeaseLost if it was settled before."""
        offsets = range(first, end)

        def spend() -> None:
            if not claim.spent.isdisjoint(offsets):
                raise self._lost(claim, first)
            claim.spent.update(offsets)

        self.keeper.change(spend)

    def _spend_all(self, ranges: list[OwnedRange[RemoteClaim]]) -> None:
        """Note that all ranges are being settled. If one was settled before, note none."""
        for number, each in enumerate(ranges):
            try:
                self.spend(*each)
            except LeaseLost:
                for claim, first, end in ranges[:number]:
                    claim.spent.difference_update(range(first, end))
                raise

    def _lost(self, claim: RemoteClaim, first: int) -> LeaseLost:
        return lost(*claim.queue, first, self.lease_seconds)

    def check(self) -> None:
        self.link.check()
        self.keeper.check()
        if self.is_closed:
            raise Closed("the consumer is closed; make another one with engine.consumer(...)")
