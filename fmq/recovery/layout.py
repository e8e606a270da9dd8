"""The files of a directory, and what their names and headers say."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from fmq.errors import Damaged, FmqError, NewerFormat, NotAStore
from fmq.machine.disk import Directory
from fmq.recovery.checkpoint import SLOTS, Checkpoint, only_store, read
from fmq.store.journal.attempt_page import ATTEMPTS
from fmq.store.journal.durable_page import PAGE
from fmq.store.journal.segment import (
    HEADER_BYTES,
    Header,
    Segment,
    base_of,
    belongs,
    decode_header,
    is_segment,
    segment_name,
)
from fmq.store.journal.spares import is_spare, is_unproven

LOCK = "LOCK"
LOCK_BYTES = 200  # LOCK is never longer than this
LOCK_BEGINS = b"process "
QUARANTINE = "quarantine"
SOCKET, SOCKET_NEW = "SOCKET", "SOCKET.new"  # the socket on which the engine process listens
STARTING = "STARTING"  # locked while a client starts the engine process
SERVER_LOG = "SERVER.log"  # the log of the engine process
SHIPPING = "SHIPPING."  # the prefix of files that keep segments until they are shipped
HANDED_OUT = "HANDED_OUT"  # the messages that clients of the engine process hold
HANDED_OUT_NEW = HANDED_OUT + ".new"  # the name of HANDED_OUT while it is written
OF_THE_SERVER = {SOCKET, SOCKET_NEW, STARTING, SERVER_LOG, HANDED_OUT, HANDED_OUT_NEW}
HOME = "HOME"  # says of which home the directory is a cache; see fmq/home
HOME_NEW = HOME + ".new"  # the name of HOME while it is written
# Made after a failed write. The next recovery copies the segment, and removes this file.
FAILED = "FAILED"
# All names that may exist before the first segment does. The pages are among them: without their
# engine they say nothing about a journal.
PAGE_NEW = PAGE + ".new"  # the name of PAGE while it is written
ATTEMPTS_NEW = ATTEMPTS + ".new"  # the name of ATTEMPTS while it is written
PAGES = {PAGE, PAGE_NEW, ATTEMPTS, ATTEMPTS_NEW}
BEFORE_THE_FIRST = {LOCK, HOME, HOME_NEW, *PAGES, segment_name(0, ".new"), *OF_THE_SERVER}
SUFFIXES = (".seg", ".idx", ".keys", ".part", ".due", ".new", ".copy")


class Layout(NamedTuple):
    """The names in a directory, sorted by kind."""

    path: str
    names: frozenset[str]
    bases: tuple[int, ...]

    @property
    def fresh(self) -> bool:
        """Return whether no journal was begun in this directory."""
        return not self.bases


def look(directory: Directory) -> Layout:
    """Return the layout of `directory`. Raises NotAStore if fmq did not make the directory."""
    layout = _look(directory)
    if layout.fresh and not layout.names <= BEFORE_THE_FIRST:
        # Names are not read all at one moment: an engine may have named a segment meanwhile. Look
        # again.
        layout = _look(directory)
    if layout.fresh:
        foreign = sorted(name for name in layout.names if not _ours(name))
        if foreign or _is_foreign_lock(directory, layout):
            raise NotAStore(
                f"{directory.path}: not a directory of fmq's, it holds {[*foreign, LOCK][0]!r}. "
                "Nothing was changed. Name a new or empty directory."
            )
        # fmq makes all other files only after the first segment has its name.
        if not layout.names <= BEFORE_THE_FIRST:
            raise Damaged(segment_name(0), 0, "all segments are missing")
    return layout


def look_for_journal(directory: Directory, where: str, purpose: str) -> Layout:
    """Return the layout of `directory`, which a caller called `where`. Raises NotAStore if there is
    no journal to `purpose`.
    """
    layout = look(directory)
    if layout.fresh:
        raise NotAStore(
            f"{where}: no journal was ever begun here, so there is nothing to {purpose}. Nothing "
            "was changed. Name the directory that a program gives to fmq.open()."
        )
    return layout


def _look(directory: Directory) -> Layout:
    names = frozenset(directory.names())
    bases = tuple(sorted(base_of(name) for name in names if is_segment(name)))
    return Layout(directory.path, names, bases)


def _is_foreign_lock(directory: Directory, layout: Layout) -> bool:
    """Return whether another program made LOCK. Then fmq must not write to it."""
    if LOCK not in layout.names:
        return False
    try:
        file = directory.open(LOCK)
        try:
            said = file.read(0, len(LOCK_BEGINS))
        finally:
            file.close()
    except OSError:
        return False  # the next step of opening locks the file and raises its error
    # A power cut may leave zeros after the text.
    return not LOCK_BEGINS.startswith(said.rstrip(b"\0"))


def _ours(name: str) -> bool:
    if (
        is_spare(name)
        or name.startswith(SHIPPING)
        or is_unproven(name)
        or name in (LOCK, HOME, HOME_NEW, *PAGES, QUARANTINE, FAILED, *OF_THE_SERVER, *SLOTS)
    ):
        return True
    return belongs(name) and name.endswith(SUFFIXES)


class Holder(NamedTuple):
    """The process that had a directory open for writing last."""

    holder: str
    host: str | None


def lock_says(data: bytes) -> Holder:
    """Return what LOCK says about its owner: `process 4711`, and the name of the host."""
    holder, *more = data.decode("utf-8", "replace").split("\n")
    hosts = [line.removeprefix("host ") for line in more if line.startswith("host ")]
    return Holder(holder, hosts[0] if hosts else None)


def store_of(directory: Directory, layout: Layout) -> bytes:
    """Return the store's UUID, from the newest segment whose header is sound."""
    newest, *older = reversed(layout.bases)
    try:
        return read_header(directory, newest).store
    except (Damaged, NewerFormat, OSError):
        for base in older:
            with suppress(FmqError, OSError):
                return read_header(directory, base).store
        raise


def read_header(directory: Directory, base: int) -> Header:
    """Return the header of the segment at `base`. Raises Damaged if it is not sound."""
    name = segment_name(base)
    file = directory.open(name)
    try:
        return decode_header(file.read(0, HEADER_BYTES), name)
    finally:
        file.close()


def known_header(directory: Directory, layout: Layout) -> Header:
    """Return the header of the newest segment as the newest checkpoint knows it, because the header
    in the file is damaged. Raises Damaged if no checkpoint knows it.
    """
    base = layout.bases[-1]
    try:
        store = store_of(directory, layout)
    except Damaged:
        store = only_store(directory)
        if not store:
            raise
    checkpoint = read(directory, store)
    if checkpoint is None or checkpoint.segments[-1][0] != base:
        return read_header(directory, base)  # raises Damaged, as the header is not readable
    *before, (_, capacity, _, _, *epoch) = checkpoint.segments
    end, chain = before[-1][2:4] if before else (0, 0)
    return Header(store, base, capacity, end, chain, *epoch)


def with_known(layout: Layout, checkpoint: Checkpoint) -> Layout:
    """Return `layout` with those missing segments that `checkpoint` knows as sealed, if a replay
    from the checkpoint reads none of them. The segment that was being written when it was taken
    must exist. Otherwise a retention has dropped the missing ones.
    """
    if checkpoint.segments[-1][0] not in layout.bases:
        return layout
    floor = checkpoint.ledger["floor"]
    sealed = [(base, base + capacity) for base, capacity, *_ in checkpoint.segments[:-1]]
    missing = [each for each in sealed if each[0] not in layout.bases and each[1] > floor]
    if not missing or missing[-1][1] > checkpoint.scan_from:
        return layout
    return layout._replace(bases=tuple(sorted({*layout.bases, *(base for base, _ in missing)})))


def known_segments(
    directory: Directory,
    layout: Layout,
    checkpoint: Checkpoint | None,
    newest: Header | None = None,
) -> list[Segment]:
    """Return the segments of the journal, oldest first, each but the last with its end.

    Those that a checkpoint knows as sealed are not opened. Of the others, each header says where
    the segment before it ended. Raises Damaged for a gap. `newest` is the newest header, if it was
    read already.
    """
    segments: list[Segment] = []
    before: Header | None = None
    remembered = {base: rest for base, *rest in checkpoint.segments[:-1]} if checkpoint else {}
    for base in layout.bases:
        if base in remembered:
            segments.append(Segment(base, *remembered[base]))
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
        segments.append(Segment(base, header.capacity, base + HEADER_BYTES, 0, header.epoch))
    _check_no_gap(segments, layout, checkpoint)
    return segments


def known_segment(
    directory: Directory, layout: Layout, base: int, behind: int | None
) -> tuple[Segment, FmqError | OSError | None]:
    """Return the segment at `base`. Its end stands in the header of the next segment, `behind`.
    Also return the error of that header, or None.
    """
    bases = (base,) if behind is None else (base, behind)
    try:
        return known_segments(directory, layout._replace(bases=bases), None)[0], None
    except (FmqError, OSError) as error:
        if behind is None:
            raise
        return known_segment(directory, layout, base, None)[0], error


def _follow_on(previous: Segment, header: Header, *, known: bool) -> None:
    """Set the end of `previous` to the position in `header`, the header of the next segment.

    If a checkpoint gave the end (`known`), the two must agree. Raises Damaged.
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
        # A checkpoint at the end of a full segment also names the next segment, which may not
        # exist.
        if base not in layout.bases and checkpoint.applied_upto not in layout.bases:
            raise Damaged(segment_name(base), base, "the segment is missing")
