"""What of a claim is handed out, where the tags, headers or keys decide that, or the time.

They are read from the heads of records, without the bodies. What a filter does not let through is
passed over by an ack, so that a group does not keep the journal for it. So is what has expired: the
ack says so, and it is counted, or becomes a dead letter, too. What must wait for an earlier message
of its key is held until that one is acked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat

from fmq.consume.burying import Burying
from fmq.consume.claim import Claim
from fmq.consume.expiring import bury_expired
from fmq.consume.holds import LATER
from fmq.consume.key_order import Key
from fmq.consume.ranges import Ranges, gaps_between, ranges_of
from fmq.errors import BadFilter, BadOption, FilterDiffers, FmqError
from fmq.filters import Filter, stored
from fmq.store.extension import EXPIRED_ACKS
from fmq.store.extras import NEVER
from fmq.store.journal import Append
from fmq.store.kinds import AckRange, Acks
from fmq.tx.ledger import Queue
from fmq.tx.messages import Messages
from fmq.tx.writer import Writer

SIFTED_AT_ONCE = 4096  # messages
NOTHING = None, dict[str, str]()  # what a filter sees of a message that carries nothing


def text_of(wanted: Filter | None) -> str:
    """Return a filter as a group keeps it; "" for one that wants all. Raises TypeError."""
    if wanted is None:
        return ""
    if not hasattr(wanted, "matches_message"):
        raise TypeError(
            f"filter={wanted!r}: is made by fmq.filters, as in filters.tags('paid || refunded'). "
            "Nothing was changed."
        )
    if wanted == stored("tags", "*"):
        return ""
    return f"{wanted.kind}:{wanted.normal}"


@lru_cache(maxsize=256)
def filter_of(text: str) -> Filter:
    """Return the filter that a group keeps as `text`; raise BadOption if a newer fmq made it."""
    kind, _, said = text.partition(":")
    try:
        return stored(kind, said)
    except (ValueError, BadFilter) as error:
        raise BadOption(
            f"the group keeps the filter {text!r}, which this fmq cannot read: {error}. Nothing "
            "was changed; use the fmq that wrote it, or give the group another filter."
        ) from error


def check_filter(group: str, topic: str, has: str, brings: str | None) -> None:
    """Raise FilterDiffers if a member brings another filter than its group has."""
    if brings is not None and brings != has:
        raise FilterDiffers(group, topic, brings, has)


class Sieve:
    """Sifts what one consumer has claimed."""

    def __init__(
        self, messages: Messages, writer: Writer, group: str, burying: Burying | None
    ) -> None:
        """With `burying` what has expired becomes a dead letter."""
        self._burying = burying
        self._messages = messages
        self._writer = writer
        self._group = group

    def sift(self, claim: Claim, limit: int, *, in_one_piece: bool) -> Ranges:
        """Return what is to be handed out of `claim`, at most `limit` messages, as ranges of
        offsets; only the first range if it has to be `in_one_piece`.

        What does not match or has expired is passed over, and the rest is given back. Raises what
        reading raises if that begins with it.
        """
        taken: Ranges = []
        for number, (first, end) in enumerate(claim.ranges):
            left = limit - sum(high - low for low, high in taken)
            if not left or (taken and in_one_piece):
                self._give_back(claim, claim.ranges[number:])
                break
            try:
                taken += self._sift(claim, first, end, left, in_one_piece=in_one_piece)
            except BaseException:
                self._give_back(claim, claim.ranges[number:])
                if not taken:
                    raise
                break
        return taken

    def _give_back(self, claim: Claim, ranges: Ranges) -> None:
        holds = claim.holds

        def give_back() -> None:
            for first, end in ranges:
                holds.give_back_held(first, end, claim)

        self._writer.change(give_back)

    def _sift(
        self, claim: Claim, first: int, end: int, limit: int, *, in_one_piece: bool
    ) -> Ranges:
        """Return what is to be handed out between two offsets."""
        later: list[int] = []
        expired: list[int] = []
        if claim.holds.order is None:
            looking = claim, first, end, limit, expired
            matching, upto = self._matching(*looking, in_one_piece=in_one_piece)
            free = matching
        else:
            keys, upto = self._keys_of(claim, expired)
            matching = [*keys]
            free, later, upto = self._in_order(claim, keys, limit, upto)
        taken: Ranges = []
        for offset in free:
            if taken and taken[-1][1] == offset:
                taken[-1] = taken[-1][0], offset + 1
            elif taken and in_one_piece:
                upto = offset
                break
            else:
                taken.append((offset, offset + 1))
        expired = expired[: bisect_left(expired, upto)]
        passed = gaps_between(sorted((*matching, *expired)), first, upto)
        counted = ranges_of(expired)
        if counted and self._burying is not None:
            counted = bury_expired(self._burying, self._writer, self._group, claim, counted)
        if passed or counted:
            self._pass_over(claim, passed, counted)

        def hold_the_rest() -> None:
            for offset in later:
                if offset < upto and claim.holds.transfer(offset, offset + 1, claim, LATER):
                    self._release_if_first(claim, offset)
            if upto < end:
                claim.holds.give_back_held(upto, end, claim)

        if later or upto < end:
            self._writer.change(hold_the_rest)
        return taken

    def _release_if_first(self, claim: Claim, offset: int) -> None:
        """Hand a message out after all, if another thread has just acked those before it of its
        key. That ack met it in this claim, so it will not release it. Under the lock.
        """
        order = claim.holds.order
        assert order is not None
        if not order.before(offset):
            claim.holds.give_back(offset, offset + 1)
            self._messages.wake_for(claim.queue)

    def _keys_of(self, claim: Claim, expired: list[int]) -> tuple[dict[int, Key], int]:
        """Return the keys of the messages that match, by offset, and the end of what was looked at.
        Add those that have expired to `expired`.

        The order also learns the keys of what others hold and it was not told of.
        """
        holds, order, queue = claim.holds, claim.holds.order, claim.queue
        assert order is not None
        with self._writer.commit_queue.lock:
            unknown = holds.unknown(claim.first)
        for part in unknown:
            self._learn(claim, *part)
        keys = dict(self._keys_in(queue, claim.first, claim.end, claim.filter))
        if claim.now_us:
            for offset in self._expired_in(claim, claim.first, claim.end):
                if keys.pop(offset, None) is not None:
                    expired.append(offset)
        return keys, claim.end

    def know_order(self, claims: list[Claim]) -> list[Claim]:
        """Learn the keys of what was claimed again after a restart. Return the claims whose keys
        could be read; the others are given back, because their order would be unknown.
        """
        known = []
        for claim in claims:
            try:
                self._learn(claim, claim.first, claim.end)
            except (FmqError, OSError):
                self._give_back(claim, claim.ranges)
            else:
                known.append(claim)
        return known

    def _learn(self, claim: Claim, first: int, end: int) -> None:
        """Let the order know the keys between two offsets of the queue of `claim`."""
        holds, order = claim.holds, claim.holds.order
        assert order is not None
        keys = [*self._keys_in(claim.queue, first, end)]

        def add() -> None:
            for offset, key in keys:
                if not holds.is_acked(offset):
                    order.add(offset, key)

        self._writer.change(add)

    def _keys_in(
        self, queue: Queue, at: int, end: int, text: str = ""
    ) -> Iterator[tuple[int, Key]]:
        """Yield the offset and the key of each message that matches."""
        matches = filter_of(text).matches_message if text else None
        while at < end:
            for carried in self._messages.carried(queue, at, end - at):
                keys = enumerate(carried.keys(), carried.first)
                if matches is None:
                    yield from keys
                else:
                    for each, (tag, headers) in zip(keys, carried.looks(), strict=True):
                        if matches(tag, headers):
                            yield each
                at = carried.first + carried.messages

    def _in_order(
        self, claim: Claim, keys: dict[int, Key], limit: int, upto: int
    ) -> tuple[list[int], list[int], int]:
        """Return up to `limit` offsets that may be handed out, those before them that may not yet,
        and the end of both.
        """
        order, is_held = claim.holds.order, claim.holds.is_held_by
        assert order is not None
        free: list[int] = []
        later: list[int] = []
        mine: dict[Key, int] = {}  # how many of each key are handed out with this claim

        def choose() -> int:
            for offset, key in keys.items():
                if len(free) == limit:
                    return offset
                if not is_held(offset, offset + 1, claim):
                    continue  # taken from it meanwhile, and acked perhaps: the order forgets that
                order.add(offset, key)
                if order.before(offset) == mine.get(key, 0):
                    mine[key] = mine.get(key, 0) + 1
                    free.append(offset)
                else:
                    later.append(offset)
            return upto

        return free, later, self._writer.change(choose)

    def _expired_in(self, claim: Claim, at: int, end: int) -> Iterator[int]:
        """Yield the offsets of the messages that have expired."""
        while at < end:
            for carried in self._messages.carried(claim.queue, at, end - at):
                for offset, expires_us in enumerate(carried.expiries_us(), carried.first):
                    if expires_us <= claim.now_us:
                        yield offset
                at = carried.first + carried.messages

    def _matching(
        self,
        claim: Claim,
        at: int,
        end: int,
        limit: int,
        expired: list[int],
        *,
        in_one_piece: bool,
    ) -> tuple[list[int], int]:
        """Return up to `limit` offsets that match, and the offset up to which was looked: not
        further than the first piece if only that is wanted. Add those that match and have expired
        to `expired`.
        """
        queue, now_us = claim.queue, claim.now_us
        found: list[int] = []
        wanted = filter_of(claim.filter) if claim.filter else None
        tags = None if wanted is None else wanted.tags_in_bytes
        while at < end:
            for carried in self._messages.carried(queue, at, end - at, tags):
                at = carried.first + carried.messages
                if tags is not None and not carried.may_have_tag(tags):
                    if found and in_one_piece:
                        return found, carried.first
                    continue
                looks = repeat(NOTHING) if wanted is None else carried.looks()
                expiries = carried.expiries_us() if now_us else repeat(NEVER, carried.messages)
                for offset, expires_us, look in zip(
                    range(carried.first, at), expiries, looks, strict=False
                ):
                    matches = wanted is None or wanted.matches_message(*look)
                    if matches and expires_us > now_us:
                        found.append(offset)
                        if len(found) == limit:
                            return found, offset + 1
                        continue
                    if found and in_one_piece:
                        return found, offset
                    if matches:
                        expired.append(offset)
        return found, end

    def _pass_over(self, claim: Claim, passed: Ranges, expired: Ranges) -> None:
        """Ack what does not match, and what has expired. It need not be durable at once: it would
        be sifted again.
        """
        queue = claim.queue
        records = []
        for ranges, extension in ((passed, b""), (expired, EXPIRED_ACKS)):
            if ranges:
                acks = [AckRange(self._group, queue.topic, queue.number, *each) for each in ranges]
                records.append(Acks(acks, 0))
                records[-1].extension = extension
        append = Append(records)
        gone = [*passed, *expired]

        def plan(append: Append) -> None:
            if all(claim.holds.is_held_by(low, high, claim) for low, high in gone):
                self._writer.send(append)
                self._writer.frontier.expired += bool(expired)
                for low, high in gone:
                    claim.holds.transfer(low, high, claim, append)

        self._writer.commit_queue.run(plan, append, False)
