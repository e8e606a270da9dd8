"""A block for tests of Django programs. Unlike fmq's own block it sets no marker, and it works
inside of a TestCase.

A TestCase never commits, and a database in memory cannot be asked after a crash. So the block is a
savepoint there, and no marker says what became of it. What fmq refuses in production is refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import Error, transaction

from fmq.bind.django.binding import refuse_open_block, thread_connection
from fmq.bind.joined import JoinedBinding
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question


class DjangoBlock:
    """A Binding to an atomic block of one alias."""

    def __init__(self, connection: Any) -> None:
        self._django = thread_connection(connection)
        self._refuse_open_block()
        self._atomic: Any = None
        self._in_test = False
        self._committed = False
        self.path = f"django://{self._django.alias}"

    def _refuse_open_block(self) -> None:
        """Raise BindError inside of a block, unless it is the test's own block."""
        blocks = self._django.atomic_blocks
        self._in_test = bool(blocks) and blocks[-1]._from_testcase
        if not self._in_test:
            refuse_open_block(self._django)

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Return "", because there is no marker table."""
        return ""

    def begin(self) -> str:
        """Begin an atomic block. Return "", because it does not matter what a test loses."""
        self._refuse_open_block()
        self._atomic = transaction.atomic(self._django.alias, durable=True)
        self._atomic.__enter__()
        return ""

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Return "". In a block that cannot commit, raise the error of Django."""
        self._django.validate_thread_sharing()
        self._django.validate_no_broken_transaction()
        return ""

    def commit(self) -> None:
        """Commit, unless the block is a savepoint of a test, which `leave` releases."""
        if not self._in_test:
            with self._django.wrap_database_errors:
                self._django.connection.commit()
        self._committed = True

    def rolled_back_for_sure(self) -> bool:
        """Return True, because nothing survives the test."""
        return True

    def rollback(self) -> None:
        """Do nothing, because `leave` rolls back what was not committed."""

    def leave(self) -> None:
        """End Django's block. After a commit this runs the on_commit functions.

        In a TestCase they wait for its captureOnCommitCallbacks, as always there.
        """
        if self._atomic is None:
            return
        if self._committed:
            self._atomic.__exit__(None, None, None)
            return
        self._django.set_rollback(True)
        with suppress(Error):  # the error of the block says more
            self._atomic.__exit__(None, None, None)

    def check(self, question: Question) -> Answer:
        """Return "unknown", because there is no marker to ask for."""
        return "unknown"

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Return 0, because there are no markers."""
        return 0


class DjangoOutboxInTest(JoinedBinding):
    """A Binding of an outbox to a Django block that other code begins and ends."""

    ended_by = "outermost block"
    ends_in_test = True

    def __init__(self, connection: Any) -> None:
        self._django = connection
        self.path = f"django://{connection.alias}"

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Return "", because there is no marker table."""
        return ""

    def join(self) -> str:
        """Return "", because it does not matter what a test loses."""
        return ""

    def insert_marker(self, store: str, tx_id: str) -> str:
        """Return "", because there is no marker table."""
        return ""

    def proves_rollback(self, failed: BaseException) -> bool:
        """Return True, because nothing survives the test."""
        return True

    def check(self, question: Question) -> Answer:
        """Return "unknown", because there is no marker to ask for."""
        return "unknown"

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Return 0, because there are no markers."""
        return 0
