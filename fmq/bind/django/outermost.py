"""The outermost atomic block of a connection, and the messages that outboxes send when it commits.

It takes the steps of bound transactions in their order around the COMMIT of Django's connection.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from weakref import ref

from fmq.bind.bind_errors import BindError
from fmq.bind.bound_transaction import BoundTransaction
from fmq.bind.dialects import BLOCK_SAVEPOINT
from fmq.bind.django.outbox_binding import OutboxBinding
from fmq.tx.commands.blocks import enter, leave
from fmq.tx.commands.buffer import Phase
from fmq.tx.commands.transaction import Transaction

Step = Callable[[], object]
Back = Callable[[], None]


class BlockOutbox(Protocol):
    """An outbox, as the block knows it in which it sends."""

    @property
    def store(self) -> str: ...

    def before_block(self) -> None:
        """Do what can be done only before a block begins."""

    def begin(self, connection: Any) -> BoundTransaction:
        """Return a new transaction for the open block of `connection`."""
        ...


_outboxes: dict[str, list[ref[BlockOutbox]]] = {}  # the outboxes attached to each alias


def note_outbox(outbox: BlockOutbox, alias: str) -> None:
    """Attach an outbox to an alias for as long as the program keeps the outbox."""
    _outboxes[alias] = [*_outboxes.get(alias, ()), ref(outbox)]


def outboxes_of(alias: str) -> list[BlockOutbox]:
    """Return the outboxes of an alias that still exist."""
    found = [(each, each()) for each in _outboxes.get(alias, ())]
    alive = [outbox for _, outbox in found if outbox is not None]
    if len(alive) < len(found):
        _outboxes[alias] = [each for each, outbox in found if outbox is not None]
    return alive


def is_in_block(connection: Any) -> bool:
    """Return whether the program has an atomic block open. A TestCase's own blocks do not count."""
    blocks = connection.atomic_blocks
    return bool(blocks) and not blocks[-1]._from_testcase


class BlockMessages:
    """The transaction of one outbox in one block."""

    def __init__(self, tx: BoundTransaction) -> None:
        self.tx = tx
        self.binding: OutboxBinding = tx._binding  # type: ignore[assignment]
        self.drop_all = tx.savepoint()

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to send, ack or mark."""
        return self.tx.is_empty


class OutermostBlock:
    """The messages that are sent if a connection's transaction commits. `atomic` begins and ends
    the transaction.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._messages: dict[BlockOutbox, BlockMessages] = {}
        # The open savepoints, the oldest first, each with a function for every outbox that drops
        # what was sent since.
        self._savepoints: list[tuple[str, dict[BlockMessages, Back]]] = []
        # the binding of fmq's own block, which commits without this object
        self.driven_by: object = None
        self.committed = False
        self._set_savepoint()
        enter(self)

    def _set_savepoint(self) -> None:
        """Set the savepoint that the next marker releases. If it is gone by then, other code has
        committed.
        """
        if self._connection.vendor == "sqlite":
            self._connection.connection.execute(f"SAVEPOINT {BLOCK_SAVEPOINT}")

    @staticmethod
    def before(connection: Any) -> None:
        """Let outboxes do what they can do only before a block begins."""
        for outbox in outboxes_of(connection.alias):
            outbox.before_block()

    # --- what is sent -----------------------------------------------------------------------------

    def transaction_of(self, outbox: BlockOutbox) -> BoundTransaction:
        """Return the transaction of `outbox` that commits with this block."""
        messages = self._messages.get(outbox)
        if messages is None:
            messages = BlockMessages(outbox.begin(self._connection))
            if messages.binding.ends_in_test and not self._shows_its_end_in_test():
                raise BindError(
                    f"database alias {self._connection.alias!r}: inside of a TestCase the end of a "
                    "block with savepoint=False cannot be seen. Nothing was sent; let the "
                    "outermost block have its savepoint, or use a TransactionTestCase."
                )
            self._messages[outbox] = messages
        return messages.tx

    def _taking(self, store: str | None) -> Transaction | None:
        """Return the transaction of an outbox of `store`, so that a send in a block goes to it."""
        if not is_in_block(self._connection) or self.driven_by is not None:
            return None
        for outbox in outboxes_of(self._connection.alias):
            if store is None or outbox.store == store:
                return self.transaction_of(outbox)
        return None

    # --- savepoints -------------------------------------------------------------------------------

    def note_savepoint(self, sid: str) -> None:
        """Note a savepoint that was set."""
        backs = {each: each.tx.savepoint() for each in self._messages.values()}
        self._savepoints.append((sid, backs))

    def roll_back_to(self, sid: str) -> None:
        """Drop the messages sent since the savepoint, because their rows are gone."""
        place = self._place_of(sid)
        if place is None:
            return
        del self._savepoints[place + 1 :]
        backs = self._savepoints[place][1]
        for each in self._messages.values():
            backs.get(each, each.drop_all)()
        if self._is_at_test():
            self._drop(self._take_those_of_test())

    def release(self, sid: str, release: Step, undo: Step) -> None:
        """Release a savepoint. In a TestCase the program's outermost block is a savepoint, too."""
        place = self._place_of(sid)
        if self._is_at_test():
            self._commit(self._take_those_of_test(), release, undo)
        else:
            release()
        if place is not None:
            del self._savepoints[place:]

    def _place_of(self, sid: str) -> int | None:
        """Return the index of the last savepoint with this name, as names may repeat."""
        names = [each for each, _ in self._savepoints]
        return len(names) - 1 - names[::-1].index(sid) if sid in names else None

    def _is_at_test(self) -> bool:
        """Return whether only the blocks of a TestCase are open."""
        blocks = self._connection.atomic_blocks
        return bool(blocks) and blocks[-1]._from_testcase

    def _shows_its_end_in_test(self) -> bool:
        """Return whether the program's outermost block is a savepoint, or a block of Django
        itself.
        """
        blocks = self._connection.atomic_blocks
        program = next(at for at, each in enumerate(blocks) if not each._from_testcase)
        return program == 0 or self._connection.savepoint_ids[program - 1] is not None

    def _take_those_of_test(self) -> list[BlockMessages]:
        """Remove and return the messages that end with the program's block, as fmq.testing.outbox
        wants.
        """
        found = {key: each for key, each in self._messages.items() if each.binding.ends_in_test}
        for key in found:
            del self._messages[key]
        return [*found.values()]

    # --- the end ----------------------------------------------------------------------------------

    def commit(self, commit: Step, undo: Step) -> None:
        """Commit the messages together with `commit`, the connection's own. `undo` rolls back.

        Raises InDoubt if `commit` failed and may have happened all the same.
        """
        leave(self)
        sending, self._messages = [*self._messages.values()], {}
        self._commit(sending, commit, undo)

    def _commit(self, all_of_them: list[BlockMessages], commit: Step, undo: Step) -> None:
        sending = [each for each in all_of_them if not each.is_empty]
        self._drop([each for each in all_of_them if each.is_empty])
        if not sending:
            commit()
            self.committed = True
            return
        try:
            for number, each in enumerate(sending):
                if number:
                    self._set_savepoint()
                each.tx.seal()
        except BaseException:
            try:
                undo()
            finally:
                self._drop(sending)
            raise
        try:
            commit()
        except BaseException as failed:
            self._failed(sending, failed, undo)
            raise
        self.committed = True
        for number, each in enumerate(sending):
            try:
                each.tx.confirm()
            except BaseException:
                for other in sending[number + 1 :]:
                    # the database has committed, so a checker will decide
                    with suppress(Exception):
                        other.tx.confirm()
                raise

    def _failed(self, sending: list[BlockMessages], failed: BaseException, undo: Step) -> None:
        """End the messages after a COMMIT that raised. Raises InDoubt if the COMMIT may have
        happened.
        """
        certain = sending[0].binding.proves_rollback(failed)
        undo()
        if certain:
            self._drop(sending)
            return
        doubts = [each.tx.in_doubt(failed) for each in sending]
        for doubt in doubts:
            if doubt is not None:
                raise doubt from failed

    def drop(self) -> None:
        """Drop all messages, because the database rolls back."""
        leave(self)
        sending, self._messages = [*self._messages.values()], {}
        self._drop(sending)

    def _drop(self, sending: list[BlockMessages]) -> None:
        for each in sending:
            if each.tx.phase in (Phase.OPEN, Phase.PREPARED):
                # At worst the transaction stays undecided. No marker was committed, so a checker
                # rolls it back.
                with suppress(Exception):
                    each.tx.give_up()


def block_of(connection: Any) -> OutermostBlock:
    """Return the open block of `connection`. Raises BindError if an outbox cannot use it."""
    where = f"database alias {connection.alias!r}"
    if not hasattr(connection, "fmq_block"):
        raise BindError(
            f"{where}: its ENGINE, {connection.settings_dict['ENGINE']!r}, cannot say when the "
            'outermost block commits. Nothing was sent. Set ENGINE to "fmq.bind.django.sqlite3" '
            'or "fmq.bind.django.postgresql", which are Django\'s own with that added; a backend '
            "of another package can be derived from fmq.bind.django.OutboxConnection."
        )
    if not is_in_block(connection):
        raise BindError(
            f"{where}: no atomic block is open, so each statement commits by itself, and there is "
            "nothing that a message could commit with. Nothing was sent. Open a block, with "
            "transaction.atomic or ATOMIC_REQUESTS, or call engine.send."
        )
    connection.validate_no_broken_transaction()  # the rows of this block are lost already
    block: OutermostBlock | None = connection.fmq_block
    if block is None:
        raise BindError(
            f"{where}: with AUTOCOMMIT off the end of a block does not commit. Nothing was sent; "
            "switch it on."
        )
    return block
