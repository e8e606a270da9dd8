"""`fmq.current_transaction`: which transaction the code that runs now belongs to."""

from __future__ import annotations

from typing import Protocol

from fmq.feedback.service import Feedback
from fmq.tx.running import innermost
from fmq.tx.transaction import Transaction


class HasStore(Protocol):
    """An engine, in this process or in another one."""

    @property
    def feedback(self) -> Feedback: ...


def current_transaction(of: HasStore | None = None) -> Transaction | None:
    """Return the transaction whose block runs here, the innermost if there are several, else None.

    With `of`, an engine, only blocks of the same directory count, whichever handle of this process
    began them. Each thread has its own blocks. A task of asyncio begins with those of the code that
    started it. A session of SQLAlchemy that an outbox is attached to counts as a block from its
    `begin()` on, or once it has changed something.
    """
    return innermost(None if of is None else of.feedback.store)
