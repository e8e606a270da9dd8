"""python -m crash_tests: break fmq on purpose, replay a failure, plant bugs.

    python -m crash_tests [--minutes M] [--seed N] [--tier NAME] ...
    python -m crash_tests TIER ...                          the same as --tier TIER
    python -m crash_tests replay FILE ...
    python -m crash_tests mutants [--from N] [--to M] [NAME ...]

Without --minutes each tier does its share of every run, a few minutes together.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
import warnings
from pathlib import Path
from tempfile import gettempdir

from rich.console import Console

from crash_tests.budget import Budget
from crash_tests.by_hand import WORKLOADS
from crash_tests.display import Display, display_for
from crash_tests.explore import Depth
from crash_tests.findings import Findings
from crash_tests.report import Report
from crash_tests.story import tell_again
from crash_tests.tally import Tally
from crash_tests.threads.programs import PROGRAMS
from crash_tests.tiers import NAMES, Tier, chosen, seconds_of


def main() -> int:
    warnings.simplefilter("ignore", ResourceWarning)  # a killed engine is never closed
    # Stories do on purpose what an engine warns of: members fall silent, topics lose messages.
    logging.getLogger("fmq").addHandler(logging.NullHandler())
    # A signal that ends this process must leave neither mounted file systems nor a running server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    match sys.argv[1:]:
        case ["replay", *files] if files:
            return max(tell_again(Path(file)) for file in files)
        case ["mutants", *names]:
            from crash_tests.mutants import main as mutants

            return mutants(names)
        case [tier, *rest] if tier in NAMES:
            return run(arguments(["--tier", tier, *rest]))
        case given:
            return run(arguments(given))


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m crash_tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, help="go on for so long, all tiers together")
    add("--seed", type=int, help="the first seed; default: from the clock")
    add("--tier", action="append", choices=NAMES, default=[], help="only this one; may be repeated")
    add("--workload", choices=sorted({**WORKLOADS, **PROGRAMS}), help="only this one, by hand")
    add("--rounds", type=int, help="so many workloads of each tier")
    add("--seeds", type=int, help="so many seeds, and nothing else")
    add("--states", type=int, help="go on until so many distinct ones were tried, of all workloads")
    add(
        "--jobs",
        type=int,
        default=1,
        help="processes that explore workloads; the result is the same",
    )
    add("--from", type=int, default=0, dest="first", help="the first of the short workloads")
    add("--crash-at", type=int, help="only the crash at this operation")
    add("--preemptions", type=int, help="every schedule of threads with at most so many")
    add("--full", type=float, help="share of states put through everything, from 0 to 1")
    add("--no-shrink", action="store_true", help="leave failures as they are found")
    add("--directory", type=Path, default=Path(gettempdir()), help="for real file systems")
    add("--out", type=Path, default=Path("crash-failures"), help="where failures are written")
    add("--report", type=Path, help="write a JSON report")
    options = parser.parse_args(given)
    if options.seeds is not None:
        options.tier, options.rounds = ["seeds"], options.seeds
    elif options.workload in PROGRAMS and options.tier not in ([], ["threads"]):
        parser.error(f"{options.workload} is one of threads")
    elif options.workload and not options.tier:
        options.tier = ["threads" if options.workload in PROGRAMS else "hand"]
    elif options.preemptions is not None and not options.tier:
        options.tier = ["threads"]
    elif options.crash_at is not None and not options.tier:
        options.tier, options.rounds = ["seeds"], 1
    return options


def run(options: argparse.Namespace) -> int:
    seed = int(time.time()) if options.seed is None else options.seed
    report = Report(seed, sys.argv[1:])
    tiers = chosen(options.tier)
    began = time.monotonic()
    with display_for(Console(), [tier.name for tier in tiers]) as display:
        display.say(f"seed {seed}")
        depth = None if options.no_shrink else Depth()
        findings = Findings(options.out, depth, display.say)
        try:
            for tier in tiers:
                seconds = None
                if options.minutes is not None:
                    left = 60 * options.minutes - (time.monotonic() - began)
                    seconds = seconds_of(tiers, tier, max(0.0, left))
                run_tier(tier, budget_of(options, seed, seconds), report, display, findings)
        except KeyboardInterrupt:
            display.say(f"interrupted at {report.at}; what stands below was tried until then")
        else:
            report.in_vain = in_vain(report, options.crash_at)
    report.files = findings.files
    print(f"\n{report}")
    if options.report:
        report.save(options.report)
    if report.in_vain:
        print(f"error: {report.in_vain}", file=sys.stderr)
        return 2
    return 1 if report.failures else 0


def in_vain(report: Report, crash_at: int | None) -> str:
    """Return what is wrong with arguments by which the run has tried nothing. Such a run must not
    look like a success.
    """
    total = report.total
    if not total.is_nothing or any(each.not_run for each in report.tallies.values()):
        return ""
    there = total.points_there
    if crash_at is None or not there:
        return "nothing was tried; leave out some arguments, or give larger numbers"
    whose = "the workload has" if total.workloads <= 1 else f"{total.workloads} workloads have"
    return (
        f"nothing was tried: {whose} {there} crash points, and --crash-at {crash_at} is none of "
        "them; they are counted from 0, in each workload"
    )


def budget_of(options: argparse.Namespace, seed: int, seconds: float | None) -> Budget:
    return Budget(
        seed,
        seconds,
        options.rounds,
        options.first,
        options.workload,
        options.crash_at,
        options.preemptions,
        options.states,
        options.jobs,
        options.full,
        options.directory,
        failures=options.out,
    )


def run_tier(
    tier: Tier, budget: Budget, report: Report, display: Display, findings: Findings
) -> None:
    def tell(tally: Tally, at: str) -> None:
        report.tallies[tier.name], report.at = tally, at  # also if it is interrupted
        display.progress(tally, at)

    display.begin(tier.name)
    budget.tell, budget.found = tell, findings.keep
    report.tallies[tier.name] = tally = tier.run(budget)
    display.end(tally)


if __name__ == "__main__":
    sys.exit(main())
