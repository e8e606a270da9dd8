"""What an engine does for itself: indexes, spares, checkpoints, relocation, retention.

All of it is off the path of those who write, and all of it is derived or can be repeated, so a
full disk met here ends nothing: it is noted, shown by `stats()`, and tried again.

A thread runs it when there is something to do; an engine opened with `background=False` runs
it at the end of its own calls, in the same order, which makes it deterministic.
"""

from __future__ import annotations

import contextlib
import threading

from fmq.clock import Clock
from fmq.disk import Directory
from fmq.errors import EngineFailed, StorageFull
from fmq.options import Options
from fmq.recovery.checkpoint import Checkpoint, CheckpointWriter
from fmq.recovery.replay import PART
from fmq.retention import Retention
from fmq.store.catalog import Catalog
from fmq.store.segment import base_of, segment_name
from fmq.store.spares import ZERO_SECONDS
from fmq.tx.manager import TransactionManager
from fmq.tx.writer import Writer


class Housekeeping:
    """The engine's own chores. `round` does all that is due; one thread at a time."""

    def __init__(
        self,
        directory: Directory,
        store: bytes,
        writer: Writer,
        manager: TransactionManager,
        catalog: Catalog,
        checkpoints: CheckpointWriter,
        applied_upto: int,
        part_size: int,
    ) -> None:
        self._directory = directory
        self._store = store
        self._writer = writer
        self._manager = manager
        self._catalog = catalog
        self._checkpoints = checkpoints
        self._journal = writer.journal
        self._ledger = writer.ledger
        self._group = writer.group
        self._clock: Clock = writer.clock
        self._options: Options = writer.options
        self.retention = Retention(directory, writer, catalog, writer.options)
        self._running = threading.Lock()
        self.checkpointed = applied_upto
        self._scan_from = applied_upto
        self._part_base = self._ledger.index.base
        self._part_size = part_size
        self._last_seen = self._ledger.applied_upto
        self._last_change = self._clock.monotonic()
        self._last_roll = self._last_change
        self._writing = self._journal.current.base
        self.trouble: str | None = None
        self.checkpoints = 0

    # --- one round --------------------------------------------------------------------------

    def round(self) -> None:
        """Do whatever is due."""
        with self._running:
            try:
                self._flush_pending()
                self._write_indexes()
                self._make_spare()
                while self._manager.relocate_oldest():
                    pass
                if self._checkpoint_due():
                    self._checkpoint(clean=False)
                self.retention.remove()
                if self._retention_wanted() and self.retention.due():
                    self._retain()
                self.trouble = None
            except StorageFull as error:
                self.trouble = str(error)
            except OSError as error:
                # Only files that are derived are written here, and each is checked when it is
                # read: without it recovery has more to do, and nothing is lost.
                self.trouble = f"a file that can be built again: {error}; trying again later"

    def stop_engine(self, error: BaseException) -> None:
        """A chore failed in a way that nobody foresaw: better no engine than a wrong one."""
        with self._group.lock:
            self._group.fail(error)

    def _flush_pending(self) -> None:
        with self._group.lock:
            left_over = self._journal.pending_bytes
        if left_over:
            self._group.flush()

    def _write_indexes(self) -> None:
        while self._ledger.sealed:
            index = self._ledger.sealed[0]
            self._catalog.write(index)
            with self._group.lock:
                self._catalog.add(index.base)
                self._ledger.sealed.pop(0)

    def _make_spare(self) -> None:
        now = self._clock.monotonic()
        current = self._journal.current.base
        fast = current > 0 and now - self._last_roll < ZERO_SECONDS
        if current != self._writing:
            self._writing, self._last_roll = current, now
        self._journal.spares.make_ahead(zeros=not fast)

    # --- checkpoint -------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        applied = self._ledger.applied_upto
        now = self._clock.monotonic()
        if applied != self._last_seen:
            self._last_seen, self._last_change = applied, now
        if applied - self.checkpointed >= self._options.checkpoint_bytes:
            return True
        idle = now - self._last_change >= self._options.checkpoint_idle_seconds
        return applied != self.checkpointed and idle

    def pressing(self) -> bool:
        """Whether there is something to do before the engine is idle. Under the engine's lock."""
        return (
            self._ledger.applied_upto - self.checkpointed >= self._options.checkpoint_bytes
            or bool(self._ledger.sealed)
        )

    def pending(self) -> bool:
        """Whether something waits for the next sync."""
        return bool(self._journal.pending_bytes)

    def idle(self) -> bool:
        """Whether everything applied is in a checkpoint, so that there is nothing to wait for."""
        if self._options.retain_seconds is not None and len(self._journal.segments) > 1:
            return False  # time alone makes retention due
        applied = self._ledger.applied_upto == self.checkpointed
        return applied and not self._ledger.sealed and not self._journal.pending_bytes

    def checkpoint(self, *, clean: bool = False) -> None:
        """Write a checkpoint of this instant now."""
        with self._running:
            self._checkpoint(clean=clean)

    def _checkpoint(self, *, clean: bool) -> None:
        if self._options.sync == "never" and not clean:
            self._group.flush(force=True)
        self._write_indexes()
        with self._group.lock:
            if self._group.broken():
                # Not even a checkpoint: after a failed sync nothing on the disk is certain.
                raise self._group.failed_error()
            checkpoint, part, part_at, part_base = self._note(clean)
        try:
            if part:
                self._append_part(part_base, part, part_at)
            self._checkpoints.write(checkpoint)
        except OSError:
            self._forget_part(part_base)
            raise
        self._part_base, self._part_size = part_base, checkpoint.part_size
        self.checkpointed, self._scan_from = checkpoint.applied_upto, checkpoint.scan_from
        self.checkpoints += 1
        self._remove_old_parts()

    def _note(self, clean: bool) -> tuple[Checkpoint, bytes, int, int]:
        """The checkpoint of this instant, and what is to be added to the part. Under the lock."""
        ledger, journal = self._ledger, self._journal
        index = ledger.index
        applied = ledger.applied_upto
        oldest = ledger.oldest_undecided()
        part_at = self._part_size if self._part_base == index.base else 0
        if not part_at:
            index.saved, index.saved_outcomes = {}, 0
        nothing_new = not index.lanes and not index.outcome_keys
        part = b"" if nothing_new else index.encode_unsaved(self._store)
        index.mark_saved()
        segments = [[s.base, s.capacity, s.end, s.chain] for s in journal.segments]
        while segments[-1][0] > index.base:
            segments.pop()  # opened ahead, and nothing in it has been applied
        checkpoint = Checkpoint(
            self._store.hex(),
            applied,
            applied if oldest is None else min(applied, oldest),
            self._chain_at(applied),
            part_at + len(part),
            segments,
            ledger.carried(),
            clean,
            self._checkpoints.generation + 1,
        )
        return checkpoint, part, part_at, index.base

    def _chain_at(self, applied: int) -> int:
        segment = self._journal.segment_of(applied)
        assert segment is not None
        if segment is self._journal.current or self._journal.durable_to == applied:
            return self._journal.written_chain
        return segment.chain

    def _append_part(self, base: int, part: bytes, at: int) -> None:
        name = segment_name(base, PART)
        try:
            file = self._directory.open(name, write=True)
            new = False
        except FileNotFoundError:
            file = self._directory.create(name)
            new = True
        try:
            file.write(at, (part,), sync=True)
            file.sync()
        finally:
            file.close()
        if new:
            self._directory.sync()

    def _forget_part(self, base: int) -> None:
        """The part could not be written: begin it anew with the next checkpoint."""
        self._part_base, self._part_size = -1, 0

    def _remove_old_parts(self) -> None:
        """Parts of sealed segments are indexes by now, and no checkpoint names them."""
        for name in self._directory.names():
            if name.endswith(PART) and base_of(name) < self._part_base:
                with contextlib.suppress(FileNotFoundError):
                    self._directory.remove(name)

    # --- retention --------------------------------------------------------------------------

    def _retention_wanted(self) -> bool:
        return self._options.retain_bytes is not None or self._options.retain_seconds is not None

    def _retain(self) -> None:
        retention = self.retention
        if not retention.choose(self._scan_from) and self._ledger.applied_upto > self.checkpointed:
            self._checkpoint(clean=False)
        segments, locks = retention.lock_out_exports(retention.choose(self._scan_from))
        try:
            if segments:
                retention.carry_over(segments)
                self._checkpoint(clean=False)
                retention.forget(segments)
                retention.remove()
        finally:
            for lock in locks:
                lock.close()


class HousekeepingThread:
    """Runs rounds in the background: when kicked, and while something is left to wait for."""

    def __init__(self, chores: Housekeeping, clock: Clock, options: Options) -> None:
        self._chores = chores
        self._clock = clock
        self._idle_seconds = options.checkpoint_idle_seconds
        self._sync_seconds = min(options.sync_interval_seconds, self._idle_seconds)
        self._lock = threading.Lock()
        self._lock.acquire()
        self._stopping = threading.Event()
        self._asleep = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fmq housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kick(self) -> None:
        """There is something to do."""
        with contextlib.suppress(RuntimeError):  # it has been kicked already
            self._lock.release()

    def kick_if_due(self) -> None:
        """Begin to wait for an idle moment, or do at once what cannot wait. Under the lock."""
        if self._asleep or self._chores.pressing():
            self.kick()

    def stop(self) -> None:
        """End the thread after the round it is in."""
        self._stopping.set()
        self.kick()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            # Said before it is looked at: whoever publishes in between wakes the thread.
            self._asleep = True
            if self._chores.idle():
                self._clock.wait(self._lock, None)
            self._asleep = False
            if (
                self._chores.trouble or not self._chores.pressing()
            ) and not self._stopping.is_set():
                self._clock.wait(self._lock, self._pause())
            if self._stopping.is_set() or not self._round():
                return

    def _pause(self) -> float:
        return self._sync_seconds if self._chores.pending() else self._idle_seconds

    def _round(self) -> bool:
        try:
            self._chores.round()
        except EngineFailed:
            return False
        except BaseException as error:
            self.error = error
            self._chores.stop_engine(error)
            return False
        return True
