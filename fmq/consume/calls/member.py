"""One consumer as a member of its group: what it may claim, and what it has claimed.

A poll makes one or more looks. A look is planned under the lock and never waits. It claims messages
that are there, or says what has to be read first, or listens for new ones. Threads, loops and
servers all poll by the methods of this class (see consume/claims/poll.py). Methods that read
messages may touch the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

from fmq.basics.counts import GroupTally
from fmq.basics.message import Message
from fmq.consume.calls.claim_reader import ClaimReader
from fmq.consume.calls.settlement import Settler
from fmq.consume.claims.by_priority import SpanWanted
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.membership import Member, News, OnChange, OwnedQueue
from fmq.consume.claims.ordered_claims import LookWanted
from fmq.consume.claims.poll import Poll, Taken, offsets_of
from fmq.consume.groups.burial import Burying
from fmq.consume.groups.group_rooms import GroupRooms
from fmq.consume.groups.groups import Groups
from fmq.errors import (
    Closed,
    EngineFailed,
    FmqError,
    LeaseLost,
    OffsetGone,
)
from fmq.steps.call_steps import Arrival, Durable, Steps, Wakeup, made_durable
from fmq.store.reading.batch import Batch
from fmq.tx.commands.writer import Writer
from fmq.tx.looks.messages import Messages

logger = logging.getLogger("fmq.consumers")
C = TypeVar("C", Batch, list[Message])


class GroupMember(Settler):
    """A member of a group. Safe for threads."""

    def __init__(
        self,
        messages: Messages,
        groups: Groups,
        writer: Writer,
        check: Callable[[], None],
        entry: Member,
        group: str,
        lease_seconds: float,
        after: Callable[[], None],
        burying: Burying,
        on_change: OnChange | None = None,
        skip: Callable[[str, str, int, int, int], object] | None = None,
    ) -> None:
        """`check` raises if the engine is closed or has failed. `after` is called after each write.
        `skip` passes over damaged messages for the group; without it polls raise Damaged.

        `entry` is this member as the group knows it. The constructor takes it into the group.
        """
        tally = groups.tallies.setdefault(group, GroupTally())
        what = messages, writer, check, entry, group, lease_seconds, after, burying, tally
        super().__init__(*what)
        self._all_holds, self._rooms, self._claims = groups.holds, groups.rooms, groups.claims
        self.topics = entry.topics
        self.retry = entry.retry
        self.reader = ClaimReader(self, messages, skip)
        # What is to be done when the member has left its group.
        self.leaving_group: Callable[[], Steps[None]] | None = None
        self._on_change = on_change
        now = messages.clock.monotonic()
        writer.change(partial(_enter, messages, groups.rooms, group, entry, now))
        self.leave = partial(_leave, messages, groups.rooms, group, entry)
        """Takes the member out of its group. The caller holds the engine's lock."""

    # --- polling --------------------------------------------------------------------------------

    def give_back_pieces(self, claim: Claim, pieces: list[C]) -> None:
        """Give back messages that were claimed and that the program has not seen."""
        for piece in pieces:
            self.try_give_back(claim, *offsets_of(piece))

    def taking(self, poll: Poll) -> Steps[Taken]:
        """Claim what `poll` asks for. Return the claim and the messages; None if there are none in
        its time. A poll that is cancelled or interrupted holds nothing.
        """
        look = made_durable((self.plan_look, poll, None, True, None))
        try:
            while True:
                found = yield look
                if found is None:
                    if poll.waits:
                        poll.waits = False
                        yield self._arrival(poll)
                    elif poll.has_caught_up or not self.writer.commit_queue.owes:
                        return None
                    else:  # a posted append may bring a message: wait for that append, once
                        yield self.writer.commit_queue.catch_up
                        poll.has_caught_up = True
                elif isinstance(found, Claim):
                    pieces = poll.pieces
                    if not pieces and self.retry.is_last(found.count):
                        yield from self._using_up(found)
                    elif not pieces or poll.fit is not None:
                        pieces = yield from self._reading(found, poll)
                    if pieces:
                        if not found.count:
                            self._note_way(pieces[0])
                        return found, pieces
                    poll.claim, poll.is_counted = None, False
                elif isinstance(found, News):
                    self._tell(*found)
                else:
                    yield partial(self.reader.read_wanted, self, found)
        except GeneratorExit:
            # A generator that its driver closes may yield no step more. So the thread that closes
            # it does this at once.
            self.drop(poll)
            raise
        except BaseException:
            if poll.claim is not None or poll.wakeup is not None:
                yield partial(self.drop, poll)
            raise

    def _note_way(self, piece: Batch | list[Message]) -> None:
        """Count how long the first of these messages was on its way. A message that is not built in
        memory is left out, because it would have to be decoded once more.
        """
        messages = piece if isinstance(piece, list) else piece.built
        if messages and (origin := messages[0].origin) is not None:
            took_us = max(self.clock.time_us() - origin.time_us, 0)  # the clock may go back
            self.tally.handed_over[(took_us * 1000).bit_length()] += 1

    def drop(self, poll: Poll) -> None:
        """Give back what `poll` has claimed, as untried: no program has seen it."""
        if poll.wakeup is not None:
            self.stop_listening(poll.wakeup)
        if poll.claim is not None and poll.is_counted:
            with suppress(FmqError):  # a closed or failed engine holds nothing
                self.tries.uncount_claim(poll.claim, poll.ranges)
        elif poll.claim is not None:
            for each in poll.ranges:
                self.try_give_back(poll.claim, *each)

    def plan_look(self, poll: Poll) -> Claim | SpanWanted | LookWanted | News | None:
        """Claim what `poll` asks for. If the messages are in memory, plan their attempts, too.
        Return the claim, or what has to be read first. Return None if there is nothing; if `poll`
        has time left, it listens from now on. The caller holds the engine's lock.
        """
        self.check_engine()
        if self.is_closed:
            self.check()
        if self.draining.is_on:
            return None
        writer, member, now = self.writer, self.entry, self.clock.monotonic()
        if writer.dropped:
            writer.release_dropped()
        room = self._rooms.see(self.group, member, now)
        if writer.ledger.arrived:
            self._messages.wake()
        if member.lost or member.gained:
            if self._on_change is None or not poll.tells:
                return None  # a client learns the news by `take_news` before it polls on
            return member.take_news()
        found = self._claims.claim(room, member, poll, now, now + self.lease_seconds)
        if type(found) is Claim:
            poll.claim, poll.ranges = found, found.ranges
            poll.pieces, poll.is_counted = [], False
            if not (found.filter or found.now_us or self.retry.is_last(found.count)):
                poll.pieces = self.reader.ahead.take_warm(found, as_batch=poll.as_batch)
                if poll.pieces and poll.counts:
                    self.tries.count_held(found, found.ranges)
                    poll.is_counted = True
        elif found is None and now < poll.deadline:
            poll.waits = True
            if poll.listens:
                poll.wakeup = Wakeup()
                poll.until = self._listen(poll.wakeup, now, poll.deadline)
        return found

    def _reading(self, claim: Claim, poll: Poll) -> Steps[list[Any]]:
        """Read the messages of `claim` that are not in memory, and count their attempts if `poll`
        does. Return an empty list if they are gone.
        """
        pieces = poll.pieces or (yield partial(self.reader.read, self, claim, poll))
        if poll.fit is not None:
            pieces = poll.fit(claim, pieces)
            poll.ranges = [offsets_of(piece) for piece in pieces]
        if not (pieces and (poll.counts or poll.fit)):
            return pieces
        left = yield Durable(self._plan_count, (claim, poll), ahead=True)
        if len(left) < len(pieces):
            gone = [each for each in pieces if offsets_of(each) not in left]
            self.give_back_pieces(claim, gone)
            pieces = [each for each in pieces if offsets_of(each) in left]
        return pieces

    def _plan_count(self, what: tuple[Claim, Poll]) -> list[tuple[int, int]]:
        """Plan the attempts of what a poll has read, as far as its claim still holds that. The
        caller holds the engine's lock.
        """
        claim, poll = what
        poll.ranges = self.tries.plan_count(claim, poll.ranges)
        poll.is_counted = True
        return poll.ranges

    def _arrival(self, poll: Poll) -> Arrival:
        """Return the step that ends when it is worth to look again."""
        wakeup, poll.wakeup = poll.wakeup, None
        until = poll.deadline if wakeup is None else poll.until
        if self.writer.dropped:
            until = 0.0  # look at once: a look gives back what dropped objects held
        return Arrival(self.listen, self.stop_listening, until, wakeup, self)

    def _listen(self, wakeup: Callable[[], None], now: float, deadline: float) -> float:
        """Have `wakeup` called when an empty poll may find something. Return when the poll looks
        again even without a call. The caller holds the engine's lock.
        """
        self._messages.listen(self._all_holds.with_replays(self.group, self.topics), wakeup)
        self.entry.waiting.add(wakeup)
        return self._looks_at(now, deadline)

    def _looks_at(self, now: float, deadline: float) -> float:
        """Return when a poll that is not woken looks again. The caller holds the engine's lock."""
        claims, group, room = self._claims, self.group, self._rooms.get(self.group)
        until = min(deadline, claims.next_lease_end(group, self.entry))
        if room is not None:
            until = min(until, room.next_death)
        if self.writer.ledger.limits:
            until = min(until, self._all_holds.limits.until(group, now), now + self.lease_seconds)
        if claims.has_unleased(group, self.entry):
            # A transaction that the garbage collector ends wakes no poll, so look once in a lease.
            until = min(until, now + self.lease_seconds)
        return until

    def claim_again(self, topic: str, number: int, first: int, end: int) -> list[Claim]:
        """Claim messages that this member has had before, except those that another member
        has now.
        """
        queue = self._messages.ledger.queue(topic, number)
        if queue is None or topic not in self._all_holds.with_replays(self.group, self.topics):
            return []
        first, end = max(first, queue.first), min(end, queue.next)
        deadline = self._messages.clock.monotonic() + self.lease_seconds
        what = self.group, queue, first, end, self.entry, deadline

        def claim() -> list[Claim]:
            self._is_seen(self.clock.monotonic())
            return self._claims.claim_again(*what)

        claims = self.writer.change(claim)
        return self.reader.know_order(claims, deadline) if self.entry.is_ordered else claims

    def listen(self, wakeup: Callable[[], None]) -> float:
        """Have `wakeup` called when a poll may find something. Return when to look even without a
        call.
        """
        with self.writer.commit_queue.lock:
            return self._listen(wakeup, self._messages.clock.monotonic(), inf)

    def looks_anyway_at(self) -> float:
        """Return when a poll looks even if it is not woken. Another poll of its group listens for
        it.
        """
        with self.writer.commit_queue.lock:
            return self._looks_at(self._messages.clock.monotonic(), inf)

    def all_may_find(self) -> bool:
        """Share the queues out, if that is due, so that they have owners. Return whether the polls
        of all members have to look, and not only the poll of a queue's owner.
        """
        with self.writer.commit_queue.lock:
            has_members = self._rooms.have_owners(self.group)
            if self._messages.ledger.arrived:
                self._messages.wake()
        failed = self.writer.commit_queue.failure is not None
        # Replayed dead letters may go to any member.
        again = self._messages.ledger.again
        return failed or bool(again) or not has_members

    def _is_seen(self, now: float) -> None:
        """Note that the member is alive. The caller holds the engine's lock."""
        self._rooms.see(self.group, self.entry, now)
        if self._messages.ledger.arrived:
            self._messages.wake()

    def _tell(self, lost: list[OwnedQueue], gained: list[OwnedQueue]) -> None:
        """Tell the program which queues the member has lost, and which it has gained."""
        self.reader.ahead.drop(lost)
        assert self._on_change is not None
        self._on_change(lost, gained)

    def take_news(self) -> News | None:
        """Return the queues that were lost and gained, to be sent to a client."""
        with self.writer.commit_queue.lock:
            self.check()
            self._is_seen(self._messages.clock.monotonic())
            return self.entry.take_news() if self.entry.has_news else None

    def stop_listening(self, wakeup: Callable[[], None]) -> None:
        self.entry.end_wait(wakeup, self.clock.monotonic())
        topics = self._all_holds.with_replays(self.group, self.topics)
        self._messages.stop_listening(wakeup, topics)

    def _using_up(self, claim: Claim) -> Steps[None]:
        """Move messages of the claim to the dead letters that were tried as often as allowed.
        Messages that the group does not want are passed over, and messages that are not due wait,
        as at any attempt.
        """
        many = claim.end - claim.first
        sifted = partial(self.reader.sifted, self, claim, many, in_one_piece=False)
        try:
            ranges = yield sifted
        except OffsetGone:
            return
        for first, end, given_back in self.tries.ends(claim, ranges):
            try:
                why = _used_up(claim.count, given_back=given_back)
                yield from self.rejecting(claim, first, end, why)
                self.after()
            except LeaseLost:
                pass  # the group was moved meanwhile, so the member holds nothing any more
            except BaseException as error:
                if isinstance(error, GeneratorExit):
                    raise
                with suppress(LeaseLost):
                    yield from self.giving_back(claim, first, end, self.retry.longest, None)
                if not isinstance(error, FmqError) or isinstance(error, (Closed, EngineFailed)):
                    raise
                where = f"{claim.queue.topic}/{claim.queue.number} offset {first}"
                logger.warning("%s is no dead letter, and is tried again: %s", where, error)

    # --- what it has in hand ---------------------------------------------------------------------

    def in_hand(self) -> tuple[int, float]:
        """Return how many messages are in hand, and when the first of their leases ends."""
        with self.writer.commit_queue.lock:
            return self._all_holds.in_hand(self.group, self.entry, self.clock.monotonic())

    def stop_taking(self) -> None:
        """Take nothing new from now on."""
        self.draining.is_on = True
        with self.writer.commit_queue.lock:
            _end_polls(self._messages, self.entry)

    def count_members(self) -> int:
        """Return how many members the group has."""
        with self.writer.commit_queue.lock:
            room = self._rooms.get(self.group)
            return 0 if room is None else len(room.members)

    def close(self, *, counts: bool) -> None:
        """Do what `leaving` does, in this thread."""
        self.drive(self.leaving(counts=counts))

    def leaving(self, *, counts: bool) -> Steps[None]:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
        if not counts and not self.is_closed:
            with suppress(FmqError):  # a failed engine writes no more
                yield self.tries.uncounted(self._all_holds, self.entry)
        self.is_closed = True
        self.draining.changed()
        self.reader.ahead.clear()
        self.writer.change(self.leave)
        if self.leaving_group is not None:
            yield from self.leaving_group()


def _enter(messages: Messages, rooms: GroupRooms, group: str, member: Member, now: float) -> None:
    """Take `member` into `group`. The caller holds the engine's lock."""
    rooms.enter(group, member, now)
    messages.wake()


def _leave(messages: Messages, rooms: GroupRooms, group: str, member: Member) -> None:
    """Take `member` out of `group`, and redeliver what it holds to the others. The caller holds the
    engine's lock.
    """
    rooms.leave(group, member)
    _end_polls(messages, member)


def _end_polls(messages: Messages, member: Member) -> None:
    """Wake all polls of `member`, which takes nothing any more, and the polls that wait for what it
    held. The caller holds the engine's lock.
    """
    member.stir()
    messages.ledger.arrived.update(member.topics)
    messages.wake()


def _used_up(attempts: int, *, given_back: bool) -> str:
    """Return the reason of a dead letter whose last attempt ended without an error."""
    if given_back:
        return f"attempt {attempts} was given back, and there is no other one"
    return f"attempt {attempts} did not end: its lease or its process ended before"
