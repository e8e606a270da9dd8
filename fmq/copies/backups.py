"""Makes a backup of a journal, or adds to it what is new, while an engine goes on writing.

A backup is the journal as it was at one instant: what was proven durable then, and nothing else.
The engine is not asked and not slowed down: retention is kept from dropping what is copied, and
the bytes below the instant never change. Each copied segment is read once more, with all checksums.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from fmq.arguments.path import PathLike, check_local, text_of
from fmq.basics.clock import Clock, SystemClock
from fmq.copies import contents
from fmq.copies.contents import Contents, SegmentCopy
from fmq.copies.segments import copy, prove
from fmq.errors import BackupRefused
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory, Disk, File
from fmq.posix import RealDisk
from fmq.recovery.checkpoint import SLOTS
from fmq.recovery.follow import Follower
from fmq.recovery.layout import LOCK, look_for_journal
from fmq.recovery.segment_pin import pin
from fmq.store.journal.segment import OTHER_RECORDS, Segment, is_segment, segment_name

BUSY = contents.NAME + ".lock"  # pinned while a backup is made
Progress = Callable[[int, int], object]
"""Is called with the bytes that are copied, and with those that there are to copy."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a call of `fmq.backup` has made."""

    path: str
    """Where the backup is."""
    position: int
    """The position in the journal up to which the backup goes."""
    segments: int
    bytes: int
    """How much of the journal the backup holds."""
    copied_bytes: int
    """How much this call has added to it."""
    problems: tuple[str, ...]
    """What is damaged in the journal, and so in the backup. All else is whole."""


def backup(
    path: str | PathLike,
    destination: str | PathLike,
    *,
    progress: Progress | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Backup:
    """Copy to the directory `destination` what the backup there lacks of the journal at `path`, as
    it is now.

    It is made if it is not there. An engine may have `path` open, in any process of this machine.
    Raises BackupRefused, and changes nothing, if `destination` holds something else, or more.
    """
    where = check_local(text_of(path))
    return back_up(where, destination, progress, disk or RealDisk(), clock or SystemClock())


def back_up(
    where: str,
    destination: str | PathLike,
    progress: Progress | None,
    disk: Disk,
    clock: Clock,
    store: str | None = None,
) -> Backup:
    """Do what `backup` does. With `store`, a UUID as hexadecimal digits, only of that journal."""
    target = check_local(text_of(destination))
    with unreadable_within(where), closing(disk.directory(where, make=False)) as source:
        look_for_journal(source, where, "back up")
        with ExitStack() as stack, unreadable_within(target):
            journal = _see(source, stack)
            if store not in (None, journal.store.hex()):
                raise BackupRefused(
                    f"{where}: is the store {journal.store.hex()} here, and the engine process "
                    f"serves {store}: it sees other files under this path, as in a container. "
                    "Nothing was changed. Run fmq backup where that process runs."
                )
            directory = stack.enter_context(closing(disk.directory(target, make=True)))
            stack.enter_context(_alone(directory))
            run = _BackupRun(journal, source, directory, progress or _quiet)
            return run.go(clock.time_us())


class _Extent(NamedTuple):
    """A segment of the journal as it is backed up."""

    segment: Segment
    end: int
    sealed: bool


class _Journal(NamedTuple):
    """A journal at one instant: what of it was proven durable."""

    store: bytes
    position: int
    extents: list[_Extent]
    erased: dict[int, int]
    """The base of each segment in which messages were erased -> the position of the last ERASE."""


def _see(source: Directory, stack: ExitStack) -> _Journal:
    """Return the journal in `source`. Retention drops nothing of it until `stack` ends."""
    while True:
        with closing(Follower(source, threading.RLock(), undecided=False)) as follower:
            if follower.damage is not None:
                raise follower.damage
            ledger, position = follower.ledger, follower.ledger.shown_to
            kept = [each for each in follower.segments if each.limit > ledger.floor]
            last = ledger.index.base
            extents = [
                _Extent(each, each.end if each.base < last else position, each.base < last)
                for each in kept
                if each.base <= last
            ]
            if pin(source, segment_name(extents[0].segment.base), stack):
                erased = dict(ledger.erasures.segments)
                return _Journal(follower.store, position, extents, erased)


def _quiet(done: int, total: int) -> None:
    """Show no progress."""


@contextmanager
def _alone(directory: Directory) -> Iterator[None]:
    """Let no other process write to the same backup while the block runs."""
    try:
        file = directory.create(BUSY)
    except FileExistsError:
        file = directory.open(BUSY, write=True)
    with closing(file):
        if not file.pin(exclusive=True):
            raise BackupRefused(
                f"{directory.path}: another process is just making this backup. Nothing was "
                "changed. Call again when it is done."
            )
        yield


class _BackupRun:
    """One run of a backup: the segments that it has to copy, and how far it has come."""

    def __init__(
        self, journal: _Journal, source: Directory, target: Directory, progress: Progress
    ) -> None:
        self._journal, self._source, self._target = journal, source, target
        self._progress = progress
        self._problems: list[str] = []
        self._done = self._total = 0

    def go(self, taken_us: int) -> Backup:
        journal, target = self._journal, self._target
        before = contents.read(target)
        self._check(before)
        known = {piece.base: piece for piece in before.pieces} if before else {}
        names = set(target.names())
        since = before.position if before else 0
        starts = [(each, self._start(each, known, names, since)) for each in journal.extents]
        self._total = sum(each.end - start for each, start in starts)
        pieces = [self._piece(each, start, known) for each, start in starts]
        if self._total or before is None or len(pieces) != len(before.pieces):
            target.sync()
            made = Contents(journal.store.hex(), journal.position, taken_us, tuple(pieces))
            contents.write(target, made)
            self._remove_dropped(made)
        else:
            made = before
        problems = tuple(self._problems)
        return Backup(target.path, made.position, len(pieces), made.bytes, self._total, problems)

    def _check(self, before: Contents | None) -> None:
        """Raise BackupRefused unless the target is empty, or an older backup of this journal."""
        path, journal = self._target.path, self._journal
        names = set(self._target.names())
        if names & {LOCK, *SLOTS}:
            raise BackupRefused(
                f"{path}: an engine writes, or has written, to this directory, so it is no backup. "
                "Nothing was changed. Name another directory for the backup."
            )
        if before is None:
            foreign = [each for each in sorted(names) if each not in OURS and not is_segment(each)]
            if foreign:
                raise BackupRefused(
                    f"{path}: holds {foreign[0]!r}, which is of no backup. Nothing was changed. "
                    "Name a new or empty directory."
                )
        elif before.store != journal.store.hex():
            raise BackupRefused(
                f"{path}: is the backup of another journal, of the store {before.store}. Nothing "
                "was changed. Name another directory."
            )
        elif before.position > journal.position:
            raise BackupRefused(
                f"{path}: goes up to the position {before.position}, and {self._source.path} only "
                f"to {journal.position}: that is an older copy of the journal. Nothing was "
                "changed. Name another directory, so that nothing newer is lost."
            )

    def _start(
        self, extent: _Extent, known: dict[int, SegmentCopy], names: set[str], since: int
    ) -> int:
        """Return the position from which on the segment has to be copied. The backup went up to
        `since`. A segment in which messages were erased after that is copied as a whole.

        Raises BackupRefused if it has another segment of this place.
        """
        base = extent.segment.base
        name = segment_name(base)
        piece = known.get(base)
        erased_since = self._journal.erased.get(base, -1) >= since
        if piece is None or piece.damage or name not in names or erased_since:
            return base
        chain = extent.segment.chain
        if not extent.sealed or piece.end < extent.end:
            chain = prove(self._source, name, self._journal.store, base, piece.end).chain
        if (piece.epoch, piece.chain) != (extent.segment.epoch, chain) or piece.end > extent.end:
            raise BackupRefused(
                f"{self._target.path}: its {name} is not that of {self._source.path}, which went "
                "another way after it was copied or restored. Nothing was changed. Name another "
                "directory for the backup."
            )
        return piece.end

    def _piece(self, extent: _Extent, start: int, known: dict[int, SegmentCopy]) -> SegmentCopy:
        """Copy what is missing of a segment, make it durable and prove it."""
        segment, end = extent.segment, extent.end
        if start == end:
            return known[segment.base]
        name = segment_name(segment.base)
        with closing(self._source.open(name)) as source, closing(self._open(name)) as target:
            # Full size, so that the backup can be read like any journal.
            target.allocate(segment.capacity)
            copy(source, target, start - segment.base, end - segment.base, self._count)
            target.sync()
        proof = prove(self._target, name, self._journal.store, segment.base, end)
        damage = proof.damage
        if not damage and extent.sealed and proof.chain != segment.chain:
            damage = OTHER_RECORDS
        if damage:
            self._problems.append(f"{name}, position {proof.end}: {damage}")
        return SegmentCopy(segment.base, segment.capacity, end, proof.chain, segment.epoch, damage)

    def _open(self, name: str) -> File:
        """Return the file of a segment of the backup, which may not be there yet."""
        try:
            return self._target.open(name, write=True)
        except FileNotFoundError:
            return self._target.create(name)

    def _count(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._total)

    def _remove_dropped(self, made: Contents) -> None:
        """Remove the segments that retention has dropped since the last backup."""
        kept = {segment_name(piece.base) for piece in made.pieces}
        dropped = [each for each in self._target.names() if is_segment(each) and each not in kept]
        for name in dropped:
            self._target.remove(name)
        if dropped:
            self._target.sync()


OURS = {contents.NAME, contents.NEW, BUSY}
