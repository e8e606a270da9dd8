"""`fmq bench`: alike things side by side, and nothing left behind."""

import json
from pathlib import Path

from tests.cli.command import fmq_process


def test_bench_compares_each_workload_with_raw_and_sqlite(tmp_path: Path) -> None:
    """A tenth of a second is enough to check the table, though not to measure."""
    done = fmq_process("bench", "--seconds", "0.1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    machine, *works = map(json.loads, done.stdout.splitlines())
    assert machine["what"] == "machine"
    assert [work["work"].split()[0] for work in works] == ["raw", "fmq", "sqlite3"] * 2
    for work in works:
        assert work["calls_per_second"] > 0
        many = 100 if "100" in work["work"] else 1
        assert abs(work["messages_per_second"] - many * work["calls_per_second"]) <= many
    assert [work["of_raw"] for work in works[::3]] == [1, 1]
    assert [work["of_sqlite"] for work in works[2::3]] == [1, 1]
    assert list(tmp_path.iterdir()) == []
