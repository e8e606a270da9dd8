"""A server beside many polls, and syncs that clients share: `python -m benchmarks.served`.

The first table has the median time of a send through `fmq.connect` while so many polls of one group
wait at the server. The second has the transactions that share a sync: of one connection with eight
threads and of eight connections, committed at once, and prepared and then committed. A count
depends on the machine less than a time does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fmq
import fmq.aio
from fmq.remote.remote_engine import RemoteEngine
from fmq.server.load import HELD_MAX

BODY = bytes(range(100))
POLLS = (1, 100, 1000, 4096)
SENDS = 100
THREADS = 8


@contextmanager
def served(directory: Path) -> Iterator[RemoteEngine]:
    """A client of a server that is a process of its own."""
    command = [sys.executable, "-m", "fmq", "serve", str(directory)]
    with subprocess.Popen(command) as server:
        try:
            with fmq.connect(directory, start=False) as client:
                yield client
        finally:
            server.terminate()


# --- waiting polls --------------------------------------------------------------------------------


async def crowd(directory: str, polls: int, strategy: str | None) -> None:
    """Have polls of one group wait. Each acks nothing, and polls again."""

    async def wait(engine: fmq.aio.Engine, number: int) -> None:
        consumer = engine.consumer(
            "t", group="g", member=f"m{number}", strategy=strategy, lease_seconds=3600
        )
        await consumer.poll(limit=1)  # which joins the group
        ready.append(number)
        while True:
            for delivery in await consumer.poll(limit=1, timeout=600.0):
                await delivery.ack(sync=False)

    ready: list[int] = []
    engines = [await fmq.aio.connect(directory, start=False) for _ in range(-(-polls // HELD_MAX))]
    tasks = [asyncio.create_task(wait(engines[n // HELD_MAX], n)) for n in range(polls)]
    while len(ready) < polls:
        await asyncio.sleep(0.05)
        if failed := next((each for each in tasks if each.done()), None):
            await failed
    await asyncio.sleep(1.0)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()


def beside_polls(folder: Path, strategy: str | None) -> None:
    """Print how long a send takes beside polls that wait, and beside one."""
    alone = 0.0
    for polls in POLLS:
        directory = folder / f"polls-{polls}-{strategy}"
        with served(directory) as client:
            client.create_topic("t", queues=polls if strategy else 4)
            command = [sys.executable, "-m", "benchmarks.served", "crowd", str(directory)]
            command += [str(polls), strategy or ""]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as waiting:
                assert waiting.stdout is not None and waiting.stdout.readline() == "ready\n"
                times = []
                for _ in range(SENDS):
                    began = time.perf_counter()
                    client.send("t", BODY)
                    times.append(time.perf_counter() - began)
                    time.sleep(0.002)  # the poll that was woken waits again
                took = statistics.median(times)
                alone = alone or took
                share = f"{took / alone:.2f} x as long as beside one"
                name = f"{polls:>6,} polls, {strategy or 'no strategy'}"
                print(f"{name}: a send {took * 1e6:,.0f} us, {share}", flush=True)
                waiting.communicate("\n")


# --- shared syncs ---------------------------------------------------------------------------------


def one_phase(client: RemoteEngine) -> None:
    """Commit a transaction at once."""
    with client.transaction() as tx:
        tx.send("t", BODY)


def two_phases(client: RemoteEngine) -> None:
    """Prepare a transaction, and commit it."""
    tx = client.transaction(producer="p")
    tx.send("t", BODY)
    tx.prepare()
    tx.commit()


def rolled_back(client: RemoteEngine) -> None:
    """Prepare a transaction, and roll it back."""
    tx = client.transaction(producer="p")
    tx.send("t", BODY)
    tx.prepare()
    tx.rollback()


def share_of(
    clients: list[RemoteEngine], act: Callable[[RemoteEngine], None], seconds: float
) -> float:
    """Return how many transactions of eight threads share a sync."""
    counts = [0] * THREADS
    before, end = clients[0].stats().syncs, time.monotonic() + seconds

    def work(number: int) -> None:
        client = clients[number % len(clients)]
        while time.monotonic() < end:
            act(client)
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts) / max(clients[0].stats().syncs - before, 1)


def shared_syncs(folder: Path, seconds: float) -> None:
    """Print how many transactions share a sync."""
    with served(folder / "syncs") as client:
        clients = [client] + [fmq.connect(folder / "syncs") for _ in range(THREADS - 1)]
        for act in (one_phase, two_phases, rolled_back):
            for count in (1, THREADS):
                share = share_of(clients[:count], act, seconds)
                name = f"{count} connection{'s' * (count > 1)} x {THREADS // count} threads"
                what = act.__name__.replace("_", " ")
                print(f"{what:<12} {name}: {share:.2f} transactions per sync", flush=True)
        for each in clients[1:]:
            each.close()


def main() -> None:
    if sys.argv[1:2] == ["crowd"]:
        asyncio.run(crowd(sys.argv[2], int(sys.argv[3]), sys.argv[4] or None))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.served", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each count of syncs")
    parser.add_argument("--directory", type=Path, default=Path(), help="on which disk")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        for strategy in (None, "average"):
            beside_polls(Path(folder), strategy)
        shared_syncs(Path(folder), asked.seconds)


if __name__ == "__main__":
    main()
