"""Encoding what is sent as a run: its columns and bodies, before it has a place.

columns.py describes the columns and reads them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TypeVar
from zlib import crc32

from fmq.basics.joined_bodies import JoinedBodies
from fmq.basics.message import Body, Message
from fmq.errors import BadName, BadOption, TooLarge
from fmq.store.bytes.columns import COMPRESSED, COUNT_MAX, HEADERS, KEYS, LENGTHS, TAGS
from fmq.store.bytes.compression import RAW_BYTES_MAX, compress
from fmq.store.bytes.extras import encode_extras
from fmq.store.bytes.kinds import HAS_ERASED, MESSAGE, Run
from fmq.store.bytes.pieces import NONE, U32
from fmq.store.bytes.record import EXTENDED, FIRST, LAST

OF_PLACE = FIRST | LAST | EXTENDED | HAS_ERASED  # the flags that a run gets when it is placed
TEXT_BYTES_MAX = NONE - 1
HEADERS_MAX = 1000
RECORD_MESSAGES_MAX = 1 << 16
"""How many messages a new record holds at most, so that no reader needs much memory for one.

Records written before there was this limit hold up to COUNT_MAX."""

PLAIN = {bytes}
COPIED = attrgetter(
    "topic", "queue", "producer", "tx", "tx_id", "columns", "columns_crc", "extension"
)

T = TypeVar("T")

# Letters in the format of a buffer that stand for Python objects, C strings and pointers.
POINTERS = frozenset("OzZP&")
FIELD_NAME = re.compile(":[^:]*:")


def encode_one(
    body: Body,
    compress_bytes_min: int | None,
    count: int = 1,
    flags: int = 0,
    columns: bytes = b"",
) -> Run:
    """Return a run of one body without key, tag and headers. With `count` and `columns`, return a
    run of `count` messages, whose bodies are joined in `body`.
    """
    bodies = body if type(body) is bytes else as_bytes(body)
    size = len(bodies)
    if compress_bytes_min is not None and compress_bytes_min <= size <= RAW_BYTES_MAX:
        packed = compress(bodies)
        if len(packed) < size:
            bodies, flags = packed, flags | COMPRESSED
    return Run(MESSAGE, count, bodies, crc32(bodies), size, flags, columns)


def encode_bodies(bodies: Sequence[bytes], compress_bytes_min: int | None) -> Run:
    """Return a run of bodies without keys, tags and headers."""
    if len(bodies) == 1:
        return encode_one(bodies[0], compress_bytes_min)
    flags, lengths, joined = _joined(bodies)
    return encode_one(joined, compress_bytes_min, len(bodies), flags, lengths)


def encode_joined(bodies: Sequence[bytes], compress_bytes_min: int | None) -> Run:
    """Do what `encode_bodies` does, for bodies that may lie joined."""
    if not isinstance(bodies, JoinedBodies):
        return encode_bodies(bodies, compress_bytes_min)
    count, sizes, data = len(bodies), bodies.sizes.tobytes(), bodies.data()
    if sum(bodies.sizes) != len(data):
        raise ValueError(
            "joined bodies have other sizes than they say"
        )  # and nobody could read them
    flags, lengths = LENGTHS, sizes
    if sizes == sizes[: bodies.sizes.itemsize] * count:
        flags, lengths = 0, b""
    return encode_one(data, compress_bytes_min, count, flags, lengths)


def _joined(bodies: Sequence[bytes]) -> tuple[int, bytes, bytes]:
    """Return the flags, the column with the lengths of `bodies`, and the bodies in one piece."""
    sizes = [*map(len, bodies)]
    joined = b"".join(bodies)
    count, size, raw_bytes = len(sizes), sizes[0], len(joined)
    assert count <= COUNT_MAX
    if size * count == raw_bytes and sizes.count(size) == count:
        return 0, b"", joined
    if sum(sizes) != raw_bytes:
        # One of the bodies is a memoryview of items wider than a byte, so that its len() is not
        # its size, or it is a bytearray that another thread is filling.
        return _joined([as_bytes(body) for body in bodies])
    return LENGTHS, array("I", sizes).tobytes(), joined


def encode_messages(messages: Sequence[Message], compress_bytes_min: int | None) -> Run:
    """Return a run of messages, with all that they carry."""
    given, keys, tags, with_headers, _, _, *extras = zip(*messages, strict=True)
    flags, lengths, joined = _joined([*map(as_bytes, given)])
    parts = [lengths]
    try:
        keyed, tagged = keys.count(None) != len(keys), tags.count(None) != len(tags)
    except (
        ValueError
        # A key or tag that is an array compares element by element here. It is refused below,
        # because it is no text.
    ):
        keyed = tagged = True
    if keyed:
        flags |= KEYS
        parts.append(_encode_texts("key", keys))
    if tagged:
        flags |= TAGS
        parts.append(_encode_texts("tag", tags))
    headers = [None if each is None else copied_headers(each) for each in with_headers]
    if any(headers):
        flags |= HEADERS
        parts.append(_encode_headers(headers))
    run = encode_one(joined, compress_bytes_min, len(messages), flags, b"".join(parts))
    run.extension, run.ids = encode_extras(*extras), extras[0]
    return run


def add_extras(
    run: Run, message_id: str | None, priority: int | None, expires_at: datetime | None
) -> None:
    """Give the one message of `run` its id, priority and expiry."""
    run.extension = encode_extras((message_id,), (priority,), (expires_at,))
    run.ids = (message_id,)


def encode_items(items: Sequence[Message | bytes], compress_bytes_min: int | None) -> Run:
    """Return a run of bodies and Messages, mixed."""
    if set(map(type, items)) != PLAIN:
        messages = [item if isinstance(item, Message) else Message(item) for item in items]
        return encode_messages(messages, compress_bytes_min)
    return encode_bodies(items, compress_bytes_min)  # type: ignore[arg-type]


def in_records(items: Sequence[T]) -> Sequence[Sequence[T]]:
    """Yield `items` in their order, in parts that one record each can hold."""
    count = len(items)
    if count <= RECORD_MESSAGES_MAX:
        return (items,)
    return [items[at : at + RECORD_MESSAGES_MAX] for at in range(0, count, RECORD_MESSAGES_MAX)]


def as_bytes(body: object) -> bytes:
    """Return `body` as bytes; raise TypeError if it is not bytes-like."""
    if type(body) is bytes:
        return body
    try:
        if isinstance(body, (bytes, bytearray)):
            return bytes(memoryview(body))  # a subclass may override its methods
        view = memoryview(body)  # type: ignore[arg-type]
        # The buffer of numpy's str has four bytes for each character.
        if isinstance(body, str) or _holds_pointers(view):
            raise TypeError
        return bytes(view)
    except TypeError:
        raise TypeError(
            f"a body is bytes-like, not {type(body).__name__}; encode it first, for instance "
            "with str.encode() or json.dumps(...).encode(). Nothing was changed."
        ) from None
    except (ValueError, BufferError) as error:  # a memoryview that was released
        raise TypeError(
            f"a body is bytes-like, and this {type(body).__name__} gives no bytes: {error}. "
            "Nothing was changed; hand in what it held as bytes."
        ) from None


def _holds_pointers(view: memoryview) -> bool:
    """Return whether the items are addresses, as in an array of objects: they mean nothing
    later.
    """
    kinds = FIELD_NAME.sub("", view.format)
    return not POINTERS.isdisjoint(kinds)


def split_bodies(items: Iterable[object]) -> tuple[list[bytes], bool]:
    """Return the items as a list, and whether all of them are bodies, not Messages."""
    bodies = listed(items)
    if bodies and type(bodies[0]) is Message:
        return bodies, False  # type: ignore[return-value]
    kinds = [*map(type, bodies)]
    if kinds.count(bytes) != len(bodies):  # the fastest test that all items are bytes
        if any(issubclass(kind, Message) for kind in kinds):
            return bodies, False  # type: ignore[return-value]
        # len() of bytes and bytearrays is their size in bytes; that of an array is its rows.
        bodies = [each if type(each) is bytearray else as_bytes(each) for each in bodies]
    return bodies, True  # type: ignore[return-value]


def frozen(bodies: list[bytes]) -> list[bytes]:
    """Return bodies that nobody can change later: of each bytearray among them a copy."""
    # To look at the types is several times faster than a call for each body.
    return [*map(as_bytes, bodies)] if bytearray in map(type, bodies) else bodies


def listed(items: Iterable[object]) -> list[object]:
    """Return bodies or Messages as a list. Raises TypeError if `items` is a single one."""
    if isinstance(items, Message):  # a Message is a tuple: its fields would be taken for bodies
        raise _not_several(items)
    try:
        return list(items)
    except TypeError:
        if isinstance(items, Iterable):
            raise
        raise _not_several(items) from None


def _not_several(items: object) -> TypeError:
    return TypeError(
        f"bodies are several, not {type(items).__name__}; a list of them will do. "
        "Nothing was changed."
    )


def copy_of(run: Run, kind: int) -> Run:
    """Return a run of `kind` with the messages and the transaction of `run`, but without a place
    and a size.
    """
    new = Run(kind, run.count, run.bodies, run.bodies_crc, run.raw_bytes, run.flags & ~OF_PLACE)
    (
        new.topic, new.queue, new.producer, new.tx, new.tx_id, new.columns, new.columns_crc,
        new.extension,
    ) = COPIED(run)  # fmt: skip
    return new


def columns_crc(run: Run) -> int:
    """Return the checksum of the columns of `run` that the seal of a transaction covers."""
    crc = crc32(run.columns) if run.columns else 0
    return crc32(run.extension, crc) if run.extension else crc


def _encode_texts(what: str, texts: Sequence[str | None], *, all_there: bool = False) -> bytes:
    lengths = array("H")
    encoded = []
    for text in texts:
        if text is None and not all_there:
            lengths.append(NONE)
            continue
        data = text_bytes(what, text)  # type: ignore[arg-type]
        lengths.append(len(data))
        encoded.append(data)
    joined = b"".join(encoded)
    return U32.pack(len(joined)) + lengths.tobytes() + joined


def text_bytes(what: str, text: str, bytes_max: int = TEXT_BYTES_MAX) -> bytes:
    """Return a key, tag or header as UTF-8; raise TypeError, BadName or TooLarge."""
    if not isinstance(text, str):
        raise TypeError(f"a {what} is a str, not {type(text).__name__}. Nothing was changed.")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"a {what} must be text that UTF-8 can write: {error}") from None
    if len(data) > bytes_max:
        raise TooLarge(f"a {what} in bytes", len(data), bytes_max, "fixed by the format")
    return data


def copied_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of `headers`; raise TypeError, or BadOption if they change meanwhile.

    Everything is encoded from one copy. A mapping that another thread changes, or whose length does
    not fit its items, would become a record that cannot be read.
    """
    if type(headers) is dict:
        return headers.copy()
    if not isinstance(headers, Mapping):
        raise TypeError(
            f"headers are a mapping of str to str, not {type(headers).__name__}. "
            "Nothing was changed."
        )
    try:
        return dict(headers)
    except (RuntimeError, KeyError) as error:
        raise BadOption(
            f"headers changed while they were copied: {error}. Nothing was changed; hand in a dict "
            "of your own."
        ) from None


def _encode_headers(headers: Sequence[dict[str, str] | None]) -> bytes:
    counts = [len(header or ()) for header in headers]
    if max(counts) > HEADERS_MAX:
        raise TooLarge(
            *("the headers of a message", max(counts), HEADERS_MAX),
            *("fixed by the format", "give it fewer, or put them into the body"),
        )
    names = [name for header in headers if header for name in header]
    values = [value for header in headers if header for value in header.values()]
    columns = (
        _encode_texts("header name", names, all_there=True),
        _encode_texts("header", values, all_there=True),
    )
    return b"".join((array("H", counts).tobytes(), *columns))
