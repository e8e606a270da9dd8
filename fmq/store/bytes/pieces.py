"""Pieces: the byte strings of one column, one after another, cut out only when they are used.

This module knows the layout of a column of texts and of one of numbers. columns.py and extras.py
know what they mean.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO
from itertools import repeat
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

NONE = 0xFFFF
U32 = Struct("<I")
assert sys.byteorder == "little", "arrays are written as they lie in memory"
assert array("I").itemsize == 4
assert array("H").itemsize == 2
assert array("q").itemsize == 8


class BadColumns(Exception):
    """Raised for bytes that are not columns. The caller adds the file."""


class Part(NamedTuple):
    """Byte strings, joined, and their lengths. The length NONE stands for an absent string. Lengths
    None: all are equally long.
    """

    lengths: array[int] | None
    data: bytes


class Sums:
    """Running sums of an array. Asked in ascending order, it adds each item once."""

    __slots__ = ("_items", "_known")

    def __init__(self, items: array[int]) -> None:
        self._items = items
        self._known = 0, 0

    def before(self, number: int) -> int:
        """Return the sum of the first `number` items. NONE counts as 0."""
        known, total = self._known
        if number < known:
            known = total = 0
        total += _total(self._items[known:number])
        self._known = number, total
        return total


class Pieces:
    """Byte strings that lie one after another, cut out only when they are used."""

    __slots__ = ("_data", "_lengths", "_start", "_sums", "end")

    def __init__(self, data: bytes, start: int, lengths: array[int]) -> None:
        """The first piece begins at `data[start]`. The length NONE stands for an absent piece."""
        self._data = data
        self._lengths = lengths
        self._start = start
        self._sums = Sums(lengths)
        self.end = start + _total(lengths)

    @property
    def count(self) -> int:
        return len(self._lengths)

    def place(self, number: int) -> tuple[int, int]:
        """Return where the piece `number` begins and ends in its data. An absent one is empty."""
        size = self._lengths[number]
        start = self._start + self._sums.before(number)
        return start, start + (0 if size == NONE else size)

    def cut(self, first: int, last: int) -> list[bytes]:
        """Return the pieces from number `first` up to, not including, `last`. None of them is
        absent.
        """
        return list(map(self._from(first).read, self._lengths[first:last]))

    def texts(self, first: int, last: int) -> list[str | None]:
        """Return the pieces as texts, and None for absent ones. Raises BadColumns."""
        read = self._from(first).read
        lengths = self._lengths[first:last]
        try:
            return [None if size == NONE else read(size).decode() for size in lengths]
        except UnicodeDecodeError as error:
            raise BadColumns(f"a column of text is not UTF-8: {error}") from None

    def has_any(self, words: Iterable[bytes]) -> bool:
        """Return whether one of `words` occurs anywhere in the joined pieces. If not, no piece
        equals one.
        """
        find, start, end = self._data.find, self._start, self.end
        return any(find(word, start, end) >= 0 for word in words)

    def lacks_one(self) -> bool:
        """Return whether any piece is absent."""
        return NONE in self._lengths

    def part(self, first: int, last: int) -> Part:
        """Return the pieces from `first` up to `last`, joined, with their lengths."""
        before = self._sums.before
        low, high = self._start + before(first), self._start + before(last)
        return Part(self._lengths[first:last], self._data[low:high])

    def _from(self, first: int) -> BytesIO:
        """Return a file over these bytes. Reading from it is three times faster than slicing."""
        file = BytesIO(self._data)
        file.seek(self._start + self._sums.before(first))
        return file


class EqualPieces:
    """Byte strings of equal size that lie one after another, cut out only when they are used."""

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
        """Return the pieces from number `first` up to, not including, `last`, joined."""
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
    """Return the `count` bodies in `data[start:end]`. They have equal sizes if `lengths` is None.

    Raises BadColumns if they do not fill it.
    """
    if lengths is None:
        return EqualPieces(data, start, end, count)
    pieces = Pieces(data, start, lengths)
    if pieces.end != end:
        raise BadColumns("the lengths of the bodies do not add up")
    return pieces


UNIFORM_COUNT_MAX = 4096


@lru_cache(maxsize=64)
def uniform(size: int, count: int) -> Struct:
    """Return a function that cuts `count` bodies of `size` bytes in one call."""
    return Struct(f"{size}s" * count)


def array_in(code: str, data: bytes, at: int, count: int) -> array[int]:
    """Return the column of `count` numbers at `data[at]`. Raises BadColumns."""
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


def text_pieces(data: bytes, at: int, count: int) -> Pieces:
    """Return the pieces of the text column at `data[at]`. Raises BadColumns."""
    end = _end_of_texts(data, at, count)
    lengths = array_in("H", data, at + U32.size, count)
    pieces = Pieces(data, at + U32.size + 2 * count, lengths)
    if end > len(data) or pieces.end != end:
        raise BadColumns("a column of text does not add up")
    return pieces
