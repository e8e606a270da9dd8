"""The widths of a table's columns, when the terminal is too narrow for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

GAP = MARGIN = 2  # blanks between columns, and before the first column
GAP_MIN = 1
FOLDED_MIN = 14
COPIED_MIN = 8
FOLDING = {"folds": FOLDED_MIN}


class Flexible(Protocol):
    """What may happen to a column when there is too little room."""

    @property
    def folds(self) -> bool:
        """Return whether a long value may go on in the next line."""

    @property
    def copied(self) -> bool:
        """Return whether to fold the column last of all, because users copy its values in one
        piece.
        """

    @property
    def optional(self) -> bool:
        """Return whether the column may be left out if folding does not help."""


def fit(columns: Sequence[Flexible], widths: Sequence[int], room: int) -> tuple[int, list[int]]:
    """Return the gap between columns, and the width of each column; 0 if it is left out."""
    wanted = list(widths)
    gap, fitting, over = _squeeze(columns, wanted, room, FOLDING)
    for i, column in enumerate(columns):
        if column.optional and over > 0:
            wanted[i] = 0
            gap, fitting, over = _squeeze(columns, wanted, room, FOLDING)
    if over > 0:
        gap, fitting, over = _squeeze(columns, wanted, room, {**FOLDING, "copied": COPIED_MIN})
    return gap, fitting


def _squeeze(
    columns: Sequence[Flexible], widths: Sequence[int], room: int, least: Mapping[str, int]
) -> tuple[int, list[int], int]:
    """Return the gap, the widths, and by how many characters they are still too wide together.

    `least` says which columns give room, and how much they keep.
    """
    fitting, gap = list(widths), GAP
    shown = sum(map(bool, fitting))
    over = MARGIN + sum(fitting) + gap * shown - room
    for bears in least:
        over = _narrow(columns, fitting, bears, 2 * least[bears], over)
    if over > 0:
        gap = GAP_MIN
        over -= shown * (GAP - GAP_MIN)
    for bears in least:
        over = _narrow(columns, fitting, bears, least[bears], over)
    return gap, fitting, over


def _narrow(
    columns: Sequence[Flexible], fitting: list[int], bears: str, least: int, over: int
) -> int:
    """Make the columns that allow it narrower, by up to `over` characters together, but none
    narrower than `least`. Return by how many characters the table is still too wide.
    """
    for i, column in enumerate(columns):
        if getattr(column, bears) and over > 0:
            less = max(0, min(over, fitting[i] - least))
            fitting[i] -= less
            over -= less
    return over
