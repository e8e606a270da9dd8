"""Make the marker table, and remove the markers that no checker needs any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, overload

from fmq.arguments.names import check_seconds
from fmq.bind.drivers import is_async, module_with_engines
from fmq.bind.interface import AsyncConnection, DecisionSource, Purge
from fmq.bind.marker import RETENTION_SECONDS

T = TypeVar("T")


@overload
def create_table(connection: AsyncConnection) -> Awaitable[None]: ...
@overload
def create_table(connection: Any) -> None: ...
def create_table(connection: Any) -> Awaitable[None] | None:
    """Make the marker table in the connection's database, if it does not exist.

    Await the result if the connection is one of asyncio.
    """
    return _call_blocking(connection, module_with_engines(connection).create_table)


@overload
def purge(
    engine: DecisionSource, connection: AsyncConnection, *, older_seconds: float = ...
) -> Awaitable[int]: ...
@overload
def purge(engine: DecisionSource, connection: Any, *, older_seconds: float = ...) -> int: ...
def purge(
    engine: DecisionSource, connection: Any, *, older_seconds: float = RETENTION_SECONDS
) -> Awaitable[int] | int:
    """Remove rows of the marker table that no checker needs any more, and return how many.

    These are markers older than `older_seconds` of transactions whose decision is durable in
    `engine`, and tombstones that no producer can run into any more. The engine does this by
    itself, too. Await the result if the connection is one of asyncio.
    """
    module = module_with_engines(connection)
    older_seconds = check_seconds("older_seconds", older_seconds)
    return _call_blocking(
        connection,
        lambda blocking: purge_markers(engine, partial(module.purge, blocking), older_seconds),
    )


def _call_blocking(connection: Any, work: Callable[[Any], T]) -> Awaitable[T] | T:
    """Return the result of `work` for a blocking connection; an awaitable of it for an asyncio
    one.
    """
    if not is_async(connection):
        return work(connection)
    from fmq.bind.on_loop import through  # imported here, because asyncio is slow to import

    return through(connection, work)


def purge_markers(engine: DecisionSource, purge: Purge, older_seconds: float) -> int:
    """Call `purge` with what `engine` has decided durably. Return the number of removed rows."""
    # Until a decision is durable, a crash could make checkers ask for its marker again.
    engine.sync()
    undecided = frozenset(tx.tx_id for tx in engine.undecided())
    return purge(engine.feedback.store, undecided, older_seconds)
