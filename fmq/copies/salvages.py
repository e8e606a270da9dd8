"""Makes a new directory of all that is sound in a damaged one, which stays as it is.

Every sound append keeps its position, so offsets, transactions, timers and references stay what
they are. In the place of damaged records there is a HOLE, and a STATE at the end says what is known
of topics, groups, acks and marks, so the new directory is a journal like any other.

An append is there as a whole or not at all: one with a damaged head is left out, and named. If only
bodies are damaged, the append is kept, and reading those messages raises Damaged, as before.

The journal is read twice: once to find out what it says, and once to copy it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from fmq.arguments.path import PathLike, check_local, text_of
from fmq.basics.clock import Clock, SystemClock
from fmq.copies.damage_report import Findings, LostMessages, LostTransaction, UnsoundPlace
from fmq.copies.segments import NEW, clear, copy, name_segments
from fmq.copies.sift import Breach, Sift, TornFile
from fmq.copies.skeleton import Bone, Skeleton, skeleton_of
from fmq.errors import BackupRefused, Damaged, NotAStore
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory, Disk, File
from fmq.posix import RealDisk
from fmq.recovery.layout import look
from fmq.recovery.lock_check import at_rest
from fmq.recovery.recover import begin, check_ends
from fmq.store.bytes.encoding import encode_all, measured, size_of
from fmq.store.bytes.kinds import Carryover, Hole, Kind, Record
from fmq.store.bytes.record import FIRST, LAST, BadRecord
from fmq.store.journal.scan import Scan, end_of
from fmq.store.journal.segment import HEADER_BYTES, Header, segment_name
from fmq.tx.ledger.apply import apply
from fmq.tx.ledger.carryover import carried_of, to_json
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.ledger.timers import Timers
from fmq.tx.ledger.transitions import OUTSIDE, show

HOLE_BYTES_MIN = measured([Hole(b"", 0)])
HOLE_BYTES_MAX = 1 << 26
STATE_CAPACITY_MIN = 1 << 13
AGAIN_MAX = 1000  # how often the journal is read anew because a record was refused halfway
Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What `fmq.salvage` has made, and what it has found."""

    path: str
    """The new directory."""
    segments: int
    bytes: int
    """How much of the journal was sound."""
    messages: int
    """How many messages can be read in the new directory."""
    undecided: int
    tail_bytes: int
    """Bytes after the last whole append, which nothing proves durable. They were left out, as a
    recovery does.
    """
    lost: tuple[LostMessages, ...]
    transactions: tuple[LostTransaction, ...]
    problems: tuple[UnsoundPlace, ...]

    @property
    def ok(self) -> bool:
        """Return whether nothing was damaged."""
        return not (self.lost or self.transactions or self.problems)


def salvage(
    path: str | PathLike,
    new: str | PathLike,
    *,
    progress: Progress | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Salvaged:
    """Copy all that is sound in the directory `path` to the directory `new`, which is new or empty,
    and say what is not. In `path` nothing is changed.

    Raises Locked if an engine has `path` open, Damaged if nothing tells which journal it was,
    BackupRefused if `new` holds something. After an error `new` holds no journal.
    """
    source_path, where = check_local(text_of(path)), check_local(text_of(new))
    disk = disk or RealDisk()
    with unreadable_within(source_path), closing(disk.directory(source_path, make=False)) as source:
        with suppress(Damaged):
            look(source)  # look before locking: fmq locks nothing in a foreign directory
        with at_rest(source):
            layout = look(source)
            if layout.fresh:
                raise NotAStore(
                    f"{source_path}: no journal was ever begun here, so there is nothing to "
                    "salvage. Nothing was changed. Name the directory that cannot be opened."
                )
            skeleton = skeleton_of(source, layout)
            with unreadable_within(where), closing(disk.directory(where, make=True)) as target:
                if names := target.names():
                    raise BackupRefused(
                        f"{where}: holds {min(names)!r}, and a salvage is written to a new or "
                        "empty directory. Nothing was changed. Name another one."
                    )
                epoch = int.from_bytes(disk.random(4), "little")
                now_us = (clock or SystemClock()).time_us()
                run = _Salvage(source, skeleton, target, epoch, progress or (lambda *_: None))
                try:
                    return run.go(now_us)
                except BaseException:
                    clear(target)
                    raise


class _Salvage:
    """One run: what the journal says, what of it is sound, and how far the copy has come."""

    def __init__(
        self,
        source: Directory,
        skeleton: Skeleton,
        target: Directory,
        epoch: int,
        progress: Progress,
    ) -> None:
        self._source, self._target, self._epoch = source, target, epoch
        self._skeleton, self._progress = skeleton, progress
        self._store, self._seed = skeleton.store, zlib.crc32(skeleton.store)
        self._total = 2 * sum(bone.capacity for bone in skeleton.bones)
        self._done = 0
        # Appends that a replay refuses, by position, with the reason.
        self._refused: dict[int, str] = {}

    def go(self, now_us: int) -> Salvaged:
        for _ in range(AGAIN_MAX):
            try:
                self._read()
                break
            except _Again:
                self._done = 0
        else:
            reason = f"{len(self._refused):,} records contradict those before them"
            raise Damaged(segment_name(self._skeleton.bones[0].base), 0, reason)
        first = self._skeleton.bones[0].base
        self._begins_late = first > self._ledger.floor
        made = self._write(now_us)
        self._prove()
        found, ledger = self._findings, self._ledger
        for file, position, what in self._skeleton.problems:
            found.problems.append(UnsoundPlace(file, position, what))
        if self._begins_late:
            what = "the segments before it are missing"
            found.problems.append(UnsoundPlace(segment_name(first), first, what))
        lost = found.lost(ledger)
        held = sum(queue.end - queue.first for each in ledger.own_topics() for queue in each.queues)
        return Salvaged(
            path=self._target.path,
            segments=made,
            bytes=self._sound_bytes,
            messages=held - sum(each.messages for each in lost if not each.is_internal),
            undecided=len(ledger.undecided),
            tail_bytes=self._cut,
            lost=tuple(lost),
            transactions=tuple(found.transactions(ledger)),
            problems=tuple(found.problems),
        )

    # --- reading ----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read all segments, and apply what is sound in the order of the journal. Raises _Again if
        an append was refused after a part of it was applied, or is damaged: the ledger must then be
        built anew without it.
        """
        first = self._skeleton.bones[0].base
        self._ledger = ledger = Ledger(first)
        ledger.shown_to = ledger.end = first + HEADER_BYTES
        ledger.known_from = first
        ledger.unsettled = first > 0
        ledger.timers = Timers(first)
        self._findings = Findings()
        self._gaps: dict[int, list[Breach]] = {}
        self._ends: dict[int, int] = {}
        self._turned: dict[int, int] = {}
        self._sound_bytes = self._cut = 0
        checkpoint = self._skeleton.checkpoint
        # The checkpoint has the state that records in gaps below it have changed.
        self._carried_at = checkpoint.applied_upto if checkpoint else 0
        self._is_carried = False
        for bone in self._skeleton.bones:
            ledger.enter_segment(bone.base)
            ledger.sealed.clear()  # no message is looked up, so indexes are not needed
            self._findings.file = segment_name(bone.base)
            gaps = self._gaps[bone.base] = []
            for piece in self._pieces(bone):
                start = piece.start if isinstance(piece, Breach) else piece[0].position
                self._carry_below(start)
                if isinstance(piece, Breach):
                    self._skip(piece, gaps)
                    continue
                try:
                    self._apply(piece)
                except IllegalStep as error:
                    self._refused[start] = str(error)
                    if not error.is_first:
                        raise _Again from None
                    self._skip(Breach(start, end_of(piece), str(error), tuple(piece)), gaps)
                except Damaged as error:
                    self._refused[start] = error.reason
                    raise _Again from None
        self._carry_below(self._carried_at)

    def _pieces(self, bone: Bone) -> Iterator[list[Record] | Breach]:
        """Yield the appends and gaps of one segment. Each append that was refused before is a
        gap.
        """
        start, is_last = bone.base + HEADER_BYTES, bone is self._skeleton.bones[-1]
        self._ends[bone.base] = start
        if not bone.is_there:
            yield Breach(start, bone.limit, "the segment is missing")
            self._ends[bone.base] = start
            return
        with closing(TornFile(self._source.open(segment_name(bone.base)))) as file:
            limit = bone.end if bone.end is not None and not is_last else bone.limit
            proven = self._skeleton.durable_to if is_last else None
            sift = Sift(file, bone.base, limit, self._seed, proven)
            for piece in sift:
                if isinstance(piece, Breach):
                    yield piece
                elif piece[0].position in self._refused:
                    at = piece[0].position
                    yield Breach(at, end_of(piece), self._refused[at], tuple(piece))
                else:
                    self._findings.damaged.update(sift.damaged)
                    self._ledger.damaged.update(sift.damaged)
                    self._sound_bytes += end_of(piece) - piece[0].position
                    yield piece
                self._ends[bone.base] = sift.end
            self._turned.update(sift.turned)
            for position in sift.turned:
                what = "one bit of a head had turned, and was turned back"
                name = segment_name(bone.base)
                self._findings.problems.append(UnsoundPlace(name, position, what))
            self._cut += sift.cut
        self._count(bone.capacity)

    def _apply(self, append: list[Record]) -> None:
        try:
            apply(self._ledger, append, end_of(append))
        except BadRecord as error:
            raise IllegalStep(str(error)) from None
        show(self._ledger, self._ledger.end)
        self._findings.note(append)

    def _skip(self, gap: Breach, gaps: list[Breach]) -> None:
        """Note a gap, and let the ledger know that records are missing."""
        gaps.append(gap)
        self._findings.note_gap(gap, is_known=gap.end <= self._carried_at)
        hole = Hole(b"", self._ledger.last_us)
        hole.position, hole.size = gap.start, gap.end - gap.start
        apply(self._ledger, [hole], end_of([hole]))
        show(self._ledger, self._ledger.end)

    def _carry_below(self, position: int) -> None:
        """Take over what the checkpoint says, once, when all below it was applied and something of
        that is missing.
        """
        checkpoint = self._skeleton.checkpoint
        if checkpoint is None or self._is_carried or position < self._carried_at:
            return
        self._is_carried = True
        if any(self._gaps.values()):
            state = Carryover(to_json(checkpoint.ledger), self._ledger.last_us)
            with suppress(IllegalStep):  # the checkpoint is of another future of the journal
                OUTSIDE[Kind.STATE](self._ledger, state)

    def _count(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)

    # --- writing ----------------------------------------------------------------------------------

    def _write(self, now_us: int) -> int:
        """Write the new segments, durably, and give them their names. Return how many there are."""
        header = Header(self._store, 0, 0, 0, 0, self._epoch)
        bases: list[int] = []
        end = chain = 0
        for bone in self._skeleton.bones:
            header = header._replace(
                base=bone.base, capacity=bone.capacity, previous_end=end, previous_chain=chain
            )
            end, chain = self._copy(bone, header)
            bases.append(bone.base)
            self._count(bone.capacity)
        if self._is_damaged():
            header = header._replace(
                base=header.base + header.capacity, previous_end=end, previous_chain=chain
            )
            self._write_state(header, now_us)
            bases.append(header.base)
        name_segments(self._target, bases)
        return len(bases)

    def _is_damaged(self) -> bool:
        """Return whether a STATE has to say what is left. Such a STATE also proves that all before
        it had been durable, so that damage in the last append is not taken for a torn write.
        """
        found, ledger = self._findings, self._ledger
        gaps = any(self._gaps.values())
        return gaps or bool(found.damaged) or ledger.unsettled or self._begins_late

    def _copy(self, bone: Bone, header: Header) -> tuple[int, int]:
        """Write one segment under a name that no engine reads. Return its end and its chain."""
        base, end = bone.base, self._ends[bone.base]
        new = segment_name(base, NEW)
        with closing(self._target.create(new)) as target:
            target.allocate(bone.capacity)
            target.write(0, (header.encode(),), sync=False)
            if bone.is_there:
                with closing(TornFile(self._source.open(segment_name(base)))) as source:
                    last = max([end, *(gap.end for gap in self._gaps[base])])
                    size = min(source.size(), last - base)
                    copy(source, target, HEADER_BYTES, size, lambda size: None)
            for position, byte in self._turned.items():
                if base <= position < base + bone.capacity:
                    target.write(position - base, (bytes((byte,)),), sync=False)
            for gap in self._gaps[base]:
                end = max(end, self._fill(gap, target, base))
            target.sync()
            scan = Scan(
                target, base, end, base + HEADER_BYTES, self._seed, 0, base + HEADER_BYTES,
                proven=bone.limit + 1,
            )  # fmt: skip
            for _ in scan:
                pass
        return end, scan.chain or 0

    def _fill(self, gap: Breach, target: File, base: int) -> int:
        """Write records over a gap, which keep its bytes as their content. Return their end."""
        at = gap.start
        while gap.end - at >= HOLE_BYTES_MIN:  # only free room at the end of a segment is smaller
            size = min(gap.end - at, HOLE_BYTES_MAX)
            if 0 < gap.end - at - size < HOLE_BYTES_MIN:
                size -= HOLE_BYTES_MIN
            hole = Hole(b"", 0)
            head_bytes = size_of(hole)
            content = target.read(at - base + head_bytes, size - head_bytes)
            hole.content = content.ljust(size - head_bytes, b"\0")
            hole.size, hole.flags = size_of(hole), FIRST | LAST
            buffers, _, at = encode_all([hole], at, self._ledger.last_us, at, self._seed, 0)
            target.write(hole.position - base, buffers, sync=False)
        return at

    def _write_state(self, header: Header, now_us: int) -> None:
        """Write a segment that has one STATE: what is known at the end of all that is sound."""
        ledger = self._ledger
        ledger.floor = max(ledger.floor, self._skeleton.bones[0].base)
        state = Carryover(to_json(carried_of(ledger)), 0)
        state.flags = FIRST | LAST
        size = measured([state])
        capacity = max(STATE_CAPACITY_MIN, 1 << (2 * size + HEADER_BYTES).bit_length())
        with closing(self._target.create(segment_name(header.base, NEW))) as target:
            target.allocate(capacity)
            target.write(0, (header._replace(capacity=capacity).encode(),), sync=False)
            at = header.base + HEADER_BYTES
            now_us = max(now_us, ledger.last_us)
            buffers, *_ = encode_all([state], at, now_us, at, self._seed, 0)
            target.write(HEADER_BYTES, buffers, sync=True)
            target.sync()

    def _prove(self) -> None:
        """Open the new journal as an engine does. Raises Damaged if that would be refused."""
        layout = look(self._target)
        replay = begin(self._target, layout, with_timers=True)
        try:
            replay.run()
            check_ends(replay, layout)
        finally:
            replay.ledger.timers.close()


class _Again(Exception):
    """Raised to read the journal anew, without the record that was refused."""
