"""The classes of connections, known by their names without importing a driver."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fmq.bind.bind_errors import BindError
from fmq.bind.interface import Binding

# Classes that have a transaction to bind, each with its package. Other classes of the packages,
# such as cursors, have none.
OF_SQLITE = {"sqlite3.Connection", "aiosqlite.Connection"}
OF_PSYCOPG = {"psycopg.Connection", "psycopg.AsyncConnection"}


def module_of_driver(connection: Any) -> Any:
    """Return the module that serves the connection of a driver. Raises BindError if there is
    none.
    """
    names = names_of(connection)
    if names & OF_SQLITE:
        from fmq.bind import sqlite

        return sqlite
    if names & OF_PSYCOPG:
        from fmq.bind import postgres

        return postgres
    found = type(connection)
    raise BindError(
        f"a {found.__module__}.{found.__qualname__} cannot be bound: it must be a connection of "
        "sqlite3, aiosqlite, psycopg 3 or Django, or a session or connection of SQLAlchemy. "
        "Nothing was changed. With another database, prepare and decide yourself and register a "
        "checker; the guide has the steps."
    )


def binding_of_driver(connection: Any) -> Binding:
    """Return a binding of the connection of a driver. Raises BindError if it cannot be bound."""
    binding: Binding = module_of_driver(connection).binding(connection)
    return binding


class ConnectionClass(NamedTuple):
    """The names of a connection's class, known without importing any driver."""

    names: frozenset[str]  # names of the class and of its bases, each after its package
    packages: frozenset[str]
    is_async: bool


_classes: WeakKeyDictionary[type, ConnectionClass] = WeakKeyDictionary()


def known(connection: Any) -> ConnectionClass:
    found = type(connection)
    known = _classes.get(found)
    if known is None:
        bases = [(each.__module__.partition(".")[0], each.__qualname__) for each in found.__mro__]
        known = _classes[found] = ConnectionClass(
            frozenset(f"{package}.{name}" for package, name in bases),
            frozenset(package for package, _ in bases),
            iscoroutinefunction(getattr(found, "commit", None)),
        )
    return known


def names_of(connection: Any) -> frozenset[str]:
    return known(connection).names


def packages_of(connection: Any) -> frozenset[str]:
    return known(connection).packages
