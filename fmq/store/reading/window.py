"""A part of a segment in memory, and the bodies that are cut out of it, checksums verified.

This is the inner loop of all reading, so it is written for speed: one unpack for each record, no
objects but the bodies, and no copies. Unusual records are left to `decode`, which says what is
wrong with them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from zlib import crc32

from fmq.errors import Damaged, NewerFormat
from fmq.store.bytes.columns import COMPRESSED, LENGTHS, Columns
from fmq.store.bytes.decoding import columns_of, decode
from fmq.store.bytes.kinds import MESSAGE, PRE_MESSAGE, TX_MESSAGE, Kind, Run
from fmq.store.bytes.pieces import BadColumns, EqualPieces, Pieces, array_in, pieces_of
from fmq.store.bytes.record import (
    COMMON,
    HEAD_BYTES_MIN,
    MAGICS,
    PLACE,
    PREFIX,
    U32,
    BadRecord,
    Misplaced,
    Newer,
)
from fmq.store.index.index import NOWHERE
from fmq.store.journal.segment import segment_name

FRONT = Struct("<4sIIIQIIBBH")
SINGLE = Struct("<4sIIIQIIHH")  # the head of a single message, with kind and flags as one number
assert FRONT.size == SINGLE.size == PREFIX.size + COMMON.size == HEAD_BYTES_MIN
# Where the count of messages is in a head: with a tx before it, and without one.
COUNT_AT = (HEAD_BYTES_MIN + 24, HEAD_BYTES_MIN + 16)
PUBLISHED = frozenset((MESSAGE, TX_MESSAGE))
REFERRED = frozenset((PRE_MESSAGE,))
"""The kinds that hold bodies: of what stands where it is published, and of what is referred to."""
PLAIN = frozenset(
    kind | flags << 8 for kind in PUBLISHED for flags in range(256) if not flags & COMPRESSED
)
UNREADABLE = (BadRecord, Misplaced, Newer, BadColumns)


def refused(base: int, place: int, error: Exception) -> Damaged | NewerFormat:
    """Return the error to raise for the record at `place` of the segment at `base`."""
    if place == NOWHERE:
        reason = "what should be there was not met: the segment is damaged in front of it"
        damaged = Damaged(segment_name(base), base, reason)
    elif isinstance(error, Newer):
        return NewerFormat(segment_name(base), base + place, str(error))
    else:
        damaged = Damaged(segment_name(base), base + place, str(error))
    damaged.of_record = True
    return damaged


class Window:
    """The bytes of the segment at `base` from byte `start` on."""

    __slots__ = ("_columns", "_record", "base", "data", "start")

    _record: tuple[int, Run]  # the run that was decoded last, with its place
    _columns: tuple[int, Columns]

    def __init__(self, base: int, start: int, data: bytes) -> None:
        self.base = base
        self.start = start
        self.data = data
        self._record = self._columns = NOWHERE, None  # type: ignore[assignment]

    def holds(self, place: int) -> bool:
        """Return whether the whole record at `place` is in the window."""
        at = place - self.start
        if at < 0 or at + HEAD_BYTES_MIN > len(self.data):
            return False
        return at + int.from_bytes(self.data[at + 8 : at + 12], "little") <= len(self.data)

    def record(self, place: int, seed: int) -> Run:
        """Return the run at `place` without verifying its bodies. Raises BadRecord, Misplaced or
        Newer.
        """
        known, run = self._record
        if known != place:
            found = decode(self.data, place - self.start, self.base + place, seed, bodies=False)
            if not isinstance(found, Run):
                raise BadRecord(f"a {found.kind.name} where the index names messages")
            run = found
            self._record = place, run
        return run

    def columns(self, place: int, run: Run) -> Columns:
        """Return the columns of `run`, whose record is at `place`."""
        known, columns = self._columns
        if known != place:
            columns = columns_of(self.data, place - self.start, run)
            self._columns = place, columns
        return columns

    def cut_singles(
        self, places: array[int], counts: array[int], first: int, last: int, seed: int
    ) -> list[bytes]:
        """Return the bodies of single messages at `places[first:last]`, up to the first that is not
        plain.

        Stop before the first run that has several messages, or is compressed, not whole in the
        window, bad, or of a kind that publishes nothing by itself.
        """
        data, start, base, size_max = self.data, self.start, self.base, len(self.data)
        plain = PLAIN
        found: list[bytes] = []
        append = found.append
        try:
            for place, count in zip(places[first:last], counts[first:last], strict=True):
                if count != 1:
                    break
                at = place - start
                # Kind and flags are compared as one number, because this loop runs for each record.
                magic, head_crc, size, head_size, says, _, crc, what, _ = SINGLE.unpack_from(
                    data, at
                )
                head_end = at + head_size
                if (
                    at < 0
                    or at + size > size_max
                    or crc32(data[at + 8 : head_end], seed) != head_crc
                ):
                    break
                body = data[head_end : at + size]
                if (
                    crc32(body) != crc
                    or what not in plain
                    or says != base + place
                    or magic not in MAGICS
                ):
                    break
                append(body)
        except StructError:
            pass  # the window ends inside of the head
        return found

    def pass_singles(
        self,
        places: array[int],
        counts: array[int],
        first: int,
        seed: int,
        words: Sequence[bytes],
    ) -> int:
        """Return how many single messages from `places[first]` on have none of `words` in their
        heads.

        Stop where one may have it, and before the first run that has several messages, whose head
        is not whole in the window or bad, or of a kind that publishes nothing by itself.
        """
        data, start, base, size_max = self.data, self.start, self.base, len(self.data)
        passed = 0
        try:
            for place, count in zip(places[first:], counts[first:], strict=True):
                at = place - start
                magic, head_crc, _, head_size, says, _, _, what, _ = SINGLE.unpack_from(data, at)
                head = data[at + 8 : at + head_size]
                if (
                    count != 1
                    or at < 0
                    or at + head_size > size_max
                    or crc32(head, seed) != head_crc
                    or what & 0xFF not in PUBLISHED
                    or says != base + place
                    or magic not in MAGICS
                ):
                    break
                for word in words:
                    if word in head:
                        return passed
                passed += 1
        except StructError:
            pass  # the window ends inside of the head
        return passed

    def cut(
        self, place: int, count: int, seed: int, kinds: frozenset[Kind]
    ) -> Pieces | EqualPieces:
        """Return the bodies of the run at `place`, as pieces. The whole run is in the window, and
        its kind is in `kinds`. Raises BadRecord, BadColumns and the like.
        """
        data, at = self.data, place - self.start
        if at + FRONT.size > len(data):
            raise BadRecord("fewer bytes than a head has")
        magic, head_crc, size, head_size, says, _, crc, kind, flags, _ = FRONT.unpack_from(data, at)
        head_end, end = at + head_size, at + size
        view = memoryview(data)
        sound = (
            crc32(view[at + 8 : head_end], seed) == head_crc
            and crc32(view[head_end:end]) == crc
            and says == self.base + place
            and magic in MAGICS
            and kind in kinds
            and view[(said := at + COUNT_AT[kind == MESSAGE]) : said + 4] == U32.pack(count)
            and count * 4 <= size
        )
        if not sound or flags & COMPRESSED or not HEAD_BYTES_MIN <= head_size <= size:
            return self._cut_slowly(place, count, seed, kinds)
        if not flags & LENGTHS:
            return EqualPieces(data, head_end, end, count)
        names = at + HEAD_BYTES_MIN + PLACE.size + (0 if kind == MESSAGE else 8)
        columns = names + sum(data[names - 3 : names])
        if columns + 4 * count > head_end:
            raise BadColumns("the lengths of the bodies are cut short")
        return pieces_of(data, head_end, end, count, array_in("I", data, columns, count))

    def _cut_slowly(
        self, place: int, count: int, seed: int, kinds: frozenset[Kind]
    ) -> Pieces | EqualPieces:
        at = place - self.start
        run = decode(self.data, at, self.base + place, seed)
        if not isinstance(run, Run) or run.count != count:
            raise BadRecord("not the run of messages that the index names")
        if run.kind not in kinds:
            raise BadRecord(f"a {Kind(run.kind).name} where the index names messages")
        return columns_of(self.data, at, run).pieces()
