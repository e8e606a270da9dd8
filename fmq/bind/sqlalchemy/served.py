"""What fmq.bind.drivers asks of SQLAlchemy: a binding of a session, and the marker table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session, scoped_session

from fmq.bind.interface import Binding
from fmq.bind.sqlalchemy.binding import SqlAlchemyBinding, database_of


def create_table(bound: Session | scoped_session[Any] | Connection | Engine) -> None:
    """Make the marker table, on a new connection, if it does not exist."""
    database_of(bound).create_table()


def purge(
    bound: Session | scoped_session[Any] | Connection | Engine,
    store: str,
    undecided: frozenset[str],
    older_seconds: float,
) -> int:
    """Remove markers that no checker can ask about any more, and return how many."""
    return database_of(bound).purge(store, undecided, older_seconds)


def binding(bound: Any) -> Binding:
    """Return the binding of a session or connection, or of a bridge to one of asyncio."""
    if hasattr(bound, "run_sync"):
        from fmq.bind.sqlalchemy.on_loop import (
            AsyncSqlAlchemyBinding,  # imported here, because asyncio is slow to import
        )

        return AsyncSqlAlchemyBinding(bound)
    return SqlAlchemyBinding(bound)
