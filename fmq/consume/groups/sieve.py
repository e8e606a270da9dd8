"""The sieve: which messages of a claim are handed out, where tags, headers, keys or the time
decide.

The heads of records are read for that, not the bodies. Messages that a filter does not let through
are passed over by an ack, so that the group does not keep the journal for them. Expired messages
are passed over, too: their ack says that they expired, so they are counted, or they become dead
letters. Where the order of keys is kept, the keys are read before the claim.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import count, repeat

from fmq.consume.claims.claim import Claim
from fmq.consume.claims.key_order import MessageKey
from fmq.consume.claims.ordered_claims import LookWanted, learn, next_look
from fmq.consume.claims.ranges import Ranges, gaps_between, ranges_of
from fmq.consume.groups.burial import Burying
from fmq.consume.groups.expiry import bury_expired
from fmq.errors import (
    BadFilter,
    BadOption,
    Damaged,
    FilterDiffers,
    FmqError,
    NewerFormat,
    OffsetGone,
)
from fmq.filters import Filter, stored
from fmq.store.bytes.extension import EXPIRED_ACKS
from fmq.store.bytes.extras import NEVER
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import AckRange, Acks, Append
from fmq.store.reading.reader import Carried
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.queues import Queue
from fmq.tx.looks.messages import Messages

# Limit for the messages of a claim that one poll compares with the filter.
SIFTED_AT_ONCE = 4096
# What a filter sees of a message without tag and headers.
NOTHING = None, dict[str, str]()


def text_of(wanted: Filter | None) -> str:
    """Return a filter as the text that a group keeps; "" lets all through. Raises TypeError."""
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
    """Return the filter for the text that a group keeps. Raises BadOption if a newer fmq
    wrote it.
    """
    kind, _, said = text.partition(":")
    try:
        return stored(kind, said)
    except (ValueError, BadFilter) as error:
        raise BadOption(
            f"the group keeps the filter {text!r}, which this fmq cannot read: {error}. Nothing "
            "was changed; use the fmq that wrote it, or give the group another filter."
        ) from error


def check_filter(group: str, topic: str, has: str, brings: str | None) -> None:
    """Raise FilterDiffers if a new member brings another filter than `has`, the filter of its
    group.
    """
    if brings is not None and brings != has:
        raise FilterDiffers(group, topic, brings, has)


class Sieve:
    """Sifts the claims of one consumer."""

    def __init__(
        self, messages: Messages, writer: Writer, group: str, burying: Burying | None
    ) -> None:
        """With `burying`, expired messages become dead letters."""
        self._burying = burying
        self._messages = messages
        self._writer = writer
        self._group = group

    def sift(
        self,
        claim: Claim,
        limit: int,
        meet: Callable[[Damaged, Queue, int], None],
        *,
        in_one_piece: bool,
    ) -> Ranges:
        """Return which messages of `claim` are handed out, at most `limit`, as ranges of offsets;
        only the first range if it has to be `in_one_piece`.

        Messages that do not match or have expired are passed over. The rest is given back, and so
        is all that comes after a message that cannot be read. If the claim begins with such a
        message, the error is raised; if it is damaged, `meet` is called with the error and the
        offset.
        """
        taken: Ranges = []
        for number, (first, end) in enumerate(claim.ranges):
            left = limit - sum(high - low for low, high in taken)
            if not left or (taken and in_one_piece):
                self._give_back(claim, claim.ranges[number:])
                break
            try:
                found, upto = self._sift(claim, first, end, left, in_one_piece=in_one_piece)
            except BaseException as error:
                self._give_back(claim, claim.ranges[number:])
                if taken:
                    break
                if not isinstance(error, Damaged):
                    raise
                meet(error, claim.queue, first)
                break
            taken += found
            if upto < end:
                self._give_back(claim, claim.ranges[number + 1 :])
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
    ) -> tuple[Ranges, int]:
        """Return which messages between two offsets are handed out, and the offset from which on
        messages were given back.
        """
        expired: list[int] = []
        looking = claim, first, end, limit, expired
        matching, upto = self._matching(*looking, in_one_piece=in_one_piece)
        taken: Ranges = []
        for offset in matching:
            if taken and taken[-1][1] == offset:
                taken[-1] = taken[-1][0], offset + 1
            elif taken and in_one_piece:
                upto = offset
                break
            else:
                taken.append((offset, offset + 1))
        expired = expired[: bisect_left(expired, upto)]
        passed = gaps_between(sorted((*matching, *expired)), first, upto)
        self._let_go(claim, passed, ranges_of(expired))
        if upto < end:
            self._give_back(claim, [(upto, end)])
        return taken, upto

    def _let_go(self, claim: Claim, passed: Ranges, expired: Ranges) -> None:
        """Ack messages that do not match. Count expired ones, or make dead letters of them."""
        if expired and self._burying is not None:
            expired = bury_expired(self._burying, self._writer, self._group, claim, expired)
        if passed or expired:
            self._pass_over(claim, passed, expired)

    # --- where the order of keys is kept ----------------------------------------------------------

    def look(self, wanted: LookWanted, claim: Claim, deadline: float) -> None:
        """Read the keys that a poll asks for, and pass them to the order. Messages that the group
        does not want are held by `claim` and passed over. Raises the errors of reading if the first
        message cannot be read.
        """
        queue, holds, order, first, end, text = wanted
        spans = queue.spans
        may_expire = spans is not None and not is_internal(queue.topic)
        now_us = self._messages.clock.time_us() if may_expire else 0
        keys: list[tuple[int, MessageKey, bool]] = []
        expired: set[int] = set()
        at = first
        try:
            while at < end:
                for carried in self._messages.carried(queue, at, end - at):
                    for offset, key, matches, expires_us in _keys_in(carried, text, now_us):
                        is_over = matches and expires_us <= now_us
                        if is_over:
                            expired.add(offset)
                        keys.append((offset, key, matches and not is_over))
                    at = carried.first + carried.messages
        except OffsetGone:
            # Retention has dropped the messages meanwhile. The next claim looks at what is left.
            return
        except (FmqError, OSError):
            if at == first:
                order.unreadable = first
                raise
        end = at
        what = wanted, end, keys, claim, deadline
        held = self._writer.change(lambda: learn(*what))
        try:
            offsets = [each for low, high in held for each in range(low, high)]
            self._let_go(
                claim,
                ranges_of(each for each in offsets if each not in expired),
                ranges_of(each for each in offsets if each in expired),
            )
        except BaseException:
            self._give_back(claim, held)
            raise

    def know_order(self, claims: list[Claim], deadline: float) -> list[Claim]:
        """Read the keys of messages that were claimed again after a restart, and of those before
        them. Return the claims whose keys could be read. The others are given back, because their
        order is not known.
        """
        known = []
        for claim in claims:
            try:
                while (wanted := self._writer.change(partial(_next_before, claim))) is not None:
                    passing = Claim(claim.member, claim.queue, claim.holds, *wanted[3:5])
                    self.look(wanted, passing, deadline)
            except (FmqError, OSError):
                self._give_back(claim, claim.ranges)
            else:
                known.append(claim)
        return known

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
        """Return up to `limit` offsets of messages that match, and the offset at which the search
        ended. With `in_one_piece` it ends after the first range. Matching messages that have
        expired are added to `expired`.
        """
        now_us = claim.now_us
        found: list[int] = []
        wanted = filter_of(claim.filter) if claim.filter else None
        tags = None if wanted is None else wanted.tags_in_bytes
        for carried in self._carried(claim.queue, at, end, tags):
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
        return found, at

    def _carried(
        self, queue: Queue, at: int, end: int, tags: Sequence[bytes] | None
    ) -> Iterator[Carried]:
        """Yield what the messages carry, up to the first message that cannot be read. Raise if the
        very first one cannot be read.
        """
        first = at
        try:
            while at < end:
                for carried in self._messages.carried(queue, at, end - at, tags):
                    at = carried.first + carried.messages
                    yield carried
        except (Damaged, NewerFormat, OSError):
            if at == first:
                raise

    def _pass_over(self, claim: Claim, passed: Ranges, expired: Ranges) -> None:
        """Ack messages that do not match and those that have expired. The ack need not be durable
        at once: after a crash they would be sifted again.
        """
        queue = claim.queue
        append: Append = []
        for ranges, extension in ((passed, b""), (expired, EXPIRED_ACKS)):
            if ranges:
                acks = [AckRange(self._group, queue.topic, queue.number, *each) for each in ranges]
                append.append(Acks(acks, 0))
                append[-1].extension = extension
        gone = [*passed, *expired]

        def plan(append: Append) -> None:
            if all(claim.holds.is_held_by(low, high, claim) for low, high in gone):
                self._writer.send(append)

        self._writer.commit_queue.run(plan, append, False)


def _keys_in(
    carried: Carried, text: str, now_us: int
) -> Iterator[tuple[int, MessageKey, bool, int]]:
    """Yield for each message its offset, its key, whether it passes the filter `text`, and, if that
    is asked for, when it expires.
    """
    matches: Iterable[bool] = repeat(True)
    if text:
        wanted = filter_of(text).matches_message
        matches = (wanted(*look) for look in carried.looks())
    expiries = carried.expiries_us() if now_us else repeat(NEVER)
    return zip(count(carried.first), carried.keys(), matches, expiries, strict=False)


def _next_before(claim: Claim) -> LookWanted | None:
    return next_look(claim.holds, claim.queue, claim.end, claim.end)
