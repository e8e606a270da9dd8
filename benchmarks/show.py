"""Tables for people: colours and rules on a terminal, plain columns where it is not one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence

Cells = Sequence[str]


def table(title: str, head: Cells, rows: Sequence[Cells]) -> None:
    """Print a table; columns after the first are aligned to the right where they hold numbers."""
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _rich(title, head, rows)
    else:
        _plain(title, head, rows)


def say(line: str) -> None:
    """Report progress beside the results, not among them."""
    print(line, file=sys.stderr, flush=True)


def _rich(title: str, head: Cells, rows: Sequence[Cells]) -> None:
    made = importlib.import_module("rich.table").Table(title=title, title_justify="left")
    for place, name in enumerate(head):
        made.add_column(name, justify="right" if _numeric(place, rows) else "left")
    for row in rows:
        style = "red" if "MISSED" in row else None
        made.add_row(*row, style=style)
    importlib.import_module("rich.console").Console().print(made)


def _plain(title: str, head: Cells, rows: Sequence[Cells]) -> None:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    print(f"\n{title}\n")
    for row in (head, ["-" * width for width in widths], *rows):
        cells = [
            text.rjust(width) if _numeric(place, rows) else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _numeric(place: int, rows: Sequence[Cells]) -> bool:
    return all(row[place][:1].isdigit() or row[place] in ("", "-") for row in rows)
