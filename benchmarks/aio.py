"""Coroutines of one loop: `python -m benchmarks.aio`.

Durable sends of 100 bytes by 1, 8 and 64 coroutines, transactions of ten messages to three queues
by 64, and `asyncio.to_thread` and blocking sends beside them. The subjects take turns in each
round, so a machine that is busy for a while slows all of them. A raw sync is measured as well.
`--sync-us N` puts a sync that sleeps so long in the place of the disk's, in a directory of
/dev/shm: it shows what the code takes where the disk is not to be measured. On a machine that does
other things as well, `chrt -f 1` before the command keeps them from interrupting it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import fmq
import fmq.aio
from fmq.machine.disk import Buffer
from fmq.posix import RealDisk

BODY = bytes(range(100))
TOPICS = "a", "b", "c"
IDLE = 1000
SYNCS = 200
Act = Callable[[], Awaitable[object]]


class Measured(NamedTuple):
    """The result of several coroutines together."""

    rate: float
    p50: float
    p99: float


async def measured(act: Act, coroutines: int, seconds: float) -> Measured:
    """Let `coroutines` call `act`, each one call after the other."""
    end = time.perf_counter() + seconds
    took: list[float] = []

    async def one() -> None:
        begun = time.perf_counter()
        while begun < end:
            await act()
            now = time.perf_counter()
            took.append(now - begun)
            begun = now

    begun = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(coroutines)])
    rate = len(took) / (time.perf_counter() - begun)
    took.sort()
    return Measured(rate, took[len(took) // 2], took[len(took) * 99 // 100])


def blocking(engine: fmq.Engine, seconds: float) -> Measured:
    """Send one message after the other without a loop."""
    took = []
    end = time.perf_counter() + seconds
    begun = time.perf_counter()
    while begun < end:
        engine.send("a", BODY)
        now = time.perf_counter()
        took.append(now - begun)
        begun = now
    took.sort()
    return Measured(len(took) / sum(took), took[len(took) // 2], took[len(took) * 99 // 100])


def raw_sync(disk: RealDisk, path: str) -> float:
    """Return the median time of a write of one message that is synced, in seconds."""
    directory = disk.directory(path + "/raw", make=True)
    file = directory.create("raw")
    file.write_zeros(1 << 20)
    file.sync()
    took = []
    for number in range(SYNCS):
        begun = time.perf_counter()
        file.write(number * 512, (BODY * 2,), sync=True)
        took.append(time.perf_counter() - begun)
    file.close()
    directory.remove("raw")
    directory.close()
    return statistics.median(took)


def sleeping_disk(seconds: float) -> RealDisk:
    """Return the machine's disk, whose synced writes sleep instead of syncing."""
    disk = RealDisk()

    def write(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        written = os.pwritev(fd, buffers, offset)
        if flags:
            time.sleep(seconds)
        return written

    disk._writer = write
    return disk


async def round_of(engine: fmq.aio.AsyncEngine, seconds: float) -> dict[str, Measured]:
    """Measure each subject once."""

    async def send() -> object:
        return await engine.send("a", BODY)

    async def in_pool() -> object:
        return await asyncio.to_thread(engine._engine.send, "a", BODY)

    async def transaction() -> object:
        async with engine.transaction() as tx:
            for number in range(10):
                tx.send(TOPICS[number % 3], BODY)
        return None

    found = {"blocking": blocking(engine._engine, seconds)}
    for coroutines in (1, 8, 64):
        found[f"send {coroutines}"] = await measured(send, coroutines, seconds)
    found["to_thread 64"] = await measured(in_pool, 64, seconds)
    found["transaction 64"] = await measured(transaction, 64, seconds)
    return found


async def beside_idle_consumers(engine: fmq.aio.AsyncEngine, seconds: float) -> Measured:
    """Measure a lone sender beside many consumers that wait."""

    async def consume(number: int) -> None:
        async with engine.consumer(f"idle-{number}", group="g") as consumer:
            async for _ in consumer:
                pass

    tasks = [asyncio.ensure_future(consume(number)) for number in range(IDLE)]
    await asyncio.sleep(1)
    found = await measured(lambda: engine.send("a", BODY), 1, seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def measure(disk: RealDisk, path: str, rounds: int, seconds: float) -> None:
    """Measure all and print it."""
    syncs: list[float] = []
    found: list[dict[str, Measured]] = []
    async with fmq.aio.open(path + "/store", disk=disk) as engine:
        for _ in range(rounds):
            syncs.append(raw_sync(disk, path))
            found.append(await round_of(engine, seconds))
        idle = await beside_idle_consumers(engine, seconds)
    print(f"a raw sync takes {statistics.median(syncs) * 1e6:.0f} us\n")
    print("| subject | calls/s | p50 us | p99 us |\n| --- | --- | --- | --- |")
    medians: dict[str, Measured] = {}
    for name in found[0]:
        each = [one[name] for one in found]
        values = [statistics.median(column) for column in zip(*each, strict=True)]
        medians[name] = Measured(*values)
    medians[f"send 1 beside {IDLE:,} idle consumers"] = idle
    for name, (rate, p50, p99) in medians.items():
        print(f"| {name} | {rate:,.0f} | {p50 * 1e6:.0f} | {p99 * 1e6:.0f} |")

    def ratio(one: str, other: str) -> float:
        return statistics.median(each[one].rate / each[other].rate for each in found)

    print(f"\n64 coroutines beside to_thread: {ratio('send 64', 'to_thread 64'):.1f} x (goal 8)")
    lone = ratio("blocking", "send 1")
    print(f"a lone send takes {lone:.2f} x a blocking one (goal: at most 1.6)")
    tail = medians["send 64"].p99 / medians["send 64"].p50
    print(f"p99 at 64 is {tail:.1f} x p50 (goal: at most 4)")
    transactions = medians["transaction 64"].rate
    print(f"transactions of ten messages: {transactions:,.0f}/s (goal 25,000)")
    print(f"beside idle consumers: {idle.p50 / medians['send 1'].p50:.2f} x the time of a send")


def main() -> None:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aio", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--directory", default=".", help="on the disk that is to be measured")
    parser.add_argument("--sync-us", type=float, help="let a sync sleep so long instead")
    asked = parser.parse_args()
    where = asked.directory if asked.sync_us is None else "/dev/shm"
    disk = RealDisk() if asked.sync_us is None else sleeping_disk(asked.sync_us / 1e6)
    with tempfile.TemporaryDirectory(dir=where) as path:
        asyncio.run(measure(disk, path, asked.rounds, asked.seconds))


if __name__ == "__main__":
    main()
