"""Reading messages: from index entries to bodies, in large reads, every checksum verified.

The entries of a batch lie close together, mostly one behind the other, so the part of the
segment that holds them is read at once and records are decoded where they lie. The last part
read is kept: the next batch of the same reader mostly begins in it.
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass

from fmq.errors import Damaged
from fmq.store.batch import Batch, Piece
from fmq.store.columns import COMPRESSED, BadColumns
from fmq.store.files import Files
from fmq.store.index import Lane
from fmq.store.kinds import Record, Run
from fmq.store.record import (
    COMMON,
    HEAD_BYTES_MIN,
    MAGIC,
    PREFIX,
    PREFIX_BYTES,
    BadRecord,
    Misplaced,
    Newer,
    columns_of,
    decode,
)
from fmq.store.segment import segment_name

RECORD_READ_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Entries:
    """Index entries of consecutive runs of one queue in one segment, copied under the lock."""

    base: int
    first: int
    """Offset of the first run's first message, which may lie before what was asked for."""
    counts: array[int]
    records: array[int]
    bodies: array[int]


def entries_of(base: int, lane: Lane, offset: int, limit: int) -> Entries:
    """The entries that hold up to `limit` messages from `offset` on."""
    i = lane.find(offset)
    last = lane.find(min(offset + limit, lane.next) - 1)
    part = slice(i, last + 1)
    first = lane.first + lane.starts[i]
    return Entries(base, first, lane.counts[part], lane.records[part], lane.bodies[part])


class Window:
    """Part of a segment in memory."""

    __slots__ = ("base", "data", "start")

    def __init__(self, base: int, start: int, data: bytes) -> None:
        self.base = base
        self.start = start
        self.data = data


class Reader:
    """Reads the segments of one directory. Safe for threads; keeps one window of read-ahead."""

    def __init__(self, files: Files, seed: int, read_ahead_bytes: int) -> None:
        self._files = files
        self._seed = seed
        self._read_ahead_bytes = read_ahead_bytes
        self._window = Window(-1, 0, b"")

    def batch(
        self, topic: str, queue: int, entries: Entries, offset: int, limit: int, segment_end: int
    ) -> Batch:
        """Messages of `entries` from `offset` on, at most `limit`, at least one.

        Fewer if they reach over the read-ahead. `segment_end` is how far the segment's bytes
        may be kept in memory: behind it they still change.
        """
        reading = _Reading(self, entries.base, segment_end)
        bodies: list[bytes] = []
        pieces: list[Piece] = []
        first = entries.first
        wanted = limit
        for count, place, body_place in zip(
            entries.counts, entries.records, entries.bodies, strict=True
        ):
            skip = offset - first if offset > first else 0
            take = count - skip if count - skip < wanted else wanted
            data, at = reading.record(place)
            body_data, body_at = (data, at) if body_place == place else reading.record(body_place)
            position, body_position = entries.base + place, entries.base + body_place
            found = reading.bodies(body_data, body_at, body_position, count)
            if body_place != place:
                reading.check_head(data, at, position)
            if take != count:
                found = found[skip : skip + take]
            bodies += found
            pieces.append(
                Piece(first, skip, take, position, data, at, body_position, body_data, body_at)
            )
            first += count
            wanted -= take
            if not wanted or reading.bytes_read > self._read_ahead_bytes:
                break
        if reading.window is not None:
            self._window = reading.window
        start, name = max(offset, entries.first), segment_name(entries.base)
        return Batch(topic, queue, start, bodies, pieces, self._seed, name)

    def record(self, base: int, place: int) -> Record:
        """The record at `place` of the segment at `base`; Damaged."""
        data, at = _Reading(self, base, 0).record(place)
        return self._decode(data, at, base, place)

    def run_with_bytes(self, base: int, place: int) -> tuple[Run, bytes, int]:
        """The run at `place` of the segment at `base`, with the bytes that it was decoded from."""
        data, at = _Reading(self, base, 0).record(place)
        run = self._decode(data, at, base, place)
        if not isinstance(run, Run):
            raise Damaged(segment_name(base), base + place, f"a {run.kind.name}, no message")
        return run, data, at

    def _decode(self, data: bytes, at: int, base: int, place: int) -> Record:
        try:
            return decode(data, at, base + place, self._seed)
        except (BadRecord, Misplaced, Newer) as error:
            raise Damaged(segment_name(base), base + place, str(error)) from None


class _Reading:
    """One pass over one segment."""

    def __init__(self, reader: Reader, base: int, segment_end: int) -> None:
        self._files = reader._files
        self._seed = reader._seed
        self._ahead = reader._read_ahead_bytes
        self._base = base
        self._keep_to = segment_end - base
        self.bytes_read = 0
        self.window: Window | None = None
        kept = reader._window
        if kept.base == base:
            self._data, self._start = kept.data, kept.start
        else:
            self._data, self._start = b"", 0

    def record(self, place: int) -> tuple[bytes, int]:
        """Bytes that hold the record at `place`, as far as there are any, and where in them."""
        at = place - self._start
        data = self._data
        if at >= 0 and at + HEAD_BYTES_MIN <= len(data):
            size = int.from_bytes(data[at + PREFIX_BYTES : at + PREFIX_BYTES + 4], "little")
            if at + size <= len(data):
                return data, at
        return self._read(place)

    def _read(self, place: int) -> tuple[bytes, int]:
        """Read from `place` on: much, if it lies in the part that does not change any more."""
        base = self._base
        with self._files.using(base) as file:
            wanted = min(self._ahead, self._keep_to - place)
            data = file.read(place, max(wanted, RECORD_READ_BYTES))
            size = int.from_bytes(data[PREFIX_BYTES : PREFIX_BYTES + 4], "little")
            if size > len(data):
                # Not checked yet, so not believed further than there are bytes.
                data = file.read(place, min(size, file.size() - place))
        self.bytes_read += len(data)
        if wanted > 0:
            # Behind the end of what is visible bytes still change, so they are not kept.
            data = data[: max(wanted, min(size, self._keep_to - place))]
            self._data, self._start = data, place
            self.window = Window(base, place, data)
        return data, 0

    def bodies(self, data: bytes, at: int, position: int, count: int) -> list[bytes]:
        """The bodies of the run at `data[at]`, checked; the shortest way for one that is alone."""
        start = at + PREFIX_BYTES
        try:
            size, head_size, says, _, crc, _, flags, _ = COMMON.unpack_from(data, start)
            magic, head_crc = PREFIX.unpack_from(data, at)
            head_end, end = at + head_size, at + size
            if (
                magic == MAGIC
                and says == position
                and zlib.crc32(data[start:head_end], self._seed) == head_crc
            ):
                body = data[head_end:end]
                if zlib.crc32(body) == crc and len(body) == size - head_size:
                    if count == 1 and not flags & COMPRESSED:
                        return [body]
                    run = decode(data, at, position, self._seed, bodies=False)
                    if isinstance(run, Run) and run.count == count:
                        return columns_of(data, at, run).bodies()
            # Something is wrong: decode says what.
            decode(data, at, position, self._seed)
        except (BadRecord, Misplaced, Newer, BadColumns) as error:
            raise self._damaged(position, str(error)) from None
        except Exception as error:
            raise self._damaged(position, f"unreadable: {error}") from error
        raise self._damaged(position, "not the run of messages that the index names")

    def check_head(self, data: bytes, at: int, position: int) -> None:
        """Verify the publishing record of a reference."""
        try:
            decode(data, at, position, self._seed)
        except (BadRecord, Misplaced, Newer) as error:
            raise self._damaged(position, str(error)) from None

    def _damaged(self, position: int, reason: str) -> Damaged:
        return Damaged(segment_name(self._base), position, reason)
