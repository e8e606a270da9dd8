"""The messages of one record as columns: their layout, and how they are read.

    flag     column, in this order, each only where its flag is set
    LENGTHS  n x u32: the size of each body; absent when all are equal
    KEYS     u32: bytes of the text, n x u16: the length of each (0xFFFF: none), the text
    TAGS     the same
    HEADERS  n x u16: headers of each message, then one column as above of all names and one
             of all values, each with as many entries as there are headers

then, in one piece and outside the columns, the bodies. So a reader finds any column without
touching the others, and Arrow can wrap each as it lies there.

content.py makes them. extras.py knows the columns that lie in the extension of the record. This
module knows nothing of positions or files.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise
from typing import NamedTuple

from fmq.store.bytes.compression import BadBodies, decompress
from fmq.store.bytes.extras import NO_EXTRAS, Extras, has_extras
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.pieces import (
    BadColumns,
    EqualPieces,
    Part,
    Pieces,
    Sums,
    array_in,
    pieces_of,
    text_pieces,
)

COMPRESSED = 4
LENGTHS = 8
KEYS = 16
TAGS = 32
HEADERS = 64
CARRIED = KEYS | TAGS | HEADERS  # the flags of the columns for keys, tags and headers

COUNT_MAX = 1 << 24


class HeaderPieces:
    """The headers of the messages of one record. They are decoded at the first use."""

    __slots__ = ("_counts", "_names", "_sums", "_values")

    def __init__(self, counts: array[int], names: Pieces, values: Pieces) -> None:
        """Message number n has the next `counts[n]` of the names and values. Raises BadColumns."""
        if names.lacks_one() or values.lacks_one():
            raise BadColumns("a header without a name or a value")
        self._counts = counts
        self._names = names
        self._values = values
        self._sums = Sums(counts)

    def part(self, first: int, last: int) -> tuple[array[int], Part, Part]:
        """Return the number of headers of each message from `first` up to `last`, and the names and
        values of all.
        """
        low, high = self._sums.before(first), self._sums.before(last)
        names, values = self._names.part(low, high), self._values.part(low, high)
        return self._counts[first:last], names, values

    def all(self) -> tuple[array[int], Pieces, Pieces]:
        """Return the number of headers of each message, and the names and values of all."""
        return self._counts, self._names, self._values

    def cut(self, first: int, last: int) -> list[dict[str, str] | None]:
        """Return the headers of the messages from number `first` up to, not including, `last`."""
        low, high = self._sums.before(first), self._sums.before(last)
        names, values = self._names.texts(low, high), self._values.texts(low, high)
        pairs = list(zip(names, values, strict=True))
        ends = accumulate(self._counts[first:last], initial=0)
        return [dict(pairs[start:end]) or None for start, end in pairwise(ends)]  # type: ignore[arg-type]


class Opened(NamedTuple):
    """The readers of a record's text columns. None stands for a column that the record lacks."""

    keys: Pieces | None
    tags: Pieces | None
    headers: HeaderPieces | None


class Columns:
    """The columns of one record. Each is decoded at its first use, and only in part."""

    __slots__ = (
        *("_bodies", "_data", "_extras", "_opened", "_raw_bytes", "_stored"),
        *("count", "extension", "flags"),
    )

    def __init__(
        self,
        count: int,
        flags: int,
        data: bytes,
        stored: bytes,
        raw_bytes: int,
        extension: bytes = b"",
    ) -> None:
        """`data` holds the columns. `stored` holds the bodies as they are on disk, verified."""
        self.count = count
        self.flags = flags
        self._data = data
        self._stored = stored
        self._raw_bytes = raw_bytes
        self.extension = extension
        self._opened: Opened | None = None
        self._extras: Extras | None = None
        self._bodies: Pieces | EqualPieces | None = None

    @classmethod
    def of(cls, run: Run) -> Columns:
        """Return the columns of a run whose bodies are in memory."""
        assert run.bodies is not None
        stored = run.columns, run.bodies, run.raw_bytes, run.extension
        return cls(run.count, run.flags, *stored)

    @property
    def data_bytes(self) -> int:
        """How many bytes the columns have."""
        return len(self._data)

    def pieces(self) -> Pieces | EqualPieces:
        """Return the bodies as pieces. Raises BadColumns."""
        if self._bodies is None:
            raw, lengths = self._raw(), self._lengths()
            self._bodies = pieces_of(raw, 0, len(raw), self.count, lengths)
        return self._bodies

    def bodies(self, first: int = 0, last: int = COUNT_MAX) -> list[bytes]:
        """Return the bodies from number `first` up to, not including, `last`. Raises BadColumns."""
        return self.pieces().cut(first, last)

    def check(self) -> None:
        """Raise BadColumns unless every message can be read."""
        self.pieces()
        for first in range(0, self.count, CHECKED_AT_ONCE):
            self.texts(first, first + CHECKED_AT_ONCE)
            self.headers(first, first + CHECKED_AT_ONCE)
        self.extras().check()

    def carries(self) -> bool:
        """Return whether the messages have anything besides their bodies."""
        return bool(self.flags & CARRIED) or has_extras(self.extension)

    def extras(self) -> Extras:
        """Return ids, priorities and expiries of the messages. Raises BadColumns."""
        if self._extras is None:
            known = has_extras(self.extension)
            self._extras = Extras(self.extension, self.count) if known else NO_EXTRAS
        return self._extras

    def _raw(self) -> bytes:
        if not self.flags & COMPRESSED:
            return self._stored
        try:
            return decompress(self._stored, self._raw_bytes)
        except BadBodies as error:
            raise BadColumns(str(error)) from None

    def _lengths(self) -> array[int] | None:
        return array_in("I", self._data, 0, self.count) if self.flags & LENGTHS else None

    def texts(
        self, first: int = 0, last: int = COUNT_MAX
    ) -> tuple[list[str | None] | None, list[str | None] | None]:
        """Return the keys and the tags from number `first` up to `last`; None for a column that the
        record lacks. Raises BadColumns.
        """
        keys, tags, _ = self.opened()
        return (
            None if keys is None else keys.texts(first, last),
            None if tags is None else tags.texts(first, last),
        )

    def headers(self, first: int = 0, last: int = COUNT_MAX) -> list[dict[str, str] | None] | None:
        """Return the headers from number `first` up to `last`; None if the record has none."""
        headers = self.opened().headers
        return None if headers is None else headers.cut(first, min(last, self.count))

    def opened(self) -> Opened:
        """Return readers of the text columns. Raises BadColumns."""
        if self._opened is None:
            self._opened = self._open_all()
        return self._opened

    def _open_all(self) -> Opened:
        data, count, flags = self._data, self.count, self.flags
        at = 4 * count if flags & LENGTHS else 0
        keys = tags = headers = None
        if flags & KEYS:
            keys = text_pieces(data, at, count)
            at = keys.end
        if flags & TAGS:
            tags = text_pieces(data, at, count)
            at = tags.end
        if flags & HEADERS:
            counts = array_in("H", data, at, count)
            total = sum(counts)
            names = text_pieces(data, at + 2 * count, total)
            headers = HeaderPieces(counts, names, text_pieces(data, names.end, total))
        return Opened(keys, tags, headers)


CHECKED_AT_ONCE = 4096
