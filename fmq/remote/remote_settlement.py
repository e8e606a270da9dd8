"""The end of what a client's consumer holds: its messages are acked, rejected or given back.

The engine process carries it out. The client notes what it has asked for. So no range is asked for
twice, and a new engine process can be told what is left.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fmq.consume.calls.handlers import joined
from fmq.consume.calls.in_hand import Draining
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.delivery import Delivery, lost, of_another_engine
from fmq.errors import Closed, FmqError, LeaseLost
from fmq.remote.link import Link
from fmq.remote.remote_manager import RemoteKeeper
from fmq.store.bytes.kinds import AckRange
from fmq.store.journal.commit_queue import waits
from fmq.wire.claims import ACKS_MAX, AckAsked, encode_ack
from fmq.wire.frames import Op
from fmq.wire.values import encode_values

if TYPE_CHECKING:
    from fmq.remote.remote_consumer import Membership, RemoteClaim


class RemoteSettler:
    """A member of a group, as its deliveries know it."""

    def __init__(
        self, link: Link, keeper: RemoteKeeper, handle: int, membership: Membership
    ) -> None:
        self._link = link
        self._keeper = keeper
        self._handle = handle
        self._membership = membership
        self._lease_seconds = membership.lease_seconds
        self._clock = link.clock
        self._draining = Draining(link.clock)
        self._closed = False
        self._aheads: set[Lookahead[Delivery]] = set()  # what loops have taken ahead

    def _ack(self, claim: RemoteClaim, first: int, end: int, sync: bool | None) -> None:
        self._check()
        waits(sync, by_default=True)  # raises TypeError for a wrong `sync`
        asked = AckAsked(claim.number, first, end, sync, *claim.queue)
        self._ask(Op.ACK, encode_ack(asked), claim, first, end)

    def _ack_all(self, deliveries: list[Delivery], sync: bool | None) -> None:
        """Ack deliveries of this consumer. One append holds up to ACKS_MAX ranges."""
        ranges = joined((each._claim, *each._offsets()) for each in deliveries)
        for at in range(0, len(ranges), ACKS_MAX):
            self._ack_ranges(ranges[at : at + ACKS_MAX], sync)

    def _ack_ranges(self, ranges: list[tuple[RemoteClaim, int, int]], sync: bool | None) -> None:
        if len(ranges) == 1:  # the usual case, with a shorter request
            self._ack(*ranges[0], sync)
            return
        self._check()
        waits(sync, by_default=True)  # raises TypeError for a wrong `sync`
        said = [
            encode_ack(AckAsked(claim.number, first, end, sync, *claim.queue))
            for claim, first, end in ranges
        ]
        self._spend_all(ranges)
        try:
            self._link.ask(Op.ACK_ALL, b"".join(said), handle=self._handle)
        except BaseException:
            # If one range is lost, none is acked. The others may be acked without it.
            for claim, first, end in ranges:
                claim.spent.difference_update(range(first, end))
            raise
        for each in ranges:
            self._done(*each)

    def _extend(self, claim: RemoteClaim, first: int, end: int, seconds: float) -> None:
        self._check()
        said = encode_values([claim.number, first, end, seconds])
        try:
            self._link.ask(Op.EXTEND, said, handle=self._handle)
        except LeaseLost as error:
            raise self._lost(claim, first) from error
        claim.until = max(claim.until, self._clock.monotonic() + seconds)

    def _give_back(
        self, claim: RemoteClaim, first: int, end: int, delay: float, *, count: bool
    ) -> None:
        self._check()
        said = encode_values([claim.number, first, end, delay, count, claim.attempt])
        self._ask(Op.RELEASE, said, claim, first, end)

    def _reject(self, claim: RemoteClaim, first: int, end: int, reason: str) -> None:
        self._check()
        said = encode_values([claim.number, first, end, *claim.queue, reason])
        self._ask(Op.REJECT, said, claim, first, end)

    def _ask(self, op: Op, payload: bytes, claim: RemoteClaim, first: int, end: int) -> bytes:
        """Let the engine process ack the range or give it back, once. Return the answer."""
        self._spend(claim, first, end)
        try:
            answer = self._link.ask(op, payload, handle=self._handle)
        except BaseException as error:
            better = self._unspend(claim, first, end, error)
            if better is not None:
                raise better from error
            raise
        self._done(claim, first, end)
        return answer

    def _unspend(
        self, claim: RemoteClaim, first: int, end: int, error: BaseException | None
    ) -> LeaseLost | None:
        """Let the range be acked again after an error. Return a better error if there is one."""
        if isinstance(error, LeaseLost):
            return self._lost(claim, first)
        claim.spent.difference_update(range(first, end))
        return None

    def _done(self, claim: RemoteClaim, first: int, end: int) -> None:
        """Note that the engine process has acked the range or given it back."""
        self._draining.changed()
        claim.done.update(range(first, end))
        if len(claim.done) == claim.end - claim.first:
            self._membership.claims.pop(claim.number, None)

    def _hold_for_transaction(
        self, claim: RemoteClaim, first: int, end: int, keeper: object, holder: object
    ) -> AckRange:
        self._check()
        if keeper is not self._keeper:
            raise of_another_engine(*claim.queue, first)
        self._spend(claim, first, end)
        try:
            self._hold(Op.HOLD, claim, first, end)
        except BaseException as error:
            claim.spent.difference_update(range(first, end))
            if isinstance(error, LeaseLost):
                raise self._lost(claim, first) from error
            raise
        claim.held[first, end] = holder
        self._draining.changed()
        return AckRange(self._membership.group, *claim.queue, first, end)

    def _take_back(self, claim: RemoteClaim, first: int, end: int, holder: object) -> None:
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
        self._link.ask(op, encode_values([claim.number, first, end]), handle=self._handle)

    def _spend(self, claim: RemoteClaim, first: int, end: int) -> None:
        """Note that the range is being settled. Raises LeaseLost if it was settled before."""
        offsets = range(first, end)

        def spend() -> None:
            if not claim.spent.isdisjoint(offsets):
                raise self._lost(claim, first)
            claim.spent.update(offsets)

        self._keeper.change(spend)

    def _spend_all(self, ranges: list[tuple[RemoteClaim, int, int]]) -> None:
        """Note that all ranges are being settled. If one was settled before, note none."""
        for number, each in enumerate(ranges):
            try:
                self._spend(*each)
            except LeaseLost:
                for claim, first, end in ranges[:number]:
                    claim.spent.difference_update(range(first, end))
                raise

    def _lost(self, claim: RemoteClaim, first: int) -> LeaseLost:
        return lost(*claim.queue, first, self._membership.lease_seconds)

    def _check(self) -> None:
        self._link.check()
        self._keeper.check()
        if self._closed:
            raise Closed("the consumer is closed; make another one with engine.consumer(...)")
