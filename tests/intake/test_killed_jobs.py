"""Jobs of rows whose processes are killed, with an engine that serves them."""

from pathlib import Path

from tests.tool import said_by


def test_killed_tasks_committers_and_engines_lose_and_double_nothing(tmp_path: Path) -> None:
    """`python tools/kill_jobs.py --kills 200` does it for longer."""
    print(said_by("kill_jobs", tmp_path, "--kills", 8, "--seed", 3))
