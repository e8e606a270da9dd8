"""What a producer is asked; imported with the first question."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Question:
    """One undecided transaction, handed to one who may know what became of it."""

    tx_id: str
    producer: str
    prepared_at: datetime
    topics: tuple[str, ...]
    messages: int
    bytes: int
    seal: str
    store: str
    """The id of the directory: a decision names store, transaction and seal."""
    tx: int
    """The transaction's number, which is never used twice in a store."""
    token: str
    """The answer "unknown" needs it; it ends when, after the lease, the question is asked again."""
    lease_seconds: float
    """For how long nobody else is asked."""
    answers: int
    """How often the answer has been "unknown" so far."""
    bound: bool = False
    """Whether it was bound to a database, which has a mark if it committed."""
