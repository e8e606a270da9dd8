"""The message ids that one segment knows: those taken in it, and those carried into it.

A row says which message has taken an id. The id itself is there as a key of 128 bits, over the name
of its topic and its text. As bytes a table is:

    offset  size  field
         0     4  rows
         4     4  topics
         8     *  each topic: u8 bytes of its name, the name
         .     *  columns, each with an entry a row: u32 number of the topic, u16 queue, u64 the
                  upper and u64 the lower half of the key, u64 offset, u64 position of the record
                  that has it, i64 time of that record; of a TIMER the offset is 2^63 and the time
                  in microseconds when it is due

The same bytes are in the index of a segment and in an IDS record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from fmq.store.extension import decode_extension
from fmq.store.extras import IDS_TAKEN, MESSAGE_IDS, Extras, has_extras
from fmq.store.kinds import TIMER, Run
from fmq.store.pieces import BadColumns
from fmq.store.record import BadRecord, utf8
from fmq.store.timing import timing_in

HEAD = Struct("<II")
CODES = "IHQQQQq"
ROW_BYTES = sum(array(code).itemsize for code in CODES)
KEY_BYTES = 16
HALF = 64
LOWER = (1 << HALF) - 1
WAITS = 1 << 63  # in place of an offset, with the time when a TIMER is due
assert ROW_BYTES == 46

IdKeys = list[tuple[int, int]]
"""For each message of a run that has an id: its number in the run, and the key of its id."""


class BadIds(BadRecord):
    """Raised for bytes that are no table of ids."""


class TakenId(NamedTuple):
    """Which message has taken an id."""

    key: int
    topic: str
    queue: int
    offset: int
    """Of a TIMER: WAITS and when it is due."""
    position: int
    time_us: int


def key_of(topic: str, message_id: str) -> int:
    """Return the key of an id. No two ids of this world have the same."""
    text = utf8(topic) + b"\0" + message_id.encode()
    return int.from_bytes(blake2b(text, digest_size=KEY_BYTES).digest(), "big")


def id_keys_of(run: Run) -> IdKeys:
    """Return the keys of the ids in `run`. They are kept with it. Raises BadRecord."""
    try:
        return run.id_keys
    except AttributeError:
        pass
    found: IdKeys = []
    if has_extras(run.extension) and _takes_ids(run):
        try:
            ids = Extras(run.extension, run.count).ids(0, run.count) or ()
        except BadColumns as error:
            raise BadRecord(str(error)) from None
        topic = run.topic
        found = [(i, key_of(topic, each)) for i, each in enumerate(ids) if each is not None]
    run.id_keys = found
    return found


def _takes_ids(run: Run) -> bool:
    """Return whether `run` takes its ids. A copy does not: another record has taken them."""
    columns = decode_extension(run.extension)
    if MESSAGE_IDS not in columns or IDS_TAKEN in columns:
        return False
    timing = timing_in(run.extension)
    return timing is None or not timing.number or run.kind != TIMER  # else it is carried forward


class IdTable:
    """The rows of the segment at `base`, in the order in which they were added."""

    __slots__ = ("_numbers", "_topics", "base", "columns", "newest_us", "own")

    def __init__(self, base: int) -> None:
        self.base = base
        self.columns = [array(code) for code in CODES]
        self.own = 0  # rows that were taken in this segment; the others were carried into it
        self.newest_us = 0
        self._topics: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.columns[0])

    def add(self, taken: TakenId) -> None:
        """Add a row."""
        key, topic, queue, offset, position, time_us = taken
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self._topics)
            self._topics.append(topic)
        values = number, queue, key >> HALF, key & LOWER, offset, position, time_us
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)
        self.own += position >= self.base
        self.newest_us = max(self.newest_us, time_us)

    def add_run(self, run: Run) -> None:
        """Add the ids that `run` takes, which is published at its position."""
        keys = id_keys_of(run)
        if not keys:
            return
        place, step, offset = (run.topic, run.queue), 1, run.offset
        timing = timing_in(run.extension) if run.kind == TIMER else None
        if timing is not None:
            step, offset = 0, WAITS | timing.due_us
        for number, key in keys:
            self.add(TakenId(key, *place, offset + step * number, run.position, run.time_us))

    def key(self, row: int) -> int:
        """Return the key in a row."""
        return int(self.columns[2][row]) << HALF | int(self.columns[3][row])

    def keys_from(self, start: int = 0) -> Iterator[int]:
        """Yield the keys of the rows from `start` on."""
        for upper, lower in zip(self.columns[2][start:], self.columns[3][start:], strict=True):
            yield upper << HALF | lower

    def row(self, row: int) -> TakenId:
        """Return what a row says."""
        number, queue, upper, lower, *rest = (int(column[row]) for column in self.columns)
        offset, position, time_us = rest
        return TakenId(
            upper << HALF | lower, self._topics[number], queue, offset, position, time_us
        )

    def encode(self, start: int = 0) -> bytes:
        """Return the rows from `start` on as bytes."""
        names = [utf8(topic) for topic in self._topics]
        parts = [HEAD.pack(len(self) - start, len(names))]
        for name in names:
            parts += bytes((len(name),)), name
        parts += [column[start:].tobytes() for column in self.columns]
        return b"".join(parts)

    def extend(self, data: bytes | memoryview) -> None:
        """Add the rows in `data`, which has nothing else; raise BadIds."""
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
    """Return the table in `data`, of the segment at `base`; raise BadIds."""
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
    table._numbers = {topic: number for number, topic in enumerate(table._topics)}
    if rows and max(table.columns[0]) >= len(table._topics):
        raise BadIds("an id of a topic that the table does not name")
    table.own = sum(1 for position in table.columns[5] if position >= base)
    table.newest_us = max(table.columns[6], default=0)
    return table
