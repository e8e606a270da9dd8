"""Single sends while another thread of the process computes in pure Python: how many a second?

A system call gives up the interpreter's lock and then waits for it up to the switch interval
(5 ms), so every peer that releases it falls to some two hundred sends a second. rocksdict keeps
the lock while it syncs and is fast here, as fmq is with hold_gil=True, at the same price: other
threads stand still meanwhile. It is shown beside, and the default is not measured against it.
"""

from __future__ import annotations

import threading

from benchmarks.loop import Effort, Measured, rate
from benchmarks.peers import open_peer
from benchmarks.row import DURABLE_PEERS, Goal, Row
from benchmarks.send import sender


def measure(subject: str, effort: Effort) -> Measured:
    peer = open_peer(subject, effort.directory)
    stop = threading.Event()
    computer = threading.Thread(target=_compute, args=(stop,))
    computer.start()
    try:
        return rate([sender(peer.producer())], effort)
    finally:
        stop.set()
        computer.join()
        peer.close()


def _compute(stop: threading.Event) -> None:
    total = 0
    while not stop.is_set():
        for number in range(1000):
            total += number * number


TITLE = "single send beside a thread that computes"

ROWS = (
    Row(
        name="gil",
        title=TITLE,
        unit="msgs/s",
        work=measure,
        subjects=("fmq", *DURABLE_PEERS),
        goals=(Goal("best peer", 1.0),),
        outside=("rocksdict",),
    ),
    Row(
        name="gil-held",
        title=f"{TITLE}, hold_gil=True",
        unit="msgs/s",
        work=measure,
        subjects=("fmq-hold-gil", "rocksdict"),
        goals=(Goal("figure", 3000),),
    ),
)
