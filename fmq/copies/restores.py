"""Makes a directory of a backup, as of its instant or of an earlier one.

The segments get their names last, and the first of them when the names of all others are durable.
So a run that is killed leaves a directory that no engine opens, and never one that looks whole and
lacks its end.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from fmq.arguments.path import PathLike, check_local, text_of
from fmq.basics.clock import as_us
from fmq.copies import contents
from fmq.copies.backups import Progress
from fmq.copies.contents import Contents, SegmentCopy
from fmq.copies.places import address_of, place_to_read
from fmq.copies.segments import NEW, Segments, clear, copy, name_segments, prove
from fmq.copies.ship_pieces import ShippingPlace
from fmq.copies.shipped import shipped
from fmq.errors import BackupRefused, BadOption, Damaged
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory, Disk
from fmq.posix import RealDisk
from fmq.store.bytes.kinds import Carryover, Record
from fmq.store.journal.scan import end_of
from fmq.store.journal.segment import HEADER_BYTES, segment_name
from fmq.tx.ledger.carryover import check_carried, from_json


@dataclass(frozen=True, slots=True)
class Restored:
    """What a call of `fmq.restore` has made."""

    path: str
    """The new directory."""
    position: int
    """The position up to which its journal goes."""
    segments: int
    bytes: int
    """How much of the journal it holds."""


def restore(
    backup: str | PathLike,
    path: str | PathLike,
    *,
    to: int | datetime | None = None,
    progress: Progress | None = None,
    disk: Disk | None = None,
) -> Restored:
    """Make the new directory `path` of the backup in the directory `backup`, or of what was shipped
    there, or to an address such as s3://bucket/shop.

    It is the journal as of the backup, or up to the position or the time `to`: of each append, all
    or nothing. Raises BackupRefused or Damaged. After an error or an interrupt `path` holds no file
    of it.
    """
    source_path, where = address_of(text_of(backup)), check_local(text_of(path))
    disk = disk or RealDisk()
    with unreadable_within(source_path), closing(place_to_read(source_path, disk)) as source:
        files, held = shipped(source) or _backed_up(source)
        limit = _limit(source_path, held, to)
        with unreadable_within(where), closing(disk.directory(where, make=True)) as directory:
            if names := directory.names():
                raise BackupRefused(
                    f"{where}: holds {min(names)!r}, and a backup is restored to a new or empty "
                    "directory. Nothing was changed. Name another one."
                )
            try:
                return _RestoreRun(files, held, directory, limit, progress).go()
            except BaseException:
                clear(directory)
                raise


def _backed_up(place: ShippingPlace) -> tuple[Directory, Contents]:
    """Return the backup in a directory. Raises BackupRefused if there is none."""
    held = None if place.directory is None else contents.read(place.directory)
    if place.directory is None or held is None:
        raise BackupRefused(
            f"{place.path}: holds no {contents.NAME} and nothing that was shipped, so it is no "
            "backup, or one that was never finished. Nothing was changed. Name a directory that "
            "fmq.backup() has made, or where fmq.ship() ships to."
        )
    return place.directory, held


class _Limit:
    """The end of a restore: tells for each append whether it is still wanted."""

    def __init__(self, position: int, time_us: int | None) -> None:
        self.position = position
        self.time_us = time_us

    def admits(self, append: list[Record]) -> bool:
        """Return whether `append` lies before the limit as a whole."""
        if self.time_us is not None and append[0].time_us > self.time_us:
            return False
        return end_of(append) <= self.position


def _limit(path: str, held: Contents, to: int | datetime | None) -> _Limit:
    """Return the limit that the argument `to` names: a position, a time, or the end of the backup
    if it is None. Raises BadOption if the backup does not hold that position.
    """
    if to is None:
        return _Limit(held.position, None)
    if isinstance(to, datetime):
        return _Limit(held.position, as_us(to))
    first = held.pieces[0].base + HEADER_BYTES
    if type(to) is not int or not first <= to <= held.position:
        raise BadOption(
            f"to={to!r}: {path} holds the positions from {first} to {held.position}. Nothing "
            "was changed."
        )
    return _Limit(to, None)


class _RestoreRun:
    """One run, which copies segment by segment until the limit."""

    def __init__(
        self,
        source: Segments,
        held: Contents,
        target: Directory,
        limit: _Limit,
        progress: Progress | None,
    ) -> None:
        self._source, self._held, self._target = source, held, target
        self._limit = limit
        self._progress = progress or (lambda done, total: None)
        self._store = bytes.fromhex(held.store)
        self._is_settled = held.pieces[0].base == 0  # True once it is known how the journal begins
        self._is_over = False
        self._done = 0

    def go(self) -> Restored:
        made: list[SegmentCopy] = []
        for piece in self._held.pieces:
            end = self._find_end(piece)
            if made and end == piece.base + HEADER_BYTES and self._is_over:
                break
            self._copy(piece, end)
            made.append(piece._replace(end=end))
            if self._is_over:
                break
        if not self._is_settled:
            self._refuse_to_begin_late()
        name_segments(self._target, [piece.base for piece in made])
        size = sum(piece.end - piece.base for piece in made)
        return Restored(self._target.path, made[-1].end, len(made), size)

    def _find_end(self, piece: SegmentCopy) -> int:
        """Read a segment of the backup up to the limit, with all checksums. Return its end."""
        name = segment_name(piece.base)
        proof = prove(self._source, name, self._store, piece.base, piece.end, self._see)
        whole = not self._is_over and not proof.damage
        if proof.damage or (whole and proof.chain != piece.chain):
            reason = proof.damage or "its records are not those of the backup"
            raise Damaged(f"{self._source.path}/{name}", proof.end, reason)
        return proof.end

    def _see(self, append: list[Record]) -> bool:
        if not self._limit.admits(append):
            self._is_over = True
            return False
        for record in append:
            if type(record) is Carryover and not self._is_settled:
                floor = check_carried(from_json(record.json))["floor"]
                self._is_settled = floor >= self._held.pieces[0].base
        return True

    def _copy(self, piece: SegmentCopy, end: int) -> None:
        """Copy a segment up to `end`, under a name that no engine reads."""
        name, new = segment_name(piece.base), segment_name(piece.base, NEW)
        with (
            closing(self._source.open(name)) as source,
            closing(self._target.create(new)) as target,
        ):
            target.allocate(piece.capacity)
            copy(source, target, 0, end - piece.base, self._count)
            target.sync()
        proof = prove(self._target, new, self._store, piece.base, end)
        if proof.damage:
            raise Damaged(f"{self._target.path}/{new}", proof.end, proof.damage)

    def _count(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self._held.bytes)

    def _refuse_to_begin_late(self) -> None:
        """Raise BackupRefused: the journal up to the limit begins with segments that the backup
        does not have.
        """
        raise BackupRefused(
            f"{self._source.path}: as of that moment the journal began with segments that "
            "retention had dropped before the backup was made, so the backup does not have them. "
            "Nothing was restored. Name a later position or time."
        )
