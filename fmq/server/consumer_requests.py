"""The requests of one client about its consumers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fmq.allocation.transfer import strategy_said
from fmq.consume.claims.backoff import retry_said
from fmq.consume.claims.membership import COUNT, RAISE
from fmq.consume.groups.sieve import filter_of
from fmq.errors import LeaseLost
from fmq.server.advance_requests import Advancing
from fmq.server.load import check_held
from fmq.server.long_polls import LongPolls
from fmq.server.members import ServedMember
from fmq.server.take_requests import Taking
from fmq.wire.claims import AckAsked
from fmq.wire.frames import AGAIN, Frame, Op

if TYPE_CHECKING:
    from fmq.server.session import Session

HOW = False, False, False, False, COUNT, RAISE
"""How a consumer joins, as far as its client does not say it."""


class Consuming:
    """The consumers of a session, by the handles that the client has given them."""

    def __init__(self, session: Session, polls: LongPolls) -> None:
        self._session = session
        self._polls = polls
        self._host = session.host
        self._parts = session.host.parts
        self._members: dict[int, ServedMember] = {}
        self.serves: dict[int, Callable[[Frame, Any], None]] = {
            Op.JOIN: self._on_join,
            Op.POLL: self._on_poll,
            Op.ACK: self._on_ack,
            Op.ACK_ALL: self._on_ack_all,
            Op.RELEASE: self._on_release,
            Op.REJECT: self._on_reject,
            Op.DRAIN: self._on_drain,
            Op.EXTEND: self._on_extend,
            Op.LEAVE: self._on_leave,
            Op.HOLD: self._on_hold,
            Op.END_HOLD: self._on_end_hold,
            Op.TAKE: Taking(session, self).serve,
            Op.ADVANCE: Advancing(session, self).serve,
        }

    def end(self) -> None:
        """Take back what the consumers hold."""
        for member in self._members.values():
            member.leave(is_lost=True)
        self.forget()

    def forget(self) -> None:
        """Forget all consumers."""
        self._members.clear()

    def member(self, handle: int) -> ServedMember:
        """Return a consumer. Raises LeaseLost if there is none."""
        member = self._members.get(handle)
        if member is None:
            raise LeaseLost(
                "the consumer is not known to this engine process, which may be another one than "
                "before. Nothing was changed; what it had is redelivered."
            )
        return member

    def _on_join(self, asked: Frame, said: list[Any]) -> None:
        topics, group, lease, claims, member, strategy, wanted, retry, *said_how = said
        how: list[Any] = [*said_how, *HOW[len(said_how) :]]
        ordered, strict, is_told, broadcast, expired, damaged = how
        if wanted:
            # Refuse it here if it cannot be read: each poll of the group has to read it.
            filter_of(wanted)
        shares = None if strategy is None else strategy_said(strategy)
        if asked.handle not in self._members:
            check_held("consumers of one client", self._members)
        self._host.commit()
        old = self._members.pop(asked.handle, None)
        if old is not None:
            old.leave(is_lost=True)
        consumer = self._host.door.join(
            *(topics, group, lease, member, shares, wanted),
            ordered=ordered,
            strict=strict,
            is_told=is_told,
            on_change=None,
            broadcast=broadcast,
            retry=retry_said(retry),
            expired=expired,
            damaged=damaged,
        )
        self._members[asked.handle] = served = ServedMember(
            consumer, self._parts.writer, self._host.handed_out
        )
        for claim in claims:
            served.claim_again(*claim)
        self._session.answer(asked)

    def _on_poll(self, asked: Frame, said: list[Any]) -> None:
        limit, timeout, in_one_piece, *name = said
        member = self.member(asked.handle)
        self._session.commit_own()
        look = partial(member.poll, limit, in_one_piece=in_one_piece)
        in_group = member.in_group
        waits = self._host.waits.of(in_group)
        how = partial(waits.listen, in_group), partial(waits.stop, in_group), waits.wake_next
        self._polls.wait(asked, timeout, waits.looking(look), *how, *name)

    def _on_ack(self, asked: Frame, ack: AckAsked) -> None:
        member = self.member(asked.handle)
        if asked.flags & AGAIN and self.is_acked(member.group, ack):
            self._session.answer(asked)
            return
        plan = member.plan_ack(ack.claim, ack.first, ack.end)
        self._session.order(asked, plan, partial(self._session.answer, asked), ack.sync)

    def _on_ack_all(self, asked: Frame, acks: list[AckAsked]) -> None:
        sync = acks[0].sync
        member = self.member(asked.handle)
        if asked.flags & AGAIN:
            acks = [each for each in acks if not self.is_acked(member.group, each)]
            if not acks:
                self._session.answer(asked)
                return
        plan = member.plan_ack_all([(each.claim, each.first, each.end) for each in acks])
        self._session.order(asked, plan, partial(self._session.answer, asked), sync)

    def is_acked(self, group: str, ack: AckAsked) -> bool:
        """Return whether everything that `ack` asks for is acked and durable."""
        ledger = self._parts.ledger
        with self._parts.lock:
            acked = ledger.acked.get((group, ack.topic, ack.queue))
            found = acked is not None and acked.gap(ack.first, ack.end) is None
        if found:
            self._parts.writer.catch_up(ledger.acked_at)
        return found

    def _on_drain(self, asked: Frame, said: None) -> None:
        self.member(asked.handle).in_group.stop_taking()
        self._session.answer(asked)

    def _on_extend(self, asked: Frame, said: list[Any]) -> None:
        claim, first, end, seconds = said
        self._host.commit()
        self.member(asked.handle).extend(claim, first, end, seconds)
        self._session.answer(asked)

    def _on_release(self, asked: Frame, said: list[Any]) -> None:
        claim, first, end, delay, count, attempt = said
        self._host.commit()
        member = self.member(asked.handle)
        member.release(claim, first, end, delay, count=count, attempt=attempt)
        self._session.answer(asked)

    def _on_reject(self, asked: Frame, said: list[Any]) -> None:
        claim, first, end, topic, queue, reason = said
        self._host.commit()
        member = self.member(asked.handle)
        # If the request is repeated, some messages may be moved already: many take several appends.
        left = [(first, end)]
        if asked.flags & AGAIN:
            with self._parts.lock:
                acked = self._parts.ledger.acked.get((member.group, topic, queue))
                left = left if acked is None else [*acked.gaps(first, end)]
        for low, high in left:
            member.reject(claim, low, high, reason)
        self._session.answer(asked)

    def _on_hold(self, asked: Frame, said: list[Any]) -> None:
        claim, first, end = said
        self._host.commit()
        self.member(asked.handle).hold(claim, first, end)
        self._session.answer(asked)

    def _on_end_hold(self, asked: Frame, said: list[Any]) -> None:
        claim, first, end = said
        self._host.commit()
        self.member(asked.handle).end_hold(claim, first, end)
        self._session.answer(asked)

    def _on_leave(self, asked: Frame, said: list[bool]) -> None:
        (counts,) = said
        self._host.commit()
        member = self._members.pop(asked.handle, None)
        if member is not None:
            member.leave(counts=counts)
        self._session.answer(asked)
