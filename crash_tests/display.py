"""The display of a run while it goes on: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from crash_tests.tally import Tally

LINES_APART_SECONDS = 2.0
FRAMES_APART_SECONDS = 0.1


class Display(Protocol):
    """Shows how far each tier is. On exit it prints a last line."""

    def begin(self, tier: str) -> None: ...

    def progress(self, tally: Tally, at: str) -> None:
        """Note how far the running tier is. It is at the workload `at`."""

    def end(self, tally: Tally) -> None: ...

    def say(self, text: str) -> None:
        """Show a text that must not be missed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class PlainLines:
    """Prints a line for each tier, and now and then one during a tier."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()
        self._tier = ""

    def begin(self, tier: str) -> None:
        self._tier = tier

    def progress(self, tally: Tally, at: str) -> None:
        if time.monotonic() - self._said_at >= LINES_APART_SECONDS:
            self.say(f"{self._tier:12} … {at}: {tally}")

    def end(self, tally: Tally) -> None:
        self.say(f"{self._tier:12} {tally}")

    def say(self, text: str) -> None:
        self._said_at = time.monotonic()
        print(text, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveTable:
    """A row for each tier, drawn again while it runs. Texts that must not be missed are above the
    table.
    """

    def __init__(self, console: Console, tiers: list[str]) -> None:
        self._tallies: dict[str, Tally | None] = dict.fromkeys(tiers)
        self._at = ""
        self._tier = ""
        self._drawn_at = 0.0
        self._live = Live(self._table(), console=console, auto_refresh=False)

    def begin(self, tier: str) -> None:
        self._tier, self._at = tier, ""
        self._tallies[tier] = Tally(tier)

    def progress(self, tally: Tally, at: str) -> None:
        self._tallies[self._tier], self._at = tally, at
        if time.monotonic() - self._drawn_at >= FRAMES_APART_SECONDS:
            self._draw()

    def end(self, tally: Tally) -> None:
        self._tallies[self._tier], self._tier = tally, ""
        self._draw()

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
        table.add_column("tier")
        for name in ("workloads", "points", "faults", "states", "states/s", "seconds", "failures"):
            table.add_column(name, justify="right")
        table.add_column("at", style="dim", no_wrap=True)
        for tier, tally in self._tallies.items():
            cells, style = _cells(tally), "bold" if tier == self._tier else ""
            table.add_row(tier, *cells, self._at if tier == self._tier else "", style=style)
        return table

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()
        self._live.stop()


def _cells(tally: Tally | None) -> list[str]:
    if tally is None:
        return [""] * 7
    if tally.not_run is not None:
        return ["", "", "", "[yellow]not run", "", "", ""]
    failures = len(tally.failures)
    return [
        f"{tally.workloads:,}",
        f"{tally.points:,}",
        f"{tally.faults:,}",
        f"{tally.all_states:,}",
        f"{tally.rate:,.0f}",
        f"{tally.seconds:,.0f}",
        f"[red]{failures}" if failures else "0",
    ]


def display_for(console: Console, tiers: list[str]) -> Display:
    """Return the display that fits the output: a live table for a terminal, else plain lines."""
    return LiveTable(console, tiers) if console.is_terminal else PlainLines()
