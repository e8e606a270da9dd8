"""A directory is read beside its engine: no lock, no write, nothing that is not durable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fmq
import fmq.table
from fmq.table.read import read_split
from fmq.table.schema import schema_of
from fmq.table.selection import EVERYTHING
from fmq.table.snapshot import see
from fmq.testing import FakeClock
from tests.spark.reading import Reader

SEGMENT_BYTES = 4096
RETAIN = fmq.Options(segment_bytes=SEGMENT_BYTES, retain_bytes=3 * SEGMENT_BYTES)


def engine_at(path: Path, options: fmq.Options = RETAIN) -> fmq.Engine:
    return fmq.open(path, options, background=False)


def send(engine: fmq.Engine, count: int) -> None:
    for _ in range(count):
        engine.send("orders", b"x" * 500)
    engine.checkpoint()


def count(path: Path) -> int:
    return len(fmq.table.read(str(path), columns=["offset"]).read_all())


def test_messages_that_are_not_durable_are_not_shown(tmp_path: Path) -> None:
    """A consumer of the engine does not get them yet either."""
    options = fmq.Options(sync="interval", sync_interval_seconds=60)
    with fmq.open(tmp_path / "shop", options, clock=FakeClock()) as engine:
        engine.send("orders", b"1", sync=True)
        engine.send("orders", b"2", sync=False)
        engine.send("orders", b"3", sync=False)
        assert len(engine.read("orders")) == 1
        assert count(tmp_path / "shop") <= 1
        engine.sync()
        engine.checkpoint()
        assert count(tmp_path / "shop") == 3


def test_reading_takes_no_lock_and_writes_nothing(reader: Reader) -> None:
    """Spark reads while an engine has the directory, and no file changes."""
    with engine_at(Path(reader.path)) as engine:
        send(engine, 20)
        before = files(Path(reader.path))
        assert reader.view().count() == engine.stats().messages
        assert files(Path(reader.path)) == before
        send(engine, 1)


def files(path: Path) -> dict[str, tuple[int, int, int]]:
    found = {entry.name: entry.stat() for entry in os.scandir(path)}
    return {name: (at.st_ino, at.st_size, at.st_mtime_ns) for name, at in found.items()}


def test_a_segment_dropped_during_a_read_raises_overtaken(tmp_path: Path) -> None:
    """The error names the segment."""
    with engine_at(tmp_path / "shop") as engine:
        send(engine, 15)
        batches = fmq.table.read(str(tmp_path / "shop"))
        offsets = batches.read_next_batch().column("offset").to_pylist()
        send(engine, 60)
        with pytest.raises(fmq.table.Overtaken, match=r"\d{20}\.seg was dropped by the engine's"):
            batches.read_all()
        assert offsets == [*range(len(offsets))]


def test_pinned_segments_are_kept_and_stats_name_the_pin(
    spark: SparkSession, tmp_path: Path
) -> None:
    """When the pin ends, retention goes on."""
    path = tmp_path / "shop"
    with engine_at(path) as engine:
        send(engine, 15)
        frame = spark.read.format("fmq").load(str(path))
        with fmq.table.pinned(str(path)) as first:
            assert first == {str(path): 0}
            send(engine, 60)
            kept = engine.stats().kept
            assert kept is not None
            assert (kept.segment, kept.by) == (0, "an export or backup that is running")
            assert frame.count() == 75
        send(engine, 10)
        assert engine.stats().kept is None
        assert engine.stats().first_position > 5 * SEGMENT_BYTES


def test_a_pin_begins_at_the_first_position_that_retention_has_not_dropped(tmp_path: Path) -> None:
    """Pin several directories by a pattern."""
    with engine_at(tmp_path / "a") as a, engine_at(tmp_path / "b") as b:
        send(a, 40)
        send(b, 1)
        with fmq.table.pinned([str(tmp_path / "[ab]")]) as first:
            assert first == {
                str(tmp_path / "a"): a.stats().first_position,
                str(tmp_path / "b"): 0,
            }
            assert a.stats().first_position > 0
            send(a, 40)
            assert a.stats().first_position == first[str(tmp_path / "a")]


def test_a_pin_ends_with_its_process(tmp_path: Path) -> None:
    """After the process was killed, retention waits for nothing."""
    path = tmp_path / "shop"
    hold = (
        "import sys, fmq.table\n"
        "with fmq.table.pinned(sys.argv[1]):\n"
        "    print('pinned', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with engine_at(path) as engine:
        send(engine, 15)
        root = Path(fmq.__file__).parent.parent
        with subprocess.Popen(
            [sys.executable, "-c", hold, str(path)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"pinned\n"
            send(engine, 30)
            assert engine.stats().first_position == 0
            holder.send_signal(signal.SIGKILL)
        send(engine, 1)
        assert engine.stats().first_position > 0


def test_a_planned_segment_is_read_after_a_recovery_copied_it(tmp_path: Path) -> None:
    """Plan the read after the engine died, and read after another engine has recovered.

    The last segment is another file then, and has everything that was planned.
    """
    path = tmp_path / "shop"
    die = (
        "import os, sys, fmq\n"
        "engine = fmq.open(sys.argv[1], background=False)\n"
        "for number in range(9):\n"
        "    engine.send('orders', b'%d' % number)\n"
        "os._exit(1)\n"
    )
    root = Path(fmq.__file__).parent.parent
    subprocess.run([sys.executable, "-c", die, str(path)], cwd=root, check=False)
    journal = see(str(path))
    before = files(path)
    with engine_at(path) as engine:
        assert engine.stats().recovery.copied
        engine.send("orders", b"more")
        [segment] = (name for name in files(path) if name.endswith(".seg"))
        assert files(path)[segment] != before[segment]
        schema = schema_of("messages", ["body"], fleet=False)
        rows = [
            body.as_py()
            for split in journal.splits(EVERYTHING)
            for batch in read_split(split, "messages", schema)
            for body in batch.column("body")
        ]
    assert rows == [b"%d" % number for number in range(9)]
