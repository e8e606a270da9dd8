"""How wide the columns of a table are, when the terminal has only so much room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

GAP = MARGIN = 2  # between columns, and before the first
GAP_MIN = 1
FOLDED_MIN = 14
SHRUNK_MIN = 8


class Flexible(Protocol):
    """How a column bears too little room."""

    @property
    def folds(self) -> bool:
        """A long value goes on in the next line."""

    @property
    def shrinks(self) -> bool:
        """A long value loses its middle."""

    @property
    def optional(self) -> bool:
        """If nothing else helps, it is left out."""


def fit(columns: Sequence[Flexible], widths: Sequence[int], room: int) -> tuple[int, list[int]]:
    """The gap between columns, and for each what it gets of the width it wants; 0: left out."""
    wanted = list(widths)
    gap, fitting, over = _squeeze(columns, wanted, room)
    for i, column in enumerate(columns):
        if column.optional and over > 0:
            wanted[i] = 0
            gap, fitting, over = _squeeze(columns, wanted, room)
    return gap, fitting


def _squeeze(
    columns: Sequence[Flexible], widths: Sequence[int], room: int
) -> tuple[int, list[int], int]:
    """The gap, the widths, and by how much they are still too wide together."""
    fitting, gap = list(widths), GAP
    shown = sum(map(bool, fitting))
    over = MARGIN + sum(fitting) + gap * shown - room
    for bears, least in (("folds", 2 * FOLDED_MIN), ("shrinks", 2 * SHRUNK_MIN)):
        over = _narrow(columns, fitting, bears, least, over)
    if over > 0:
        gap = GAP_MIN
        over -= shown * (GAP - GAP_MIN)
    for bears, least in (("folds", FOLDED_MIN), ("shrinks", SHRUNK_MIN)):
        over = _narrow(columns, fitting, bears, least, over)
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
