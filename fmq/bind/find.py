"""Which database a connection or an address is of, and what serves it here."""

from __future__ import annotations

from typing import Any, Protocol

from fmq.bind.errors import BindError
from fmq.errors import BadOption
from fmq.feedback.question import Answer, Checker, Question


class Binding(Protocol):
    """A connection of the user's, as a bound transaction sees it."""

    path: str

    def register(self, store: str, producer: str) -> None: ...

    def begin(self) -> None: ...

    def mark(self, store: str, tx_id: str) -> None: ...

    def commit(self) -> None: ...

    def rolled_back_for_sure(self) -> bool: ...

    def rollback(self) -> None: ...

    def check(self, question: Question) -> Answer: ...


def binding_of(connection: Any) -> Binding:
    """What ties `connection` to a transaction; BindError if nothing here can."""
    if _is_sqlite(connection):
        from fmq.bind.sqlite import SqliteBinding

        return SqliteBinding(connection)
    kind = type(connection)
    raise BindError(
        f"a {kind.__module__}.{kind.__qualname__} cannot be bound: it must be a connection of "
        "sqlite3. Nothing was changed. With another database, prepare and decide yourself and "
        "register a checker; the guide has the steps."
    )


def create_table(connection: Any) -> None:
    """Make the marker table in the connection's database, if it is not there."""
    binding_of(connection)  # says what can be bound
    from fmq.bind.sqlite import create_table as create

    create(connection)


def checker_of(address: str) -> Checker:
    """A checker that asks the database at `address`, such as "sqlite:///shop.db"."""
    scheme, found, path = address.partition(":///")
    if scheme != "sqlite" or not found or not path:
        raise BadOption(
            f"{address!r} is no address of a database that can be asked: it must be like "
            "sqlite:///shop.db, with a fourth slash before an absolute path. Nothing was changed."
        )
    from fmq.bind.sqlite import check

    return lambda question: check(path, question)


def _is_sqlite(connection: Any) -> bool:
    return any(kind.__module__ == "sqlite3" for kind in type(connection).__mro__)
