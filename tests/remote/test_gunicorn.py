"""Workers of gunicorn, and their engine process, are killed while they take orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.budget import SEED, within_budget
from tools.kill_gunicorn import NAMES, run


@pytest.mark.parametrize(("app", "preload"), [*zip(NAMES, (False, True, True), strict=True)])
def test_killed_gunicorn_workers_lose_and_double_nothing(
    tmp_path: Path, app: str, *, preload: bool
) -> None:
    """`python tools/kill_gunicorn.py` does the same for longer, and each with and without
    a master that imports the program.
    """
    kills = within_budget(3)
    assert run(tmp_path / "shop", app, kills, SEED, preload=preload) == []
