"""Settling messages by their tickets: whoever has a ticket need not hold the message.

The fence is the number of attempts, which the ledger has: a ticket is good while the attempt that
it names is the latest one. So it outlives the member, the lease and the process that handed the
message out.
"""

from __future__ import annotations

from typing import NamedTuple

from fmq.consume.administration.change_plans import Changes
from fmq.consume.claims.backoff import check_delay
from fmq.consume.claims.ticket import Ticket, ticket_in
from fmq.errors import LeaseLost
from fmq.steps.call_steps import Durable, Steps, all_shown
from fmq.store.bytes.kinds import AckRange, Acks, Append, TriedRange
from fmq.tx.ledger.queues import Queue


class Settling(NamedTuple):
    """What becomes of the message of a ticket: an append that acks it, or a delay."""

    group: str
    ticket: Ticket
    append: Append | None = None
    delay: float = 0.0
    uncounted: int = 0
    """How many attempts are taken back: 1 if that of the ticket does not count."""


class Tickets:
    """Acks, gives back and rejects what tickets name."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._holds, self._writer = changes.holds, changes.writer

    def acking(self, group: str, ticket: str, sync: bool | None = None) -> Steps[None]:
        """Ack the message of a ticket for `group`. If it is acked, change nothing. Raises
        LeaseLost.
        """
        yield from self._ending(Settling(group, ticket_in(ticket)), sync)

    def rejecting(self, group: str, ticket: str, reason: str) -> Steps[None]:
        """Make a dead letter of the message of a ticket, in one append with its ack. If it is
        acked, change nothing. Raises LeaseLost, TooLarge, or the errors of reading.
        """
        known = ticket_in(ticket)

        def append() -> Append | None:
            with self._writer.commit_queue.lock:
                queue = self._find(Settling(group, known))
            if queue is None:
                return None
            # The message is read here: a plan must not wait for the disk.
            what = group, queue, known.offset, known.offset + 1, reason
            ((_, _, found),) = self._changes.burying.appends_of(*what, lambda _: known.attempt)
            return found

        yield from self._ending(Settling(group, known, (yield append)), True)

    def releasing(self, group: str, ticket: str, delay: float, count: bool = True) -> Steps[None]:
        """Hand the message of a ticket out again after `delay` seconds. Without `count` its attempt
        does not count. Raises LeaseLost.
        """
        what = Settling(group, ticket_in(ticket), None, check_delay(delay), 0 if count else 1)
        yield Durable(self._plan_release, what, ahead=True)

    def _ending(self, what: Settling, sync: bool | None) -> Steps[None]:
        if not (yield Durable(self._plan_end, what, sync)):
            yield all_shown(self._writer.commit_queue)  # an ack before this one may not be durable

    # --- plans, under the lock ------------------------------------------------------------------

    def _plan_end(self, what: Settling) -> bool:
        queue = self._find(what)
        if queue is None:
            return False
        first = what.ticket.offset
        acked = AckRange(what.group, queue.topic, queue.number, first, first + 1)
        self._writer.send(what.append or [Acks((acked,), 0)])
        return True

    def _plan_release(self, what: Settling) -> None:
        queue = self._find(what)
        offset, clock = what.ticket.offset, self._holds.clock
        attempt = what.ticket.attempt - what.uncounted
        holds = None if queue is None else self._holds.of(what.group, queue.topic, queue.number)
        if queue is None or holds is None or not holds.busy(offset, offset + 1):
            raise _lost("was acked, or is just being handed out again")
        due_us = clock.time_us() + round(what.delay * 1_000_000)
        where = what.group, queue.topic, queue.number
        self._writer.count([TriedRange(*where, offset, offset + 1, attempt, due_us)])
        holds.wait_again(offset, offset + 1, clock.monotonic() + what.delay, attempt)
        self._changes.messages.wake_for(queue)

    def _find(self, what: Settling) -> Queue | None:
        """Return the queue of the message if the ticket is good; None if the message is acked.
        Raises LeaseLost, or StillUndecided if a transaction acks it.
        """
        self._writer.commit_queue.check()
        self._writer.release_dropped()
        group, ticket = what.group, what.ticket
        changes, ledger, offset = self._changes, self._changes.ledger, ticket.offset
        changes.check_group(group)
        topics = ledger.subscriptions.topics_of(group)
        for topic in self._holds.with_replays(group, tuple(topics)):
            queue = ledger.queue(topic, ticket.queue)
            if ticket.is_in(group, topic) and queue is not None and offset < queue.next:
                break
        else:
            raise _lost(f"names no message of the group {group!r}")
        if offset < queue.first or offset in ledger.acked_of(group, topic, queue.number):
            return None
        changes.check_decided(group, topic, queue.number, offset, offset + 1)
        tried = ledger.tried_of(group, topic, queue.number)
        count = next((known.tries for _, known in tried.within(offset, offset + 1)), 0)
        # A client may repeat a release that does not count, after a lost answer.
        if count not in (ticket.attempt, ticket.attempt - what.uncounted):
            raise _lost(f"was attempt {ticket.attempt}, and by now there were {count}")
        return queue


def _lost(why: str) -> LeaseLost:
    return LeaseLost(
        f"the ticket {why}. Nothing was changed; whoever was handed the message last has a ticket "
        "that is good."
    )
