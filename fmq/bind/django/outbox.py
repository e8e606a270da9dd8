"""An outbox for Django: it sends messages when the outermost atomic block commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from fmq.bind import drivers
from fmq.bind.bind_errors import BindError
from fmq.bind.bound_transaction import BoundTransaction
from fmq.bind.django.binding import DjangoDatabase, driver_of
from fmq.bind.django.outermost import block_of, note_outbox
from fmq.bind.interface import TransactionFactory
from fmq.bind.joined import JoinedBinding
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
        # A block could not register the producer, so it is done before the next block.
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


class OutboxBinding(JoinedBinding):
    """A Django connection, bound to one transaction that its own atomic blocks begin and end."""

    ended_by = "outermost block"
    # True inside of a TestCase, where it ends with the block of the program.
    ends_in_test = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.is_late = False  # the producer can be registered only outside of a block
        database = DjangoDatabase(connection.alias)
        self.check = database.check
        self.purge = database.purge

    @cached_property
    def _inner(self) -> Any:
        """Return the binding of the driver's connection."""
        return drivers.binding_of(driver_of(self.connection))

    @cached_property
    def path(self) -> str:  # type: ignore[override]
        return str(self._inner.path)

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Write durably that `producer` binds this database. Return the place of its markers."""
        with self._copied() as other:
            if self.connection.vendor != "sqlite" or not self.connection.in_atomic_block:
                return str(other.register(store, producer, new=new))
            if other.knows(store, producer):
                return ""
        self.is_late = True
        raise BindError(
            f"{self.path}: this database does not know producer {producer!r} yet. That has to be "
            "written before the first message, on another connection, and SQLite has one writer, "
            "which may be this block. Nothing was sent. Do the work again: the next block writes "
            "it before it begins. Or call outbox.register() where the program begins."
        )

    @contextmanager
    def _copied(self) -> Iterator[Any]:
        """Return the binding of a separate driver connection, which is not in autocommit."""
        copy = self.connection.copy()
        try:
            with copy.wrap_database_errors:
                copy.set_autocommit(False)
                yield drivers.binding_of(copy.connection)
        finally:
            copy.close()

    def join(self) -> str:
        """Join the open transaction. Return a warning if its commit may be lost; else ""."""
        with self.connection.wrap_database_errors:
            return str(self._inner.join())

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement. Return its place.

        Raises Fenced if a checker has ruled the transaction out, or the deadline is over.
        """
        with self.connection.wrap_database_errors:
            return str(self._inner.insert_marker(store, tx_id))

    def proves_rollback(self, failed: BaseException) -> bool:
        """Return whether an error of the connection's COMMIT proves that nothing was committed."""
        # Django raises its own error from the driver's error.
        return bool(self._inner.proves_rollback(failed.__cause__ or failed))
