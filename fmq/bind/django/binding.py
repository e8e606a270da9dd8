"""Bind Django's connections: an atomic block around the binding of the driver's connection.

Savepoints, on_commit and the thread's connection work as in any atomic block. The inner binding
begins and commits on the driver's connection, so Django's own commit finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from fmq.bind.bind_errors import BindError, Unreachable, unusable_connection
from fmq.bind.dialects import MarkerRows
from fmq.bind.driver_classes import binding_of_driver, module_of_driver
from fmq.bind.interface import Binding
from fmq.errors import BadOption
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question


class DjangoBinding:
    """One alias of the user's DATABASES, in one thread, for one transaction."""

    def __init__(self, connection: Any) -> None:
        self._django = thread_connection(connection)
        refuse_open_block(self._django)
        self._inner = binding_of_driver(driver_of(self._django))
        self._registered: Binding | None = None
        self.path = self._inner.path
        self._atomic: Any = None
        self._committed = False

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Write durably that `producer` binds this database. Return the place of its markers."""
        with self._entered():
            place = self._inner.register(store, producer, new=new)
        # Keep the inner binding: it can read markers after Django has closed the connection.
        self._registered = self._inner
        self.leave()
        return place

    def begin(self) -> str:
        """Begin Django's outermost atomic block. Return a warning if commits may be lost; else
        "".
        """
        with self._entered():
            return self._inner.begin()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Enter an atomic block of Django, and leave it if the body raises."""
        refuse_open_block(self._django)
        self._atomic = transaction.atomic(self._django.alias, durable=True)
        self._atomic.__enter__()
        if getattr(self._django, "fmq_block", None) is not None:
            self._django.fmq_block.driven_by = self
        try:
            with self._django.wrap_database_errors:
                # Bind anew: Django may have opened a new connection.
                self._inner = binding_of_driver(driver_of(self._django))
                # End the transaction that Django began. SQLite may refuse the first write of a
                # deferred one.
                self._inner.rollback()
                yield
        except BaseException:
            self.leave()
            raise

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement. Return its place.

        Raises Fenced if a checker has ruled the transaction out, or the deadline is over.
        """
        self._django.validate_thread_sharing()
        # If an inner block failed, Django would roll back this block without an error.
        self._django.validate_no_broken_transaction()
        with self._django.wrap_database_errors:
            return self._inner.insert_marker(store, tx_id)

    def commit(self) -> None:
        """Commit the database's transaction."""
        with self._django.wrap_database_errors:
            self._inner.commit()
        self._committed = True

    def rolled_back_for_sure(self) -> bool:
        """Return whether a commit that raised certainly did not happen."""
        return self._inner.rolled_back_for_sure()

    def rollback(self) -> None:
        """Roll back the database's transaction."""
        with self._django.wrap_database_errors:
            self._inner.rollback()

    def leave(self) -> None:
        """End Django's block. After a commit this runs the functions given to on_commit."""
        if self._committed:
            self._atomic.__exit__(None, None, None)
            return
        self._django.set_rollback(True)
        with suppress(Error):  # the error with which the block has ended says more
            self._atomic.__exit__(None, None, None)

    def check(self, question: Question) -> Answer:
        """Ask on a new connection what the database did with the transaction."""
        return (self._registered or self._inner).check(question)

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers on a new connection, and return how many."""
        return (self._registered or self._inner).purge(store, undecided, older_seconds)


def thread_connection(connection: Any) -> Any:
    """Return this thread's connection of the alias, which its models use."""
    found = connections[connection.alias]
    if isinstance(connection, BaseDatabaseWrapper) and connection is not found:
        raise unusable_connection(
            "it belongs to another thread, or is a copy. Pass django.db.connection."
        )
    return found


def refuse_open_block(connection: Any) -> None:
    """Raise BindError if other code would end the transaction of the block."""
    where = f"database alias {connection.alias!r}"
    if connection.in_atomic_block:
        raise BindError(
            f"{where}: an atomic block is open already (ATOMIC_REQUESTS and TestCase open one, "
            "too), and a block inside cannot know whether the outermost one commits. Nothing was "
            "changed. Send through an outbox, fmq.bind.django.attach, which commits with the "
            "outermost one. Or let fmq's block be that: with transaction.non_atomic_requests on "
            "a view, with TransactionTestCase in a test."
        )
    if not connection.get_autocommit():
        raise BindError(
            f"{where}: with AUTOCOMMIT off it is always in a transaction, which may hold work "
            "that is not to be part of this one. Nothing was changed; switch it on."
        )


def driver_of(connection: Any) -> Any:
    """Return the driver's connection, which is open."""
    connection.ensure_connection()
    return connection.connection


class DjangoDatabase:
    """The database of an alias. Each call uses a new connection."""

    def __init__(self, alias: str) -> None:
        try:
            aliases = [*connections]
        except ImproperlyConfigured as error:
            raise BadOption(
                f"django://{alias}: needs the settings of a project ({error}). Nothing was changed."
            ) from error
        if alias not in aliases:
            raise BadOption(f"django://{alias}: DATABASES has only {', '.join(connections)}")
        self._alias = alias

    def check(self, question: Question) -> Answer:
        """Ask the database what it did, in the way of its driver."""
        with self._binding() as binding:
            return binding.check(question)

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers that no checker can ask about any more, and return how many."""
        with self._binding() as binding:
            return binding.purge(store, undecided, older_seconds)

    def markers(self, store: str) -> MarkerRows:
        """Return the rows of a store in the marker table."""
        with self._driver() as driver:
            rows: MarkerRows = module_of_driver(driver).markers(driver, store)
            return rows

    @contextmanager
    def _binding(self) -> Iterator[Binding]:
        with self._driver() as driver:
            yield binding_of_driver(driver)

    @contextmanager
    def _driver(self) -> Iterator[Any]:
        # This thread's own connection may be inside of a transaction.
        connection = connections[self._alias].copy()
        try:
            yield driver_of(connection)
        except OperationalError as error:
            raise Unreachable(str(error)) from error
        finally:
            connection.close()


def create_table(connection: Any) -> None:
    """Make the marker table if it does not exist."""
    refuse_open_block(connection)
    driver = driver_of(connection)
    module_of_driver(driver).create_table(driver)


def purge(connection: Any, store: str, undecided: frozenset[str], older_seconds: float) -> int:
    """Remove markers that no checker can ask about any more, and return how many."""
    refuse_open_block(connection)
    driver = driver_of(connection)
    removed: int = module_of_driver(driver).purge(driver, store, undecided, older_seconds)
    return removed


binding = DjangoBinding
