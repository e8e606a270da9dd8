"""The bytes of an index. The index of a sealed segment is one block. The `.part` file of the
segment being written has several blocks, each with what was added since the block before.

    offset  size  field
         0     4  magic       b"fmqI"
         4     4  head_crc    CRC-32 from here to the end of the table of lanes
         8     4  head_size   bytes from the start to the end of the table of lanes
        12     4  body_crc    CRC-32 of all that follows the table
        16     4  body_size
        20     4  lanes
        24     4  outcomes
        28     4  format      2; 1 is read, and has no chain: its table begins at 64
        32    16  store
        48     8  base        of the segment
        56     8  end         the index knows the segment up to here
        64     4  chain       of a sealed segment: checksum as in the header of the next one; else 0
        68     4  ids         bytes of the table of ids
        72     *  a lane each: u64 first offset, u64 next offset, i64 first and last time,
                  u32 entries, u16 queue, u8 flags (1: bodies lie elsewhere), u8 bytes of the
                  topic, the topic
  head_size    *  for each lane u32 x entries: messages in the run, then the publishing
                  record's place in the segment, then, with the flag, the body's; then
                  u32 x outcomes: CRC-32 of the tx_id, and the deciding record's place; then the
                  table of ids, as id_table.py has it, if there are any

A block states its size, which is believed only when its checksum is right.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from fmq.store.index.id_table import BadIds, IdTable
from fmq.store.index.index import Lane, LaneSummary, QueueKey, SegmentIndex

MAGIC = b"fmqI"
FORMAT = 2
HEAD_1 = Struct("<4sIIIIIII16sQQ")  # the fields of format 1, with which later formats begin
HEAD = Struct("<4sIIIIIII16sQQII")
CHAIN = Struct("<II")
LANE = Struct("<QQqqIHBB")
HEAD_BYTES = HEAD.size
CRC_END = 8
ELSEWHERE = 1
assert HEAD_BYTES == HEAD_1.size + CHAIN.size == 72, "the table above counts on it"


class BadIndex(Exception):
    """Raised for bytes that are not a sound index. The index can be built again from its
    segment.
    """


def encode_index(index: SegmentIndex, store: bytes) -> bytes:
    """Return the whole index as one block."""
    return _encode(index, store, {}, 0, 0)


def encode_unsaved(index: SegmentIndex, store: bytes) -> bytes:
    """Return what was added since the last `index.mark_saved`, as one block."""
    saved = index.saved, index.saved_outcomes, index.saved_ids
    return _encode(index, store, *saved)


def _encode(
    index: SegmentIndex,
    store: bytes,
    saved: dict[QueueKey, int],
    outcomes_saved: int,
    ids_saved: int,
) -> bytes:
    table: list[bytes] = []
    body: list[bytes] = []
    for (topic, queue), lane in sorted(index.lanes.items()):
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
    keys = index.outcome_keys[outcomes_saved:]
    body += keys.tobytes(), index.outcome_places[outcomes_saved:].tobytes()
    ids = index.ids.encode(ids_saved) if len(index.ids) > ids_saved else b""
    body.append(ids)
    what = b"".join(table), len(table) // 2, b"".join(body), len(keys), len(ids)
    return _frame(index, store, *what)


def _frame(
    index: SegmentIndex,
    store: bytes,
    table: bytes,
    lanes: int,
    body: bytes,
    outcomes: int,
    ids: int,
) -> bytes:
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
        index.base,
        index.end,
        index.chain,
        ids,
    )
    crc = crc32(table, crc32(head[CRC_END:]))
    return b"".join((MAGIC, crc.to_bytes(4, "little"), head[CRC_END:], table, body))


class BlockHead(NamedTuple):
    """The front of a block, verified. Its sizes are checked against the bytes that there are."""

    head_size: int
    body_crc: int
    body_size: int
    outcomes: int
    base: int
    end: int
    chain: int
    ids: int
    lanes: list[tuple[QueueKey, LaneSummary, int, int]]
    """Key, summary, entries, flags."""

    @property
    def size(self) -> int:
        return self.head_size + self.body_size


def head_size_of(data: bytes) -> int:
    """Return the size of the front of a block, before verifying it. Raises BadIndex."""
    if len(data) < HEAD_1.size or data[:4] != MAGIC:
        raise BadIndex("no index begins here")
    return int.from_bytes(data[8:12], "little")


def block_size_of(front: bytes) -> int:
    """Return the size of the whole block with the verified front `front`."""
    return head_size_of(front) + int.from_bytes(front[16:20], "little")


def decode_head(data: bytes, at: int, store: bytes, base: int, chain: int = 0) -> BlockHead:
    """Return the front of the block at `data[at]`. Raises BadIndex.

    `chain` is the checksum of the segment's records, if it is known.
    """
    try:
        magic, crc, head_size, body_crc, body_size, lanes, outcomes, version, says, where, end = (
            HEAD_1.unpack_from(data, at)
        )
    except StructError:
        raise BadIndex("shorter than an index") from None
    if magic != MAGIC or head_size < HEAD_1.size or at + head_size > len(data):
        raise BadIndex("no index begins here")
    if crc32(data[at + CRC_END : at + head_size]) != crc:
        raise BadIndex("the head's checksum does not match")
    if version not in (1, FORMAT) or says != store or where != base:
        raise BadIndex("the index of another segment, store or format")
    try:
        table_at, said, ids = at + HEAD_1.size, 0, 0
        if version > 1:
            said, ids = CHAIN.unpack_from(data, table_at)
            table_at += CHAIN.size
        if said and chain not in (said, 0):
            raise BadIndex("the index of another copy of this segment")
        table = _decode_lanes(data[table_at : at + head_size], lanes)
    except (StructError, UnicodeDecodeError) as error:
        raise BadIndex(f"a table of an unknown shape: {error}") from None
    if ids > body_size:
        raise BadIndex("a table of ids that is larger than the block")
    return BlockHead(head_size, body_crc, body_size, outcomes, where, end, said, ids, table)


def _decode_lanes(data: bytes, lanes: int) -> list[tuple[QueueKey, LaneSummary, int, int]]:
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


def decode_blocks(data: bytes, store: bytes, base: int, chain: int = 0) -> SegmentIndex:
    """Return the index in one or more blocks. Raises BadIndex."""
    index = SegmentIndex(base)
    for head, body in _blocks(data, store, base, chain):
        if head.end < index.end:
            raise BadIndex("a block that was there before the one in front of it")
        try:
            _add_block(index, head, body)
        except BadIds as error:
            raise BadIndex(str(error)) from None
        except OverflowError:
            raise BadIndex("more messages in it than a segment can hold") from None
        index.chain = head.chain
    index.mark_saved()
    return index


def decode_outcomes(
    data: bytes, store: bytes, base: int, chain: int = 0
) -> tuple[array[int], array[int]]:
    """Return only the keys and places of the decisions in the blocks. Raises BadIndex."""
    keys, places = array("I"), array("I")
    for head, body in _blocks(data, store, base, chain):
        column = _Take(body)
        column.skip(sum(entries * (3 if flags & ELSEWHERE else 2)
                        for _, _, entries, flags in head.lanes))  # fmt: skip
        keys.extend(column(head.outcomes))
        places.extend(column(head.outcomes))
    return keys, places


def decode_ids_of(data: bytes, store: bytes, base: int, chain: int = 0) -> IdTable:
    """Return only the ids in the blocks. Raises BadIndex."""
    table = IdTable(base)
    for head, body in _blocks(data, store, base, chain):
        if head.ids:
            try:
                table.extend(body[len(body) - head.ids :])
            except BadIds as error:
                raise BadIndex(str(error)) from None
    return table


def _blocks(
    data: bytes, store: bytes, base: int, chain: int
) -> Iterator[tuple[BlockHead, memoryview]]:
    """Yield the blocks in `data`, each with its verified body. Raises BadIndex."""
    if not data:
        raise BadIndex("an empty file")
    at = 0
    while at < len(data):
        head = decode_head(data, at, store, base, chain)
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
    if head.ids:
        index.ids.extend(body[len(body) - head.ids :])
    index.end = head.end


class _Take:
    """Reads the columns of a block's body, one after another."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def skip(self, entries: int) -> None:
        """Skip `entries` entries."""
        self._at += 4 * entries

    def __call__(self, entries: int) -> array[int]:
        end = self._at + 4 * entries
        if end > len(self._body):
            raise BadIndex("a column is cut short")
        column = array("I")
        column.frombytes(self._body[self._at : end])
        self._at = end
        return column
