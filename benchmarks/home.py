"""What a send costs with a home, beside one without, in turn in each round.

Run `python -m benchmarks.home`, with `--home s3://bucket/empty` in your own storage, or with
`--server nats` in a server that is started for it. Bodies have 100 bytes, and every send waits
until it is durable. `create` is the bare storage: an entry's bytes under the next number, by one
thread, in turn with the lone sends; of both the median time counts. The processor time is that of
this process, so it says also on a busy machine what a send costs, the server excluded. A take-over
opens a directory, empty or one that has all, and ends when a message is sent. The address is used
for homes of its own that begin with it, which stay there.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import fmq
import fmq.aio
from benchmarks.peers.programs import Folder
from fmq.basics.clock import SystemClock
from fmq.engines.home_moves import move_in
from fmq.home.home_addresses import objects_at
from fmq.home.home_disk import HomeDisk
from fmq.home.home_log import HomeLog
from fmq.home.home_reader import HomeReadDirectory
from fmq.home.objects import Objects
from fmq.posix import RealDisk
from tools.home_servers import KINDS

BODY = b"h" * 100
THREADS, COROUTINES, TURNS = 64, 1000, 5


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


def times_of(call: Callable[[], object], seconds: float) -> list[float]:
    """Return how long each of the calls takes that are made in so many seconds."""
    found, began = [], time.perf_counter()
    ends = began + seconds
    while began < ends:
        call()
        now = time.perf_counter()
        found.append(now - began)
        began = now
    return found


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


class Wire:
    """Implements Objects: those of a storage behind a longer wire."""

    requests = 0
    """Of all wires, so far."""

    def __init__(self, objects: Objects, seconds: float, *, without_files: bool = False) -> None:
        """With `without_files` it has no derived files, as a home of an older fmq."""
        self._without_files = without_files
        self.address, self.object_bytes_max = objects.address, objects.object_bytes_max
        self.close = objects.close
        self._objects, self._seconds = objects, seconds
        self.creates = 0

    def __getattr__(self, name: str) -> Any:
        def call(*what: Any) -> Any:
            self.creates += name == "create"
            Wire.requests += 1
            if self._seconds:
                time.sleep(self._seconds)
            if name == "read_run" and self._without_files and what[0][0].startswith("files/"):
                return []
            return getattr(self._objects, name)(*what)

        return call


def opened(
    path: Path, home: str | None, wire: float, *, without_files: bool = False
) -> tuple[fmq.Engine, Wire | None]:
    """Open an engine, with a wire that is longer by so many seconds."""
    if home is None:
        return fmq.open(path), None
    objects, disk = Wire(objects_at(home), wire, without_files=without_files), RealDisk()
    said = {"host": "here", "pid": os.getpid()}
    log = HomeLog(objects, disk.random, SystemClock(), said, retry_seconds=30)
    return fmq.open(path, disk=HomeDisk(disk, log)), objects


class Busy:
    """Measures the processor time of this process, in µs a send."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def rate_of(self, row: str, call: Callable[[float], float], seconds: float) -> float:
        """Return the rate of `call(seconds)`, and note what each of its sends has cost."""
        began = time.process_time()
        rate = call(seconds)
        self.found[row] = (time.process_time() - began) * 1e6 / (rate * seconds)
        return rate


def rates_of(
    path: Path, home: str | None, bare: str | None, seconds: float, busy: Busy, wire: float = 0.0
) -> dict[str, float]:
    """Return the rates of an engine at `path`, by the names of their rows. With `bare` also of the
    bare storage there, in turn with the lone send.
    """
    threads, coroutines = f"{THREADS} threads", f"{COROUTINES} coroutines"
    objects, number = None, iter(range(1 << 40))
    if bare is not None:
        objects = Wire(objects_at(bare), wire)

    def create() -> None:
        assert objects is not None, "it was asked for"
        objects.create(f"slots/{next(number):020d}", bytes(280))

    alone, creates = list[float](), list[float]()
    engine, slots = opened(path, home, wire)
    with engine:
        for _ in range(TURNS):
            alone += times_of(lambda: engine.send("t", BODY), seconds / TURNS)
            if objects is not None:
                creates += times_of(create, seconds / TURNS)
        before = 0 if slots is None else slots.creates
        send = partial(rate_of, lambda: engine.send("t", BODY), threads=THREADS)
        many = busy.rate_of(threads, send, seconds)
        entries = 0 if slots is None else slots.creates - before
    found = {"lone send": 1 / statistics.median(alone), threads: many}
    engine, _ = opened(path, home, wire)
    with engine:
        send = partial(rate_of_coroutines, engine)
        found[coroutines] = busy.rate_of(coroutines, send, seconds)
    if objects is not None:
        objects.close()
        found["create"] = 1 / statistics.median(creates)
        found["sends an entry"] = many * seconds / entries
    return found


def take_over_seconds(
    path: Path, home: str, wire: float = 0.0, *, without_files: bool = False
) -> float:
    began = time.perf_counter()
    engine, _ = opened(path, home, wire, without_files=without_files)
    with engine:
        engine.send("t", BODY)
        return time.perf_counter() - began


class WiredHome:
    """Implements Disk: a home behind a longer wire, which is only read."""

    def __init__(self, home: str, wire: float) -> None:
        self._home, self._wire = home, wire

    def directory(self, path: str, *, make: bool) -> HomeReadDirectory:
        return HomeReadDirectory(Wire(objects_at(self._home, make=False), self._wire))

    def random(self, size: int) -> bytes:
        return RealDisk().random(size)


def reader_seconds(home: str, wire: float) -> float:
    """Return how long a reader takes that has nothing, to the newest message."""
    began = time.perf_counter()
    with fmq.open("home", disk=WiredHome(home, wire), read_only=True) as engine:
        newest = max(engine.queues("t"), key=lambda each: each.next)
        assert engine.read("t", queue=newest.queue, offset=newest.next - 1)
    return time.perf_counter() - began


def copy_seconds(home: str, to: Path, wire: float) -> float:
    """Return how long a bare copy of the pieces takes."""
    began = time.perf_counter()
    objects = Wire(objects_at(home, make=False), wire)
    with closing(objects), to.open("wb") as file:
        keys = [f"pieces/{name}" for name in objects.names("pieces")]
        for at in range(0, len(keys), 4):
            for data in objects.read_run(keys[at : at + 4]):
                file.write(data)
    to.unlink()
    return time.perf_counter() - began


def fill(place: Path, home: str, megabytes: int, body_bytes: int, *, lone: bool) -> None:
    """Let the home have so much, in appends of 1,000 messages, or each sent by itself."""
    body, path = os.urandom(body_bytes), place / "first"
    if lone:  # in a directory, which is moved in: in a home each would be an entry
        with fmq.open(path, fmq.Options(sync="never")) as engine:
            for _ in range(megabytes * 1_000_000 // body_bytes):
                engine.send("t", body)
        move_in(str(path), home, SystemClock())
    with fmq.open(path, home=home) as engine:
        for _ in range(0 if lone else megabytes * 1000 // body_bytes):
            engine.send_many("t", [body] * 1000)


def measure_cold(place: Path, home: str, rounds: int, wire: float) -> None:
    """Print how long a machine needs that has nothing, with the files of the home and without them,
    in turn, how long one that has all needs, and how long a reader.
    """
    rows: dict[str, list[float]] = {}
    requests: dict[str, int] = {}
    for number in range(rounds):
        paths = place / f"next-{number}", place / f"later-{number}"
        for row, measured in (
            ("a bare copy of the pieces", partial(copy_seconds, home, place / "copy", wire)),
            ("an empty directory", partial(take_over_seconds, paths[0], home, wire)),
            ("the same directory again", partial(take_over_seconds, paths[0], home, wire)),
            ("an empty directory, without the checkpoint in the home",
             partial(take_over_seconds, paths[1], home, wire, without_files=True)),
            ("a reader without a directory", partial(reader_seconds, home, wire)),
        ):  # fmt: skip
            before = Wire.requests
            rows.setdefault(row, []).append(measured())
            requests[row] = Wire.requests - before
        for each in paths:
            shutil.rmtree(each)
    for row, found in rows.items():
        print(f"{row}: {statistics.median(found):.2f} s, {requests[row]} requests")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--home", help="where homes are made; a temporary directory if not said")
    where.add_argument("--server", choices=KINDS, help="a server that is started for it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--wire", type=float, default=0.0, help="so many ms more for each request")
    parser.add_argument("--cold", type=int, help="take over so many MB instead")
    parser.add_argument("--body", type=int, default=1000, help="bytes of a message for --cold")
    parser.add_argument("--lone", action="store_true", help="each message by itself, for --cold")
    asked = parser.parse_args()
    logging.getLogger("fmq.home").setLevel(logging.ERROR)  # each take-over here is meant
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors before")
    with tempfile.TemporaryDirectory(dir=".") as folder, ExitStack() as ends:
        place = Path(folder).resolve()
        at = asked.home or f"file://{place}/home"
        if asked.server:
            of_server = Folder("fmq-home-")
            ends.callback(of_server.remove)
            server = KINDS[asked.server](of_server.path)
            ends.callback(server.end)

        def home_of(name: str) -> str:
            """Return the address of a new home."""
            name = f"{name}-{secrets.token_hex(4)}"
            return server.home(name) if asked.server else f"{at}-{name}"

        if asked.cold:
            home = home_of("cold")
            fill(place, home, asked.cold, asked.body, lone=asked.lone)
            measure_cold(place, home, asked.rounds, asked.wire / 1000)
            return
        measure(place, home_of, asked.rounds, asked.seconds, asked.wire / 1000)


def measure(
    place: Path, home_of: Callable[[str], str], rounds: int, seconds: float, wire: float
) -> None:
    """Measure so many rounds, and print the medians."""
    ratios: dict[str, list[float]] = {}
    rates: dict[str, list[tuple[float, float]]] = {}
    costs: dict[str, list[tuple[float, float]]] = {}
    creates, cold, warm = [], [], []
    for number in range(rounds):
        home = home_of("shop")
        busy = Busy(), Busy()
        without = rates_of(place / f"without-{number}", None, None, seconds, busy[0])
        where = home, home_of("bare")
        with_home = rates_of(place / f"with-{number}", *where, seconds, busy[1], wire)
        for name, alone in busy[0].found.items():
            costs.setdefault(name, []).append((alone, busy[1].found[name]))
        bare = with_home.pop("create")
        ratios.setdefault(f"{THREADS} threads, sends an entry", []).append(
            with_home.pop("sends an entry")
        )
        creates.append(bare)
        cold.append(take_over_seconds(place / f"next-{number}", home))
        warm.append(take_over_seconds(place / f"next-{number}", home))
        for name, far in with_home.items():
            rates.setdefault(name, []).append((without[name], far))
            ratios.setdefault(name, []).append(far / without[name])
        alone, threads, coroutines = with_home.values()
        for goal, value in (
            ("a lone send, less a bare create, ms", 1000 / alone - 1000 / bare),
            ("a lone send / a bare create", bare / alone),
            (f"{THREADS} threads / {THREADS // 2} x bare creates a second",
             threads / (THREADS // 2 * bare)),
            (f"{COROUTINES} coroutines / without a home", coroutines / without["1000 coroutines"]),
        ):  # fmt: skip
            ratios.setdefault(goal, []).append(value)
    print(f"{'':18}{'without':>10}{'with a home':>14}{'ratio, median':>16}")
    for name, found in rates.items():
        local, far = (statistics.median(each[which] for each in found) for which in (0, 1))
        print(f"{name:18}{local:10,.0f}{far:14,.0f}{statistics.median(ratios.pop(name)):16.2f}")
    print(f"{'create':18}{'':10}{statistics.median(creates):14,.0f}")
    for name, found in costs.items():
        local, far = (statistics.median(each[which] for each in found) for which in (0, 1))
        print(f"{name}, processor, µs a send: {local:.1f} without, {far:.1f} with a home")
    for name, found in ratios.items():
        print(f"{name}: {statistics.median(found):.2f}")
    print(f"a take-over with an empty directory: {statistics.median(cold):.2f} s")
    print(f"a take-over with a directory that has all: {statistics.median(warm):.2f} s")


if __name__ == "__main__":
    main()
