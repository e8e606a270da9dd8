"""What one task writes of a job: transactions that it has prepared, or a few rows that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from fmq.errors import TooLarge, TooMany
from fmq.intake.row_columns import ManySent

PART_BYTES = 4 << 20
"""About so much is prepared in one transaction: it has to fit into a segment."""


class RowsEngine(Protocol):
    """An engine of this process, or a client of one."""

    def transaction(self, *, tx_id: str | None = None, producer: str | None = None) -> Any: ...
    def mark(self, name: str) -> Any: ...
    def undecided(self) -> list[Any]: ...
    def outcome(self, tx_id: str) -> Any: ...
    def decide_many(self, tx_ids: Iterable[str], decision: Any, *, mark: Any = None) -> None: ...


class JobPart(NamedTuple):
    """What one task has written. The order of its rows is that of `prepared`."""

    prepared: tuple[str, ...] = ()
    """Ids of prepared transactions."""
    held: tuple[ManySent, ...] = ()
    """Rows that are nowhere yet: so few that the commit of the job sends them itself."""
    messages: int = 0
    skipped: bool = False
    """Whether the task has left out its rows, because the job was committed before."""


def send_all(tx: Any, sent: Iterable[ManySent]) -> None:
    """Add messages to a transaction. Raises TooLarge or TooMany if it has no room for them."""
    for each in sent:
        tx.send_many(
            each.topic,
            each.messages,
            queue=each.queue,
            delay=each.delay,
            deliver_at=each.deliver_at,
        )


def prepared_parts(
    engine: RowsEngine, producer: str, ids: Iterator[str], sent: Sequence[ManySent]
) -> Iterator[str]:
    """Prepare `sent` as one transaction, or as several if that has no room for all. Yield the id
    of each.
    """
    tx = engine.transaction(tx_id=next(ids), producer=producer)
    try:
        send_all(tx, sent)
    except (TooLarge, TooMany):
        tx.rollback()
        halves = _halves(sent)
        if halves is None:
            raise
        for half in halves:
            yield from prepared_parts(engine, producer, ids, half)
        return
    try:
        tx.prepare()
    except (TooLarge, TooMany):
        tx.rollback()
        raise
    yield tx.tx_id


def _halves(sent: Sequence[ManySent]) -> tuple[Sequence[ManySent], Sequence[ManySent]] | None:
    """Return the messages in two parts; None if there is only one message."""
    if len(sent) > 1:
        return sent[: len(sent) // 2], sent[len(sent) // 2 :]
    middle = len(sent[0].messages) // 2
    if not middle:
        return None
    return [sent[0].part(0, middle)], [sent[0].part(middle, None)]
