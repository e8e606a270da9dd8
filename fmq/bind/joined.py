"""The common part of an outbox's bindings: they join a transaction that other code ends."""

from __future__ import annotations

from typing import NoReturn

from fmq.bind.bind_errors import BindError


class JoinedBinding:
    """A binding to a database transaction that the program's own code begins and commits."""

    path: str
    ended_by: str  # who begins and ends the transaction, in the words of errors

    def begin(self) -> NoReturn:
        """Raise BindError, because there is no block."""
        self._refuse()

    def commit(self) -> NoReturn:
        """Raise BindError, because there is no block."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise BindError(
            f"{self.path}: this transaction is its {self.ended_by}'s, so there is no block to "
            f"begin or end. Nothing was changed; send, and commit the {self.ended_by}."
        )

    def rollback(self) -> None:
        """Do nothing: the error makes the program roll back."""

    def rolled_back_for_sure(self) -> bool:
        return False

    def leave(self) -> None:
        """Do nothing, because `begin` set nothing up."""
