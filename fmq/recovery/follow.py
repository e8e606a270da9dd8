"""Following a journal that another process writes, without a lock and without writing.

Each refresh begins where the last one ended, reads on, and applies the appends that are proven
durable by now. It forgets what it read beyond: if the writer dies, recovery may cut that, and the
next writer may write something else there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import NamedTuple

from fmq.errors import CheckpointLost, Damaged, EngineFailed, NotAStore
from fmq.machine.disk import Directory
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.layout import Layout, known_segments, look, read_header
from fmq.recovery.lost_slots import doubt
from fmq.recovery.recover import begin, begins_late, check_ends
from fmq.recovery.replay import Replay, rebuild_index
from fmq.store.index.catalog import SUFFIX, Catalog
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.durable_page import PageReader, Told
from fmq.store.journal.files import Files
from fmq.store.journal.section import Section
from fmq.store.journal.segment import OTHER_RECORDS, Segment, segment_name
from fmq.tx.ledger.ledger import Ledger

ATTEMPTS = 5


class _Begun(NamedTuple):
    """A replay that has run once.

    `damage` is what ended it, if anything did. `lasting` is damage that it has passed over.
    """

    replay: Replay
    damage: Damaged | None
    lasting: Damaged | None


def _listen(replay: Replay, told: Told) -> None:
    """Take from the page which position is durable. If its engine is open, let `replay` read no
    further.
    """
    replay.prove(told.durable_to)
    replay.told = told.durable_to if told.is_open else 0


class Follower:
    """The state of a journal that another process writes, as far as it is proven durable."""

    ledger: Ledger
    catalog: Catalog
    segments: list[Segment]

    def __init__(self, directory: Directory, lock: RLock, *, undecided: bool = True) -> None:
        """Without `undecided`, read only what comes after the checkpoint, even if undecided
        transactions were prepared before it. Those transactions are then not known.
        """
        self._directory = directory
        self._knows_undecided = undecided
        self._lock = lock
        self.damage: Damaged | None = None  # damage that ended the last replay
        # Damage before the position from which a refresh reads on. A refresh does not see it again.
        self._lasting: Damaged | None = None
        # The error once the journal cannot be followed any more.
        self.gone: NotAStore | None = None
        self._interrupted_by: BaseException | None = None
        self._changing = Section(self._note_interrupt)
        self.store = self._read_store()
        self.seed = zlib.crc32(self.store)
        self.files = Files(directory)
        self.files.segment_of = self.segment_of
        self._page = PageReader(directory, self.store)
        try:
            self._start_over()
        except BaseException:
            self._page.close()
            raise

    def _look(self) -> Layout:
        """Return the names in the directory. Raises NotAStore if there is no journal any more."""
        for _ in range(ATTEMPTS):  # one look may miss a name that is being replaced
            try:
                layout = look(self._directory)
            except FileNotFoundError:
                break  # the directory itself has been removed
            if not layout.fresh:
                return layout
        raise self._no_longer("the journal has been removed")

    def _read_store(self) -> bytes:
        """Return the store's UUID.

        A writer may drop the newest segment after the names are read; then look again.
        """
        for _ in range(ATTEMPTS - 1):
            with suppress(FileNotFoundError):
                return read_header(self._directory, self._look().bases[-1]).store
        return read_header(self._directory, self._look().bases[-1]).store

    def _check_store(self, store: bytes) -> None:
        """Raise NotAStore if another journal has taken the place of the journal that was opened."""
        if store != self.store:
            raise self._no_longer(
                f"the journal has been replaced by another one, of the store {store.hex()}"
            )

    def _no_longer(self, what: str) -> NotAStore:
        return NotAStore(
            f"{self._directory.path}: {what} since it was opened with read_only=True; what was "
            "read so far is no longer here. Nothing was changed. Open the directory again to read "
            "what it holds now."
        )

    def _start_over(self) -> None:
        """Begin anew at the newest checkpoint. After an error the old state stays.

        Raises CheckpointLost if more may be durable than can be seen, and no engine has the
        directory open.

        Meanwhile retention may drop a segment, a checkpoint may name a segment made after the
        names were read, and a writer may be in the middle of a write. So missing or damaged bytes
        count only if they are still so when all is begun anew.
        """
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                begun = self._begin(believe=last)
                break
            except (FileNotFoundError, Damaged, CheckpointLost):
                if last:
                    raise
        ledger, segments = begun.replay.ledger, begun.replay.segments
        catalog = Catalog(self._directory, self.store, self._rebuild)
        in_memory = {index.base for index in (ledger.index, *ledger.sealed)}
        for segment in segments:
            if segment.base not in in_memory and segment.base < ledger.index.base:
                catalog.add(segment.base, segment.chain)
        with self._lock, self._changing:
            self._replay, self.damage, self._lasting = begun
            self.files.refused = {}
            self._refuse_others(begun.damage)
            self.ledger, self.segments, self.catalog = ledger, segments, catalog
            self.files.close()  # open files again, so that none is older than what was replayed

    def _begin(self, *, believe: bool) -> _Begun:
        """Replay the journal. Damage is raised; with `believe`, it is returned with what comes
        before it.
        """
        # Read the page before the names of files. Then each segment below the position in the page
        # has a name.
        told = self._page.look()
        layout = self._look()
        replay = begin(self._directory, layout)
        self._check_store(replay.store)
        _listen(replay, told)
        if not self._knows_undecided and replay.checkpoint is not None:
            replay.forgo_undecided()
        at_rest = replay.applied_from
        try:
            replay.run(durable_only=True)
        except Damaged as error:
            if not believe:
                raise
            return _Begun(replay, error, error if error.position < at_rest else None)
        try:
            check_ends(replay, layout)
        except Damaged as error:
            if not believe:
                raise
            return _Begun(replay, error, error)
        if replay.sound_to:
            self._check_nothing_hidden(replay, checkpoints.read_slots(self._directory, self.store))
        return _Begun(replay, None, None)

    def _check_nothing_hidden(self, replay: Replay, slots: checkpoints.Slots) -> None:
        applied = replay.ledger.shown_to
        if (error := doubt(self._directory, slots, applied, replay.sound_to)) is not None:
            raise error

    def hidden(self) -> Damaged | None:
        """Return the error if it is unknown what the journal held before its first segment; else
        None.

        It is unknown if neither a checkpoint nor a STATE has said it. The caller holds the engine's
        lock.
        """
        if not self.ledger.unsettled:
            return None
        return self.damage or begins_late(self.segments[0].base)

    def _rebuild(self, base: int) -> SegmentIndex:
        segment = self.segment_of(base)
        if segment is None:
            raise FileNotFoundError(segment_name(base))
        return rebuild_index(self._directory, segment, self.store)

    def _run(self) -> None:
        """Apply what is newly proven durable. Damage counts only if a second look finds it
        again.
        """
        for attempt in range(ATTEMPTS):
            try:
                with self._lock:
                    self._run_once()
                self.damage = self._lasting
                return
            except Damaged as error:
                if attempt == ATTEMPTS - 1:
                    self.damage = error
                    self._refuse_others(error)
                else:
                    self._replay.resume(self._replay.segments)

    def _refuse_others(self, damage: Damaged | None) -> None:
        """Refuse all reads of a segment if its end shows that it holds records of another journal.
        Some of these records may have been applied before.
        """
        if damage is not None and damage.reason == OTHER_RECORDS:
            self.files.refused[damage.position] = damage

    def _run_once(self) -> None:
        """Run the replay, and close the files that it has read. The caller holds the lock."""
        try:
            self._replay.run(durable_only=True)
        finally:
            self._open_anew()

    def _open_anew(self) -> None:
        """Close the files of the segments that were just read.

        Each may have been the last segment since then, and recovery may have put a copy in its
        place. What is appended after the cut is in the copy alone.
        """
        for segment in self._replay.segments:
            self.files.forget(segment.base)

    def refresh(self) -> None:
        """Apply what has become durable since the last refresh.

        Raises NotAStore, now and from then on, if the journal is gone.
        """
        self.check()
        try:
            self._refresh()
        except NotAStore as error:
            self.gone = error
            raise

    def check(self) -> None:
        """Raise the error that keeps the journal from being followed further, if there is one."""
        if self.gone is not None:
            raise self.gone.with_traceback(None)
        error = self._interrupted_by or self._replay.interrupted_by
        if error is not None:
            raise EngineFailed(
                f"{self._directory.path}: a call was interrupted while it applied what is new "
                f"({error!r}), so nothing can be read any more. Nothing was changed; open the "
                "directory again."
            )

    def _note_interrupt(self, error: BaseException) -> None:
        self._interrupted_by = error

    def has_more(self) -> bool:
        """Return whether the page says that more is durable than is visible. This makes no system
        call.
        """
        return self._page.glance() > self._replay.durable_to

    def _refresh(self) -> None:
        # Read the page before the names of files. Then each segment below the position in the page
        # has a name.
        told = self._page.look()
        layout = self._look()
        here = self._replay.ledger.index.base
        if here not in layout.bases:
            self._start_over()
            return
        # An open engine's page is newer than any checkpoint.
        slots = None if told.is_open else checkpoints.read_slots(self._directory, self.store)
        ahead = layout._replace(bases=tuple(base for base in layout.bases if base >= here))
        try:
            newest = read_header(self._directory, layout.bases[-1])
            self._check_store(newest.store)
            segments = known_segments(self._directory, ahead, None, newest)
            self._replay.first = layout.bases[0]
            self._replay.resume(segments)
            _listen(self._replay, told)
            if slots is not None and slots.newest is not None:
                self._replay.prove(slots.newest.applied_upto)
            with self._lock:
                # Do this before the run, which may apply appends from these segments and then
                # raise.
                self.segments = [each for each in self.segments if each.base < here] + segments
            self._run()
            if self.damage is None and slots is not None:
                self._check_nothing_hidden(self._replay, slots)
        except (FileNotFoundError, CheckpointLost):
            self._start_over()
            return
        self._take_over(set(layout.names))

    def _take_over(self, names: set[str]) -> None:
        """Drop from memory the indexes that are on disk by now, and the segments that retention
        dropped.
        """
        with self._lock, self._changing:
            sealed = self.ledger.sealed
            while sealed and sealed[0].base < self.ledger.floor:
                # Retention dropped the segment before its index was written, or before this
                # follower saw the index.
                sealed.pop(0)
            while sealed and segment_name(sealed[0].base, SUFFIX) in names:
                base = sealed.pop(0).base
                segment = self.segment_of(base)
                self.catalog.add(base, 0 if segment is None else segment.chain)
            while self.segments[0].limit <= self.ledger.floor:
                base = self.segments.pop(0).base
                self.files.forget(base)
                if self.catalog.bases()[:1] == [base]:
                    self.catalog.drop(base)

    def all_on_the_disk(self) -> Ledger:
        """Return the state up to the last sound append in the journal, proven durable or not.

        An engine may write meanwhile. So what is missing or damaged counts only if it is still so
        when all is read again.
        """
        for attempt in range(ATTEMPTS):
            try:
                replay = begin(self._directory, self._look())
                replay.run()
                break
            except (FileNotFoundError, Damaged):
                if attempt == ATTEMPTS - 1:
                    raise
        return replay.ledger

    @contextmanager
    def with_timers(self) -> Iterator[Ledger]:
        """Return the proven state including timers, which a follower does not keep otherwise.

        An engine may drop segments and files meanwhile. So what is missing or damaged counts only
        if it is still so when all is read again.
        """
        for attempt in range(ATTEMPTS):
            replay = None
            try:
                told = self._page.look()
                replay = begin(self._directory, self._look(), with_timers=True)
                _listen(replay, told)
                replay.run(durable_only=True)
                break
            except (FileNotFoundError, Damaged):
                if replay is not None:
                    replay.ledger.timers.close()
                if attempt == ATTEMPTS - 1:
                    raise
        assert replay is not None
        try:
            yield replay.ledger
        finally:
            replay.ledger.timers.close()

    def segment_of(self, position: int) -> Segment | None:
        """Return the segment that holds `position`; None if it was dropped."""
        for segment in reversed(self.segments):
            if segment.base <= position:
                return segment
        return None

    def close(self) -> None:
        self._page.close()
        self.files.close()

    def forked(self) -> None:
        """Replace the locks in a forked child, where the threads that held them do not exist."""
        self._page.forked()
        self.files.forked()
