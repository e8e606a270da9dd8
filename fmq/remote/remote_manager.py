"""Transactions that a client collects and an engine process commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import call
from threading import RLock
from typing import Any
from weakref import finalize

from fmq.arguments.names import waits
from fmq.basics.clock import Clock
from fmq.basics.message import Receipt
from fmq.basics.results import Outcome
from fmq.consume.claims.handed import held_by
from fmq.errors import FmqError, Forked
from fmq.remote.link import Link
from fmq.store.bytes.kinds import PRE_MESSAGE, TX_MESSAGE, Kind
from fmq.tx.commands.appends import runs_of
from fmq.tx.commands.buffer import Receipts, TransactionBuffer
from fmq.tx.commands.ids import TxIds, new_buffer
from fmq.tx.commands.limits import Limits
from fmq.tx.commands.router import Router
from fmq.tx.looks.receipts import with_left_out
from fmq.wire.frames import Op
from fmq.wire.runs import encode_runs
from fmq.wire.transaction_frames import Collected, encode_collected
from fmq.wire.values import decode_values, encode_values


class RemoteKeeper:
    """Guards the deliveries of one client that are held for transactions."""

    def __init__(self) -> None:
        self._lock = RLock()
        self.dropped: deque[Callable[[], object]] = deque()
        self.moves = 0  # always 0: the engine process checks the deliveries itself
        # In a forked child: the error for everything begun before.
        self.refusal: Forked | None = None
        # Lets a thread call a function. Set if a loop uses the client, because the loop must not
        # wait.
        self.in_thread: Callable[[Callable[[], object]], object] | None = None

    def forked(self, refusal: Forked) -> None:
        """Refuse everything that was begun before, in the child of a fork."""
        self._lock = RLock()  # a thread that held the old lock does not exist here
        self.dropped.clear()
        self.refusal = refusal

    def check(self) -> None:
        """Raise Forked in the child of a fork."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    def change(self, change: Callable[[], None]) -> None:
        """Call `change` under the lock of this client."""
        with self._lock:
            while self.dropped:
                release = self.dropped.popleft()
                if self.in_thread is None:
                    release()
                else:
                    self.in_thread(release)
            change()


class RemoteManager:
    """The transactions of one client."""

    commit_queue = None  # the commit queue is in the other process

    def __init__(self, link: Link, router: Router, clock: Clock, drawn: bytes) -> None:
        """`drawn` are random bytes for ids."""
        self._link = link
        self._router = router
        self.time_us = clock.time_us
        self._ids = TxIds(drawn)
        self.keeper = RemoteKeeper()
        self.quickly: Callable[..., Any] = call

    @property
    def store(self) -> str:
        """The id of the directory, in hex."""
        return self._link.hello.store

    def buffer_for(
        self,
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
        *,
        takes_id: bool = True,
        router: Router | None = None,
    ) -> TransactionBuffer:
        """Return the empty buffer of a new transaction. Raises TxIdInUse if its id is in use.

        Without `takes_id` the id is not checked here: `take_id` does that before the first step.
        """
        # Runs the functions that release what dropped transactions held.
        self.keeper.change(lambda: None)
        hello = self._link.hello
        limits = Limits(hello.options, hello.append_bytes_max)
        what = self.keeper, router or self._router, limits, self._ids, self.time_us
        buffer = new_buffer(*what, tx_id, producer, check_after)
        buffer.must_take_id = buffer.named
        if buffer.named and takes_id:
            self.take_id(buffer)
        return buffer

    def take_id(self, buffer: TransactionBuffer) -> None:
        """Hold the id that the user chose for a transaction. Raises TxIdInUse if it is in use."""
        self._link.ask(Op.TAKE_ID, encode_values([buffer.tx_id]))
        release = partial(self._release_id, buffer.tx_id)
        buffer.if_id_dropped = finalize(buffer, self.keeper.dropped.append, release)
        buffer.if_id_dropped.atexit = False
        buffer.must_take_id = False

    def _release_id(self, tx_id: str) -> None:
        with suppress(FmqError):  # an engine process that is gone holds no id
            self._link.ask(Op.RELEASE_ID, encode_values([tx_id]))

    def forked(self, refusal: Forked, drawn: bytes) -> None:
        """Begin anew, with other ids, in the child of a fork."""
        self.keeper.forked(refusal)
        self.keeper = RemoteKeeper()
        self._ids = TxIds(drawn)

    # --- the steps of a transaction -------------------------------------------------------------

    def commit_at_once(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Let the engine process commit an open transaction. Return a function that makes the
        receipts.
        """
        self.waits(sync)  # raises TypeError for a wrong `sync`
        receipts: Receipts = self._write(Op.COMMIT, TX_MESSAGE, transaction, sync)
        return receipts

    def prepare(self, transaction: TransactionBuffer) -> None:
        """Let the engine process make an open transaction durable and undecided."""
        self._write(Op.PREPARE, PRE_MESSAGE, transaction, True)

    def _write(self, op: Op, kind: Kind, transaction: TransactionBuffer, sync: bool | None) -> Any:
        encode, done = self.request(kind, transaction, sync)
        return done(self._link.write(op, encode))

    def request(
        self, kind: Kind, transaction: TransactionBuffer, sync: bool | None
    ) -> tuple[Callable[[int, int], tuple[bytes, ...]], Callable[[bytes], Any]]:
        """Return two functions. The first encodes a COMMIT or PREPARE. The second takes the answer;
        for a COMMIT it returns a function that makes the receipts.
        """
        if not transaction.is_of(self.keeper):
            raise Forked(self._link.hello.path)
        options = self._link.hello.options
        runs = runs_of(kind, transaction, options.compress_bytes_min)
        messages = encode_runs(runs)
        deliveries: list[Any] = transaction.held()
        acks = [_place(each) for each in deliveries]
        expected = transaction.marks.expected
        marks = [[*change, expected.get(change.name)] for change in transaction.marks.changes()]
        after = transaction.check_after_ms
        what = (
            *(transaction.tx_id, transaction.named, transaction.producer or None),
            *(None if after < 0 else after / 1000, transaction.bound, acks, marks),
        )

        def encode(sequence: int, waiting: int) -> tuple[bytes, ...]:
            transaction.planned()
            _keep_id(transaction)  # the engine process releases the id with its answer
            return encode_collected(Collected(sequence, waiting, sync, *what)), *messages

        def done(answer: bytes) -> Any:
            found = decode_values(answer)
            for member, *held in map(held_by, deliveries):
                member.done(*held)
            if kind == TX_MESSAGE:
                return lambda: found
            transaction.number, transaction.left_out = found
            return None

        return encode, done

    def commit_prepared(self, transaction: TransactionBuffer, sync: bool | None = None) -> Receipts:
        """Let the engine process commit a prepared transaction. Return a function that makes the
        receipts.
        """
        number = transaction.number
        found: list[Receipt] = self._link.call("commit_prepared", transaction.tx_id, number, sync)
        return lambda: with_left_out(found, transaction.left_out)

    def confirm_prepared(self, transaction: TransactionBuffer) -> Receipts:
        """Let the engine process commit a prepared transaction, without waiting for the sync.
        Return a function that asks for the receipts, which are durable then.
        """
        self._link.call("confirm_prepared", transaction.tx_id, transaction.number)

        def receipts() -> list[Receipt]:
            return self.commit_prepared(transaction)()

        return receipts

    def roll_back_prepared(self, transaction: TransactionBuffer) -> None:
        """Let the engine process roll back a prepared transaction."""
        self._link.call("roll_back_prepared", transaction.tx_id, transaction.number, None)

    def release(self, transaction: TransactionBuffer) -> None:
        """Allow the id of an open transaction to be used again."""
        if transaction.named:
            _keep_id(transaction)
            self._release_id(transaction.tx_id)

    def outcome(self, tx_id: str, number: int = 0) -> Outcome:
        """Return what became of a transaction."""
        found: Outcome = self._link.call("outcome_of", tx_id, number)
        return found

    def waits(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` waits for a sync. Raises TypeError."""
        return waits(sync, by_default=self._link.hello.options.sync != "interval")

    def makes_durable(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` is durable on its return."""
        return self.waits(sync) and (sync is True or self._link.hello.options.sync == "always")

    def make_durable(self, sync: bool | None) -> None:
        """Wait until the decision of an earlier call that did not wait is durable. Do nothing if
        `sync` says not to wait.
        """
        if self.waits(sync):
            self._link.call("sync")

    def check_readable(self) -> None:
        """Raise if the client is closed."""
        self._link.check()

    def after(self) -> None:
        """Do nothing: the engine process runs its chores by itself."""


def _keep_id(transaction: TransactionBuffer) -> None:
    """Leave the id alone when the transaction is dropped: it may be another one's by then."""
    if transaction.if_id_dropped is not None:
        transaction.if_id_dropped.detach()


def _place(delivery: Any) -> list[int]:
    """Return the values by which a frame names a delivery: its consumer's handle, claim and
    offsets.
    """
    member, claim, first, end = held_by(delivery)
    return [member.handle, claim.number, first, end]
