"""The history of a home: what its entries say so far, and which of them count.

One place knows the reading rules. The owner applies its own entries by them, too, so what it writes
is what every later owner reads.

- An OWN whose term is above that of the history begins a new term. Any other OWN is dead.
- All other entries count only in the term that their owner has begun. An older term is dead.
- An append that has several entries counts once its last one is there. An OWN ends what is not
  whole, and says where the last whole one ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from fmq.errors import Damaged
from fmq.home.floor_files import NO_FILES
from fmq.home.slot_entry import NO_CHAIN, EntryKind, SlotEntry, chain_of, decode_entry
from fmq.recovery.derived_files import is_index
from fmq.store.journal.segment import HEADER_BYTES, base_of, decode_header, segment_name


class HomeSegment:
    """A segment, as far as the home has it."""

    __slots__ = ("capacity", "end", "pieces")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.end = 0  # how many of its first bytes the home has
        self.pieces: list[HomePiece] = []
        """The bytes below the floor, which are objects of their own."""


class HomePiece(NamedTuple):
    """Bytes of a segment that are an object of their own."""

    start: int
    end: int
    crc: int

    def key(self, base: int) -> str:
        return f"pieces/{base:020d}-{self.start:010d}-{self.end:010d}-{self.crc:08x}"


class HomeAppend(NamedTuple):
    """Whole appends, to be written to a segment."""

    base: int
    offset: int
    data: bytes


class HomeHistory:
    """What is true at slot `next`. The caller excludes other threads."""

    def __init__(self) -> None:
        self.home = b""
        """Drawn when the home was made; empty before."""
        self.next = self.term = 0
        self.owner = b""
        self.chain = NO_CHAIN
        self.said: dict[str, Any] = {}
        """What the newest OWN, and the BEATs since, say of the owner."""
        self.owns: dict[int, str] = {}
        """The slots of all OWNs that counted, and the chain at each."""
        self.segments: dict[int, HomeSegment] = {}
        self.kinds: dict[int, EntryKind] = {}
        """The slots that were read since the last floor, and what each one has."""
        self.bytes_since_floor = 0
        self.files = NO_FILES
        """The derived files of the last floor."""
        self._half: list[SlotEntry] = []

    @property
    def position(self) -> int:
        """The end of the journal in the home."""
        base = max(self.segments, default=0)
        return base + self.segments[base].end if self.segments else 0

    def indexes(self, names: Iterable[str]) -> list[str]:
        """Return those of the files `names` that are indexes of segments which are there."""
        return [name for name in names if is_index(name) and base_of(name) in self.segments]

    def adopt(self, floor: HomeHistory) -> None:
        """Note that what lies below `floor`, which is not above the present slot, is in pieces."""
        self.kinds = {n: kind for n, kind in self.kinds.items() if n >= floor.next}
        self.bytes_since_floor = 0
        self.files = floor.files
        for base, segment in floor.segments.items():
            if base in self.segments:
                self.segments[base].pieces = [*segment.pieces]

    def apply(self, data: bytes, *, is_mine: bool = False) -> HomeAppend | None:
        """Apply the entry at `next`. Return the append that is whole by it, or None. Raises Damaged
        or NewerFormat, and leaves the history as it was.

        With `is_mine` this engine has made the entry for this place, so its checksums are right.
        """
        name = f"slot {self.next}"
        entry = decode_entry(data, name, is_mine=is_mine)
        if self.home and entry.home != self.home:
            raise Damaged(name, 0, f"an entry of the home {entry.home.hex()}")
        whole = None
        if self._counts(entry, name):
            if not is_mine and entry.chain != chain_of(self.chain, entry.head, entry.data):
                raise Damaged(name, 0, "the entry does not follow the one before it")
            whole = self._applied(entry, name)
            self.chain = entry.chain
            if entry.kind is EntryKind.OWN:
                self.owns[self.next] = entry.chain.hex()
        self.kinds[self.next] = entry.kind
        self.bytes_since_floor += len(data)
        self.next += 1
        return whole

    def _counts(self, entry: SlotEntry, name: str) -> bool:
        if entry.kind is EntryKind.OWN:
            return entry.term > self.term
        if entry.term > self.term or (entry.term == self.term and entry.owner != self.owner):
            raise Damaged(name, 0, f"an entry of term {entry.term}, which no OWN has begun")
        return entry.term == self.term

    def _applied(self, entry: SlotEntry, name: str) -> HomeAppend | None:
        if entry.kind is EntryKind.OWN:
            said = json.loads(entry.data)
            if said["ends_at"] != self.position:
                reason = f"its OWN says that whole appends end at {said['ends_at']}"
                raise Damaged(name, 0, f"{reason}, and they end at {self.position}")
            self.home, self.term, self.owner, self.said = entry.home, entry.term, entry.owner, said
            self._half = []
        elif entry.kind is EntryKind.DROP:
            self.segments.pop(entry.base, None)
        elif entry.kind is EntryKind.BEAT:
            if entry.data:
                self.said = {**self.said, **json.loads(entry.data)}
        elif entry.kind is EntryKind.DATA:
            return self._appended(entry, name)
        return None

    def _appended(self, entry: SlotEntry, name: str) -> HomeAppend | None:
        half = [*self._half, entry]
        first, at = half[0], half[0].offset
        for each in half:
            if each.base != first.base or each.offset != at:
                raise Damaged(name, at, "the pieces of an append do not follow each other")
            at += len(each.data)
        known = self.segments.get(first.base)
        if first.offset != (known.end if known else 0):
            raise Damaged(name, first.offset, "an append that does not follow the one before it")
        if not entry.last:
            self._half = half
            return None
        data = b"".join(each.data for each in half)
        if known is None:
            header = decode_header(data[:HEADER_BYTES], segment_name(first.base))
            known = self.segments[first.base] = HomeSegment(header.capacity)
        known.end = at
        self._half = []
        return HomeAppend(first.base, first.offset, data)
