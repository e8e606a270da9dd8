"""The interfaces of this package: what it asks of a connection, a database and an engine.

Each driver has its module. Its functions `binding`, `create_table` and `purge` take a connection
of that driver. drivers.py finds the module.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fmq.basics.results import UndecidedTransaction
from fmq.bind.dialects import MarkerRows
from fmq.feedback.answers import Answer, Checker
from fmq.feedback.question import Question
from fmq.feedback.service import Feedback
from fmq.tx.commands.transaction import Transaction

Purge = Callable[[str, frozenset[str], float], int]
"""Removes markers of a store that are older than some seconds, except those of the undecided
transactions. Returns how many it has removed."""


class Database(Protocol):
    """A database. Each call uses a new connection."""

    def check(self, question: Question) -> Answer:
        """Ask what the database did. Raises Unreachable if that is not possible now."""

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers that no checker can ask about any more, and return how many."""


class AddressedDatabase(Database, Protocol):
    """A database that an address names. Its marker table can be read as a whole."""

    def markers(self, store: str) -> MarkerRows:
        """Return the rows of a store. Raises Unreachable if that is not possible now."""


class Binding(Database, Protocol):
    """One connection of the user, for one bound transaction, which calls the methods in this
    order.
    """

    path: str  # the name of the database, in errors and to compare databases

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Write durably that `producer` binds this database. Return the place of its markers.

        That is the schema in PostgreSQL, and "" elsewhere. Raises BindError if the database does
        not know `producer` although that one is not `new`.
        """

    def begin(self) -> str:
        """Begin the database's transaction. Return a warning if its commits may be lost; else
        "".
        """

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Insert the marker as the last statement. Return its place, as `register` does.

        Raises Fenced if a checker has ruled the transaction out, or the deadline is over.
        """

    def commit(self) -> None:
        """Commit the database's transaction."""

    def rolled_back_for_sure(self) -> bool:
        """Return whether a commit that raised certainly did not happen."""

    def rollback(self) -> None:
        """Roll back the database's transaction, if it is still open."""

    def leave(self) -> None:
        """Undo what `begin` set up around the transaction. This is the last call, whatever the
        outcome.
        """


class AsyncConnection(Protocol):
    """A connection or session for asyncio."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class TransactionFactory(Protocol):
    """The part of an engine that a block or an outbox uses."""

    def transaction(
        self,
        *,
        tx_id: str | None = ...,
        producer: str | None = ...,
        check_after: float | None = ...,
        bind: Any = ...,
    ) -> Transaction: ...

    @property
    def feedback(self) -> Feedback: ...


class DecisionSource(Protocol):
    """The part of an engine that its databases use."""

    @property
    def feedback(self) -> Feedback: ...

    def checker(self, producer: str) -> Callable[[Checker], Checker]: ...

    def settle(self) -> object: ...

    def sync(self) -> None: ...

    def undecided(self) -> list[UndecidedTransaction]: ...
