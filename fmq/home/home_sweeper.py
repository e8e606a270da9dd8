"""The owner frees what is old: it puts the journal into pieces, and its checkpoint beside them,
raises the floor, and removes the slots below. An OWN is never removed, so the slot that a paused
owner would fill stays filled.
"""

from __future__ import annotations

import logging
from zlib import crc32

from fmq.errors import StorageError
from fmq.home.files_put import FilesPut
from fmq.home.home_cache import HomeCache
from fmq.home.home_calls import slot_key
from fmq.home.home_floor import encode_floor
from fmq.home.home_history import HomeHistory, HomePiece, HomeSegment
from fmq.home.home_owner import HomeOwner
from fmq.home.objects import NoAnswer
from fmq.home.slot_entry import EntryKind, decode_entry

logger = logging.getLogger("fmq.home")
SMALL_FLOORS = 16  # of a floor of less than this part of `floor_bytes` nobody minds the size


class HomeSweeper:
    """Raises the floor of one home that this engine owns."""

    def __init__(self, owner: HomeOwner, floor_slots: int, floor_bytes: int) -> None:
        """The floor is raised once so many slots, or bytes, lie above it. A large one, which names
        many pieces, is raised only once as many bytes as it has lie above it: it is written anew.
        """
        self._owner = owner
        self._last_bytes = 0  # of the last floor, unless it is a small one
        self._floor_slots, self._floor_bytes = floor_slots, floor_bytes
        self._owns_seen: set[int] = set()
        self._files = FilesPut(owner.calls, owner.history.files)

    def raise_floor(self, cache: HomeCache) -> None:
        """Raise the floor if enough lies above it, and remove what is below. One thread at a time
        writes checkpoints, and so calls this.

        An error is only logged: all that it costs is room in the home, and a later call tries it
        again. An engine that another machine has fenced learns that by its next append.
        """
        history = self._owner.history
        slots = len(history.kinds)
        above = history.bytes_since_floor
        if slots < self._floor_slots and above < self._floor_bytes:
            return
        if above < self._last_bytes:
            return
        if self._owner.ended is not None:
            return
        try:
            with self._owner.apart():
                self._raise_floor(cache)
        except (StorageError, OSError, NoAnswer) as error:
            logger.warning("%s: the floor was not raised: %s", self._owner.address, error)

    def _raise_floor(self, cache: HomeCache) -> None:
        owner, noted = self._owner, list[HomeHistory]()
        history, calls = owner.history, owner.calls
        # This entry proves that the engine is the owner. So what it says next is true.
        owner.checkpoint(lambda: noted.append(_noted(history)))
        floor, kinds = noted[0], history.kinds
        most = calls.objects.object_bytes_max
        for base, segment in floor.segments.items():
            start = segment.pieces[-1].end if segment.pieces else 0
            for at in range(start, segment.end, most):
                data = cache.read(base, at, min(at + most, segment.end))
                piece = HomePiece(at, at + len(data), crc32(data))
                calls.put(piece.key(base), data)
                segment.pieces.append(piece)
        floor.files = self._files.put(cache.directory, floor)
        # Only now: a floor must not name what is not there.
        made = encode_floor(floor, most)
        for key, data in made.items():
            calls.put(key, data)
        size = sum(map(len, made.values()))
        self._last_bytes = size if size >= self._floor_bytes // SMALL_FLOORS else 0
        with owner.lock:
            for base, segment in floor.segments.items():
                if base in history.segments:
                    history.segments[base].pieces = [*segment.pieces]
            history.kinds = {n: kind for n, kind in kinds.items() if n >= floor.next}
            history.bytes_since_floor = 0
            history.files = floor.files
        cache.note(floor)
        self._free_below(floor, dict(kinds))

    def _free_below(self, floor: HomeHistory, kinds: dict[int, EntryKind]) -> None:
        """Remove what no reader needs that begins at `floor` or a later one. Another machine may
        have raised a higher floor meanwhile. So only what is below this one may go.
        """
        objects = self._owner.calls.objects
        older = [name for name in objects.names("floors") if int(name) < floor.next]
        objects.remove([f"floors/{name}" for name in older])
        first = min(floor.segments, default=0)
        gone = [name for name in objects.names("pieces") if int(name[:20]) < first]
        objects.remove([f"pieces/{name}" for name in gone])
        named = {each.key(name) for name, of in floor.files.pieces.items() for each in of}
        files = [f"files/{name}" for name in objects.names("files") if int(name[:20]) < floor.next]
        objects.remove([key for key in files if key not in named])
        objects.remove([slot_key(n) for n in self._slots_below(floor.next, kinds)])

    def _slots_below(self, end: int, kinds: dict[int, EntryKind]) -> list[int]:
        """Return the slots below `end` that may be removed: all but those with an OWN."""
        objects = self._owner.calls.objects
        free = []
        for name in objects.names("slots"):
            n = int(name)
            if n >= end or n in self._owns_seen:
                continue
            kind = kinds.get(n)
            if kind is None:  # left by an earlier owner, or by a machine that has read an old floor
                data = objects.read(slot_key(n))
                kind = None if data is None else decode_entry(data, slot_key(n)).kind
            if kind is EntryKind.OWN:  # rule 1
                self._owns_seen.add(n)
            else:
                free.append(n)
        return free


def _noted(history: HomeHistory) -> HomeHistory:
    """Return a copy of `history` as it is now, for a floor."""
    noted = HomeHistory()
    noted.owns = {**history.owns}
    for name in ("home", "next", "term", "owner", "chain", "said"):
        setattr(noted, name, getattr(history, name))
    for base, segment in history.segments.items():
        copied = noted.segments[base] = HomeSegment(segment.capacity)
        copied.end, copied.pieces = segment.end, [*segment.pieces]
    return noted
