"""A transaction whose steps are awaited. A blocking one makes those that threads make."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import Any

from fmq.aio.call import Call, end_of, settled
from fmq.aio.face.delivery import AsyncRange
from fmq.basics.message import Receipt
from fmq.basics.results import Outcome
from fmq.errors import TransactionError, WrongState
from fmq.store.journal.section import is_refusal
from fmq.tx.commands import transaction as blocking
from fmq.tx.commands.blocks import enter, leave
from fmq.tx.commands.buffer import OPEN, Phase, TransactionBuffer
from fmq.tx.commands.transaction import Stepping, TransactionContent


class AsyncTransaction(TransactionContent):
    """A transaction: all of its messages become visible, or none. One task at a time uses it.

    As an `async with` block it commits at the end of the block. A block that raises rolls back,
    unless it has prepared: then the transaction stays undecided.
    """

    def __init__(
        self, side: Any, manager: Any, buffer: TransactionBuffer, *, takes_id: bool
    ) -> None:
        """`takes_id` says that the user gave the id and that it is not claimed yet."""
        super().__init__(buffer, manager.time_us)
        self._side = side
        self._manager = manager
        self._tx = blocking.Transaction(manager, buffer)
        self._takes_id = takes_id
        self._step_alone = StepAlone(self)

    async def ack(self, delivery: AsyncRange) -> None:
        """Let the commit also ack `delivery`. So consume, transform and produce count
        exactly once.
        """
        if not isinstance(delivery, AsyncRange):
            raise TypeError(
                "tx.ack takes a delivery of fmq.aio or a batch of them, not "
                f"{type(delivery).__name__}"
            )
        await self._side.quickly(self._tx.ack, delivery)

    def savepoint(self) -> Callable[[], Awaitable[None]]:
        """Return a function that drops what was added after the savepoint. It may be awaited
        repeatedly.

        Awaiting it also drops later savepoints: their functions raise WrongState from then on.
        """
        back = self._tx.savepoint()

        async def roll_back() -> None:
            await self._side.quickly(back)

        return roll_back

    # --- its steps --------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make the transaction durable and undecided. Its messages stay invisible until it is
        decided, and only a decision ends it.
        """
        with self._step_alone:
            self._buffer.require(OPEN, "prepare")
            if self._takes_id:
                await self._take_id()
            if self._side.routes_late:
                await self._side.route(self._buffer)
            await self._step(Phase.PREPARED, self._side.prepare)

    async def commit(self, *, sync: bool | None = None) -> list[Receipt]:
        """Show all messages at once, and return their receipts. A second call returns the same
        receipts.

        `sync` is as in `fmq.Transaction.commit`.
        """
        await self._commit(sync)
        return self._tx._receipts()

    async def _commit(self, sync: bool | None = None) -> None:
        tx = self._tx
        if self.phase is not OPEN:
            await self._side.threads.run(tx._commit, sync)
            return
        if sync is not None:
            self._manager.waits(sync)  # raises TypeError for a wrong `sync`
        with self._step_alone:
            if self._takes_id:
                await self._take_id()
            if self._side.routes_late:
                await self._side.route(self._buffer)
            tx._sync = sync
            tx._receipts = await self._step(Phase.COMMITTED, self._side.commit, sync)

    async def _step(self, after: Phase, begin: Callable[..., Call], *how: Any) -> Any:
        """Take a step to the phase `after`. `begin` begins the call; return its answer."""
        stepping = Stepping(self._tx, after)
        try:
            call = begin(self._buffer, *how)
            try:
                answer = await call.future
            except CancelledError as cancelled:
                if not call.has_begun:
                    stepping.refused()
                try:
                    await end_of(call, cancelled, self._note)
                finally:
                    if call.is_settled and call.error is None:
                        stepping.done()
                    elif call.error is not None and is_refusal(call.error):
                        stepping.refused()
                raise
        except BaseException as error:
            stepping.failed(error)
            raise
        stepping.done()
        return answer

    def _note(self, call: Call) -> str:
        came = f"The cancellation came while transaction {self.tx_id!r} was written"
        if call.error is None:
            return f"{came}, which cannot be taken back: engine.outcome({self.tx_id!r}) has more."
        return f"{came}, which raised {type(call.error).__name__}."

    async def rollback(self) -> None:
        """Drop the transaction. Before prepare nothing was written, and an id that you chose is
        free again.
        """
        tx = self._tx
        self._step_alone.check()
        if self._takes_id:
            # This transaction has not claimed the id, and another one may have it: do not free it.
            self._buffer.named = False
        if self.phase is OPEN:
            await self._side.quickly(tx.rollback)
        else:
            await self._side.threads.run(tx.rollback)

    async def outcome(self) -> Outcome:
        """Return what became of the transaction, as `engine.outcome` does, once it was prepared or
        committed.
        """
        return await self._side.threads.run(self._tx.outcome)  # type: ignore[no-any-return]

    async def _take_id(self) -> None:
        """Claim the id that the user gave. Raises TxIdInUse if it is in use."""
        manager = self._manager
        self._takes_id = False
        try:
            call = self._side.threads.begin(partial(manager.take_id, self._buffer))
            try:
                await call.future
            except CancelledError as cancelled:
                try:
                    await end_of(call, cancelled)
                finally:
                    # The id is claimed, but no block will end the transaction.
                    if call.error is None:
                        release = partial(manager.release, self._buffer)
                        await settled(self._side.threads.begin(release))
        except BaseException:
            self._takes_id = True
            raise

    # --- as a block -------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, AsyncTransaction]:
        """Claim the id, if the user gave one. Return this transaction, to be used without a
        block.
        """
        return self._begun().__await__()

    async def _begun(self) -> AsyncTransaction:
        if self._takes_id:
            await self._take_id()
        return self

    async def __aenter__(self) -> AsyncTransaction:
        if self._takes_id:
            await self._take_id()
        enter(self._tx)
        return self

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        leave(self._tx)
        return self._end() if error is None else self._end_after(error)

    async def _end_after(self, error: BaseException) -> None:
        """End a block that has raised."""
        if self.phase is OPEN and not self._step_alone.is_on:
            await self.rollback()
        else:
            self._note_what_becomes_of_it(error)

    async def _end(self) -> None:
        """End a block that has reached its end."""
        phase = self._buffer.phase
        if phase is Phase.IN_DOUBT:
            self._buffer.refuse("the end of its block")
        if phase is not OPEN and phase is not Phase.PREPARED:
            return
        try:
            await self._commit()
        except BaseException as error:
            if self.phase is OPEN:
                # The commit was refused after the block: no code can try again.
                await self.rollback()
            # Such an error says itself what became of it.
            elif not isinstance(error, TransactionError):
                self._note_what_becomes_of_it(error)
            raise


class StepAlone:
    """A block in which one task commits or prepares a transaction. A second task is refused,
    because both appends would be written.
    """

    __slots__ = ("_tx", "is_on")

    def __init__(self, tx: AsyncTransaction) -> None:
        self._tx = tx
        self.is_on = False

    def check(self) -> None:
        """Raise WrongState while another task is in the block."""
        if self.is_on:
            raise WrongState(
                f"another task just commits or prepares transaction {self._tx.tx_id!r}. This call "
                "has changed nothing; await the other one."
            )

    def __enter__(self) -> None:
        self.check()
        self.is_on = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_on = False
