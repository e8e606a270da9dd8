"""Compares an index with the segment beside it, by one record.

If an engine has written to a copy of the directory, a segment there and ours begin with the same
bytes. From the point where they part, every record differs. So if the last message in the index is
the one in the segment, all messages before it are right, too. Only records of the same place and
microsecond cannot be told apart; `fmq.check` compares the checksums of all.
"""

from __future__ import annotations

from contextlib import suppress
from zlib import crc32

from fmq.errors import Damaged
from fmq.machine.disk import Directory, File
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.record import BadRecord, Misplaced, Newer
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.files import read_head
from fmq.store.journal.segment import OTHER_COPY, segment_name

HEAD_READ_BYTES = 128


def check_beside(index: SegmentIndex, directory: Directory, store: bytes) -> None:
    """Raise Damaged if the last message in `index` is not the one in its segment in `directory`.

    A segment that cannot be opened proves nothing, so nothing is raised.
    """
    with suppress(OSError):
        file = directory.open(segment_name(index.base))
        try:
            check_same(index, file, store)
        finally:
            file.close()


def check_same(index: SegmentIndex, file: File, store: bytes) -> None:
    """Raise Damaged if the last message in `index` is not the one in `file`, its segment.

    A record that is not sound proves nothing here. Those that read it get the error.
    """
    if not index.lanes:
        return
    key, lane = max(index.lanes.items(), key=lambda item: item[1].records[-1])
    place = lane.records[-1]
    position = index.base + place
    data = read_head(file, place, HEAD_READ_BYTES)
    try:
        run = decode(data, 0, position, crc32(store), bodies=False)
    except (BadRecord, Misplaced, Newer):
        return
    known = *key, lane.next, lane.last_us
    if not isinstance(run, Run) or known != _place_and_time(run):
        raise Damaged(segment_name(index.base), position, OTHER_COPY)


def _place_and_time(run: Run) -> tuple[str, int, int, int]:
    return run.topic, run.queue, run.offset + run.count, run.time_us
