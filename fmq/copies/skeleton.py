"""The segments of a damaged journal: which there must be, as far as names, headers and checkpoints
say, and which of them are missing.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, suppress
from typing import NamedTuple

from fmq.errors import Damaged, FmqError, NewerFormat
from fmq.machine.disk import Directory
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.checkpoint import Checkpoint
from fmq.recovery.layout import Layout, read_header
from fmq.recovery.recover import missing_below
from fmq.store.index.catalog import SUFFIX as INDEX_SUFFIX
from fmq.store.journal.durable_page import told_in
from fmq.store.journal.segment import CAPACITY_MAX, HEADER_BYTES, Header, segment_name


class Bone(NamedTuple):
    """A segment that must exist."""

    base: int
    capacity: int
    end: int | None
    """Where its records end, if another segment or a checkpoint says so."""
    is_there: bool

    @property
    def limit(self) -> int:
        return self.base + self.capacity


class Skeleton(NamedTuple):
    """The segments of a journal, oldest first, and what is wrong with them."""

    store: bytes
    checkpoint: Checkpoint | None
    durable_to: int
    """Below this, all had been durable: a checkpoint says so, or the engine has told readers."""
    bones: list[Bone]
    problems: list[tuple[str, int, str]]
    """File, position, and what is wrong."""


def skeleton_of(directory: Directory, layout: Layout) -> Skeleton:
    """Return the skeleton of the journal in `directory`. Raises Damaged if nothing tells of which
    store it is, NewerFormat if a newer fmq wrote it.
    """
    problems: list[tuple[str, int, str]] = []
    headers: dict[int, Header] = {}
    for base in layout.bases:
        try:
            headers[base] = read_header(directory, base)
        except NewerFormat:
            raise
        except (FmqError, OSError) as error:
            reason = error.reason if isinstance(error, Damaged) else str(error)
            problems.append((segment_name(base), base, reason))
    store = _store_of(directory, layout, headers)
    for base, header in headers.items():
        if header.store != store:
            what = f"it is of another store, {header.store.hex()}"
            problems.append((segment_name(base), base, what))
    headers = {base: each for base, each in headers.items() if each.store == store}
    known = checkpoints.read(directory, store)
    slots = checkpoints.read_slots(directory, store)
    problems += [(name, 0, what) for name, what in slots.unusable.items()]
    bones = list(_bones(directory, layout, headers, known))
    missing = [bone for bone in bones if not bone.is_there]
    problems += [(segment_name(each.base), each.base, "the segment is missing") for each in missing]
    last = bones[-1]
    if last.is_there and segment_name(last.base, INDEX_SUFFIX) in layout.names:
        what = "the segment is missing: the one before it was sealed"
        problems.append((segment_name(last.limit), last.limit, what))
    told = told_in(directory, store)
    if told > last.limit:
        problems.append((segment_name(last.limit), last.limit, missing_below(told)))
    durable_to = max(told, known.applied_upto if known else 0)
    return Skeleton(store, known, durable_to, bones, problems)


def _store_of(directory: Directory, layout: Layout, headers: dict[int, Header]) -> bytes:
    """Return the UUID that most headers name, or else a checkpoint."""
    for store, _ in Counter(header.store for header in headers.values()).most_common(1):
        return store
    for name in checkpoints.SLOTS:
        with suppress(OSError), closing(directory.open(name)) as file:
            found = checkpoints.decode(file.read(0, file.size()))
            if found is not None:
                return bytes.fromhex(found.store)
    reason = "neither the header of a segment nor a checkpoint is sound, so nothing can be proven"
    raise Damaged(segment_name(layout.bases[0]), layout.bases[0], reason)


def _bones(
    directory: Directory, layout: Layout, headers: dict[int, Header], known: Checkpoint | None
) -> list[Bone]:
    remembered = {base: rest for base, *rest in known.segments} if known else {}
    sealed = {base: rest[1] for base, rest in [*remembered.items()][:-1]}
    floor = known.ledger["floor"] if known else 0
    named = {base for base, (capacity, *_) in remembered.items() if base + capacity > floor}
    bases = sorted({*layout.bases, *named})
    bones: list[Bone] = []
    for number, base in enumerate(bases):
        behind = bases[number + 1] if number + 1 < len(bases) else None
        if bones and bones[-1].limit < base:  # a hole between two names
            for start in range(bones[-1].limit, base, CAPACITY_MAX):
                bones.append(Bone(start, min(CAPACITY_MAX, base - start), None, is_there=False))
        capacity = headers[base].capacity if base in headers else remembered.get(base, [0])[0]
        if not capacity:
            capacity = _size_of(directory, base) if behind is None else behind - base
        if behind is not None:
            capacity = min(capacity, behind - base)
        end = sealed.get(base)
        if behind in headers and base + HEADER_BYTES <= headers[behind].previous_end:
            end = headers[behind].previous_end
        is_there = base in layout.bases and not _is_foreign(directory, base, headers)
        bones.append(Bone(base, min(capacity, CAPACITY_MAX), end, is_there=is_there))
    return bones


def _is_foreign(directory: Directory, base: int, headers: dict[int, Header]) -> bool:
    """Return whether the segment has a sound header, which is not one of this journal."""
    if base in headers:
        return False
    try:
        read_header(directory, base)
    except (FmqError, OSError):
        return False
    return True


def _size_of(directory: Directory, base: int) -> int:
    try:
        with closing(directory.open(segment_name(base))) as file:
            return max(file.size(), HEADER_BYTES + 1)
    except OSError:
        return HEADER_BYTES + 1
