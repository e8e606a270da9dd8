"""Messages that were erased, in the place where their record lies.

The record keeps its size, its head_crc and all numbers, so positions, chains and indexes stay what
they are. Changed are:

- each piece of an erased message (its body, key, tag, names and values of headers, and the reason
  of a dead letter) has the same length, and is MARK and zeros;
- the kind has the bit ERASED, so that a reader looks for such pieces;
- bodies_crc, which is that of the new bodies;
- durable_lag, whose 32 bits are chosen so that head_crc is right again. What it then says to have
  been durable lies below the record, and the record was durable when it was changed;
- bodies that were compressed are a raw stream of deflate, with zeros behind it. If no message is
  left, there is no stream.

This module turns bytes into bytes. It knows nothing of files.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Collection, Iterable
from itertools import islice, pairwise

from fmq.basics.message import ERASED_HEADER
from fmq.store.bytes.columns import COMPRESSED, Columns, HeaderPieces, Opened
from fmq.store.bytes.dead_column import ORIGINS, reasons_in
from fmq.store.bytes.extension import column_in
from fmq.store.bytes.kinds import ERASED, Run
from fmq.store.bytes.pieces import NONE, BadColumns, EqualPieces, Pieces, pieces_of
from fmq.store.bytes.record import PREFIX, PREFIX_BYTES, U32

MARK = b"\x18\0\x18\0"  # control characters, so that the mark can be decoded as UTF-8, too
SAYS_ERASED = ERASED_HEADER.encode(), b"1"
LAG_AT = PREFIX_BYTES + 16
CRC_AT = PREFIX_BYTES + 20
KIND_AT = PREFIX_BYTES + 24


class CannotErase(Exception):
    """Raised if a message cannot be erased where it lies."""


def mark(size: int) -> bytes:
    """Return the `size` bytes that stand in the place of an erased piece."""
    return MARK[:size].ljust(size, b"\0")


def is_mark(piece: bytes) -> bool:
    """Return whether a piece of a record with the bit ERASED is erased."""
    return bool(piece) and piece == mark(len(piece))


class ErasedColumns(Columns):
    """The columns of a record with the bit ERASED. An erased message has an empty body, no key and
    tag, and one header, which says so.
    """

    __slots__ = ()

    def pieces(self) -> Pieces | EqualPieces:
        if self._bodies is None:
            stored = self.stored_pieces().cut(0, self.count)
            found = [b"" if is_mark(each) else each for each in stored]
            joined = b"".join(found)
            lengths = array("I", map(len, found))
            self._bodies = pieces_of(joined, 0, len(joined), self.count, lengths)
        return self._bodies

    def stored_pieces(self) -> Pieces | EqualPieces:
        """Return the bodies as they are stored, the erased ones included."""
        raw = self._raw()
        return pieces_of(raw, 0, len(raw), self.count, self._lengths())

    def stored_texts(self) -> Opened:
        """Return readers of the text columns as they are stored."""
        return super()._open_all()

    def _raw(self) -> bytes:
        if not self.flags & COMPRESSED:
            return self._stored
        if not self._stored.strip(b"\0"):
            lengths = self._lengths() or [self._raw_bytes // self.count] * self.count
            return b"".join(map(mark, lengths))
        try:
            stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
            raw = stream.decompress(self._stored, self._raw_bytes + 1)
        except zlib.error as error:
            raise BadColumns(f"the bodies do not decompress: {error}") from None
        if len(raw) != self._raw_bytes:
            raise BadColumns(f"{len(raw)} bytes decompressed where {self._raw_bytes} were named")
        return raw

    def carries(self) -> bool:
        return True

    def _open_all(self) -> Opened:
        keys, tags, headers = super()._open_all()
        gone = [is_mark(each) for each in self._bodies_if_there()]
        for texts in (keys, tags):
            if texts is not None:
                gone = [a or b for a, b in zip(gone, _marked(texts), strict=True)]
        counts, names, values = array("H"), [], []
        known = self._pairs(headers)
        for number, is_gone in enumerate(gone):
            pairs = known[number] if known else []
            left = [pair for pair in pairs if not (is_mark(pair[0]) or is_mark(pair[1]))]
            if is_gone or len(left) != len(pairs):
                left.append(SAYS_ERASED)
            counts.append(len(left))
            names += [name for name, _ in left]
            values += [value for _, value in left]
        shown = HeaderPieces(counts, _joined(names), _joined(values))
        return Opened(keys and _left(keys), tags and _left(tags), shown)

    def _bodies_if_there(self) -> list[bytes]:
        """Return the stored bodies; empty ones if only the head of the record was read."""
        if not self._stored:
            return [b""] * self.count
        return self.stored_pieces().cut(0, self.count)

    def _pairs(self, headers: HeaderPieces | None) -> list[list[tuple[bytes, bytes]]]:
        """Return the headers of each message as they are stored."""
        if headers is None:
            return []
        counts, names, values = headers.all()
        pairs = zip(names.cut(0, names.count), values.cut(0, values.count), strict=True)
        return [[*islice(pairs, count)] for count in counts]


def _marked(pieces: Pieces) -> list[bool]:
    return [is_mark((each or "").encode()) for each in pieces.texts(0, pieces.count)]


def _left(pieces: Pieces) -> Pieces:
    """Return texts without those that are erased."""
    texts = pieces.texts(0, pieces.count)
    found = [None if each is None or is_mark(each.encode()) else each.encode() for each in texts]
    return _joined(found)


def _joined(found: Iterable[bytes | None]) -> Pieces:
    found = list(found)
    lengths = array("H", (NONE if each is None else len(each) for each in found))
    return Pieces(b"".join(each for each in found if each), 0, lengths)


def erase(data: bytes, run: Run, columns: Columns, numbers: Collection[int], seed: int) -> bytes:
    """Return the record `data`, which is `run` with `columns`, without the messages `numbers`.

    Raises CannotErase if the others would not fit, or would look erased.
    """
    head_size = int.from_bytes(data[12:16], "little")
    head, extension_at = bytearray(data[:head_size]), head_size - len(run.extension)
    if isinstance(columns, ErasedColumns):
        opened, stored = columns.stored_texts(), columns.stored_pieces()
    else:
        opened, stored = columns.opened(), columns.pieces()
    texts_at = extension_at - columns.data_bytes
    texts = [each for each in (opened.keys, opened.tags) if each is not None]
    for number in range(run.count):
        for piece in texts:
            _over(head, texts_at, piece, number, number in numbers)
    if opened.headers is not None:
        counts, names, values = opened.headers.all()
        ends = [0]
        for count in counts:
            ends.append(ends[-1] + count)
        for number, (first, last) in enumerate(pairwise(ends)):
            for at in range(first, last):
                _over(head, texts_at, names, at, number in numbers)
                _over(head, texts_at, values, at, number in numbers)
    _erase_reasons(head, extension_at, run, numbers)
    bodies = _without(stored.cut(0, run.count), numbers, run, len(data) - head_size, columns)
    head[CRC_AT : CRC_AT + 4] = U32.pack(zlib.crc32(bodies))
    head[KIND_AT] |= ERASED
    _keep_crc(head, seed)
    return bytes(head) + bodies


def _over(head: bytearray, start: int, pieces: Pieces, number: int, is_gone: bool) -> None:
    """Write the mark over one text that is erased. Raises CannotErase if a text that stays looks
    like the mark.
    """
    first, end = pieces.place(number)
    if is_gone:
        head[start + first : start + end] = mark(end - first)
    elif is_mark(bytes(head[start + first : start + end])) and not head[KIND_AT] & ERASED:
        raise CannotErase("another text of the record looks like one that is erased")


def _erase_reasons(head: bytearray, start: int, run: Run, numbers: Collection[int]) -> None:
    """Write the mark over the reasons for which dead letters failed."""
    found = column_in(run.extension, ORIGINS) if run.extension else None
    if found is None:
        return
    first, end = found
    column = run.extension[first:end]
    for number, (low, high) in enumerate(reasons_in(column, run.count)):
        if number in numbers:
            head[start + first + low : start + first + high] = mark(high - low)


def _without(
    bodies: list[bytes], numbers: Collection[int], run: Run, size: int, columns: Columns
) -> bytes:
    """Return the stored bodies, which have `size` bytes, without those of `numbers`."""
    is_new = not isinstance(columns, ErasedColumns)
    if is_new and any(is_mark(each) for i, each in enumerate(bodies) if i not in numbers):
        raise CannotErase("another body of the record looks like one that is erased")
    left = [mark(len(each)) if i in numbers else each for i, each in enumerate(bodies)]
    raw = b"".join(left)
    if not run.flags & COMPRESSED:
        return raw
    if all(each == mark(len(each)) for each in left):
        return bytes(size)
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    packed = stream.compress(raw) + stream.flush()
    if len(packed) > size:
        raise CannotErase("what stays of its compressed record would not fit in its place")
    return packed.ljust(size, b"\0")


def _keep_crc(head: bytearray, seed: int) -> None:
    """Choose durable_lag so that the head has the checksum that it says.

    A CRC is linear: each bit of the field turns the same bits of the checksum, whatever the others
    are. So the bits to turn are the solution of 32 equations.
    """
    _, wanted = PREFIX.unpack_from(head)
    said = memoryview(head)[PREFIX_BYTES:]

    def crc_with(lag: int) -> int:
        head[LAG_AT : LAG_AT + 4] = U32.pack(lag)
        return zlib.crc32(said, seed)

    at_zero = crc_with(0)
    rest, lag = wanted ^ at_zero, 0
    basis: dict[int, tuple[int, int]] = {}  # the highest bit of a row -> the row, its bits of lag
    for number in range(32):
        row, bits = crc_with(1 << number) ^ at_zero, 1 << number
        while row and row.bit_length() in basis:
            other, of_other = basis[row.bit_length()]
            row, bits = row ^ other, bits ^ of_other
        assert row, "the rows of a CRC are independent"
        basis[row.bit_length()] = row, bits
    while rest:
        row, bits = basis[rest.bit_length()]
        rest, lag = rest ^ row, lag ^ bits
    assert crc_with(lag) == wanted
