"""The page: shared memory in which an open engine tells other processes how far its journal is
durable.

    word  size  field
       0     8  "fmq page"
       1     8  version: 1
       2    16  boot: names this start of the machine
       4    16  incarnation: drawn by the engine when it opened the directory
       8     8  durable_to: the position below which all bytes are synced
       9     8  durable_to once more
      10    16  store: the UUID of the directory
      12    16  identity: the device and the inode of this file

The rest is zeros. A word has 8 bytes, in the byte order of the machine: no other one reads it.

The engine stores durable_to after each sync. It is the only one that stores in this file: each
opening makes a new file, and holds it until it closes or its process ends. So a page that is held
is of an engine that is open, and what it says is true. It stays true when the process is killed,
because recovery never cuts what is durable. A power cut may leave any bytes in the page, and a copy
of the directory may lack what the page says: both have another boot or identity. See
docs/decisions/0041 for torn words, copies and two openings at once.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from fmq.machine.disk import PAGE_BYTES, Directory, Page

PAGE = "DURABLE"
NAME, VERSION = int.from_bytes(b"fmq page", sys.byteorder), 1
# the number of the word at which each field begins
BOOT, INCARNATION, DURABLE_TO, AGAIN, STORE, IDENTITY = 2, 4, 8, 9, 10, 12


def no_page() -> memoryview:
    """Return words that no other process sees, for an engine that cannot share a page."""
    return memoryview(bytearray(PAGE_BYTES)).cast("Q")


def begin_page(directory: Directory, store: bytes, drawn: bytes, durable_to: int) -> Page:
    """Return a new page for the engine that has locked `directory`. Raises OSError if the disk is
    full, or other processes would not see the page.
    """

    def begin(page: Page) -> None:
        words = page.words
        words[BOOT], words[BOOT + 1] = _two_words(page.boot)
        words[INCARNATION], words[INCARNATION + 1] = _two_words(drawn.ljust(16, b"\0"))
        words[STORE], words[STORE + 1] = _two_words(store)
        words[IDENTITY], words[IDENTITY + 1] = page.identity()
        words[DURABLE_TO] = words[AGAIN] = durable_to
        words[1] = VERSION
        words[0] = NAME

    return directory.make_page(PAGE, begin)


def _two_words(data: bytes) -> tuple[int, int]:
    first, second = memoryview(data).cast("Q")
    return first, second


class Told(NamedTuple):
    """The content of a page."""

    durable_to: int
    """The position up to which the journal is durable; 0 if no page can be believed."""
    is_open: bool
    """Whether the engine that says it is open. If not, the journal may have gone on since."""


NOTHING = Told(0, is_open=False)


class PageReader:
    """Reads the page of the engine that has a directory open, or was killed with it open. Any
    thread may call it.
    """

    def __init__(self, directory: Directory, store: bytes) -> None:
        """Believe only a page of the store with the UUID `store`."""
        self._directory = directory
        self._store = _two_words(store)
        self._page: Page | None = None
        self._lock = Lock()

    def look(self) -> Told:
        """Return what the page in the directory says now."""
        # There may be no page, or this user may not lock or read it.
        with self._lock, suppress(OSError):
            if self._page is not None and not self._page.is_held():
                self._close()  # the next engine makes a new page
            is_open = self._page is not None or self._open()
            return Told(self._position(), is_open)
        return NOTHING

    def glance(self) -> int:
        """Return the present position in the page that the last call of `look` found.

        This takes no system call.
        """
        with self._lock:
            return self._position()

    def _open(self) -> bool:
        """Open the page; close it again if it cannot be believed. Return whether an engine holds
        it.
        """
        self._page = page = self._directory.page(PAGE)
        words, is_held = page.words, page.is_held()
        named = words[0] == NAME and words[1] == VERSION
        boot = words[BOOT], words[BOOT + 1]
        said = (words[STORE], words[STORE + 1]), (words[IDENTITY], words[IDENTITY + 1])
        if (
            not named
            or boot != _two_words(page.boot)
            # A page of an older fmq has no store and no identity. A page that is held is no copy.
            or (not is_held and said != (self._store, page.identity()))
        ):
            self._close()
            return False
        return is_held

    def _position(self) -> int:
        if self._page is None:
            return 0
        # A kill between the two stores leaves two positions. Both are durable, and readers were
        # shown no more than the smaller one.
        again = self._page.words[AGAIN]
        return min(again, self._page.words[DURABLE_TO])

    def _close(self) -> None:
        page, self._page = self._page, None
        if page is not None:
            page.close()

    def close(self) -> None:
        """Release the page. A later call opens it again."""
        with self._lock:
            self._close()

    def forked(self) -> None:
        """Replace the lock in a forked child, where the thread that held it does not exist."""
        self._lock = Lock()


def told_in(directory: Directory, store: bytes) -> int:
    """Return the position up to which an engine of the journal `store` has told readers that it is
    durable, since this start of the machine; 0 if no page can be believed.
    """
    reader = PageReader(directory, store)
    try:
        return reader.look().durable_to
    finally:
        reader.close()
