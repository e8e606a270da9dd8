"""The benchmarks with a command of their own, which `python -m benchmarks NAME` runs as well."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

MAIN = 'if __name__ == "__main__":'
PARTS = {"__main__", "cell", "victim"}  # the command itself, and what its rows start as processes


def names() -> list[str]:
    """Return the names of these benchmarks."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [
        file.stem
        for file in files
        if file.stem not in PARTS and f"\n{MAIN}" in file.read_text(encoding="utf-8")
    ]


def run(name: str, arguments: list[str]) -> int:
    """Run one of them, as `python -m benchmarks.NAME` does. Return its exit code."""
    sys.argv[1:] = arguments
    try:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            return ended.code or 0
        raise
    return 0
