"""The journal: all segments as one address space, planned under the engine's lock, written outside.

An append is planned first: it gets its position and its bytes, and becomes pending. Then one thread
at a time takes all that is pending and writes it, in order, with one call for each segment. So
planning never waits for the disk, and one sync serves all appends that were planned before it.

At a roll, the old segment is synced in every mode. Then the spare gets its header, durably, and
then its name, durably. Only then is anything else written into it. So a sealed segment is always
durable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from errno import ECANCELED
from operator import attrgetter
from typing import NoReturn
from zlib import crc32

from fmq.errors import EngineFailed, TooLarge
from fmq.machine.disk import Buffer, Directory, File, begin_of, is_full
from fmq.store.bytes.record import ALIGNMENT
from fmq.store.journal.durable_page import AGAIN, DURABLE_TO, no_page
from fmq.store.journal.files import Files
from fmq.store.journal.journal_write import JournalWrite, Roll
from fmq.store.journal.segment import HEADER_BYTES, Header, Segment, segment_name
from fmq.store.journal.spares import UNPROVEN, Spares

# Below these limits, joining buffers is cheaper than handing over many.
JOIN_BYTES_MAX = 64 * 1024
JOIN_BUFFERS_MIN = 512
AHEAD_BYTES_MAX = 256 * 1024
assert ALIGNMENT == 8, "the loops below round up by hand: they run for every record"


class Journal:
    """The segments of a directory. Appends are added at the end, segments dropped at the front.

    Planning (`append`, `take_pending`, and whatever changes `segments`) is done under the engine's
    lock. `write` is called by one thread at a time, outside of it.
    """

    def __init__(
        self,
        directory: Directory,
        store: bytes,
        segments: list[Segment],
        spares: Spares,
        files: Files,
        capacity: int,
        epoch: int = 0,
    ) -> None:
        """`epoch` marks the segments that this engine makes."""
        assert segments, "a journal has at least the segment it writes"
        self._directory = directory
        self._store = store
        # The largest append that fits into an empty segment.
        self.append_bytes_max = capacity - HEADER_BYTES
        self.segments = segments
        self.files = files
        files.segment_of = self.segment_of
        self._epoch = epoch
        self.spares = spares
        spares.grow(segments[-1].limit)
        self.seed = crc32(store)
        self.position = segments[-1].end
        self.durable_to = self.position
        self.page = no_page()  # where readers in other processes find durable_to
        self.written_to = self.position
        # The write that planned appends join.
        self.pending = JournalWrite(segments[-1], self.position)
        # The open file of the current segment. It stays open, so that no send fails for too many
        # open files.
        self._writing: File = directory.open(segments[-1].name, write=True)
        self.is_far = begin_of(self._writing) is not None  # several writes may be on their way
        self._unsynced = False  # True if `_writing` has bytes that are not synced
        # How many pending buffers are written already, without a sync, and the position after the
        # last of them. If that position is not above the start of the pending bytes, none of these
        # is written.
        self._ahead, self._ahead_to = 0, self.position

    # --- planning, under the engine's lock --------------------------------------------------

    @property
    def current(self) -> Segment:
        """The segment that appends are planned into."""
        return self.segments[-1]

    @property
    def is_pending(self) -> bool:
        """True if an append is planned that no thread has begun to write."""
        return bool(self.pending.buffers or self.pending.rolls)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of the planned appends that no thread has begun to write."""
        pending = self.pending
        rolled = sum([roll.end - roll.start for roll in pending.rolls])
        return self.position - pending.start + rolled

    @property
    def handed_to(self) -> int:
        """The position below which the kernel has all bytes: a kill cannot take them."""
        return max(self.written_to, self._ahead_to)

    def fits(self, size: int) -> bool:
        """Return whether an append of `size` bytes fits into the current segment."""
        return self.position + size <= self.segments[-1].limit

    def refuse(self, size: int) -> NoReturn:
        """Raise TooLarge: an append of `size` bytes fits into no segment."""
        raise TooLarge("an append in bytes", size, self.append_bytes_max, "segment_bytes")

    def roll(self, append_bytes: int, *, ordinary: bool, makes_room: bool = False) -> Segment:
        """Go on in a new segment, into which `append_bytes` fit. Raises StorageFull if there is no
        room for it, and then nothing was changed.
        """
        spare = self.spares.take(append_bytes, ordinary=ordinary, makes_room=makes_room)
        old = self.current
        epoch = self._epoch
        header = Header(self._store, old.limit, spare.capacity, old.end, old.chain, epoch)
        new = Segment(old.limit, spare.capacity, old.limit + HEADER_BYTES, 0, epoch)
        pending = self.pending
        start, buffers = pending.start, pending.buffers
        roll = Roll(old, start, buffers, new, spare, header.encode(), ordinary=ordinary)
        pending.rolls = (*pending.rolls, roll)
        pending.segment, pending.buffers = new, []
        self.segments.append(new)
        self.spares.grow(new.limit)
        self.position = pending.start = new.end
        return new

    def append(self, buffers: list[bytes], chain: int, end: int) -> None:
        """Add an append to what is pending. `buffers` are its bytes, encoded for the present end of
        the journal. `chain` is the checksum after it, and `end` its end.
        """
        segment = self.segments[-1]
        self.pending.buffers += buffers
        segment.chain = chain
        self.position = segment.end = end
        assert end <= segment.limit

    def take_pending(self) -> JournalWrite:
        """Return the write with everything that is pending, and begin a new one."""
        taken = self.pending
        taken.end = end = self.position
        self.pending = JournalWrite(taken.segment, end)
        return taken

    @property
    def is_ahead(self) -> bool:
        """True if all that is pending is written."""
        pending, end = self.pending, self.position
        return not pending.rolls and (pending.start == end or self._ahead_to == end)

    def look_ahead(self) -> JournalWrite | None:
        """Return a write, ahead of its sync, of pending bytes that are not written yet. They stay
        pending. Return None if a roll is pending, or so much that it is better synced now.
        """
        pending, end = self.pending, self.position
        if pending.rolls or end - pending.start > AHEAD_BYTES_MAX:
            return None
        start, buffers = pending.start, pending.buffers
        ahead = JournalWrite(pending.segment, start)
        # A copy: calls plan into the list, and what they add must not be written yet.
        ahead.end, ahead.ahead, ahead.buffers = end, len(buffers), [*buffers]
        if self._ahead_to > start:
            ahead.start, ahead.buffers = self._ahead_to, buffers[self._ahead :]
        return ahead

    def wrote_ahead(self, ahead: JournalWrite) -> None:
        """Note that the bytes of `ahead` are written."""
        # If a roll was planned meanwhile, it writes these bytes again.
        self._ahead, self._ahead_to = ahead.ahead, ahead.end

    def wrote(self, taken: JournalWrite, *, is_durable: bool) -> None:
        """Note that the write `taken` is done. What it has sealed was synced in every mode."""
        self.written_to = end = taken.end
        if not is_durable:
            end = max(self.durable_to, taken.segment.base)
        self.durable_to = self.page[DURABLE_TO] = self.page[AGAIN] = end

    def segment_of(self, position: int) -> Segment | None:
        """Return the segment that holds `position`; None if it has been dropped."""
        segments = self.segments
        last = segments[-1]  # read once: another thread may roll meanwhile
        if position >= last.base:
            return last
        i = bisect_right(segments, position, key=base_of) - 1
        return segments[i] if i >= 0 else None

    def drop_first(self) -> Segment:
        """Forget the oldest segment. The caller removes its file."""
        first, *rest = self.segments
        # A new list: threads that look something up outside of the lock keep the old one.
        self.segments = rest
        return first

    # --- writing, outside the lock, one thread at a time --------------------------------------

    def write(self, taken: JournalWrite, *, sync: bool) -> None:
        """Write `taken`. With `sync` it is durable on return.

        An EngineFailed of the disk says that nothing was written. OSError leaves it open.
        """
        is_begun = False
        try:
            for roll in taken.rolls:
                self._write(roll, sync=sync)
                is_begun = is_begun or bool(roll.buffers)
                self._open_segment(roll)
            self._write(taken, sync=sync)
        except EngineFailed as error:
            if not is_begun:
                raise
            reason = f"a part was written before the rest was refused ({type(error).__name__})"
            raise OSError(ECANCELED, reason) from error

    def begin(self, taken: JournalWrite) -> Callable[[], None]:
        """Fix the place of `taken`, which has no rolls, behind all that was begun before. The
        function that is returned writes it, in any thread: all is durable then.
        """
        begin = begin_of(self._writing)
        assert begin is not None and not taken.rolls
        return begin(taken.start - taken.segment.base, taken.buffers)

    def write_ahead(self, ahead: JournalWrite) -> None:
        """Write without a sync. The same bytes are written again with the sync, in one call: such a
        call makes only those bytes durable that it writes itself.
        """
        if ahead.buffers:
            offset = ahead.start - ahead.segment.base
            self._writing.write(offset, (b"".join(ahead.buffers),), sync=False)

    def _write(self, part: JournalWrite | Roll, *, sync: bool) -> None:
        buffers: Sequence[Buffer] = part.buffers
        if not buffers:
            return
        if not sync:
            self._unsynced = True
        if part.end - part.start <= JOIN_BYTES_MAX or len(buffers) > JOIN_BUFFERS_MIN:
            buffers = (b"".join(buffers),)
        self._writing.write(part.start - part.segment.base, buffers, sync=sync)

    def sync(self) -> None:
        """Make durable what was written to the current segment without a sync.

        If there is nothing to sync, the disk is not asked: it could only fail.
        """
        if self._unsynced:
            self._writing.sync()
            self._unsynced = False

    def _open_segment(self, roll: Roll) -> None:
        old, spare = self._writing, roll.spare
        self.sync()
        # The file is no spare from now on. If its header cannot be written, it must not be used.
        unproven = spare.name + UNPROVEN
        self._rename(spare.name, unproven, roll)
        spare.file.write(0, (roll.header,), sync=True)
        spare.file.sync()
        self._rename(unproven, roll.new.name, roll)
        # Until the directory is synced, the segment's name may be lost with the power.
        self._directory.sync()
        old.close()
        self._writing = spare.file
        self.spares.opened(spare)

    def _rename(self, old: str, new: str, roll: Roll) -> None:
        """Rename the spare. On a full disk the new name may need room, which another spare gives
        up.
        """
        while True:
            try:
                return self._directory.rename(old, new)
            except OSError as error:
                if not is_full(error) or not self.spares.give_up(ordinary=roll.ordinary):
                    raise

    def close(self) -> None:
        """Close all files, even if one of them cannot be closed."""
        with ExitStack() as stack:
            for part in (self.files, self.spares, self._writing):
                stack.callback(part.close)


base_of = attrgetter("base")


def create_first_segment(directory: Directory, store: bytes, capacity: int) -> Segment:
    """Create the first segment of a new journal, durably. Its epoch comes from the new UUID."""
    epoch = crc32(store)
    temporary = segment_name(0, ".new")
    if temporary in directory.names():
        directory.remove(temporary)
    file = directory.create(temporary)
    try:
        file.allocate(capacity)
        file.write_zeros(capacity)  # writing over zeros syncs faster, see spares.py
        file.write(0, (Header(store, 0, capacity, 0, 0, epoch).encode(),), sync=True)
        file.sync()
    finally:
        file.close()
    directory.rename(temporary, segment_name(0))
    directory.sync()
    return Segment(0, capacity, HEADER_BYTES, 0, epoch)
