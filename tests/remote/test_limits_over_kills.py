"""A limit of so many at once holds while workers and the server are killed.

    python tools/limits.py DIR --seed 7 --minutes 10

does in full what is done here for a moment.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.budget import SEED, within_budget
from tests.tool import ROOT, said_by

spec = importlib.util.spec_from_file_location("limits", ROOT / "tools" / "limits.py")
assert spec is not None
assert spec.loader is not None
limits = importlib.util.module_from_spec(spec)
sys.modules["limits"] = limits
spec.loader.exec_module(limits)
Note: Any = limits.Note


def test_four_processes_never_have_more_in_work_than_the_limit(tmp_path: Path) -> None:
    kills = within_budget(3)
    said = said_by("limits", tmp_path / "d", "--seed", SEED, "--kills", kills, "--minutes", 1.5)
    assert f"{kills} kills, 0 leases lost" in said, said


@pytest.mark.parametrize(
    ("notes", "killed", "most"),
    [
        ([], {}, 0),
        ([Note(1, 7, "begin", "a"), Note(2, 8, "begin", "b"), Note(3, 7, "end", "a")], {8: 9}, 2),
        ([Note(1, 7, "begin", "a"), Note(2, 7, "end", "a"), Note(2, 8, "begin", "b")], {8: 9}, 1),
        ([Note(1, 7, "begin", "a"), Note(6, 8, "begin", "a")], {7: 5, 8: 9}, 1),
        ([Note(1, 7, "begin", "a"), Note(4, 8, "begin", "a")], {7: 5, 8: 9}, 2),
    ],
)
def test_the_notes_tell_how_many_were_in_work(
    notes: list[Any], killed: dict[int, int], most: int
) -> None:
    assert len(limits.most_at_once(limits.jobs_in(notes, killed))) == most
