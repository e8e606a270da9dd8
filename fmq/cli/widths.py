"""How wide the columns of a table are, when the terminal has only so much room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

GAP = MARGIN = 2  # between columns, and before the first
GAP_MIN = 1
FOLDED_MIN = 14
COPIED_MIN = 8
FOLDING = {"folds": FOLDED_MIN}


class Flexible(Protocol):
    """How a column bears too little room."""

    @property
    def folds(self) -> bool:
        """A long value goes on in the next line."""

    @property
    def copied(self) -> bool:
        """Fold an id only when nothing else helps, so that it can be copied in one piece."""

    @property
    def optional(self) -> bool:
        """Leave the column out if folding does not help."""


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
    """The gap, the widths, and by how much they are still too wide together.

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
    """Take up to `over` from the columns that bear it, down to `least` each; what is left of it."""
    for i, column in enumerate(columns):
        if getattr(column, bears) and over > 0:
            less = max(0, min(over, fitting[i] - least))
            fitting[i] -= less
            over -= less
    return over
