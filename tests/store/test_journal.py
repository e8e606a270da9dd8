"""All segments together: appends that never span two of them, rolls that lose nothing."""

from __future__ import annotations

import errno
from functools import partial
from itertools import pairwise
from random import Random

import pytest

from fmq.errors import StorageFull
from fmq.store.bytes.decoding import durable_to_of
from fmq.store.bytes.encoding import size_of
from fmq.store.bytes.record import FIRST, LAST, aligned
from fmq.store.journal import journal as journal_module
from fmq.store.journal.files import Files
from fmq.store.journal.journal import Journal, create_first_segment
from fmq.store.journal.scan import Finding
from fmq.store.journal.segment import HEADER_BYTES, segment_name
from fmq.store.journal.spares import Spares
from fmq.testing import CrashDisk, FaultDisk, PowerLoss
from tests.store import lines
from tests.store.journals import (
    CAPACITY,
    Found,
    append,
    chain_over,
    directory_of,
    end_of,
    files_of,
    make_journal,
    note,
    plan,
)
from tests.store.samples import SEED, STORE

NOTE_BYTES = size_of(note(""))


def test_appends_are_found_in_the_files() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    append(journal, "a")
    append(journal, "b", "c")
    found = Found(disk)
    assert found.texts == [["a"], ["b", "c"]]
    assert found.segments[-1].end == journal.position
    assert found.chains == [journal.current.chain]
    assert journal.seed == SEED


def test_records_are_contiguous_and_flags_mark_an_appends_ends() -> None:
    journal = make_journal(CrashDisk())
    records = append(journal, "a", "bb", "ccc") + append(journal, "d")
    assert [record.flags for record in records] == [FIRST, 0, LAST, FIRST | LAST]
    for one, other in pairwise(records):
        assert other.position == one.position + aligned(one.size)
    assert records[0].position == HEADER_BYTES
    assert journal.position == journal.current.end == end_of(records)


def test_appends_planned_together_are_written_together() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    before = disk.operations
    for text in "abc":
        plan(journal, [note(text)])
    assert disk.operations == before, "planning does not touch the disk"
    assert journal.pending_bytes == 3 * aligned(NOTE_BYTES + 1)
    journal.write(journal.take_pending(), sync=True)
    # The file that is written is opened once, and then there is one write for all.
    assert disk.operations == before + 1
    assert journal.pending_bytes == 0
    assert Found(disk).texts == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("seed", range(5))
def test_no_append_spans_two_segments(seed: int) -> None:
    """Appends of random size fill several segments. Each lies in one, and none is lost."""
    random = Random(seed)
    disk = CrashDisk()
    journal = make_journal(disk)
    written: list[list[str]] = []
    while len(journal.segments) < 6:
        count = random.randrange(1, 5)
        texts = [f"{len(written)}-{i}" for i in range(count)]
        append(journal, *texts, size=random.randrange(CAPACITY // count - 200))
        written.append(texts)
    found = Found(disk)
    assert found.texts == written, seed
    for records in found.appends:
        first = journal.segment_of(records[0].position)
        assert first is journal.segment_of(end_of(records) - 1)
    assert [(s.base, s.end, s.chain) for s in found.segments[:-1]] == [
        (s.base, s.end, s.chain) for s in journal.segments[:-1]
    ]


def test_an_append_that_just_fits_does_not_roll_but_a_larger_one_does() -> None:
    for extra, segments in [(0, 1), (1, 2)]:
        journal = make_journal(CrashDisk())
        append(journal, "first")
        room = journal.current.limit - journal.position
        append(journal, "x", size=room - NOTE_BYTES + extra)
        assert len(journal.segments) == segments


def test_the_largest_append_fills_an_empty_segment() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    append(journal, "first")
    append(journal, "x", size=journal.append_bytes_max - NOTE_BYTES)
    assert Found(disk).segments[-1].end == journal.current.limit


def test_a_header_has_the_end_and_chain_of_the_previous_segment() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    while len(journal.segments) < 3:
        append(journal, "x", size=900)
    found = Found(disk)
    files = files_of(disk)
    for segment in found.segments[:-1]:
        chain = 0
        for records in found.appends:
            if segment.base <= records[0].position < segment.limit:
                chain = chain_over(files[segment.name], records, segment.base, chain)
                end = end_of(records)
        assert (segment.end, segment.chain) == (end, chain)


def test_a_roll_alone_seals_the_segment_and_opens_the_next() -> None:
    """No append is needed, as when a plan is refused after its roll."""
    disk = CrashDisk()
    journal = make_journal(disk)
    append(journal, "a")
    journal.roll(0, ordinary=True)
    journal.write(journal.take_pending(), sync=True)
    append(journal, "b")
    found = Found(disk)
    assert found.texts == [["a"], ["b"]]
    assert found.appends[1][0].position == CAPACITY + HEADER_BYTES


def test_several_rolls_may_be_pending() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    for i in range(12):
        plan(journal, [note(str(i), 900)])
    assert len(journal.segments) == 3
    journal.write(journal.take_pending(), sync=True)
    assert Found(disk).texts == [[str(i)] for i in range(12)]


def test_taken_appends_do_not_change_while_others_are_planned() -> None:
    """A roll planned meanwhile belongs to the next write as well."""
    disk = CrashDisk()
    journal = make_journal(disk)
    plan(journal, [note("0", 900)])
    taken = journal.take_pending()
    for i in range(1, 6):
        plan(journal, [note(str(i), 900)])
    assert len(journal.segments) == 2
    journal.write(taken, sync=True)
    assert Found(disk).texts == [["0"]]
    journal.write(journal.take_pending(), sync=True)
    assert Found(disk).texts == [[str(i)] for i in range(6)]


def test_records_state_what_was_durable_when_they_were_planned() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    (first,) = append(journal, "a")
    (second,) = append(journal, "b")
    (third,), (fourth,) = plan(journal, [note("c")]), plan(journal, [note("d")])
    journal.write(journal.take_pending(), sync=True)
    data = files_of(disk)[segment_name(0)]
    told = [durable_to_of(data, r.position) for r in (first, second, third, fourth)]
    assert told == [first.position, second.position, third.position, third.position]


@pytest.mark.parametrize("sync", [True, False])
def test_synced_appends_survive_a_power_loss_at_any_operation(sync: bool) -> None:
    """Without syncs, sealed segments survive. What survives is a prefix of what was written."""

    def work(disk: CrashDisk, written: list[str]) -> Journal:
        journal = make_journal(disk)
        try:
            for i in range(10):
                append(journal, str(i), size=900, sync=sync)
                written.append(str(i))
        except PowerLoss:
            pass
        return journal

    operations = CrashDisk()
    work(operations, [])
    started = CrashDisk()
    make_journal(started)
    for crash_at in range(started.operations, operations.operations):
        disk = CrashDisk(crash_at)
        written: list[str] = []
        work(disk, written)
        for state in disk.states():
            texts = [text for (text,) in Found(state).texts]
            expected = [str(i) for i in range(len(texts))]
            assert texts == expected, (crash_at, state.loss)
            assert len(texts) >= (len(written) if sync else len(written) // 4 * 4 - 4)


def test_a_sealed_segment_is_durable_even_without_syncs() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    while len(journal.segments) < 3:
        append(journal, "x", size=900, sync=False)
    sealed = {segment.name for segment in journal.segments[:-1]}
    whole = files_of(disk)
    for state in disk.states():
        files = files_of(state)
        for name in sealed:
            assert files[name] == whole[name], state.loss


def test_sync_makes_earlier_unsynced_writes_durable() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    append(journal, "a", sync=False)
    assert disk.pending()
    journal.sync()
    assert not disk.pending()


@pytest.mark.parametrize("operation", ["create", "allocate", "sync"])
def test_a_full_disk_at_a_roll_refuses_only_the_append_that_rolls(operation) -> None:
    faults = FaultDisk(CrashDisk())
    journal = make_journal(faults)
    for i in range(4):
        append(journal, str(i), size=900)
    before = journal.position, journal.pending_bytes, len(journal.segments)
    faults.fail(operation, error=errno.ENOSPC, persistently=True)
    for _ in range(3):
        with pytest.raises(StorageFull):
            append(journal, "large", size=900)
        assert (journal.position, journal.pending_bytes, len(journal.segments)) == before
    append(journal, "small")
    faults.heal()
    append(journal, "large", size=900)
    assert [text for (text,) in Found(faults).texts] == [*"0123", "small", "large"]


def test_a_reopened_journal_continues_where_it_ended() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    for i in range(6):
        append(journal, str(i), size=900)
    journal.close()
    found = Found(disk)
    last = found.segments[-1]
    last.chain = found.chains[-1] or 0
    directory = directory_of(disk)
    again = Journal(
        directory,
        STORE,
        found.segments,
        Spares(directory, CAPACITY, CAPACITY),
        Files(directory),
        CAPACITY,
    )
    for i in range(6, 12):
        append(again, str(i), size=900)
    assert Found(disk).texts == [[str(i)] for i in range(12)]


def test_a_position_belongs_to_a_segment_unless_that_was_dropped() -> None:
    disk = CrashDisk()
    journal = make_journal(disk)
    while len(journal.segments) < 4:
        append(journal, "x", size=900)
    bases = [segment.base for segment in journal.segments]
    for segment in journal.segments:
        assert journal.segment_of(segment.base) is segment
        assert journal.segment_of(segment.limit - 1) is segment
    first = journal.segments[0]
    assert journal.drop_first() is first
    assert journal.segment_of(0) is journal.segment_of(CAPACITY - 1) is None
    assert [segment.base for segment in journal.segments] == bases[1:]
    append(journal, "goes on", size=900)


def test_the_first_segment_is_durable_under_its_name() -> None:
    disk = CrashDisk()
    segment = create_first_segment(directory_of(disk), STORE, CAPACITY)
    assert (segment.base, segment.end, segment.limit) == (0, HEADER_BYTES, CAPACITY)
    for state in disk.states():
        found = Found(state)
        assert [s.capacity for s in found.segments] == [CAPACITY]
        assert found.endings[0].finding is Finding.ZEROS


def test_the_first_segment_can_be_made_again_after_a_power_loss() -> None:
    """Its file is there as a whole, or not at all."""
    operations = CrashDisk()
    create_first_segment(directory_of(operations), STORE, CAPACITY)
    for crash_at in range(2, operations.operations):
        disk = CrashDisk(crash_at)
        with pytest.raises(PowerLoss):
            create_first_segment(directory_of(disk), STORE, CAPACITY)
        for state in disk.states():
            names = directory_of(state).names()
            if segment_name(0) not in names:
                create_first_segment(directory_of(state), STORE, CAPACITY)
            assert Found(state).texts == [], (crash_at, state.loss)


def test_a_segment_is_found_while_another_thread_rolls() -> None:
    """A roll may come between any two lines of the look-up, which takes no lock."""

    def rolling(at: int) -> lines.Lines:
        code = Journal.segment_of.__code__
        return lines.Lines(journal_module, at, lambda: journal.roll(0, ordinary=True), code)

    for older in (False, True):
        journal = make_journal(CrashDisk())
        for tracer in lines.at_each_line(rolling):
            journal = make_journal(CrashDisk())
            first = journal.current
            if older:
                journal.roll(0, ordinary=True)
            found = tracer.run(partial(journal.segment_of, HEADER_BYTES))
            assert found is first, tracer.met


def test_a_write_ahead_has_only_what_was_planned_before_it() -> None:
    """With a home, its bytes count at once: what comes later must not be told that it failed."""
    disk = CrashDisk()
    journal = make_journal(disk)
    plan(journal, [note("before")])
    ahead = journal.look_ahead()
    assert ahead is not None
    plan(journal, [note("later")])
    journal.write_ahead(ahead)
    assert Found(disk).texts == [["before"]]
