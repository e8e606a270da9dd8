"""A machine takes from the home the derived files that its directory lacks, so that it need not
replay the whole journal. What it finds there is believed only if it fits the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from fmq.home.floor_files import CHECKPOINT, FloorFiles
from fmq.home.home_history import HomeHistory
from fmq.machine.disk import Directory, replace
from fmq.recovery.checkpoint import Checkpoint, CheckpointWriter, decode, read
from fmq.recovery.derived_files import is_of_one_checkpoint
from fmq.recovery.layout import read_header
from fmq.store.journal.segment import Header, segment_name

BYTES_AT_ONCE = 16 << 20
TEMPORARY = segment_name(0, ".new")
"""Recovery removes a file that is called so."""


class Wanted(NamedTuple):
    """An object, and how large it is."""

    key: str
    size: int


Fetch = Callable[[Sequence[Wanted]], Iterator[bytes | None]]
"""Yields the objects; None for one that is missing, or whose checksum does not match."""


def checkpoint_in(
    history: HomeHistory, header_of: Callable[[int], Header], fetch: Fetch
) -> Checkpoint | None:
    """Return the checkpoint of the last floor; None if there is none, it is not sound, or does not
    fit the segments of `history`.
    """
    files = history.files
    data = files_of(files, [CHECKPOINT] if CHECKPOINT in files.pieces else [], fetch)
    checkpoint = decode(data[CHECKPOINT]) if CHECKPOINT in data else None
    if checkpoint is None or checkpoint.applied_upto > files.end:
        return None
    *sealed, (base, capacity, _, _, *epoch) = checkpoint.segments
    if base not in history.segments:
        return None  # retention has dropped it since
    header, ends = header_of(base), {b: b + each.end for b, each in history.segments.items()}
    is_of_it = checkpoint.store == header.store.hex() and capacity == header.capacity
    if not is_of_it or epoch not in ([], [header.epoch]):
        return None
    if any(ends.get(each[0], each[2]) != each[2] for each in sealed):
        return None
    return checkpoint


def files_of(files: FloorFiles, names: Sequence[str], fetch: Fetch) -> dict[str, bytes]:
    """Return those of the files `names` that are there and sound."""
    pieces = [(name, each) for name in names for each in files.pieces[name]]
    found: dict[str, list[bytes]] = {name: [] for name in names}
    wanted = [Wanted(each.key(name), each.end - each.start) for name, each in pieces]
    for (name, _), data in zip(pieces, fetch(wanted), strict=True):
        if data is None:
            found.pop(name, None)
        elif name in found:
            found[name].append(data)
    return {name: b"".join(parts) for name, parts in found.items()}


def _by_size(files: FloorFiles, names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the `names` in groups of which each fits into memory."""
    some, size = list[str](), 0
    for name in names:
        some.append(name)
        size += files.pieces[name][-1].end if files.pieces[name] else 0
        if size >= BYTES_AT_ONCE:
            yield some
            some, size = [], 0
    yield some


def take_files(directory: Directory, history: HomeHistory, fetch: Fetch) -> None:
    """Write to `directory`, whose segments are equal to those of `history`, the indexes that it
    lacks. Write also the checkpoint, and what belongs to it, if that is newer than its own.
    """
    files, header_of = history.files, partial(read_header, directory)
    if not files.pieces or not history.segments:
        return
    known = read(directory, header_of(max(history.segments)).store)
    checkpoint = None
    if known is None or known.applied_upto < files.upto:
        checkpoint = checkpoint_in(history, header_of, fetch)
    there = {*directory.names()}
    names = [name for name in history.indexes(files.pieces) if name not in there]
    if checkpoint is not None:
        names += filter(is_of_one_checkpoint, files.pieces)
    for some in _by_size(files, names):
        for name, data in files_of(files, some, fetch).items():
            # Durably: what is torn here would not be fetched again.
            replace(directory, name, TEMPORARY, data)
    if checkpoint is None:
        return
    # At last: what a checkpoint names should be there.
    generation = 0 if known is None else known.generation
    CheckpointWriter(directory, generation).write(
        checkpoint._replace(generation=generation + 1, clean=False)
    )
    for name in filter(is_of_one_checkpoint, there - {*files.pieces}):
        directory.remove(name)
