"""The table of what public calls cost: what counts as a rise, and that counting is exact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.price import lines
from benchmarks.price.counting import Counter
from benchmarks.price.faces import FACES
from benchmarks.price.rows import ROWS
from benchmarks.price.table import (
    Key,
    Line,
    Page,
    changes,
    missing,
    page_of,
    text_of,
    with_reasons,
)

ROOT = Path(__file__).parent.parent
SEND = Key("open", "send")


def test_no_public_call_has_become_dearer() -> None:
    """In a process of its own, where no other test has filled a cache."""
    run = [sys.executable, "-m", "benchmarks.price", "--check"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def page(**figures: int) -> Page:
    """Return a page with one line."""
    return Page({SEND: Line({"bytecodes": 1000, "calls": 40, "syncs": 1, **figures})}, "3.11")


@pytest.mark.parametrize(
    ("figure", "value", "is_rise"),
    [("bytecodes", 1021, True), ("calls", 41, True), ("syncs", 2, True), ("bytecodes", 900, False)],
)
def test_a_figure_that_is_two_percent_off_is_a_change(
    figure: str, value: int, is_rise: bool
) -> None:
    [found] = changes(page(), page(**{figure: value}))
    assert (found.figure, found.after, found.is_rise) == (figure, value, is_rise)


def test_a_small_difference_of_bytecodes_is_no_change() -> None:
    assert not list(changes(page(), page(bytecodes=1019)))


def test_with_another_python_only_disk_operations_are_compared() -> None:
    old = Page(page().lines, "3.12")
    [found] = changes(old, page(bytecodes=2000, syncs=2))
    assert found.figure == "syncs"


def test_a_row_on_one_side_only_is_reported_as_missing() -> None:
    new = Page({**page().lines, Key("open", "mark"): Line({"bytecodes": 1})})
    assert missing(page(), new) == [Key("open", "mark")]


def test_a_saved_price_table_is_read_back_equal() -> None:
    written = with_reasons(page(), page(calls=1041), "a check of each id")
    assert page_of(text_of(written)) == written
    assert written.lines[SEND].why == "a check of each id"


def test_a_reason_stays_until_the_figure_rises_again() -> None:
    first = with_reasons(page(), page(calls=50), "one")
    assert with_reasons(first, page(calls=50), "two").lines[SEND].why == "one"
    assert with_reasons(first, page(calls=60), "two").lines[SEND].why == "two"


def test_lines_of_code_are_those_without_blanks_comments_and_docstrings() -> None:
    source = """
"What it knows."

# why
x = 1  # here


def f() -> int:
    "Do."
    return x
"""
    assert lines.count(source) == 3


def test_a_price_counts_what_the_engine_runs_and_asks_of_the_disk() -> None:
    """A send costs the same each time; one more call of fmq's own functions is seen."""
    counter = Counter()
    with counter.watching():
        first = FACES["open"](ROWS["send"], counter)
        assert FACES["open"](ROWS["send"], counter) == first

        def send_and_look(engine: Any) -> Any:
            for each in ROWS["send"](engine):
                yield each
                if each not in ("start", "end"):
                    engine.mark("m")

        more = FACES["open"](send_and_look, counter)
    assert (first.syncs, first.writes) == (1, 1)
    assert first.bytes > 100
    assert more.calls > first.calls and more.bytecodes > first.bytecodes
