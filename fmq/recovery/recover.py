"""From a directory to everything that an engine starts with, in the order in which things happen.

Look at the names · read the newest header · read the checkpoint · read the other headers · replay ·
judge the tail · copy the last segment if its tail is not proven durable · finish what a retention
began.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fmq.errors import Damaged, HomeRefused, StorageFull, Unreadable
from fmq.machine.disk import Directory, Disk, free, is_full
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery import erasure_file
from fmq.recovery.checkpoint import PART, Checkpoint
from fmq.recovery.layout import (
    FAILED,
    HOME,
    LOCK,
    Layout,
    known_header,
    known_segments,
    look,
    read_header,
    with_known,
)
from fmq.recovery.mend import copy_tail, tail_is_zeros, turn_back
from fmq.recovery.replay import Replay
from fmq.recovery.timer_files import number_files, remove_unnamed
from fmq.store.index.catalog import SUFFIX as INDEX_SUFFIX
from fmq.store.journal.attempt_page import Counted, noted_in
from fmq.store.journal.durable_page import PAGE, told_in
from fmq.store.journal.journal import create_first_segment
from fmq.store.journal.segment import (
    HEADER_BYTES,
    STORE_BYTES,
    Header,
    Segment,
    base_of,
    belongs,
    segment_name,
)
from fmq.store.journal.spares import FIRST_SPARE, all_zeros, create_spare, is_spare, is_unproven
from fmq.store.reading.key_marks import SUFFIX as KEYS_SUFFIX
from fmq.tx.ledger.ledger import Ledger

logger = logging.getLogger("fmq.recovery")
LEFTOVER = (".new", ".copy", INDEX_SUFFIX, KEYS_SUFFIX, PART)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What an opening found, and what it changed."""

    clean: bool
    """Whether the engine before had been closed, so that nothing had to be proven."""
    replayed_bytes: int
    undecided: int
    cut_bytes: int
    """Bytes after the last whole append, which nothing proves durable. quarantine/ keeps them."""
    copied: bool
    """Whether the last segment was copied, because its tail was not proven durable."""
    damaged: tuple[str, ...] = ()
    """What this opening has passed over: where it lies, and what is wrong. Messages there cannot be
    read any more; all else is as it was.
    """


class Recovered(NamedTuple):
    """Everything that an engine starts with."""

    store: bytes
    segments: list[Segment]
    ledger: Ledger
    checkpoint: Checkpoint | None
    generation: int
    """The largest of a checkpoint of this store that was found, even of one that is not used."""
    part_size: int
    report: RecoveryReport
    counted: Sequence[Counted] = ()
    """The attempts that only the page ATTEMPTS had."""


class LockedDirectory(NamedTuple):
    """A directory that is locked by this engine until `unlock` is called."""

    found: Recovered
    unlock: Callable[[], None]


def lock_and_recover(directory: Directory, disk: Disk, capacity: int) -> LockedDirectory:
    """Lock `directory`, and recover its journal, or begin a new one, whose first segment holds
    `capacity` bytes.

    Raises Damaged or NewerFormat, and leaves the directory as it was.
    """
    # Look before locking: nothing may be written in a directory that is not fmq's.
    if HOME in look(directory).names:
        raise HomeRefused(
            f"{directory.path}: is the cache of a home, which would not have what is written here. "
            "Nothing was changed. Open it with home=, which the file HOME names, or look with "
            "fmq.open(path, read_only=True)."
        )
    unlock = directory.lock(LOCK)
    try:
        layout = look(directory)
        if layout.fresh:
            return LockedDirectory(
                begin_new(directory, disk.random(STORE_BYTES), capacity),
                unlock,
            )
        erasure_file.carry_on(directory)
        return LockedDirectory(recover(directory, layout), unlock)
    except BaseException:
        unlock()
        raise


def recover(directory: Directory, layout: Layout) -> Recovered:
    """Return the state of the journal, after making it durable. The caller holds the lock."""
    assert not layout.fresh, "a new journal is begun, not recovered"
    replay = begin(directory, layout, with_timers=True, past_damage=True)
    try:
        return _recover(directory, layout, replay)
    except BaseException:
        replay.ledger.timers.close()
        raise


def _recover(directory: Directory, layout: Layout, replay: Replay) -> Recovered:
    store = replay.store
    noted = noted_in(directory, zlib.crc32(store))
    # The checkpoint has the older attempts.
    replay.attempts.noted.extend(each for each in noted if each.position >= replay.applied_from)
    believe_page(directory, replay)
    replay.run()
    replay.attempts.apply(replay.ledger)
    number_files(replay.ledger.timers, directory)
    last = replay.segments[-1]
    lost = {each.base for each in replay.segments} - set(layout.bases)
    check_ends(replay, layout)
    # An empty last segment is proven: its header was synced before the segment got its name.
    proven = last.end == last.base + HEADER_BYTES
    if replay.checkpoint is not None and replay.checkpoint.applied_upto == last.end:
        proven = True
    cut = 0
    # After a failed write the cache may hold bytes that the disk lacks, so copy the segment.
    failed = FAILED in layout.names
    header = replay.new_header
    copied = failed or header is not None or not proven or not tail_is_zeros(directory, last)
    turn_back(directory, replay.segments, replay.turned)
    _remove_unproven(directory, layout)  # on a full disk the copy needs this room
    if copied:
        cut = _copy_giving_up_spares(directory, last, header)
        if replay.ledger.undecided:
            _make_again(directory, layout, last.capacity)
        if failed:
            directory.remove(FAILED)
    else:
        # A segment may have got its name just before a kill. Make that name durable.
        directory.sync()
    segments = _drop_below_floor(directory, replay.segments, replay.ledger)
    _remove_leftovers(directory, segments)
    remove_unnamed(replay.ledger.timers, directory)
    clean = bool(replay.checkpoint and replay.checkpoint.clean and not copied)
    report = RecoveryReport(
        clean=clean,
        replayed_bytes=replay.replayed_bytes,
        # an opening writes the endings that are left before it returns
        undecided=len(replay.ledger.undecided) - replay.ledger.endings_left,
        cut_bytes=cut,
        copied=copied,
        damaged=tuple(_passed_over(replay, [each for each in segments if each.base in lost])),
    )
    for what in report.damaged:
        logger.error("%s: damage that was passed over: %s", directory.path, what)
    # The slot with the larger generation counts. So the next generation must exceed those of both
    # slots, even of a slot that is not used because its segments were dropped.
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
        replay.attempts.counted,
    )


def _passed_over(replay: Replay, lost: list[Segment]) -> Iterator[str]:
    """Yield a text for each damage that this recovery has passed over. `lost` are the segments that
    are missing.
    """
    yield from replay.ledger.damaged.values()
    yield from (f"{each.name}: the segment is missing" for each in lost)
    for position in replay.turned:
        yield f"position {position}: one bit of a head had turned, and was turned back"
    if replay.new_header is not None:
        yield f"{replay.segments[-1].name}: its header was damaged, and was written anew"
    if replay.short:
        yield f"{replay.short}: the file was cut short, and has its full length again"


def begin_new(directory: Directory, store: bytes, capacity: int) -> Recovered:
    """Begin a new journal with the UUID `store` in an empty directory."""
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
    ledger.shown_to = ledger.end = ledger.index.end = segment.end
    return Recovered(store, [segment], ledger, None, 0, 0, report)


def begin(
    directory: Directory, layout: Layout, *, with_timers: bool = False, past_damage: bool = False
) -> Replay:
    """Return a replay that has not run yet. Without `with_timers` it does not keep timers.

    With `past_damage`, a checkpoint replaces the header of the newest segment, and segments that no
    replay needs. The caller holds the lock: else an engine may just be removing them.
    """
    new_header = None
    try:
        newest = read_header(directory, layout.bases[-1])
    except Damaged:
        if not past_damage:
            raise
        newest = new_header = known_header(directory, layout)
    store = newest.store
    checkpoint = checkpoints.read(directory, store)
    if past_damage and checkpoint is not None:
        layout = with_known(layout, checkpoint)
    if checkpoint is None:
        checkpoints.refuse_other_store(directory, store, newest.base)
    elif checkpoint.scan_from < layout.bases[0]:
        # This checkpoint is older than a retention. The replay will find a STATE record that says
        # whether its segments were dropped.
        checkpoint = None
    segments = known_segments(directory, layout, checkpoint, newest)
    if checkpoint is not None:
        _check_checkpoint(checkpoint, segments)
    what = directory, store, zlib.crc32(store), segments, checkpoint
    replay = Replay(*what, with_timers=with_timers)
    replay.new_header = new_header
    if past_damage and checkpoint is not None:
        replay.was_closed = checkpoint.clean and PAGE not in layout.names
    return replay


def believe_page(directory: Directory, replay: Replay) -> None:
    """Take as durable everything below the position that a killed engine has told readers. The
    caller holds the lock.

    Raises Damaged if not even the segments reach as far.
    """
    told = told_in(directory, replay.store)
    limit = replay.segments[-1].limit
    if told > limit:
        raise Damaged(segment_name(limit), limit, missing_below(told))
    replay.prove(told)


def missing_below(told: int) -> str:
    """Return the text that says why there must be another segment."""
    return f"the segment is missing: readers were told that data up to {told} is durable"


def _check_checkpoint(checkpoint: Checkpoint, segments: list[Segment]) -> None:
    """Raise Damaged if a segment is missing that a sound checkpoint names."""
    last = segments[-1]
    if checkpoint.applied_upto > last.limit:
        reason = f"shorter than promised: the checkpoint knows data up to {checkpoint.applied_upto}"
        raise Damaged(last.name, last.limit, reason)


def check_ends(replay: Replay, layout: Layout) -> None:
    """Raise Damaged if the oldest or the newest segments are missing.

    Retention drops the oldest ones, after a STATE says so. Any other missing segment is damage.
    """
    first = replay.segments[0].base
    if first > replay.ledger.floor or replay.ledger.unsettled:
        raise begins_late(first)
    last = replay.segments[-1]
    if segment_name(last.base, INDEX_SUFFIX) in layout.names:
        # A segment gets an index only after the next segment is durable and in use.
        reason = f"the segment is missing: the one before it, {last.name}, was sealed"
        raise Damaged(segment_name(last.limit), last.limit, reason)


def begins_late(first: int) -> Damaged:
    """Return the error for a journal that begins at `first` although no STATE says why."""
    reason = "the segments before it are missing, and no STATE record says they were dropped"
    return Damaged(segment_name(first), first, reason)


def _copy_giving_up_spares(directory: Directory, last: Segment, header: Header | None) -> int:
    """Replace the last segment by a copy, with a new `header` if there is one. On a full disk, give
    up spares for it. Return how many bytes were cut.

    If there is no room for the copy, or to keep what is cut, spares are removed. The old file
    leaves as much room as they took.
    """
    while True:
        spare = _spare(directory, last.capacity)
        try:
            return copy_tail(directory, last, spare, header)
        except StorageFull:
            others = [name for name in directory.names() if is_spare(name) and name != spare]
            if not others:
                raise
            free(directory, min(others))


def _spare(directory: Directory, capacity: int) -> str | None:
    """Return the name of a spare for the copy: of the right size, and all zeros."""
    for name in sorted(directory.names()):
        if is_spare(name):
            with contextlib.suppress(OSError):  # skip a spare that cannot be read
                file = directory.open(name)
                try:
                    if file.size() == capacity and all_zeros(file, capacity):
                        return name
                finally:
                    file.close()
    return None


def _remove_unproven(directory: Directory, layout: Layout) -> None:
    """Remove unfinished spares, which may hold any bytes."""
    unproven = sorted(filter(is_unproven, layout.names))
    if unproven:
        free(directory, *unproven)


def _make_again(directory: Directory, layout: Layout, capacity: int) -> None:
    """Make new spares: one for the spare that the copy took, one for a spare that was never
    finished.

    They were reserved for decisions, which a full disk must not refuse. The replaced file has just
    freed as much room, before other programs take it.
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
    """Finish a retention that a crash interrupted: remove the segments below the floor.

    The oldest go first, so that the journal never has a hole. Return the segments that are left.
    """
    kept = [segment for segment in segments if segment.limit > ledger.floor]
    for segment in segments[: len(segments) - len(kept)]:
        with contextlib.suppress(FileNotFoundError):
            directory.remove(segment.name)
        for suffix in (INDEX_SUFFIX, KEYS_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                directory.remove(segment_name(segment.base, suffix))
        # Sync after each removal: without it, a crash may keep the older file and lose the newer
        # one.
        directory.sync()
    if len(kept) < len(segments):
        ledger.sealed = [index for index in ledger.sealed if index.base >= kept[0].base]
    return kept


def _remove_slots(directory: Directory) -> None:
    """Remove slots that cannot be used. Otherwise a reader would believe that they prove more than
    it can see.
    """
    for name in checkpoints.SLOTS:
        with contextlib.suppress(OSError):
            directory.remove(name)


def _remove_leftovers(directory: Directory, segments: list[Segment]) -> None:
    """Remove unfinished files, and the parts and indexes of segments that were dropped."""
    bases = {segment.base for segment in segments}
    for name in directory.names():
        if name.endswith(LEFTOVER) and belongs(name):
            temporary = not name.endswith((INDEX_SUFFIX, KEYS_SUFFIX, PART))
            if temporary or base_of(name) not in bases:
                directory.remove(name)
