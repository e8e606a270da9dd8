"""Reading what a poll has claimed, and the keys and priorities that it needs before it can claim.

All of this may touch the disk. It is called without the engine's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from fmq.basics.message import Message
from fmq.consume.calls.settlement import Settler
from fmq.consume.claims.by_priority import SpanWanted
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.ordered_claims import LookWanted
from fmq.consume.claims.poll import Poll, offsets_of
from fmq.consume.claims.ranges import Ranges
from fmq.consume.claims.read_ahead import ReadAhead, read_priorities
from fmq.consume.groups.sieve import Sieve
from fmq.errors import Damaged, OffsetGone, StorageError
from fmq.store.bytes.internal import is_internal
from fmq.store.reading.batch import Batch
from fmq.tx.ledger.queues import Queue
from fmq.tx.looks.messages import Messages

logger = logging.getLogger("fmq.consumers")
C = TypeVar("C", Batch, list[Message])
Skip = Callable[[str, str, int, int, int], object]


class ClaimReader:
    """Reads for one member of a group, and gives back what it claimed and cannot read.

    It does not keep the member, which each call names: a member that its program has dropped must
    be gone at once, so that others get what it holds.
    """

    def __init__(self, member: Settler, messages: Messages, skip: Skip | None) -> None:
        """`skip` passes over damaged messages for the group; without it, they raise Damaged."""
        self._messages = messages
        self._skip = skip
        self.ahead = ReadAhead(messages, member.check_engine)
        buries = member.burying if member.entry.buries_expired else None
        self._sieve = Sieve(messages, member.writer, member.group, buries)
        self.know_order = self._sieve.know_order

    def read(self, member: Settler, claim: Claim, poll: Poll) -> list[Any]:
        """Return the messages of `claim` that the group wants, as `poll` asks; an empty list if
        they are gone.
        """
        take = self.ahead.take_batch if poll.as_batch else self.ahead.take_messages
        most = poll.most or poll.limit
        pieces: list[Any] = self._pieces(member, claim, most, take, in_one_piece=poll.in_one_piece)
        poll.ranges = [offsets_of(piece) for piece in pieces]
        return pieces

    def _pieces(
        self,
        member: Settler,
        claim: Claim,
        limit: int,
        take: Callable[[Queue, int, int], C],
        *,
        in_one_piece: bool,
    ) -> list[C]:
        """Return the messages of `claim` that the group wants, read by `take`.

        It ends where a read does: at the end of a segment, or at a message that cannot be read. The
        rest is given back, or later ranges would overtake it. Raises only if the claim begins with
        a message that cannot be read. The poll gives back what it claimed then.
        """
        try:
            ranges = self.sifted(member, claim, limit, in_one_piece=in_one_piece)
        except OffsetGone:
            return []
        pieces: list[C] = []
        damage: Damaged | None = None
        for number, (first, end) in enumerate(ranges, 1):
            at = first
            later: Ranges = ranges[number:]
            try:
                piece = take(claim.queue, first, end - first)
                pieces.append(piece)
                at += len(piece)
            except Exception as error:
                # Return the pieces that were read before the error. Without any, the poll ends
                # here only if its messages were dropped, or may be passed over.
                if not pieces and not isinstance(error, OffsetGone):
                    if not isinstance(error, Damaged):
                        raise
                    damage = error
            if at < end:
                for each in [(at, end), *later]:
                    member.try_give_back(claim, *each)
                if damage is not None:
                    self._pass_over(member, damage, claim.queue, first)
                break
        return pieces

    def sifted(self, member: Settler, claim: Claim, limit: int, *, in_one_piece: bool) -> Ranges:
        """Return the ranges of `claim` that the group wants now."""
        if claim.filter or claim.now_us:
            pass_over = partial(self._pass_over, member)
            return self._sieve.sift(claim, limit, pass_over, in_one_piece=in_one_piece)
        return claim.ranges

    def read_wanted(self, member: Settler, wanted: SpanWanted | LookWanted) -> None:
        """Read the keys or priorities that a look needs before it can claim."""
        if isinstance(wanted, SpanWanted):
            read_priorities(self._messages, member.writer, wanted)
            return
        queue, holds, _, first, end, _ = wanted
        deadline = member.clock.monotonic() + member.lease_seconds
        try:
            self._sieve.look(wanted, Claim(member.entry, queue, holds, first, end), deadline)
        except Damaged as error:
            self._pass_over(member, error, queue, first)

    def _pass_over(self, member: Settler, error: Damaged, queue: Queue, first: int) -> None:
        """Pass over the record with the message `first`: all of its messages are lost together.
        Without `skip`, raise `error`, with a note that names the call that passes over it. This
        member holds none of its messages any more.
        """
        end, group = first + 1, member.named
        with suppress(OffsetGone, StorageError):
            _, end = self._messages.record_at(queue.topic, queue.number, first)
        if self._skip is not None and error.of_record and not is_internal(queue.topic):
            self._skip(member.group, queue.topic, queue.number, first, end - first)
            logger.warning(
                "the group %r has skipped %s damaged messages, %s/%s from offset %s on: %s",
                *(group, end - first, queue.topic, queue.number, first, error),
            )
            return
        many = f", count={end - first}" if end > first + 1 else ""
        lost = f"the {end - first} messages" if many else "the message"
        error.advise(
            f"The group {group!r} goes on behind it after engine.group({group!r})"
            f".skip({queue.topic!r}, {queue.number}, {first}{many}), which passes over {lost} of "
            "the damaged record."
        )
        raise error
