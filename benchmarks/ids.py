"""What message ids cost: `python -m benchmarks.ids`.

A send with an id beside one without, also when the window is full, and a repeat. Then the memory of
a full window, the size of checkpoints, and how long it takes to load the window after a restart.
Without syncs, as a disk takes the same in all rows; with them in the last row. An argument says
how many ids the window has: `python -m benchmarks.ids 1000000`.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median

import fmq
from fmq import Message

ROUNDS, CALLS, BATCH = 7, 2_000, 1_000
KEPT = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
OPTIONS = fmq.Options(sync="never", message_ids_kept=KEPT)
BODY = bytes(100)


def in_turn(*ways: Callable[[], object], calls: int = CALLS) -> list[float]:
    """Return the microseconds that a call of each way takes: medians of rounds, in turn."""
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, found in zip(ways, seconds, strict=True):
            begun = time.perf_counter()
            for _ in range(calls):
                way()
            found.append((time.perf_counter() - begun) / calls * 1e6)
    return [median(each) for each in seconds]


def show(what: str, one: float, other: float) -> None:
    print(f"{what:55} {other / one:6.2f} x  ({one:.1f} and {other:.1f} us)", flush=True)


def reopen(path: str) -> tuple[float, float, float, float]:
    """Return how long opening takes, and the first send with an id; and the megabytes that this
    process takes before and after that send.
    """
    begun = time.perf_counter()
    with fmq.open(path, OPTIONS) as engine:
        opened, before, begun = time.perf_counter() - begun, resident(), time.perf_counter()
        engine.send("t", BODY, message_id="order-000000000000")
        return opened, time.perf_counter() - begun, before, resident()


def resident() -> float:
    """Return how many megabytes of this process are in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """Print all rows."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as home:
        names = (f"order-{number:012d}" for number in count())
        with fmq.open(f"{home}/d", OPTIONS) as engine:
            without = lambda: engine.send("t", BODY)  # noqa: E731
            tagged = lambda: engine.send("t", BODY, key="order-000000000000")  # noqa: E731
            once = lambda: engine.send("t", BODY, message_id=next(names))  # noqa: E731
            plain, keyed, named = in_turn(without, tagged, once)
            show("a send with an id, beside one without", plain, named)
            show("a send with an id, beside one with a key", keyed, named)

            def many(make: Callable[[], Message]) -> Callable[[], object]:
                return lambda: engine.send_many("t", [make() for _ in range(BATCH)])

            key, one = Message(BODY, key="order-000000000000"), Message(BODY)
            plain, keyed, named = in_turn(
                many(lambda: one),
                many(lambda: key),
                many(lambda: Message(BODY, message_id=next(names))),
                calls=10,
            )
            each = [us / BATCH for us in (plain, keyed, named)]
            show("a message of a batch with ids, beside one without", each[0], each[2])
            show("a message of a batch with ids, beside one with keys", each[1], each[2])
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(KEPT // BATCH):
                engine.send_many("t", [Message(BODY, message_id=next(names)) for _ in range(BATCH)])
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            print(f"memory for each id of the window: {(after - before) / KEPT:.0f} bytes")
            show("a send with an id, the window is full", *in_turn(without, once))
            repeat = lambda: engine.send("t", BODY, message_id="order-000000000000")  # noqa: E731
            engine.send("t", BODY, message_id="order-000000000000")
            show("a repeat, beside a send without an id", *in_turn(without, repeat))
            begun = time.perf_counter()
            engine.checkpoint()
            print(f"a checkpoint takes {time.perf_counter() - begun:.3f} s")
        slots = sum(each.stat().st_size for each in Path(f"{home}/d").glob("checkpoint.*"))
        print(f"both checkpoints have {slots:,} bytes")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            opened, loaded, before, after = pool.apply(reopen, (f"{home}/d",))
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as home,
        fmq.open(f"{home}/d", replace(OPTIONS, sync="always")) as engine,
    ):
        with_sync = lambda: engine.send("t", BODY)  # noqa: E731
        once = lambda: engine.send("t", BODY, message_id=next(names))  # noqa: E731
        show("a durable send with an id", *in_turn(with_sync, once, calls=300))
    print(f"opening takes {opened:.3f} s, and the first send with an id {loaded:.3f} s")
    print(f"a process that has opened takes {before:.0f} MB, and {after:.0f} MB after that send")


if __name__ == "__main__":
    main()
