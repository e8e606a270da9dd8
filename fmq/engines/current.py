"""`fmq.current_transaction`: the transaction to which the code that runs now belongs."""

from __future__ import annotations

from typing import Protocol, cast

from fmq.tx.commands.blocks import innermost
from fmq.tx.commands.transaction import Transaction


class NamesStore(Protocol):
    """The feedback service of an engine, which knows the id of the directory."""

    @property
    def store(self) -> str: ...


class HasStore(Protocol):
    """An engine, in this process or in another one, blocking or for asyncio."""

    @property
    def feedback(self) -> NamesStore: ...


def current_transaction(of: HasStore | None = None) -> Transaction | None:
    """Return the transaction whose block runs here: the innermost one, or None.

    With `of`, an engine, only blocks of the same directory count, whichever handle of this process
    began them. Each thread has its own blocks. A task of asyncio begins with those of the code that
    started it. A session of SQLAlchemy that an outbox is attached to counts as a block from its
    `begin()` on, or once it has changed something. So does each block of Django's whose alias an
    outbox is attached to. On a loop the transaction is an AsyncTransaction.
    """
    found = innermost(None if of is None else of.feedback.store)
    return cast(Transaction | None, found)
