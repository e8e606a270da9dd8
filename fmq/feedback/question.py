"""A question: what a checker is asked about one undecided transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Question:
    """One undecided transaction, handed to a checker that may know what became of it."""

    tx_id: str
    producer: str
    prepared_at: datetime
    topics: tuple[str, ...]
    messages: int
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
