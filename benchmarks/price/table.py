"""The figures that are checked in, and what may differ from them.

A figure may fall. It may rise by RISE_MAX, because some depend a little on drawn ids, by more on
the faces of RISE_MAX_OF. Whoever lets one rise further writes down why, beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent.parent / "price.md"
RISE_MAX = 0.02
RISE_MAX_OF = {"connect": 0.08, "aio.connect": 0.08}
"""Of a connection: its two sides meet now before and now after one of them waits."""
PYTHON = "{}.{}".format(*sys.version_info)
SAME_EVERYWHERE = ("syncs", "writes", "bytes", "lines")
"""Figures that do not depend on the Python that runs."""
HEAD = """\
# What each public call costs

`python -m benchmarks.price` counts what a call of fmq runs and what it asks of the disk, on each
face. `--check` compares it with this page, as the first ring of the tests does: a figure that has
risen by over 2 % fails, of a connection by over 8 %, as both of its sides count and meet now sooner
and now later. `--save --why "..."` writes this page anew, with the reason beside each figure that
has risen. The bytecodes and calls are those of Python {python}.
"""


class Key(NamedTuple):
    """Which figures a line of the page has."""

    section: str
    name: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the page: figures by their names, and why one of them last rose."""

    figures: dict[str, int]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """All lines, and the Python that they were counted with."""

    lines: dict[Key, Line]
    python: str = PYTHON


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that is not what the page says."""

    key: Key
    figure: str
    before: int
    after: int

    @property
    def is_rise(self) -> bool:
        return self.after > self.before

    def __str__(self) -> str:
        ratio = f" ({self.after / self.before:.2f} x)" if self.before else ""
        return (
            f"{self.key.section}, {self.key.name}: {self.before} {self.figure} before, "
            f"{self.after} now{ratio}"
        )


def changes(old: Page, new: Page) -> Iterator[Change]:
    """Yield each figure that differs, with those of another Python left out.

    A line that only one of them has is no change: a new row has no price that could rise.
    """
    for key, line in new.lines.items():
        before = old.lines.get(key)
        for name, after in line.figures.items() if before else ():
            was = before.figures.get(name) if before else None
            compared = old.python == new.python or name in SAME_EVERYWHERE
            most = RISE_MAX_OF.get(key.section, RISE_MAX)
            if was is not None and compared and abs(after - was) > was * most:
                yield Change(key, name, was, after)


def missing(old: Page, new: Page) -> list[Key]:
    """Return the lines that only one of the pages has, except those of files."""
    return [key for key in old.lines.keys() ^ new.lines.keys() if ".py" not in key.name]


def with_reasons(old: Page, new: Page, why: str) -> Page:
    """Return `new` with `why` beside what has risen, and the former reason beside the rest."""
    risen = {change.key for change in changes(old, new) if change.is_rise}
    lines = {
        key: Line(line.figures, why if key in risen else _why(old, key))
        for key, line in new.lines.items()
    }
    return Page(lines, new.python)


def _why(page: Page, key: Key) -> str:
    line = page.lines.get(key)
    return line.why if line else ""


def text_of(page: Page) -> str:
    """Return the page as Markdown."""
    parts = [HEAD.format(python=page.python)]
    for section in dict.fromkeys(key.section for key in page.lines):
        lines = {key.name: line for key, line in page.lines.items() if key.section == section}
        names = list(next(iter(lines.values())).figures)
        parts.append(f"## {section}\n\n| | {' | '.join(names)} | why it last rose |")
        parts.append("|".join(["", "---", *("---:" for _ in names), "---", ""]))
        for name, line in lines.items():
            figures = " | ".join(f"{figure:,}" for figure in line.figures.values())
            parts.append(f"| {name} | {figures} | {line.why} |")
        parts.append("")
    return "\n".join(parts)


def page_of(text: str) -> Page:
    """Return the page that `text_of` wrote."""
    python, section = "", ""
    names: list[str] = []
    lines: dict[Key, Line] = {}
    for line in text.splitlines():
        if " Python 3." in line:
            python = line.split(" Python ")[1].rstrip(".")
        elif line.startswith("## "):
            section = line[3:]
        elif line.startswith("| | "):
            names = _cells(line)[1:-1]
        elif line.startswith("| "):
            name, *figures, why = _cells(line)
            numbers = [int(figure.replace(",", "")) for figure in figures]
            lines[Key(section, name)] = Line(dict(zip(names, numbers, strict=True)), why)
    return Page(lines, python)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def told(found: Iterable[Change]) -> str:
    """Return a line for each change."""
    return "\n".join(str(change) for change in found)
