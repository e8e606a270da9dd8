"""`tools/soak.py` at its smallest: a server among waiting and busy clients holds what it held."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.tool import ROOT, said_by

spec = importlib.util.spec_from_file_location("soak", ROOT / "tools" / "soak.py")
assert spec is not None
assert spec.loader is not None
soak = importlib.util.module_from_spec(spec)
sys.modules["soak"] = soak
spec.loader.exec_module(soak)


def test_a_server_does_not_grow_in_the_soak_test(tmp_path: Path) -> None:
    arguments = ["--minutes", "0.05", "--polls", "200", "--pairs", "4"]
    said = said_by("soak", str(tmp_path / "d"), *arguments, timeout=600.0)
    assert said.endswith("flat\n")


@pytest.mark.parametrize(
    ("memory_bytes", "files", "wrong"),
    [(0, 0, ""), (100_000, 0, ""), (2_000_000, 0, "memory"), (0, 2, "open files")],
)
def test_the_soak_test_finds_growth(memory_bytes: int, files: int, wrong: str) -> None:
    looks = [
        soak.Look(float(n), 60_000_000 + n * memory_bytes, 1_100 + n * files) for n in range(60)
    ]
    found = soak.growth(looks)
    assert len(found) == bool(wrong)
    assert all(wrong in each for each in found)
