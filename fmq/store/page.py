"""The page: memory in which an open engine tells other processes how far its journal is durable.

    word  size  field
       0     8  "fmq page"
       1     8  version: 1
       2    16  boot: names this start of the machine
       4    16  incarnation: drawn by the engine when it opened the directory
       8     8  durable_to: the position below which all bytes are synced
       9     8  durable_to once more

The rest is zeros. A word has 8 bytes, in the byte order of the machine: no other one reads it.

The engine stores durable_to after each sync. It is the only one that stores in this file: each
opening makes a new file, and holds it until it closes or its process ends. So a page that is held
is of an engine that is open, and what it says is true. It stays true, because recovery never cuts
what is durable. See docs/decisions/0041 for torn words, copies and two openings at once.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Lock

from fmq.disk import PAGE_BYTES, Directory, Page

PAGE = "DURABLE"
NAME, VERSION = int.from_bytes(b"fmq page", sys.byteorder), 1
BOOT, INCARNATION, DURABLE_TO, AGAIN = 2, 4, 8, 9  # words
LOADS_MAX = 100


def no_page() -> memoryview:
    """Return words that no other process sees, for an engine that cannot share a page."""
    return memoryview(bytearray(PAGE_BYTES)).cast("Q")


def begin_page(directory: Directory, drawn: bytes, durable_to: int) -> Page:
    """Return a new page of the engine that has locked `directory`. Raises OSError if there can be
    none: the disk is full, or other processes would not see it.
    """
    page = directory.make_page(PAGE)
    words = page.words
    words[BOOT], words[BOOT + 1] = _two_words(page.boot)
    words[INCARNATION], words[INCARNATION + 1] = _two_words(drawn.ljust(16, b"\0"))
    words[DURABLE_TO] = words[AGAIN] = durable_to
    words[1] = VERSION
    words[0] = NAME
    return page


def _two_words(data: bytes) -> tuple[int, int]:
    first, second = memoryview(data).cast("Q")
    return first, second


class PageReader:
    """Reads the page of the engine that has the directory open, if one has. Safe for threads."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._page: Page | None = None
        self._lock = Lock()

    def durable_to(self) -> int:
        """Return the position up to which an open engine has told that the journal is durable.

        Return 0 if no engine is open, or the one that is has told nothing.
        """
        with self._lock, suppress(OSError):  # there is none, or this user may not lock or read it
            if self._page is not None and not self._page.is_held():
                self._close()
            if self._page is None:
                self._open()
            return self._position()
        return 0

    def glance(self) -> int:
        """Return the same, but only as the page says that the last call of `durable_to` has found.

        This takes no system call.
        """
        with self._lock:
            return self._position()

    def _open(self) -> None:
        self._page = page = self._directory.page(PAGE)
        words = page.words
        named = words[0] == NAME and words[1] == VERSION
        boot = words[BOOT], words[BOOT + 1]
        if not (page.is_held() and named and boot == _two_words(page.boot)):
            self._close()

    def _position(self) -> int:
        if self._page is None:
            return 0
        words = self._page.words
        for _ in range(LOADS_MAX):
            again = words[AGAIN]
            position = words[DURABLE_TO]
            if position == again:
                return position
        return 0

    def _close(self) -> None:
        page, self._page = self._page, None
        if page is not None:
            page.close()

    def close(self) -> None:
        """Release the page. A later call opens it again."""
        with self._lock:
            self._close()

    def forked(self) -> None:
        """Make a new lock in the child of a fork: the thread that held the old one is not there."""
        self._lock = Lock()
