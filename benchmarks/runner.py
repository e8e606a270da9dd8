"""Who runs when: subjects in turn, A B C A B C, each cell in a fresh process.

A machine has good minutes and bad ones; taking turns gives every subject its share of both, and
the median of the rounds is what counts. A subject that fails is reported and left out of
its row; the others go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cell import encoded
from benchmarks.loop import Effort, Measured
from benchmarks.row import Row

CELL_SECONDS_MAX = 300
STOCK_SECONDS_MAX = 1800
ROOT = Path(__file__).resolve().parent.parent

Say = Callable[[str], None]


class CellFailed(Exception):
    """A cell that ended without a figure."""


@dataclass(slots=True)
class Result:
    """All rounds of a row, by subject, in the order of the row."""

    row: Row
    rounds: dict[str, list[Measured]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def attempt(self, subject: str, say: Say) -> Iterator[None]:
        """Note a failure of `subject` instead of ending the run."""
        try:
            yield
        except CellFailed as error:
            self.failed[subject] = str(error)
            say(f"{self.row.name}  {subject} FAILED: {error}")

    def median(self, subject: str) -> float | None:
        rounds = self.rounds.get(subject)
        return statistics.median(each.value for each in rounds) if rounds else None

    def spread(self, subject: str) -> tuple[float, float]:
        values = [each.value for each in self.rounds[subject]]
        return min(values), max(values)

    def flushes_per_operation(self, subject: str) -> float | None:
        """Return how often the device flushed for one call, at the median."""
        counts = [
            each.flushes / each.operations
            for each in self.rounds.get(subject, [])
            if each.flushes is not None and each.operations
        ]
        return statistics.median(counts) if counts else None


@contextlib.contextmanager
def workspace(base: Path) -> Iterator[Path]:
    """A directory below `base` that is gone afterwards, whatever was left in it."""
    base.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="fmq-benchmarks-", dir=base))
    place.chmod(0o755)  # a server that runs as another user must get to its files
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def measure(row: Row, subjects: list[str], rounds: int, effort: Effort, say: Say) -> Result:
    """Measure one row: first its stock, then every subject once a round."""
    result = Result(row)
    for subject in subjects if row.stock else ():
        say(f"{row.name}  {subject}: filling what it needs, where this run has not yet")
        with result.attempt(subject, say):
            run_cell(row, subject, effort, "--stock")
    for number in range(rounds if row.repeats else 1):
        for subject in subjects:
            if subject not in result.failed:
                with result.attempt(subject, say):
                    measured = cell(row, subject, effort)
                    result.rounds.setdefault(subject, []).append(measured)
                    value = f"{measured.value:,.6g} {row.unit}"
                    say(f"{row.name}  round {number + 1}  {subject}: {value}")
    return result


def cell(row: Row, subject: str, effort: Effort, watch: tuple[str, ...] = ()) -> Measured:
    """Run one subject once, in a directory that is empty before and removed afterwards.

    `watch` is the beginning of a command that runs the process under observation.
    """
    effort.directory.mkdir(mode=0o755)
    # What the one before left unwritten would be written at this one's expense.
    os.sync()
    try:
        answer = run_cell(row, subject, effort, watch=watch)
        return Measured(**json.loads(answer.splitlines()[-1]))
    finally:
        shutil.rmtree(effort.directory)


def run_cell(
    row: Row, subject: str, effort: Effort, *options: str, watch: tuple[str, ...] = ()
) -> str:
    """Run the process of a cell, and end all that it started; what it printed, or CellFailed."""
    command = [*watch, sys.executable, "-m", "benchmarks.cell", row.name, subject, encoded(effort)]
    # A path of a socket must be short, so sockets lie in a directory near the root.
    with tempfile.TemporaryDirectory(prefix="fmq-") as sockets:
        os.chmod(sockets, 0o755)
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": sockets},
            start_new_session=True,
        )
        try:
            seconds = STOCK_SECONDS_MAX if options else CELL_SECONDS_MAX
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise CellFailed(f"not done after {seconds} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise CellFailed(errors.strip()[-2000:] or f"exit status {process.returncode}")
    return output
