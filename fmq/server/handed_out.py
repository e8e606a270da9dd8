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
can keep them. All later messages are handed out at once. The next server takes the entries over
into its own page, because it may be killed, too, before the clients are back. If it ends before
they had the time to come back, it leaves the page.
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

    def write_to(self, words: memoryview[int]) -> dict[int, int]:
        """Write the entries into the next page, for the case that its server is killed, too. Return
        the place of each hash.
        """
        places = {}
        for at, (name, upto) in enumerate(self._upto.items()):
            places[name] = ENTRIES + 2 * at
            words[places[name]], words[places[name] + 1] = name, upto
        words[COUNT] = len(places) if self._is_whole else FULL
        return places


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

    def __init__(self, directory: Directory, former: Former | None) -> None:
        """Make the page, unless the disk has no room. Without it the next server holds nothing back
        for clients. `former` is what the server before has left.
        """
        self._page: Page | None = None
        self._places: dict[GroupKey, int] = {}
        self._former_places: dict[int, int] = {}

        def begin(page: Page) -> None:
            if former is not None:
                self._former_places = former.write_to(page.words)
            page.words[BOOT], page.words[BOOT + 1] = _words(page.boot)
            page.words[0] = NAME

        with suppress(OSError):
            self._page = directory.make_page(HANDED_OUT, begin)
        self._used = len(self._former_places)

    def note(self, key: GroupKey, end: int) -> None:
        """Note that a queue was handed out to a group up to the offset `end`."""
        if self._page is None:
            return
        words = self._page.words
        at = self._places.get(key, 0)
        if not at:
            name = _hash(key)
            at = self._former_places.get(name, 0)
            if not at:
                at = ENTRIES + 2 * self._used
                if at >= WORDS:
                    words[COUNT] = FULL
                    return
                words[at], words[at + 1] = name, end
                self._used += 1
                if words[COUNT] != FULL:
                    words[COUNT] = self._used
            self._places[key] = at
        if end > words[at + 1]:
            words[at + 1] = end

    def close(self, *, keep: bool) -> None:
        """Remove the page, as nothing is handed out any more. With `keep`, leave it for the next
        server.
        """
        page, self._page = self._page, None
        if page is not None:
            page.close(keep=keep)


def _hash(key: GroupKey) -> int:
    data = "\0".join(map(str, key)).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), sys.byteorder)


def _words(boot: bytes) -> tuple[int, int]:
    first, second = memoryview(boot).cast("Q")
    return first, second
