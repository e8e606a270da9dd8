"""Carries out the steps of transactions for the coroutines of one loop.

Commits of open transactions, and prepares, are written with what the turn of the loop orders.
Rare steps are taken by a thread. A step that has begun runs to its end, also if its task is
cancelled.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from functools import partial
from typing import Any

from fmq.aio.call import Call, end_of, settled
from fmq.aio.face.delivery import AsyncRange
from fmq.basics.results import Outcome
from fmq.errors import WrongState
from fmq.tx.commands.buffer import (
    COMMITTED,
    PREPARED,
    ROLLED_BACK,
    Phase,
    Receipts,
    TransactionBuffer,
)


class LoopManager:
    """The transactions that the coroutines of one loop use."""

    def __init__(self, side: Any, manager: Any) -> None:
        """`side` is a LocalSide or a RemoteSide, and `manager` what a thread would call."""
        self._side = side
        self._manager = manager
        self.store, self.time_us = manager.store, manager.time_us
        self.waits, self.makes_durable = manager.waits, manager.makes_durable
        self.check_readable = manager.check_readable
        self.quickly = side.quickly

    async def commit_at_once(
        self, transaction: TransactionBuffer, sync: bool | None = None
    ) -> Receipts:
        """Commit an open transaction with what this turn of the loop writes."""
        if sync is not None:
            self.waits(sync)  # raises TypeError for a wrong `sync`
        found: Receipts = await self._alone(transaction, COMMITTED, self._side.commit, sync)
        return found

    async def prepare(self, transaction: TransactionBuffer) -> None:
        """Prepare an open transaction with what this turn of the loop writes."""
        await self._alone(transaction, PREPARED, self._side.prepare)

    async def _alone(
        self, transaction: TransactionBuffer, after: Phase, begin: Callable[..., Call], *how: Any
    ) -> Any:
        """Take a step that only one task at a time may take. Otherwise the appends of two tasks
        would both be written.
        """
        self.check_alone(transaction)
        transaction.is_in_step = True
        try:
            if transaction.must_take_id:
                await self.hold_id(transaction)
            if self._side.routes_late:
                await self._side.route(transaction)
            return await self._taken(begin(transaction, *how), transaction, after)
        finally:
            transaction.is_in_step = False

    def check_alone(self, transaction: TransactionBuffer) -> None:
        """Raise WrongState if another task is committing or preparing the transaction."""
        if transaction.is_in_step:
            raise WrongState(
                f"another task just commits or prepares transaction {transaction.tx_id!r}. This "
                "call has changed nothing; await the other one."
            )

    async def commit_prepared(
        self, transaction: TransactionBuffer, sync: bool | None = None
    ) -> Receipts:
        """Let a thread commit a prepared transaction."""
        what = self._manager.commit_prepared, transaction, sync
        found: Receipts = await self._in_thread(transaction, COMMITTED, *what)
        return found

    async def roll_back_prepared(self, transaction: TransactionBuffer) -> None:
        """Let a thread roll back a prepared transaction."""
        what = self._manager.roll_back_prepared, transaction
        await self._in_thread(transaction, ROLLED_BACK, *what)

    async def _in_thread(
        self, transaction: TransactionBuffer, after: Phase, step: Callable[..., Any], *args: Any
    ) -> Any:
        def take() -> Any:
            taken = step(*args)
            self._manager.after()
            return taken

        return await self._taken(self._side.threads.begin(take), transaction, after)

    async def _taken(self, call: Call, transaction: TransactionBuffer, after: Phase) -> Any:
        """Return the answer of the call that takes a step to the phase `after`."""
        try:
            return await call.future
        except CancelledError as cancelled:
            try:
                await end_of(call, cancelled, partial(_note, transaction.tx_id))
            finally:
                if call.error is not None:
                    transaction.failed(call.error)
                elif call.is_settled:
                    transaction.stepped(after, call.result)
            raise

    async def outcome(self, tx_id: str, number: int = 0) -> Outcome:
        """Let a thread look up what became of a transaction."""
        found: Outcome = await self._side.threads.run(self._manager.outcome, tx_id, number)
        return found

    async def make_durable(self, sync: bool | None) -> None:
        """If a call with this `sync` waits, let a thread make an earlier decision durable."""
        await self._side.threads.run(self._manager.make_durable, sync)

    async def hold_id(self, transaction: TransactionBuffer) -> None:
        """Hold the id that the user chose, if it is not held yet. Raises TxIdInUse."""
        if not transaction.must_take_id:
            return
        transaction.must_take_id = False
        try:
            begin = self._side.threads.begin
            call = begin(partial(self._manager.take_id, transaction))
            try:
                await call.future
            except CancelledError as cancelled:
                try:
                    await end_of(call, cancelled)
                finally:
                    # The id is held, but no block will end the transaction.
                    if call.error is None:
                        await settled(begin(partial(self._manager.release, transaction)))
        except BaseException:
            transaction.must_take_id = True
            raise

    def release(self, transaction: TransactionBuffer) -> None:
        """Let the id of an open transaction be used again, unless it was never held: then another
        transaction may have it.
        """
        if not transaction.must_take_id:
            self._manager.release(transaction)

    def after(self) -> None:
        """Do nothing: what carries out a step has noted its end."""


def check_awaited(delivery: object) -> None:
    """Raise TypeError unless a transaction of a loop can ack `delivery`."""
    if not isinstance(delivery, AsyncRange):
        raise TypeError(
            f"tx.ack takes a delivery of fmq.aio or a batch of them, not {type(delivery).__name__}"
        )


def _note(tx_id: str, call: Call) -> str:
    came = f"The cancellation came while transaction {tx_id!r} was written"
    if call.error is None:
        return f"{came}, which cannot be taken back: engine.outcome({tx_id!r}) has more."
    return f"{came}, which raised {type(call.error).__name__}."
