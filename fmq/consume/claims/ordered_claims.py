"""What one poll takes of a queue whose group keeps the order of each key.

A poll takes messages that the order (key_order.py) knows to be free. If it knows too few, the poll
first reads the keys of the next messages, without the lock (LookWanted). Then it passes them to the
order, and tries again. So one poll does a bounded amount of work under the lock, whatever the
backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fmq.consume.claims.claim import Claim
from fmq.consume.claims.holds import QueueHolds
from fmq.consume.claims.key_order import WAITING_MAX, KeyOrder, MessageKey
from fmq.consume.claims.ranges import Ranges, ranges_of
from fmq.consume.claims.redelivery import GivenBack
from fmq.tx.ledger.queues import Queue

LOOKED_AT_ONCE = 512  # how many keys one look reads, unless a poll asks for more messages
LOOKED_AT_ONCE_MAX = 4096


class LookWanted(NamedTuple):
    """The offsets whose keys a poll has to read before it can choose."""

    queue: Queue
    holds: QueueHolds
    order: KeyOrder
    first: int
    end: int
    filter: str


class InOrder(NamedTuple):
    """Messages that may be handed out together. Each was tried `tries` times before."""

    ranges: Ranges
    tries: int
    filter: str
    """What they still have to pass; "" if they have."""


def order_of(holds: QueueHolds, filter_text: str) -> KeyOrder:
    """Return the order of a queue. Make it if there is none."""
    order = holds.begin_order(filter_text)
    if order.filter != filter_text:
        order.begin_again(holds.floor, filter_text)
    return order


def next_in_order(
    holds: QueueHolds, queue: Queue, filter_text: str, limit: int, now: float, *, in_one_piece: bool
) -> InOrder | LookWanted | None:
    """Return the next at most `limit` messages to hand out, or the range whose keys have to be read
    first.

    New messages and messages that were given back take turns (redelivery.py). The caller adds a
    hold for what it gets.
    """
    order = order_of(holds, filter_text)
    order.drop_below(queue.first)

    def is_gone(offset: int) -> bool:
        return offset < queue.first or holds.is_acked(offset)

    new = order.first_free(is_gone)
    if order.waiting < (WAITING_MAX if new is None else limit):
        wanted = next_look(holds, queue, queue.next, limit)
        if wanted is not None and (new is None or order.unreadable != wanted.first):
            return wanted
    given_back = holds.redeliveries
    if given_back:
        given_back.find_due(now, queue.next)
    while (due := given_back.next_turn(new)) is not None:
        if due.end > order.looked or order.looks_again:
            # The message was handed out before. So the keys before it were read at that time, and
            # to read them once more costs no more than the first time.
            wanted = next_look(holds, queue, due.end, limit)
            if wanted is not None:
                return wanted
        found = given_back.take(limit, new)
        assert found is not None, "it is its turn"
        ranges = _those_that_may_go(holds, order, found, is_gone, in_one_piece=in_one_piece)
        if ranges:
            return InOrder(ranges, found.count, filter_text)
    if new is None or order.first_free(is_gone) is None:
        return None
    return InOrder(order.take(limit, is_gone, in_one_piece=in_one_piece), 0, "")


def next_look(holds: QueueHolds, queue: Queue, end: int, limit: int = 1) -> LookWanted | None:
    """Return the next range below `end` whose keys are to be read; None if there is none."""
    order = holds.order
    assert order is not None
    while (found := order.next_look(end)) is not None:
        first, stop = found
        gap = next(iter(holds.unacked(first, stop)), None)
        if gap is None or first < gap[0]:
            order.has_looked(first, stop if gap is None else gap[0])
            continue
        stop = min(gap[1], first + min(max(limit, LOOKED_AT_ONCE), LOOKED_AT_ONCE_MAX))
        return LookWanted(queue, holds, order, first, stop, order.filter)
    return None


def _those_that_may_go(
    holds: QueueHolds,
    order: KeyOrder,
    found: GivenBack,
    is_gone: Callable[[int], bool],
    *,
    in_one_piece: bool,
) -> Ranges:
    """Return which of the given-back messages `found` may be handed out now. The others are held
    for LATER until the earlier messages of their keys are acked or given back again.
    """
    taken: list[int] = []
    for offset in range(found.first, found.end):
        if is_gone(offset):
            order.remove(offset, offset + 1)
        elif offset not in order or (in_one_piece and taken and taken[-1] != offset - 1):
            holds.redeliveries.add(offset, found.end, found.count, found.due)
            break
        elif order.may_go(offset, taken):
            taken.append(offset)
        else:
            holds.hold_later(offset, found.count)
    return ranges_of(taken)


def learn(
    wanted: LookWanted,
    end: int,
    keys: Iterable[tuple[int, MessageKey, bool]],
    claim: Claim,
    deadline: float,
) -> Ranges:
    """Pass the `keys` of the messages up to the offset `end` to the order. Each key comes with
    whether the group wants the message. Return the ranges of messages that the group does not want.
    `claim` holds them now.
    """
    _, holds, order, first, _, filter_text = wanted
    if holds.has_ended or holds.order is not order or order.filter != filter_text:
        # The group was moved, or got another filter, while the keys were read.
        return []
    if not order.has_looked(first, end):
        return []
    busy = holds.busy(first, end)
    passed = []
    for offset, key, is_wanted in keys:
        if holds.is_acked(offset):
            continue
        if is_wanted or offset in busy:
            order.add(offset, key, is_out=offset in busy)
        else:
            passed.append(offset)
    ranges = ranges_of(passed)
    for each in ranges:
        holds.hold(*each, claim, deadline)
    return ranges
