"""Begin a transaction that is bound to a database, and register a checker for it."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from fmq.arguments.names import check_producer
from fmq.bind.bound_transaction import BoundCoordinator, BoundTransaction
from fmq.bind.databases import Databases
from fmq.bind.drivers import binding_of, is_async
from fmq.bind.interface import Binding
from fmq.feedback.checkers import Checkers
from fmq.feedback.service import Feedback
from fmq.tx.commands.buffer import TransactionBuffer


class Beginner(BoundCoordinator, Protocol):
    """Begins transactions, and carries out their steps."""

    def buffer_for(
        self, tx_id: str | None, producer: str | None, check_after: float | None
    ) -> TransactionBuffer:
        """Return the empty buffer of a new transaction. Raises TxIdInUse if its id is in use."""
        ...


def begin_bound(
    manager: Beginner,
    feedback: Feedback,
    checkers: Checkers,
    databases: Databases,
    connection: Any,
    tx_id: str | None,
    producer: str,
    check_after: float | None,
    *,
    strict: bool,
) -> BoundTransaction:
    """Return a transaction that commits with the transaction of `connection`. Neither has begun
    yet.
    """
    check_producer(producer)
    names = tx_id, producer or None, check_after
    on_commit = partial(databases.block_ended, producer)
    if not is_async(connection):
        binding, place = _introduce(feedback, checkers, databases, producer, connection)
        tx = BoundTransaction(manager, manager.buffer_for(*names))
        return tx.bind(binding, feedback, place, on_commit, strict=strict)
    # imported here, because asyncio is slow to import
    from fmq.bind.on_loop import AsyncBoundTransaction

    later = AsyncBoundTransaction(manager, manager.buffer_for(*names))

    def meet(bridge: Any) -> None:
        binding, place = _introduce(feedback, checkers, databases, producer, connection, bridge)
        later.bind(binding, feedback, place, on_commit, strict=strict)

    return later.bind_on_loop(connection, meet)


def _introduce(
    feedback: Feedback,
    checkers: Checkers,
    databases: Databases,
    producer: str,
    connection: Any,
    bridge: Any = None,
) -> tuple[Binding, str]:
    """Register `producer` in the database. Return the binding of `connection`, and the place of the
    producer's markers.

    The first time, the database and the checkers learn of each other.
    """
    binding = binding_of(connection, bridge)
    if checkers.is_unbound(producer, binding.path):
        # Register in the database before adding a checker: in the other order the checker gets
        # WrongDatabase.
        new = not checkers.has_bound(producer)
        place = binding.register(feedback.store, producer, new=new)
        checkers.add_bound(producer, binding.path, place, databases.add_bound(producer, binding))
        databases.start()
    return binding, checkers.place_of(producer)
