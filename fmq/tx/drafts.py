"""What a transaction says, before it has a place: contents, and records for its two phases."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from fmq.store.columns import Content, encode_bodies, encode_items
from fmq.store.kinds import COMMIT, PRE_MESSAGE, Decided, Kind, Prepare, Run
from fmq.tx.seal import seal_of
from fmq.tx.transaction import Transaction


def encoder_of(transaction: Transaction) -> Callable[..., Content]:
    """What puts the messages for one of its queues into columns."""
    return encode_bodies if transaction.plain else encode_items


def runs_of(transaction: Transaction, compress_bytes_min: int | None) -> list[Run]:
    """Its messages as PRE_MESSAGEs, a run for each queue."""
    runs = []
    tx_id, producer = transaction.tx_id, transaction.producer
    encode = encoder_of(transaction)
    for (topic, queue), items in transaction.runs.items():
        content = encode(items, compress_bytes_min)
        count, raw_bytes = content.count, content.raw_bytes
        run = Run(PRE_MESSAGE, topic, queue, 0, count, 0, 0, tx_id, producer, 0, content, raw_bytes)
        run.bodies_crc = content.bodies_crc
        if content.columns:
            run.columns_crc = crc32(content.columns)
        runs.append(run)
    return runs


def prepare_of(transaction: Transaction, runs: list[Run]) -> Prepare:
    """PREPARE, which states and seals `runs`."""
    prepare = Prepare(
        transaction.tx_id,
        transaction.producer,
        0,
        len(runs),
        transaction.messages,
        sum([run.raw_bytes for run in runs]),
        seal_of(runs),
        transaction.acks,
        check_after_ms=transaction.check_after_ms,
    )
    prepare.bound = transaction.bound
    return prepare


def decision_on(
    prepare: Prepare, kind: Kind, decided_by: str = "", reason: str = "", asked: int = 0
) -> Decided:
    """COMMIT or ROLLBACK of what `prepare` states; a COMMIT counts what it publishes."""
    commits = kind == COMMIT
    return Decided(
        kind,
        prepare.tx,
        prepare.tx_id,
        prepare.producer,
        0,
        prepare.prepared_us,
        prepare.records if commits else 0,
        prepare.messages if commits else 0,
        prepare.bytes,
        prepare.seal,
        decided_by,
        reason,
        asked=asked,
    )
