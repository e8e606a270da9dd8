"""The page ATTEMPTS: shared memory that keeps the latest attempts over a kill.

An attempt is counted before the program sees the message. It is stored here first, which takes no
system call and waits for no write. Once the page is full, what still counts of it is written to the
journal as one TRIED record. The page begins anew when the kernel has that record.

64 entries follow one another, from the oldest on. Numbers are little-endian.

    offset  size  field
         0     4  crc       CRC-32 of the rest of the entry, begun with that of the store's UUID
         4     4  zero
         8     8  place     the hash of group and topic
        16     4  queue
        20     8  first     the first offset of the range
        28     8  end       the offset after its last
        36     4  tries     how often each message of the range was tried, this time included
        40     8  due       when they may be tried again, if they were given back; else 0
        48     8  position  the end of the journal when the attempt was counted
        56     8  time      of the attempt

A kill in the middle of a store leaves a wrong checksum, and the program has not seen the message
yet. A power cut may leave any bytes: entries with a sound checksum are true even then.

A replay applies an entry before the first record at or behind its position: in the order in which
the engine did (recovery/replay.py). An entry below a checkpoint, or older than a TRIED in the
journal about the same messages, thus changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from fmq.machine.disk import PAGE_BYTES, Directory, Page
from fmq.store.bytes.kinds import TriedRange
from fmq.store.journal.journal import Journal

ATTEMPTS = "ATTEMPTS"
ENTRY = Struct("<I60s")
BODY = Struct("<4xQIQQIqQq")
pack_body, store_entry = BODY.pack, ENTRY.pack_into
assert BODY.size == 60 and PAGE_BYTES % ENTRY.size == 0


class Noted(NamedTuple):
    """One entry of a page, as it was found."""

    place: int
    queue: int
    first: int
    end: int
    tries: int
    due_us: int
    position: int
    time_us: int


class Counted(NamedTuple):
    """An entry that a replay has applied."""

    tried: TriedRange
    position: int
    time_us: int


@lru_cache(maxsize=4096)
def place_of(group: str, topic: str) -> int:
    """Return the number by which an entry names its group and topic."""
    data = f"{group}\0{topic}".encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def noted_in(directory: Directory, seed: int) -> list[Noted]:
    """Return the sound entries of the page that an engine has left, from the oldest on. `seed` is
    the checksum of the store's UUID.
    """
    with suppress(OSError):
        page = directory.page(ATTEMPTS)
        try:
            return entries_of(page.words, seed)
        finally:
            page.close()
    return []


def entries_of(words: memoryview, seed: int) -> list[Noted]:
    """Return the sound entries in `words`, from the oldest on."""
    found = []
    for crc, body in ENTRY.iter_unpack(bytes(words)):
        if crc32(body, seed) == crc:
            found.append(Noted(*BODY.unpack(body)))
    # The sort is stable: entries with the same position keep their order in the page.
    found.sort(key=lambda each: each.position)
    return found


class AttemptPage:
    """Writes the page of the open engine. Guarded by the engine's lock."""

    def __init__(self, seed: int) -> None:
        """Without `begin` there is no page, and so no room in it."""
        self.noted: list[TriedRange] = []
        """What is in the page and not in the journal, the oldest first."""
        self._seed = seed
        self._page: Page | None = None
        self._words = memoryview(b"")
        self._at = self._size = 0
        # The page begins anew once the kernel has the journal up to here; 0 if it need not.
        self._until = 0

    def begin(self, directory: Directory, counted: Sequence[Counted], end: int) -> None:
        """Make the page, with the entries that a replay has found in the one before. The journal
        goes on at `end`. An entry with a later position gets `end`, so that it comes before the
        next append.

        Raises OSError if the disk is full or has no pages. Then all attempts go to the journal.
        """

        def fill(page: Page) -> None:
            self._words = page.words
            for tried, position, time_us in counted:
                self.note((tried,), min(position, end), time_us)

        try:
            self._page = directory.make_page(ATTEMPTS, fill)
            self._size = PAGE_BYTES
        finally:
            self.noted = [each.tried for each in counted]

    def room(self, journal: Journal) -> int:
        """Return how many entries fit. If the kernel has enough of `journal`, the page is empty."""
        if self._until and journal.handed_to >= self._until:
            self._at = self._until = 0
        return (self._size - self._at) // 64

    def note(self, ranges: Sequence[TriedRange], position: int, time_us: int) -> None:
        """Store attempts that were counted while the journal ended at `position`."""
        at, words, seed = self._at, self._words, self._seed
        for tried in ranges:
            body = pack_body(place_of(*tried[:2]), *tried[2:], position, time_us)
            store_entry(words, at, crc32(body, seed), body)
            at += 64
        self._at = at
        self.noted += ranges

    def begin_anew(self, position: int) -> None:
        """Use the page anew once the kernel has the journal up to `position`: by then the journal
        has all attempts that still count.
        """
        self.noted = []
        if self._size:
            self._at, self._until = self._size, self._until or position

    def close(self, *, keep: bool) -> None:
        """Unmap the page, and remove its file unless it is to `keep` it."""
        page, self._page = self._page, None
        self._at = self._size = self._until = 0
        self._words = memoryview(b"")
        if page is not None:
            page.close(keep=keep or bool(self.noted))
