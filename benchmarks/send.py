"""Single sends of 100 bytes, each durable before the call returns: how many a second?

With one thread this is the disk's sync and little else, so the raw loop stands beside it. With
eight it is a matter of who shares a sync and wakes whom.
"""

from __future__ import annotations

from functools import partial

from benchmarks import payload
from benchmarks.loop import Effort, Measured, Operation, rate
from benchmarks.peers import open_peer
from benchmarks.peers.protocol import Producer
from benchmarks.row import DURABLE_PEERS, Goal, Row

BODY_BYTES = 100


def sender(producer: Producer) -> Operation:
    """Sends one body of the pool after the other."""
    pool = payload.equal(BODY_BYTES)
    sent = 0

    def send() -> int:
        nonlocal sent
        producer.send(pool[sent % payload.POOL])
        sent += 1
        return 1

    return send


def measure(subject: str, effort: Effort, *, threads: int) -> Measured:
    peer = open_peer(subject, effort.directory)
    measured = rate([sender(peer.producer()) for _ in range(threads)], effort)
    peer.close()
    return measured


ROWS = (
    Row(
        name="send-1",
        title="single send, 1 thread",
        unit="msgs/s",
        work=partial(measure, threads=1),
        subjects=("fmq", "raw", *DURABLE_PEERS),
        goals=(Goal("best peer", 1.15), Goal("raw", 0.85)),
        syncs_min=1,
    ),
    Row(
        name="send-8",
        title="single send, 8 threads",
        unit="msgs/s",
        work=partial(measure, threads=8),
        subjects=("fmq", *DURABLE_PEERS),
        goals=(Goal("best peer", 1.3),),
    ),
)
