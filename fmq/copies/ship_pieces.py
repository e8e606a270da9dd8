"""What a place that a journal is shipped to holds: pieces of segments, which never change.

    SHIP                                           JSON: the format, and the UUID of the store
    00000001-<base>-<from>-<to>-<crc>.piece        the bytes of a segment between two positions
    00000001.ready                                 from here on the generation can be restored

`base` is the position of the segment, and `crc` a CRC-32 of the bytes, in hex.
So a listing of names tells all, and whoever has lost one restores what comes before it, or nothing.
A piece ends with a whole append. The first of a segment begins with its header. A segment that is
full lies there as one piece, and the smaller ones go.

A generation begins anew where pieces before it are missing for good: retention has dropped what was
not shipped yet. The one before it goes when the new one is ready.

This file knows names and no journal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple, Protocol

from fmq.errors import BackupRefused, Damaged
from fmq.machine.disk import Buffer, Directory, File, replace

SHIP = "SHIP"
FORMAT = 1
BUSY = SHIP + ".lock"  # pinned while a process ships to the place
NEW = ".new"
PIECE = re.compile(r"(\d{8})-(\d{20})-(\d{20})-(\d{20})-([0-9a-f]{8})\.piece")
READY = re.compile(r"(\d{8})\.ready")


class ShippedPiece(NamedTuple):
    """The bytes of the segment at `base` from the position `start` to `end`."""

    generation: int
    base: int
    start: int
    end: int
    crc: int

    @property
    def name(self) -> str:
        base, start, end = self.base, self.start, self.end
        return f"{self.generation:08d}-{base:020d}-{start:020d}-{end:020d}-{self.crc:08x}.piece"


class Listing(NamedTuple):
    """What a place holds."""

    pieces: list[ShippedPiece]
    """All pieces of the newest generation that is not ready, or else of the newest."""
    others: list[str]
    """The names of older generations."""
    generation: int
    is_ready: bool


def ready_name(generation: int) -> str:
    return f"{generation:08d}.ready"


def listing(names: Iterable[str], *, ready: bool = False) -> Listing:
    """Return what the newest generation holds; with `ready`, the newest that can be restored."""
    names = [*names]
    done = {int(match[1]) for name in names if (match := READY.fullmatch(name))}
    found = [_piece_of(match) for match in _matches(names)]
    known = done if ready else done | {piece.generation for piece in found}
    newest = max(known, default=0)
    others = [piece.name for piece in found if piece.generation != newest]
    others += [ready_name(each) for each in done if each != newest]
    pieces = sorted(piece for piece in found if piece.generation == newest)
    return Listing(pieces, others, newest, newest in done)


def _piece_of(match: re.Match[str]) -> ShippedPiece:
    generation, base, start, end, crc = match.groups()
    return ShippedPiece(int(generation), int(base), int(start), int(end), int(crc, 16))


def _matches(names: Iterable[str]) -> Iterator[re.Match[str]]:
    for name in names:
        if match := PIECE.fullmatch(name):
            yield match


def whole_run(pieces: Iterable[ShippedPiece]) -> list[list[ShippedPiece]]:
    """Return, segment by segment, the pieces that follow each other, up to the first gap.

    The oldest segments are left out while their first piece is missing: a run that removes them was
    interrupted. A restore wants a STATE that says so.
    """
    bases: dict[int, dict[int, ShippedPiece]] = {}
    for piece in pieces:
        longest = bases.setdefault(piece.base, {}).get(piece.start)
        if longest is None or longest.end < piece.end:
            bases[piece.base][piece.start] = piece
    run: list[list[ShippedPiece]] = []
    for base, starts in sorted(bases.items()):
        found: list[ShippedPiece] = []
        while (after := starts.get(found[-1].end if found else base)) is not None:
            found.append(after)
        if found:
            run.append(found)
        elif run:
            break
    return run


class ShippingPlace(Protocol):
    """Where a journal is shipped to. A file is there with all of its bytes, or not at all."""

    @property
    def path(self) -> str: ...

    @property
    def directory(self) -> Directory | None:
        """The directory that the place is; None if it is none."""

    def names(self) -> list[str]: ...

    def put(self, name: str, blocks: Iterable[Buffer]) -> None:
        """Make the file `name` of `blocks`, durably."""

    def read(self, name: str, offset: int, size: int) -> bytes: ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, the first ones first."""

    def store(self) -> str | None:
        """Return the UUID of the store that is shipped here; None if there is none. Raises Damaged,
        or BackupRefused if the place is used for something else.
        """

    def take(self, store: str) -> None:
        """Take the place for this run and this store, before pieces are put. Raises BackupRefused
        if another process ships to the place.
        """

    def close(self) -> None: ...


def store_said(data: bytes) -> str:
    """Return the UUID that the file SHIP says. Raises Damaged."""
    try:
        said = json.loads(data)
        if said["format"] != FORMAT:
            raise ValueError(f"it has the format {said['format']}, of a newer fmq")
        return str(said["store"])
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(SHIP, 0, f"{error}, so nothing tells whose pieces these are") from error


def check_only_ours(path: str, names: Iterable[str]) -> None:
    """Raise BackupRefused if a place that has no SHIP has files that no run of shipping made."""
    foreign = [name for name in names if name not in (BUSY, SHIP + NEW)]
    if foreign:
        raise BackupRefused(
            f"{path}: holds {min(foreign)!r}, and no journal is shipped here. Nothing was changed. "
            "Name a new or empty directory."
        )


class PlaceInDirectory:
    """A directory to which a journal is shipped. Implements ShippingPlace."""

    def __init__(self, directory: Directory) -> None:
        self.directory = self._directory = directory
        self.path = directory.path
        self._busy: File | None = None

    def names(self) -> list[str]:
        return self._directory.names()

    def put(self, name: str, blocks: Iterable[Buffer]) -> None:
        directory, new = self._directory, name + NEW
        with suppress(FileNotFoundError):
            directory.remove(new)
        with closing(directory.create(new)) as file:
            at = 0
            for block in blocks:
                file.write(at, (block,), sync=False)
                at += len(block)
            file.sync()
        directory.rename(new, name)
        directory.sync()

    def read(self, name: str, offset: int, size: int) -> bytes:
        with closing(self._directory.open(name)) as file:
            return file.read(offset, size)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._directory.remove(name)
            self._directory.sync()

    def store(self) -> str | None:
        names = self.names()
        if SHIP in names:
            return store_said(self.read(SHIP, 0, 4096))
        check_only_ours(self.path, names)
        return None

    def pin(self) -> None:
        """Let no other process ship to this place until it is closed. Raises BackupRefused."""
        try:
            self._busy = self._directory.create(BUSY)
        except FileExistsError:
            self._busy = self._directory.open(BUSY, write=True)
        if not self._busy.pin(exclusive=True):
            raise BackupRefused(
                f"{self.path}: another process ships to this place. Nothing was changed. Let "
                "one of them go on."
            )

    def take(self, store: str) -> None:
        if SHIP not in self.names():
            data = json.dumps({"format": FORMAT, "store": store}).encode()
            replace(self._directory, SHIP, SHIP + NEW, data)

    def close(self) -> None:
        if self._busy is not None:
            self._busy.close()
        self._directory.close()
