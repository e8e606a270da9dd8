"""Workers that race for messages handle each as often as it must be: `tools/stress_workers.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import SEED

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("how", [[], ["--connect"]], ids=["in process", "by connect"])
def test_the_tool_finds_nothing_in_two_seconds(tmp_path: Path, how: list[str]) -> None:
    """By other threads each time, so a failure prints its round and its seed."""
    arguments = [str(tmp_path / "d"), "--seconds", "2", "--seed", str(SEED), *how]
    done = subprocess.run(
        [sys.executable, "tools/stress_workers.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
