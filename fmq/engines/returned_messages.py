"""Finds messages that were erased and are there again, as in an older copy of a segment.

A message may lie in up to four records. What is published has its offset, and the ledger knows
which offsets were erased. Of what was prepared, the record that refers to it tells. All other
copies (of a transaction that was rolled back, of a delayed message, a dead letter) say nothing of
the kind: of them it is only known in which segments something was erased.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing
from itertools import chain

from fmq.basics.message import ERASED_HEADER
from fmq.machine.disk import Directory, File
from fmq.store.bytes.decoding import columns_of
from fmq.store.bytes.kinds import (
    HAS_ERASED,
    MESSAGE,
    PRE_MESSAGE,
    REF_MESSAGE,
    TX_MESSAGE,
    Hole,
    Record,
    Run,
)
from fmq.store.journal.scan import Scan
from fmq.store.journal.segment import HEADER_BYTES, Segment
from fmq.tx.ledger.ledger import Ledger


def returned(
    directory: Directory, segments: list[Segment], ledger: Ledger, store: bytes
) -> Iterator[tuple[str, int, str]]:
    """Find erased messages that `segments` have again. For each record with such messages, yield
    the file, the position and a text that names the messages.
    """
    bases = ledger.erasures.segments
    if not bases:
        return
    seed = zlib.crc32(store)
    # The position of what was prepared -> the numbers of its messages that were erased.
    prepared: dict[int, set[int]] = {}
    later = [each for each in segments if each.limit > min(bases)]
    for segment in later:
        with closing(directory.open(segment.name)) as file:
            for run in _records(file, segment, seed):
                if isinstance(run, Run) and run.kind == REF_MESSAGE:
                    prepared.setdefault(run.body_position, set()).update(_erased(run, ledger))
    for segment in later:
        if segment.base in bases:
            with closing(directory.open(segment.name)) as file:
                yield from _returned_in(file, segment, seed, ledger, prepared)


def _records(file: File, segment: Segment, seed: int) -> Iterator[Record]:
    start = segment.base + HEADER_BYTES
    return chain.from_iterable(Scan(file, segment.base, segment.end, start, seed))


def _returned_in(
    file: File, segment: Segment, seed: int, ledger: Ledger, prepared: dict[int, set[int]]
) -> Iterator[tuple[str, int, str]]:
    """Find erased messages that one segment has again. The segment is one in which messages were
    erased.
    """
    is_as_before = True
    for run in _records(file, segment, seed):
        if isinstance(run, Hole):
            is_as_before = False  # the erased messages may have been in the damaged part
        if not isinstance(run, Run):
            continue
        is_as_before &= not run.flags & HAS_ERASED
        if run.kind in (MESSAGE, TX_MESSAGE):
            numbers = _erased(run, ledger)
        else:
            numbers = prepared.get(run.position, set()) if run.kind == PRE_MESSAGE else set()
        if numbers - _gone(file, segment, run):
            is_as_before = False
            what = f"messages of {run.topic}/{run.queue}"
            yield segment.name, run.position, what
    if is_as_before:
        yield segment.name, segment.base, "messages of this segment"


def _erased(run: Run, ledger: Ledger) -> set[int]:
    """Return the numbers of the messages of a published record that were erased."""
    if ledger.is_deleted(run.topic, run.position):
        return set()  # what was erased of a topic is forgotten with the topic
    return {
        offset - run.offset
        for first, end in ledger.erasures.of(run.topic, run.queue)
        for offset in range(max(first, run.offset), min(end, run.offset + run.count))
    }


def _gone(file: File, segment: Segment, run: Run) -> set[int]:
    """Return the numbers of the messages of a record that are erased in it."""
    if not run.flags & HAS_ERASED:
        return set()
    columns = columns_of(file.read(run.position - segment.base, run.size), 0, run)
    return {i for i, each in enumerate(columns.headers() or ()) if each and ERASED_HEADER in each}
