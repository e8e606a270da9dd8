"""A Django connection whose own COMMIT also commits the messages of its outboxes.

It is a part of a database backend. Django calls the methods here at each step of a transaction,
and they tell the outermost block. They know nothing about messages.
"""

from __future__ import annotations

from typing import Any

from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper

from fmq.bind.django.outermost import OutermostBlock


class OutboxConnection(BaseDatabaseWrapper):
    """The part of a database backend that outboxes need. Put it before the backend's own class.

    `class DatabaseWrapper(OutboxConnection, postgis.base.DatabaseWrapper)`, for example.
    """

    fmq_block: OutermostBlock | None = None  # the open atomic block, or None

    def set_autocommit(
        self, autocommit: bool, force_begin_transaction_with_broken_autocommit: bool = False
    ) -> None:
        """Switch autocommit. Django begins an outermost atomic block with this call, so the block
        is noted here.
        """
        # Only Django's `atomic` passes this argument.
        begins = force_begin_transaction_with_broken_autocommit and not autocommit
        if begins:
            OutermostBlock.before(self)
        super().set_autocommit(autocommit, force_begin_transaction_with_broken_autocommit)
        if begins:
            self.fmq_block = OutermostBlock(self)

    def _commit(self) -> None:
        block, self.fmq_block = self.fmq_block, None
        if block is None:
            super()._commit()
            return
        try:
            block.commit(super()._commit, self._undo)
        except BaseException:
            if block.committed:  # run the on_commit functions even if a later step failed
                self.run_commit_hooks_on_set_autocommit_on = True
            raise

    def _undo(self) -> None:
        """Roll back. Otherwise the next change of autocommit could commit the rest."""
        try:
            self.rollback()
        except Error:
            self.close()

    def _rollback(self) -> None:
        try:
            super()._rollback()
        finally:
            self._drop()

    def close(self) -> None:
        """Close the connection, and drop the messages, because the database rolls back."""
        try:
            super().close()
        finally:
            if self.connection is None or self.closed_in_transaction:
                self._drop()

    def _drop(self) -> None:
        block, self.fmq_block = self.fmq_block, None
        if block is not None:
            block.drop()

    def _savepoint(self, sid: str) -> None:
        super()._savepoint(sid)
        if self.fmq_block is not None:
            self.fmq_block.note_savepoint(sid)

    def _savepoint_rollback(self, sid: str) -> None:
        super()._savepoint_rollback(sid)
        if self.fmq_block is not None:
            self.fmq_block.roll_back_to(sid)

    def _savepoint_commit(self, sid: str) -> None:
        block = self.fmq_block
        release: Any = super()._savepoint_commit
        if block is None:
            release(sid)
            return

        def undo() -> None:
            super(OutboxConnection, self)._savepoint_rollback(sid)
            release(sid)

        block.release(sid, lambda: release(sid), undo)
