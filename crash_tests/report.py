"""The end of a run: a summary to paste, and the same as JSON for programs."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_tests.failure import Failure
from crash_tests.tally import Tally

ROOT = Path(__file__).parent.parent


@dataclass(slots=True)
class Report:
    """All that a run has done."""

    seed: int
    arguments: list[str]
    tallies: dict[str, Tally] = field(default_factory=dict)
    at: str = ""  # the workload that is being tried
    in_vain: str = ""  # why nothing was tried
    files: dict[str, str] = field(default_factory=dict)  # file of a failure -> what broke

    @property
    def total(self) -> Tally:
        total = Tally("all")
        for tally in self.tallies.values():
            total = total.plus(tally)
        return total

    @property
    def failures(self) -> list[Failure]:
        return self.total.failures

    def as_json(self) -> dict[str, Any]:
        return {
            "commit": commit(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "seed": self.seed,
            "arguments": self.arguments,
            "tiers": {name: tally.as_json() for name, tally in self.tallies.items()},
            "all": self.total.as_json(),
            "files": self.files,
        }

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")

    def __str__(self) -> str:
        total = self.total
        lines = [
            f"fmq {commit()}, Python {platform.python_version()}, seed {self.seed}",
            *(f"{name:12} {tally}" for name, tally in self.tallies.items()),
            f"{'all':12} {total}",
        ]
        lines += [f"  {what}\n    {file}" for file, what in self.files.items()]
        not_run = sum(tally.not_run is not None for tally in self.tallies.values())
        if not_run:
            lines.append(f"{not_run} tiers did not run")
        return "\n".join(lines)


def commit() -> str:
    """Return the version of the tree; `+` says that files differ from it."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "of unknown version"
    return said.stdout.strip()
