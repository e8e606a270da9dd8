"""Backups of an engine that is killed, by a tool that is killed: `tools/kill_backup.py`."""

from __future__ import annotations

from pathlib import Path

from tests.budget import within_budget
from tests.tool import said_by


def test_a_backup_is_whole_whoever_is_killed(tmp_path: Path) -> None:
    """`python tools/kill_backup.py DIR --kills 50` does it for longer."""
    print(said_by("kill_backup", tmp_path, "--kills", within_budget(1), "--seed", 5))
