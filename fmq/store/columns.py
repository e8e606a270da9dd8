"""The messages of one record as columns: how they lie, and how they are read.

    flag     column, in this order, each only where its flag is set
    LENGTHS  n x u32: the size of each body; absent when all are equal
    KEYS     u32: bytes of the text, n x u16: the length of each (0xFFFF: none), the text
    TAGS     the same
    HEADERS  n x u16: headers of each message, then one column as above of all names and one
             of all values, each with as many entries as there are headers

then, in one piece and outside the columns, the bodies. So a reader finds any column without
touching the others, and Arrow can wrap each as it lies there.

content.py makes them. This module knows nothing of records, positions or files.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, pairwise, repeat
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from fmq.store.compression import BadBodies, decompress

COMPRESSED = 4
LENGTHS = 8
KEYS = 16
TAGS = 32
HEADERS = 64
CARRIED = KEYS | TAGS | HEADERS  # the flags of what messages have besides bodies

NONE = 0xFFFF
COUNT_MAX = 1 << 24

U32 = Struct("<I")
assert sys.byteorder == "little", "arrays are written as they lie in memory"
assert array("I").itemsize == 4
assert array("H").itemsize == 2


class BadColumns(Exception):
    """The bytes are not columns; the caller knows in which file they lie."""


class Part(NamedTuple):
    """Byte strings in one piece, with their lengths: NONE for an absent one; None if all are
    equal.
    """

    lengths: array[int] | None
    data: bytes


class Sums:
    """Sums of the first items of an array. Asked for in ascending order, it adds each item once."""

    __slots__ = ("_items", "_known")

    def __init__(self, items: array[int]) -> None:
        self._items = items
        self._known = 0, 0

    def before(self, number: int) -> int:
        """Return the sum of the first `number` items. A NONE counts as 0."""
        known, total = self._known
        if number < known:
            known = total = 0
        total += _total(self._items[known:number])
        self._known = number, total
        return total


class Pieces:
    """Byte strings that lie one after another. They are cut out when they are asked for."""

    __slots__ = ("_data", "_lengths", "_start", "_sums", "end")

    def __init__(self, data: bytes, start: int, lengths: array[int]) -> None:
        """The first piece begins at `data[start]`. The length NONE stands for an absent piece."""
        self._data = data
        self._lengths = lengths
        self._start = start
        self._sums = Sums(lengths)
        self.end = start + _total(lengths)

    def cut(self, first: int, last: int) -> list[bytes]:
        """Return the pieces from number `first` up to, not including, `last`. None of them is
        absent.
        """
        return list(map(self._from(first).read, self._lengths[first:last]))

    def texts(self, first: int, last: int) -> list[str | None]:
        """Return the pieces as texts, and None for absent ones; raise BadColumns."""
        read = self._from(first).read
        lengths = self._lengths[first:last]
        try:
            return [None if size == NONE else read(size).decode() for size in lengths]
        except UnicodeDecodeError as error:
            raise BadColumns(f"a column of text is not UTF-8: {error}") from None

    def has_any(self, words: Iterable[bytes]) -> bool:
        """Return whether one of `words` occurs anywhere in the pieces: if not, no piece is one."""
        find, start, end = self._data.find, self._start, self.end
        return any(find(word, start, end) >= 0 for word in words)

    def lacks_one(self) -> bool:
        """Return whether one of the pieces is absent."""
        return NONE in self._lengths

    def part(self, first: int, last: int) -> Part:
        """Return the pieces from `first` up to `last` in one piece, with their lengths."""
        before = self._sums.before
        low, high = self._start + before(first), self._start + before(last)
        return Part(self._lengths[first:last], self._data[low:high])

    def _from(self, first: int) -> BytesIO:
        """Return a file over the same bytes. It cuts three times faster than slices do."""
        file = BytesIO(self._data)
        file.seek(self._start + self._sums.before(first))
        return file


class EqualPieces:
    """Byte strings of one size that lie one after another, cut out when they are asked for."""

    __slots__ = ("_count", "_data", "_size", "_start")

    def __init__(self, data: bytes, start: int, end: int, count: int) -> None:
        """Raise BadColumns unless `data[start:end]` holds `count` pieces."""
        self._size, rest = divmod(end - start, count)
        if rest:
            raise BadColumns(f"{end - start} bytes of bodies are not {count} of equal length")
        self._count = count
        self._data = data
        self._start = start

    def part(self, first: int, last: int) -> Part:
        """Return the pieces from number `first` up to, not including, `last`, in one."""
        start, size = self._start, self._size
        return Part(None, self._data[start + first * size : start + last * size])

    def cut(self, first: int, last: int) -> list[bytes]:
        """Return the pieces from number `first` up to, not including, `last`."""
        size, count = self._size, min(last, self._count) - first
        start = self._start + first * size
        if count <= UNIFORM_COUNT_MAX:
            return list(uniform(size, count).unpack_from(self._data, start))
        file = BytesIO(self._data)
        file.seek(start)
        return list(map(file.read, repeat(size, count)))


def pieces_of(
    data: bytes, start: int, end: int, count: int, lengths: array[int] | None
) -> Pieces | EqualPieces:
    """Return the `count` bodies that `data[start:end]` holds, of equal size if `lengths` is None.

    Raises BadColumns if they do not fill it.
    """
    if lengths is None:
        return EqualPieces(data, start, end, count)
    pieces = Pieces(data, start, lengths)
    if pieces.end != end:
        raise BadColumns("the lengths of the bodies do not add up")
    return pieces


class HeaderPieces:
    """The headers of the messages of one record, decoded when they are asked for."""

    __slots__ = ("_counts", "_names", "_sums", "_values")

    def __init__(self, counts: array[int], names: Pieces, values: Pieces) -> None:
        """Message number n has `counts[n]` of the names and values. Raises BadColumns."""
        if names.lacks_one() or values.lacks_one():
            raise BadColumns("a header without a name or a value")
        self._counts = counts
        self._names = names
        self._values = values
        self._sums = Sums(counts)

    def part(self, first: int, last: int) -> tuple[array[int], Part, Part]:
        """Return how many headers each message from `first` up to `last` has, and all their names
        and values.
        """
        low, high = self._sums.before(first), self._sums.before(last)
        names, values = self._names.part(low, high), self._values.part(low, high)
        return self._counts[first:last], names, values

    def cut(self, first: int, last: int) -> list[dict[str, str] | None]:
        """Return the headers of the messages from number `first` up to, not including, `last`."""
        low, high = self._sums.before(first), self._sums.before(last)
        names, values = self._names.texts(low, high), self._values.texts(low, high)
        pairs = list(zip(names, values, strict=True))
        ends = accumulate(self._counts[first:last], initial=0)
        return [dict(pairs[start:end]) or None for start, end in pairwise(ends)]  # type: ignore[arg-type]


class Opened(NamedTuple):
    """The readers of a record's text columns. One that the record lacks is None."""

    keys: Pieces | None
    tags: Pieces | None
    headers: HeaderPieces | None


class Columns:
    """The columns of one record. Each is decoded only as far as it is asked for."""

    __slots__ = ("_bodies", "_data", "_opened", "_raw_bytes", "_stored", "count", "flags")

    def __init__(self, count: int, flags: int, data: bytes, stored: bytes, raw_bytes: int) -> None:
        """`data` holds the columns. `stored` are the bodies as they are on disk, verified."""
        self.count = count
        self.flags = flags
        self._data = data
        self._stored = stored
        self._raw_bytes = raw_bytes
        self._opened: Opened | None = None
        self._bodies: Pieces | EqualPieces | None = None

    def pieces(self) -> Pieces | EqualPieces:
        """Return the bodies as pieces; raise BadColumns."""
        if self._bodies is None:
            raw, lengths = self._raw(), self._lengths()
            self._bodies = pieces_of(raw, 0, len(raw), self.count, lengths)
        return self._bodies

    def bodies(self, first: int = 0, last: int = COUNT_MAX) -> list[bytes]:
        """Return the bodies from number `first` up to, not including, `last`; raise BadColumns."""
        return self.pieces().cut(first, last)

    def check(self) -> None:
        """Raise BadColumns unless every message can be read."""
        self.pieces()
        for first in range(0, self.count, CHECKED_AT_ONCE):
            self.texts(first, first + CHECKED_AT_ONCE)
            self.headers(first, first + CHECKED_AT_ONCE)

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
        """Return keys and tags from number `first` up to `last`, None for a column that the record
        lacks; raise BadColumns.
        """
        keys, tags, _ = self.opened()
        return (
            None if keys is None else keys.texts(first, last),
            None if tags is None else tags.texts(first, last),
        )

    def headers(self, first: int = 0, last: int = COUNT_MAX) -> list[dict[str, str] | None] | None:
        """Return the headers of the same messages; None if the record has none."""
        headers = self.opened().headers
        return None if headers is None else headers.cut(first, min(last, self.count))

    def opened(self) -> Opened:
        """Return readers of the text columns; raise BadColumns."""
        if self._opened is None:
            self._opened = self._open_all()
        return self._opened

    def _open_all(self) -> Opened:
        data, count, flags = self._data, self.count, self.flags
        at = 4 * count if flags & LENGTHS else 0
        keys = tags = headers = None
        if flags & KEYS:
            keys = _pieces(data, at, count)
            at = keys.end
        if flags & TAGS:
            tags = _pieces(data, at, count)
            at = tags.end
        if flags & HEADERS:
            counts = array_in("H", data, at, count)
            total = sum(counts)
            names = _pieces(data, at + 2 * count, total)
            headers = HeaderPieces(counts, names, _pieces(data, names.end, total))
        return Opened(keys, tags, headers)


CHECKED_AT_ONCE = 4096


UNIFORM_COUNT_MAX = 4096


@lru_cache(maxsize=64)
def uniform(size: int, count: int) -> Struct:
    """Return a function that cuts `count` bodies of `size` bytes in one call."""
    return Struct(f"{size}s" * count)


def array_in(code: str, data: bytes, at: int, count: int) -> array[int]:
    """Return the column of `count` numbers at `data[at]`; raise BadColumns."""
    column = array(code)
    end = at + count * column.itemsize
    if end > len(data):
        raise BadColumns("a column is cut short")
    column.frombytes(memoryview(data)[at:end])
    return column


def _total(lengths: array[int]) -> int:
    total = sum(lengths)
    return total if lengths.typecode == "I" else total - NONE * lengths.count(NONE)


def _end_of_texts(data: bytes, at: int, count: int) -> int:
    try:
        (size,) = U32.unpack_from(data, at)
    except StructError:
        raise BadColumns("a column of text is cut short") from None
    return at + U32.size + 2 * count + int(size)


def _pieces(data: bytes, at: int, count: int) -> Pieces:
    """Return the pieces of the text column at `data[at]`; raise BadColumns."""
    end = _end_of_texts(data, at, count)
    lengths = array_in("H", data, at + U32.size, count)
    pieces = Pieces(data, at + U32.size + 2 * count, lengths)
    if end > len(data) or pieces.end != end:
        raise BadColumns("a column of text does not add up")
    return pieces
