"""What a filter lets through of what was claimed.

A filter sees tags and headers. They are read from the heads of records, without the bodies. What
does not match is passed over by an ack, so that a group does not keep the journal for it.
"""

from __future__ import annotations

from functools import lru_cache

from fmq.consume.holds import Claim
from fmq.errors import BadFilter, BadOption, FilterDiffers
from fmq.filters import Filter, stored
from fmq.store.journal import Append
from fmq.store.kinds import AckRange, Acks
from fmq.tx.ledger import Queue
from fmq.tx.messages import Messages
from fmq.tx.writer import Writer

Ranges = list[tuple[int, int]]
SIFTED_AT_ONCE = 4096  # messages


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

    def __init__(self, messages: Messages, writer: Writer, group: str) -> None:
        self._messages = messages
        self._writer = writer
        self._group = group
        # By queue: the filter, how often groups were moved, and the offset below which all that is
        # left matches.
        self._sifted: dict[Queue, tuple[str, int, int]] = {}

    def sift(self, claim: Claim, limit: int, *, in_one_piece: bool) -> Ranges:
        """Return what matches of `claim`, at most `limit` messages, as ranges of offsets; only the
        first range if it has to be `in_one_piece`.

        What does not match is passed over, and the rest is given back. Raises what reading raises.
        """
        queue, first, end = claim.queue, claim.first, claim.end
        matching, upto = self._matching(claim, limit)
        taken: Ranges = []
        at = first
        for offset in matching:
            if taken and taken[-1][1] == offset:
                taken[-1] = taken[-1][0], offset + 1
            elif taken and in_one_piece:
                upto = offset
                break
            else:
                taken.append((offset, offset + 1))
        passed: Ranges = []
        for low, high in (*taken, (upto, upto)):
            if at < low:
                passed.append((at, low))
            at = high
        if passed:
            self._pass_over(claim, passed)
        if upto < end:
            self._writer.change(lambda: self._give_back(claim, upto, end))
        self._note(queue, claim.filter, upto)
        return taken

    def _matching(self, claim: Claim, limit: int) -> tuple[list[int], int]:
        """Return up to `limit` offsets that match, and the offset up to which was looked."""
        queue, at, end = claim.queue, claim.first, claim.end
        text, moves, upto = self._sifted.get(queue, ("", 0, 0))
        found: list[int] = []
        if text == claim.filter and moves == self._writer.moves and at < upto:
            found = [*range(at, min(end, upto, at + limit))]
            return found, at + len(found)
        matches = filter_of(claim.filter).matches_message
        while at < end:
            for carried in self._messages.carried(queue, at, end - at):
                tags, headers = carried.tags, carried.headers
                for number in range(carried.messages):
                    tag = None if tags is None else tags[number]
                    header = None if headers is None else headers[number]
                    if matches(tag, header or {}):
                        found.append(carried.first + number)
                        if len(found) == limit:
                            return found, found[-1] + 1
                at = carried.first + carried.messages
        return found, end

    def _note(self, queue: Queue, text: str, upto: int) -> None:
        known, moves, before = self._sifted.get(queue, ("", 0, 0))
        if (known, moves) == (text, self._writer.moves):
            upto = max(upto, before)
        self._sifted[queue] = text, self._writer.moves, upto

    def _pass_over(self, claim: Claim, passed: Ranges) -> None:
        """Ack what does not match. It need not be durable at once: it would be sifted again."""
        queue = claim.queue
        ranges = [AckRange(self._group, queue.topic, queue.number, *each) for each in passed]
        append = Append([Acks(ranges, 0)])

        def plan(append: Append) -> None:
            if all(claim.holds.is_held_by(low, high, claim) for low, high in passed):
                self._writer.send(append)
                for low, high in passed:
                    claim.holds.transfer(low, high, claim, append)

        self._writer.commit_queue.run(plan, append, False)

    @staticmethod
    def _give_back(claim: Claim, first: int, end: int) -> None:
        if claim.holds.is_held_by(first, end, claim):
            claim.holds.give_back(first, end)
