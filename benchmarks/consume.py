"""Consume and ack durably, by 1, by 100 and by 1,000 messages: how many a second?

The messages are stored before; they are read until time is up or none is left. A batch gives
its bodies, nothing more: message objects would have to be asked for.
"""

from __future__ import annotations

import time
from functools import partial

from benchmarks import payload
from benchmarks.loop import Effort, Measured, rate
from benchmarks.peers import open_peer
from benchmarks.row import DURABLE_PEERS, Goal, Row

BODY_BYTES = 100
BATCH = 1000
SETTLE_SECONDS = 2.0  # for what the load left anybody to do in the background
STORED = {1: 40_000, 100: 300_000, 1000: 1_000_000}


def measure(subject: str, effort: Effort, *, limit: int) -> Measured:
    peer = open_peer(subject, effort.directory)
    peer.load(
        payload.stream(payload.equal(BODY_BYTES), effort.scaled(STORED[limit]), BATCH),
        singly=False,
    )
    consumer = peer.consumer()
    time.sleep(SETTLE_SECONDS)
    measured = rate([lambda: consumer.consume(limit)], effort, warm_up=False)
    peer.close()
    return measured


def row(limit: int, factor: float) -> Row:
    return Row(
        name=f"consume-{limit}",
        title=f"consume with durable ack, by {limit:,}",
        unit="msgs/s",
        work=partial(measure, limit=limit),
        subjects=("fmq", "raw", *DURABLE_PEERS),
        goals=(Goal("best peer", factor),),
        syncs_min=1,
    )


ROWS = (row(1, 1.15), row(100, 1.2), row(1000, 1.5))
