"""Processes under load, killed at random moments: a few here, a thousand in a nightly run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

import fmq
from crash_tests.budget import Budget
from crash_tests.oracle import Violation
from crash_tests.real.kills import KILLS
from crash_tests.real.lies import SAID_TOO_EARLY
from crash_tests.real.load import open_below
from crash_tests.real.store import Store
from crash_tests.suite import SEED
from fmq.errors import NotAStore

NUMBER = 12
MANY = 100


def test_acknowledged_calls_survive_a_kill(tmp_path: Path) -> None:
    """Test it also with several threads that share syncs, and over many lives of one directory."""
    budget = Budget(SEED, rounds=NUMBER, directory=tmp_path, failures=tmp_path / "f")
    tally = KILLS.run(budget)
    assert not tally.failures
    assert (tally.rounds, tally.controls) == (NUMBER, 1)
    assert tally.promises > 0


def test_a_failure_is_kept_with_its_story_and_the_directory_as_the_crash_left_it(
    tmp_path: Path,
) -> None:
    """It cannot be replayed, because it is not known when exactly a process died."""
    store = Store(7, tmp_path / "store", tmp_path / "evidence", SAID_TOO_EARLY)
    with pytest.raises(Violation) as caught:
        for _ in range(MANY):
            store.live("kill")
    kept = store.save(caught.value, tmp_path / "kept")
    assert kept.what.startswith(caught.value.what)
    story = (tmp_path / "kept" / "story.txt").read_text()
    assert story == f"{kept}\n"
    assert "seed 7, and a lie: said before it is done\nlife 0: kill, " in story
    with suppress(NotAStore):  # killed before a journal was begun
        assert fmq.check(tmp_path / "kept" / "directory").ok


def test_the_files_that_a_process_has_open_below_a_directory_are_found(tmp_path: Path) -> None:
    """Deleted files are found, too, which no listing of the directory shows."""
    with (tmp_path / "file").open("w"):
        (tmp_path / "file").unlink()
        assert open_below(str(tmp_path)) == [f"{tmp_path}/file (deleted)"]
    assert open_below(str(tmp_path)) == []
