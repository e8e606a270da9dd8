"""The index of one segment: where its messages are, and which transactions were decided in it.

There is a lane for each queue that the segment holds. A lane has columns with one entry for each
run of messages, sorted by offset. A message is found by bisecting the segments and then the entries
of a lane. index_blocks.py knows the bytes of an index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple
from zlib import crc32

from fmq.errors import Damaged
from fmq.store.bytes.columns import COUNT_MAX
from fmq.store.bytes.kinds import Decided, Run
from fmq.store.index.id_table import IdTable
from fmq.store.journal.segment import segment_name

SKIPPED_MAX = 1 << 16  # no entry stands for more messages
NOWHERE = 0  # no record can be at place 0, where the header is

QueueKey = tuple[str, int]


class Lane:
    """The runs of one queue in one segment."""

    __slots__ = (
        *("base", "bodies", "counts", "first", "first_us", "last_us", "next", "records", "starts"),
    )

    def __init__(self, first: int, first_us: int, base: int) -> None:
        self.base = base  # the base of the segment
        self.first = first
        self.next = first
        self.first_us = first_us
        self.last_us = first_us
        self.starts = array("Q")  # offset of each run, less `first`
        self.counts = array("I")
        self.records = array("I")  # place of the record that publishes the run
        # The place of the record that has the bodies. Usually that record publishes the run, too,
        # so both names are for one column.
        self.bodies = self.records

    def part_bodies(self) -> None:
        """Make a column of its own for the places of bodies, because some are in other records."""
        if self.bodies is self.records:
            self.bodies = self.records[:]

    def find(self, offset: int) -> int:
        """Return the number of the entry that holds `offset`."""
        return bisect_right(self.starts, offset - self.first) - 1


NO_LANE = Lane(0, 0, -1)


class LaneSummary(NamedTuple):
    """An entry of the table of lanes: what a segment holds of one queue."""

    first: int
    next: int
    first_us: int
    last_us: int


class OutOfLine(Exception):
    """Raised for a run that does not follow the last run of its queue."""


class SegmentIndex:
    """The index of the segment at `base`."""

    __slots__ = (
        "_decisions",
        "_found",
        "_more_decisions",
        "base",
        "begins_anew",
        "chain",
        "end",
        "ids",
        "is_live",
        "lanes",
        "outcome_keys",
        "outcome_places",
        "saved",
        "saved_ids",
        "saved_outcomes",
    )

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        self.chain = 0  # the checksum of the segment's records; 0 if it is not known
        self.lanes: dict[QueueKey, Lane] = {}
        self.outcome_keys = array("I")  # the keys of outcomes, in the order of the decisions
        self.outcome_places = array("I")
        # As of the last look-up: for each key the place of its first decision, and the places of
        # further decisions with the same key.
        self._found = 0
        self._decisions: dict[int, int] = {}
        self._more_decisions: dict[int, list[int]] = {}
        # How many entries of each lane are in the `.part` file.
        self.saved: dict[QueueKey, int] = {}
        self.saved_outcomes = 0
        self.ids = IdTable(base)
        self.saved_ids = 0
        # True if a running engine adds to the index. Then no run can be missing.
        self.is_live = False
        # True if the `.part` file has lanes that do not exist any more.
        self.begins_anew = False

    def add(self, run: Run, lane: Lane = NO_LANE) -> Lane:
        """Add `run`, which the record at its position publishes. Return the lane of its queue.

        `lane` is what this has returned for the last run of the queue, even in another segment.
        Raises Damaged if the offsets are known already. In a running engine it raises OutOfLine if
        offsets are missing: then the state is wrong, and the engine ends.
        """
        if lane.base != self.base:
            lane = self._lane_of(run)
        offset = run.offset
        if offset != lane.next:
            if self.is_live:
                where = f"{run.topic}/{run.queue}"
                raise OutOfLine(f"{where} goes on at {run.offset}, and ends at {lane.next}")
            self._skip(lane, run)
        if run.body_position:
            lane.part_bodies()
        count = run.count
        lane.starts.append(offset - lane.first)
        lane.counts.append(count)
        if lane.bodies is not lane.records:
            lane.bodies.append((run.body_position or run.position) - lane.base)
        lane.records.append(run.position - lane.base)
        lane.next, lane.last_us = offset + count, run.time_us
        if run.extension:
            self.ids.add_run(run)
        return lane

    def _lane_of(self, run: Run) -> Lane:
        """Return the lane of the queue of `run`. If there is none, make one that begins
        with `run`.
        """
        key = run.topic, run.queue
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(run.offset, run.time_us, self.base)
        return lane

    def _skip(self, lane: Lane, run: Run) -> None:
        """Add an entry for messages between the last run and `run` that were not met. Reading them
        raises Damaged.
        """
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

    def forget(self, topic: str) -> None:
        """Drop the lanes of a topic that is deleted here. The part has to be written anew."""
        for key in [key for key in self.lanes if key[0] == topic]:
            del self.lanes[key]
            self.begins_anew = True

    def add_outcome(self, decided: Decided) -> None:
        """Note the place of the decision `decided`."""
        self.outcome_places.append(decided.position - self.base)
        self.outcome_keys.append(outcome_key(decided.tx_id))

    def _find_new_outcomes(self) -> None:
        """Index the decisions that were noted since the last look-up. A look-up does this, because
        most programs decide more often than they look up an outcome.
        """
        keys, places = self.outcome_keys[self._found :], self.outcome_places[self._found :]
        for key, place in zip(keys, places, strict=False):
            if self._decisions.setdefault(key, place) != place:
                self._more_decisions.setdefault(key, []).append(place)
        self._found += len(keys)

    def find_outcomes(self, tx_id: str) -> list[int]:
        """Return positions of decisions that may be those of `tx_id`, the newest first."""
        self._find_new_outcomes()
        key = outcome_key(tx_id)
        first = self._decisions.get(key)
        if first is None:
            return []
        return [self.base + place for place in (*self._more_decisions.get(key, ())[::-1], first)]

    def summary(self) -> dict[QueueKey, LaneSummary]:
        return {
            key: LaneSummary(lane.first, lane.next, lane.first_us, lane.last_us)
            for key, lane in self.lanes.items()
        }

    def mark_saved(self) -> None:
        """Note that everything known now is in the `.part` file."""
        self.saved = {key: len(lane.counts) for key, lane in self.lanes.items()}
        self.saved_outcomes, self.saved_ids = len(self.outcome_keys), len(self.ids)

    def mark_unsaved(self) -> None:
        """Note that the `.part` file has nothing of this index."""
        self.saved, self.saved_outcomes, self.saved_ids = {}, 0, 0

    @property
    def is_empty(self) -> bool:
        """Return whether the index has nothing to save."""
        return not (self.lanes or self.outcome_keys or len(self.ids))


def outcome_key(tx_id: str) -> int:
    """Return the key of a tx_id in indexes. Several ids may have one key: the record decides."""
    return crc32(tx_id.encode())
