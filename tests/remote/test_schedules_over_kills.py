"""Each due time is published once, while two processes that say the schedules are killed and their
clock is set.

    python tools/schedules.py DIR --seed 7 --minutes 10

does in full what is done here for a moment.
"""

from __future__ import annotations

import importlib.util
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.budget import SEED, within_budget
from tests.tool import ROOT, said_by

spec = importlib.util.spec_from_file_location("schedules", ROOT / "tools" / "schedules.py")
assert spec is not None
assert spec.loader is not None
schedules = importlib.util.module_from_spec(spec)
sys.modules["schedules"] = schedules
spec.loader.exec_module(schedules)
NOON = datetime(2026, 10, 26, 11, 0, tzinfo=UTC)


def test_two_processes_publish_each_due_time_once(tmp_path: Path) -> None:
    minutes = 0.3 * within_budget(1)
    said = said_by("schedules", tmp_path / "d", "--seed", SEED, "--minutes", minutes, "--every", 2)
    assert " 0 problems" in said, said


def tick(minute: float, late: float = 0.1) -> Any:
    due = NOON + timedelta(minutes=minute)
    return schedules.Tick(due, due + timedelta(minutes=late))


@pytest.mark.parametrize(
    ("ticks", "says"),
    [
        ([tick(0), tick(1), tick(2)], []),
        ([tick(0), tick(1), tick(1), tick(2)], ["comes twice"]),
        ([tick(1), tick(0), tick(1), tick(2)], ["before an earlier one"]),
        ([tick(0), tick(0.5), tick(1), tick(2)], ["none of its times"]),
        ([tick(0), tick(2)], ["missing, and was not late"]),
        ([tick(0), tick(2, late=0.5)], ["missing, and was not late"]),
        ([tick(0, late=2.5), tick(2)], []),  # 1 was late by a minute and a half
        ([tick(0, late=1.5), tick(2)], ["missing, and was not late"]),
        ([tick(0), tick(1)], ["all behind it"]),
    ],
)
def test_the_messages_tell_what_is_wrong(ticks: list[Any], says: list[str]) -> None:
    found = [*schedules.wrong(schedules.CRONS["each"], ticks, NOON + timedelta(minutes=2.5))]
    assert len(found) == len(says)
    assert all(said in one for said, one in zip(says, found, strict=True))
