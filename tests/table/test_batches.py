"""How far a batch of a stream goes, compared with a walk over all appends."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

import fmq
from fmq.store.bytes.record import aligned
from fmq.store.index.index import SegmentIndex
from fmq.store.index.index_file import FRONT_BYTES
from fmq.table.boundaries import Boundaries
from fmq.table.selection import EVERYTHING
from fmq.table.snapshot import Snapshot, see
from fmq.table.split import opened as open_split
from fmq.table.stream import BatchRoom, ReadPoint, batch_end, go_on
from fmq.table.table_errors import Outrun
from fmq.testing import CrashDisk
from fmq.tx.ledger.apply_parts import apply_to_index
from tests.small import check, content, opened, remove, segments
from tests.table.passing import PassingDisk


class Append(NamedTuple):
    begin: int
    end: int
    messages: int


def filled(seed: int, acts: int = 150) -> tuple[CrashDisk, Snapshot]:
    """A journal of several segments with all that can be appended, the same often in a row."""
    random, disk = Random(seed), CrashDisk()
    with opened(disk, reference_bytes_min=1) as engine:
        consumer, act = engine.consumer("orders", group="readers"), "send"
        for number in range(acts):
            if random.random() < 0.2:
                act = random.choice(["send", "batch", "tx", "two", "undecided", "ack"])
            append(engine, consumer, act, number, random)
    check(disk)
    if seed % 2:  # an index that is not there is built again
        remove(disk, *(name for name in content(disk) if name.endswith(".idx")))
    return disk, see("data", disk=disk)


def append(
    engine: fmq.Engine, consumer: fmq.Consumer, act: str, number: int, random: Random
) -> None:
    body = b"x" * random.randrange(120)
    if act == "send":
        engine.send("orders", body)
    elif act == "batch":
        engine.send_many("emails", [body] * random.randrange(1, 9))
    elif act == "ack":
        for delivery in consumer.poll(limit=2):
            delivery.ack()
    elif act == "tx":
        with engine.transaction() as tx:
            tx.send("orders", body)
            tx.send_many("emails", [body, b""])
    else:
        tx = engine.transaction(tx_id=f"{act}-{number}")
        tx.send("orders", body)
        tx.prepare()
        if act == "two":
            tx.rollback() if random.random() < 0.3 else tx.commit()


def walked(disk: CrashDisk, journal: Snapshot) -> list[Append]:
    """Every append there is, by reading all of it."""
    found = []
    for split in journal.splits(EVERYTHING, lanes=False, disk=disk):
        with open_split(split, disk) as source:
            for records in source.appends():
                index = SegmentIndex(split.base)
                apply_to_index(index, records)
                messages = sum(lane.next - lane.first for lane in index.lanes.values())
                end = records[-1].position + aligned(records[-1].size)
                found.append(Append(records[0].position, end, messages))
    return found


def walk(appends: list[Append], start: int, messages: int | None, size: int | None) -> int:
    """Return where a batch from `start` on ends, by reading one append after another."""
    end = start
    for append in appends:
        if append.begin < start:
            continue
        if messages is not None:
            messages -= append.messages
        if size is not None:
            size -= append.end - append.begin
        if min(messages or 0, size or 0) < 0 and end != start:
            break
        end = append.end
        if min(messages or 0, size or 0) < 0:
            break
    return end


LIMITS = [(1, None), (7, None), (40, None), (None, 1), (None, 900), (None, 6000), (5, 700)]


@pytest.mark.parametrize(("messages", "size"), LIMITS)
@pytest.mark.parametrize("seed", range(4))
def test_batches_end_where_a_walk_over_all_appends_says(
    seed: int, messages: int | None, size: int | None
) -> None:
    """Compare every batch, with every limit, over all segments, with and without indexes."""
    disk, journal = filled(seed)
    appends = walked(disk, journal)
    assert len(segments(disk)) > 3
    start = journal.first
    while (expected := walk(appends, start, messages, size)) != start:
        end = batch_end(journal, start, journal.visible_to, BatchRoom(messages, size), disk=disk)
        assert end == expected, f"{seed=} {start=}"
        start = end
    assert start == journal.visible_to
    assert (
        batch_end(journal, start, journal.visible_to, BatchRoom(messages, size), disk=disk) == start
    )


@pytest.mark.parametrize("seed", range(4))
def test_an_append_is_found_from_any_position_inside_it(seed: int) -> None:
    """The boundary before a position is the beginning of the append that holds it."""
    disk, journal = filled(seed)
    appends = walked(disk, journal)
    for seen in journal.segments:
        inside = [each for each in appends if seen.segment.base < each.begin < seen.end]
        [split] = journal.splits(
            EVERYTHING, start=inside[0].begin, end=seen.end, lanes=False, disk=disk
        )
        with open_split(split, disk) as source:
            boundaries = Boundaries(source, source.index())
            assert boundaries.messages_before(seen.end) == sum(each.messages for each in inside)
            for each in inside:
                for position in (each.begin, each.begin + 8, each.end - 8):
                    assert boundaries.before(position) == each.begin, f"{seed=} {position=}"
                assert boundaries.after(each.begin) == each.end
            assert boundaries.before(seen.end) == seen.end


@pytest.mark.parametrize("in_transactions", [False, True])
def test_finding_the_end_of_a_batch_reads_little(in_transactions: bool) -> None:
    """It reads the index of one segment, the fronts of those before and a few heads, however much
    lies before the end.
    """
    disk = CrashDisk()
    with opened(disk, segment_bytes=1 << 20) as engine:
        for _ in range(2500):
            if in_transactions:
                with engine.transaction() as tx:
                    tx.send("orders", b"x" * 1000)
            else:
                engine.send("orders", b"x" * 1000)
    journal = see("data", disk=disk)
    passing = PassingDisk(disk)
    end = batch_end(journal, journal.first, journal.visible_to, BatchRoom(1500), disk=passing)
    assert end > 1_500_000
    index = content(disk)[f"{1 << 20:020d}.idx"]
    fronts = FRONT_BYTES * sum(seen.segment.base < end for seen in journal.segments)
    assert passing.bytes_read < len(index) + fronts + 1000


def test_finding_the_end_of_a_batch_reduces_its_room() -> None:
    disk, journal = filled(0)
    appends = walked(disk, journal)
    room = BatchRoom(10)
    first = batch_end(journal, journal.first, appends[3].end, room, disk=disk)
    assert first == appends[3].end
    left = 10 - sum(append.messages for append in appends[:4])
    assert room.messages == left
    assert not room.empty


# --- what retention took --------------------------------------------------------------------------


def test_the_bounds_of_a_dropped_part_are_reported() -> None:
    disk, journal, first = overtaken()
    with pytest.raises(Outrun, match=r"position 64 up to \d+, [\d,]+ bytes, was dropped") as caught:
        go_on(journal, ReadPoint(64), journal.visible_to, skip=False, disk=disk)
    assert (caught.value.start, caught.value.end) == (64, first.end)
    assert "onGap=skip" in str(caught.value)


def test_a_skipped_gap_is_counted_in_bytes() -> None:
    disk, journal, first = overtaken()
    mark = go_on(journal, ReadPoint(64, 5), journal.visible_to, skip=True, disk=disk)
    assert mark == ReadPoint(journal.first, 5 + first.end - 64)
    assert go_on(journal, mark, journal.visible_to, skip=False, disk=disk) == mark


def test_a_segment_that_was_read_to_its_end_leaves_no_gap() -> None:
    """Nothing lies between the end of its data and the next segment."""
    disk, journal, first = overtaken()
    assert first.end < journal.first
    mark = go_on(journal, ReadPoint(first.end), journal.visible_to, skip=False, disk=disk)
    assert mark == ReadPoint(journal.first)


def test_a_gap_is_skipped_only_up_to_the_end_of_the_read() -> None:
    disk, journal, first = overtaken()
    stop = first.begin
    mark = go_on(journal, ReadPoint(64), stop, skip=True, disk=disk)
    assert mark == ReadPoint(stop, stop - 64)
    mark = go_on(journal, mark, journal.visible_to, skip=True, disk=disk)
    assert mark == ReadPoint(journal.first, first.end - 64)


def overtaken() -> tuple[CrashDisk, Snapshot, Append]:
    """A journal that has lost its first segments, and the last append in them."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for _ in range(30):
            engine.send("orders", b"x" * 500)
    appends = walked(disk, see("data", disk=disk))
    with opened(disk, retain_bytes=3 * 4096) as engine:
        engine.send("orders", b"x" * 500)
        engine.checkpoint()
    journal = see("data", disk=disk)
    assert journal.first > 4096
    return disk, journal, [each for each in appends if each.begin < journal.first][-1]
