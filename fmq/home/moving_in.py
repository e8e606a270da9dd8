"""The bytes of a directory are put into a home that lacks them: a store moves in, or a home gets
back what it has lost.

What the home has must be the beginning of what the directory has, byte for byte. So a call that was
interrupted goes on where it ended, and another history is never written over.
"""

from __future__ import annotations

import zlib
from contextlib import closing

from fmq.errors import HomeRefused
from fmq.home.home_cache import HomeCache
from fmq.home.home_history import HomeHistory
from fmq.home.home_log import HomeLog
from fmq.machine.disk import Directory
from fmq.store.journal.segment import segment_name

BLOCK_BYTES = 8 << 20


class MovingIn:
    """One locked directory, at rest, whose segments end at `ends`."""

    def __init__(self, directory: Directory, ends: dict[int, int]) -> None:
        """`ends` has the number of bytes that the journal has in each segment, by its base."""
        self._directory = directory
        self._ends = ends

    def put(self, log: HomeLog, where: str) -> int:
        """Own the home, and append what it lacks. Return how many bytes that were.

        Raises HomeRefused, and changes nothing, if the home has anything else. `where` says for
        people where the data comes from, until all of it is there: meanwhile nobody takes over.
        """
        log.follow(None)
        self._check_beginning(log, log.history)
        owner = log.claim(moving=where)
        put = 0
        for base, end in sorted(self._ends.items()):
            start = owner.end_of(base) or 0
            for at in range(start, end, BLOCK_BYTES):
                owner.append(base, at, self._bytes(base, at, min(at + BLOCK_BYTES, end)))
            put += end - start
        owner.beat(moving=None)
        return put

    def verify(self, log: HomeLog) -> HomeHistory:
        """Read the home anew, and raise HomeRefused unless it has what the directory has."""
        log.follow(None)
        self._check_beginning(log, log.history)
        has = {base: segment.end for base, segment in log.history.segments.items()}
        if has != self._ends:
            raise HomeRefused(
                f"{log.address}: has other bytes than {self._directory.path} after the move. The "
                "directory is as it was. If it was moved before, and the home went on, open it "
                "with home=. Otherwise move it into a new home, and look at this storage."
            )
        return log.history

    def _check_beginning(self, log: HomeLog, history: HomeHistory) -> None:
        for base, segment in history.segments.items():
            is_here = segment.end <= self._ends.get(base, 0)
            for piece in segment.pieces if is_here else ():
                is_here &= zlib.crc32(self._bytes(base, piece.start, piece.end)) == piece.crc
            if not is_here:
                raise self._other(log, base)
        for append in log.unwritten():
            end = append.offset + len(append.data)
            if end > self._ends.get(append.base, 0):
                if append.base not in history.segments:
                    continue  # dropped since
                raise self._other(log, append.base)
            if self._bytes(append.base, append.offset, end) != append.data:
                raise self._other(log, append.base)

    def _other(self, log: HomeLog, base: int) -> HomeRefused:
        return HomeRefused(
            f"{log.address}: has something at {base} that {self._directory.path} has not, so they "
            "are not one store. Nothing was changed. Name a new home."
        )

    def _bytes(self, base: int, start: int, end: int) -> bytes:
        with closing(self._directory.open(segment_name(base))) as file:
            return file.read(start, end - start)

    def become_cache(self, history: HomeHistory, address: str) -> None:
        """Note that the directory is the cache of the home."""
        HomeCache(self._directory, address).note(history)
