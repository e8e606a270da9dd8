"""Draw the diagrams of the documents, docs/*.svg but demo.svg: python3 tools/make_diagrams.py

A diagram is a table: who takes part, and what happens from the top down. tests/test_site.py
compares the files with what is drawn.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH, COLUMN, HEAD, ROW, LETTER = 760, 250, 52, 46, 7.4
STYLE = """\
text { font: 13px sans-serif; fill: #1f2328; } .who { font-weight: bold; }
.box { fill: #eef1f6; stroke: #57606a; } .line { stroke: #8c959f; } .way { stroke: #0969da; }
.tip { fill: #0969da; } .crash { fill: #b3261e; } .back { fill: #ffffff; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .box { fill: #21262d; }
.way { stroke: #58a6ff; } .tip { fill: #58a6ff; } .crash { fill: #ff9b94; }
.back { fill: #0d1117; } }
"""


class Step(NamedTuple):
    """One thing that happens. With equal ends it happens there; `crash` says what one leaves."""

    start: int
    end: int
    text: str
    crash: str = ""


class Diagram(NamedTuple):
    """Who takes part, and the steps."""

    title: str
    who: tuple[str, ...]
    steps: tuple[Step, ...]


DIAGRAMS = {
    "bound": Diagram(
        "A transaction with your database",
        ("your database", "your program", "the directory of fmq"),
        (
            Step(1, 0, "INSERT: your rows"),
            Step(1, 1, "tx.send: kept in memory", "both sides have nothing"),
            Step(1, 0, "INSERT: the marker"),
            Step(1, 2, "prepare: durable, hidden", "no marker: it is rolled back"),
            Step(1, 0, "COMMIT: rows and marker", "the marker is there: it is committed"),
            Step(1, 2, "commit: readers see all", "rows and messages are there"),
        ),
    ),
    "append": Diagram(
        "Many callers share one write and one sync",
        ("callers", "the engine, under its lock", "the disk"),
        (
            Step(0, 1, "send, ack, commit, ..."),
            Step(1, 1, "plan: offsets, state, bytes", "nothing is written"),
            Step(1, 2, "one of them writes for all", "what is whole is kept, a torn end is cut"),
            Step(1, 2, "one sync for all", "all of it is there at the next open"),
            Step(1, 1, "show: readers see all"),
            Step(1, 0, "receipts"),
        ),
    ),
}


def middle(who: int) -> int:
    """Return the place of a part, from the left."""
    return WIDTH // 2 + (who - 1) * COLUMN


def drawn(diagram: Diagram) -> str:
    """Return a diagram as SVG."""
    rows = sum(1 + bool(step.crash) for step in diagram.steps)
    height = HEAD + ROW * rows + 24
    said = [
        f'<svg viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" role="img">',
        f"<!-- Drawn by tools/make_diagrams.py. --><title>{diagram.title}</title>",
        f"<style>\n{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}" />',
    ]
    for at, who in enumerate(diagram.who):
        x = middle(at)
        said += [
            f'<line class="line" x1="{x}" y1="{HEAD - 8}" x2="{x}" y2="{height - 8}" />',
            f'<rect class="box" x="{x - 105}" y="14" width="210" height="30" rx="4" />',
            f'<text class="who" x="{x}" y="34" text-anchor="middle">{who}</text>',
        ]
    y = HEAD
    for step in diagram.steps:
        y += ROW
        said += happens(step, y)
        if step.crash:
            y += ROW
            text = f"✗ a crash here: {step.crash}"
            said += label(text, WIDTH // 2, y - 12, "crash")
    return "\n".join([*said, "</svg>"]) + "\n"


def happens(step: Step, y: int) -> list[str]:
    """Return an arrow with its text above it, or a text on the line of a part."""
    start, end = middle(step.start), middle(step.end)
    if start == end:
        return label(step.text, start, y - 4)
    tip = end - 9 if end > start else end + 9
    return [
        f'<line class="way" x1="{start}" y1="{y}" x2="{tip}" y2="{y}" stroke-width="2" />',
        f'<path class="tip" d="M{end} {y} L{tip} {y - 5} L{tip} {y + 5} Z" />',
        *label(step.text, (start + end) // 2, y - 8),
    ]


def label(text: str, x: int, y: int, kind: str = "") -> list[str]:
    """Return a text that no line crosses."""
    width = round(len(text) * LETTER)
    shown = f' class="{kind}"' if kind else ""
    return [
        f'<rect class="back" x="{x - width // 2}" y="{y - 13}" width="{width}" height="18" />',
        f'<text{shown} x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>',
    ]


def main() -> None:
    """Write all diagrams."""
    for name, diagram in DIAGRAMS.items():
        (DOCS / f"{name}.svg").write_text(drawn(diagram), encoding="utf-8")


if __name__ == "__main__":
    main()
