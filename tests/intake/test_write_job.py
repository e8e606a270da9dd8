"""Jobs of rows: all of a job or nothing, each job once, and no trace of those that died."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import fmq
import fmq.table
from fmq.intake import JobPart, WriteJob
from fmq.testing import CrashDisk, FakeClock, PowerLoss

OPTIONS = fmq.Options(segment_bytes=64 << 10)
SMALL = 1 << 10


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "shop", OPTIONS) as engine:
        yield engine


def rows_of(*numbers: int) -> pa.Table:
    return pa.table({"body": [b"%d" % number for number in numbers]})


def bodies(engine: fmq.Engine, topic: str = "orders") -> list[bytes]:
    return [message.body for message in engine.read(topic, limit=100_000)]


def wrote(job: WriteJob, *numbers: int, hold: int = 0) -> JobPart:
    table = pa.table({"body": [b"%05d" % number for number in numbers]})
    return job.write(table.to_batches(), "orders", hold_bytes=hold, part_bytes=SMALL)


def wrote_batches(engine: fmq.Engine, batches: Iterable[pa.RecordBatch]) -> None:
    job = WriteJob(engine, None, 0, "run")
    job.commit([job.write(batches, "orders", hold_bytes=SMALL)])


# --- one call -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 3, 50_000])
def test_the_same_write_again_does_nothing(engine: fmq.Engine, count: int) -> None:
    """With no rows, with a few, and with more than a segment has room for."""
    rows = rows_of(*range(count))
    first = fmq.table.write(engine, "orders", rows, mark=("load", 7))
    again = fmq.table.write(engine, "orders", rows, mark=("load", 7))
    assert (first, again) == (fmq.table.RowsWritten(count), fmq.table.RowsWritten(0, True))
    assert bodies(engine) == [b"%d" % number for number in range(count)]
    assert engine.mark("load") == fmq.Mark(7)
    assert engine.undecided() == []


def test_a_later_job_follows_and_an_earlier_one_is_refused(engine: fmq.Engine) -> None:
    fmq.table.write(engine, "orders", rows_of(1), mark=("load", 1))
    fmq.table.write(engine, "orders", rows_of(2), mark=("load", 3))
    with pytest.raises(fmq.table.JobPassed, match="has the value 3, so the job with the value 2"):
        fmq.table.write(engine, "orders", rows_of(3), mark=("load", 2))
    assert bodies(engine) == [b"1", b"2"]


def test_without_a_mark_each_call_adds(engine: fmq.Engine) -> None:
    for _ in range(2):
        fmq.table.write(engine, "orders", rows_of(1))
    assert bodies(engine) == [b"1", b"1"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_bodies_of_each_type_arrive(engine: fmq.Engine, kind: pa.DataType) -> None:
    """Also of a part of a column, of bodies without bytes, and of a part that was pickled, as Spark
    does with rows of which it has so few that the commit sends them.
    """
    column = pa.array([b"left out", b"a", "bä".encode(), b"", b"left out"]).cast(kind)
    rows = pa.table({"body": column}).slice(1, 3).to_batches()
    job = WriteJob(engine, None, 0, "run")
    parts = [job.write(rows, "orders", hold_bytes=0)]
    empty = pa.table({"body": pa.array([b""] * 3).cast(kind)})
    parts.append(job.write([*rows, *empty.to_batches()], "orders", hold_bytes=SMALL))
    job.commit(pickle.loads(pickle.dumps(parts)))
    sent = [b"a", "bä".encode(), b""]
    assert bodies(engine) == [*sent, *sent, b"", b"", b""]


def test_a_column_that_states_more_bytes_than_it_has_is_refused(engine: fmq.Engine) -> None:
    """As from a file of Arrow that was damaged."""
    batch = pa.record_batch({"body": [b"1" * 5, b"2" * 6, b"3" * 6]})
    file = pa.BufferOutputStream()
    with pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    sound, broken = (array("i", [0, 5, 11, end]).tobytes() for end in (17, 60))
    data = file.getvalue().to_pybytes()
    assert sound in data
    with pytest.raises(fmq.table.BadRows, match="larger than values array"):
        wrote_batches(engine, pa.ipc.open_stream(data.replace(sound, broken)))
    assert bodies(engine) == []


def test_bodies_are_those_that_were_there_when_they_were_read(engine: fmq.Engine) -> None:
    """Also if the program fills the same room again. And of a part of a column no more is kept."""
    room = bytearray(1 << 20)

    def batches() -> Iterator[pa.RecordBatch]:
        ends = pa.py_buffer(array("i", [0, 1, len(room)]).tobytes())
        for fill in b"ABC":
            room[:] = bytes([fill]) * len(room)
            column = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(room)])
            yield pa.RecordBatch.from_arrays([column.slice(0, 1)], ["body"])

    wrote_batches(engine, batches())
    assert bodies(engine) == [b"A", b"B", b"C"]


def test_all_columns_of_a_message_arrive(engine: fmq.Engine) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    texts = pa.map_(pa.string(), pa.string())
    rows = pa.table(
        {
            "body": ["one", "two"],
            "topic": ["orders", "emails"],
            "queue": pa.array([None, 0], pa.int32()),
            "key": ["k", None],
            "tag": [None, "t"],
            "headers": pa.array([[("trace", "9f")], None], texts),
            "message_id": ["id", None],
            "priority": pa.array([None, 9], pa.int8()),
            "expires_at": pa.array([later, None], pa.timestamp("us", "UTC")),
            "delay": [None, 60.0],
        }
    )
    fmq.table.write(engine, None, rows)
    (one,) = engine.read("orders")
    assert one[:4] == (b"one", "k", None, {"trace": "9f"})
    assert (one.message_id, one.expires_at) == ("id", later)
    assert [each.topic for each in engine.delayed()] == ["emails"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": ["k"]}, "body is missing"),
        ({"body": [1]}, "body is int64, and has to be binary or text"),
        ({"body": ["x"], "offset": [1]}, "a message has no offset"),
        ({"body": ["x"], "topic": ["y"]}, "another one was given"),
        ({"body": ["x"], "deliver_at": [datetime(2100, 1, 1)]}, "with a time zone"),  # noqa: DTZ001
        ({"body": ["x"], "deliver_at": [None], "delay": [1.0]}, "a message has one of them"),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_read(
    engine: fmq.Engine, columns: dict[str, list[object]], said: str
) -> None:
    def never() -> Iterator[pa.RecordBatch]:
        pytest.fail("no row is asked for")
        yield

    reader = pa.RecordBatchReader.from_batches(pa.table(columns).schema, never())
    with pytest.raises(fmq.table.BadRows, match=said):
        fmq.table.write(engine, "orders", reader)


def test_rows_without_a_topic_are_refused(engine: fmq.Engine) -> None:
    with pytest.raises(fmq.table.BadRows, match="topic is missing"):
        fmq.table.write(engine, None, rows_of(1))


def test_an_error_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """A row without a body, behind so many that some were prepared."""
    rows = pa.table({"body": [b"%01000d" % number for number in range(9_000)] + [None]})
    with fmq.open(tmp_path / "shop") as engine:
        refused(engine, rows)


def refused(engine: fmq.Engine, rows: pa.Table) -> None:
    with pytest.raises(fmq.table.BadRows, match="a row has no body"):
        fmq.table.write(engine, "orders", rows, mark=("load", 1))
    assert (engine.undecided(), bodies(engine), engine.mark("load")) == ([], [], None)


def test_more_than_may_be_undecided_leaves_nothing(tmp_path: Path) -> None:
    options = fmq.Options(segment_bytes=64 << 10, undecided_messages_max=500)
    with fmq.open(tmp_path / "shop", options) as engine:
        wrote(WriteJob(engine, "m", 5, "run", "0"), *range(300))
        with pytest.raises(fmq.errors.TooMany, match="undecided_messages_max"):
            wrote(WriteJob(engine, "m", 5, "run", "1"), *range(300))
        assert engine.undecided() != []
        WriteJob(engine, "m", 5, "run", "a").abort([])
        assert (engine.undecided(), bodies(engine)) == ([], [])


@pytest.mark.parametrize("mark", ["load", ("load",), ("load", -1), ("load", True), (1, 1)])
def test_a_wrong_mark_is_refused(engine: fmq.Engine, mark: object) -> None:
    with pytest.raises((TypeError, fmq.errors.BadOption), match="Nothing was written"):
        fmq.table.write(engine, "orders", rows_of(1), mark=mark)  # type: ignore[arg-type]


# --- many tasks -----------------------------------------------------------------------------------


def test_twins_and_late_tasks_add_nothing(engine: fmq.Engine) -> None:
    """Each task is done twice; a third one of a task comes when the job is committed."""
    first, twin = (WriteJob(engine, "m", 5, "run", task) for task in ("0", "0-twin"))
    part = wrote(first, *range(200))
    wrote(twin, *range(200))
    late = WriteJob(engine, "m", 5, "run", "late")
    assert not late.is_done()
    assert WriteJob(engine, "m", 5, "run", "c").commit([part])
    assert engine.undecided() == []
    assert wrote(late, *range(200)) == JobPart(skipped=True)
    assert bodies(engine) == [b"%05d" % number for number in range(200)]


def test_a_task_that_prepares_behind_the_decision_is_rolled_back_by_the_next_job(
    engine: fmq.Engine,
) -> None:
    part = wrote(WriteJob(engine, "m", 5, "run", "0"), *range(200))
    twin = WriteJob(engine, "m", 5, "run", "twin")

    def slow() -> Iterator[pa.RecordBatch]:
        assert WriteJob(engine, "m", 5, "run", "c").commit([part])
        yield from pa.table({"body": [b"%05d" % number for number in range(200)]}).to_batches()

    left = twin.write(slow(), "orders", hold_bytes=0, part_bytes=SMALL)
    assert len(engine.undecided()) == len(left.prepared) > 0
    fmq.table.write(engine, "orders", rows_of(7), mark=("m", 6))
    assert engine.undecided() == []
    assert len(bodies(engine)) == 201


def test_an_abort_changes_nothing_that_is_decided(engine: fmq.Engine) -> None:
    """As Spark does it: a commit dies behind its decision, and then the job is aborted."""
    part = wrote(WriteJob(engine, "m", 5, "run", "0"), *range(200))
    WriteJob(engine, "m", 5, "run", "c").commit([part])
    WriteJob(engine, "m", 5, "run", "a").abort([part])
    assert len(bodies(engine)) == 200
    assert not WriteJob(engine, "m", 5, "run-2", "c").commit([JobPart(skipped=True)])


def test_an_abort_fences_a_commit_that_comes_later(engine: fmq.Engine) -> None:
    part = wrote(WriteJob(engine, "m", 5, "run", "0"), *range(200))
    other = wrote(WriteJob(engine, "m", 5, "run-2", "0"), *range(200))
    WriteJob(engine, "m", 5, "run", "a").abort([part])
    with pytest.raises(fmq.AlreadyDecided):
        WriteJob(engine, "m", 5, "run", "c").commit([part])
    assert (bodies(engine), engine.mark("m")) == ([], None)
    # The attempt of another run is its own.
    assert WriteJob(engine, "m", 5, "run-2", "c").commit([other])
    assert len(bodies(engine)) == 200


def test_of_two_committers_one_wins(engine: fmq.Engine) -> None:
    """Two drivers do the same job, and neither knows of the other."""
    parts = [wrote(WriteJob(engine, "m", 5, run, "0"), *range(200)) for run in ("a", "b")]
    assert WriteJob(engine, "m", 5, "a", "c").commit([parts[0]])
    assert not WriteJob(engine, "m", 5, "b", "c").commit([parts[1]])
    assert (len(bodies(engine)), engine.undecided()) == (200, [])


class Around:
    """An engine with other methods."""

    def __init__(self, engine: fmq.Engine, **methods: Callable[..., object]) -> None:
        self._engine = engine
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._engine, name)


@pytest.mark.parametrize("hold", [0, SMALL])
def test_of_two_committers_that_meet_one_is_refused(engine: fmq.Engine, hold: int) -> None:
    """The other one commits once this one has read the mark."""
    jobs = [WriteJob(engine, "m", 5, run, "0") for run in "ab"]
    parts = [wrote(job, *range(20), hold=hold) for job in jobs]

    def mark(name: str) -> object:
        found = engine.mark(name)
        jobs[0].commit(parts[:1])
        return found

    meeting = cast("fmq.Engine", Around(engine, mark=mark))
    with pytest.raises((fmq.MarkMoved, fmq.AlreadyDecided)):
        WriteJob(meeting, "m", 5, "b", "c").commit(parts[1:])
    assert len(bodies(engine)) == 20


def test_a_job_that_cannot_be_settled_is_committed(engine: fmq.Engine) -> None:
    """Spark would call it failed, and its user would write all rows again."""

    def undecided() -> None:
        raise fmq.OutcomeUnknown("not there")

    failing = cast("fmq.Engine", Around(engine, undecided=undecided))
    job = WriteJob(failing, "m", 5, "run", "0")
    assert job.commit([wrote(job, *range(20))])
    assert len(bodies(engine)) == 20


def test_rows_of_a_skipped_task_are_never_missing(engine: fmq.Engine) -> None:
    """A mark that was removed while tasks ran: the job is refused, and done again."""
    with pytest.raises(fmq.table.JobUnsure, match="Do the job again"):
        WriteJob(engine, "m", 5, "run", "c").commit([JobPart(skipped=True)])
    assert engine.mark("m") is None


def test_held_and_prepared_rows_keep_the_order_of_the_tasks(engine: fmq.Engine) -> None:
    parts = [
        wrote(WriteJob(engine, None, 0, "run", "0"), 0, 1, hold=SMALL),
        wrote(WriteJob(engine, None, 0, "run", "1"), *range(2, 200)),
        wrote(WriteJob(engine, None, 0, "run", "2"), 200, hold=SMALL),
    ]
    assert [len(part.held) for part in parts] == [1, 0, 1]
    assert WriteJob(engine, None, 0, "run", "c").commit(parts)
    assert bodies(engine) == [b"%05d" % number for number in range(201)]


def test_a_message_too_large_is_named_and_leaves_nothing(engine: fmq.Engine) -> None:
    with pytest.raises(fmq.errors.TooLarge):
        fmq.table.write(engine, "orders", pa.table({"body": [b"x", b"y" * (5 << 20)]}))
    assert (engine.undecided(), bodies(engine)) == ([], [])


def test_what_a_job_left_a_day_ago_is_rolled_back_by_any_job(tmp_path: Path) -> None:
    """A job that does not come back, under a mark of its own."""
    clock = FakeClock()
    with fmq.open(tmp_path / "shop", OPTIONS, clock=clock) as engine:
        wrote(WriteJob(engine, "gone", 1, "run-1", "0"), *range(200))
        clock.advance(36 * 3600.0)
        wrote(WriteJob(engine, "new", 1, "run-2", "0"), *range(200))
        theirs = engine.transaction(producer="mine")
        theirs.send("orders", b"")
        theirs.prepare()
        fmq.table.write(engine, "orders", rows_of(1))
        assert {each.producer for each in engine.undecided()} == {"rows/new", "mine"}


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [20, 400])
def test_a_power_cut_anywhere_leaves_a_job_whole_or_absent(count: int) -> None:
    """In one transaction, and in several. Done again after the cut, the job is there once.

    Method: run it once to count the operations of the disk, then cut the power at each.
    """
    expected = [b"%05d" % number for number in range(count)]

    def opened(disk: CrashDisk) -> fmq.Engine:
        # A thread of the engine would outlive the power cut.
        return fmq.open("shop", OPTIONS, disk=disk, clock=FakeClock(), background=False)

    def attempt(disk: CrashDisk, name: str) -> None:
        with opened(disk) as engine:
            job = WriteJob(engine, "m", 1, name, "0")
            job.commit([wrote(job, *range(count), hold=0 if count > 100 else SMALL)])

    whole = CrashDisk()
    attempt(whole, "first")
    seen = set()
    for at in range(whole.operations):
        disk = CrashDisk(crash_at=at)
        with pytest.raises(PowerLoss):
            attempt(disk, "first")
        disk = disk.after_power_loss(at)
        with opened(disk) as engine:
            found = bodies(engine)
            assert found in ([], expected), at
            assert bool(found) == (engine.mark("m") is not None)
            seen.add(bool(found))
        attempt(disk, "second")
        with opened(disk) as engine:
            assert (bodies(engine), engine.undecided()) == (expected, []), at
    assert seen == {False, True}
