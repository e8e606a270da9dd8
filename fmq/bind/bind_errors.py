"""The errors of bound transactions.

The functions make an error that several drivers raise with the same words.
"""

from __future__ import annotations

from fmq.basics.results import Outcome
from fmq.bind.marker import DEADLINE_SECONDS
from fmq.errors import TransactionError


class BindError(TransactionError):
    """The connection cannot be bound in its present state. Nothing was changed."""


class NoMarkerTable(BindError):
    """The database has no marker table. The message contains the statement that makes it."""

    def __init__(self, database: str, ddl: str) -> None:
        super().__init__(
            f"{database}: there is no table fmq_tx, which shows after a crash whether the database "
            "committed. Nothing was committed or decided. Make it once, with "
            f"fmq.bind.create_table(connection) or:\n\n{ddl}"
        )


class WrongDatabase(BindError):
    """This producer never bound the database, so the absence of a marker proves nothing."""

    def __init__(self, database: str, producer: str) -> None:
        super().__init__(
            f"{database}: no transaction of producer {producer!r} was ever bound to this database, "
            "or the rows of fmq_tx that said so were deleted, so it does not know what became of "
            "one. Nothing was decided; name the right database, or decide yourself, with "
            "engine.decide."
        )


class NotDurable(BindError):
    """The database may lose its commits, and `Options(strict_bind=True)` refuses that."""

    def __init__(self, loss: str) -> None:
        super().__init__(
            f"{loss} Nothing was begun, because of Options(strict_bind=True); set the database as "
            "it says."
        )


class Unreachable(BindError):
    """The database cannot be reached now. The message is the driver's own."""


def unusable_connection(why: object) -> BindError:
    """Return the error for a connection that does not work."""
    return BindError(f"this connection cannot be used here: {why} Nothing was changed.")


def transaction_open(database: str) -> BindError:
    """Return the error for a connection with a transaction already open."""
    return BindError(
        f"{database}: this connection has a transaction open already, which may hold work "
        "that is not to be part of this one. Commit it or roll it back first."
    )


def unknown_producer(database: str, producer: str) -> BindError:
    """Return the error for a database that does not know a producer with undecided transactions."""
    return BindError(
        f"{database}: transactions of producer {producer!r} are undecided, and this database has "
        "no row that says they were bound to it: it is another one, or its rows of fmq_tx were "
        "deleted, so it would answer that they rolled back. Nothing was begun. Bind the right "
        "database, or decide them with engine.decide, or take another producer name."
    )


def never_bound(database: object, path: str) -> BindError:
    """Return the error for a database to which no producer of the journal was bound."""
    return BindError(
        f"{database}: its fmq_tx has no row of the journal {path}, so nothing can be compared: it "
        "is the database of another journal, or was put back to before the first transaction was "
        "bound to it. Nothing was changed."
    )


def wrong_with_statement(block: str, kind: str) -> BindError:
    """Return the error for `with` instead of `async with`, or the reverse."""
    return BindError(
        f"the connection is {kind}, so write `{block} engine.transaction(bind=connection) as tx`. "
        "Nothing was begun or changed."
    )


def transaction_ended(database: str, tx_id: str) -> BindError:
    """Return the error for a block in which the program itself ended the database's transaction."""
    return BindError(
        f"{database}: the database's transaction was ended inside of the block, so what it wrote "
        f"is committed or rolled back without transaction {tx_id!r}, whose messages were not "
        "sent. Leave committing to the end of the block."
    )


def in_autocommit(database: str) -> BindError:
    """Return the error for a connection in autocommit, which has no transaction to bind."""
    return BindError(
        f"{database}: this connection commits each statement by itself, so there is "
        "nothing to bind. Nothing was changed; use one without autocommit."
    )


def made_with_autocommit(database: str, autocommit: bool) -> BindError:
    """Return the error for a sqlite3 connection that was made with `autocommit` (Python 3.12)."""
    return BindError(
        f"{database}: this connection was made with autocommit={autocommit}, with which sqlite3 "
        "does not let a block begin and commit. Nothing was changed; leave autocommit out, or set "
        "connection.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL."
    )


def in_pipeline(database: str) -> BindError:
    """Return the error for a connection in a pipeline, where the marker would fail too late."""
    return BindError(
        f"{database}: this connection is in a pipeline, which holds back what each statement did. "
        "Nothing was begun; begin the pipeline inside of the block, and end it there."
    )


def mark_in_other_schema(database: str, producer: str) -> BindError:
    """Return the error for a marker that went into the marker table of another schema."""
    return BindError(
        f"{database}: the search_path leads to the fmq_tx of another schema than that in which "
        f"producer {producer!r} is known, where the checkers look for its markers. The database's "
        "transaction and the messages were rolled back; give each schema a producer of its own, "
        "or only one of them the table."
    )


RULED_OUT = "a checker found it undecided and has ruled it out"
TOO_OLD = f"it has been open for more than {DEADLINE_SECONDS} seconds"


class Fenced(TransactionError):
    """The transaction cannot commit any more: a checker ruled that out, or the deadline is over."""

    def __init__(self, tx_id: str, why: str) -> None:
        super().__init__(
            f"transaction {tx_id!r} can no longer commit: {why}. The database's transaction and "
            "the messages were rolled back. Do the work again, in a new transaction."
        )


class InDoubt(TransactionError):
    """The database's commit raised, and may have happened nevertheless.

    `outcome` is what a check on a new connection has found since. None means that it is not known
    yet, and that the checkers go on asking.
    """

    def __init__(self, tx_id: str, error: BaseException, outcome: Outcome | None) -> None:
        if outcome is None:
            found = (
                "a check could not find out at once; the transaction stays undecided, and the "
                "checkers go on asking"
            )
        else:
            did = "did" if outcome.state == "committed" else "did not"
            found = f"a check since found that it {did}"
        why = str(error) or type(error).__name__
        super().__init__(
            f"transaction {tx_id!r}: the database's commit failed ({why}), which does not say "
            f"whether it happened; {found}. engine.outcome({tx_id!r}) returns what became of it."
        )
        self.outcome = outcome


class DurabilityWarning(UserWarning):
    """The database may lose commits at a power failure."""
