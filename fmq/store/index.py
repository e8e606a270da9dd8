"""Where the messages of one segment lie, and which transactions were decided in it.

In memory there is a lane for each queue that the segment holds: columns, one entry for each
run of messages, sorted by offset. On disk an index is one block or, while its segment is being
written, several one after the other (`.part`), each with what came since the one before:

    offset  size  field
         0     4  magic       b"fmqI"
         4     4  head_crc    CRC-32 from here to the end of the table of lanes
         8     4  head_size   bytes from the start to the end of the table of lanes
        12     4  body_crc    CRC-32 of all that follows the table
        16     4  body_size
        20     4  lanes
        24     4  outcomes
        28     4  format      1
        32    16  store
        48     8  base        of the segment
        56     8  end         the index knows the segment up to here
        64     *  a lane each: u64 first offset, u64 next offset, i64 first and last time,
                  u32 entries, u16 queue, u8 flags (1: bodies lie elsewhere), u8 bytes of the
                  topic, the topic
  head_size    *  for each lane u32 x entries: messages in the run, then the publishing
                  record's place in the segment, then, with the flag, the body's; then
                  u32 x outcomes: CRC-32 of the tx_id, and the deciding record's place

A message is found by bisecting: first the segments, then the lane's entries.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from fmq.errors import Damaged
from fmq.store.columns import COUNT_MAX
from fmq.store.kinds import Decided, Run
from fmq.store.segment import segment_name

MAGIC = b"fmqI"
FORMAT = 1
HEAD = Struct("<4sIIIIIII16sQQ")
LANE = Struct("<QQqqIHBB")
HEAD_BYTES = HEAD.size
CRC_END = 8
ELSEWHERE = 1
SKIPPED_MAX = 1 << 16  # entries; more messages no segment holds
NOWHERE = 0  # in a segment: there lies its header, and no record
assert HEAD_BYTES == 64, "the table above counts on it"

LaneKey = tuple[str, int]


class BadIndex(Exception):
    """The bytes are no sound index; it can be built again from its segment."""


class Lane:
    """The runs of one queue in one segment."""

    __slots__ = (
        *("base", "bodies", "counts", "first", "first_us", "last_us", "next", "records", "starts"),
    )

    def __init__(self, first: int, first_us: int, base: int) -> None:
        self.base = base  # of the segment
        self.first = first
        self.next = first
        self.first_us = first_us
        self.last_us = first_us
        self.starts = array("Q")  # offset of each run, less `first`
        self.counts = array("I")
        self.records = array("I")  # place of the publishing record in the segment
        self.bodies = self.records  # place of the record that holds the bodies: mostly that one

    def part_bodies(self) -> None:
        """From now on some of the bodies lie elsewhere: they take a column of their own."""
        if self.bodies is self.records:
            self.bodies = self.records[:]

    def find(self, offset: int) -> int:
        """The number of the entry that holds `offset`."""
        return bisect_right(self.starts, offset - self.first) - 1


class LaneSummary(NamedTuple):
    """What the table of lanes says of one queue."""

    first: int
    next: int
    first_us: int
    last_us: int


class SegmentIndex:
    """The index of the segment at `base`."""

    __slots__ = (
        "_decisions",
        "_found",
        "_more_decisions",
        "base",
        "end",
        "lanes",
        "outcome_keys",
        "outcome_places",
        "saved",
        "saved_outcomes",
    )

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        self.lanes: dict[LaneKey, Lane] = {}
        self.outcome_keys = array("I")  # in the order of the decisions
        self.outcome_places = array("I")
        # Of those that were there when somebody last looked for one, the place of the first that
        # has a key, and of the others, as when two ids have one key.
        self._found = 0
        self._decisions: dict[int, int] = {}
        self._more_decisions: dict[int, list[int]] = {}
        self.saved: dict[LaneKey, int] = {}  # entries of each lane that are in the part
        self.saved_outcomes = 0

    def add(self, run: Run) -> None:
        """`run` has been published by the record at its position; Damaged if its offsets have been
        before.
        """
        lane = self.lane_of(run.topic, run.queue, run.offset, run.time_us)
        if run.offset != lane.next:
            self._skip(lane, run)
        place = run.position - self.base
        body_place = run.body_position - self.base if run.body_position else place
        if body_place != place:
            lane.part_bodies()
        lane.starts.append(run.offset - lane.first)
        lane.counts.append(run.count)
        if lane.bodies is not lane.records:
            lane.bodies.append(body_place)
        lane.records.append(place)
        lane.next = run.offset + run.count
        lane.last_us = run.time_us

    def _skip(self, lane: Lane, run: Run) -> None:
        """What lies between the lane's end and `run` was not met: whoever reads there is told."""
        entries = -(-(run.offset - lane.next) // COUNT_MAX)
        if not 0 < entries <= SKIPPED_MAX:
            where = f"{run.topic}/{run.queue} offset {run.offset}"
            reason = f"a second record of {where}" if entries <= 0 else f"{where} is far off"
            raise Damaged(segment_name(self.base), run.position, reason)
        lane.part_bodies()
        while lane.next < run.offset:
            missing = min(run.offset - lane.next, COUNT_MAX)
            lane.starts.append(lane.next - lane.first)
            lane.counts.append(missing)
            lane.records.append(NOWHERE)
            lane.bodies.append(NOWHERE)
            lane.next += missing

    def lane_of(self, topic: str, queue: int, offset: int, time_us: int) -> Lane:
        """The lane of a queue, which begins with messages from `offset` on if there is none."""
        lane = self.lanes.get((topic, queue))
        if lane is None:
            lane = self.lanes[topic, queue] = Lane(offset, time_us, self.base)
        return lane

    def add_outcome(self, decided: Decided) -> None:
        """`decided` ends a transaction."""
        self.add_outcome_at(decided.tx_id, decided.position)

    def add_outcome_at(self, tx_id: str, position: int) -> None:
        """The record at `position` ends the transaction."""
        # Places first: only what has a key is found, also if an interrupt comes in between.
        self.outcome_places.append(position - self.base)
        self.outcome_keys.append(outcome_key(tx_id))

    def _find_new_outcomes(self) -> None:
        """Take in what was decided since somebody last looked: most decide more than they ask."""
        keys, places = self.outcome_keys[self._found :], self.outcome_places[self._found :]
        for key, place in zip(keys, places, strict=False):
            if self._decisions.setdefault(key, place) != place:
                self._more_decisions.setdefault(key, []).append(place)
        self._found += len(keys)

    def find_outcomes(self, tx_id: str) -> list[int]:
        """Positions of decisions that may be those of `tx_id`, the newest first."""
        self._find_new_outcomes()
        key = outcome_key(tx_id)
        first = self._decisions.get(key)
        if first is None:
            return []
        return [self.base + place for place in (*self._more_decisions.get(key, ())[::-1], first)]

    def summary(self) -> dict[LaneKey, LaneSummary]:
        return {
            key: LaneSummary(lane.first, lane.next, lane.first_us, lane.last_us)
            for key, lane in self.lanes.items()
        }

    # --- as bytes ---------------------------------------------------------------------------

    def encode(self, store: bytes) -> bytes:
        """The whole index as one block."""
        return self._encode(store, {}, 0)

    def encode_unsaved(self, store: bytes) -> bytes:
        """What came since the last call of `mark_saved`, as one block."""
        return self._encode(store, self.saved, self.saved_outcomes)

    def mark_saved(self) -> None:
        """Everything known now is in the part."""
        self.saved = {key: len(lane.counts) for key, lane in self.lanes.items()}
        self.saved_outcomes = len(self.outcome_keys)

    def _encode(self, store: bytes, saved: dict[LaneKey, int], outcomes_saved: int) -> bytes:
        table: list[bytes] = []
        body: list[bytes] = []
        for (topic, queue), lane in sorted(self.lanes.items()):
            start = saved.get((topic, queue), 0)
            entries = len(lane.counts) - start
            if not entries:
                continue
            records, bodies = lane.records[start:], lane.bodies[start:]
            flags = 0 if records == bodies else ELSEWHERE
            first, name = lane.first + lane.starts[start], topic.encode()
            times = lane.first_us, lane.last_us
            table.append(LANE.pack(first, lane.next, *times, entries, queue, flags, len(name)))
            table.append(name)
            body += lane.counts[start:].tobytes(), records.tobytes()
            if flags:
                body.append(bodies.tobytes())
        keys = self.outcome_keys[outcomes_saved:]
        body += keys.tobytes(), self.outcome_places[outcomes_saved:].tobytes()
        return self._frame(store, b"".join(table), len(table) // 2, b"".join(body), len(keys))

    def _frame(self, store: bytes, table: bytes, lanes: int, body: bytes, outcomes: int) -> bytes:
        head = HEAD.pack(
            MAGIC,
            0,
            HEAD_BYTES + len(table),
            crc32(body),
            len(body),
            lanes,
            outcomes,
            FORMAT,
            store,
            self.base,
            self.end,
        )
        crc = crc32(table, crc32(head[CRC_END:]))
        return b"".join((MAGIC, crc.to_bytes(4, "little"), head[CRC_END:], table, body))


def outcome_key(tx_id: str) -> int:
    """What stands for a tx_id in an index; the record itself tells whether it is the one."""
    return crc32(tx_id.encode())


# --- reading ------------------------------------------------------------------------------------


class BlockHead(NamedTuple):
    """The front of a block, checked; sizes are believed only against the bytes there are."""

    head_size: int
    body_crc: int
    body_size: int
    outcomes: int
    base: int
    end: int
    lanes: list[tuple[LaneKey, LaneSummary, int, int]]
    """Key, summary, entries, flags."""

    @property
    def size(self) -> int:
        return self.head_size + self.body_size


def head_size_of(data: bytes) -> int:
    """How many bytes the front of the block takes, not checked yet; BadIndex."""
    if len(data) < HEAD_BYTES or data[:4] != MAGIC:
        raise BadIndex("no index begins here")
    return int.from_bytes(data[8:12], "little")


def block_size_of(front: bytes) -> int:
    """How many bytes the block takes that begins with `front`, which has been checked."""
    return head_size_of(front) + int.from_bytes(front[16:20], "little")


def decode_head(data: bytes, at: int, store: bytes, base: int) -> BlockHead:
    """The front of the block at `data[at]`; BadIndex."""
    try:
        magic, crc, head_size, body_crc, body_size, lanes, outcomes, version, says, where, end = (
            HEAD.unpack_from(data, at)
        )
    except StructError:
        raise BadIndex("shorter than an index") from None
    if magic != MAGIC or head_size < HEAD_BYTES or at + head_size > len(data):
        raise BadIndex("no index begins here")
    if crc32(data[at + CRC_END : at + head_size]) != crc:
        raise BadIndex("the head's checksum does not match")
    if version != FORMAT or says != store or where != base:
        raise BadIndex("the index of another segment, store or format")
    try:
        table = _decode_lanes(data[at + HEAD_BYTES : at + head_size], lanes)
    except (StructError, UnicodeDecodeError) as error:
        raise BadIndex(f"a table of an unknown shape: {error}") from None
    return BlockHead(head_size, body_crc, body_size, outcomes, where, end, table)


def _decode_lanes(data: bytes, lanes: int) -> list[tuple[LaneKey, LaneSummary, int, int]]:
    found = []
    at = 0
    for _ in range(lanes):
        first, after, first_us, last_us, entries, queue, flags, size = LANE.unpack_from(data, at)
        at += LANE.size
        topic = data[at : at + size].decode()
        at += size
        summary = LaneSummary(first, after, first_us, last_us)
        found.append(((topic, queue), summary, entries, flags))
    return found


def decode_blocks(data: bytes, store: bytes, base: int) -> SegmentIndex:
    """The index that one or more blocks, one after the other, make up; BadIndex."""
    index = SegmentIndex(base)
    for head, body in _blocks(data, store, base):
        if head.end < index.end:
            raise BadIndex("a block that was there before the one in front of it")
        try:
            _add_block(index, head, body)
        except OverflowError:
            raise BadIndex("more messages in it than a segment can hold") from None
    index.mark_saved()
    return index


def decode_outcomes(data: bytes, store: bytes, base: int) -> tuple[array[int], array[int]]:
    """Of the same blocks only the keys of what was decided, and the places; BadIndex."""
    keys, places = array("I"), array("I")
    for head, body in _blocks(data, store, base):
        column = _Take(body)
        column.skip(sum(entries * (3 if flags & ELSEWHERE else 2)
                        for _, _, entries, flags in head.lanes))  # fmt: skip
        keys.extend(column(head.outcomes))
        places.extend(column(head.outcomes))
    return keys, places


def _blocks(data: bytes, store: bytes, base: int) -> Iterator[tuple[BlockHead, memoryview]]:
    """The blocks that `data` is made of, each with its body, checked; BadIndex."""
    if not data:
        raise BadIndex("an empty file")
    at = 0
    while at < len(data):
        head = decode_head(data, at, store, base)
        body = memoryview(data)[at + head.head_size : at + head.size]
        if len(body) != head.body_size or crc32(body) != head.body_crc:
            raise BadIndex("the checksum of its entries does not match")
        yield head, body
        at += head.size


def _add_block(index: SegmentIndex, head: BlockHead, body: memoryview) -> None:
    column = _Take(body)
    for key, summary, entries, flags in head.lanes:
        lane = index.lanes.get(key)
        if lane is None:
            lane = index.lanes[key] = Lane(summary.first, summary.first_us, index.base)
        if lane.next != summary.first:
            raise BadIndex(f"{key[0]}/{key[1]} does not follow on")
        counts = column(entries)
        starts = list(accumulate(counts, initial=summary.first - lane.first))
        if starts.pop() != summary.next - lane.first or 0 in counts:
            raise BadIndex(f"{key[0]}/{key[1]} does not add up")
        records = column(entries)
        lane.starts.extend(starts)
        lane.counts.extend(counts)
        if flags & ELSEWHERE:
            lane.part_bodies()
        if lane.bodies is not lane.records:
            lane.bodies.extend(column(entries) if flags & ELSEWHERE else records)
        lane.records.extend(records)
        lane.next = summary.next
        lane.last_us = summary.last_us
    index.outcome_keys.extend(column(head.outcomes))
    index.outcome_places.extend(column(head.outcomes))
    index.end = head.end


class _Take:
    """Hands out the columns of a body, one after the other."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def skip(self, entries: int) -> None:
        """Leave out so many entries."""
        self._at += 4 * entries

    def __call__(self, entries: int) -> array[int]:
        end = self._at + 4 * entries
        if end > len(self._body):
            raise BadIndex("a column is cut short")
        column = array("I")
        column.frombytes(self._body[self._at : end])
        self._at = end
        return column
