"""An outbox for Django: it sends messages when the outermost atomic block commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from fmq.bind.bind_errors import BindError
from fmq.bind.bound_transaction import BoundTransaction
from fmq.bind.django.outbox_binding import OutboxBinding
from fmq.bind.django.outermost import block_of, note_outbox
from fmq.bind.interface import TransactionFactory
from fmq.tx.commands.blocks import innermost
from fmq.tx.commands.transaction import Transaction


def attach(
    engine: TransactionFactory | Callable[[], TransactionFactory],
    using: str = DEFAULT_DB_ALIAS,
    *,
    producer: str | None = None,
    check_after: float | None = None,
) -> DjangoOutbox:
    """Return an outbox that sends messages through `engine` when a block of `using` commits.

    After any crash both the rows and the messages are there, or neither. ENGINE of the alias must
    be one of fmq.bind.django. `engine` may be a function that returns the engine. Neither the
    engine nor the database is used before the first message.
    """
    return DjangoOutbox(engine, using, producer, check_after)


class DjangoOutbox:
    """Holds the messages of atomic blocks until the outermost one commits. `attach` makes it.

    All threads may use it: each has its own connection, and so its own block.
    """

    def __init__(
        self,
        engine: TransactionFactory | Callable[[], TransactionFactory],
        using: str,
        producer: str | None,
        check_after: float | None,
    ) -> None:
        self._given = engine
        self._using = using
        self._names: dict[str, Any] = {"producer": producer, "check_after": check_after}
        # True if a block could not register the producer. Then the next block registers it before
        # it begins.
        self.is_late = False
        note_outbox(self, using)

    @property
    def _engine(self) -> TransactionFactory:
        return self._given() if callable(self._given) else self._given

    @property
    def store(self) -> str:
        """Return the UUID of the store."""
        return self._engine.feedback.store

    def transaction(self) -> Transaction:
        """Return a transaction to send with, which commits if, and only if, the outermost block of
        this thread does.

        It ends with that block. Call this again for the next one. Rolling back a savepoint, that
        is, an inner block that raises, drops what was sent inside of it. Raises BindError if no
        block is open.
        """
        block = block_of(connections[self._using])
        if block.driven_by is None:
            return block.transaction_of(self)
        found = innermost(self.store)
        if isinstance(found, BoundTransaction) and found._binding is block.driven_by:
            return found
        raise BindError(
            f"database alias {self._using!r}: the block was begun by fmq.bind.django.atomic of "
            "another engine, and commits with that one alone. Nothing was sent; begin it with "
            "transaction.atomic."
        )

    def register(self) -> None:
        """Write durably that the producer binds this database. Only SQLite needs the call.

        The first message does this by itself. But SQLite has one writer, which may be the block
        that sends. Then the first block of a new database fails, and the next one works.
        """
        self._begun(connections[self._using]).give_up()

    def before_block(self) -> None:
        """Register the producer if an earlier block could not do so."""
        if self.is_late:
            with suppress(Exception):  # a send raises the error again
                self.register()

    def begin(self, connection: Any) -> BoundTransaction:
        """Return a new transaction for the open block of `connection`."""
        tx = self._begun(connection)
        try:
            tx.warn_of_loss(tx._binding.join())  # type: ignore[attr-defined]
        except BaseException:
            tx.give_up()
            raise
        return tx

    def _begun(self, connection: Any) -> BoundTransaction:
        binding = OutboxBinding(connection)
        try:
            tx = self._engine.transaction(**self._names, bind=binding)
        finally:
            self.is_late = binding.is_late
        assert isinstance(tx, BoundTransaction)
        return tx
