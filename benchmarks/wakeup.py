"""From a producer to a consumer that sleeps in the same process: how long, at the median?

The producer pauses before each message, so that the consumer sleeps again and the disk has
nothing left to do: this is what one message takes on a quiet system, its sync included. Peers
that cannot wake a thread of their process get a condition variable.
"""

from __future__ import annotations

import statistics
import threading
import time

from benchmarks import flushes, payload
from benchmarks.loop import Effort, Measured
from benchmarks.peers import open_peer
from benchmarks.peers.protocol import Consumer
from benchmarks.row import DURABLE_PEERS, Goal, Row

BODY_BYTES = 100
PAUSE_SECONDS = 0.002
WARM_UP = 20
STAMP_BYTES = 20


def measure(subject: str, effort: Effort) -> Measured:
    peer = open_peer(subject, effort.directory)
    producer, consumer = peer.producer(), peer.consumer()
    filler = payload.equal(BODY_BYTES - STAMP_BYTES, 1)[0]
    count = effort.count or WARM_UP + max(20, int(effort.seconds / (PAUSE_SECONDS + 0.0005)))
    latencies: list[int] = []
    receiver = threading.Thread(target=_receive, args=(consumer, count, latencies))
    receiver.start()
    flushed = flushes.counter(effort.directory)
    before = flushed() if flushed else 0
    for sent in range(count):
        while len(latencies) < sent:
            time.sleep(PAUSE_SECONDS / 4)
        time.sleep(PAUSE_SECONDS)
        producer.send_and_wake(b"%020d" % time.perf_counter_ns() + filler)
    receiver.join()
    paid = flushed() - before if flushed else None
    peer.close()
    return Measured(statistics.median(latencies[WARM_UP:] or latencies) / 1000, count, paid)


def _receive(consumer: Consumer, count: int, latencies: list[int]) -> None:
    for _ in range(count):
        body = consumer.wait()
        latencies.append(time.perf_counter_ns() - int(body[:STAMP_BYTES]))


ROWS = (
    Row(
        name="wakeup",
        title="producer to a woken consumer, same process, p50",
        unit="us",
        work=measure,
        subjects=("fmq", "raw", *DURABLE_PEERS),
        goals=(Goal("figure", 240),),
        more_is_better=False,
    ),
)
