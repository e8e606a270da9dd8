"""The objects on which the rows are made: an engine, a connection to one, and both for asyncio.

Of a connection the work of both sides counts: that of the client, and that of the server. Clocks
stand still, so that nothing that is counted depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import inspect
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fmq
import fmq.aio
from benchmarks.price.counting import CountedDisk, Counter, Price
from benchmarks.price.rows import END, START, Row
from fmq.posix import RealDisk
from fmq.testing import FakeClock
from fmq.testing.transport import MemoryServer

WARM_UP = 6  # rounds: names are encoded once, topics made, caches filled
ROUNDS = 5  # the median counts: one of them may meet the chores
OPTIONS = fmq.Options(segment_bytes=2 << 20)
MakeRow = Callable[[Any], Row]


class Rounds:
    """Has each round of a row counted. It is told what the row yields."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._left = WARM_UP + ROUNDS
        self._prices: list[Price] = []

    def meet(self, yielded: object) -> bool:
        """Return whether `yielded` was a mark of the row, and not the result of a call."""
        is_counted = self._left <= ROUNDS
        if yielded is START:
            if is_counted:
                self._counter.start()
        elif yielded is END:
            if is_counted:
                self._prices.append(self._counter.stop())
            self._left -= 1
        else:
            return False
        return True

    @property
    def are_over(self) -> bool:
        """Return whether there were enough."""
        return not self._left

    def price(self) -> Price:
        """Return the median of each figure."""
        columns = zip(*self._prices, strict=True)
        return Price(*(int(statistics.median(column)) for column in columns))


def run_blocking(face: Any, make: MakeRow, counter: Counter) -> Price:
    """Return the price of a row on a face whose calls return their results."""
    row, rounds, result = make(face), Rounds(counter), None
    while not rounds.are_over:
        yielded = row.send(result)
        result = None if rounds.meet(yielded) else yielded() if callable(yielded) else yielded
    return rounds.price()


async def run_awaited(face: Any, make: MakeRow, counter: Counter) -> Price:
    """Return the price of a row on a face whose calls are awaited."""
    row, rounds, result = make(face), Rounds(counter), None
    while not rounds.are_over:
        yielded = row.send(result)
        if rounds.meet(yielded):
            result = None
        else:
            result = await yielded if inspect.isawaitable(yielded) else yielded
    return rounds.price()


@contextmanager
def opened(counter: Counter, *, background: bool) -> Iterator[tuple[fmq.Engine, FakeClock]]:
    """Open an engine in an empty directory, on a disk that is counted."""
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        disk: Any = CountedDisk(RealDisk(), counter)
        how: dict[str, Any] = {"disk": disk, "clock": clock, "background": background}
        with fmq.open(f"{folder}/d", OPTIONS, **how) as engine:
            yield engine, clock


def in_process(make: MakeRow, counter: Counter) -> Price:
    """Return the price on what `fmq.open` returns."""
    with opened(counter, background=True) as (engine, _):
        return run_blocking(engine, make, counter)


def connected(make: MakeRow, counter: Counter) -> Price:
    """Return the price on what `fmq.connect` returns."""
    with opened(counter, background=False) as (engine, clock):
        server = MemoryServer(engine, clock)
        with server.connect() as client:
            found = run_blocking(client, make, counter)
        server.close()
        return found


def on_a_loop(make: MakeRow, counter: Counter) -> Price:
    """Return the price on what `fmq.aio.open` returns."""
    with opened(counter, background=True) as (engine, _):
        return asyncio.run(run_awaited(fmq.aio.of(engine), make, counter))


def connected_on_a_loop(make: MakeRow, counter: Counter) -> Price:
    """Return the price on what `fmq.aio.connect` returns."""
    with opened(counter, background=True) as (engine, _), engine.serve():

        async def story() -> Price:
            async with fmq.aio.connect(engine.path, start=False) as face:
                return await run_awaited(face, make, counter)

        return asyncio.run(story())


FACES: dict[str, Callable[[MakeRow, Counter], Price]] = {
    "open": in_process,
    "connect": connected,
    "aio.open": on_a_loop,
    "aio.connect": connected_on_a_loop,
}
