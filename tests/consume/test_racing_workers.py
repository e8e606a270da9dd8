"""Workers that race for messages handle each as often as it must be: `tools/stress_workers.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.budget import SEED
from tests.tool import said_by


@pytest.mark.parametrize("how", [[], ["--connect"]], ids=["in process", "by connect"])
def test_the_race_tool_finds_nothing_in_two_seconds(tmp_path: Path, how: list[str]) -> None:
    """By other threads each time, so a failure prints its round and its seed."""
    arguments = [str(tmp_path / "d"), "--seconds", "2", "--seed", str(SEED), *how]
    said_by("stress_workers", *arguments)
