"""What a salvage has found: which messages are sound, what the gaps held, what became of
transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from fmq.copies.sift import Breach
from fmq.store.bytes.internal import is_internal, shown
from fmq.store.bytes.kinds import (
    PRE_MESSAGE,
    REF_MESSAGE,
    TIMER,
    Acks,
    Changed,
    ChangeKind,
    Decided,
    Marks,
    Prepare,
    Record,
    Run,
    TopicMade,
)
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages of one queue that cannot be read any more."""

    topic: str
    queue: int
    first: int
    end: int
    """The offset behind the last."""

    @property
    def messages(self) -> int:
        return self.end - self.first

    @property
    def is_internal(self) -> bool:
        return self.topic.startswith("(")


@dataclass(frozen=True, slots=True)
class LostTransaction:
    """A transaction of which something is lost."""

    tx_id: str
    position: int
    reason: str
    """What became of it."""


@dataclass(frozen=True, slots=True)
class UnsoundPlace:
    """A place of the journal that is not sound, and what is known of its records."""

    file: str
    position: int
    reason: str


LEFT_OUT = "left out: its append is not whole, so none of its messages is there"
IN_PART = "committed, and some of its messages cannot be read"
IMPAIRED = "undecided, and some of its messages cannot be read"
UNSURE = "undecided as far as is known: a decision may have been in the damage behind it"


class Findings:
    """What one pass over a journal has found."""

    def __init__(self) -> None:
        self.damaged: dict[int, str] = {}
        self.problems: list[UnsoundPlace] = []
        self.file = ""  # the segment that is being read
        self._sound: dict[tuple[str, int], AckSet] = {}
        self._gaps: list[tuple[int, int]] = []
        self._kept: set[int] = set()  # sound messages in gaps, to which a commit may refer
        # A decision on a transaction that was prepared before this position may be lost.
        self._unsure_from = 0
        self._left_out: dict[str, LostTransaction] = {}
        self._in_part: dict[str, LostTransaction] = {}

    def note(self, append: list[Record]) -> None:
        """Note what a sound append has published."""
        commit = append[-1] if isinstance(append[-1], Decided) else None
        if commit is not None:
            self._left_out.pop(commit.tx_id, None)  # only the transaction's PREPARE was lost
        for record in append:
            if isinstance(record, Run) and record.kind not in (PRE_MESSAGE, TIMER):
                if self._is_sound(record):
                    sound = self._sound.setdefault((record.topic, record.queue), AckSet())
                    sound.add(record.offset, record.offset + record.count)
                elif commit is not None:
                    name, at = commit.tx_id, commit.position
                    self._in_part[name] = LostTransaction(name, at, IN_PART)
            elif isinstance(record, Changed) and record.asked == ChangeKind.DELETE_TOPIC:
                for key in [key for key in self._sound if key[0] == record.topic]:
                    del self._sound[key]
        for record in append if self.damaged else ():
            if reason := self.damaged.get(record.position):
                what = f"{reason}: {said(record)}"
                self.problems.append(UnsoundPlace(self.file, record.position, what))

    def _is_sound(self, run: Run) -> bool:
        body = run.body_position if run.kind == REF_MESSAGE else run.position
        if body in self._kept or body in self.damaged:
            return body in self._kept
        i = bisect_right(self._gaps, (body, 1 << 62)) - 1
        return i < 0 or body >= self._gaps[i][1]

    def note_gap(self, gap: Breach, *, is_known: bool) -> None:
        """Note a gap. If what it has changed `is_known` from a checkpoint, only messages are lost
        with it, and perhaps decisions.
        """
        self._gaps.append((gap.start, gap.end))
        self._kept |= {
            each.position
            for each in gap.heads
            if each.kind == PRE_MESSAGE and each.position in gap.sound
        }
        self._unsure_from = gap.start
        heads = "; ".join(said(record) for record in gap.heads) or "of unknown records"
        more = "what it changed of groups, topics and marks is known from the checkpoint"
        if not is_known:
            more = "what it changed of groups, acks, topics and marks is lost"
        what = f"{gap.reason}: {gap.end - gap.start:,} bytes left out, {heads}; {more}"
        self.problems.append(UnsoundPlace(self.file, gap.start, what))
        for record in gap.heads:
            if isinstance(record, (Run, Prepare, Decided)) and record.tx_id:
                lost = LostTransaction(record.tx_id, record.position, LEFT_OUT)
                self._left_out.setdefault(record.tx_id, lost)

    def lost(self, ledger: Ledger) -> list[LostMessages]:
        """Return the messages that exist and cannot be read."""
        found = []
        for topic in ledger.topics.values():
            for queue in topic.queues:
                sound = self._sound.get((topic.name, queue.number)) or AckSet()
                for first, end in sound.gaps(queue.first, queue.end):
                    name = f"({shown(topic.name)})" if is_internal(topic.name) else topic.name
                    found.append(LostMessages(name, queue.number, first, end))
        return found

    def transactions(self, ledger: Ledger) -> Iterator[LostTransaction]:
        """Yield the transactions of which something is lost, or not known."""
        yield from self._left_out.values()
        yield from self._in_part.values()
        for entry in ledger.undecided.values():
            name, at = entry.prepare.tx_id, entry.prepare.position
            if entry.lost(self.damaged):
                yield LostTransaction(name, at, IMPAIRED)
            if entry.tx < self._unsure_from and name not in self._left_out:
                yield LostTransaction(name, at, UNSURE)


def said(record: Record) -> str:
    """Return for people what a record was about."""
    if isinstance(record, Run):
        place = f"{shown(record.topic)}/{record.queue}"
        if record.kind in (PRE_MESSAGE, TIMER):
            return f"{record.count} messages for {place}"
        return f"{place} offsets {record.offset} to {record.offset + record.count - 1}"
    if isinstance(record, (Prepare, Decided)):
        return f"the {record.kind.name} of {record.tx_id!r}"
    if isinstance(record, TopicMade):
        return f"the topic {shown(record.topic)!r}"
    if isinstance(record, Changed):
        return f"{ChangeKind(record.asked).name} of {shown(record.group)} {shown(record.topic)}"
    if isinstance(record, Acks):
        return f"acks of {', '.join(sorted({shown(each.group) for each in record.ranges}))}"
    if isinstance(record, Marks):
        return f"marks {', '.join(each.name for each in record.changes)}"
    return f"a {record.kind.name}"
