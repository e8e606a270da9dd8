"""Counting attempts. An attempt is written before the program sees the message.

An attempt is a store into a page that the engine has mapped, so it survives a kill of the process.
The journal has it, as TRIED, by the next checkpoint, or when the page is full. A power cut may lose
the attempts since then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from fmq.basics.clock import Clock
from fmq.basics.counts import GroupTally
from fmq.basics.tuples import tuple_maker
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.membership import Member
from fmq.consume.groups.group_holds import GroupHolds
from fmq.steps.call_steps import Durable
from fmq.store.bytes.kinds import TriedRange
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.queues import Queue

Range = tuple[int, int]
made_range = tuple_maker(TriedRange)
# Limit for the holds in one record that takes their attempts back.
UNCOUNTED_AT_ONCE = 1000


class Tries:
    """Writes the attempts of one consumer, and the messages that it gives back."""

    def __init__(
        self,
        writer: Writer,
        group: str,
        clock: Clock,
        wake: Callable[[Queue], None],
        tally: GroupTally,
    ) -> None:
        """`wake` wakes the polls that wait for a queue. It is called under the engine's lock.
        `tally` counts the attempts of the whole group.
        """
        self._tally = tally
        self._writer = writer
        self._group = group
        self._clock = clock
        self._wake = wake

    def plan_count(self, claim: Claim, ranges: list[Range]) -> list[Range]:
        """Count an attempt of each message of `ranges`, which `claim` held. Return what it still
        holds of them. The caller holds the engine's lock.
        """
        self._writer.release_dropped()
        left = self.still_held(claim, ranges)
        if left:
            self.count_held(claim, left)
        return left

    def count_held(self, claim: Claim, ranges: list[Range]) -> None:
        """Count an attempt of `ranges`, all of which `claim` holds: in the page, or as TRIED if
        the page is full. The caller holds the engine's lock.
        """
        self._writer.count(self.attempt(claim, ranges))
        claim.holds.count_tries(ranges)

    def uncount_claim(self, claim: Claim, ranges: list[Range]) -> None:
        """Give back messages whose attempt was counted and which no program has seen. The count is
        taken back.
        """
        queue = self._writer.commit_queue
        queue.run(self._plan_uncount_claim, (claim, ranges), wait=True, ahead=True)

    def _plan_uncount_claim(self, what: tuple[Claim, list[Range]]) -> None:
        claim, ranges = what
        left, now_us = self.still_held(claim, ranges), self._clock.time_us()
        if left:
            self._writer.count([self._range(claim, *each, claim.count, now_us) for each in left])
            self._take_off(claim.count + 1, left)
        claim.holds.count_tries(left, -1)
        for first, end in reversed(left):
            claim.holds.give_back(first, end)
        self._wake(claim.queue)

    def attempt(self, claim: Claim, ranges: list[Range]) -> list[TriedRange]:
        """Return what a record of an attempt of `ranges` states, and count the attempt for
        operators.
        """
        queue, tries, tally = claim.queue, claim.count + 1, self._tally
        for first, end in ranges:
            tally.attempts += end - first
            if tries > 1:
                tally.retries += end - first
        if claim.holds.limiter is not None:
            claim.holds.limiter.handed(self._clock.monotonic(), claim.holds, ranges)
        where = self._group, queue.topic, queue.number
        return [made_range((*where, first, end, tries, 0)) for first, end in ranges]

    def _take_off(self, tries: int, ranges: Iterable[Range]) -> None:
        """Subtract attempts that were taken back from the counts. Each was attempt number `tries`
        of its message.
        """
        messages = sum(end - first for first, end in ranges)
        self._tally.attempts -= messages
        self._tally.retries -= messages if tries > 1 else 0

    def still_held(self, claim: Claim, ranges: list[Range]) -> list[Range]:
        """Return the parts of `ranges` that `claim` still holds. The caller holds the engine's
        lock.
        """
        is_held = claim.holds.is_held_by
        return [each for each in ranges if is_held(*each, claim)]

    def given_back(
        self, claim: Claim, first: int, end: int, delay: float, uncounted: int | None
    ) -> Durable:
        """Return the step that hands the range out again after `delay` seconds. `uncounted` is the
        number of its attempt if that does not count. The answer is False if `claim` does not hold
        all of the range.
        """
        return Durable(self._plan_give_back, (claim, first, end, delay, uncounted), None, True)

    def _plan_give_back(self, what: tuple[Claim, int, int, float, int | None]) -> bool:
        claim, first, end, delay, uncounted = what
        holds, clock = claim.holds, self._clock
        self._writer.release_dropped()
        if not holds.is_held_by(first, end, claim):
            return False
        count = holds.count_of(first)
        if uncounted is None:
            self._tally.failures += end - first
        else:
            self._take_off(count, [(first, end)])
            # A client may repeat this after a lost answer. A power cut may have lost the attempt.
            count = min(count, uncounted - 1)
        due_us = clock.time_us() + round(delay * 1_000_000)
        self._writer.count([self._range(claim, first, end, count, due_us)])
        holds.give_back(first, end, clock.monotonic() + delay, count)
        self._wake(claim.queue)
        return True

    def uncounted(self, all_holds: GroupHolds, member: Member) -> Durable:
        """Return the step that gives back what `member` has in hand, without counting the
        attempts: its program ends, or was drained.
        """
        return Durable(self._plan_uncount, (all_holds, member), ahead=True)

    def _plan_uncount(self, what: tuple[GroupHolds, Member]) -> None:
        now_us = self._clock.time_us()
        self._writer.release_dropped()
        tried = [each for each in what[0].held_by(self._group, what[1]) if each[2].count]
        for at in range(0, len(tried), UNCOUNTED_AT_ONCE):
            part = tried[at : at + UNCOUNTED_AT_ONCE]
            ranges = [
                TriedRange(
                    *(self._group, queue.topic, queue.number, hold.first, hold.end),
                    *(hold.count - 1, now_us),
                )
                for queue, _, hold in part
            ]
            self._writer.count(ranges)
            for _, holds, hold in reversed(part):
                self._take_off(hold.count, [(hold.first, hold.end)])
                holds.give_back(hold.first, hold.end, count=hold.count - 1)

    def ends(self, claim: Claim, ranges: Sequence[Range]) -> list[tuple[int, int, bool]]:
        """Return the parts of `ranges`, each with True if its last attempt was given back."""
        return self._writer.change(partial(self._ends, claim, ranges))

    def _ends(self, claim: Claim, ranges: Sequence[Range]) -> list[tuple[int, int, bool]]:
        queue = claim.queue
        tried = self._writer.ledger.tried_of(self._group, queue.topic, queue.number)
        return [
            (low, known.end, known.due_us > 0)
            for first, end in ranges
            for low, known in tried.within(first, end)
        ]

    def _range(self, claim: Claim, first: int, end: int, count: int, due_us: int = 0) -> TriedRange:
        queue = claim.queue
        return TriedRange(self._group, queue.topic, queue.number, first, end, count, due_us)
