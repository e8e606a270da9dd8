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
CARRIED = KEYS | TAGS | HEADERS  # what messages may have beside their bodies

NONE = 0xFFFF
COUNT_MAX = 1 << 24

U32 = Struct("<I")
assert sys.byteorder == "little", "arrays are written as they lie in memory"
assert array("I").itemsize == 4
assert array("H").itemsize == 2


class BadColumns(Exception):
    """The bytes are not columns; the caller knows in which file they lie."""


class Columns:
    """The columns of one record, decoded as they are asked for."""

    __slots__ = ("_data", "_raw_bytes", "_stored", "count", "flags")

    def __init__(self, count: int, flags: int, data: bytes, stored: bytes, raw_bytes: int) -> None:
        """`data` holds the columns and `stored` the bodies as they lie on disk, checked."""
        self.count = count
        self.flags = flags
        self._data = data
        self._stored = stored
        self._raw_bytes = raw_bytes

    def bodies(self) -> list[bytes]:
        """The bodies, in order."""
        raw = self._raw()
        count = self.count
        if count == 1:
            return [raw]
        if self.flags & LENGTHS:
            lengths = self._lengths()
            if sum(lengths) != len(raw):
                raise BadColumns("the lengths of the bodies do not add up")
            # A BytesIO hands out consecutive slices at a third of the price of slicing.
            return list(map(BytesIO(raw).read, lengths))
        size, rest = divmod(len(raw), count)
        if rest:
            raise BadColumns(f"{len(raw)} bytes of bodies are not {count} of equal length")
        if count <= UNIFORM_COUNT_MAX:
            return list(uniform(size, count).unpack(raw))
        return list(map(BytesIO(raw).read, repeat(size, count)))

    def parts(self) -> tuple[bytes, array[int] | None]:
        """The bodies in one piece, and the size of each; None: they are equal."""
        raw = self._raw()
        lengths = self._lengths() if self.flags & LENGTHS else None
        whole = len(raw) % self.count == 0 if lengths is None else sum(lengths) == len(raw)
        if not whole:
            raise BadColumns("the lengths of the bodies do not add up")
        return raw, lengths

    def _raw(self) -> bytes:
        if not self.flags & COMPRESSED:
            return self._stored
        try:
            return decompress(self._stored, self._raw_bytes)
        except BadBodies as error:
            raise BadColumns(str(error)) from None

    def _lengths(self) -> array[int]:
        return _array("I", self._data, 0, self.count)

    def _after_lengths(self) -> int:
        return 4 * self.count if self.flags & LENGTHS else 0

    def texts(self) -> tuple[list[str | None] | None, list[str | None] | None]:
        """The keys and the tags; None for a column that is not there."""
        at = self._after_lengths()
        keys = tags = None
        if self.flags & KEYS:
            keys, at = _decode_texts(self._data, at, self.count)
        if self.flags & TAGS:
            tags, at = _decode_texts(self._data, at, self.count)
        return keys, tags

    def text_parts(self, flag: int) -> Texts | None:
        """The column of KEYS or TAGS as it lies there; None if there is none."""
        if not self.flags & flag:
            return None
        at = self._after_lengths()
        if flag == TAGS and self.flags & KEYS:
            at = _end_of_texts(self._data, at, self.count)
        return _texts(self._data, at, self.count)[0]

    def header_parts(self) -> tuple[array[int], Texts, Texts] | None:
        """How many headers each message has, all names, all values; None: there are none."""
        if not self.flags & HEADERS:
            return None
        counts, at = self._header_counts()
        total = sum(counts)
        names, at = _texts(self._data, at, total)
        values, at = _texts(self._data, at, total)
        if NONE in names.lengths or NONE in values.lengths:
            raise BadColumns("a header without a name or a value")
        return counts, names, values

    def _header_counts(self) -> tuple[array[int], int]:
        at = self._after_lengths()
        for flag in (KEYS, TAGS):
            if self.flags & flag:
                at = _end_of_texts(self._data, at, self.count)
        return _array("H", self._data, at, self.count), at + 2 * self.count

    def headers(self) -> list[dict[str, str] | None] | None:
        """The headers of each message; None if no message has any."""
        if not self.flags & HEADERS:
            return None
        counts, at = self._header_counts()
        total = sum(counts)
        names, at = _decode_texts(self._data, at, total)
        values, at = _decode_texts(self._data, at, total)
        if None in names or None in values:
            raise BadColumns("a header without a name or a value")
        pairs = list(zip(names, values, strict=True))
        ends = accumulate(counts, initial=0)
        return [dict(pairs[start:end]) or None for start, end in pairwise(ends)]  # type: ignore[arg-type]


UNIFORM_COUNT_MAX = 4096


@lru_cache(maxsize=64)
def uniform(size: int, count: int) -> Struct:
    """Cuts `count` bodies of `size` bytes in one call."""
    return Struct(f"{size}s" * count)


def _array(code: str, data: bytes, at: int, count: int) -> array[int]:
    column = array(code)
    end = at + count * column.itemsize
    if end > len(data):
        raise BadColumns("a column is cut short")
    column.frombytes(data[at:end])
    return column


def _end_of_texts(data: bytes, at: int, count: int) -> int:
    try:
        (size,) = U32.unpack_from(data, at)
    except StructError:
        raise BadColumns("a column of text is cut short") from None
    return at + U32.size + 2 * count + int(size)


class Texts(NamedTuple):
    """A column of text: the length of each in bytes, NONE for none, and all of them as UTF-8."""

    lengths: array[int]
    text: bytes


def _texts(data: bytes, at: int, count: int) -> tuple[Texts, int]:
    """The column of text at `data[at]`, and where it ends."""
    end = _end_of_texts(data, at, count)
    lengths = _array("H", data, at + U32.size, count)
    start = at + U32.size + 2 * count
    if end > len(data) or sum(n for n in lengths if n != NONE) != end - start:
        raise BadColumns("a column of text does not add up")
    return Texts(lengths, data[start:end]), end


def _decode_texts(data: bytes, at: int, count: int) -> tuple[list[str | None], int]:
    (lengths, text), end = _texts(data, at, count)
    read = BytesIO(text).read
    try:
        return [None if n == NONE else read(n).decode() for n in lengths], end
    except UnicodeDecodeError as error:
        raise BadColumns(f"a column of text is not UTF-8: {error}") from None
