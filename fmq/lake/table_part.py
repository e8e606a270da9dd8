"""Which rows of a table are meant: those of one store, in a range of positions."""

from __future__ import annotations

from typing import NamedTuple


class TablePart(NamedTuple):
    """Rows of one store, from position `first` up to, not including, `end`; None is no bound."""

    store: str
    first: int | None = None
    end: int | None = None
