"""The calls that end or keep a timer: publishing it when due, recalling it, carrying it forward.

A timer is published by one append: its messages as ordinary MESSAGEs, and FIRE, which ends it. So a
crash leaves both or neither. It is published once the clock on the wall has reached its time. A
clock that goes back makes a timer wait longer, and takes back nothing that was published.

Retention drops the oldest segments. Before it does, the timers in them are appended again, under
the same numbers. The new record replaces the older one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from fmq.basics.message import DelayedReceipt
from fmq.errors import Damaged, FmqError, StorageFull
from fmq.store.bytes.content import copy_of
from fmq.store.bytes.decoding import decode, with_bodies
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.extras import with_ids_taken
from fmq.store.bytes.kinds import MESSAGE, TIMER, Changed, ChangeKind, QueuePlace, Record, Run
from fmq.store.bytes.timing import Timing, timing_in, with_timing
from fmq.store.index.due_runs import KEY, Due, due_of, position_in
from fmq.store.journal.files import Files
from fmq.store.journal.segment import segment_name
from fmq.store.reading.window import UNREADABLE
from fmq.tx.commands.due import delayed_receipt
from fmq.tx.commands.writer import Writer

logger = logging.getLogger("fmq")

AT_ONCE_MAX = 1024  # limit of timers that one append publishes
AT_ONCE_BYTES_MAX = 1 << 20
# Bytes of the FIRE that ends a timer, beside its messages.
END_BYTES = 128
READ_BYTES_MAX = 1 << 20  # limit of one read of TIMER records
# Two records closer than this are fetched by one read.
GAP_BYTES_MAX = 4096


class FoundTimer(NamedTuple):
    """A timer with its record, as it was read."""

    due: Due
    run: Run


class Delays:
    """The timers of one engine. One thread at a time publishes them, and one carries them
    forward.
    """

    def __init__(self, writer: Writer, files: Files) -> None:
        self._writer = writer
        self._files = files
        self._journal = writer.journal
        self._queue = writer.commit_queue
        self._timers = writer.ledger.timers
        room = writer.journal.append_bytes_max // 2
        self._bytes_max = min(AT_ONCE_BYTES_MAX, room)
        self._at_once = max(1, min(AT_ONCE_MAX, room // 32))
        self._no_room: str | None = None  # why due messages could not be published
        self._unreadable: str | None = None  # why a timer could not be read and was put aside

    # --- sending ------------------------------------------------------------------------------

    def check(self, runs: list[Run]) -> None:
        """Raise TooLarge for a timer that no append can publish."""
        for run in runs:
            if run.kind == TIMER and measured([run]) + END_BYTES > self._journal.append_bytes_max:
                self._journal.refuse(run.size + END_BYTES)

    # --- publishing ---------------------------------------------------------------------------

    def fire_due(self) -> None:
        """Publish all messages that are due. Raises EngineFailed, Closed or StorageFull."""
        while self._fire_some():
            pass

    @property
    def unreadable(self) -> str | None:
        """The reason why a due timer cannot be read. The timer goes on waiting."""
        return self._unreadable if self._timers.waiting and self._timers.aside else None

    @property
    def no_room(self) -> str | None:
        """The reason why due messages were not published: the disk is full."""
        return self._no_room if self._timers.waiting else None

    @property
    def are_waiting(self) -> bool:
        """True if any timer waits."""
        return self._timers.waiting > 0

    def next_due_us(self) -> int | None:
        """Return when the next timer is due; None without one."""
        with self._queue.lock:
            return self._timers.next_due_us()

    def _fire_some(self) -> bool:
        timers, queue = self._timers, self._queue
        if not timers.waiting:  # a first look, without the lock
            return False
        with queue.lock, queue.changing:
            queue.check()
            now = self._writer.clock.time_us()
            taken = timers.due(now, self._at_once, self._bytes_max)
            if not taken:
                self._no_room = None
                return False
            # The clock says that the timers are due. So no record that publishes them may have an
            # earlier time.
            self._writer.not_before_us = max(self._writer.not_before_us, now)
        # Their TIMER records are read below.
        self._writer.catch_up(max(due.position for due in taken))
        try:
            queue.run(self._plan_fire, [*self._read(taken, put_aside=True)], wait=True)
            self._no_room = None
        except StorageFull as error:
            self._no_room = f"messages are due, and there is no room to publish them: {error}"
            raise
        finally:
            with queue.lock:
                timers.put_back()
        return True

    def _plan_fire(self, found: list[FoundTimer]) -> None:
        """Plan the append that publishes the timers `found`, without those that have ended
        meanwhile.
        """
        ended = []
        records: list[Run | Changed] = []
        for due, run in found:
            if not self._timers.is_taken(due.number):
                continue
            ended.append(due.number)
            if not self._writer.ledger.is_deleted(run.topic, due.number):
                records.append(_message(due, run))
        if ended:
            places = [QueuePlace(0, number) for number in ended]
            self._writer.send([*records, Changed(ChangeKind.FIRE, "", "", places)])

    # --- recalling ----------------------------------------------------------------------------

    def recall(self, timing: Timing) -> bool:
        """End a timer before it is published; return whether that came in time."""
        return self._queue.run(self.plan_recall, timing)

    def plan_recall(self, timing: Timing, extension: bytes = b"") -> bool:
        """Plan the append that ends a timer. Return False if the timer does not wait any more. The
        caller holds the engine's lock.
        """
        if self._timers.find(timing) is None:
            return False
        recall = _recall(timing)
        recall.extension = extension
        self._writer.send([recall])
        return True

    # --- looking ------------------------------------------------------------------------------

    def look(self, topic: str | None, limit: int) -> list[DelayedReceipt]:
        """Return the receipts of the messages that wait, of one topic or of all. Damaged ones are
        left out, and a warning is logged.
        """
        found: list[DelayedReceipt] = []
        key = b""
        self._writer.catch_up(self._timers.changed_at)
        while len(found) < limit:
            with self._queue.lock:
                dues = self._timers.after(key, min(AT_ONCE_MAX, limit))
            if not dues:
                break
            # Their TIMER records are read below.
            self._writer.catch_up(max(due.position for due in dues))
            key = dues[-1].packed()[KEY]
            for due, run in self._read_sound(dues):
                with self._queue.lock:
                    is_gone = self._writer.ledger.is_deleted(run.topic, due.number)
                if topic in (None, run.topic) and not is_gone:
                    found.append(delayed_receipt(due, run))
        return found[:limit]

    def _read_sound(self, dues: list[Due]) -> list[FoundTimer]:
        try:
            return [*self._read(dues)]
        except Damaged:
            found: list[FoundTimer] = []
        for due in dues:
            try:
                found += self._read([due])
            except Damaged as error:
                logger.warning("a delayed message is left out: %s", error)
        return found

    # --- carrying forward ---------------------------------------------------------------------

    def carry_forward(self, floor: int) -> bool:
        """Append the timers that wait below `floor` again. Return False if there were none.

        Raises Damaged if a record cannot be read, or StorageFull. Some timers may have been
        appended before.
        """
        timers, queue = self._timers, self._queue
        with queue.lock:
            if not timers.has_below(floor):
                return False
            view = timers.view()
            timers.ended = set()
        self._queue.flush()
        try:
            below = (due_of(each) for each in view.entries() if position_in(each) < floor)
            while some := self._some_of(below):
                queue.run(self._plan_carry, [*self._read(some)], True)
        finally:
            with queue.lock:
                timers.ended = None
        return True

    def _some_of(self, dues: Iterator[Due]) -> list[Due]:
        """Return the first of `dues`: as many as one step carries forward."""
        some: list[Due] = []
        size = 0
        for due in islice(dues, self._at_once // 4 + 1):
            some.append(due)
            size += due.size
            if size >= self._bytes_max // 2:
                break
        return some

    def _plan_carry(self, found: list[FoundTimer]) -> None:
        ended = self._timers.ended
        assert ended is not None
        records: list[Run | Changed] = []
        for due, run in found:
            if due.number in ended:
                continue
            if self._writer.ledger.is_deleted(run.topic, due.number):
                records.append(_recall(Timing(due.due_us, due.number)))
            else:
                records.append(_carried(due, run))
        for part in self._appends(records):
            self._writer.send(part)

    def _appends(self, records: Sequence[Run | Changed]) -> Iterator[list[Record]]:
        """Yield appends of `records`, each of which fits a segment."""
        part: list[Record] = []
        size = 0
        for record in records:
            alone = measured([record])
            if part and size + alone > self._bytes_max:
                yield part
                part, size = [], 0
            part.append(record)
            size += alone
        if part:
            yield part

    # --- reading ------------------------------------------------------------------------------

    def read(self, dues: Iterable[Due]) -> Iterator[FoundTimer]:
        """Yield timers with their records. Timers that were dropped with their segments are left
        out.
        """
        return self._read([*dues])

    def _read(self, dues: list[Due], *, put_aside: bool = False) -> Iterator[FoundTimer]:
        """Yield timers with their records, in the order of `dues`. With `put_aside`, a timer that
        cannot be read is put aside until the directory is opened again; else Damaged is raised.
        """
        data: dict[int, tuple[bytes, int]] = {}
        found: list[FoundTimer] = []
        by_place = sorted(dues, key=lambda due: due.position)
        for _, alike in groupby(by_place, key=lambda due: self._base_of(due.position)):
            for part in _close_together([*alike]):
                self._read_part(part, data)
        for due in dues:
            try:
                if due.number in data:
                    found.append(self._decode(due, *data.pop(due.number)))
                else:
                    self._check_moved(due)
            except FmqError as error:
                if not put_aside:
                    raise
                self._unreadable = f"a delayed message cannot be read, and waits on: {error}"
                with self._queue.lock:
                    self._timers.aside.add(due.number)
        return iter(found)

    def _check_moved(self, due: Due) -> None:
        """Raise Damaged unless the segment was dropped because its timers had been carried
        forward.
        """
        with self._queue.lock:
            entry = self._timers.find(Timing(due.due_us, due.number))
        if entry is not None and position_in(entry) == due.position:
            raise Damaged(segment_name(0), due.position, "the segment of a TIMER is missing")

    def _base_of(self, position: int) -> int:
        """Return the base of the segment at `position`; -1 if it was dropped."""
        segment = self._journal.segment_of(position)
        return -1 if segment is None else segment.base

    def _read_part(self, part: list[Due], data: dict[int, tuple[bytes, int]]) -> None:
        """Read records that lie close together, and note in `data` the bytes of each and where it
        begins.
        """
        segment = self._journal.segment_of(part[0].position)
        if segment is None:
            return
        start, last = part[0].position, part[-1]
        try:
            with self._files.using(segment.base) as file:
                read = file.read(start - segment.base, last.position + last.size - start)
        except FileNotFoundError:
            if self._journal.segment_of(start) is not None:
                raise Damaged(segment.name, start, "the segment is missing") from None
            return
        for due in part:
            data[due.number] = read, due.position - start

    def _decode(self, due: Due, data: bytes, at: int) -> FoundTimer:
        name = segment_name(max(self._base_of(due.position), 0))
        try:
            run = decode(data, at, due.position, self._journal.seed)
        except UNREADABLE as error:
            raise Damaged(name, due.position, str(error)) from None
        timing = timing_in(run.extension)
        if not isinstance(run, Run) or run.kind != TIMER or timing is None:
            raise Damaged(name, due.position, "no TIMER, where the files of timers name one")
        if (timing.due_us, timing.number or due.position) != due[:2]:
            raise Damaged(name, due.position, "another TIMER than the files of timers name")
        return FoundTimer(due, with_bodies(data, at, run))


def _close_together(dues: list[Due]) -> Iterator[list[Due]]:
    """Group the timers by their place: yield those that one read fetches, in the order of the
    segment.
    """
    part: list[Due] = []
    for due in dues:
        if part:
            end = part[-1].position + part[-1].size
            far = due.position - end > GAP_BYTES_MAX
            if far or due.position + due.size - part[0].position > READ_BYTES_MAX:
                yield part
                part = []
        part.append(due)
    if part:
        yield part


def _recall(timing: Timing) -> Changed:
    """Return the CHANGE that ends a timer without publishing it."""
    place = QueuePlace(0, timing.number)
    return Changed(ChangeKind.RECALL, "", "", [place], value=timing.due_us)


def _message(due: Due, run: Run) -> Run:
    """Return the MESSAGE that publishes the timer `due`, and that names the timer."""
    message = copy_of(run, MESSAGE)
    message.tx = 0
    timing = Timing(due.due_us, due.number)
    message.extension = with_ids_taken(with_timing(run.extension, timing))
    return message


def _carried(due: Due, run: Run) -> Run:
    """Return the TIMER that replaces `run` when its segment is dropped."""
    timer = copy_of(run, TIMER)
    timer.tx = 0
    timer.extension = with_timing(run.extension, Timing(due.due_us, due.number))
    return timer
