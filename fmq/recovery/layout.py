"""Which files a directory holds, and what the names tell before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from fmq.disk import Directory
from fmq.errors import Damaged, FmqError, NewerFormat, NotAStore
from fmq.recovery.checkpoint import SLOTS, Checkpoint
from fmq.store.segment import (
    HEADER_BYTES,
    Header,
    Segment,
    base_of,
    belongs,
    decode_header,
    is_segment,
    segment_name,
)
from fmq.store.spares import is_spare, is_unproven

LOCK = "LOCK"
LOCK_BYTES = 200  # more than is ever written in it
LOCK_BEGINS = b"process "
QUARANTINE = "quarantine"
FAILED = "FAILED"  # there since a write failed, until recovery has copied what it was to go into
BEFORE_THE_FIRST = {LOCK, segment_name(0, ".new")}  # names that there may be before any segment
SUFFIXES = (".seg", ".idx", ".part", ".new", ".copy")


class Layout(NamedTuple):
    """The names in a directory, sorted by what they are."""

    path: str
    names: frozenset[str]
    bases: tuple[int, ...]

    @property
    def fresh(self) -> bool:
        """Whether no journal was ever begun here."""
        return not self.bases


def look(directory: Directory) -> Layout:
    """The layout of `directory`; NotAStore if it holds something that is not fmq's."""
    layout = _look(directory)
    if layout.fresh and not layout.names <= BEFORE_THE_FIRST:
        # Names are not read at one instant: an engine may be giving a segment its name.
        layout = _look(directory)
    if layout.fresh:
        foreign = sorted(name for name in layout.names if not _ours(name))
        if foreign or _is_foreign_lock(directory, layout):
            raise NotAStore(
                f"{directory.path}: not a directory of fmq's, it holds {[*foreign, LOCK][0]!r}. "
                "Nothing was changed. Name a new or empty directory."
            )
        # Nothing else comes before the first segment has its name.
        if not layout.names <= BEFORE_THE_FIRST:
            raise Damaged(segment_name(0), 0, "all segments are missing")
    return layout


def _look(directory: Directory) -> Layout:
    names = frozenset(directory.names())
    bases = tuple(sorted(base_of(name) for name in names if is_segment(name)))
    return Layout(directory.path, names, bases)


def _is_foreign_lock(directory: Directory, layout: Layout) -> bool:
    """Whether LOCK is somebody else's file, which must not be written over."""
    if LOCK not in layout.names:
        return False
    try:
        file = directory.open(LOCK)
        try:
            said = file.read(0, len(LOCK_BEGINS))
        finally:
            file.close()
    except OSError:
        return False  # whoever locks it is told
    return not LOCK_BEGINS.startswith(said.rstrip(b"\0"))  # nor need a power cut leave words


def _ours(name: str) -> bool:
    if is_spare(name) or is_unproven(name) or name in (LOCK, QUARANTINE, FAILED, *SLOTS):
        return True
    return belongs(name) and name.endswith(SUFFIXES)


class Holder(NamedTuple):
    """Who had a directory open for writing last."""

    holder: str
    host: str | None


def lock_says(data: bytes) -> Holder:
    """What the bytes of LOCK say: `process 4711`, and on which host."""
    holder, *more = data.decode("utf-8", "replace").split("\n")
    hosts = [line.removeprefix("host ") for line in more if line.startswith("host ")]
    return Holder(holder, hosts[0] if hosts else None)


def store_of(directory: Directory, layout: Layout) -> bytes:
    """The store's UUID, from the newest segment whose header is sound."""
    newest, *older = reversed(layout.bases)
    try:
        return read_header(directory, newest).store
    except (Damaged, NewerFormat, OSError):
        for base in older:
            with suppress(FmqError, OSError):
                return read_header(directory, base).store
        raise


def read_header(directory: Directory, base: int) -> Header:
    """The header of the segment at `base`, checked."""
    name = segment_name(base)
    file = directory.open(name)
    try:
        return decode_header(file.read(0, HEADER_BYTES), name)
    finally:
        file.close()


def known_segments(
    directory: Directory,
    layout: Layout,
    checkpoint: Checkpoint | None,
    newest: Header | None = None,
) -> list[Segment]:
    """The segments of the journal, oldest first, each with its end except for the last.

    Those that a checkpoint knows as sealed are not opened; of the others each header tells how
    the one before it ended. A gap is Damaged. The `newest` header may have been read already.
    """
    segments: list[Segment] = []
    before: Header | None = None
    remembered = {base: rest for base, *rest in checkpoint.segments[:-1]} if checkpoint else {}
    for base in layout.bases:
        if base in remembered:
            capacity, end, chain = remembered[base]
            segments.append(Segment(base, capacity, end, chain))
            continue
        if newest is not None and newest.base == base:
            header = newest
        else:
            header = read_header(directory, base)
        if before is not None and before.store != header.store:
            other = f"{segment_name(before.base)} of the store {before.store.hex()}"
            reason = f"it is of the store {header.store.hex()}, and {other}"
            raise Damaged(segment_name(base), base, reason)
        if segments:
            _follow_on(segments[-1], header, known=segments[-1].base in remembered)
        before = header
        segments.append(Segment(base, header.capacity, base + HEADER_BYTES, 0))
    _check_no_gap(segments, layout, checkpoint)
    return segments


def known_segment(
    directory: Directory, layout: Layout, base: int, behind: int | None
) -> tuple[Segment, FmqError | OSError | None]:
    """The segment at `base`, and what is wrong with the one `behind` it, which tells its end."""
    bases = (base,) if behind is None else (base, behind)
    try:
        return known_segments(directory, layout._replace(bases=bases), None)[0], None
    except (FmqError, OSError) as error:
        if behind is None:
            raise
        return known_segment(directory, layout, base, None)[0], error


def _follow_on(previous: Segment, header: Header, *, known: bool) -> None:
    """Let `header` tell how the segment before it ended. If that is `known` from a checkpoint it
    must say the same.
    """
    if previous.limit != header.base:
        raise Damaged(
            segment_name(header.base),
            header.base,
            f"the segment before it is missing: nothing lies at {previous.limit}",
        )
    if not previous.base + HEADER_BYTES <= header.previous_end <= previous.limit:
        raise Damaged(
            segment_name(header.base), header.base, f"names {header.previous_end} as the end before"
        )
    if known and (previous.end, previous.chain) != (header.previous_end, header.previous_chain):
        reason = f"it follows on another {previous.name} than the one that the checkpoint knows"
        raise Damaged(segment_name(header.base), header.base, reason)
    previous.end = header.previous_end
    previous.chain = header.previous_chain


def _check_no_gap(
    segments: Sequence[Segment], layout: Layout, checkpoint: Checkpoint | None
) -> None:
    for before, behind in pairwise(segments):
        if before.limit != behind.base:
            raise Damaged(segment_name(before.limit), before.limit, "the segment is missing")
    if checkpoint is not None:
        base = checkpoint.segments[-1][0]
        # At the last byte of a segment it speaks of the next one, too, and needs no other.
        if base not in layout.bases and checkpoint.applied_upto not in layout.bases:
            raise Damaged(segment_name(base), base, "the segment is missing")
