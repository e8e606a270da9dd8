"""The open files of a journal: a limited number, shared by all readers.

A file is opened at its first use. If too many are open, the least recently used one that is not in
use is closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from fmq.errors import Damaged, NewerFormat, Unreadable
from fmq.machine.disk import Directory, File
from fmq.store.bytes.record import COMMON, HEAD_BYTES_MIN, MAGICS, PREFIX_BYTES
from fmq.store.journal.section import OwnedLock
from fmq.store.journal.segment import HEADER_BYTES, OTHER_COPY, Segment, decode_header, segment_name

OPEN_MAX = 64


class _Entry:
    __slots__ = ("compared", "doomed", "file", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.compared = False  # True once its header was compared with the known segment
        self.doomed = False


class Files:
    """Segments of one directory, open for reading. Any thread may call it."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.segment_of: Callable[[int], Segment | None] | None = None
        """What is known of the segment at a position, to be compared with its file."""
        self.refused: dict[int, Damaged] = {}
        """Segments whose records are known not to be ours, with the error of each look at them."""
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self.lock = OwnedLock()

    @contextmanager
    def using(self, base: int) -> Iterator[File]:
        """Keep the segment at `base` open while the block runs. Raises FileNotFoundError."""
        if base in self.refused:
            raise self.refused[base].with_traceback(None)
        with self.lock:
            entry = self._entries.get(base)
            if entry is None:
                entry = _Entry(self._open(base))
                self._entries[base] = entry
            self._entries.move_to_end(base)
            entry.users += 1
        try:
            if not entry.compared:
                self._check_epoch(entry.file, base)
                entry.compared = True
            yield entry.file
        except OSError as error:
            raise Unreadable(f"{self._directory.path}/{segment_name(base)}", error) from error
        finally:
            with self.lock:
                entry.users -= 1
                if entry.doomed and not entry.users:
                    entry.file.close()
                elif len(self._entries) > OPEN_MAX:
                    self._close_idle()

    def _open(self, base: int) -> File:
        try:
            return self._directory.open(segment_name(base))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unreadable(self._directory.path, error) from error

    def _check_epoch(self, file: File, base: int) -> None:
        """Raise Damaged if `file` is not the known segment."""
        known = None if self.segment_of is None else self.segment_of(base)
        if known is None or not known.epoch:
            return
        name = segment_name(base)
        try:
            header = decode_header(file.read(0, HEADER_BYTES), name)
        except (Damaged, NewerFormat):
            return  # a bad header proves nothing against the records, as each has its own checksum
        if header.epoch != known.epoch:
            raise Damaged(name, base, OTHER_COPY)

    def forget(self, base: int) -> None:
        """Close the segment at `base` once it is not in use."""
        with self.lock:
            entry = self._entries.pop(base, None)
            if entry is not None:
                entry.doomed = True
                if not entry.users:
                    entry.file.close()

    def _close_idle(self) -> None:
        for base, entry in list(self._entries.items())[:-OPEN_MAX]:
            if not entry.users:
                del self._entries[base]
                entry.file.close()

    def forked(self) -> None:
        """Replace the lock in a forked child, where the thread that held it does not exist."""
        self.lock = OwnedLock()

    def close(self) -> None:
        """Close each segment once it is not in use."""
        with ExitStack() as stack:
            for base in list(self._entries):
                stack.callback(self.forget, base)


def read_head(file: File, place: int, at_first: int) -> bytes:
    """Return the bytes of the record at `place`: `at_first`, or as many as its head says it has."""
    data = file.read(place, at_first)
    size = int.from_bytes(data[12:16], "little")
    if size > len(data):
        data = file.read(place, min(size, file.size() - place))
    return data


def read_front(file: File, base: int, place: int) -> tuple[int, int]:
    """Return the size and the flags of the record at `place` of the segment at `base`. No checksum
    is verified. Raises Damaged if no record begins there.
    """
    front = file.read(place, HEAD_BYTES_MIN)
    if len(front) == HEAD_BYTES_MIN and front[:4] in MAGICS:
        size, _, position, _, _, _, flags, _ = COMMON.unpack_from(front, PREFIX_BYTES)
        if position == base + place and size >= HEAD_BYTES_MIN:
            return size, flags
    raise Damaged(segment_name(base), base + place, "no record begins here, as one had")
