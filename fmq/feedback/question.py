"""A question: what a checker is asked about one undecided transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from fmq.basics.message import Message
from fmq.errors import Closed


@dataclass(frozen=True, slots=True)
class Question:
    """One undecided transaction, as a checker is asked about it."""

    tx_id: str
    producer: str
    prepared_at: datetime
    topics: tuple[str, ...]
    message_count: int
    bytes: int
    seal: str
    store: str
    """The id of the directory. A decision names store, transaction and seal."""
    tx: int
    """The transaction's number, which is never used twice in a store."""
    token: str
    """Marks this question. The answer "unknown" needs it, until the question is asked again."""
    lease_seconds: float
    """For how long no other call gets the question."""
    answers: int
    """How many answers were "unknown" so far."""
    bound: bool = False
    """Whether it was bound to a database, which has a marker if it committed."""
    _read: Callable[[Question], list[Message]] | None = field(
        default=None, repr=False, compare=False
    )

    def messages(self) -> list[Message]:
        """Return the messages that a commit would publish, with keys, tags, headers and bodies.

        They have no offsets yet. Raises UnknownTransaction if it is decided by now.
        """
        if self._read is None:
            raise Closed(
                f"transaction {self.tx_id!r}: this question was copied, and reaches no engine. "
                "Nothing was changed; ask the engine for it again."
            )
        return self._read(self)
