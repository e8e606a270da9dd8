"""Which database a connection or an address is of, and what serves it here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from fmq.bind.errors import BindError, Unanswered
from fmq.bind.marker import RETENTION_SECONDS
from fmq.errors import BadOption
from fmq.feedback.answers import Answer, Checker
from fmq.feedback.question import Question
from fmq.feedback.service import Feedback
from fmq.results import UndecidedTransaction
from fmq.tx.names import check_seconds

if TYPE_CHECKING:
    from fmq.bind.databases import Asked


T = TypeVar("T")
Purge = Callable[[str, frozenset[str], float], int]
"""Removes rows of a store that are older than so many seconds, but not of these ids; how many."""


class Undecided(Protocol):
    """An engine, as far as purging needs one."""

    @property
    def feedback(self) -> Feedback: ...

    def sync(self) -> None: ...

    def undecided(self) -> list[UndecidedTransaction]: ...


class OfAsyncio(Protocol):
    """A connection or session of asyncio."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class Binding(Protocol):
    """A connection of the user's, as a bound transaction sees it."""

    path: str

    def register(self, store: str, producer: str, *, new: bool) -> str: ...  # where, as of a mark

    def begin(self) -> str: ...

    def mark(self, store: str, tx_id: str) -> str: ...  # where, if a database has several places

    def commit(self) -> None: ...

    def rolled_back_for_sure(self) -> bool: ...

    def rollback(self) -> None: ...

    def leave(self) -> None: ...

    def check(self, question: Question) -> Answer: ...  # Unanswered if it cannot be reached

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int: ...


def binding_of(connection: Any, bridge: Any = None) -> Binding:
    """What ties `connection` to a transaction; BindError if nothing here can.

    One of asyncio is used through its `bridge`.
    """
    if "fmq" in _packages_of(connection):
        found: Binding = connection  # a session that is followed comes as one
        return found
    binding: Binding = module_of(connection).binding(bridge or connection)
    return binding


def is_of_asyncio(connection: Any) -> bool:
    """Whether what is asked of `connection` has to be awaited."""
    return iscoroutinefunction(getattr(connection, "commit", None))


@overload
def create_table(connection: OfAsyncio) -> Awaitable[None]: ...
@overload
def create_table(connection: Any) -> None: ...
def create_table(connection: Any) -> Awaitable[None] | None:
    """Make the marker table in the connection's database, if it is not there.

    With a connection of asyncio it is to be awaited.
    """
    return _done_by(connection, _module_with_engines(connection).create_table)


@overload
def purge(
    engine: Undecided, connection: OfAsyncio, *, older_seconds: float = ...
) -> Awaitable[int]: ...
@overload
def purge(engine: Undecided, connection: Any, *, older_seconds: float = ...) -> int: ...
def purge(
    engine: Undecided, connection: Any, *, older_seconds: float = RETENTION_SECONDS
) -> Awaitable[int] | int:
    """Remove markers of transactions whose decision is durable in `engine`, if they are that old,
    and tombstones that no producer can run into any more; how many.

    With a connection of asyncio it is to be awaited. The engine does this by itself, too.
    """
    module = _module_with_engines(connection)
    older_seconds = check_seconds("older_seconds", older_seconds)
    return _done_by(
        connection, lambda blocking: purged(engine, partial(module.purge, blocking), older_seconds)
    )


def _done_by(connection: Any, work: Callable[[Any], T]) -> Awaitable[T] | T:
    """What `work` returns for a connection that blocks; for one of asyncio that is awaited."""
    if not is_of_asyncio(connection):
        return work(connection)
    from fmq.bind.on_loop import through  # here: asyncio is slow to import

    return through(connection, work)


def purged(engine: Undecided, purge: Purge, older_seconds: float) -> int:
    """Have `purge` remove what `engine` says is over; how many rows."""
    engine.sync()  # a decision that no sync covers yet could still be asked about after a crash
    undecided = frozenset(tx.tx_id for tx in engine.undecided())
    return purge(engine.feedback.store, undecided, older_seconds)


def _module_with_engines(connection: Any) -> Any:
    """What serves connections of this kind, or engines of SQLAlchemy."""
    if _names_of(connection) & ENGINES:
        from fmq.bind.sqlalchemy import binding as sqlalchemy

        return sqlalchemy
    return module_of(connection)


def _names_of(connection: Any) -> set[str]:
    """Of its classes, each behind its package: no driver is imported to tell one of its own."""
    return {
        f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        for kind in type(connection).__mro__
    }


def _packages_of(connection: Any) -> set[str]:
    return {name.partition(".")[0] for name in _names_of(connection)}


# What has a transaction that can be bound. What else comes from the same packages, such as a cursor
# or the maker of sessions, has none, and would fail at the first thing that is asked of it.
OF_SQLITE = {"sqlite3.Connection", "aiosqlite.Connection"}
OF_PSYCOPG = {"psycopg.Connection", "psycopg.AsyncConnection"}
OF_DJANGO = {"django.BaseDatabaseWrapper", "django.ConnectionProxy"}
OF_SQLALCHEMY = {
    *("sqlalchemy.Session", "sqlalchemy.scoped_session", "sqlalchemy.Connection"),
    *("sqlalchemy.AsyncSession", "sqlalchemy.AsyncConnection"),
}
# What knows a database, and can do things in it by itself.
ENGINES = {"sqlalchemy.Engine", "sqlalchemy.AsyncEngine"}


def module_of(connection: Any) -> Any:
    """What serves connections of this kind."""
    names = _names_of(connection)
    if names & OF_SQLITE:
        from fmq.bind import sqlite

        return sqlite
    if names & OF_PSYCOPG:
        from fmq.bind import postgres

        return postgres
    if names & OF_DJANGO:
        from fmq.bind.django import binding as django

        return django
    if names & OF_SQLALCHEMY:
        from fmq.bind.sqlalchemy import binding as sqlalchemy

        return sqlalchemy
    kind = type(connection)
    raise BindError(
        f"a {kind.__module__}.{kind.__qualname__} cannot be bound: it must be a connection of "
        "sqlite3, aiosqlite, psycopg 3 or Django, or a session or connection of SQLAlchemy. "
        "Nothing was changed. With another database, prepare and decide yourself and register a "
        "checker; the guide has the steps."
    )


def of_bound(checker: Checker) -> Checker:
    """`checker`, asked about bound transactions alone: that others have no mark says nothing.

    A database that cannot be reached does not know.
    """

    def answer(question: Question) -> Answer:
        with suppress(Unanswered):
            return checker(question) if question.bound else "unknown"
        return "unknown"

    return answer


def checker_of(address: object) -> Callable[[Question], Answer]:
    """A checker that asks the database at `address`: "sqlite:///shop.db", "postgresql://...".

    A file's path follows three slashes, an absolute one four. "django://default" is what an alias
    of Django's DATABASES says. An address with a driver, such as "postgresql+psycopg://...", is one
    of SQLAlchemy's, and so may be one of its engines.
    """
    return of_bound(asked_at(address).check)


def asked_at(address: object) -> Asked:
    """The database at `address`, to be asked and purged; BadOption if it is no address."""
    if "sqlalchemy" in _packages_of(address) or "+" in str(address).partition("://")[0]:
        from fmq.bind.sqlalchemy.database import database_at

        return database_at(address)
    scheme, found, path = str(address).partition("://")
    if scheme == "sqlite" and path.startswith("/") and path != "/":
        from fmq.bind import sqlite

        return sqlite.File(path[1:])
    if scheme in ("postgresql", "postgres") and found:
        from fmq.bind import postgres

        return postgres.Server(str(address))
    if scheme == "django" and path:
        from fmq.bind.django import binding

        return binding.Alias(path)
    raise BadOption(
        f"{address!r} is no address of a database that can be asked: it must be like "
        "sqlite:///shop.db, with a fourth slash before an absolute path, or like "
        "postgresql://host/name, or django:// and an alias. Nothing was changed."
    )
