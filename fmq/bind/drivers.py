"""Finds the module that serves a connection, and the database at an address.

A driver's module imports its driver. So it is imported only when the program has a connection of
that driver, or an address of it.
"""

from __future__ import annotations

from typing import Any

from fmq.bind.driver_classes import known, module_of_driver, names_of, packages_of
from fmq.bind.interface import AddressedDatabase, Binding
from fmq.errors import BadOption

# Classes that have a transaction to bind, each with its package. Other classes of the packages,
# such as cursors, have none.
OF_DJANGO = {"django.BaseDatabaseWrapper", "django.ConnectionProxy"}
OF_SQLALCHEMY = {
    *("sqlalchemy.Session", "sqlalchemy.scoped_session", "sqlalchemy.Connection"),
    *("sqlalchemy.AsyncSession", "sqlalchemy.AsyncConnection"),
}
# Classes that reach a database and have no transaction of their own.
ENGINES = {"sqlalchemy.Engine", "sqlalchemy.AsyncEngine"}


def binding_of(connection: Any, bridge: Any = None) -> Binding:
    """Return a binding of `connection`. Raises BindError if it cannot be bound.

    A connection of asyncio is used through its `bridge`.
    """
    if "fmq" in packages_of(connection) and not is_django(connection):
        made: Binding = connection  # an outbox passes the binding of its session
        return made
    binding: Binding = module_of(connection).binding(bridge or connection)
    return binding


def is_async(connection: Any) -> bool:
    """Return whether the connection's methods have to be awaited."""
    return known(connection).is_async


def is_django(connection: Any) -> bool:
    """Return whether `connection` is one of Django's, or the proxy `django.db.connection`."""
    return bool(names_of(connection) & OF_DJANGO)


def is_of_django_outbox(bound: Any) -> bool:
    """Return whether `bound` is the binding of a Django outbox."""
    return "fmq.OutboxBinding" in names_of(bound)


def module_of(connection: Any) -> Any:
    """Return the module that serves connections of this class. Raises BindError if there is
    none.
    """
    names = names_of(connection)
    if is_django(connection):
        from fmq.bind.django import binding as django

        return django
    if names & OF_SQLALCHEMY:
        from fmq.bind.sqlalchemy import served as sqlalchemy

        return sqlalchemy
    return module_of_driver(connection)


def module_with_engines(connection: Any) -> Any:
    """Return the module that serves this connection or SQLAlchemy engine."""
    if names_of(connection) & ENGINES:
        from fmq.bind.sqlalchemy import served as sqlalchemy

        return sqlalchemy
    return module_of(connection)


def database_at(address: object) -> AddressedDatabase:
    """Return the database at `address`. Raises BadOption if the address is none of a database, or
    its driver is not installed.
    """
    try:
        return _database_at(address)
    except ImportError as error:
        raise BadOption(
            f"{address!r}: the driver of this database cannot be imported ({error}). Nothing was "
            f"changed. Install it: {_install(str(address).partition('://')[0])}."
        ) from error


def _install(scheme: str) -> str:
    """Return how to install the driver for an address of this scheme."""
    if scheme in ("postgresql", "postgres"):
        return "pip install 'fmq-engine[postgres]'"
    if scheme == "django":
        return "pip install 'fmq-engine[django]'"
    if "psycopg" in scheme:
        return "pip install 'fmq-engine[sqlalchemy,postgres]'"
    return "pip install 'fmq-engine[sqlalchemy]', and the driver that the address names"


def _database_at(address: object) -> AddressedDatabase:
    if "sqlalchemy" in packages_of(address) or "+" in str(address).partition("://")[0]:
        from fmq.bind.sqlalchemy import database

        return database.database_at(address)
    scheme, found, path = str(address).partition("://")
    if scheme == "sqlite" and path.startswith("/") and path != "/":
        from fmq.bind import sqlite

        return sqlite.SqliteDatabase(path[1:])
    if scheme in ("postgresql", "postgres") and found:
        from fmq.bind import postgres

        return postgres.PostgresDatabase(str(address))
    if scheme == "django" and path:
        from fmq.bind.django import binding

        return binding.DjangoDatabase(path)
    raise BadOption(
        f"{address!r} is no address of a database that can be asked: it must be like "
        "sqlite:///shop.db, with a fourth slash before an absolute path, or like "
        "postgresql://host/name, or django:// and an alias. Nothing was changed."
    )
