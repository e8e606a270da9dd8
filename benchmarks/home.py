"""What a send costs with a home, beside one without, in turn in each round.

Run `python -m benchmarks.home`, or with `--home s3://bucket/empty` in your own storage. Bodies have
100 bytes, and every send waits until it is durable. `create` is the bare storage: an entry's bytes
under the next number, by one thread. A take-over opens an empty directory and reads one message.
The address is used for entries of its own below it, which stay there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import fmq
import fmq.aio
from fmq.home.home_addresses import objects_at

BODY = b"h" * 100
THREADS, COROUTINES = 64, 1000


def rate_of(call: Callable[[], object], seconds: float, *, threads: int = 1) -> float:
    """Return how often `call` is made a second, by all threads together."""
    counts, ends = [0] * threads, time.perf_counter() + seconds

    def repeat(number: int) -> None:
        while time.perf_counter() < ends:
            call()
            counts[number] += 1

    workers = [threading.Thread(target=repeat, args=(number,)) for number in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - began)


def rate_of_coroutines(engine: fmq.Engine, seconds: float) -> float:
    """Return how many sends a second the coroutines of one loop make."""

    async def send_all() -> float:
        face, count, ends = fmq.aio.of(engine), 0, time.perf_counter() + seconds

        async def repeat() -> None:
            nonlocal count
            while time.perf_counter() < ends:
                await face.send("t", BODY)
                count += 1

        began = time.perf_counter()
        await asyncio.gather(*(repeat() for _ in range(COROUTINES)))
        return count / (time.perf_counter() - began)

    return asyncio.run(send_all())


def rates_of(path: Path, home: str | None, seconds: float) -> dict[str, float]:
    """Return the rates of an engine at `path`, by the names of their rows."""
    with fmq.open(path, home=home) as engine:
        found = {
            "lone send": rate_of(lambda: engine.send("t", BODY), seconds),
            f"{THREADS} threads": rate_of(lambda: engine.send("t", BODY), seconds, threads=THREADS),
        }
    with fmq.open(path, home=home) as engine:
        found[f"{COROUTINES} coroutines"] = rate_of_coroutines(engine, seconds)
        return found


def take_over_seconds(path: Path, home: str) -> float:
    began = time.perf_counter()
    with fmq.open(path, home=home) as engine:
        engine.read("t", limit=1)
        return time.perf_counter() - began


def creates_of(address: str, seconds: float) -> float:
    """Return how many entries a second the bare storage makes."""
    objects, number = objects_at(address), iter(range(1 << 40))
    rate = rate_of(lambda: objects.create(f"slots/{next(number):020d}", bytes(280)), seconds)
    objects.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--home", help="where the homes are made; a temporary directory if not said"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors before")
    rounds, creates, opened = [], [], []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = Path(folder).resolve()
        for number in range(asked.rounds):
            home = f"{asked.home or f'file://{place}'}/{secrets.token_hex(4)}"
            without = rates_of(place / f"without-{number}", None, asked.seconds)
            with_home = rates_of(place / f"with-{number}", home, asked.seconds)
            rounds.append((without, with_home))
            creates.append(creates_of(f"{home}-bare", asked.seconds))
            opened.append(take_over_seconds(place / f"next-{number}", home))
    print(f"{'':18}{'without':>10}{'with a home':>14}{'ratio, median':>16}")
    for name in rounds[0][0]:
        local, far = (statistics.median(each[which][name] for each in rounds) for which in (0, 1))
        ratio = statistics.median(after[name] / before[name] for before, after in rounds)
        print(f"{name:18}{local:10,.0f}{far:14,.0f}{ratio:16.2f}")
    print(f"{'create':18}{'':10}{statistics.median(creates):14,.0f}")
    print(f"a take-over with an empty directory: {statistics.median(opened):.2f} s")


if __name__ == "__main__":
    main()
