"""What counting costs a send: `python -m benchmarks.counted`.

A send runs one counted statement: its write is timed, and the time goes into a bucket. The command
times a send, with a sync and without, and in the same turn that statement, written as in
fmq/store/journal/commit_queue.py. It prints the medians of all turns, and the share of the send.
Sends are counted by topic without any statement of their own: they are the ends of its queues.
"""

from __future__ import annotations

import statistics
import tempfile
import time

import fmq
from fmq.basics.clock import SystemClock, ticks_of
from fmq.basics.counts import new_buckets

TURNS, SENDS = 21, 1000


class Timed:
    """What one write counts, as the queue of writes has it: names that are looked up in self."""

    def __init__(self) -> None:
        self._ticks = ticks_of(SystemClock())
        self.written = new_buckets()

    def count(self, times: int) -> float:
        """Return how many seconds one counted statement takes, the loop included."""
        begin = time.perf_counter()
        for _ in range(times):
            began = self._ticks()
            self.written[(self._ticks() - began).bit_length()] += 1
        return (time.perf_counter() - begin) / times


def send(engine: fmq.Engine, times: int) -> float:
    """Return how many seconds one send takes."""
    begin = time.perf_counter()
    for _ in range(times):
        engine.send("orders", b"x" * 100)
    return (time.perf_counter() - begin) / times


def main() -> None:
    """Measure in turns, and print a line for sends with a sync and for those without."""
    timed = Timed()
    kinds = {"with a sync": fmq.Options(), "without a sync": fmq.Options(sync="never")}
    for name, options in kinds.items():
        with tempfile.TemporaryDirectory() as path, fmq.open(path, options) as engine:
            send(engine, SENDS)
            turns = [(send(engine, SENDS), timed.count(SENDS)) for _ in range(TURNS)]
        took, counted = (statistics.median(each) * 1e6 for each in zip(*turns, strict=True))
        share = f"{counted / took * 100:.2f} %"
        print(f"a send {name}: {took:.1f} us, counting in it {counted:.2f} us: {share}")


if __name__ == "__main__":
    main()
