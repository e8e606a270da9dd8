"""What each public call costs: `python -m benchmarks.price [--check | --save --why REASON]`.

`--where FACE ROW` prints in which functions the bytecodes of one call run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.price.counting import Counter
from benchmarks.price.faces import FACES
from benchmarks.price.lines import HOME, counted
from benchmarks.price.rows import ROWS
from benchmarks.price.table import (
    FILE,
    Change,
    Key,
    Line,
    Page,
    changes,
    missing,
    page_of,
    text_of,
    told,
    with_reasons,
)

AGAIN = 3  # counts of a call that has risen


def measured() -> Page:
    """Count all rows on all faces, and the lines of code."""
    counter, lines = Counter(), {}
    with counter.watching():
        for face, price in FACES.items():
            for name, make in ROWS.items():
                lines[Key(face, name)] = Line(price(make, counter)._asdict())
    for name, size in counted().items():
        lines[Key("Lines of code", name)] = Line({"lines": size})
    return Page(lines)


def counted_again(old: Page, new: Page) -> Page:
    """Return `new` with the least of some counts for each call that has risen.

    A call that another thread serves costs a little more if it meets the thread before it waits.
    """
    lines, counter = dict(new.lines), Counter()
    with counter.watching():
        for key in {change.key for change in changes(old, new) if change.is_rise}:
            for _ in range(AGAIN if key.section in FACES else 0):
                again = FACES[key.section](ROWS[key.name], counter)._asdict()
                least = {name: min(again[name], lines[key].figures[name]) for name in again}
                lines[key] = Line(least)
    return Page(lines)


def where(face: str, name: str) -> str:
    """Return the functions in which the bytecodes of one call run, those with the most first."""
    counter = Counter(by_function=True)
    with counter.watching():
        price = FACES[face](ROWS[name], counter)
    lines = [
        f"{count:6} {Path(code.co_filename).relative_to(HOME)} {code.co_qualname}"
        for code, count in counter.bytecodes_of.most_common()
    ]
    return "\n".join([f"{price.bytecodes:6} in {price.calls} calls", *lines])


def main(arguments: list[str]) -> int:
    """Print the figures, compare them with the page, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.price", description=__doc__)
    parser.add_argument("--check", action="store_true", help="print only what differs; 1 if risen")
    parser.add_argument("--save", action="store_true", help="write the page anew")
    parser.add_argument("--why", default="", help="why figures have risen")
    parser.add_argument("--where", nargs=2, metavar=("FACE", "ROW"), help="functions of one call")
    asked = parser.parse_args(arguments)
    if asked.where:
        print(where(*asked.where))
        return 0
    old = page_of(FILE.read_text(encoding="utf-8")) if FILE.exists() else Page({})
    new = counted_again(old, measured())
    found = list(changes(old, new))
    if not asked.check and not asked.save:
        print(text_of(new))
        return 0
    risen = [change for change in found if change.is_rise]
    if asked.check:
        return _report(found, risen, missing(old, new))
    if risen and not asked.why:
        print(told(risen), "say why with --why; nothing was written", sep="\n")
        return 1
    FILE.write_text(text_of(with_reasons(old, new, asked.why)), encoding="utf-8")
    print(f"{FILE.name} is written; {len(found)} figures have changed")
    return 0


def _report(found: list[Change], risen: list[Change], without: list[Key]) -> int:
    if found:
        print(told(found))
    for key in without:
        print(f"{key.section}, {key.name}: only the page has it, or only the program")
    if risen or without:
        print('--save --why "..." accepts this, with the reason beside it')
    return 1 if risen or without else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
