"""Ships a journal to a place, on and on: what was proven durable, as pieces that never change.

The engine is not asked: the tool follows its files. What is shipped is a clean prefix at any
moment, each append as a whole, because a piece ends where a durable append does. The tool keeps no
state, so a tool or an engine that is killed leaves nothing to mend. It copies bytes and decodes no
record: a restore proves them.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from fmq.arguments.names import check_count, check_seconds
from fmq.arguments.path import PathLike, check_local, text_of
from fmq.copies.backups import Progress
from fmq.copies.holders import ShippingHolder, hold, release
from fmq.copies.places import address_of, place_to_ship_to
from fmq.copies.segments import BLOCK_BYTES, prove
from fmq.copies.ship_pieces import ShippedPiece, ShippingPlace, listing, ready_name, whole_run
from fmq.copies.shipped import ShippedSegments, header_of
from fmq.errors import BackupRefused, Damaged
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory, Disk, File
from fmq.posix import RealDisk
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.follow import Follower
from fmq.recovery.layout import known_segments, look, look_for_journal, read_header, store_of
from fmq.recovery.segment_pin import pin
from fmq.store.journal.durable_page import PageReader
from fmq.store.journal.segment import Segment

KEEP_BYTES = 1 << 30
logger = logging.getLogger("fmq.copies")


@dataclass(frozen=True, slots=True)
class Shipped:
    """What a call of `fmq.ship` has done."""

    path: str
    """The place."""
    position: int
    """The position in the journal up to which the place has it."""
    shipped_bytes: int
    """How much this call has added."""
    rounds: int
    """How often it has looked for more."""


def ship(
    path: str | PathLike,
    destination: str | PathLike,
    *,
    every: float | None = None,
    stop: threading.Event | None = None,
    keep_bytes: int = KEEP_BYTES,
    progress: Progress | None = None,
    disk: Disk | None = None,
) -> Shipped:
    """Copy to `destination`, a directory or an address such as s3://bucket/shop, what it lacks of
    the journal at `path`, and go on with that `every` so many seconds, until `stop` is set; without
    `every`, once.

    At any moment `fmq.restore` makes a directory of it: all that was durable up to some instant.
    Retention waits for it, also between calls, until the journal is `keep_bytes` ahead. Raises
    BackupRefused if `destination` holds something else, or what this journal has not.
    """
    where, target = check_local(text_of(path)), address_of(text_of(destination))
    wait = None if every is None else check_seconds("every", every)
    keep_bytes = check_count("keep_bytes", keep_bytes)
    disk, stop = disk or RealDisk(), stop or threading.Event()
    with unreadable_within(where), closing(disk.directory(where, make=False)) as source:
        look_for_journal(source, where, "ship")
        with (
            unreadable_within(target),
            closing(place_to_ship_to(target, disk)) as place,
            closing(Source(source)) as journal,
        ):
            run = Shipping(journal, place, keep_bytes)
            run.go_on(progress or (lambda done, total: None))
            while wait is not None and not stop.wait(wait):
                run.go_on(lambda done, total: None)
            if wait is not None:
                run.go_on(lambda done, total: None)  # ship what was sent before `stop` was set
            return Shipped(target, run.position, run.shipped_bytes, run.rounds)


def forget_shipping(
    path: str | PathLike, destination: str | PathLike, *, disk: Disk | None = None
) -> bool:
    """Have retention wait no more for what is shipped to `destination`. Return whether it did."""
    where, target = check_local(text_of(path)), address_of(text_of(destination))
    disk = disk or RealDisk()
    with unreadable_within(where), closing(disk.directory(where, make=False)) as source:
        return release(source, target)


class Look(NamedTuple):
    """A journal at one instant: what of it is durable."""

    position: int
    segments: list[Segment]
    """Those that hold something durable, oldest first, each with the end of that."""
    floor: int
    """Nothing below is needed, as far as is known."""
    erased: dict[int, int]
    """The base of each segment in which messages were erased -> the position of the last ERASE."""


class Source:
    """A journal that is shipped."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.store = store_of(directory, look(directory))
        self._page = PageReader(directory, self.store)

    def look(self) -> Look:
        """Return what is durable now. Raises Damaged."""
        # Read the page before the names of files. Then each segment below the position in the page
        # has a name.
        told = self._page.look()
        if told.durable_to:
            # Retention may be dropping a segment. If it is not, the code below raises the error.
            with suppress(FileNotFoundError, Damaged):
                return self._beside_the_page(told.durable_to)
        with closing(Follower(self.directory, threading.RLock(), undecided=False)) as follower:
            if follower.damage is not None:
                raise follower.damage
            ledger = follower.ledger
            erased = dict(ledger.erasures.segments)
            return _look(ledger.shown_to, follower.segments, ledger.floor, erased)

    def _beside_the_page(self, durable_to: int) -> Look:
        """Return the journal up to the position that the page of an engine and the checkpoints
        prove durable. No record is read, so the cost does not grow with the journal.
        """
        checkpoint = checkpoints.read(self.directory, self.store)
        segments = known_segments(self.directory, look(self.directory), checkpoint)
        if checkpoint is None:
            return _look(durable_to, segments, 0, {})
        ledger, position = checkpoint.ledger, max(durable_to, checkpoint.applied_upto)
        *_, erased = ledger.get("erased") or [[]]
        return _look(position, segments, ledger["floor"], dict(erased))

    def close(self) -> None:
        self._page.close()


def _look(position: int, segments: list[Segment], floor: int, erased: dict[int, int]) -> Look:
    found = [each for each in segments if each.base < position and each.limit > floor]
    for each in found[:-1]:
        each.end = min(each.end, position)
    found[-1].end = position
    return Look(position, found, floor, erased)


class Shipping:
    """A journal, a place, and how far the place has the journal."""

    def __init__(self, source: Source, place: ShippingPlace, keep_bytes: int) -> None:
        self._journal, self._source, self._place = source, source.directory, place
        self._keep_bytes = keep_bytes
        self.rounds = self.shipped_bytes = 0
        store = place.store()
        if store not in (None, source.store.hex()):
            raise BackupRefused(
                f"{place.path}: another journal is shipped here, of the store {store}. Nothing was "
                "changed. Name another directory."
            )
        place.take(source.store.hex())
        found = listing(place.names())
        self._generation, self._is_ready = max(found.generation, 1), found.is_ready
        self._others = found.others
        self._run = whole_run(found.pieces)
        self._held_at = -1
        kept = {piece for pieces in self._run for piece in pieces}
        self._stray = [piece.name for piece in found.pieces if piece not in kept]
        now = source.look()
        self._erased = now.erased
        self._compare(now)

    @property
    def position(self) -> int:
        """The position up to which the place has the journal; 0 if it has nothing."""
        return self._run[-1][-1].end if self._run else 0

    def _compare(self, now: Look) -> None:
        """Ship again the segments in which messages were erased. Raises BackupRefused if the place
        has something that this journal does not have.
        """
        known = {each.base: each for each in now.segments}
        if self._run and self._run[-1][0].base > now.segments[-1].base:
            raise self._refusal()
        for pieces in self._run:
            segment = known.get(pieces[0].base)
            if segment is not None and any(self._differs(segment, piece) for piece in pieces):
                self._put_erased(segment, pieces)

    def _differs(self, segment: Segment, piece: ShippedPiece) -> bool:
        with closing(self._source.open(segment.name)) as file:
            return _crc(file, piece.start - piece.base, piece.end - piece.base) != piece.crc

    def _put_erased(self, segment: Segment, pieces: list[ShippedPiece]) -> None:
        """Ship a segment again, if its pieces differ from it by what was erased. Raises
        BackupRefused if they differ by more: heads stay as they are.
        """
        name, store, end = segment.name, self._journal.store, pieces[-1].end
        here = prove(self._source, name, store, segment.base, end)
        there = prove(ShippedSegments(self._place, [pieces]), name, store, segment.base, end)
        if here.damage or there.damage or here.chain != there.chain:
            raise self._refusal()
        self._put_whole(segment, pieces)

    def _refusal(self) -> BackupRefused:
        return BackupRefused(
            f"{self._place.path}: has the journal up to the position {self.position}, and "
            f"{self._source.path} is an older copy of it, is damaged, or went another way after it "
            "was restored. Nothing was changed. Name another directory, so that nothing is lost."
        )

    def go_on(self, progress: Progress) -> None:
        """Ship what is new. Afterwards the place has all that is durable now."""
        self.rounds += 1
        now = self._journal.look()
        self._look_for_erased(now)
        # A file that is not needed any more may have messages that were erased since.
        is_clean = not (self._stray or self._others)
        if now.position <= self.position and self._is_ready and is_clean:
            return
        with ExitStack() as stack:
            missing, now = self._missing(now, stack)
            last = now.segments[-1].base
            total = sum(each.end - max(self.position, each.base) for each in missing)
            done = 0
            for segment in missing:
                done += self._ship(segment)
                if segment.base < last and len(self._run[-1]) > 1:
                    self._put_whole(segment, self._run[-1])
                progress(done, max(done, total))
        if not self._is_ready:
            self._place.put(ready_name(self._generation), [b""])
            self._is_ready = True
        self._clean_up(now.floor)
        self._hold(last)

    def _look_for_erased(self, now: Look) -> None:
        for segment in now.segments:
            if now.erased.get(segment.base) != self._erased.get(segment.base):
                for pieces in self._run:
                    if pieces[0].base == segment.base:
                        self._put_erased(segment, pieces)
        self._erased = now.erased

    def _missing(self, now: Look, stack: ExitStack) -> tuple[list[Segment], Look]:
        """Return the segments of which something is missing. Retention drops none of them until
        `stack` ends.
        """
        while True:
            here = self._run[-1][-1].base if self._run else -1
            last, is_in_pieces = now.segments[-1].base, bool(self._run) and len(self._run[-1]) > 1
            found = [each for each in now.segments if each.base >= here]
            if self._run and found[0].base > self._next_base(found[0]):
                self._begin_generation()
                continue
            if pin(self._source, found[0].name, stack):
                return [
                    each
                    for each in found
                    if each.base > here
                    or each.end > self.position
                    or (each.base < last and is_in_pieces)
                ], now
            now = self._journal.look()

    def _next_base(self, first: Segment) -> int:
        """Return the base of the oldest segment that is needed: the segment in which the place
        ends, or the next one, if the place has that segment as a whole.
        """
        last = self._run[-1][-1]
        if first.base == last.base:
            return first.base
        header = read_header(self._source, first.base)
        begins = header_of(ShippedSegments(self._place, self._run), last.base)
        is_next = last.base + begins.capacity == first.base and header.previous_end == last.end
        return first.base if is_next else last.base

    def _begin_generation(self) -> None:
        """Begin anew, because what comes next was dropped before it was shipped."""
        logger.warning(
            "%s: retention has dropped segments after the position %s before they were shipped to "
            "%s, so all is shipped anew",
            *(self._source.path, f"{self.position:,}", self._place.path),
        )
        names = [piece.name for pieces in self._run for piece in pieces]
        self._others += [*names, *([ready_name(self._generation)] if self._is_ready else [])]
        self._run, self._is_ready = [], False
        self._generation += 1

    def _ship(self, segment: Segment) -> int:
        """Put what is missing of a segment. Return its size."""
        pieces = self._run[-1] if self._run and self._run[-1][-1].base == segment.base else []
        start, end = pieces[-1].end if pieces else segment.base, segment.end
        if start >= end:
            return 0
        piece = self._put(segment, start, end)
        if pieces:
            pieces.append(piece)
        else:
            self._run.append([piece])
        self.shipped_bytes += end - start
        return end - start

    def _put(self, segment: Segment, start: int, end: int) -> ShippedPiece:
        low, high = start - segment.base, end - segment.base
        with closing(self._source.open(segment.name)) as file:
            crc = _crc(file, low, high)
            piece = ShippedPiece(self._generation, segment.base, start, end, crc)
            self._place.put(piece.name, _blocks(file, low, high))
        return piece

    def _put_whole(self, segment: Segment, pieces: list[ShippedPiece]) -> None:
        """Make one piece of what the place has of a segment."""
        whole = self._put(segment, segment.base, pieces[-1].end)
        self._stray += [piece.name for piece in pieces]
        pieces[:] = [whole]

    def _clean_up(self, floor: int) -> None:
        """Remove files that are not needed from the folder that is shipped to: pieces of segments
        below `floor`, pieces that are not part of the run, and files of earlier generations.
        """
        while len(self._run) > 1 and self._run[1][0].base <= floor:
            self._stray += [piece.name for piece in self._run.pop(0)]
        kept = {piece.name for pieces in self._run for piece in pieces}
        names = dict.fromkeys([*self._others, *self._stray])
        self._stray, self._others = [], []
        if names:
            there = {*self._place.names()} - kept
            self._place.remove(name for name in names if name in there)

    def _hold(self, base: int) -> None:
        """Have retention wait for what is not shipped yet."""
        if base != self._held_at:
            hold(self._source, ShippingHolder(self._place.path, base, self._keep_bytes))
            self._held_at = base


def _crc(file: File, start: int, end: int) -> int:
    crc = 0
    for block in _blocks(file, start, end):
        crc = zlib.crc32(block, crc)
    return crc


def _blocks(file: File, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of `file` from `start` to `end`."""
    while start < end:
        data = file.read(start, min(BLOCK_BYTES, end - start))
        if not data:
            raise OSError("a segment is shorter than its journal")
        yield data
        start += len(data)
