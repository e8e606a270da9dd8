"""The page HANDED_OUT: what clients have been handed, for the next server after a kill.

    word  size  field
       0     8  "fmq hand"
       1     8  count: how many entries follow; FULL if some had no room
       2    16  boot: names this start of the machine
       4     *  entries: the hash of group, topic and queue, and the offset up to which it was
                handed out

A word has 8 bytes. A server that ends cleanly removes the page, because its clients have given
everything back. If a server is killed, its page stays. The clients may still be working on the
messages below these offsets. So the next server does not hand these out at once, and the clients
can keep them. All later messages are handed out at once.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from hashlib import blake2b

from fmq.machine.disk import PAGE_BYTES, Directory, Page
from fmq.recovery.layout import HANDED_OUT
from fmq.tx.ledger.ledger import GroupKey

NAME = int.from_bytes(b"fmq hand", sys.byteorder)
COUNT, BOOT, ENTRIES = 1, 2, 4  # numbers of words in the page
FULL = (1 << 64) - 1
WORDS = PAGE_BYTES // 8
ALL = (1 << 64) - 1  # a number that is larger than any offset


class Former:
    """Messages that clients may still have from a server that was killed."""

    def __init__(self, upto: dict[int, int], *, is_whole: bool) -> None:
        self._upto = upto
        self._is_whole = is_whole

    def upto(self, key: GroupKey) -> int:
        """Return the offset below which a queue may have been handed out to a group."""
        return self._upto.get(_hash(key), 0 if self._is_whole else ALL)


def former_in(directory: Directory) -> Former | None:
    """Return what a killed server has left. Return None after a clean end, or if the machine has
    started since.
    """
    try:
        page = directory.page(HANDED_OUT)
    except OSError:
        return None
    try:
        words = page.words
        if words[0] != NAME or _words(page.boot) != (words[BOOT], words[BOOT + 1]):
            return None
        is_whole = words[COUNT] != FULL
        end = ENTRIES + 2 * words[COUNT] if is_whole else WORDS
        found = {words[at]: words[at + 1] for at in range(ENTRIES, min(end, WORDS), 2)}
        return Former(found, is_whole=is_whole)
    finally:
        page.close()


class HandedOut:
    """Writes the page of the running server."""

    def __init__(self, directory: Directory) -> None:
        """Make the page, unless the disk has no room. Without it the next server holds nothing back
        for clients.
        """
        self._page: Page | None = None
        self._places: dict[GroupKey, int] = {}
        with suppress(OSError):
            self._page = directory.make_page(HANDED_OUT, _begin)

    def note(self, key: GroupKey, end: int) -> None:
        """Note that a queue was handed out to a group up to the offset `end`."""
        if self._page is None:
            return
        words = self._page.words
        at = self._places.get(key, 0)
        if not at:
            at = ENTRIES + 2 * len(self._places)
            if at >= WORDS:
                words[COUNT] = FULL
                return
            self._places[key] = at
            words[at] = _hash(key)
            words[at + 1] = end
            words[COUNT] = len(self._places)
        elif end > words[at + 1]:
            words[at + 1] = end

    def close(self) -> None:
        """Remove the page: nothing is handed out any more."""
        page, self._page = self._page, None
        if page is not None:
            page.close()


def _begin(page: Page) -> None:
    page.words[BOOT], page.words[BOOT + 1] = _words(page.boot)
    page.words[0] = NAME


def _hash(key: GroupKey) -> int:
    data = "\0".join(map(str, key)).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), sys.byteorder)


def _words(boot: bytes) -> tuple[int, int]:
    first, second = memoryview(boot).cast("Q")
    return first, second
