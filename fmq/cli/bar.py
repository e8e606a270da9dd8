"""A progress bar for the terminal: how much is done, at what rate, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fmq.findings.text import size


class ProgressBar:
    """A progress bar that is visible inside of its `with` block."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn(" "),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[done]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left", style="dim"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, done="")

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, row: Mapping[str, Any]) -> None:
        """Show that `bytes` are done, of `bytes_total`, and how many `rows`, if there are any."""
        task = self._progress.tasks[0]
        seconds = task.elapsed or 1e-9
        rows, done = row.get("rows"), f"{size(row['bytes'])} of {size(row['bytes_total'])}"
        if rows is not None:
            rate = f"{rows / seconds:,.0f} rows/s" if seconds > 0.1 else ""
            done = f"{rows:,} rows  {done}  {rate}"
        self._progress.update(
            self._task, completed=row["bytes"], total=row["bytes_total"], done=done
        )
