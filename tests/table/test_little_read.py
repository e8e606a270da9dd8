"""Little is read: segments that can hold none of the rows are not opened, nor bodies nobody wants.

What is counted is what `Disk` hands out, planning and reading apart.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.table
from fmq.table.fleet import see_all
from fmq.table.read import read_split
from fmq.table.schema import schema_of
from fmq.table.selection import EVERYTHING, RowRange, Selection
from fmq.testing import FakeClock
from tests.table.counting import CountingDisk

Row = dict[str, Any]
SEGMENT_BYTES = 64 << 10
BODY_BYTES = 1000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A day of hourly topics, each filling some segments, to queue 0 in the morning."""
    path = tmp_path_factory.mktemp("little") / "shop"
    clock = FakeClock()
    options = fmq.Options(segment_bytes=SEGMENT_BYTES, topic_queues={"all": 2})
    with fmq.open(path, options, clock=clock, background=False) as engine:
        for hour in range(8):
            for _ in range(100):
                queue = 0 if hour < 4 else 1
                engine.send_many("all", [b"x" * BODY_BYTES], queue=queue)
                engine.send(f"hour-{hour}", b"y" * BODY_BYTES)
                clock.advance(36)
    return str(path)


def read(
    path: str, wanted: Selection = EVERYTHING, columns: list[str] | None = None
) -> tuple[list[Row], CountingDisk, CountingDisk]:
    """The rows, what planning read and what reading did, as a Spark job does them."""
    planning, reading = CountingDisk(), CountingDisk()
    schema = schema_of("messages", columns, fleet=False)
    (journal,) = see_all([path], disk=planning)
    rows: list[Row] = []
    for split in journal.splits(wanted, disk=planning):
        for batch in read_split(split, "messages", schema, wanted, disk=reading):
            rows += batch.to_pylist()
    return rows, planning, reading


def test_planning_reads_no_segment_but_the_last(path: str) -> None:
    """It also reads a checkpoint and the fronts of indexes."""
    rows, planning, reading = read(path)
    assert len(rows) == 1600
    assert len(reading.segments()) > 20
    assert planning.segments() == reading.segments()[-1:]
    assert planning.bytes_of("") < 2 * SEGMENT_BYTES


def planning_of(path: str, view: str) -> tuple[CountingDisk, list[Row]]:
    """Return what `fmq.table.read` reads before the first row is asked for, and the rows."""
    disk = CountingDisk()
    reader = fmq.table.read(path, view, disk=disk)
    planned = CountingDisk()
    planned.read.update(disk.read)
    return planned, reader.read_all().to_pylist()


@pytest.mark.parametrize("view", ["messages", "records", "damage"])
def test_planning_reads_little_for_an_old_undecided_transaction(tmp_path: Path, view: str) -> None:
    """It reads at most one segment more, however much was written since the prepare."""
    sizes = []
    for prepares in (False, True):
        path = str(tmp_path / f"shop-{prepares}")
        with fmq.open(path, fmq.Options(segment_bytes=SEGMENT_BYTES), background=False) as engine:
            tx = engine.transaction(tx_id="old")
            tx.send("orders", b"waits")
            if prepares:
                tx.prepare()
            for _ in range(50):
                engine.send_many("orders", [b"x" * BODY_BYTES] * 20)
            engine.checkpoint()
            engine.send("orders", b"last")
        planned, rows = planning_of(path, view)
        assert bool(rows) == (view != "damage")
        sizes.append(planned.bytes_of(".seg"))
    assert sizes[1] <= sizes[0] + SEGMENT_BYTES, sizes


def test_the_view_transactions_lists_an_old_undecided_transaction(tmp_path: Path) -> None:
    path = str(tmp_path / "shop")
    with fmq.open(path, fmq.Options(segment_bytes=SEGMENT_BYTES), background=False) as engine:
        tx = engine.transaction(tx_id="old")
        tx.send("orders", b"waits")
        tx.prepare()
        for _ in range(10):
            engine.send_many("orders", [b"x" * BODY_BYTES] * 20)
        engine.checkpoint()
        _, rows = planning_of(path, "transactions")
        assert [(row["tx_id"], row["state"]) for row in rows] == [("old", "undecided")]


@pytest.mark.parametrize("size", [5, 5000])
def test_a_decision_after_the_checkpoint_shows_earlier_prepares(tmp_path: Path, size: int) -> None:
    """Messages are shown from a copy or a reference, though planning has not read the PREPARE."""
    path = str(tmp_path / "shop")
    with fmq.open(path, fmq.Options(segment_bytes=SEGMENT_BYTES), background=False) as engine:
        for number in range(6):
            tx = engine.transaction(tx_id=f"T{number}")
            tx.send("orders", b"%d" % number * size)
            tx.prepare()
        engine.send_many("orders", [b"x"] * 10)
        engine.checkpoint()
        for number in range(4):
            engine.decide(f"T{number}", "rollback" if number % 2 else "commit")
        engine.send("orders", b"last")
        engine.send("orders", b"vouches for what is before it")
        _, rows = planning_of(path, "messages")
        expected = [b"x"] * 10 + [b"0" * size, b"2" * size, b"last"]
        assert [row["body"] for row in rows][: len(expected)] == expected
        states = {row["tx_id"]: row["state"] for row in planning_of(path, "transactions")[1]}
        assert states == {
            "T0": "committed", "T1": "rolled back", "T2": "committed", "T3": "rolled back",
            "T4": "undecided", "T5": "undecided",
        }  # fmt: skip


def middle(rows: list[Row]) -> Row:
    return rows[len(rows) // 2]


FILTERS = {
    "topic": lambda row: (
        Selection(topics=frozenset({"hour-5"})),
        lambda row: row["topic"] == "hour-5",
    ),
    "queue": lambda row: (Selection(queues=frozenset({1})), lambda row: row["queue"] == 1),
    "offset": lambda row: (
        Selection(offset=RowRange(350, 360)),
        lambda row: 350 <= row["offset"] <= 360,
    ),
    "position": lambda row: (
        Selection(position=RowRange(row["position"])),
        lambda each: each["position"] >= row["position"],
    ),
    "time": lambda row: (
        Selection(time_us=RowRange(us(row))),
        lambda each: each["time"] >= row["time"],
    ),
}


def us(row: Row) -> int:
    return int(row["time"].timestamp() * 1_000_000)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_opens_only_segments_that_hold_its_rows(path: str, name: str) -> None:
    """The rows are exactly those that the filter chooses."""
    everything, _, all_of_it = read(path)
    wanted, wants = FILTERS[name](middle(everything))
    rows, _, reading = read(path, wanted)
    expected = [row for row in everything if wants(row)]
    assert rows == expected
    holding = {row["position"] // SEGMENT_BYTES * SEGMENT_BYTES for row in expected}
    assert set(reading.segments()) == holding
    assert len(holding) <= len(all_of_it.segments()) * 5 / 8
    assert reading.bytes_of(".seg") <= all_of_it.bytes_of(".seg") * 5 / 8


def test_only_the_wanted_records_of_a_segment_are_read(path: str) -> None:
    """A few offsets of one queue cost a few records."""
    wanted = Selection(topics=frozenset({"hour-5"}), offset=RowRange(50, 51))
    rows, _, reading = read(path, wanted)
    assert [row["offset"] for row in rows] == [50, 51]
    assert reading.bytes_of(".seg") < 10 * BODY_BYTES


def test_large_bodies_that_are_not_wanted_are_not_read(tmp_path: Path) -> None:
    """Small ones are read along, because that costs less than a second read.

    The last segment has no index yet and is read as a whole.
    """
    path = str(tmp_path / "shop")
    with fmq.open(path, fmq.Options(segment_bytes=1 << 20), background=False) as engine:
        for _ in range(20):
            engine.send("images", b"\xff" * 200_000, key="k")
    rows, _, reading = read(path, columns=["key", "time"])
    assert {row["key"] for row in rows} == {"k"}
    whole, _, all_of_it = read(path)
    assert [{"key": row["key"], "time": row["time"]} for row in whole] == rows
    last = f"{max(all_of_it.segments()):020d}.seg"
    del reading.read[last], all_of_it.read[last]
    assert all_of_it.bytes_of(".seg") > 15 * 200_000
    assert reading.bytes_of(".seg") < 15 * 8_000


def test_columns_in_the_index_are_read_only_from_the_index(path: str) -> None:
    """The last segment has no index yet, so that one is opened."""
    rows, _, reading = read(path, columns=["topic", "queue", "offset", "position"])
    assert len(rows) == 1600
    assert len(reading.segments()) == 1


# --- splits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["messages", "records", "transactions", "damage"])
def test_splits_of_any_size_give_the_same_rows(tmp_path: Path, view: str) -> None:
    """Large segments are split where appends begin, so each append is in one split."""
    from tests.spark.filled import fill

    path = str(tmp_path / "shop")
    fill(path, segment_bytes=200_000)
    whole = rows_of_splits(path, view, 1 << 30)
    assert bool(whole[0]) == (view != "damage")
    counts = []
    for split_bytes in (1 << 30, 20_000, 3000, 1):
        rows, splits = rows_of_splits(path, view, split_bytes)
        assert rows == whole[0]
        counts.append(splits)
    assert counts == sorted(counts)
    assert counts[0] < 4 < 10 < counts[-1]


def rows_of_splits(path: str, view: str, split_bytes: int) -> tuple[list[Row], int]:
    schema = schema_of(view, None, fleet=False)
    (journal,) = see_all([path])
    splits = journal.splits(EVERYTHING, lanes=view == "messages", split_bytes=split_bytes)
    rows = [
        row
        for split in splits
        for batch in read_split(split, view, schema)
        for row in batch.to_pylist()
    ]
    return rows, len(splits)


def test_a_split_that_ends_inside_an_append_is_refused(tmp_path: Path) -> None:
    """No split of ours does. One that did would lose rows silently."""
    path = str(tmp_path / "shop")
    with fmq.open(path, background=False) as engine:
        with engine.transaction() as tx:
            tx.send("orders", b"one")
            tx.send("emails", b"two")
        engine.send("orders", b"three")
        engine.checkpoint()
    (journal,) = see_all([path])
    (split,) = journal.splits(EVERYTHING)
    schema = schema_of("records", None, fleet=False)
    rows = [row for batch in read_split(split, "records", schema) for row in batch.to_pylist()]
    inside = next(row["position"] for row in rows if row["append"] != row["position"])
    with pytest.raises(fmq.errors.Damaged, match="goes on behind"):
        list(read_split(replace(split, end=inside), "records", schema))


def test_what_is_new_is_read_without_a_look_at_older_segments(path: str) -> None:
    """Not even the fronts of their indexes are read, so the cost does not grow with the journal."""
    disk, end = CountingDisk(), fmq.table.read(path).end
    since = fmq.table.read(path, until=end - 10_000).end
    rows = fmq.table.read(path, since=since, disk=disk).read_all().to_pylist()
    assert 0 < len(rows) < 20
    assert not disk.bytes_of(".idx")
    assert len([name for name in disk.read if name.endswith(".seg")]) <= 2
