"""The program of docs/pipeline.md runs, and a second run changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tool import said_by


def test_the_whole_way_runs_and_can_be_run_again(tmp_path: Path) -> None:
    """Without Spark, which its own tests start. DuckDB cleans and asks."""
    pytest.importorskip("deltalake")
    pytest.importorskip("duckdb")
    first = said_by("pipeline", tmp_path / "way", "--without-spark")
    assert "cleaned: 177 rows of 1 jobs, 0 wrong" in first
    assert "lake: 377 rows, 0 wrong" in first
    assert said_by("pipeline", tmp_path / "way", "--without-spark") == first
