"""From a directory to what an engine starts with, in the order things happen.

Look at the names · read the newest header · read the checkpoint · read the headers that it does
not know · replay · judge the tail · copy it if it is not proven durable · finish what a retention
began.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from fmq.disk import Directory, Disk, free, is_full
from fmq.errors import Damaged, StorageFull, Unreadable
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.checkpoint import PART, Checkpoint
from fmq.recovery.layout import FAILED, LOCK, Layout, known_segments, look, read_header
from fmq.recovery.mend import copy_tail, tail_is_zeros
from fmq.recovery.replay import Replay
from fmq.store.catalog import SUFFIX as INDEX_SUFFIX
from fmq.store.journal import create_first_segment
from fmq.store.segment import HEADER_BYTES, STORE_BYTES, Segment, base_of, belongs, segment_name
from fmq.store.spares import FIRST_SPARE, all_zeros, create_spare, is_spare, is_unproven
from fmq.tx.ledger import Ledger

LEFTOVER = (".new", ".copy", INDEX_SUFFIX, PART)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening found and did."""

    clean: bool
    """Whether the directory had been closed, so that nothing had to be proven."""
    replayed_bytes: int
    undecided: int
    cut_bytes: int
    """Bytes behind the last whole append, which nothing proves durable; kept in quarantine/."""
    copied: bool
    """Whether the last segment was copied, because its tail was not proven durable."""


class Recovered(NamedTuple):
    """What an engine starts with."""

    store: bytes
    segments: list[Segment]
    ledger: Ledger
    checkpoint: Checkpoint | None
    generation: int
    """The largest of a checkpoint of this store that is there, be it of any use or not."""
    part_size: int
    report: RecoveryReport


class Claimed(NamedTuple):
    """A directory that nobody else writes to, until `unlock` is called."""

    found: Recovered
    unlock: Callable[[], None]


def claim(directory: Directory, disk: Disk, segment_bytes: int) -> Claimed:
    """Lock `directory`, and recover the journal in it or begin one.

    Damaged and NewerFormat leave the directory as it was.
    """
    look(directory)  # first: in a directory that is not fmq's not even a lock is made
    unlock = directory.lock(LOCK)
    try:
        layout = look(directory)
        if layout.fresh:
            return Claimed(begin_new(directory, disk.random(STORE_BYTES), segment_bytes), unlock)
        return Claimed(recover(directory, layout), unlock)
    except BaseException:
        unlock()
        raise


def recover(directory: Directory, layout: Layout) -> Recovered:
    """The state of the journal, made durable; it is the caller's to hold the lock."""
    assert not layout.fresh, "a new journal is begun, not recovered"
    replay = begin(directory, layout)
    store = replay.store
    replay.run()
    last = replay.segments[-1]
    check_ends(replay, layout)
    # A header is durable before its segment gets its name.
    proven = last.end == last.base + HEADER_BYTES
    if replay.checkpoint is not None and replay.checkpoint.applied_upto == last.end:
        proven = True
    cut = 0
    # Of bytes whose write has failed nothing may be left to be seen; it must not be gone on with.
    failed = FAILED in layout.names
    copied = failed or not proven or not tail_is_zeros(directory, last)
    _remove_unproven(directory, layout)  # on a full disk a copy needs their room
    if copied:
        cut = _copy_giving_up_spares(directory, last)
        if replay.ledger.undecided:
            _make_again(directory, layout, last.capacity)
        if failed:
            directory.remove(FAILED)
    else:
        # A segment may have been named just before a kill, and its name not be durable yet.
        directory.sync()
    segments = _drop_below_floor(directory, replay.segments, replay.ledger)
    _remove_leftovers(directory, segments)
    clean = bool(replay.checkpoint and replay.checkpoint.clean and not copied)
    report = RecoveryReport(
        clean=clean,
        replayed_bytes=replay.replayed_bytes,
        undecided=len(replay.ledger.undecided),
        cut_bytes=cut,
        copied=copied,
    )
    # Of two slots the larger one is believed: what is written from now on must be above one that
    # is of no use, as it speaks of segments that were dropped since.
    newest = replay.checkpoint or checkpoints.read(directory, store)
    if newest is None:
        _remove_slots(directory)
    return Recovered(
        store,
        segments,
        replay.ledger,
        replay.checkpoint,
        newest.generation if newest else 0,
        replay.part_size,
        report,
    )


def begin_new(directory: Directory, store: bytes, capacity: int) -> Recovered:
    """A new journal, that of `store`, in an empty directory."""
    try:
        segment = create_first_segment(directory, store, capacity)
    except OSError as error:
        if not is_full(error):
            raise Unreadable(directory.path, error, begun=True) from error
        raise StorageFull(
            f"{directory.path}: no room for the first segment ({capacity:,} bytes). Nothing was "
            "written; free some room and open again."
        ) from error
    ledger = Ledger(segment.base)
    report = RecoveryReport(clean=True, replayed_bytes=0, undecided=0, cut_bytes=0, copied=False)
    ledger.applied_upto = ledger.index.end = segment.end
    return Recovered(store, [segment], ledger, None, 0, 0, report)


def begin(directory: Directory, layout: Layout) -> Replay:
    """Return a replay that has not run yet."""
    newest = read_header(directory, layout.bases[-1])
    store = newest.store
    checkpoint = checkpoints.read(directory, store)
    if checkpoint is None:
        checkpoints.refuse_other_store(directory, store, newest.base)
    elif checkpoint.scan_from < layout.bases[0]:
        # An older slot, from before a retention: what it speaks of was dropped, if a STATE
        # record says so, which the replay will tell.
        checkpoint = None
    segments = known_segments(directory, layout, checkpoint, newest)
    if checkpoint is not None:
        _check_checkpoint(checkpoint, segments)
    return Replay(directory, store, zlib.crc32(store), segments, checkpoint)


def _check_checkpoint(checkpoint: Checkpoint, segments: list[Segment]) -> None:
    """A sound checkpoint that does not fit the segments means that some are not there."""
    last = segments[-1]
    if checkpoint.applied_upto > last.limit:
        reason = f"shorter than promised: the checkpoint knows data up to {checkpoint.applied_upto}"
        raise Damaged(last.name, last.limit, reason)


def check_ends(replay: Replay, layout: Layout) -> None:
    """Nothing is missing at either end.

    Retention drops the oldest first and says so before; any other missing segment is damage.
    """
    first = replay.segments[0].base
    if first > replay.ledger.floor or replay.ledger.unsettled:
        raise begins_late(first)
    last = replay.segments[-1]
    if segment_name(last.base, INDEX_SUFFIX) in layout.names:
        # It gets its index once the segment behind it is durable and in use.
        reason = f"the segment is missing: the one before it, {last.name}, was sealed"
        raise Damaged(segment_name(last.limit), last.limit, reason)


def begins_late(first: int) -> Damaged:
    """What to say of a journal that begins with the segment at `first`, and nothing says why."""
    reason = "the segments before it are missing, and no STATE record says they were dropped"
    return Damaged(segment_name(first), first, reason)


def _copy_giving_up_spares(directory: Directory, last: Segment) -> int:
    """Put a copy of the last segment in its place; bytes cut. Where there is no room for that, or
    to keep what is cut, spares are given up for it: the old file will leave as much.
    """
    while True:
        spare = _spare(directory, last.capacity)
        try:
            return copy_tail(directory, last, spare)
        except StorageFull:
            others = [name for name in directory.names() if is_spare(name) and name != spare]
            if not others:
                raise
            free(directory, min(others))


def _spare(directory: Directory, capacity: int) -> str | None:
    """A spare that can take the copy: of the right size, and zeros throughout."""
    for name in sorted(directory.names()):
        if is_spare(name):
            with contextlib.suppress(OSError):  # another one, or one that is made
                file = directory.open(name)
                try:
                    if file.size() == capacity and all_zeros(file, capacity):
                        return name
                finally:
                    file.close()
    return None


def _remove_unproven(directory: Directory, layout: Layout) -> None:
    """Files that were to become spares, or had been: nobody knows what they keep."""
    unproven = sorted(filter(is_unproven, layout.names))
    if unproven:
        free(directory, *unproven)


def _make_again(directory: Directory, layout: Layout, capacity: int) -> None:
    """The spares that the copy took were set aside for decisions, which no full disk may refuse,
    and so was one that was never finished. What was replaced has just left as much room: take it
    before anybody else does.
    """
    there = set(filter(is_spare, directory.names()))
    lost = set(filter(is_spare, layout.names)) - there
    if not there and not lost:
        lost.add(FIRST_SPARE)
    with contextlib.suppress(OSError):
        for name in sorted(lost):
            create_spare(directory, name, capacity, zeros=False).close()


def _drop_below_floor(
    directory: Directory, segments: list[Segment], ledger: Ledger
) -> list[Segment]:
    """Finish a retention that a crash interrupted: the STATE record is durable, the files are not
    needed. Oldest first, so that what is left is never a journal with a hole.
    """
    kept = [segment for segment in segments if segment.limit > ledger.floor]
    for segment in segments[: len(segments) - len(kept)]:
        directory.remove(segment.name)
        with contextlib.suppress(FileNotFoundError):
            directory.remove(segment_name(segment.base, INDEX_SUFFIX))
        # Each by itself: nothing orders two removals but a sync between them.
        directory.sync()
    if len(kept) < len(segments):
        ledger.sealed = [index for index in ledger.sealed if index.base >= kept[0].base]
    return kept


def _remove_slots(directory: Directory) -> None:
    """Remove slots that say nothing: a reader would take them for some that had said more."""
    for name in checkpoints.SLOTS:
        with contextlib.suppress(OSError):
            directory.remove(name)


def _remove_leftovers(directory: Directory, segments: list[Segment]) -> None:
    """Temporary files that no one will finish, and parts and indexes of segments that are gone."""
    bases = {segment.base for segment in segments}
    for name in directory.names():
        if name.endswith(LEFTOVER) and belongs(name):
            temporary = not name.endswith((INDEX_SUFFIX, PART))
            if temporary or base_of(name) not in bases:
                directory.remove(name)
