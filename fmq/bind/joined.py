"""What the bindings of an outbox have in common: they join a transaction that others end."""

from __future__ import annotations

from typing import NoReturn

from fmq.bind.errors import BindError


class JoinedBinding:
    """A binding to a transaction of the database that the program's own code begins and commits."""

    path: str
    ended_by: str  # names in errors what begins and ends the database's transaction

    def begin(self) -> NoReturn:
        """Raise BindError: there is no block."""
        self._refuse()

    def commit(self) -> NoReturn:
        """Raise BindError: there is no block."""
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
        """Do nothing: `begin` has set up nothing around the transaction."""
