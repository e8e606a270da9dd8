"""Taking a checkpoint of a running engine: noted at one instant, written while calls go on.

The order makes it true whenever it is read:

    1. indexes of sealed segments are on the disk before this begins
    2. under the engine's lock, note the state
    3. if what was noted is not durable, sync it
    4. write and sync the part of the index
    5. write the slot

The first checkpoint of a journal writes its slot before its part: a part without a slot would look
like a lost checkpoint. A slot whose part is missing or torn is valid, and recovery builds the index
again.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from fmq.chores.due_files import DueFiles
from fmq.errors import StorageError, StorageFull, Unreadable
from fmq.machine.disk import Directory, is_full
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.checkpoint import PART, Checkpoint, CheckpointWriter
from fmq.recovery.recover import Recovered
from fmq.store.index.index_blocks import encode_unsaved
from fmq.store.journal.segment import base_of, belongs, segment_name
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.carryover import carried_of


class _Noted(NamedTuple):
    """The noted checkpoint, and the bytes to append to the part file before its slot is written."""

    checkpoint: Checkpoint
    part: bytes
    part_at: int
    base: int


class Checkpointer:
    """Takes the checkpoints of one engine, in one thread at a time."""

    def __init__(
        self, directory: Directory, writer: Writer, found: Recovered, due_files: DueFiles
    ) -> None:
        self._directory = directory
        self._store = found.store
        self._writer = writer
        self._journal = writer.journal
        self._ledger = writer.ledger
        self._due_files = due_files
        self._commit_queue = writer.commit_queue
        # With sync="never", what readers see may not be durable yet.
        self._syncs = writer.options.sync == "never"
        last = found.checkpoint
        self._slots = CheckpointWriter(directory, found.generation)
        self._part_base = self._ledger.index.base
        self._part_size = found.part_size
        self.upto = last.applied_upto if last else -1
        """The newest checkpoint has all that was applied below this position."""
        self.scan_from = self.upto
        self.taken = 0

    def take(self, *, clean: bool) -> None:
        """Write a checkpoint of the state at this moment; durable on return."""
        try:
            with self._commit_queue.lock, self._commit_queue.changing:
                if self._commit_queue.broken():
                    # After a failed sync nothing is known of the disk. A checkpoint could name
                    # records that the disk lacks.
                    raise self._commit_queue.failed_error()
                if not clean:
                    with contextlib.suppress(StorageFull):  # the page keeps the attempts
                        self._writer.write_attempts()
                noted = self._note(clean)
                obsolete, self._ledger.timers.obsolete = self._ledger.timers.obsolete, []
            # Sync after the state was noted, and not before: the state includes appends that were
            # planned just before it was noted.
            if not clean and (
                self._syncs or noted.checkpoint.applied_upto > self._journal.durable_to
            ):
                self._commit_queue.flush(force=True)
            checkpoint = noted.checkpoint
            self._due_files.save()
            if self._is_first():
                self._slots.write(checkpoint)
                # Append even if there is nothing new. With a part file, a slot that is not sound
                # means lost data.
                self._append_part(noted.base, noted.part, noted.part_at)
            else:
                if noted.part:
                    self._append_part(noted.base, noted.part, noted.part_at)
                self._slots.write(checkpoint)
            self._part_base, self._part_size = noted.base, checkpoint.part_size
        except BaseException:
            # The index counts bytes as saved that the part file may lack. Write the whole part next
            # time.
            self._part_base, self._part_size = -1, 0
            raise
        self.upto, self.scan_from = checkpoint.applied_upto, checkpoint.scan_from
        self.taken += 1
        self._remove_old_parts()
        self._due_files.remove(obsolete)

    def _note(self, clean: bool) -> _Noted:
        """Collect what the checkpoint will say. The caller holds the engine's lock."""
        ledger, journal = self._ledger, self._journal
        index = ledger.index
        applied = ledger.end
        oldest = ledger.oldest_undecided()
        goes_on = self._part_base == index.base and not index.begins_anew
        part_at = self._part_size if goes_on else 0
        index.begins_anew = False
        if not part_at:
            index.mark_unsaved()
        part = b"" if index.is_empty else encode_unsaved(index, self._store)
        index.mark_saved()
        segments = [[s.base, s.capacity, s.end, s.chain, s.epoch] for s in journal.segments]
        while segments[-1][0] > index.base:
            # The last segment was opened ahead of use; no append in it is applied yet.
            segments.pop()
        checkpoint = Checkpoint(
            self._store.hex(),
            applied,
            applied if oldest is None else min(applied, oldest),
            self._chain_at(applied),
            part_at + len(part),
            segments,
            carried_of(ledger),
            clean,
            self._slots.generation + 1,
            ledger.timers.noted(self._store),
        )
        return _Noted(checkpoint, part, part_at, index.base)

    def _is_first(self) -> bool:
        """Return whether no checkpoint was ever written in this directory.

        An old part says that there was one. Until a slot is durable again, readers must not take
        the directory for one without a checkpoint.
        """
        return not self._slots.generation and not checkpoints.has_part(self._directory)

    def _chain_at(self, applied: int) -> int:
        journal = self._journal
        if applied == journal.position:
            return journal.current.chain
        # Nothing was written since the engine was opened, and the newest segment is empty. So
        # `applied` is the end of the segment before it.
        return next(each.chain for each in reversed(journal.segments) if each.end == applied)

    def _append_part(self, base: int, part: bytes, at: int) -> None:
        name = segment_name(base, PART)
        try:
            file = self._directory.open(name, write=True)
            new = False
        except FileNotFoundError:
            file = self._directory.create(name)
            new = True
        try:
            if part:
                file.write(at, (part,), sync=True)
            file.sync()
        finally:
            file.close()
        if new:
            self._directory.sync()

    def _remove_old_parts(self) -> None:
        """Remove the part files of sealed segments, which have whole indexes by now."""
        for name in self._directory.names():
            if name.endswith(PART) and belongs(name) and base_of(name) < self._part_base:
                with contextlib.suppress(FileNotFoundError):
                    self._directory.remove(name)


def no_checkpoint(path: str, error: OSError) -> StorageError:
    """Return the error of `engine.checkpoint()` for an OSError of the machine."""
    if is_full(error):
        return StorageFull(
            f"{path}: no room for a checkpoint ({error.strerror}). Nothing was lost, and the older "
            "one is still valid; free some room and call again."
        )
    return Unreadable(path, error)
