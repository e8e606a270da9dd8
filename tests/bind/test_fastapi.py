"""The shop of examples/fastapi is killed while it takes orders."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from tests.budget import SEED
from tools.kill_fastapi import run


def test_killed_fastapi_workers_lose_and_double_nothing(tmp_path: Path, address: str) -> None:
    """`python tools/kill_fastapi.py` does the same for longer."""
    assert run(tmp_path / "shop", 2, SEED, address) == []
