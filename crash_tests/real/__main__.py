"""python -m crash_tests.real: power cuts on real file systems, and kills, made from one seed."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

from crash_tests.budget import Budget
from crash_tests.real.cut import EXT4, XFS
from crash_tests.real.kills import KILLS
from crash_tests.real.reorder import BELOW_EXT4, BELOW_XFS
from crash_tests.real.tally import Tally


class Tier(Protocol):
    """One way of crashing a real store."""

    name: str

    def run(self, budget: Budget) -> Tally: ...


def main() -> int:
    options = arguments()
    plan: list[tuple[Tier, int]] = [
        (EXT4, options.cuts_ext4),
        (XFS, options.cuts_xfs),
        (BELOW_EXT4, options.reordered),
        (BELOW_XFS, options.reordered),
        (KILLS, options.kills),
    ]
    print(f"seed {options.seed}", flush=True)
    # A signal that ends this process must not leave file systems mounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    tallies = [
        run(tier, Budget(options.seed, rounds=rounds, directory=options.directory))
        for tier, rounds in plan
        if rounds
    ]
    not_run = sum(tally.not_run is not None for tally in tallies)
    if not_run:
        print(f"{not_run} of {len(tallies)} tiers did NOT RUN")
    return 1 if any(tally.failures for tally in tallies) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m crash_tests.real", description=__doc__)
    add = parser.add_argument
    add("--cuts-ext4", type=int, default=400, help="power cuts on ext4")
    add("--cuts-xfs", type=int, default=300, help="power cuts on xfs")
    add("--reordered", type=int, default=200, help="futures of failed devices, below each of both")
    add("--kills", type=int, default=1000, help="kills of a process")
    add("--seed", type=int, default=int(time.time()), help="default: from the clock")
    add("--directory", type=Path, default=Path(tempfile.gettempdir()), help="for scratch files")
    return parser.parse_args()


def run(tier: Tier, budget: Budget) -> Tally:
    if sys.stdout.isatty():
        budget.tell = lambda tally, _: print(f"\r{tally}", end="", flush=True)
    tally = tier.run(budget)
    print(f"\r{tally}" if sys.stdout.isatty() else tally, flush=True)
    for failure in tally.failures:
        print(failure, flush=True)
    return tally


if __name__ == "__main__":
    sys.exit(main())
