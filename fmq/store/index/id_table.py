"""The message ids that one segment knows: those taken in it, and those carried into it.

A row says which message has taken an id. In place of the id it has a key, which is a digest of the
topic's name and the id's text. As bytes a table is:

    offset  size  field
         0     4  rows
         4     4  topics
         8     *  each topic: u8 bytes of its name, the name
         .     *  columns, each with an entry a row: u32 number of the topic, u16 queue, u64 offset,
                  u64 position of the record that has the message, i64 time of that record; of a
                  TIMER the offset is 2^63 and the time in microseconds when it is due
         .     *  the keys, 16 bytes each

The same bytes are in the index of a segment and in an IDS record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from fmq.store.bytes.extension import decode_extension
from fmq.store.bytes.extras import IDS_TAKEN, MESSAGE_IDS, Extras, has_extras
from fmq.store.bytes.kinds import TIMER, Run
from fmq.store.bytes.pieces import BadColumns
from fmq.store.bytes.record import BadRecord, utf8
from fmq.store.bytes.timing import timing_in

HEAD = Struct("<II")
CODES = "IHQQq"
KEY_BYTES = 16
ROW_BYTES = sum(array(code).itemsize for code in CODES) + KEY_BYTES
# Set in place of an offset, together with the due time of a TIMER.
WAITS = 1 << 63
assert ROW_BYTES == 46

IdKey = bytes


class IdKeys(NamedTuple):
    """The messages of a run that have ids: each one's number, and the key of its id."""

    keys: list[IdKey]
    numbers: Sequence[int]


class BadIds(BadRecord):
    """Raised for bytes that are not a table of ids."""


class TakenId(NamedTuple):
    """The message that has taken an id."""

    key: IdKey
    topic: str
    queue: int
    offset: int
    """Of a TIMER: WAITS and when it is due."""
    position: int
    time_us: int


NO_KEYS = IdKeys([], ())


def keys_of(topic: str, ids: Sequence[str | None]) -> IdKeys:
    """Return the keys of the `ids` of consecutive messages. In practice different ids have
    different keys.
    """
    front, numbers = utf8(topic) + b"\0", range(len(ids))
    there = [each for each in ids if each is not None]
    if not there:
        return NO_KEYS
    keys = [blake2b(front + each.encode(), digest_size=KEY_BYTES).digest() for each in there]
    if len(keys) == len(numbers):
        return IdKeys(keys, numbers)
    return IdKeys(keys, [number for number in numbers if ids[number] is not None])


def id_keys_of(run: Run) -> IdKeys:
    """Return the keys of the ids that `run` takes, cached with the run. Raises BadRecord."""
    try:
        return run.id_keys  # type: ignore[no-any-return]
    except AttributeError:
        pass
    found = NO_KEYS
    if run.ids is not None:
        found, run.ids = keys_of(run.topic, run.ids), None
    elif has_extras(run.extension) and _takes_ids(run):
        try:
            found = keys_of(run.topic, Extras(run.extension, run.count).ids(0, run.count) or ())
        except BadColumns as error:
            raise BadRecord(str(error)) from None
    run.id_keys = found
    return found


def _takes_ids(run: Run) -> bool:
    """Return whether `run` takes its ids. A copy does not, because another record took them."""
    columns = decode_extension(run.extension)
    if MESSAGE_IDS not in columns or IDS_TAKEN in columns:
        return False
    timing = timing_in(run.extension)
    # A TIMER with a number was carried forward: its first record has taken the ids.
    return timing is None or not timing.number or run.kind != TIMER


class IdTable:
    """The rows of the segment at `base`, in the order in which they were added."""

    __slots__ = ("_keys", "_numbers", "_topics", "base", "columns", "newest_us", "own")

    def __init__(self, base: int) -> None:
        self.base = base
        self.columns = [array(code) for code in CODES]
        # Rows of ids that were taken in this segment. The other rows were carried into it.
        self.own = 0
        self.newest_us = 0
        self._keys = bytearray()
        self._topics: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def positions(self) -> array[int]:
        """Return the position in each row."""
        return self.columns[3]

    def _number(self, topic: str) -> int:
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self._topics)
            self._topics.append(topic)
        return number

    def add(self, taken: TakenId) -> None:
        """Add a row for `taken`."""
        key, topic, *values = taken
        for column, value in zip(self.columns, (self._number(topic), *values), strict=True):
            column.append(value)
        self._keys += key
        self.own += taken.position >= self.base
        self.newest_us = max(self.newest_us, taken.time_us)

    def add_run(self, run: Run) -> None:
        """Add rows for the ids that `run` takes by its publication."""
        keys, numbers = id_keys_of(run)
        if not keys:
            return
        if run.kind == TIMER and (timing := timing_in(run.extension)) is not None:
            offsets = [WAITS | timing.due_us] * len(keys)
        else:
            offsets = [run.offset + number for number in numbers]
        topics, queues, known, positions, times = self.columns
        count = len(keys)
        topics.extend((self._number(run.topic),) * count)
        queues.extend((run.queue,) * count)
        known.extend(offsets)
        positions.extend((run.position,) * count)
        times.extend((run.time_us,) * count)
        self._keys += b"".join(keys)
        self.own += count
        self.newest_us = max(self.newest_us, run.time_us)

    def all_keys(self, start: int = 0) -> Iterator[IdKey]:
        """Yield the keys of the rows from `start` on."""
        data = bytes(self._keys[start * KEY_BYTES :])
        return (data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES))

    def row(self, row: int) -> TakenId:
        """Return row number `row`."""
        number, *rest = (int(column[row]) for column in self.columns)
        at = row * KEY_BYTES
        return TakenId(bytes(self._keys[at : at + KEY_BYTES]), self._topics[number], *rest)

    def encode(self, start: int = 0) -> bytes:
        """Return the rows from `start` on as bytes."""
        names = [utf8(topic) for topic in self._topics]
        parts = [HEAD.pack(len(self) - start, len(names))]
        for name in names:
            parts += bytes((len(name),)), name
        parts += [column[start:].tobytes() for column in self.columns]
        return b"".join((*parts, self._keys[start * KEY_BYTES :]))

    def extend(self, data: bytes | memoryview) -> None:
        """Add the rows in `data`, which must hold nothing else. Raises BadIds."""
        other = decode_ids(self.base, data)
        if not self._topics:
            for name in self.__slots__:
                setattr(self, name, getattr(other, name))
            return
        for row in range(len(other)):
            self.add(other.row(row))


def table_of(base: int, rows: Iterable[TakenId]) -> IdTable:
    """Return a table of `rows`."""
    table = IdTable(base)
    for each in rows:
        table.add(each)
    return table


def decode_ids(base: int, data: bytes | memoryview) -> IdTable:
    """Return the table in `data` for the segment at `base`. Raises BadIds."""
    table = IdTable(base)
    try:
        rows, topics = HEAD.unpack_from(data)
        at = HEAD.size
        for _ in range(topics):
            size = data[at]
            table._topics.append(bytes(data[at + 1 : at + 1 + size]).decode())
            at += 1 + size
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise BadIds(f"a table of ids of an unknown shape: {error}") from None
    if at + rows * ROW_BYTES != len(data):
        raise BadIds(f"{len(data)} bytes are not {rows} rows of ids")
    for column in table.columns:
        end = at + rows * column.itemsize
        column.frombytes(data[at:end])
        at = end
    table._keys += data[at:]
    table._numbers = {topic: number for number, topic in enumerate(table._topics)}
    if rows and max(table.columns[0]) >= len(table._topics):
        raise BadIds("an id of a topic that the table does not name")
    table.own = sum(1 for position in table.positions if position >= base)
    table.newest_us = max(table.columns[4], default=0)
    return table
