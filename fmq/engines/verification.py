"""`fmq.check`: verifying a directory, without writing.

It reads every segment from its first byte to its last, applies every record to an empty ledger, and
compares the result with the indexes and the checkpoint. So it finds all that a running engine would
find, and damage that an engine would meet only later.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from fmq.arguments.path import ADDRESS, PathLike, check_local, text_of
from fmq.buckets import described, directory_at, in_bucket
from fmq.engines.returned_messages import returned
from fmq.engines.startup import check_door
from fmq.errors import Damaged, FmqError, NewerFormat, NotAStore, Unreadable
from fmq.machine.disk import Directory, Disk, File
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.checkpoint import Checkpoint
from fmq.recovery.layout import Layout, known_segments, look, read_header
from fmq.recovery.lock_check import at_rest
from fmq.recovery.lost_slots import doubt
from fmq.recovery.mend import tail_bytes
from fmq.recovery.recover import begin, believe_page, check_ends
from fmq.recovery.replay import Replay
from fmq.store.bytes.decoding import columns_of
from fmq.store.bytes.kinds import REF_MESSAGE, Run
from fmq.store.bytes.pieces import BadColumns
from fmq.store.bytes.record import FIRST, LAST
from fmq.store.index.catalog import SUFFIX
from fmq.store.index.index import Lane, SegmentIndex
from fmq.store.index.index_blocks import BadIndex
from fmq.store.index.index_file import index_in
from fmq.store.journal.scan import Finding, Scan
from fmq.store.journal.segment import HEADER_BYTES, OTHER_RECORDS, Segment, segment_name
from fmq.tx.ledger.carryover import carried_of
from fmq.tx.ledger.ledger import Ledger

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault: where it is, and what it is."""

    file: str
    position: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, position {self.position}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """What `fmq.check` found. The numbers are 0 if the journal cannot be replayed to its end."""

    path: str
    segments: int = 0
    bytes: int = 0
    topics: int = 0
    messages: int = 0
    undecided: int = 0
    tail_bytes: int = 0
    """Bytes after the last whole append, which nothing proves durable. Recovery will cut them, and
    keep a copy in quarantine/."""
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def check(
    path: str | PathLike,
    *,
    sealed: bool = False,
    disk: Disk | None = None,
    progress: Progress | None = None,
) -> Report:
    """Verify the directory at `path`, and return a report with all problems. It may be an address
    in an object store: `s3://bucket/shop`. It may be that of a home, too.

    `progress` is called with the bytes that were read so far, and how many there are to read: most
    are read twice.

    Raises Locked if an engine has it open, or had it open meanwhile. An engine does not wait for
    the check. With `sealed` only the segments that are full, and their indexes, are checked, each
    by itself; an engine may have the directory open. Raises NotAStore if no journal was ever begun
    there.
    """
    where = text_of(path)
    if disk is None and ADDRESS.match(where):
        # Imported here: few programs have a home.
        from fmq.home.home_reader import disk_to_read, home_to_read

        disk = disk_to_read(where) if in_bucket(where) else home_to_read(where)
    if disk is None or not ADDRESS.match(where):
        where = described(where) if disk is None and in_bucket(where) else check_local(where)
    tell = progress or _tell_nobody
    if disk is not None:
        check_door("disk", disk, "directory")
    try:
        directory = directory_at(where, disk)
        try:
            with suppress(Damaged):  # `_check` reports the same damage
                look(directory)  # look before locking: fmq locks nothing in a foreign directory
            if sealed:
                return _check_sealed(where, directory, tell)
            with at_rest(directory):
                return _check(where, directory, tell)
        finally:
            directory.close()
    except OSError as error:
        raise Unreadable(where, error) from error


def _tell_nobody(done: int, total: int) -> None:
    pass


def _check_sealed(where: str, directory: Directory, tell: Progress) -> Report:
    """Check the sealed segments, to which no engine writes any more. Retention may remove some
    meanwhile.
    """
    try:
        layout = _journal_in(where, directory)
        store = read_header(directory, layout.bases[-1]).store
        segments = known_segments(directory, layout, None)
    except (Damaged, NewerFormat) as error:
        return Report(where, problems=(_problem_of(error),))
    problems: list[Problem] = []
    checked: list[Segment] = []
    for segment in segments[:-1]:
        with suppress(FileNotFoundError):
            problems += _check_segment(directory, segment, store)
            problems += _check_index(directory, segment, store, None)
            checked.append(segment)
        tell(segment.end - segments[0].base, segments[-1].base - segments[0].base)
    return Report(
        path=where,
        segments=len(checked),
        bytes=sum(segment.end - segment.base for segment in checked),
        problems=tuple(problems),
    )


def _journal_in(where: str, directory: Directory) -> Layout:
    layout = look(directory)
    if layout.fresh:
        raise NotAStore(
            f"{where}: no journal was ever begun here, so there is nothing to verify. Name the "
            "directory that a program gives to fmq.open(); perhaps it is not mounted."
        )
    return layout


def _check(where: str, directory: Directory, tell: Progress) -> Report:
    try:
        layout = _journal_in(where, directory)
    except Damaged as error:
        return Report(where, problems=(_problem_of(error),))
    problems: list[Problem] = []
    replay: Replay | None = None
    try:
        replay = begin(directory, layout, with_timers=True)
        store = replay.store
        segments = known_segments(directory, layout, None)
        # One try for each segment, so that damage in one does not hide that in another.
        for segment in segments[:-1]:
            problems += _check_segment(directory, segment, store)
            tell(segment.end - segments[0].base, 2 * (segments[-1].limit - segments[0].base))
        what = directory, store, zlib.crc32(store), segments, None
        full = Replay(*what, with_timers=True)
        if replay.checkpoint is not None:
            # Nothing in the journal may prove its last append durable, and the checkpoint does.
            full.prove(replay.checkpoint.applied_upto)
        believe_page(directory, full)
        believe_page(directory, replay)
        full.run()
        replay.run()
        check_ends(full, layout)
        problems += _check_last(directory, segments[-1], store)
        problems += _check_checkpoint(replay, full)
        problems += _check_known(directory, replay.checkpoint, segments, store)
        problems += _check_erased(directory, segments, full.ledger, store)
        problems += _check_slots(directory, begin(directory, layout))
        problems += _check_indexes(directory, segments, full, store)
    except FmqError as error:
        problem = _problem_of(error)
        places = [(each.file, each.position) for each in problems]
        if (problem.file, problem.position) in places:
            # The replay knows more about the damage than a look at the segment alone.
            problems[places.index((problem.file, problem.position))] = problem
        else:
            problems.append(problem)
        return Report(where, segments=len(layout.bases), problems=tuple(problems))
    finally:
        if replay is not None:
            replay.ledger.timers.close()
    ledger, last = full.ledger, segments[-1]
    queues = [queue for topic in ledger.own_topics() for queue in topic.queues]
    return Report(
        path=where,
        segments=len(segments),
        bytes=last.end - segments[0].base,
        topics=len(ledger.own_topics()),
        messages=sum(queue.next - queue.first for queue in queues),
        undecided=len(ledger.undecided),
        tail_bytes=tail_bytes(directory, last),
        problems=tuple(problems),
    )


def _problem_of(error: FmqError) -> Problem:
    if isinstance(error, (Damaged, NewerFormat)):
        return Problem(error.file, error.position, error.reason)
    return Problem(getattr(error, "file", ""), getattr(error, "position", 0), str(error))


def _check_segment(directory: Directory, segment: Segment, store: bytes) -> Iterator[Problem]:
    """Check a sealed segment by itself."""
    file = directory.open(segment.name)
    try:
        start = segment.base + HEADER_BYTES
        seed = zlib.crc32(store)
        scan = Scan(
            file, segment.base, segment.end, start, seed, 0, start, proven=segment.limit + 1
        )
        yield from _check_contents(file, segment, scan)
    finally:
        file.close()
    ending = scan.ending
    assert ending is not None
    if ending.finding is not Finding.END:
        yield Problem(segment.name, ending.position, ending.reason)
    elif scan.chain != segment.chain:
        yield Problem(segment.name, segment.base, OTHER_RECORDS)


def _check_last(directory: Directory, segment: Segment, store: bytes) -> Iterator[Problem]:
    """Check the last segment up to the end of the replay."""
    file = directory.open(segment.name)
    try:
        start = segment.base + HEADER_BYTES
        scan = Scan(
            file, segment.base, segment.end, start, zlib.crc32(store), proven=segment.limit + 1
        )
        yield from _check_contents(file, segment, scan)
    finally:
        file.close()


def _check_contents(file: File, segment: Segment, scan: Scan) -> Iterator[Problem]:
    """Check that the bodies of each record are sound, and can be cut into messages."""
    for run in chain.from_iterable(scan):
        if run.position in scan.damaged:
            yield Problem(segment.name, run.position, scan.damaged[run.position])
            continue
        if any(run.position <= position < run.position + run.size for position in scan.turned):
            yield Problem(segment.name, run.position, "one bit of its head has turned")
            continue
        # A single body without key, tag or headers is not cut out of anything.
        if isinstance(run, Run) and run.kind != REF_MESSAGE and _is_cut(run):
            columns = columns_of(file.read(run.position - segment.base, run.size), 0, run)
            try:
                columns.check()
            except BadColumns as error:
                yield Problem(segment.name, run.position, str(error))


def _check_erased(
    directory: Directory, segments: list[Segment], ledger: Ledger, store: bytes
) -> Iterator[Problem]:
    """Check that no message is there again that was erased, as in an older copy of a file."""
    for name, position, what in returned(directory, segments, ledger, store):
        yield Problem(name, position, f"{what}, which were erased, are there as in an older copy")


def _is_cut(run: Run) -> bool:
    return run.count > 1 or bool(run.flags & ~(FIRST | LAST))


def _check_checkpoint(replay: Replay, full: Replay) -> Iterator[Problem]:
    """Check that a replay from the checkpoint ends as a replay of everything does."""
    checkpoint = replay.checkpoint
    if checkpoint is None:
        return
    name = checkpoints.SLOTS[checkpoint.generation % 2]
    for tx in full.ledger.undecided.values():
        position = tx.prepare.position
        if position < checkpoint.scan_from:
            what = f"replays from {checkpoint.scan_from}, above an undecided PREPARE at {position}"
            yield Problem(name, checkpoint.scan_from, what)
    found, expected = _state(replay.ledger), _state(full.ledger)
    # An older fmq forgot clients sooner. Its checkpoint names fewer of them, and says the time.
    clients = {client for client, *_ in found["requests"]}
    for state in (found, expected):
        state["requests"] = [
            [client, last, done] for client, last, _, done in state["requests"] if client in clients
        ]
    differ = [
        f"recovery from it ends with {what} {found[what]!r}, and the journal says {value!r}"
        for what, value in expected.items()
        if found[what] != value
    ]
    if differ:
        yield Problem(name, checkpoint.applied_upto, "; ".join(differ))


def _check_known(
    directory: Directory, checkpoint: Checkpoint | None, segments: list[Segment], store: bytes
) -> Iterator[Problem]:
    """Check that the records are those that were written when `checkpoint` was taken.

    Others may come from a copy of the directory that an engine has written to since.
    """
    if checkpoint is None:
        return
    upto = checkpoint.applied_upto
    known: dict[int, tuple[int, int | None]] = {
        base: (end, chain) for base, _, end, chain, *_ in checkpoint.segments[:-1]
    }
    for segment in segments:
        ending: tuple[int, int | None] = segment.end, segment.chain
        if segment.base < upto <= segment.limit:
            ending = upto, _chain_at(directory, segment, upto, store)
            known[segment.base] = upto, checkpoint.chain
        if known.get(segment.base, ending) != ending:
            what = "its records are not those that the checkpoint knows"
            yield Problem(segment.name, segment.base, what)


def _chain_at(directory: Directory, segment: Segment, end: int, store: bytes) -> int | None:
    """Return the checksum of the records of `segment` up to `end`; None if no record ends there."""
    file = directory.open(segment.name)
    try:
        start = segment.base + HEADER_BYTES
        scan = Scan(file, segment.base, end, start, zlib.crc32(store), 0, start, proven=end + 1)
        for _ in scan:
            pass
    finally:
        file.close()
    assert scan.ending is not None
    return scan.chain if scan.ending.finding is Finding.END else None


def _check_slots(directory: Directory, reading: Replay) -> Iterator[Problem]:
    """Check that a reader hides nothing that a checkpoint may have proven durable."""
    slots = checkpoints.read_slots(directory, reading.store)
    if not slots.unusable:
        return
    reading.run(durable_only=True)
    hidden = doubt(directory, slots, reading.ledger.shown_to, reading.sound_to)
    if hidden is not None:
        for name in hidden.slots:
            yield Problem(name, hidden.position, hidden.reason)


def _state(ledger: Ledger) -> dict[str, Any]:
    undecided = sorted((tx, entry.prepare.position) for tx, entry in ledger.undecided.items())
    carried = carried_of(ledger)
    # An empty ack need not be in a checkpoint.
    carried["acks"] = [ack for ack in carried["acks"] if ack[3] or ack[4]]
    timers = ledger.timers.state()
    return {
        "undecided": undecided,
        "applied_upto": ledger.shown_to,
        "timers": timers,
        **carried,
    }


def _check_indexes(
    directory: Directory, segments: list[Segment], full: Replay, store: bytes
) -> Iterator[Problem]:
    """Check each index against its segment. A missing index is built when it is needed."""
    rebuilt = {index.base: index for index in full.ledger.sealed}
    for segment in segments[:-1]:
        if segment.base in rebuilt:
            yield from _check_index(directory, segment, store, rebuilt[segment.base])


def _check_index(
    directory: Directory, segment: Segment, store: bytes, expected: SegmentIndex | None
) -> Iterator[Problem]:
    name = segment_name(segment.base, SUFFIX)
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Problem(name, segment.base, f"{error}; it will be built again when it is needed")
        return
    try:
        index = index_in(file, store, segment.base, segment.chain)
    except (BadIndex, OSError) as error:
        yield Problem(name, segment.base, f"{error}; it will be built again when it is needed")
        return
    finally:
        file.close()
    if expected is not None and not _same(index, expected):
        yield Problem(name, segment.base, "does not say what its segment says")


def _same(index: SegmentIndex, other: SegmentIndex) -> bool:
    if index.lanes.keys() != other.lanes.keys() or index.outcome_keys != other.outcome_keys:
        return False
    if index.ids.encode() != other.ids.encode():
        return False
    return all(
        all(getattr(lane, slot) == getattr(other.lanes[key], slot) for slot in Lane.__slots__)
        for key, lane in index.lanes.items()
    )
