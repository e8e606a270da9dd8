"""Reads messages: from index entries to bodies, in large reads, with every checksum verified.

The records of a batch are close together, mostly one after another. So the part of the segment that
holds them is read at once, as a window, and records are cut out of it. The last window is kept, and
where the bodies of the last run are: the next batch mostly begins there. Only the bodies that are
asked for are built.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from fmq.errors import Damaged, NewerFormat
from fmq.store.bytes.columns import Columns
from fmq.store.bytes.decoding import columns_of, decode
from fmq.store.bytes.extras import NEVER
from fmq.store.bytes.joint_column import joint_in
from fmq.store.bytes.kinds import REF_MESSAGE, Decided, Record, Run
from fmq.store.bytes.pieces import EqualPieces, Pieces
from fmq.store.bytes.record import EXTENDED, HEAD_BYTES_MIN, LAST, BadRecord, aligned
from fmq.store.index.index import NOWHERE, Lane
from fmq.store.journal.files import Files, read_front, read_head
from fmq.store.journal.segment import HEADER_BYTES, Header, decode_header, segment_name
from fmq.store.reading.batch import Batch, Stretch
from fmq.store.reading.window import PUBLISHED, REFERRED, UNREADABLE, Window, refused

RECORD_READ_BYTES = 4096
DENSE_BYTES = 8192  # the largest record that is read through to reach the next head


class Entries(NamedTuple):
    """Entries of consecutive runs of one queue in one segment, copied while the lock was held."""

    base: int
    first: int
    """Offset of the first run's first message, which may lie before what was asked for."""
    counts: array[int]
    records: array[int]
    bodies: array[int]


def entries_of(base: int, lane: Lane, offset: int, limit: int) -> Entries:
    """Return the entries that hold up to `limit` messages from `offset` on."""
    i = lane.find(offset)
    last = lane.find(min(offset + limit, lane.next) - 1)
    part = slice(i, last + 1)
    first = lane.first + lane.starts[i]
    return Entries(base, first, lane.counts[part], lane.records[part], lane.bodies[part])


class Carried:
    """What consecutive messages of one run have besides bodies, decoded at the first use."""

    __slots__ = ("_columns", "_part", "first", "messages")

    def __init__(self, first: int, messages: int, columns: Columns, part: tuple[int, int]) -> None:
        """`part` has the first and the last number of the messages in the run. Raises
        BadColumns.
        """
        self.first = first
        self.messages = messages
        self._columns = columns
        self._part = part
        columns.opened()

    def may_have_tag(self, tags: Iterable[bytes]) -> bool:
        """Return False if no message has one of `tags`, by one look at all messages together."""
        pieces = self._columns.opened().tags
        return pieces is not None and pieces.has_any(tags)

    def keys(self) -> Sequence[str | None]:
        """Return the keys of all messages."""
        return self._columns.texts(*self._part)[0] or [None] * self.messages

    def key_hashes(self) -> set[int]:
        """Return the hashes of the keys."""
        pieces = self._columns.opened().keys
        if pieces is None:
            return set()
        keys = {*pieces.texts(*self._part)} - {None}
        return {crc32(key.encode()) for key in keys if key is not None}

    def priorities(self) -> bytes:
        """Return the priority of each message; 0 if it has none."""
        return self._columns.extras().levels(*self._part) or bytes(self.messages)

    def expiries_us(self) -> Sequence[int]:
        """Return when each message expires, in microseconds since 1970."""
        found = self._columns.extras().expiries_us
        return [NEVER] * self.messages if found is None else found[slice(*self._part)]

    def looks(self) -> Iterator[tuple[str | None, dict[str, str]]]:
        """Yield the tag and the headers of each message, for a filter."""
        nothing = [None] * self.messages
        tags = self._columns.texts(*self._part)[1] or nothing
        headers = self._columns.headers(*self._part) or nothing
        for tag, header in zip(tags, headers, strict=True):
            yield tag, header or {}


class Reader:
    """Reads the segments of one directory. Any thread may call it: attributes are only replaced as
    a whole.
    """

    def __init__(self, files: Files, seed: int, read_ahead_bytes: int) -> None:
        self._files = files
        self.seed = seed
        self._read_ahead_bytes = read_ahead_bytes
        self._window = Window(-1, 0, b"")
        self._kept: tuple[int, int, int, Pieces | EqualPieces | None] = (-1, 0, 0, None)

    def batch(
        self, topic: str, queue: int, entries: Entries, offset: int, limit: int, segment_end: int
    ) -> Batch:
        """Return messages of `entries` from `offset` on, at least one and at most `limit`.

        There are fewer if they go beyond the window, or up to a bad record. `segment_end` is how
        much of the segment may be kept in memory: the bytes after it still change.
        """
        start = max(offset, entries.first)
        reading = _Reading(self, entries, segment_end, start - entries.first, limit)
        reading.read()
        bodies = reading.bodies
        if not bodies:
            reason = f"{topic}/{queue} should have its offset {start} here, and no record holds it"
            raise Damaged(segment_name(entries.base), entries.base, reason)
        return Batch(topic, queue, start, bodies, entries.first, reading.stretches, self.seed)

    def record(self, base: int, place: int) -> Record:
        """Return the record at `place` of the segment at `base`. Raises Damaged or NewerFormat."""
        window = self.window(base, place, 0)
        try:
            return decode(window.data, place - window.start, base + place, self.seed)
        except UNREADABLE as error:
            raise refused(base, place, error) from None

    def head(self, base: int, place: int) -> tuple[Run, bytes]:
        """Return the run at `place` of the segment at `base`, and the bytes of its head, which hold
        everything but the bodies. The bodies are not read. Raises Damaged or NewerFormat.
        """
        with self._files.using(base) as file:
            data = read_head(file, place, RECORD_READ_BYTES)
        try:
            run = decode(data, 0, base + place, self.seed, bodies=False)
        except UNREADABLE as error:
            raise refused(base, place, error) from None
        if not isinstance(run, Run):
            raise Damaged(segment_name(base), base + place, f"a {run.kind.name}, no message")
        return run, data

    def header(self, base: int) -> Header:
        """Return the header of the segment at `base`. Raises Damaged or NewerFormat."""
        with self._files.using(base) as file:
            return decode_header(file.read(0, HEADER_BYTES), segment_name(base))

    def append_end(self, base: int, place: int, segment_end: int) -> int:
        """Return the place after the append to which the record at `place` belongs. Of a joint
        decision, return the place after its last ending; 0 if that lies behind `segment_end`.
        Raises Damaged.
        """
        with self._files.using(base) as file:
            while place < segment_end:
                size, flags = read_front(file, base, place)
                place += aligned(size)
                if flags & LAST and not (
                    flags & EXTENDED and self._goes_on(base, place - aligned(size))
                ):
                    return place
        return 0

    def _goes_on(self, base: int, place: int) -> bool:
        """Return whether the record at `place` is an ending of a joint decision, not the last."""
        record = self.record(base, place)
        joint = joint_in(record.extension) if isinstance(record, Decided) else None
        return joint is not None and not joint.is_last

    def carried(
        self,
        entries: Entries,
        offset: int,
        limit: int,
        keep_to: int,
        tags: Sequence[bytes] | None = None,
    ) -> Iterator[Carried]:
        """Yield keys, tags, headers and extras of up to `limit` messages from `offset` on, but no
        bodies. Raises Damaged or NewerFormat.

        Large records are not read, but for their heads. With `tags`, single messages that have none
        of them may be yielded together, as if they carried nothing.
        """
        first, places, counts = entries.first, entries.bodies, entries.counts
        is_dense = places[-1] - places[0] < len(places) * DENSE_BYTES
        i, end = 0, len(places)
        while i < end:
            count, place = counts[i], places[i]
            low, high = max(offset, first), min(first + count, offset + limit)
            if place == NOWHERE:
                raise refused(entries.base, place, BadRecord())
            try:
                if is_dense:
                    window = self.window(entries.base, place, keep_to)
                    if tags is not None and count == 1:
                        passed = window.pass_singles(places, counts, i, self.seed, tags)
                        if passed:
                            nothing = Columns(passed, 0, b"", b"", 0)
                            yield Carried(first, passed, nothing, (0, passed))
                            first += passed
                            i += passed
                            continue
                    columns = window.columns(place, window.record(place, self.seed))
                else:
                    run, data = self.head(entries.base, place)
                    columns = columns_of(data, 0, run)
                yield Carried(low, high - low, columns, (low - first, high - first))
            except UNREADABLE as error:
                raise refused(entries.base, place, error) from None
            first += count
            i += 1

    def run_with_bytes(self, base: int, place: int) -> tuple[Run, bytes, int]:
        """Return the run at `place` of the segment at `base`, its bytes, and the index of its start
        in them.
        """
        window = self.window(base, place, 0)
        try:
            run = decode(window.data, place - window.start, base + place, self.seed)
        except UNREADABLE as error:
            raise refused(base, place, error) from None
        if not isinstance(run, Run):
            raise Damaged(segment_name(base), base + place, f"a {run.kind.name}, no message")
        return run, window.data, place - window.start

    def forget(self) -> None:
        """Forget the bytes that are in memory, because those on disk were changed."""
        self._window = Window(-1, 0, b"")
        self._kept = (-1, 0, 0, None)

    def window(self, base: int, place: int, keep_to: int) -> Window:
        """Return a window with the whole record at `place`, or with as much of it as the file has.

        It is read ahead, and kept, up to `keep_to`: the bytes after it still change.
        """
        window = self._window
        if window.base == base and window.holds(place):
            return window
        ahead = min(self._read_ahead_bytes, keep_to - place)
        with self._files.using(base) as file:
            try:
                data = file.read(place, max(ahead, RECORD_READ_BYTES))
            except OSError:
                if ahead <= 0:
                    raise
                # Perhaps only the bytes after the record cannot be read.
                ahead, data = 0, file.read(place, HEAD_BYTES_MIN)
            size = int.from_bytes(data[8:12], "little")
            if size > len(data):
                # The size is not verified yet, so read no more than the file has.
                data = file.read(place, min(size, file.size() - place))
        if ahead <= 0:
            return Window(base, place, data)
        self._window = window = Window(base, place, data[: max(ahead, min(size, keep_to - place))])
        return window


class _Reading:
    """One pass over the entries of a batch. It skips `skip` bodies and reads up to `limit`."""

    def __init__(
        self, reader: Reader, entries: Entries, segment_end: int, skip: int, limit: int
    ) -> None:
        self._reader = reader
        self._entries = entries
        self._keep_to = segment_end - entries.base
        self._skip = skip
        self._limit = limit
        self.bodies: list[bytes] = []
        self.stretches: list[Stretch] = []

    def read(self) -> None:
        """Cut bodies out until there are enough, the entries or the window end, or a bad record
        follows.

        Raises Damaged if there is no sound record before a bad one.
        """
        entries, bodies = self._entries, self.bodies
        i, last = 0, len(entries.counts)
        ahead: Window | None = None
        while i < last and len(bodies) < self._limit:
            place = entries.bodies[i]
            if ahead is None:
                window = ahead = self._reader.window(entries.base, place, self._keep_to)
            elif ahead.holds(place):
                window = ahead
            elif place >= ahead.start:
                return  # a batch uses one window only
            else:
                # Bodies may lie further and further back, one run after another. Reading ahead for
                # each would keep many windows in memory.
                window = self._reader.window(entries.base, place, 0)
            try:
                i = self._cut(window, i, last)
            except (*UNREADABLE, Damaged, NewerFormat) as error:
                if bodies:
                    return  # the next batch begins there, and raises its error
                if isinstance(error, UNREADABLE):
                    raise refused(entries.base, place, error) from None
                raise

    def _cut(self, window: Window, i: int, last: int) -> int:
        """Cut bodies out of `window` from entry `i` on. Return the entry to go on with."""
        entries, seed = self._entries, self._reader.seed
        if entries.counts[i] == 1 and entries.bodies[i] == entries.records[i]:
            while last > i and entries.bodies[last - 1] != entries.records[last - 1]:
                last -= 1
            found = window.cut_singles(entries.bodies, entries.counts, i, last, seed)
            if found and entries.bodies[i : i + len(found)] == entries.records[i : i + len(found)]:
                self.bodies += found
                end = i + len(found)
                places, counts = entries.records[i:end].tolist(), entries.counts[i:end].tolist()
                self.stretches.append(Stretch(places, counts, window))
                return end
        self._cut_run(window, i)
        return i + 1

    def _cut_run(self, window: Window, i: int) -> None:
        entries, reader = self._entries, self._reader
        count, place, body_place = entries.counts[i], entries.records[i], entries.bodies[i]
        base, kept_place, kept_count, pieces = reader._kept
        if pieces is None or (base, kept_place, kept_count) != (entries.base, body_place, count):
            kinds = PUBLISHED if place == body_place else REFERRED
            pieces = window.cut(body_place, count, reader.seed, kinds)
            if count > 1:
                reader._kept = entries.base, body_place, count, pieces
        first = self._skip if i == 0 else 0
        found = pieces.cut(first, min(first + self._limit - len(self.bodies), count))
        referring = None
        if place != body_place:
            referring = self._referring(window, place, count, body_place)
        self.bodies += found
        self.stretches.append(Stretch([place], [count], window, referring, body_place))

    def _referring(self, window: Window, place: int, count: int, body_place: int) -> Window:
        """Return a window with the record at `place`, which publishes the bodies at
        `body_place`.
        """
        entries, reader = self._entries, self._reader
        if not window.holds(place):
            window = reader.window(entries.base, place, 0)
        at, position = place - window.start, entries.base + place
        held = REF_MESSAGE, entries.base + body_place, count
        try:
            run = decode(window.data, at, position, reader.seed)
            if not isinstance(run, Run) or (run.kind, run.body_position, run.count) != held:
                raise BadRecord(f"does not publish what lies at {held[1]}")
        except UNREADABLE as error:
            raise refused(entries.base, place, error) from None
        return window
