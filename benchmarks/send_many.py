"""Many messages a call, durable together: how many a second?"""

from __future__ import annotations

import itertools
from functools import partial

from benchmarks import payload
from benchmarks.loop import Effort, Measured, rate
from benchmarks.peers import open_peer
from benchmarks.row import DURABLE_PEERS, Goal, Row


def measure(subject: str, effort: Effort, *, size: int, batch: int) -> Measured:
    peer = open_peer(subject, effort.directory)
    producer = peer.producer()
    batches = itertools.cycle(payload.batches(payload.equal(size), batch))

    def send() -> int:
        producer.send_many(next(batches))
        return batch

    measured = rate([send], effort)
    peer.close()
    return measured


def row(size: int, batch: int, factor: float) -> Row:
    return Row(
        name=f"send-many-{batch}" + ("-1k" if size == 1024 else ""),
        title=f"send_many, {batch:,} of {'1 KiB' if size == 1024 else f'{size} B'} a call",
        unit="msgs/s",
        work=partial(measure, size=size, batch=batch),
        subjects=("fmq", "raw", *DURABLE_PEERS),
        goals=(Goal("best peer", factor),),
        syncs_min=1,
    )


ROWS = (row(100, 100, 1.7), row(100, 1000, 1.9), row(1024, 1000, 1.4))
