"""Choosing what one poll takes of a topic with priorities: from which queue, and how much.

The queue with the message of the highest priority comes first. But of ten messages that a group is
handed, at least one is the oldest of its queue, and the queues take turns in that. So no message
starves. Guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fmq.consume.claims.by_priority import PriorityOrder, Range, SpanWanted
from fmq.consume.claims.claim import Claim, ClaimAsked
from fmq.consume.claims.holds import QueueHolds
from fmq.consume.groups.sieve import SIFTED_AT_ONCE
from fmq.tx.ledger.queues import Queue

# One of this many messages that are handed out is the oldest of its queue.
OLDEST_EVERY = 10


class Candidate(NamedTuple):
    """A queue that has messages to hand out, and the highest priority among them."""

    level: int
    queue: Queue
    holds: QueueHolds
    order: PriorityOrder


def take_best(
    asked: ClaimAsked, found: list[Candidate], handed_out: int, now_us: int
) -> tuple[Claim | SpanWanted | None, int]:
    """Hold messages of one of the queues in `found`, which are in the order of turns.

    `handed_out` counts the messages of the topic that were handed out since the last one that was
    the oldest of its queue. Also return the new count.
    """
    best = max(each.level for each in found)
    # Take the first queue that has a message of this priority.
    chosen = next(each for each in found if handed_out >= OLDEST_EVERY - 1 or each.level == best)
    least = max((each.level for each in found if each is not chosen), default=0)
    limit = max(asked.limit, SIFTED_AT_ONCE) if asked.filter else asked.limit
    claim: Claim | None = None
    choice = _Choice(chosen.order, limit, least, handed_out)
    pieces_max = 1 if asked.in_one_piece else limit
    for first, end in choice.ranges():
        if claim is None:
            what = asked.filter, choice.count, asked.now
            claim = Claim(asked.member, chosen.queue, chosen.holds, first, end, *what)
            if claim.may_have_expired(now_us):
                claim.now_us = now_us
                # Claim many at once, so that many can be passed over. The remaining ones are given
                # back.
                pieces_max = choice.left = max(limit, SIFTED_AT_ONCE)
        else:
            claim.add(first, end)
        chosen.holds.hold(first, end, claim, asked.deadline, choice.count)
        if len(claim.ranges) == pieces_max:
            break
    if claim is None:
        return choice.wanted, handed_out
    if claim.may_have_expired(now_us):
        claim.now_us = now_us
    return claim, choice.handed_out


class _Choice:
    """The messages that one claim takes from a queue."""

    def __init__(self, order: PriorityOrder, limit: int, least: int, handed_out: int) -> None:
        """Messages below the priority `least` are not taken, because another queue has one of that
        priority.
        """
        self._order = order
        self.left = limit
        self._least = least
        self.handed_out = handed_out
        self.count = -1  # how often each chosen message was tried before
        self.wanted: SpanWanted | None = None

    def ranges(self) -> Iterator[Range]:
        """Yield ranges whose messages were all tried equally often. The caller has to hold each
        range before it asks for the next one. If priorities have to be read first, `wanted` is set
        and there are no more ranges.
        """
        while self.left > 0:
            best = self._order.best(self.left)
            if isinstance(best, SpanWanted):
                self.wanted = best
            if best is None or isinstance(best, SpanWanted):
                return
            oldest = self._order.oldest()
            assert oldest is not None, "there is one: the best"
            first, end, count, handed_out = best.first, best.end, best.tries, 0
            if first == oldest[0] and best.level >= self._least:
                pass
            elif self.handed_out >= OLDEST_EVERY - 1:
                first, count = oldest
                end = first + 1
            elif best.level < self._least:
                return
            else:
                end = min(end, first + OLDEST_EVERY - 1 - self.handed_out)
                handed_out = self.handed_out + end - first
            if self.count not in (-1, count):
                return  # all messages of a claim were tried equally often
            self._order.take(first, end)
            self.left -= end - first
            self.handed_out, self.count = handed_out, count
            yield first, end
