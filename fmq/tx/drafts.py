"""What a transaction says, before it has a place: its messages as rows, and what states them.

A draft is made once, outside of the lock. One phase writes its rows as TX_MESSAGEs; two write
them as PRE_MESSAGEs and, if they are small enough to be kept until then, the same rows again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32

from fmq.store.columns import COMPRESSED, U32
from fmq.store.content import Content, encode_bodies, encode_items
from fmq.store.encoding import TX_RUN_BYTES, names_of
from fmq.store.kinds import COMMIT, PRE_MESSAGE, Decided, Kind, Prepare, Run
from fmq.store.record import aligned
from fmq.tx.seal import SEALED, digest

if TYPE_CHECKING:
    from fmq.tx.transaction import Transaction

U32_pack, pack_sealed = U32.pack, SEALED.pack

# Messages for one queue, and what their record says of them wherever it stands: the names and
# columns at the end of its head, its size, and the bytes of the topic's name.
Row = tuple[str, int, Content, bytes, int, int]


class Draft:
    """The messages of one transaction, a row for each queue, and what states and seals them."""

    __slots__ = ("bytes", "messages", "rows", "seal", "size", "topics")

    rows: list[Row]

    def __init__(self, transaction: Transaction, compress_bytes_min: int | None) -> None:
        tx_id, producer = transaction.names
        encode: Callable[..., Content] = encode_bodies if transaction.plain else encode_items
        tx_id_bytes = tx_id.encode()
        self.rows = rows = []
        self.topics = transaction.topics_to_make() if transaction.unheard else []
        sealed: list[bytes] = []
        size_of_all = messages = raw_bytes = 0
        for (topic, number), items in transaction.runs.items():
            content = encode(items, compress_bytes_min)
            columns, count = content.columns, content.count
            topic_bytes, _, names = names_of(topic, producer)
            tail = names + tx_id_bytes
            if content.flags:
                tail = tail_of(tail, content)
            size = TX_RUN_BYTES + len(tail) + len(content.bodies)
            rows.append((topic, number, content, tail, size, topic_bytes))
            sealed += (
                pack_sealed(number, count, content.bodies_crc, crc32(columns) if columns else 0),
                names[:topic_bytes],
            )
            size_of_all += (size + 7) & ~7
            messages += count
            raw_bytes += content.raw_bytes
        self.messages = messages
        self.bytes = raw_bytes
        self.seal = digest(sealed)
        self.size = size_of_all  # of its records, padding included

    def is_small(self, bytes_min: int) -> bool:
        """Whether no record of it has as much as `bytes_min` of bodies."""
        return self.size < bytes_min or all(len(row[2].bodies) < bytes_min for row in self.rows)

    def runs(self, prepare: Prepare, *, kept: bool) -> list[Run]:
        """Its PRE_MESSAGEs, which stand behind `prepare`; with what they hold, if it is `kept`."""
        runs, at = [], prepare.position + aligned(prepare.size)
        for topic, number, content, tail, size, _ in self.rows:
            run = Run(
                PRE_MESSAGE,
                topic,
                number,
                0,
                content.count,
                prepare.time_us,
                prepare.tx,
                prepare.tx_id,
                prepare.producer,
                0,
                content if kept else None,
                content.raw_bytes,
            )
            run.bodies_crc, run.columns_crc = content.bodies_crc, crc32(content.columns)
            run.tail, run.size, run.position = tail, size, at
            runs.append(run)
            at += aligned(size)
        return runs


def tail_of(names: bytes, content: Content) -> bytes:
    """What ends the head of a record that holds `content`."""
    if content.flags & COMPRESSED:
        names += U32_pack(content.raw_bytes)
    return names + content.columns


def prepare_of(transaction: Transaction, draft: Draft) -> Prepare:
    """PREPARE, which states and seals `draft`."""
    prepare = Prepare(
        transaction.tx_id,
        transaction.producer,
        0,
        len(draft.rows),
        draft.messages,
        draft.bytes,
        draft.seal,
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
