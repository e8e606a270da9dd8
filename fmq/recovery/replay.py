"""Applying the journal to a ledger, from a checkpoint or from the first segment on.

A replay can be continued: a read-only engine calls `run` again and again to follow a live journal.
Each run begins where the last one has ended.

This module reads the journal and decides which appends are applied. How an append changes the
ledger is in tx/ledger/apply.py.

After a checkpoint, the position of an append decides what is taken of it:

    from scan_from on       what may still be undecided (`collect`)
    from _timers_from on    messages that wait for their time, if a file of timers was lost
    from _index_from on     what the index needs, if the part file was lost
    from applied_from on    everything (`apply`)

Without a checkpoint all four are the beginning of the first segment.
"""

from __future__ import annotations

import zlib

from fmq.errors import Damaged, NewerFormat, Unreadable
from fmq.machine.disk import Directory, File
from fmq.recovery.checkpoint import PART, Checkpoint
from fmq.recovery.noted_attempts import NotedAttempts
from fmq.recovery.tail import SOUND, judge, refusal
from fmq.recovery.timer_files import carry_timers
from fmq.store.bytes.kinds import Carryover, Hole, Joint, Record
from fmq.store.bytes.record import BadRecord
from fmq.store.index.index import SegmentIndex
from fmq.store.index.index_blocks import BadIndex, decode_blocks
from fmq.store.index.index_check import check_beside
from fmq.store.journal.scan import Finding, Scan, ScanEnd, durable_beyond, end_of
from fmq.store.journal.segment import HEADER_BYTES, OTHER_RECORDS, Header, Segment, segment_name
from fmq.tx.ledger.apply import apply
from fmq.tx.ledger.apply_parts import apply_to_index, apply_to_timers, collect
from fmq.tx.ledger.carryover import carry, floor_of
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.ledger.timers import Timers
from fmq.tx.ledger.transitions import show


class Replay:
    """A replay, from a checkpoint to the end of the journal."""

    def __init__(
        self,
        directory: Directory,
        store: bytes,
        seed: int,
        segments: list[Segment],
        checkpoint: Checkpoint | None,
        *,
        with_timers: bool = False,
    ) -> None:
        """Without `with_timers`, leave out messages that wait for their time."""
        self._directory = directory
        self._with_timers = with_timers
        self.store = store
        self._seed = seed
        self.segments = segments
        self.checkpoint = checkpoint
        self.durable_to = 0
        # The durable end, as the page of an open engine says; 0 if no engine is open.
        self.told = 0
        # The end of the sound appends, including those that are not applied because nothing proves
        # them durable.
        self.sound_to = 0
        self.replayed_bytes = 0
        # The header that the last segment must get, because its own is damaged.
        self.new_header: Header | None = None
        # True if the engine was closed at the checkpoint, so that nothing comes after it.
        self.was_closed = False
        self.short: str | None = None  # the last segment, if its file is shorter than it was
        self.part_size = 0
        # Where a bit of a head has turned: the position of its byte, and what the byte was.
        self.turned: dict[int, int] = {}
        # A joint decision and its endings so far, for readers: they see none of it, or all.
        self._held: list[tuple[list[Record], Segment]] = []
        self._holds = False  # True in a replay for readers
        # An exception that stopped the replay in the middle of an append.
        self.interrupted_by: BaseException | None = None
        self.attempts = NotedAttempts()  # the attempts that only the page ATTEMPTS has
        # The identity of a file in which only zeros follow the last append.
        self._zeros_in: tuple[int, int] | None = None
        self.first = segments[0].base  # the base of the oldest segment in the directory
        if checkpoint is None:
            self._begin_at_first_segment()
        else:
            self._begin_at(checkpoint)
        self.ledger.timers.is_known = with_timers

    def _begin_at_first_segment(self) -> None:
        first = self.segments[0].base
        self.ledger = ledger = Ledger(first)
        self.scan_from = self.applied_from = first + HEADER_BYTES
        self._index_from = self._timers_from = self.applied_from
        ledger.shown_to = ledger.end = self.applied_from
        ledger.known_from = first
        # Older segments were dropped. A later STATE in the journal says what was in them.
        ledger.unsettled = first > 0

    def _begin_at(self, checkpoint: Checkpoint) -> None:
        self.scan_from, self.applied_from = checkpoint.scan_from, checkpoint.applied_upto
        base = self._segment_at(self.applied_from).base
        self.ledger = Ledger(base)
        carry(self.ledger, checkpoint.ledger)
        self.ledger.shown_to = self.ledger.end = self.applied_from
        self.durable_to = self._timers_from = self.applied_from
        if self._with_timers:
            self.ledger.timers = timers = Timers()
            if not carry_timers(timers, checkpoint.timers, self._directory, self.store):
                # The file of timers was lost. Each timer that waits still has its record in a
                # segment: read all.
                timers.known_from = self.segments[0].base
                self._timers_from = timers.known_from + HEADER_BYTES
        index = self._read_part(base, checkpoint.part_size)
        self._index_from = self.applied_from
        if index is None:
            index = SegmentIndex(base)
            self._index_from = base + HEADER_BYTES
        else:
            self.part_size = checkpoint.part_size
        self.ledger.index = index

    def forgo_undecided(self) -> None:
        """Read nothing before the checkpoint. Transactions that were undecided then stay unknown.

        Their decisions are applied all the same, as if their PREPAREs had been dropped.
        """
        self.scan_from = self.applied_from
        self.ledger.known_from = max(self.ledger.known_from, self.applied_from)

    def _segment_at(self, position: int) -> Segment:
        for segment in reversed(self.segments):
            if segment.base <= position:
                return segment
        raise Damaged(segment_name(position), position, "the segment is missing")

    def _read_part(self, base: int, size: int) -> SegmentIndex | None:
        """Return the part file that the checkpoint names; None if the index must be built again.
        Raises Damaged if the part is of another segment.
        """
        if not size:
            return None if self.applied_from > base + HEADER_BYTES else SegmentIndex(base)
        try:
            file = self._directory.open(segment_name(base, PART))
            try:
                data = file.read(0, size)
                if len(data) != size:
                    return None
                index = decode_blocks(data, self.store, base)
            finally:
                file.close()
        except (OSError, BadIndex):
            return None
        if index.end != self.applied_from:
            return None
        check_beside(index, self._directory, self.store)
        return index

    def resume(self, segments: list[Segment]) -> None:
        """Let the next run continue after what is applied. `segments` are the present ones."""
        self.segments = segments
        # If the segment of the index is still empty, all segments before it are applied.
        applied = max(self.ledger.shown_to, self.ledger.index.base + HEADER_BYTES)
        self.scan_from = self.applied_from = self._index_from = self._timers_from = applied
        self.checkpoint = None

    def prove(self, position: int) -> None:
        """Take everything below `position` as durable, as far as the known segments reach."""
        if position <= self.segments[-1].limit:
            self.durable_to = max(self.durable_to, position)

    def run(self, *, durable_only: bool = False) -> None:
        """Apply everything up to the end. Nothing is written. Raises Damaged or NewerFormat.

        With `durable_only`, appends at the tail that may not be durable are left out.
        """
        self._held, self._holds = [], durable_only
        start = min(self.scan_from, self.applied_from, self._index_from, self._timers_from)
        at = self.segments.index(self._segment_at(start))
        for number in range(at, len(self.segments)):
            segment = self.segments[number]
            position = max(start, segment.base + HEADER_BYTES)
            sealed = number < len(self.segments) - 1
            self._segment(segment, position, sealed=sealed, durable_only=durable_only)

    def _segment(
        self, segment: Segment, position: int, *, sealed: bool, durable_only: bool
    ) -> None:
        limit = segment.end if sealed else segment.limit
        file = self._directory.open(segment.name)
        try:
            growing = durable_only and not sealed
            if growing and max(position, self.applied_from) <= self.told <= limit:
                limit = self.told  # nothing beyond what the page says is durable yet
            proven = limit + 1 if sealed else self.durable_to
            scan = self._scan(file, segment, position, limit, proven, growing=growing)
            waiting = self._apply_all(scan, segment, hold=growing)
            ending = scan.ending
            assert ending is not None
            if self.was_closed and ending[:2] == (Finding.SHORT, self.applied_from):
                # The checkpoint of the close has the whole ledger. So the end that the file lacks
                # held only messages and free room.
                self.short, ending = segment.name, ending._replace(finding=Finding.ZEROS)
            if growing and ending.finding is Finding.ZEROS:
                self._zeros_in = file.identity()
            # A sealed segment was synced to its end before the next segment got its name.
            vouched = limit + 1 if sealed else max(self.durable_to, scan.durable_to)
            if ending.finding is Finding.BAD and not sealed:
                beyond = durable_beyond(file, segment.base, limit, ending.position, self._seed)
                vouched = max(vouched, beyond)
            vouched = max(vouched, self._proven_by_what_is_missing(waiting))
        finally:
            file.close()
        # A checkpoint may have proven more than the end of this segment.
        self.durable_to = max(self.durable_to, segment.end if sealed else vouched)
        for append in waiting:
            if end_of(append) <= vouched:
                self._apply(append, segment)
        self.sound_to = end_of(waiting[-1]) if waiting else 0
        self._judge(segment, ending, vouched)
        if sealed:
            if scan.chain not in (None, segment.chain):
                raise Damaged(segment.name, segment.base, OTHER_RECORDS)
        else:
            segment.end = ending.append_start
            assert durable_only or scan.chain is not None, "appends go on after a known chain"
            segment.chain = scan.chain or 0

    def _proven_by_what_is_missing(self, waiting: list[list[Record]]) -> int:
        """Return the end of the STATE in `waiting` that says why older segments are missing.

        That STATE was durable before the segments were removed, and so was everything before it.
        Return 0 if there is no such STATE, or none is needed.
        """
        if self.first <= self.ledger.floor and not self.ledger.unsettled:
            return 0
        for append in waiting:
            for record in append:
                if isinstance(record, Carryover) and floor_of(record) >= self.first:
                    return end_of(append)
        return 0

    def _scan(
        self, file: File, segment: Segment, position: int, limit: int, proven: int, *, growing: bool
    ) -> Scan:
        """Return a scan from `position`, with the checksum of the segment up to there.

        For a `growing` file, the bytes after the last append are read to the end of the file, until
        they were all zeros once. From then on the file is written front to back. So if a hole
        appears later, that is damage, and the next checkpoint or segment will show it.
        """
        chain, chain_at = 0, segment.base + HEADER_BYTES
        if position != chain_at and self.checkpoint is not None:
            chain, chain_at = self.checkpoint.chain, self.applied_from
        return Scan(
            file,
            segment.base,
            limit,
            position,
            self._seed,
            chain,
            chain_at,
            rest_was_zeros=growing and self._zeros_in == file.identity(),
            proven=proven,
        )

    def _apply_all(self, scan: Scan, segment: Segment, *, hold: bool) -> list[list[Record]]:
        """Apply the appends of `scan`. With `hold`, return the new ones without applying them."""
        if not self._held:
            self._enter(segment)
        waiting = []
        for append in scan:
            if scan.damaged:
                self._note_damaged(scan.damaged, segment)
            self.turned.update(scan.turned)
            if hold and append[0].position >= self.applied_from:
                waiting.append(append)
            else:
                self._apply(append, segment)
        return waiting

    def _enter(self, segment: Segment) -> None:
        if segment.base > self.ledger.index.base:
            self.ledger.enter_segment(segment.base)
            self.part_size = 0  # the checkpoint's part file belongs to the segment before

    def _note_damaged(self, damaged: dict[int, str], segment: Segment) -> None:
        """Note the messages whose bodies are damaged, in the words of an error."""
        for position, reason in damaged.items():
            what = f"{segment.name}, position {position}: {reason}"
            self.ledger.damaged.setdefault(position, what)

    def _apply(self, append: list[Record], segment: Segment) -> None:
        """Apply `append`. For readers, keep a joint decision until its last ending is there."""
        held, first = self._held, append[0]
        if not held and not (self._holds and type(first) is Joint):
            return self._apply_now(append, segment)
        held.append((append, segment))
        joint = held[0][0][0]
        if (
            first.position < self.applied_from
            or type(first) is Hole
            or (type(joint) is Joint and len(held) > len(joint.transactions))
        ):
            self._held = []
            for each, where in held:
                self._apply_now(each, where)
        return None

    def _apply_now(self, append: list[Record], segment: Segment) -> None:
        self._enter(segment)
        ledger = self.ledger
        position = append[0].position
        try:
            if position >= self.applied_from:
                if self.attempts.noted:
                    self.attempts.apply(ledger, position)
                apply(ledger, append, end_of(append))
                show(ledger, ledger.end)
                self.replayed_bytes += ledger.shown_to - position
                return
            if position >= self.scan_from:
                collect(ledger, append)
            if position >= self._timers_from:
                apply_to_timers(ledger, append)
            if position >= self._index_from and segment.base == ledger.index.base:
                apply_to_index(ledger.index, append)
            return
        except (IllegalStep, BadRecord) as error:
            reason = f"a sound record in a wrong place: {error}"
        except BaseException as error:
            self.interrupted_by = error
            raise
        raise Damaged(segment.name, position, reason)

    def _judge(self, segment: Segment, ending: ScanEnd, durable_to: int) -> None:
        verdict = judge(ending, durable_to)
        if verdict not in SOUND:
            raise refusal(segment.name, ending, verdict, durable_to)


def rebuild_index(directory: Directory, segment: Segment, store: bytes) -> SegmentIndex:
    """Return the index of a sealed segment, built from its records alone.

    Raises FileNotFoundError if the segment is gone, Unreadable, Damaged or NewerFormat.
    """
    try:
        return _rebuilt(directory, segment, store)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(f"{directory.path}/{segment.name}", error) from error


def _rebuilt(directory: Directory, segment: Segment, store: bytes) -> SegmentIndex:
    index = SegmentIndex(segment.base)
    file = directory.open(segment.name)
    try:
        start = segment.base + HEADER_BYTES
        where = file, segment.base, segment.end, start, zlib.crc32(store), 0, start
        scan = Scan(*where, proven=segment.limit + 1)
        for append in scan:
            apply_to_index(index, append)
    except BadRecord as error:
        raise Damaged(segment.name, append[0].position, str(error)) from None
    finally:
        file.close()
    ending = scan.ending
    assert ending is not None
    if ending.finding is Finding.NEWER:
        raise NewerFormat(segment.name, ending.position, ending.reason)
    if ending.finding is not Finding.END:
        raise Damaged(segment.name, ending.position, ending.reason)
    if scan.chain != segment.chain:
        raise Damaged(segment.name, segment.base, OTHER_RECORDS)
    index.end = segment.end
    return index
