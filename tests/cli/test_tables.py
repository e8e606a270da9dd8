"""Tables: what a value looks like, and how columns share too little room."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.cli.widths import COPIED_MIN, FOLDED_MIN, GAP_MIN, MARGIN, fit
from fmq.findings.text import plain, preview, size
from tests.cli.command import fmq_table


@dataclass(frozen=True)
class Bears:
    folds: bool = False
    copied: bool = False
    optional: bool = False


BEARING = st.sampled_from([Bears(), Bears(folds=True), Bears(copied=True), Bears(optional=True)])


@given(
    table=st.lists(st.tuples(BEARING, st.integers(1, 60)), min_size=1, max_size=12),
    room=st.integers(10, 250),
)
def test_columns_fit_the_width_if_possible(table: list[tuple[Bears, int]], room: int) -> None:
    """No column is wider than it wants. If all do not fit, each has its smallest width."""
    columns, widths = zip(*table, strict=True)
    gap, fitting = fit(columns, widths, room)
    assert all(0 <= got <= wanted for got, wanted in zip(fitting, widths, strict=True))
    shown = sum(map(bool, fitting))
    if MARGIN + sum(fitting) + gap * shown > room:
        assert gap == GAP_MIN
        for column, got, wanted in zip(columns, fitting, widths, strict=True):
            if column.optional:
                assert got == 0
            elif column.folds:
                assert got == min(wanted, FOLDED_MIN)
            elif column.copied:
                assert got == min(wanted, COPIED_MIN)
            else:
                assert got == wanted


@given(st.binary(max_size=200))
def test_a_preview_is_one_printable_line(body: bytes) -> None:
    assert preview(body).isprintable()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "yes"),
        (1234567, "1,234,567"),
        (b"caf\xc3\xa9", "café"),
        (b"\xff\x00", "0xff00"),
        (b"a\tb", "a\\tb"),
        (b"x" * 100, "x" * 60 + " … 100 B"),
        ("é".encode() * 100, "é" * 30 + " … 200 B"),
        (["a", 1], "a, 1"),
        (datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), "2026-01-02 03:04:05.678"),
        ("\x1b[31mred", "\\x1b[31mred"),
    ],
)
def test_values_are_shown_in_readable_form(value: object, shown: str) -> None:
    """Test one of each type that a verb may print."""
    assert plain(value) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_sizes_are_shown_in_the_largest_unit_that_fits(count: int, shown: str) -> None:
    """Units are powers of 1,024. Bytes are exact."""
    assert size(count) == shown


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(
    shop: object, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COLUMNS gives the width of the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for verb in (["info"], ["records"], ["tx", "list"]):
        lines = fmq_table(*verb, shop).splitlines()
        assert lines and max(map(len, lines)) <= columns, verb
