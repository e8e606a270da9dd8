"""A consumer: one member of a group that shares the messages of some topics.

Every message goes to one member, which holds it until it acks, closes, or its lease ends. Then the
next poll of any member redelivers it. An ack is durable before it returns, and can be part of a
transaction instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf, isnan
from types import TracebackType
from typing import Any, TypeVar
from weakref import finalize

from fmq.consume.advancing import advance
from fmq.consume.burying import Burying
from fmq.consume.by_priority import SpanWanted
from fmq.consume.claim import Claim
from fmq.consume.delivery import (
    DeliveredRange,
    Deliveries,
    Delivery,
    DeliveryBatch,
)
from fmq.consume.groups import Groups
from fmq.consume.handling import (
    Handler,
    batches,
    each_delivery,
    fail,
    give_back_aheads,
    next_deliveries,
    next_delivery,
    run,
    used_up,
)
from fmq.consume.lookahead import Lookahead
from fmq.consume.membership import Member, News, OwnedQueue
from fmq.consume.ordered_claims import LookWanted
from fmq.consume.poll import Poll
from fmq.consume.read_ahead import ReadAhead, read_priorities
from fmq.consume.settling import Settler
from fmq.consume.sieve import Sieve
from fmq.consume.taking import take
from fmq.consume.tries import Range
from fmq.errors import (
    Closed,
    Damaged,
    EngineFailed,
    FmqError,
    LeaseLost,
    OffsetGone,
    StorageError,
)
from fmq.message import Message
from fmq.store.batch import Batch
from fmq.store.internal import is_internal
from fmq.tx.ledger import Queue
from fmq.tx.messages import Messages, Wakeup
from fmq.tx.names import check_count, check_seconds
from fmq.tx.writer import Writer

logger = logging.getLogger("fmq.consumers")
C = TypeVar("C", Batch, list[Message])
OnChange = Callable[[list[OwnedQueue], list[OwnedQueue]], object]


class Consumer(Settler):
    """A member of a group. Safe for threads."""

    def __init__(
        self,
        messages: Messages,
        groups: Groups,
        writer: Writer,
        check: Callable[[], None],
        member: Member,
        group: str,
        lease_seconds: float,
        after: Callable[[], None],
        burying: Burying,
        on_change: OnChange | None = None,
        skip: Callable[[str, str, int, int, int], object] | None = None,
    ) -> None:
        """`check` raises if the engine takes no call, `after` is called after each write. `skip`
        lets a group pass over messages that are damaged; without it polls raise.

        `member`, as the group knows it, is not in the group yet.
        """
        super().__init__(messages, writer, check, member, group, lease_seconds, after, burying)
        self._groups = groups
        self._topics = member.topics
        self._turn = 0  # the queue that a poll begins with
        self._ahead = ReadAhead(messages, check)
        buries = burying if member.buries_expired else None
        self._sieve = Sieve(messages, writer, group, buries)
        self._named = ""  # the group as the caller has named it, if it is another one
        self._left: Callable[[], object] = lambda: None  # called when it is closed
        self._retry = member.retry
        self._on_change = on_change
        self._skip = skip
        now = messages.clock.monotonic()
        writer.change(partial(_enter, messages, groups, group, member, now))
        leave = partial(_leave, messages, groups, group, member)
        self._if_dropped = finalize(self, writer.dropped.append, leave)
        self._if_dropped.atexit = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose messages it shares."""
        return self._topics

    @property
    def group(self) -> str:
        """The group that it is a member of."""
        return self._named or self._group

    @property
    def member(self) -> str:
        """The name of this member in its group."""
        return self._member.name

    # --- polling --------------------------------------------------------------------------------

    def poll(self, *, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Return up to `limit` deliveries, or none if none comes within `timeout` seconds."""
        found = self._find(self._poll(limit, timeout, counts=True))
        return [] if found is None else self._deliveries(*found)

    def _deliveries(self, claim: Claim, parts: list[list[Message]]) -> list[Delivery]:
        if is_internal(claim.queue.topic):
            return self._burying.deliveries(self, claim, parts)
        attempt = claim.count + 1
        return [Delivery(self, claim, message, attempt) for part in parts for message in part]

    def poll_batch(self, *, limit: int = 1000, timeout: float = 0.0) -> DeliveryBatch | None:
        """Return up to `limit` messages of one queue, to be acked together.

        Return None if there is none for `timeout` seconds.
        """
        poll = self._poll(limit, timeout, as_batch=True, in_one_piece=True, counts=True)
        found = self._find(poll)
        return None if found is None else self._delivery_batch(*found)

    def _delivery_batch(self, claim: Claim, batches: list[Batch]) -> DeliveryBatch | None:
        (batch,) = batches
        if is_internal(claim.queue.topic):
            return self._burying.delivery_batch(self, claim, batch)
        return DeliveryBatch(self, claim, batch, claim.count + 1)

    def take(
        self, *, limit: int = 1, timeout: float = 0.0, sync: bool | None = None
    ) -> list[Message]:
        """Return up to `limit` messages of one queue for good: their ack is durable.

        Return none if none comes within `timeout` seconds.
        """
        return take(self, limit, timeout, sync)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield deliveries one by one, and wait for the next. It ends when the consumer closes or
        drains. A program that is quick is read ahead for, by what it handles in a tenth of a
        second.
        """
        return each_delivery(self)

    def batches(self, max_size: int = 100, max_wait: float = 1.0) -> Iterator[Deliveries]:
        """Yield up to `max_size` deliveries at a time, or those that have come within `max_wait`
        seconds of the first. It ends when the consumer closes or drains.
        """
        return batches(self, max_size, max_wait)

    def run(self, handler: Handler, *, workers: int = 1) -> None:
        """Give each delivery to `handler`, in as many threads as there are `workers`.

        It is acked when the handler returns, and its lease is extended until then. If the handler
        raises, it waits as `retry` says. Returns when the consumer closes or drains; in the main
        thread SIGTERM drains it. What is in hand is handled before.
        """
        run(self, handler, workers)

    def drain(self, *, timeout: float = inf) -> bool:
        """Take nothing new, and wait until nothing is in hand; return False after `timeout`
        seconds. Loops and `run` end, and polls return nothing from now on.

        Inside of a loop or a handler, and in a signal handler that interrupts a call of fmq, it
        does not wait.
        """
        timeout = check_seconds("timeout", timeout)
        self._check()
        return self._draining.drain(self._stop_taking, self._in_hand, timeout)

    def _in_hand(self) -> tuple[int, float]:
        """Return how many messages are in hand, and when the first lease of them ends."""
        with self._writer.commit_queue.lock:
            now = self._clock.monotonic()
            return self._groups.in_hand_of(self._group, self._member, now)

    def _stop_taking(self) -> None:
        """Take nothing new."""
        self._draining.is_on = True
        with self._writer.commit_queue.lock:
            self._member.stir()
            self._messages.ledger.arrived.update(self._topics)
            self._messages.wake()
        give_back_aheads(self)

    def _next(self, done: Delivery | None = None) -> Delivery | None:
        """Ack `done`, and return the next delivery; None once the consumer closes or drains."""
        return next_delivery(self, inf, done)

    def _next_few(self, limit: int) -> list[Delivery]:
        """Return the next deliveries; none once the consumer closes or drains."""
        return next_deliveries(self, inf, limit)

    def _lookahead(self) -> Lookahead[Any]:
        """Return what a loop takes ahead."""
        how = {"is_ordered": self._member.is_ordered}
        return Lookahead(self._clock, self._lease_seconds, self._retry, **how)

    def _count_members(self) -> int:
        with self._writer.commit_queue.lock:
            return len(self._groups.members(self._group, self._clock.monotonic()))

    def _advance(self, done: Delivery) -> Delivery | None:
        """Ack `done`, and return the next delivery if there is one now."""
        return advance(self, done)

    def _fail(self, delivery: DeliveredRange, error: BaseException) -> None:
        fail(delivery, error)

    def _claim_batches(self, limit: int, *, in_one_piece: bool) -> tuple[Claim, list[Batch]] | None:
        """Claim what is there for a client, and return it in pieces of consecutive messages.

        They are not counted as tried yet.
        """
        return self._claim(limit, 0.0, as_batch=True, in_one_piece=in_one_piece)

    def _count(self, claim: Claim, pieces: list[C]) -> list[C]:
        """Count an attempt of each message, and return the pieces that `claim` still holds.

        If that cannot be written, give all back and raise.
        """
        try:
            left = self._tries.count(claim, [_range_of(piece) for piece in pieces])
        except BaseException:
            self._give_back_pieces(claim, pieces)
            raise
        return self._counted(claim, pieces, left)

    def _counted(self, claim: Claim, pieces: list[C], left: list[Range]) -> list[C]:
        """Return the pieces that are in `left`, and give back what `claim` holds of the others."""
        if len(left) == len(pieces):
            return pieces
        self._give_back_pieces(claim, [each for each in pieces if _range_of(each) not in left])
        return [each for each in pieces if _range_of(each) in left]

    def _give_back_pieces(self, claim: Claim, pieces: list[C]) -> None:
        """Hand out again what was claimed: the program has not seen it."""
        for piece in pieces:
            self._try_give_back(claim, *_range_of(piece))

    def _claim(self, limit: int, timeout: float, **how: bool) -> tuple[Claim, list[Any]] | None:
        """Claim messages, waiting up to `timeout` seconds. Return them in pieces of consecutive
        ones: batches, or lists of messages. Without a filter there is one piece.
        """
        return self._find(self._poll(limit, timeout, **how))

    def _poll(
        self,
        limit: int,
        timeout: float,
        *,
        as_batch: bool = False,
        in_one_piece: bool = False,
        counts: bool = False,
        tells: bool = True,
        is_quick: bool = False,
    ) -> Poll:
        """Return what `_find` takes. Raises what refuses the arguments."""
        if type(limit) is not int or limit < 1:
            limit = check_count("limit", limit)
        if type(timeout) is not float or isnan(timeout):
            timeout = check_seconds("timeout", timeout)
        deadline = self._clock.monotonic() + timeout
        return Poll(limit, deadline, as_batch, in_one_piece, counts, tells, is_quick)

    def _find(self, poll: Poll) -> tuple[Claim, list[Any]] | None:
        """Return what `poll` gets; None if it gets nothing in its time."""
        queue = self._writer.commit_queue
        while True:
            try:
                found = queue.run(self._plan_look, poll, wait=True, ahead=True)
            except BaseException:
                self._drop(poll)
                raise
            if isinstance(found, Claim):
                pieces = poll.pieces
                if not pieces and not poll.is_quick:
                    pieces = self._read_claimed(found, poll)
                if pieces or poll.is_quick:
                    return found, pieces
            elif found is not None:
                self._prepare(found)
            elif poll.wakeup is not None:
                self._wait(poll)
            elif poll.has_caught_up or not queue.owes:
                return None
            else:
                queue.catch_up()  # what was posted may be what it looks for
                poll.has_caught_up = True

    def _drop(self, poll: Poll) -> None:
        """Give back what `poll` has claimed: no program has seen it, so it was not tried."""
        if poll.wakeup is not None:
            self._stop_listening(poll.wakeup)
        if poll.claim is not None and poll.is_counted:
            with suppress(FmqError):  # an engine that is closed, or has failed, holds nothing
                self._tries.uncount_claim(poll.claim, poll.ranges)
        elif poll.claim is not None:
            for each in poll.ranges:
                self._try_give_back(poll.claim, *each)

    def _plan_look(self, poll: Poll) -> Claim | SpanWanted | LookWanted | News | None:
        """Claim what `poll` asks for. Where it is in memory, also plan the attempts. Return the
        claim, or what has to be done first; None if there is nothing. If `poll` has time left, it
        listens then. Under the lock.
        """
        self._check_engine()
        if self._closed:
            self._check()
        if self._draining.is_on:
            return None
        writer, member, now = self._writer, self._member, self._clock.monotonic()
        if writer.dropped:
            writer.release_dropped()
        room = self._groups.see(self._group, member, now)
        if writer.ledger.arrived:
            self._messages.wake()
        if member.lost or member.gained:
            if self._on_change is None or not poll.tells:
                return None  # `_take_news` tells a client first
            return member.take_news()
        self._turn += 1
        what = self._topics, self._turn, poll.limit, member, now, now + self._lease_seconds
        found = self._groups.claim(room, *what, in_one_piece=poll.in_one_piece)
        if type(found) is Claim:
            poll.claim, poll.ranges, poll.pieces, poll.is_counted = found, found.ranges, [], False
            if not (found.filter or found.now_us or self._retry.is_last(found.count)):
                poll.pieces = self._ahead.take_warm(found, as_batch=poll.as_batch)
                if poll.pieces and poll.counts:
                    self._tries.count_held(found, found.ranges)
                    poll.is_counted = True
        elif found is None and now < poll.deadline:
            poll.wakeup = Wakeup()
            poll.until = self._listen(poll.wakeup, now, poll.deadline)
        return found

    def _read_claimed(self, claim: Claim, poll: Poll) -> list[Any]:
        """Read the messages of `claim`, which are not in memory; return none if they are gone."""
        if self._retry.is_last(claim.count):
            self._use_up(claim)
            return []
        read = self._ahead.take_batch if poll.as_batch else self._ahead.take_messages
        pieces: list[Any] = self._pieces(claim, poll.limit, read, in_one_piece=poll.in_one_piece)
        if pieces and poll.counts:
            pieces, poll.is_counted = self._count(claim, pieces), True
        poll.ranges = [_range_of(piece) for piece in pieces]
        return pieces

    def _prepare(self, wanted: SpanWanted | LookWanted | News) -> None:
        """Do what a look needs before it can claim anything."""
        if isinstance(wanted, News):
            self._tell(*wanted)
        elif isinstance(wanted, SpanWanted):
            read_priorities(self._messages, self._writer, wanted)
        else:
            self._look(wanted, self._clock.monotonic() + self._lease_seconds)

    def _wait(self, poll: Poll) -> None:
        """Wait until it is worth to look again."""
        wakeup, poll.wakeup = poll.wakeup, None
        assert wakeup is not None
        try:
            if not self._writer.dropped:  # else look again, which gives back their holds
                self._clock.wait(wakeup.lock, poll.until - self._clock.monotonic())
        finally:
            self._stop_listening(wakeup)

    def _listen(self, wakeup: Callable[[], None], now: float, deadline: float) -> float:
        """Have `wakeup` called when an empty poll may find something. Return when it looks again,
        even if it is not. Under the lock.
        """
        self._messages.listen(self._groups.with_replays(self._group, self._topics), wakeup)
        self._member.waiting.add(wakeup)
        return self._looks_at(now, deadline)

    def _looks_at(self, now: float, deadline: float) -> float:
        """Return when a poll that is not woken looks again. Under the lock."""
        groups, what = self._groups, (self._group, self._topics, self._member)
        until = min(deadline, groups.next_lease_end(*what), groups.next_death(self._group))
        if groups.has_unleased(*what):
            # The end of a transaction by the garbage collector wakes no poll.
            until = min(until, now + self._lease_seconds)
        return until

    def _claim_again(self, topic: str, number: int, first: int, end: int) -> list[Claim]:
        """Claim messages that this member has had before, unless they are another's now."""
        queue = self._messages.ledger.queue(topic, number)
        if queue is None or topic not in self._groups.with_replays(self._group, self._topics):
            return []
        first, end = max(first, queue.first), min(end, queue.next)
        deadline = self._messages.clock.monotonic() + self._lease_seconds
        what = self._group, queue, first, end, self._member, deadline

        def claim() -> list[Claim]:
            self._is_seen(self._clock.monotonic())
            return self._groups.claim_again(*what)

        claims = self._writer.change(claim)
        return self._sieve.know_order(claims, deadline) if self._member.is_ordered else claims

    def _listen_for(self, wakeup: Callable[[], None]) -> float:
        """Have `wakeup` called when a poll may find something; return when to look anyway."""
        with self._writer.commit_queue.lock:
            return self._listen(wakeup, self._messages.clock.monotonic(), inf)

    def _looks_anyway_at(self) -> float:
        """Return when a poll looks that another one of its group listens for."""
        with self._writer.commit_queue.lock:
            return self._looks_at(self._messages.clock.monotonic(), inf)

    def _all_may_find(self) -> bool:
        """Return whether polls of all members have to look, whoever owns the queues."""
        failed = self._writer.commit_queue.failure is not None
        # What is replayed may go to any member.
        again = self._messages.ledger.again
        return failed or bool(again) or self._groups.is_stale(self._group)

    def _is_seen(self, now: float) -> None:
        """Give the group a sign of life. Under the lock."""
        self._groups.see(self._group, self._member, now)
        if self._messages.ledger.arrived:
            self._messages.wake()

    def _tell(self, lost: list[OwnedQueue], gained: list[OwnedQueue]) -> None:
        """Tell the program which queues the member has no more, and which it has now."""
        self._ahead.drop(lost)
        assert self._on_change is not None
        self._on_change(lost, gained)

    def _take_news(self) -> News | None:
        """Return the queues that were lost and gained, for a client that is to be told."""
        with self._writer.commit_queue.lock:
            self._check()
            self._is_seen(self._messages.clock.monotonic())
            return self._member.take_news() if self._member.has_news else None

    def _stop_listening(self, wakeup: Callable[[], None]) -> None:
        self._member.end_wait(wakeup, self._clock.monotonic())
        topics = self._groups.with_replays(self._group, self._topics)
        self._messages.stop_listening(wakeup, topics)

    def _pieces(
        self, claim: Claim, limit: int, read: Callable[[Queue, int, int], C], *, in_one_piece: bool
    ) -> list[C]:
        """Read what was claimed and is wanted; return nothing if there is nothing any more.

        Of what cannot be read the rest is given back. Raises only if that begins with it.
        """
        try:
            ranges = self._sifted(claim, limit, in_one_piece=in_one_piece)
        except OffsetGone:
            return []
        pieces: list[C] = []
        for number, (first, end) in enumerate(ranges):
            try:
                pieces.append(self._read(claim, first, end, read))
            except BaseException as error:
                for low, high in ranges[number + 1 :]:
                    self._try_give_back(claim, low, high)
                if pieces or isinstance(error, OffsetGone):
                    break  # retention dropped the messages after the claim, or a poll begins here
                if not isinstance(error, Damaged):
                    raise
                self._meet(error, claim.queue, first)
                break
        return pieces

    def _sifted(self, claim: Claim, limit: int, *, in_one_piece: bool) -> list[tuple[int, int]]:
        """Return the ranges of `claim` that are wanted now."""
        if claim.filter or claim.now_us:
            return self._sieve.sift(claim, limit, self._meet, in_one_piece=in_one_piece)
        return claim.ranges

    def _look(self, wanted: LookWanted, deadline: float) -> None:
        """Let the order of a queue know the keys that a poll has asked for."""
        queue, holds, _, first, end, _ = wanted
        try:
            self._sieve.look(wanted, Claim(self._member, queue, holds, first, end), deadline)
        except Damaged as error:
            self._meet(error, queue, first)

    def _read(self, claim: Claim, first: int, end: int, read: Callable[[Queue, int, int], C]) -> C:
        """Read a range. Give back what `read` does not return, or all if it raises."""
        try:
            taken = read(claim.queue, first, end - first)
        except BaseException:
            self._try_give_back(claim, first, end)
            raise
        if first + len(taken) < end:
            self._try_give_back(claim, first + len(taken), end)
        return taken

    def _meet(self, error: Damaged, queue: Queue, first: int) -> None:
        """Pass over the record of `first`, whose messages are lost together, or raise `error`, with
        the call that does so. This member holds none of them any more.
        """
        end = first + 1
        with suppress(OffsetGone, StorageError):
            _, end = self._messages.record_at(queue.topic, queue.number, first)
        if self._skip is not None and error.of_record and not is_internal(queue.topic):
            self._skip(self._group, queue.topic, queue.number, first, end - first)
            logger.warning(
                "the group %r has skipped %s damaged messages, %s/%s from offset %s on: %s",
                *(self.group, end - first, queue.topic, queue.number, first, error),
            )
            return
        many = f", count={end - first}" if end > first + 1 else ""
        lost = f"the {end - first} messages" if many else "the message"
        error.advise(
            f"The group {self._group!r} goes on behind it after engine.group({self._group!r})"
            f".skip({queue.topic!r}, {queue.number}, {first}{many}), which passes over {lost} of "
            "the damaged record."
        )
        raise error

    def _use_up(self, claim: Claim) -> None:
        """Move to the dead letters what was tried as often as it may be, and not acked. What the
        group does not want, or not yet, is passed over or waits, as if there were a next attempt.
        """
        try:
            ranges = self._sifted(claim, claim.end - claim.first, in_one_piece=False)
        except OffsetGone:
            return
        for first, end, given_back in self._tries.ends(claim, ranges):
            try:
                self._reject(claim, first, end, used_up(claim.count, given_back=given_back))
            except LeaseLost:
                pass  # the group was moved meanwhile
            except BaseException as error:
                self._tries.give_back(claim, first, end, self._retry.longest, count=True)
                if not isinstance(error, FmqError) or isinstance(error, (Closed, EngineFailed)):
                    raise
                where = f"{claim.queue.topic}/{claim.queue.number} offset {first}"
                logger.warning("%s is no dead letter, and is tried again: %s", where, error)

    def close(self) -> None:
        """Leave the group. What is not acked is redelivered to the other members. If the consumer
        was drained, its last attempt does not count.
        """
        self._close(counts=not self._draining.is_on)

    def _close(self, *, counts: bool) -> None:
        """Leave the group. Without `counts` the attempts of what is in hand do not count."""
        if not counts and not self._closed:
            with suppress(FmqError):  # the engine writes no more
                self._tries.uncount(self._groups, self._member)
        self._closed = True
        self._draining.changed()
        self._ahead.clear()
        what = self._messages, self._groups, self._group, self._member
        self._writer.change(partial(_leave, *what))
        self._if_dropped.detach()
        self._left()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the group as `close` does. If an exit or an interrupt ends the block, the attempts
        of what is in hand do not count.
        """
        if error is None:
            self.close()
        else:
            self._close(counts=isinstance(error, Exception))


def _range_of(piece: Batch | list[Message]) -> Range:
    """Return the offset of the first message of a piece, and the one after the last."""
    if not isinstance(piece, list):
        return piece.offset, piece.next
    first = piece[0].offset
    assert first is not None, "the message was read"
    return first, first + len(piece)


def _enter(messages: Messages, groups: Groups, group: str, member: Member, now: float) -> None:
    """Take `member` into `group`. Under the lock."""
    groups.enter(group, member, now)
    messages.wake()


def _leave(messages: Messages, groups: Groups, group: str, member: Member) -> None:
    """Redeliver to the rest of `group` what `member` holds. Under the lock."""
    groups.leave(group, member)
    messages.wake()
