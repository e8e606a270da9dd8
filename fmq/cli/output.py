"""The two forms of output: aligned tables on a terminal, JSON lines everywhere else.

Verbs hand over raw values and say how people read them; they do not know which way is used.
Every JSON line is one object whose first member, `what`, tells what it speaks of. Notes, which
are about the command and not its result, go to stderr.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from fmq.cli.widths import GAP, MARGIN, fit
from fmq.findings.text import plain, printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Row = Mapping[str, Any]
Format = Literal["auto", "table", "json"]
Draw = Callable[[], None]

ROWS_MEASURED = 500


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a field of the row, or a text made of the whole row."""

    key: str
    title: str
    right: bool = False
    style: str = ""
    folds: bool = False  # widths.py explains this field and the next two
    copied: bool = False
    optional: bool = False
    show: Callable[[Any], str] = plain
    of_row: Callable[[Any], str] | None = None

    def text(self, row: Row) -> str:
        if self.of_row is not None:
            return self.of_row(row)
        value = row.get(self.key)
        return "" if value is None else self.show(value)


class Output(Protocol):
    """The output of a verb."""

    def rows(
        self,
        what: str,
        columns: Sequence[Column],
        rows: Iterable[Row | None],
        *,
        title: str = "",
        empty: str = "",
    ) -> int:
        """Print a line for each row as it comes, or `empty` if there are none. Return the number of
        rows. None among the rows says that the next row may take long: by then the rows before it
        are printed.
        """

    def facts(self, what: str, facts: Row, columns: Sequence[Column], *, title: str = "") -> None:
        """Print one thing, with a line for each fact that `columns` names."""

    def say(self, text: str, *, heading: bool = False) -> None:
        """Print a sentence of a story. A `heading` begins a new part."""

    def commands(self, what: str, rows: Iterable[Row]) -> None:
        """Print commands that the user can `run` next, and `why`."""

    def progress(self, *, every_row: bool = False) -> AbstractContextManager[Callable[[Row], None]]:
        """Return a context that shows progress, from rows with `rows`, `bytes` and `bytes_total`.
        With `every_row`, JSON output prints every row, and at once.
        """

    def screen(self, *, stays: bool) -> AbstractContextManager[Callable[[Draw], None]]:
        """Return a context with a function that draws a screen. On a terminal each drawing replaces
        the last one, unless it `stays`; at the end the terminal is as it was.
        """


def note(text: str) -> None:
    """Print a note about the command, on stderr."""
    # Without a stderr, `print` would write to stdout, where a program expects nothing but JSON.
    if sys.stderr is not None:
        try:
            print(f"fmq: {printable(text)}", file=sys.stderr)
        except OSError:
            discard(sys.stderr)  # Python must not replace the exit code of fmq


def discard(stream: TextIO) -> None:
    """Discard what `stream` buffers, because it cannot be written."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def make_output(how: Format = "auto") -> Output:
    """Return the output that `how` names; by default tables on a terminal, and JSON lines
    elsewhere.
    """
    if how == "auto":
        looked_at = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
        how = "table" if looked_at else "json"
    return TableOutput() if how == "table" else JsonOutput()


class JsonOutput:
    """Prints one JSON object for each line."""

    def __init__(self) -> None:
        # Escape characters that the output cannot encode: JSON has a spelling for each.
        encoding = sys.stdout.encoding or "utf-8"
        self._ascii = not encoding.lower().startswith("utf")

    def rows(
        self,
        what: str,
        columns: Sequence[Column],
        rows: Iterable[Row | None],
        *,
        title: str = "",
        empty: str = "",
    ) -> int:
        count = 0
        for row in rows:
            if row is None:
                sys.stdout.flush()
                continue
            self._line(what, row)
            count += 1
        return count

    def facts(self, what: str, facts: Row, columns: Sequence[Column], *, title: str = "") -> None:
        self._line(what, facts)

    def say(self, text: str, *, heading: bool = False) -> None:
        self._line("step" if heading else "text", {"text": text})

    def commands(self, what: str, rows: Iterable[Row]) -> None:
        for row in rows:
            self._line(what, row)

    @contextmanager
    def progress(self, *, every_row: bool = False) -> Iterator[Callable[[Row], None]]:
        """Return a context that prints progress, at most one line a second unless every row is
        wanted.
        """
        began = shown = time.monotonic()

        def show(row: Row) -> None:
            nonlocal shown
            if (now := time.monotonic()) - shown >= 1 or every_row:
                shown = now
                self._line("progress", {**row, "seconds_left": _seconds_left(row, now - began)})
                if every_row:
                    sys.stdout.flush()

        yield show

    @contextmanager
    def screen(self, *, stays: bool) -> Iterator[Callable[[Draw], None]]:
        def show(draw: Draw) -> None:
            draw()
            sys.stdout.flush()

        yield show

    def _line(self, what: str, row: Row) -> None:
        assert "what" not in row
        line = json.dumps({"what": what, **row}, default=_as_json, ensure_ascii=self._ascii)
        print(printable_json(line))


def _seconds_left(row: Row, seconds: float) -> float | None:
    """Return how many seconds the rest takes at the rate so far; None if nothing is done yet."""
    done: int = row["bytes"]
    return round((row["bytes_total"] - done) * seconds / done, 1) if done else None


def _as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


class TableOutput:
    """Prints tables, in colours where the terminal has them. No value is ever cut off."""

    def __init__(self) -> None:
        # Imported here: it takes longer than most verbs take to run.
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        class PlainConsole(Console):
            def on_broken_pipe(self) -> None:
                # rich would exit with 1, which here means that a problem was found.
                raise BrokenPipeError

        self._console = PlainConsole(highlight=False)
        self._table = Table
        self._make_text = Text

    def rows(
        self,
        what: str,
        columns: Sequence[Column],
        rows: Iterable[Row | None],
        *,
        title: str = "",
        empty: str = "",
    ) -> int:
        if title:
            self._title(title)
        count = 0
        widths = [0] * len(columns)
        for part in _parts(rows):
            # The rows may not fit into memory. So align them in parts, each with the widths so far.
            texts = [[printable_lines(column.text(row)) for column in columns] for row in part]
            widths = [
                max(width, len(column.title), *map(_width, cells))
                for width, column, *cells in zip(widths, columns, *texts, strict=True)
            ]
            self._print(columns, texts, widths, header=count == 0)
            count += len(part)
        if not count and empty:
            self._console.print(self._text(f"  {empty}", "dim"))
        return count

    def _print(
        self,
        columns: Sequence[Column],
        texts: Iterable[Sequence[str]],
        widths: Sequence[int],
        *,
        header: bool,
    ) -> None:
        gap, fitting = fit(columns, widths, self._console.width)
        table = self._grid(gap, header=header)
        for column, width in zip(columns, fitting, strict=True):
            if width:
                self._add_column(table, column, width)
        for line in texts:
            cells = zip(columns, fitting, line, strict=True)
            table.add_row("", *(self._text(text) for _, width, text in cells if width))
        self._console.print(table)

    def _add_column(self, table: Table, column: Column, width: int) -> None:
        table.add_column(
            self._text(column.title),
            header_style="dim",
            style=column.style,
            justify="right" if column.right else "left",
            overflow="fold",
            width=width,
        )

    def facts(self, what: str, facts: Row, columns: Sequence[Column], *, title: str = "") -> None:
        if title:
            self._title(title)
        table = self._grid(GAP, header=False)
        table.add_column("", style="dim", no_wrap=True)
        table.add_column("", overflow="fold")
        for column in columns:
            if text := column.text(facts):
                table.add_row("", self._text(column.title), self._text(text, column.style))
        self._console.print(table)

    def say(self, text: str, *, heading: bool = False) -> None:
        if heading:
            self._title(text)
        else:
            self._console.print(self._text(text))

    def commands(self, what: str, rows: Iterable[Row]) -> None:
        for row in rows:
            self._console.print(self._text(f"  {row['why']}", "dim"))
            # Users will copy the command, so only the terminal itself may fold the line.
            self._console.print(self._text(f"    {row['run']}", "green"), soft_wrap=True)

    @contextmanager
    def progress(self, *, every_row: bool = False) -> Iterator[Callable[[Row], None]]:
        """Return a context that shows a progress bar, and removes it at the end."""
        from fmq.cli.bar import ProgressBar

        with ProgressBar(self._console) as bar:
            yield bar.show

    @contextmanager
    def screen(self, *, stays: bool) -> Iterator[Callable[[Draw], None]]:
        """Return a context whose function draws on the other screen of the terminal."""
        console = self._console
        if stays or not console.is_terminal:
            yield lambda draw: draw()
            return

        def show(draw: Draw) -> None:
            with console.capture() as drawn:
                draw()
            lines = drawn.get().split("\n")[: console.height]
            # The screen is never empty meanwhile: lines are overwritten, and their rests erased.
            sys.stdout.write("\x1b[H" + "\x1b[K\n".join(lines) + "\x1b[J")
            sys.stdout.flush()

        with console.screen(hide_cursor=True):
            yield show

    def _grid(self, gap: int, *, header: bool) -> Table:
        table = self._table(box=None, show_header=header, pad_edge=False, padding=(0, gap, 0, 0))
        table.add_column("", width=MARGIN - gap)
        return table

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.print(self._text(text, "bold"))

    def _text(self, text: str, style: str = "") -> Text:
        """Return a rich Text. With a str, rich would read what a journal holds as markup."""
        return self._make_text(printable_lines(text), style)


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _parts(rows: Iterable[Row | None]) -> Iterator[list[Row]]:
    """Yield the rows in lists of bounded length. A list also ends where None stands for a row."""
    part: list[Row] = []
    for row in rows:
        if row is not None:
            part.append(row)
        if part and (row is None or len(part) == ROWS_MEASURED):
            yield part
            part = []
    if part:
        yield part
