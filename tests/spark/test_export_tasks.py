"""Tasks that make files: what Spark itself would have written, whatever becomes of a task."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

import fmq
from fmq.errors import StorageFull
from fmq.export import ExportFailed, export
from fmq.export.destination import show
from fmq.export.layout import FolderLayout
from fmq.export.shape import Shape
from fmq.export.spark import SparkEngine
from fmq.export.tasks import Tasks
from fmq.table.fleet import see_all
from fmq.table.selection import EVERYTHING
from fmq.table.split import Split
from tests.export.reading import Out
from tests.spark.reading import Reader

TOPICS = ("emails", "orders")


class Count:
    """What an accumulator of Spark's is for a task."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, more: int) -> None:
        self.value += more


def tasks_of(path: str) -> Tasks:
    """Two tasks for the journal."""
    [journal] = see_all([path])
    splits = journal.splits(EVERYTHING)
    assert len(splits) > 3
    shape = Shape("parquet", "messages", False, False)
    parts = [splits[:2], splits[2:]]
    return Tasks(parts, shape, FolderLayout("messages", TOPICS), False, Count(), Count())


def attempt(tasks: Tasks, number: int, staging: Path) -> list[str]:
    """The files that it says it made."""
    numbers = pa.RecordBatch.from_pydict({"id": [number]})
    [made] = tasks.files_in(str(staging))(iter([numbers]))
    files: list[str] = made.column("file").to_pylist()
    return files


def shown_in(staging: Path) -> dict[str, bytes]:
    return Out(staging).files()


def test_one_attempt_of_a_task_that_runs_twice_is_exported(shop: Reader, tmp_path: Path) -> None:
    """An attempt that failed leaves nothing visible. File names do not tell the attempt."""
    tasks = tasks_of(shop.path)
    once, twice = tmp_path / "once", tmp_path / "twice"
    for number in (0, 1):
        for file in attempt(tasks, number, once):
            show(str(once), file)
    lost = Split(str(tmp_path / "gone"), b"", 0, 64, 128, 0)
    broken = tasks._replace(splits=[tasks.splits[0], [*tasks.splits[1], lost]])
    with pytest.raises(fmq.FmqError):
        attempt(broken, 1, twice)
    attempts = [attempt(tasks, number, twice) for number in (1, 0, 1, 0)]
    assert shown_in(twice) == {}
    assert len({file for files in attempts for file in files}) == 8
    for file in attempts[1] + attempts[2]:
        show(str(twice), file)
    assert shown_in(twice) == shown_in(once)
    assert len(shown_in(once)) == 4


def test_repeated_exports_give_the_same_bytes(shop: Reader, tmp_path: Path) -> None:
    """With one task, as here, Spark writes the same bytes as Arrow alone."""
    one, two, by_arrow = (Out(tmp_path / name) for name in ("one", "two", "arrow"))
    for out in one, two:
        assert export(shop.path, str(out), engine="spark").rows == 1900
    export(shop.path, str(by_arrow), engine="arrow")
    assert one.files() == two.files() == by_arrow.files()


def columns_of(path: Path) -> list[tuple[str, ...]]:
    """The columns as any reader of Parquet sees them: name, type, meaning, codec."""
    file = pyarrow.parquet.ParquetFile(next(path.rglob("[!._]*.parquet")))
    group = file.metadata.row_group(0)
    return [
        (
            column.path,
            column.physical_type,
            str(column.logical_type),
            group.column(number).compression,
        )
        for number, column in enumerate(file.schema.column(i) for i in range(len(file.schema)))
    ]


@pytest.mark.parametrize("view", ["messages", "records", "transactions"])
def test_files_have_the_same_format_as_those_of_sparks_writer(
    shop: Reader, tmp_path: Path, view: str
) -> None:
    """Columns, types, meanings and codec are the same, and Spark reads the same rows."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    decided = shop.view(view).filter("state != 'undecided'" if view == "transactions" else "true")
    kept = "spark.sql.parquet.outputTimestampType"
    shop.spark.conf.set(kept, "TIMESTAMP_MICROS")
    try:
        decided.drop(*["topic"] if view == "messages" else []).write.parquet(str(theirs))
    finally:
        shop.spark.conf.unset(kept)
    export(shop.path, str(ours), engine="spark", view=view)
    assert columns_of(ours) == columns_of(theirs)
    names = [column for column in decided.columns if (view, column) != ("messages", "topic")]
    read = shop.spark.read.parquet
    assert read(str(ours)).select(names).schema == read(str(theirs)).select(names).schema
    assert rows(read(str(ours)), names) == rows(read(str(theirs)), names) != []


def rows(frame: DataFrame, names: list[str]) -> list[str]:
    return sorted(map(str, frame.select(names).collect()))


def test_a_task_that_cannot_make_files_is_reported_in_a_sentence(
    shop: Reader, tmp_path: Path
) -> None:
    tasks = tasks_of(shop.path)
    (tmp_path / "file").touch()
    engine = SparkEngine(tasks.shape, tasks.layout, permissive=False)
    with pytest.raises(ExportFailed, match=r"NotADirectoryError: \[Errno 20\]") as told:
        engine.make(tasks.splits[0], str(tmp_path / "file" / "staging"), lambda rows, size: None)
    assert len(str(told.value)) < 400


def test_a_full_disk_in_a_task_raises_storage_full(spark: SparkSession, tmp_path: Path) -> None:
    """Files exported before stay, and no others. A limit on file sizes stands for the full disk."""
    path, out = tmp_path / "shop", Out(tmp_path / "out")
    with fmq.open(path) as engine:
        engine.send("orders", b"small")
        engine.checkpoint()
        export(str(path), str(out), engine="spark")
        engine.send_many("orders", [os.urandom(60_000) for _ in range(20)])
    before = out.files()
    with files_limited(spark, 1 << 20), pytest.raises(StorageFull, match="File too large"):
        export(str(path), str(out), engine="spark")
    assert out.files() == before
    assert not (out.path / "_fmq" / "staging").exists()
    assert export(str(path), str(out), engine="spark").rows == 20


@contextmanager
def files_limited(spark: SparkSession, size: int) -> Iterator[None]:
    """No file that a worker writes may be larger."""
    gateway: Any = spark.sparkContext._gateway
    java = gateway.proc.pid
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit_files(descendants(java), (size, before[1]))
    try:
        yield
    finally:
        limit_files(descendants(java), before)


def limit_files(workers: list[int], limits: tuple[int, int]) -> None:
    for pid in workers:
        with suppress(ProcessLookupError):  # idle ones may end at any time
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    # Processes and threads of Java's, and idle workers, may end at any time.
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (thread / "children").read_text().split())
    return found + [each for child in found for each in descendants(child)]
