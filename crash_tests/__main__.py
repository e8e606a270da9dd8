"""python -m crash_tests: explore workloads, replay a failure, plant bugs.

python -m crash_tests [--seed N] [--seeds K] [--minutes M] [--crash-at N] [--workload NAME]
python -m crash_tests replay FILE
python -m crash_tests mutants [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from crash_tests.explore import Depth, Explorer
from crash_tests.failure import Failure, load
from crash_tests.faults import CHANGING, READING, FaultTour
from crash_tests.oracle import Violation
from crash_tests.shrink import shrink
from crash_tests.tally import Tally
from crash_tests.workload import WORKLOADS, Workload, generate


def main() -> int:
    warnings.simplefilter("ignore", ResourceWarning)  # a killed engine is never closed
    match sys.argv[1:]:
        case ["replay", file]:
            return replay(Path(file))
        case ["mutants", *names]:
            from crash_tests.mutants import main as mutants

            return mutants(names)
    options = arguments()
    return faults(options.names) if options.verb else run(options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m crash_tests", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed (default: from the clock)")
    parser.add_argument("--seeds", type=int, help="how many seeds; without --minutes 10")
    parser.add_argument("--minutes", type=float, help="go on with further seeds for so long")
    parser.add_argument("--crash-at", type=int, help="only this operation")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="only this one, by hand")
    parser.add_argument("--full", type=float, default=0.2, help="share of states tried in full")
    parser.add_argument("--no-shrink", action="store_true", help="report failures as found")
    parser.add_argument("verb", nargs="?", choices=["faults"], help="let operations fail instead")
    parser.add_argument("names", nargs="*", help="workloads for `faults`; all if none is named")
    parser.add_argument("--out", default="crash-failures", help="where failures are written")
    return parser.parse_args()


def workloads(options: argparse.Namespace) -> Iterator[Workload]:
    if options.workload:
        yield WORKLOADS[options.workload]
        return
    if options.seed is None:
        yield from WORKLOADS.values()
        options.seed = int(time.time())
        print(f"seeds from {options.seed} on", flush=True)
    seeds = options.seeds
    if seeds is None and options.minutes is None:
        seeds = 1 if options.crash_at is not None else 10
    for number in count() if seeds is None else range(seeds):
        yield generate(options.seed + number)


def run(options: argparse.Namespace) -> int:
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    depth, total = Depth(full=options.full), Tally()
    for workload in workloads(options):
        if time.monotonic() > until:
            break
        explorer = Explorer(workload, options.seed or 0, depth)
        tally = explorer.explore(options.crash_at, until=until)
        print(f"{workload.name:24} {tally}", flush=True)
        total.add(tally)
        for failure in tally.failures:
            report(failure, None if options.no_shrink else depth, Path(options.out))
    print(f"{'all':24} {total}")
    return 1 if total.failures else 0


def faults(names: list[str]) -> int:
    """Let each operation of each workload fail; every violation is printed."""
    failures = 0
    for name in names or WORKLOADS:
        tour = FaultTour(WORKLOADS[name])
        kinds = (*CHANGING, *READING)
        for order in (*tour.all_orders(kinds), *tour.persistent_full_disk()):
            try:
                tour.check(order)
            except Violation as violation:
                failures += 1
                print(violation, flush=True)
        print(f"{name:24} {tour.orders} faults, {tour.states} states, {failures} failures")
    return 1 if failures else 0


def report(failure: Failure, depth: Depth | None, folder: Path) -> None:
    print(failure)
    traceback.print_exception(failure.violation.__cause__, limit=-4)
    smaller = failure if depth is None else shrink(failure, depth)
    folder.mkdir(exist_ok=True)
    file = folder / f"{failure.workload.name.replace(' ', '-')}.json"
    smaller.save(file)
    print(f"shrunk: {smaller}\n  steps:    {smaller.workload.steps}")
    print(f"  again:    python -m crash_tests replay {file}", flush=True)


def replay(file: Path) -> int:
    failure = load(file)
    print(failure)
    for i, step in enumerate(failure.workload.steps):
        print(f"  {i:3} {' '.join(map(str, step))}")
    violation = Explorer(failure.workload).replay(failure)
    if violation is None:
        print("does not fail any more")
        return 0
    print(f"fails: {violation}")
    traceback.print_exception(violation.__cause__, limit=-6)
    return 1


if __name__ == "__main__":
    sys.exit(main())
