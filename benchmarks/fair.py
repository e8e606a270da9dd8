"""One tenant with 100,000 jobs and 99 with 10 each: `python -m benchmarks.fair`.

The jobs are sent, the many ones first, and then handled by two consumers in turn, a poll of ten and
its acks after the other. A job takes a millisecond. Said is how long it takes until the last job of
the 99 is done: without the other's jobs, and with them in a group whose keys take turns. It ends
with 1 if that takes more than twice as long. `--unlimited` adds a group without a limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import fmq

TENANTS = 99
JOBS = 10
AT_ONCE = 10
FACTOR_MAX = 2.0


def send(engine: fmq.Engine, many: int) -> None:
    """Send `many` jobs of one tenant, and then those of the others."""
    for at in range(0, many, 1000):
        count = min(1000, many - at)
        engine.send_many("jobs", [fmq.Message(b"x" * 100, key="huge")] * count, sync=False)
    few = [fmq.Message(b"x" * 100, key=f"{number % TENANTS}") for number in range(TENANTS * JOBS)]
    engine.send_many("jobs", few)


def seconds(directory: Path, many: int, handling: float, *, fair: bool) -> float:
    """Return how long it takes until the jobs of the 99 tenants are done."""
    with fmq.open(directory) as engine:
        send(engine, many)
        engine.create_group("workers", "jobs")
        if fair:
            engine.group("workers").limit(fair=True, reason="a benchmark")
        left = TENANTS * JOBS
        begin = time.perf_counter()
        with (
            engine.consumer("jobs", group="workers") as one,
            engine.consumer("jobs", group="workers") as other,
        ):
            while True:
                for consumer in (one, other):
                    for each in consumer.poll(limit=AT_ONCE):
                        time.sleep(handling)
                        left -= each.key != "huge"
                        each.ack(sync=False)
                    if not left:
                        return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--many", type=int, default=100_000, help="jobs of the one tenant")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--handling", type=float, default=0.001, help="seconds for each job")
    parser.add_argument("--unlimited", action="store_true", help="without a limit, too")
    args = parser.parse_args()
    cases = {
        "alone": (0, False),
        f"beside {args.many:,}, keys take turns": (args.many, True),
        f"beside {args.many:,}, no limit": (args.many, False),
    }
    found: dict[str, list[float]] = {name: [] for name in [*cases][: 2 + args.unlimited]}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for number, (name, took) in enumerate(found.items()):
                many, fair = cases[name]
                place = Path(folder, f"{number}-{len(took)}")
                took.append(seconds(place, many, args.handling, fair=fair))
    alone, turns, *_ = medians = [statistics.median(took) for took in found.values()]
    for name, median in zip(found, medians, strict=True):
        print(f"{name:36} {median:8.3f} s  {median / alone:6.1f} x")
    return int(turns > FACTOR_MAX * alone)


if __name__ == "__main__":
    sys.exit(main())
