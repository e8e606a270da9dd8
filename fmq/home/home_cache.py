"""The directory of this machine, as the cache of a home: before an engine reads it, its segments
are made equal to the home's, byte for byte.

The engine's bytes go into the home first, and into the cache without a sync. So after a power cut,
or after another machine had the home, a segment here may be old, torn or missing. It never has more
than the home. If it has, the home has lost what it had acknowledged.

The file HOME says to which home the directory belongs, and up to where the two were seen to agree.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from fmq.errors import HomeBehind, HomeRefused
from fmq.home.files_taken import Fetch, Wanted, take_files
from fmq.home.home_history import HomeAppend, HomeHistory, HomePiece, HomeSegment
from fmq.machine.disk import Directory, File, replace
from fmq.recovery.checkpoint import SLOTS, decode
from fmq.recovery.derived_files import is_of_one_checkpoint
from fmq.recovery.layout import HOME, HOME_NEW, look
from fmq.store.journal.segment import HEADER_BYTES, base_of, is_segment, segment_name

BLOCK_BYTES = 1 << 20
FILES_MAX = 16  # how many segments are open at a time


def check_is_cache(directory: Directory, address: str) -> None:
    """Raise HomeRefused or NotAStore unless `directory` is empty, or a cache."""
    if HOME not in directory.names() and not look(directory).fresh:
        raise HomeRefused(
            f"{directory.path}: has a journal of its own, and is no cache of {address}. Nothing "
            "was changed. Name a new or empty directory."
        )


def become_store(directory: Directory) -> None:
    """Make the cache a store of its own. What the home was answerable for is synced first."""
    for name in directory.names():
        if is_segment(name):
            with closing(directory.open(name, write=True)) as file:
                file.sync()
    directory.sync()
    directory.remove(HOME)
    directory.sync()


class HomeCache:
    """The files of one locked directory."""

    def __init__(self, directory: Directory, address: str) -> None:
        self.directory = directory
        self._address = address
        self._files: dict[int, File] = {}
        # Up to where its checkpoints know the journal, once that was looked at.
        self._upto: int | None = None
        # The segments of which nothing derived is left.
        self._bare: set[int] = set()
        self.said = self._read_said()
        """What HOME says; empty if there is no such file."""

    def _read_said(self) -> dict[str, Any]:
        if HOME not in self.directory.names():
            return {}
        with closing(self.directory.open(HOME)) as file, suppress(ValueError):
            said: dict[str, Any] = json.loads(file.read(0, file.size()))
            return said
        raise HomeRefused(
            f"{self.directory.path}: its file HOME is damaged, so it is not known whose cache this "
            f"is. Nothing was changed. Name an empty directory: {self._address} has all of it."
        )

    def note(self, history: HomeHistory) -> None:
        """Write HOME, durably: this directory agrees with the home up to the present slot."""
        said = {
            "home": history.home.hex(), "address": self._address,
            "next": history.next, "chain": history.chain.hex(),
            "owns": [*history.owns.items()][-1:],
        }  # fmt: skip
        replace(self.directory, HOME, HOME_NEW, json.dumps(said).encode())
        self.said = said

    def check_history(self, history: HomeHistory) -> None:
        """Raise HomeRefused if this directory is a cache of another home, or HomeBehind if a slot
        that it has seen has another entry now.
        """
        if self.said and self.said["home"] != history.home.hex():
            raise HomeRefused(
                f"{self.directory.path}: is the cache of another home, {self.said['address']}, "
                f"and not of {self._address}. Nothing was changed. Name a new or empty directory."
            )
        if history.next == self.said.get("next") and history.chain.hex() != self.said["chain"]:
            raise self.behind(f"slot {history.next - 1} has another entry than it had")
        # The floor may be far above the slot at which the two agreed. But OWNs are there for ever.
        for slot, chain in self.said.get("owns", ()):
            later = [each for each in history.owns if slot < each < self.said["next"]]
            if slot < history.next and (later or history.owns.get(slot) != chain):
                raise self.behind(f"slot {min(later, default=slot)} has another entry than it had")

    def behind(self, what: str) -> HomeBehind:
        return HomeBehind(self._address, self.directory.path, what)

    # --- making it equal --------------------------------------------------------------------------

    def restore(
        self, history: HomeHistory, fetch: Callable[[Sequence[Wanted]], Iterator[bytes]]
    ) -> None:
        """Write the pieces of a floor that are not here, or not as they should be."""
        lacking, names, new = list[tuple[int, HomePiece]](), {*self.directory.names()}, set[int]()
        for base, segment in history.segments.items():
            if segment_name(base) not in names:
                new.add(base)
            file = self._opened(base, segment.capacity)
            for piece in segment.pieces:
                size = piece.end - piece.start
                data = b"" if base in new else file.read(piece.start, size)
                if zlib.crc32(data) != piece.crc or len(data) < size:
                    lacking.append((base, piece))
        wanted = [Wanted(piece.key(base), piece.end - piece.start) for base, piece in lacking]
        for (base, piece), data in zip(lacking, fetch(wanted), strict=True):
            file = self._opened(base, history.segments[base].capacity)
            there = b"" if base in new else file.read(piece.start, len(data))
            self._note_lost(base, piece.start, there, data)
            file.write(piece.start, (data,), sync=False)

    def write(self, append: HomeAppend, segment: HomeSegment) -> None:
        """Write an append to its segment, unless it is there."""
        file = self._opened(append.base, segment.capacity)
        there = file.read(append.offset, len(append.data))
        if there != append.data:
            self._note_lost(append.base, append.offset, there, append.data)
            file.write(append.offset, (append.data,), sync=False)

    def _note_lost(self, base: int, offset: int, there: bytes, data: bytes) -> None:
        """Before `data` is written over what is `there`, remove all that was derived from bytes of
        another history, which a home that was put back from a backup has lost: if something else
        is there, or nothing where a checkpoint says that something was. After a power cut these may
        also be bytes of this history, and then a replay finds the same again.
        """
        if base in self._bare:
            return
        if self._upto is None:
            self._upto = self._applied_upto()
        claimed = max(0, self._upto - base - offset)
        if data.startswith(there.rstrip(b"\0")) and there[:claimed] == data[:claimed]:
            return
        of_segment = segment_name(base, ".")
        for name in self.directory.names():
            is_of_it = name.startswith(of_segment) and not is_segment(name)
            if name in SLOTS or is_of_one_checkpoint(name) or is_of_it:
                self.directory.remove(name)
        self.directory.sync()
        self._upto = 0
        self._bare.add(base)

    def _applied_upto(self) -> int:
        """Return up to where the checkpoints of this directory know the journal."""
        found = 0
        for name in {*SLOTS} & {*self.directory.names()}:
            with closing(self.directory.open(name)) as file:
                checkpoint = decode(file.read(0, file.size()))
            found = max(found, checkpoint.applied_upto if checkpoint else 0)
        return found

    def take_files(self, history: HomeHistory, fetch: Fetch) -> None:
        """Take the derived files of the home, as files_taken.py says."""
        self._upto = None
        self._bare.clear()
        take_files(self.directory, history, fetch)

    def _opened(self, base: int, capacity: int) -> File:
        """Return the segment at `base`, which is made if it is missing, and has its full size."""
        file = self._files.get(base)
        if file is None:
            if len(self._files) == FILES_MAX:
                self._close(min(self._files))
            try:
                file = self.directory.open(segment_name(base), write=True)
            except FileNotFoundError:
                file = self.directory.create(segment_name(base))
            self._files[base] = file
            if file.size() < capacity:
                file.allocate(capacity)
        return file

    def check_nothing_more(self, history: HomeHistory) -> None:
        """Raise HomeBehind if a segment here has more than the home."""
        bases = [base_of(name) for name in self.directory.names() if is_segment(name)]
        newest = max(history.segments, default=-1)
        for base in bases:
            if base > newest:
                with closing(self.directory.open(segment_name(base))) as file:
                    if any(_blocks(file, 0)):
                        raise self.behind(f"it ends at {history.position}, and {base} is here")
            elif base in history.segments:
                self._check_end(base, history.segments[base].end)

    def _check_end(self, base: int, end: int) -> None:
        with closing(self.directory.open(segment_name(base))) as file:
            if any(_blocks(file, end)):
                raise self.behind(
                    f"it has {end} bytes of the segment at {base}, and this directory has more"
                )

    def finish(self, history: HomeHistory) -> None:
        """Remove the segments that the home has dropped. The bytes are not synced: whoever opens
        this directory makes it equal to the home first.
        """
        self.remove_dropped(history)
        self.directory.sync()
        self.close()

    def remove_dropped(self, history: HomeHistory) -> None:
        """Remove the segments that the home has dropped."""
        for name in self.directory.names():
            if is_segment(name) and base_of(name) not in history.segments:
                self._close(base_of(name))
                self.directory.remove(name)

    def _close(self, base: int) -> None:
        file = self._files.pop(base, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close the segments that were opened here."""
        for base in [*self._files]:
            self._close(base)

    # --- for the floor ----------------------------------------------------------------------------

    def read(self, base: int, start: int, end: int) -> bytes:
        """Return bytes of a segment. Raises OSError if they are not all there."""
        with closing(self.directory.open(segment_name(base))) as file:
            data = file.read(start, end - start)
        if len(data) < end - start:
            raise OSError(f"{segment_name(base)}: shorter than what was written to it")
        return data

    def differs(self, name: str, base: int, end: int) -> bool:
        """Return whether the file `name` has other bytes than the segment at `base` below `end`."""
        with suppress(OSError), closing(self.directory.open(name)) as file:
            return file.read(0, end) != self.read(base, 0, end)
        return True

    def header_of(self, name: str) -> bytes:
        """Return the header of the file `name`, which becomes a segment."""
        with closing(self.directory.open(name)) as file:
            return file.read(0, HEADER_BYTES)


def _blocks(file: File, start: int) -> Iterator[bool]:
    """Yield for each block from `start` on whether it has anything but zeros."""
    size = file.size()
    for offset in range(start, size, BLOCK_BYTES):
        data = file.read(offset, min(BLOCK_BYTES, size - offset))
        yield data != bytes(len(data))
