"""Transactions of ten messages of 100 bytes to three queues: how many commits a second?

In one phase: all ten durable and visible at once. In two: durable and invisible first, then
published, durably again; in between lies the commit of the user's database.
"""

from __future__ import annotations

import itertools
from functools import partial

from benchmarks import payload
from benchmarks.loop import Effort, Measured, Operation, rate
from benchmarks.peers import open_peer
from benchmarks.peers.protocol import LANES, Messages, Producer
from benchmarks.row import DURABLE_PEERS, Goal, Row

BODY_BYTES = 100
MESSAGES = 10


def transactions() -> list[Messages]:
    """The pool, ten messages a transaction, turn by turn over the lanes."""
    return [
        [(place % LANES, body) for place, body in enumerate(bodies)]
        for bodies in payload.batches(payload.equal(BODY_BYTES), MESSAGES)
    ]


def committer(producer: Producer, *, phases: int) -> Operation:
    """Commits one transaction after the other."""
    work = itertools.cycle(transactions())
    commit = producer.transaction if phases == 1 else producer.two_phase

    def operation() -> int:
        commit(next(work))
        return 1

    return operation


def measure(subject: str, effort: Effort, *, threads: int, phases: int) -> Measured:
    peer = open_peer(subject, effort.directory)
    work = [committer(peer.producer(), phases=phases) for _ in range(threads)]
    measured = rate(work, effort)
    peer.close()
    return measured


def row(threads: int, phases: int, factor: float) -> Row:
    return Row(
        name=f"tx-{threads}" if phases == 1 else f"tx-two-phase-{threads}",
        title=f"transaction of 10 to 3 queues, {'one phase' if phases == 1 else 'two phases'}, "
        f"{threads} thread{'s' if threads > 1 else ''}",
        unit="tx/s",
        work=partial(measure, threads=threads, phases=phases),
        subjects=("fmq", *(("raw",) if threads == 1 else ()), *DURABLE_PEERS),
        goals=(Goal("best peer", factor),),
        syncs_min=phases if threads == 1 else 0,
    )


ROWS = (row(1, 1, 1.2), row(8, 1, 1.5), row(1, 2, 1.2), row(8, 2, 1.7))
