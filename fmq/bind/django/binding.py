"""Django's connections: its atomic block around what the connection inside of it is bound by.

Savepoints, on_commit and the thread's one connection work as in any atomic block. What is said to
the database is said on the driver's connection; Django's own commit then finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import Error, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from fmq.bind import drivers
from fmq.bind.errors import BindError, Unreachable, unusable
from fmq.bind.interface import Binding
from fmq.errors import BadOption
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question


class DjangoBinding:
    """One alias of the user's DATABASES, in one thread, for one transaction."""

    def __init__(self, connection: Any) -> None:
        self._django = thread_connection(connection)
        refuse_open_block(self._django)
        self._inner = drivers.binding_of(driver_of(self._django))
        self._registered: Binding | None = None
        self.path = self._inner.path
        self._atomic: Any = None
        self._committed = False

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Have the database know, for good, that it is the one that `producer` binds."""
        with self._entered():
            place = self._inner.register(store, producer, new=new)
        self._registered = self._inner  # it knows where to ask when Django has closed this one
        self.leave()
        return place

    def begin(self) -> str:
        """Begin Django's outermost atomic block; what may take back its commits, or nothing."""
        with self._entered():
            return self._inner.begin()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """In a block of Django's, which is left again if something goes wrong."""
        refuse_open_block(self._django)
        self._atomic = transaction.atomic(self._django.alias, durable=True)
        self._atomic.__enter__()
        try:
            with self._django.wrap_database_errors:
                self._inner = drivers.binding_of(driver_of(self._django))  # perhaps connected anew
                self._inner.rollback()  # Django's BEGIN; on SQLite it takes no right to write
                yield
        except BaseException:
            self.leave()
            raise

    def mark(self, store: str, tx_id: str) -> str:
        """The last statement of the database's transaction; Fenced if it comes too late."""
        self._django.validate_thread_sharing()
        # A block inside of which another one failed: Django would roll it back and say nothing.
        self._django.validate_no_broken_transaction()
        with self._django.wrap_database_errors:
            return self._inner.mark(store, tx_id)

    def commit(self) -> None:
        with self._django.wrap_database_errors:
            self._inner.commit()
        self._committed = True

    def rolled_back_for_sure(self) -> bool:
        """After a commit that failed: whether it is certain that it did not happen."""
        return self._inner.rolled_back_for_sure()

    def rollback(self) -> None:
        """Drop what the database's transaction has done."""
        with self._django.wrap_database_errors:
            self._inner.rollback()

    def leave(self) -> None:
        """End Django's block, too. It runs what waits for on_commit, if there was a commit."""
        if self._committed:
            self._atomic.__exit__(None, None, None)
            return
        self._django.set_rollback(True)
        with suppress(Error):  # what the block itself raised says more
            self._atomic.__exit__(None, None, None)

    def check(self, question: Question) -> Answer:
        """What became of the transaction, on a connection of its own."""
        return (self._registered or self._inner).check(question)

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove rows that are over, on a connection of its own; how many."""
        return (self._registered or self._inner).purge(store, undecided, older_seconds)


def thread_connection(connection: Any) -> Any:
    """This thread's connection of that alias: the one that models use here."""
    found = connections[connection.alias]
    if isinstance(connection, BaseDatabaseWrapper) and connection is not found:
        raise unusable("it is another thread's, or a copy. Name django.db.connection.")
    return found


def refuse_open_block(connection: Any) -> None:
    """BindError if somebody else is to end what would be begun."""
    where = f"database alias {connection.alias!r}"
    if connection.in_atomic_block:
        raise BindError(
            f"{where}: an atomic block is open already (ATOMIC_REQUESTS and TestCase open one, "
            "too), and whether the outermost one commits is told to nobody inside. Nothing was "
            "changed. Let fmq's block be the outermost: with transaction.non_atomic_requests on "
            "a view, with TransactionTestCase in a test."
        )
    if not connection.get_autocommit():
        raise BindError(
            f"{where}: with AUTOCOMMIT off it is always in a transaction, which may hold work "
            "that is not to be part of this one. Nothing was changed; switch it on."
        )


def driver_of(connection: Any) -> Any:
    """The connection of the database's driver, open."""
    connection.ensure_connection()
    return connection.connection


class DjangoDatabase:
    """The database of an alias, reached on a connection of its own for each call."""

    def __init__(self, alias: str) -> None:
        if alias not in list(connections):
            raise BadOption(f"django://{alias}: DATABASES has only {', '.join(connections)}")
        self._alias = alias

    def check(self, question: Question) -> Answer:
        """As the driver's own checker does."""
        with self._binding() as binding:
            return binding.check(question)

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove rows that are over; how many."""
        with self._binding() as binding:
            return binding.purge(store, undecided, older_seconds)

    @contextmanager
    def _binding(self) -> Iterator[Binding]:
        connection = connections[self._alias].copy()  # this thread's may be at work
        try:
            yield drivers.binding_of(driver_of(connection))
        except OperationalError as error:
            raise Unreachable(str(error)) from error
        finally:
            connection.close()


def create_table(connection: Any) -> None:
    """Make the marker table if it is not there."""
    refuse_open_block(connection)
    driver = driver_of(connection)
    drivers.module_of(driver).create_table(driver)


def purge(connection: Any, store: str, undecided: frozenset[str], older_seconds: float) -> int:
    """Remove markers that nobody can ask about any more; how many."""
    refuse_open_block(connection)
    driver = driver_of(connection)
    removed: int = drivers.module_of(driver).purge(driver, store, undecided, older_seconds)
    return removed


binding = DjangoBinding
