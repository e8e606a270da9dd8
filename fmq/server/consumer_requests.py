"""The requests of one client about its consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmq.allocation.transfer import strategy_said
from fmq.arguments.names import check_seconds
from fmq.basics.process import Process
from fmq.consume.claims.backoff import check_delay, retry_said
from fmq.consume.claims.membership import COUNT, RAISE
from fmq.consume.groups.sieve import filter_of
from fmq.errors import LeaseLost
from fmq.server.advance_requests import serve_advance
from fmq.server.host import Host
from fmq.server.load import Load, check_room_for
from fmq.server.members import ServedMember
from fmq.server.take_requests import Taking
from fmq.steps.call_steps import Durable, Steps
from fmq.wire.claims import ADVANCED, AckAsked
from fmq.wire.frames import AGAIN, Frame, Op

HOW = False, False, False, False, COUNT, RAISE
"""How a consumer joins, as far as its client does not say it."""


class Consuming:
    """The consumers of a session, by the handles that the client has given them."""

    def __init__(self, host: Host, client: bytes, load: Load, process: Process) -> None:
        self._host = host
        self._client = client
        self._load = load
        self._process = process
        self._has_ended = False
        self._parts = host.parts
        self._members: dict[int, ServedMember] = {}
        self.serves: dict[int, Callable[[Frame, Any], bytes | Steps[bytes]]] = {
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
            Op.TAKE: Taking(host, client, self.member).serve,
            Op.ADVANCE: self._on_advance,
        }

    def end(self) -> None:
        """Take back what the consumers hold."""
        self._has_ended = True
        for member in self._members.values():
            member.lose()
        self.forget()

    def names(self) -> tuple[tuple[str, str], ...]:
        """Return the group and the name of each consumer."""
        return tuple((each.named, each.in_group.name) for each in [*self._members.values()])

    def has_in_hand(self) -> bool:
        """Return whether the client has messages that it may still ack."""
        with self._parts.lock:
            return any(member.has_in_hand() for member in self._members.values())

    def forget(self) -> None:
        """Forget all consumers."""
        self._members.clear()

    def member(self, handle: int) -> ServedMember:
        """Return a consumer. Raises LeaseLost if there is none, or the error of an engine that has
        failed, and so has refused to let it join: the client may find it at the next one.
        """
        member = self._members.get(handle)
        if member is None:
            if self._host.commit_queue.broken():
                raise self._host.commit_queue.failed_error()
            raise LeaseLost(
                "the consumer is not known to this engine process, which may be another one than "
                "before. Nothing was changed; what it had is redelivered."
            )
        return member

    def _on_join(self, asked: Frame, said: list[Any]) -> Steps[bytes]:
        topics, group, lease, claims, member, strategy, wanted, retry, *said_how = said
        how: list[Any] = [*said_how, *HOW[len(said_how) :]]
        ordered, strict, is_told, broadcast, expired, damaged = how
        if wanted:
            # Refuse the filter here if it cannot be read: each poll of the group has to read it.
            filter_of(wanted)
        shares = None if strategy is None else strategy_said(strategy)
        if asked.handle not in self._members:
            check_room_for("consumers of one client", self._members)
        self._host.commit_own(self._client)
        old = self._members.pop(asked.handle, None)
        if old is not None:
            old.lose()
        self._load.is_held = True  # what the client asks for next may be for this consumer
        try:
            joined = yield from self._host.door.join(
                *(topics, group, lease, member, shares, wanted),
                ordered=ordered,
                strict=strict,
                is_told=is_told,
                on_change=None,
                broadcast=broadcast,
                retry=retry_said(retry),
                expired=expired,
                damaged=damaged,
                process=self._process,
            )
        finally:
            self._load.is_held = False
        served = ServedMember(joined, self._parts.writer, self._host.handed_out)
        if self._has_ended:
            served.lose()
            return b""
        self._members[asked.handle] = served
        for claim in claims:
            served.claim_again(*claim)
        return b""

    def _on_poll(self, asked: Frame, said: list[Any]) -> Steps[bytes]:
        limit, timeout, in_one_piece, *_ = said
        return self.member(asked.handle).poll(limit, timeout, in_one_piece=in_one_piece)

    def _on_ack(self, asked: Frame, ack: AckAsked) -> Steps[bytes]:
        member = self.member(asked.handle)
        if not asked.flags & AGAIN or not self.is_acked(member.group, ack):
            claim = member.claim_of(ack.claim, ack.first, ack.end)
            acking = member.in_group.acking(claim, ack.first, ack.end)
            yield Durable(member.in_group.plan_ack, acking, ack.sync)
        return b""

    def _on_ack_all(self, asked: Frame, acks: list[AckAsked]) -> Steps[bytes]:
        member, sync = self.member(asked.handle), acks[0].sync
        if asked.flags & AGAIN:
            acks = [each for each in acks if not self.is_acked(member.group, each)]
        if acks:
            ranges = [(each.claim, each.first, each.end) for each in acks]
            held = [(member.claim_of(*each), *each[1:]) for each in ranges]
            acking = member.in_group.acking_all(held)
            yield Durable(member.in_group.plan_ack_all, acking, sync)
        return b""

    def _on_advance(self, asked: Frame, ack: AckAsked) -> bytes | Steps[bytes]:
        member = self.member(asked.handle)
        if asked.flags & AGAIN and self.is_acked(member.group, ack):
            return ADVANCED.pack(True)
        return serve_advance(member, ack, takes=not self._host.is_draining)

    def is_acked(self, group: str, ack: AckAsked) -> bool:
        """Return whether everything that `ack` asks for is acked and durable."""
        ledger = self._parts.ledger
        with self._parts.lock:
            acked = ledger.acked.get((group, ack.topic, ack.queue))
            found = acked is not None and acked.gap(ack.first, ack.end) is None
        if found:
            self._parts.writer.catch_up(ledger.acked_at)
        return found

    def _on_drain(self, asked: Frame, said: None) -> bytes:
        self.member(asked.handle).in_group.stop_taking()
        return b""

    def _on_release(self, asked: Frame, said: list[Any]) -> Steps[bytes]:
        number, first, end, delay, count, attempt = said
        member = self.member(asked.handle)
        claim = member.claim_of(number, first, end)
        how = check_delay(delay), None if count else attempt
        yield from member.in_group.giving_back(claim, first, end, *how)
        return b""

    def _on_reject(self, asked: Frame, said: list[Any]) -> Steps[bytes]:
        number, first, end, topic, queue, reason = said
        member = self.member(asked.handle)
        # If the request is repeated, some messages may be moved already: many take several appends.
        left = [(first, end)]
        if asked.flags & AGAIN:
            with self._parts.lock:
                acked = self._parts.ledger.acked.get((member.group, topic, queue))
                left = left if acked is None else [*acked.gaps(first, end)]
        for low, high in left:
            claim = member.claim_of(number, low, high)
            yield from member.in_group.rejecting(claim, low, high, reason)
        return b""

    def _on_extend(self, asked: Frame, said: list[Any]) -> bytes:
        number, first, end, seconds = said
        self._host.commit_own(self._client)
        member = self.member(asked.handle)
        claim = member.claim_of(number, first, end)
        member.in_group.extend(claim, first, end, check_seconds("seconds", seconds))
        return b""

    def _on_hold(self, asked: Frame, said: list[Any]) -> bytes:
        self._host.commit_own(self._client)
        self.member(asked.handle).hold(*said)
        return b""

    def _on_end_hold(self, asked: Frame, said: list[Any]) -> bytes:
        self._host.commit_own(self._client)
        self.member(asked.handle).end_hold(*said)
        return b""

    def _on_leave(self, asked: Frame, said: list[bool]) -> Steps[bytes]:
        (counts,) = said
        self._host.commit_own(self._client)
        member = self._members.pop(asked.handle, None)
        if member is not None:
            yield from member.leaving(counts=counts)
        return b""
