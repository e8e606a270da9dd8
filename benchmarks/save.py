"""A run as a file: the figures, and the machine, commit and versions that they belong to."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.runner import ROOT, Result
from benchmarks.verdict import best_peer, verdicts

RESULTS = Path(__file__).parent / "results"
DISTRIBUTIONS = ("lmdb", "rocksdict", "redis", "psycopg")


def save(results: Mapping[str, Result], rounds: int, seconds: float, scale: float) -> Path:
    """Write the run to benchmarks/results/ and say where."""
    now = datetime.datetime.now(datetime.UTC)
    document = {
        "at": now.isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "fmq", "benchmarks")),
        "machine": machine(),
        "versions": _versions(),
        "rounds": rounds,
        "seconds": seconds,
        "scale": scale,
        "rows": {name: _row(result, results) for name, result in results.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y-%m-%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def machine() -> dict[str, str | int]:
    """Return the properties of the machine on which figures depend."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _row(result: Result, results: Mapping[str, Result]) -> dict[str, object]:
    return {
        "unit": result.row.unit,
        "subjects": {
            subject: {
                "median": result.median(subject),
                "rounds": [each.value for each in rounds],
                "flushes_per_call": result.flushes_per_operation(subject),
            }
            for subject, rounds in result.rounds.items()
        },
        "failed": result.failed,
        "best_peer": best_peer(result),
        "goals": [asdict(verdict) for verdict in verdicts(result, results)],
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _git(*arguments: str) -> str:
    made = subprocess.run(
        ("git", *arguments), check=False, cwd=ROOT, capture_output=True, text=True
    )
    return made.stdout.strip()
