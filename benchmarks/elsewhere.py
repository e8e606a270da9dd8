"""What a reader in another process sees, and how soon: `python -m benchmarks.elsewhere`.

The delay: an engine sends a message, and a read-only engine in another process waits for it. It is
the time from the return of `send` to the return of `read`, with the page that the engine tells its
readers by, and without one, as on a file system that another machine serves.

The speed: the same 200,000 messages, read from first to last by the engine and by a read-only
engine in another process, in turn. The goal is 0.9 of the engine's speed. And one look: how long
a refresh takes that finds nothing new.

The price: the sends of one engine, with its page and with memory that no reader sees, in turn.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fmq
from fmq.posix import RealDirectory, RealDisk
from fmq.store.journal.durable_page import no_page
from fmq.testing.inside import inside

DELAYS, PAUSE_SECONDS = 100, 0.02
DELAYS_WITHOUT = 5
STORED, BATCH, BODY = 200_000, 1000, bytes(range(100))
ROUNDS, REFRESHES = 15, 200
TURNS, SENDS = 50, 100
WAIT_SECONDS = 30.0
STAMP_BYTES = 20
GOAL = 0.9


class Elsewhere(RealDisk):
    """The files of this machine, as those of another one: without pages."""

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        directory = super().directory(path, make=make)
        directory._is_local = False
        return directory


def waiting(path: str, first: int, count: int, *, pages: bool) -> None:
    """Print when each of `count` messages was seen, from the offset `first` on."""
    with fmq.open(path, read_only=True, disk=RealDisk() if pages else Elsewhere()) as reader:
        print("ready", flush=True)
        for offset in range(first, first + count):
            reader.read("t", offset=offset, limit=1, timeout=WAIT_SECONDS)
            print(time.perf_counter_ns(), flush=True)


def scanning(path: str) -> None:
    """Print how many messages a second are read, each time that a line comes."""
    with fmq.open(path, read_only=True) as reader:
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "read":
                print(scan(reader), flush=True)
            else:
                print(refresh_us(reader), flush=True)


def scan(engine: fmq.Engine | fmq.ReadOnlyEngine) -> float:
    started, offset = time.perf_counter(), 0
    while offset < STORED:
        batch = engine.read_batch("stock", offset=offset, limit=BATCH)
        assert batch is not None
        offset += len(batch.bodies)
    return offset / (time.perf_counter() - started)


def refresh_us(reader: fmq.ReadOnlyEngine) -> float:
    started = time.perf_counter()
    for _ in range(REFRESHES):
        reader.refresh()
    return (time.perf_counter() - started) / REFRESHES * 1e6


class Other:
    """Another process that runs a part of this file."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.elsewhere", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.line()

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def ask(self, what: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return float(self.line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def delays_ms(engine: fmq.Engine, count: int, *, pages: bool) -> list[float]:
    """Return how long after its send each message was seen elsewhere."""
    (queue,) = engine.queues("t")
    other = Other("wait", engine.path, f"{queue.next}", f"{count}", "pages" if pages else "none")
    delays = []
    for _ in range(count):
        time.sleep(PAUSE_SECONDS)
        engine.send("t", BODY)
        returned = time.perf_counter_ns()
        delays.append((int(other.line()) - returned) / 1e6)
    other.close()
    return delays


def speeds(engine: fmq.Engine) -> tuple[float, float, float, float]:
    """Return messages a second here and elsewhere, the ratio, and what a refresh takes in us."""
    other = Other("scan", engine.path)
    pairs = [(scan(engine), other.ask("read")) for _ in range(ROUNDS)]
    refresh = other.ask("refresh")
    other.close()
    here, there = (statistics.median(each) for each in zip(*pairs, strict=True))
    return here, there, statistics.median(two / one for one, two in pairs), refresh


def price(engine: fmq.Engine) -> tuple[float, float, float]:
    """Return the microseconds of a send with the page and without, and the ratio."""
    journal = inside(engine).journal
    shared, alone = journal.page, no_page()
    pairs = []
    for number in range(TURNS):
        took = {}
        for page in (shared, alone) if number % 2 else (alone, shared):
            journal.page = page
            took[page is shared] = median_us(lambda: engine.send("price", BODY))
        pairs.append((took[True], took[False]))
    journal.page = shared
    with_page, without = (statistics.median(each) for each in zip(*pairs, strict=True))
    return with_page, without, statistics.median(one / two for one, two in pairs)


def median_us(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(SENDS):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path()) as folder, fmq.open(f"{folder}/d") as engine:
        engine.send("t", BODY)
        engine.checkpoint()
        for _ in range(STORED // BATCH):
            engine.send_many("stock", [BODY] * BATCH)
        told = sorted(delays_ms(engine, DELAYS, pages=True))
        untold = sorted(delays_ms(engine, DELAYS_WITHOUT, pages=False))
        for what, delays in (("after", told), ("without a page", untold)):
            median, longest = statistics.median(delays), delays[-1]
            print(f"seen elsewhere {what:15} p50 {median:8.2f} ms, longest {longest:.2f} ms")
        here, there, ratio, refresh = speeds(engine)
        verdict = "reached" if ratio >= GOAL else "missed"
        print(
            f"read elsewhere {there:,.0f} msgs/s, in process {here:,.0f}, median ratio {ratio:.2f}"
        )
        print(f"the goal of {GOAL} is {verdict}")
        print(f"a refresh that finds nothing new {refresh:.0f} us")
        with_page, without, cost = price(engine)
        print(
            f"a send {with_page:.1f} us, without a page {without:.1f} us, median ratio {cost:.3f}"
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["wait", path, first, count, pages]:
            waiting(path, int(first), int(count), pages=pages == "pages")
        case ["scan", path]:
            scanning(path)
        case _:
            main()
