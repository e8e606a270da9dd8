"""What `python -m benchmarks` can be asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import others

ROOT = Path(__file__).parent.parent


def test_a_benchmark_with_its_own_command_runs_by_its_name() -> None:
    """`processes` prints its own help, and not the help of the table of rows."""
    run = [sys.executable, "-m", "benchmarks", "processes", "--help"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    own = [sys.executable, "-m", "benchmarks.processes", "--help"]
    same = subprocess.run(own, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == same.stdout.splitlines()[1:]


def test_each_benchmark_named_on_a_page_exists() -> None:
    assert {"floor", "groups", "hops", "processes"} <= set(others.names())
    assert not set(others.names()) & others.PARTS


def test_a_failing_benchmark_reports_it() -> None:
    run = [sys.executable, "-m", "benchmarks", "processes", "--no-such-option"]
    assert subprocess.run(run, cwd=ROOT, capture_output=True, check=False).returncode == 2
