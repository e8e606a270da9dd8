"""The index entries of a part of a segment, as columns in the order of commits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmq.store.index.index import Lane, LaneSummary, QueueKey, SegmentIndex
from fmq.table.selection import Selection

Column = NDArray[Any]


class RunEntries(NamedTuple):
    """Runs of messages, sorted by the places of the records that publish them."""

    places: Column
    """Where in the segment the publishing record lies."""
    holders: Column
    """Where the record lies that holds the bodies; mostly the same."""
    stops: Column
    """Where the holder ends at the latest."""
    counts: Column
    offsets: Column
    """Offset of the first message of each run."""
    lanes: Column
    """The number of its queue in `keys`."""
    keys: list[QueueKey]

    def __len__(self) -> int:
        return len(self.places)


def entries_of(
    index: SegmentIndex, wanted: Selection, start: int, stop: int, data_end: int
) -> RunEntries:
    """Return the runs that may be wanted and are published between the places `start` and `stop`.

    `data_end` is the place where the records of the segment end.
    """
    keys: list[QueueKey] = []
    parts: list[Column] = []
    for key, lane in index.lanes.items():
        if wanted.lane(key, LaneSummary(lane.first, lane.next, lane.first_us, lane.last_us)):
            parts.append(_of_lane(lane, wanted, start, stop, len(keys)))
            keys.append(key)
    if not parts:
        parts = [np.empty((5, 0), np.int64)]
    found = np.concatenate(parts, axis=1)
    places, holders, counts, offsets, lanes = found[:, np.argsort(found[0], kind="stable")]
    begins = _all_places(index, data_end)
    stops = begins[np.searchsorted(begins, holders, side="right")]
    return RunEntries(places, holders, stops, counts, offsets, lanes, keys)


def _of_lane(lane: Lane, wanted: Selection, start: int, stop: int, number: int) -> Column:
    """Return five rows, one column for each run: place, holder, count, offset, and the lane's
    number.
    """
    low = max(lane.find(max(wanted.offset.low, lane.first)), 0)
    high = lane.find(min(wanted.offset.high, lane.next - 1)) + 1
    # Within a queue, offsets and places have the same order.
    places = np.frombuffer(lane.records, np.uint32)[low:high].astype(np.int64)
    first, last = np.searchsorted(places, (start, stop))
    part = slice(low + int(first), low + int(last))
    return np.stack(
        (
            places[first:last],
            np.frombuffer(lane.bodies, np.uint32)[part].astype(np.int64),
            np.frombuffer(lane.counts, np.uint32)[part].astype(np.int64),
            np.frombuffer(lane.starts, np.uint64)[part].astype(np.int64) + lane.first,
            np.full(last - first, number, np.int64),
        )
    )


def _all_places(index: SegmentIndex, data_end: int) -> Column:
    """Return the places where the index knows that a record begins, sorted, and the end of the last
    record.
    """
    columns = [np.frombuffer(lane.records, np.uint32) for lane in index.lanes.values()]
    columns += [
        np.frombuffer(lane.bodies, np.uint32)
        for lane in index.lanes.values()
        if lane.bodies != lane.records
    ]
    columns.append(np.array([data_end], np.uint32))
    return np.sort(np.concatenate(columns), kind="stable").astype(np.int64)
