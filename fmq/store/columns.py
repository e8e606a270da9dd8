"""The messages of one record as columns, and back.

    flag     column, in this order, each only where its flag is set
    LENGTHS  n x u32: the size of each body; absent when all are equal
    KEYS     u32: bytes of the text, n x u16: the length of each (0xFFFF: none), the text
    TAGS     the same
    HEADERS  n x u16: headers of each message, then one column as above of all names and one
             of all values, each with as many entries as there are headers

then, in one piece and outside the columns, the bodies. So a reader finds any column without
touching the others, and Arrow can wrap each as it lies there.

This module knows nothing of records, positions or files.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, pairwise, repeat
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

import lz4.block

from fmq.errors import BadName, TooLarge
from fmq.message import Message

COMPRESSED = 4
LENGTHS = 8
KEYS = 16
TAGS = 32
HEADERS = 64
CARRIED = KEYS | TAGS | HEADERS  # what messages may have beside their bodies

NONE = 0xFFFF
TEXT_BYTES_MAX = NONE - 1
HEADERS_MAX = 1000
COUNT_MAX = 1 << 24
RAW_BYTES_MAX = 1 << 30
LZ4_RATIO_MAX = 255  # of a block: no byte of it stands for more

PLAIN = {bytes}
U32 = Struct("<I")
assert sys.byteorder == "little", "arrays are written as they lie in memory"
assert array("I").itemsize == 4
assert array("H").itemsize == 2


class BadColumns(Exception):
    """The bytes are not columns; the caller knows in which file they lie."""


class Content:
    """The messages of one record, encoded, before anyone knows where they will stand."""

    __slots__ = ("bodies", "bodies_crc", "columns", "count", "flags", "raw_bytes")

    def __init__(
        self, count: int, flags: int, columns: bytes, bodies: bytes, bodies_crc: int, raw_bytes: int
    ) -> None:
        self.count = count
        self.flags = flags
        self.columns = columns
        self.bodies = bodies
        self.bodies_crc = bodies_crc
        self.raw_bytes = raw_bytes


def encode_one(body: bytes | bytearray | memoryview, compress_bytes_min: int | None) -> Content:
    """One body alone, without key, tag and headers: the shortest way there is."""
    if type(body) is not bytes:
        body = as_bytes(body)
    size = len(body)
    if compress_bytes_min is not None and size >= compress_bytes_min:
        return _content(1, 0, b"", body, compress_bytes_min)
    return Content(1, 0, b"", body, zlib.crc32(body), size)


def encode_bodies(bodies: Sequence[bytes], compress_bytes_min: int | None) -> Content:
    """Bodies without keys, tags and headers."""
    sizes = list(map(len, bodies))
    joined = b"".join(bodies)
    count, size = len(sizes), sizes[0]
    if count > COUNT_MAX:
        raise TooLarge("messages in one call", count, COUNT_MAX, "fixed by the format")
    if size * count == len(joined) and sizes.count(size) == count:
        flags, columns = 0, b""
    elif sum(sizes) == len(joined):
        flags, columns = LENGTHS, array("I", sizes).tobytes()
    else:  # a view of wider items: its len() is not its bytes
        return encode_bodies([as_bytes(body) for body in bodies], compress_bytes_min)
    if compress_bytes_min is None:
        return Content(count, flags, columns, joined, zlib.crc32(joined), len(joined))
    return _content(count, flags, columns, joined, compress_bytes_min)


def encode_messages(messages: Sequence[Message], compress_bytes_min: int | None) -> Content:
    """Messages with whatever they carry."""
    bodies = encode_bodies([as_bytes(message.body) for message in messages], None)
    flags, parts = bodies.flags, [bodies.columns]
    keys = [message.key for message in messages]
    if keys.count(None) != len(keys):
        flags |= KEYS
        parts.append(_encode_texts("key", keys))
    tags = [message.tag for message in messages]
    if tags.count(None) != len(tags):
        flags |= TAGS
        parts.append(_encode_texts("tag", tags))
    headers = [message.headers for message in messages]
    if any(headers):
        flags |= HEADERS
        parts.append(_encode_headers(headers))
    return _content(len(messages), flags, b"".join(parts), bodies.bodies, compress_bytes_min)


def encode_items(items: Sequence[Message | bytes], compress_bytes_min: int | None) -> Content:
    """Bodies and Messages, mixed as they were sent."""
    if len(items) == 1 and type(items[0]) is bytes:
        return encode_one(items[0], compress_bytes_min)
    if set(map(type, items)) != PLAIN:
        messages = [item if isinstance(item, Message) else Message(item) for item in items]
        return encode_messages(messages, compress_bytes_min)
    return encode_bodies(items, compress_bytes_min)  # type: ignore[arg-type]


def as_bytes(body: object) -> bytes:
    """`body` as bytes; TypeError for anything that is not bytes-like."""
    if type(body) is bytes:
        return body
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    try:
        return bytes(memoryview(body))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"a body is bytes-like, not {type(body).__name__}; encode it first, for instance "
            "with str.encode() or json.dumps(...).encode()"
        ) from None


def _content(
    count: int, flags: int, columns: bytes, bodies: bytes, compress_bytes_min: int | None
) -> Content:
    raw_bytes = len(bodies)
    if compress_bytes_min is not None and compress_bytes_min <= raw_bytes <= RAW_BYTES_MAX:
        packed: bytes = lz4.block.compress(bodies, store_size=False)
        if len(packed) < raw_bytes:
            bodies, flags = packed, flags | COMPRESSED
    return Content(count, flags, columns, bodies, zlib.crc32(bodies), raw_bytes)


def _encode_texts(what: str, texts: Sequence[str | None]) -> bytes:
    lengths = array("H")
    encoded = []
    for text in texts:
        if text is None:
            lengths.append(NONE)
            continue
        data = text_bytes(what, text)
        lengths.append(len(data))
        encoded.append(data)
    joined = b"".join(encoded)
    return U32.pack(len(joined)) + lengths.tobytes() + joined


def text_bytes(what: str, text: str) -> bytes:
    """A key, tag or header as UTF-8; TypeError, BadName or TooLarge."""
    if not isinstance(text, str):
        raise TypeError(f"a {what} is a str, not {type(text).__name__}")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"a {what} must be text that UTF-8 can write: {error}") from None
    if len(data) > TEXT_BYTES_MAX:
        raise TooLarge(f"a {what} in bytes", len(data), TEXT_BYTES_MAX, "fixed by the format")
    return data


def checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """`headers`, if they are a mapping; TypeError."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers are a mapping of str to str, not {type(headers).__name__}")
    return headers


def _encode_headers(headers: Sequence[Mapping[str, str] | None]) -> bytes:
    headers = [header and checked_headers(header) for header in headers]
    counts = [len(header or ()) for header in headers]
    if max(counts) > HEADERS_MAX:
        raise TooLarge("the headers of a message", max(counts), HEADERS_MAX, "fixed by the format")
    names = [name for header in headers if header for name in header]
    values = [value for header in headers if header for value in header.values()]
    if None in names or None in values:
        raise TypeError("a header has a name and a value, both str, and one of them is None")
    columns = _encode_texts("header name", names), _encode_texts("header", values)
    return b"".join((array("H", counts).tobytes(), *columns))


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
        if self._raw_bytes > min(RAW_BYTES_MAX, LZ4_RATIO_MAX * len(self._stored)):
            # Refused before anything is allocated.
            raise BadColumns(f"{len(self._stored)} bytes cannot hold {self._raw_bytes}")
        try:
            raw: bytes = lz4.block.decompress(self._stored, uncompressed_size=self._raw_bytes)
        except MemoryError:
            raise BadColumns(f"no memory for the {self._raw_bytes:,} bytes of its bodies") from None
        except (lz4.block.LZ4BlockError, ValueError, OverflowError) as error:
            raise BadColumns(f"the bodies do not decompress: {error}") from None
        if len(raw) != self._raw_bytes:
            raise BadColumns(f"{len(raw)} bytes decompressed where {self._raw_bytes} were named")
        return raw

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


def split_bodies(items: Iterable[object]) -> tuple[list[bytes], bool]:
    """The items as bytes, and whether all were bodies; False: there are Messages among them."""
    bodies = list(items)
    try:
        b"".join(bodies)  # type: ignore[arg-type]
    except TypeError:
        return bodies, False  # type: ignore[return-value]
    return bodies, True  # type: ignore[return-value]
