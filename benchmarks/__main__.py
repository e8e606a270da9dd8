"""The command: which rows, how long, beside whom; then the tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import durability, others, report, show
from benchmarks.loop import Effort
from benchmarks.peers import OURS, PEERS, missing
from benchmarks.row import Row
from benchmarks.runner import measure, workspace
from benchmarks.save import save
from benchmarks.table import ROWS, chosen

ROUNDS, SECONDS = 5, 1.0
QUICK_ROUNDS, QUICK_SECONDS, QUICK_SCALE = 1, 0.3, 0.1
DURABILITY_SCALE = 0.3  # what the longest of the watched runs consumes
ALWAYS = (*OURS, "raw")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure fmq beside its peers, in turn and in fresh processes.",
        epilog=f"Rows: {', '.join(ROWS)}. Benchmarks with arguments of their own, which are named "
        f"first: {', '.join(others.names())}",
    )
    parser.add_argument(
        "rows",
        nargs="*",
        metavar="ROW",
        help="rows by name or first words (send, tx-two-phase); `durability`: count the syncs "
        "that every subject pays for, with strace, and measure nothing",
    )
    parser.add_argument("--rounds", type=int, help=f"how often each (default {ROUNDS})")
    parser.add_argument(
        "--seconds", type=float, help=f"how long each rate is measured (default {SECONDS:g})"
    )
    parser.add_argument("--peers", help="only these, by name, with commas: " + ", ".join(PEERS))
    parser.add_argument(
        "--quick", action="store_true", help="one short round with a tenth of the stored messages"
    )
    parser.add_argument("--save", action="store_true", help="write JSON to benchmarks/results/")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        help="below which directory the stores lie, on the disk that is to be measured",
    )
    return parser.parse_args()


def main() -> int:
    if sys.argv[1:2] and sys.argv[1] in others.names():
        return others.run(sys.argv[1], sys.argv[2:])
    asked = arguments()
    peers = set(asked.peers.split(",")) if asked.peers else set(PEERS)
    if unknown := peers - set(PEERS):
        return _refuse(f"no such peer: {', '.join(sorted(unknown))}. There are {', '.join(PEERS)}")
    verify = "durability" in asked.rows
    try:
        rows = chosen([name for name in asked.rows if name != "durability"])
    except KeyError as error:
        return _refuse(f"no row {error}. There are {', '.join(ROWS)}")
    subjects_of = _present(rows, peers | set(ALWAYS))
    with workspace(asked.directory.resolve()) as place:
        if verify:
            effort = Effort(place / "cell", scale=DURABILITY_SCALE)
            paying = [row for row in rows if row.syncs_min]
            return 1 if durability.check(paying, subjects_of, effort, show.say) else 0
        return _measure(asked, rows, subjects_of, place)


def _measure(
    asked: argparse.Namespace, rows: list[Row], subjects_of: dict[str, list[str]], place: Path
) -> int:
    rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS)
    seconds = asked.seconds or (QUICK_SECONDS if asked.quick else SECONDS)
    scale = QUICK_SCALE if asked.quick else 1.0
    effort = Effort(place / "cell", seconds=seconds, scale=scale)
    results = {
        row.name: measure(row, subjects_of[row.name], rounds, effort, show.say) for row in rows
    }
    report.subjects(results)
    report.goals(results)
    if asked.save:
        show.say(f"saved as {save(results, rounds, seconds, scale)}")
    return 0


def _present(rows: list[Row], wanted: set[str]) -> dict[str, list[str]]:
    """The subjects of each row that are wanted and can run here; loudly without the others."""
    names = {name for row in rows for name in row.subjects if name in wanted}
    lacking = {name: why for name in sorted(names) if (why := missing(name))}
    for name, why in lacking.items():
        show.say(f"*** WITHOUT {name}: {why} ***")
    there = names - lacking.keys()
    return {row.name: [name for name in row.subjects if name in there] for row in rows}


def _refuse(why: str) -> int:
    show.say(why)
    return 2


if __name__ == "__main__":
    sys.exit(main())
