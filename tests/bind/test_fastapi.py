"""The shop of examples/fastapi is killed while it takes orders."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from tools.kill_fastapi import run


def test_killed_fastapi_workers_lose_and_double_nothing(tmp_path: Path, address: str) -> None:
    """`python tools/kill_fastapi.py` does the same for longer."""
    seed = random.randrange(1 << 16)
    assert run(tmp_path / "shop", 2, seed, address) == [], f"seed {seed}"
