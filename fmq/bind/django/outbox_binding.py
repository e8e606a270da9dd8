"""Bind the transaction of a Django connection that the connection's own blocks begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from fmq.bind.bind_errors import BindError
from fmq.bind.django.binding import DjangoDatabase, driver_of
from fmq.bind.driver_classes import binding_of_driver
from fmq.bind.joined import JoinedBinding


class OutboxBinding(JoinedBinding):
    """A Django connection, bound to one transaction that its own atomic blocks begin and end."""

    ended_by = "outermost block"
    # True inside of a TestCase, where the transaction ends with the block of the program.
    ends_in_test = False

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        # True if the producer could not be registered, because a block was open.
        self.is_late = False
        database = DjangoDatabase(connection.alias)
        self.check = database.check
        self.purge = database.purge

    @cached_property
    def _inner(self) -> Any:
        """Return the binding of the driver's connection."""
        return binding_of_driver(driver_of(self.connection))

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
                yield binding_of_driver(copy.connection)
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
