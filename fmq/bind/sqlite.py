"""sqlite3: marking a transaction, committing it, and finding out afterwards what it did."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from urllib.parse import quote

from fmq.bind.errors import (
    RULED_OUT,
    TOO_OLD,
    BindError,
    Fenced,
    NoMarkerTable,
    WrongDatabase,
    ended_inside,
    strangers,
    unusable,
    work_open,
)
from fmq.bind.marker import (
    BUSY_SECONDS,
    DDL,
    DEADLINE_SECONDS,
    GRACE_SECONDS,
    REGISTERED,
    TABLE,
    registered_as,
)
from fmq.feedback.question import Answer, Question

# Not any fmq_tx that an attached file or a temporary table has: each file commits by itself.
MARKERS = f"main.{TABLE}"
NOW = "CAST(strftime('%s', 'now') AS INTEGER)"
MARK = (
    f"INSERT OR ROLLBACK INTO {MARKERS} (store_id, tx_id, state, deadline) "
    f"SELECT ?, ?, 'C', ? WHERE {NOW} < ?"
)
LOOK = f"SELECT state FROM {MARKERS} WHERE store_id = ? AND tx_id = ?"
SEEN = f"UPDATE {MARKERS} SET checked_at = {NOW} WHERE store_id = ? AND tx_id = ?"
TOMBSTONE = (
    f"INSERT INTO {MARKERS} (store_id, tx_id, state, deadline, checked_at) "
    f"VALUES (?, ?, 'R', {NOW} + {DEADLINE_SECONDS}, {NOW})"
)
OLD_MARKERS = (
    f"SELECT tx_id FROM {MARKERS} WHERE store_id = ? AND state = 'C' AND tx_id NOT LIKE ? "
    f"AND created_at < {NOW} - ?"
)
REMOVE = f"DELETE FROM {MARKERS} WHERE store_id = ? AND tx_id = ?"
REMOVE_TOMBSTONES = (
    f"DELETE FROM {MARKERS} WHERE store_id = ? AND state = 'R' AND deadline < {NOW} - ?"
)
REGISTER = (
    f"INSERT OR IGNORE INTO {MARKERS} (store_id, tx_id, state, deadline) VALUES (?, ?, 'C', {NOW})"
)


class SqliteBinding:
    """One connection of the user's, for one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._deadline = 0
        self.path = path_of(connection)

    def register(self, store: str, producer: str, *, new: bool) -> None:
        """Have the database know, for good, that it is the one that `producer` binds; BindError
        if it does not know that yet, and `producer` is not `new`.
        """
        self._refuse_open_transaction()
        connection = self._connection
        with self._marking():
            connection.execute("BEGIN IMMEDIATE")
            added = connection.execute(REGISTER, (store, registered_as(producer)))
            if added.rowcount and not new:
                connection.rollback()
                raise strangers(self.path, producer)
            connection.commit()

    def begin(self) -> str:
        """Begin the database's transaction, and take the right to write at once; what may take
        back its commits, or nothing.
        """
        self._refuse_open_transaction()
        connection = self._connection
        loss = loss_of(connection, self.path)
        connection.execute("BEGIN IMMEDIATE")
        [(now,)] = connection.execute(f"SELECT {NOW}")
        self._deadline = now + DEADLINE_SECONDS
        return loss

    def mark(self, store: str, tx_id: str) -> None:
        """The last statement of the database's transaction; Fenced if it comes too late."""
        connection = self._connection
        if not connection.in_transaction:
            raise ended_inside(self.path, tx_id)
        values = store, tx_id, self._deadline, self._deadline
        try:
            with self._marking():
                marked = connection.execute(MARK, values).rowcount
        except sqlite3.IntegrityError:
            raise Fenced(tx_id, RULED_OUT) from None
        if marked != 1:
            raise Fenced(tx_id, TOO_OLD)

    def _refuse_open_transaction(self) -> None:
        if self._connection.in_transaction:
            raise work_open(self.path)

    @contextlib.contextmanager
    def _marking(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            if "no such table" in str(error):
                raise NoMarkerTable(self.path, DDL["sqlite"]) from None
            raise

    def commit(self) -> None:
        self._connection.commit()

    def rolled_back_for_sure(self) -> bool:
        """After a commit that failed: whether it is certain that it did not happen."""
        if not self._connection.in_transaction:
            return False
        self._connection.rollback()  # it was still open, so it had not committed
        return True

    def rollback(self) -> None:
        """Drop what the database's transaction has done; a closed connection has done so itself."""
        try:
            begun = self._connection.in_transaction
        except sqlite3.ProgrammingError:
            return
        if begun:
            self._connection.rollback()

    def leave(self) -> None:
        """Nothing is left to do."""

    def check(self, question: Question) -> Answer:
        """What became of the transaction, on a connection of its own."""
        return check(self.path, question)


def check(path: str, question: Question) -> Answer:
    """Whether the database at `path` committed: asked behind the fence, so it is final."""
    try:
        return _fence(path, question)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            raise NoMarkerTable(path, DDL["sqlite"]) from None
        return "unknown"  # locked by somebody, perhaps by the producer; or it cannot be written


def _fence(path: str, question: Question) -> Answer:
    uri = f"file:{quote(path)}?mode=rw"
    store, tx_id = question.store, question.tx_id
    with contextlib.closing(
        sqlite3.connect(uri, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
    ) as connection:
        connection.execute("PRAGMA synchronous = EXTRA")  # what is answered stays true
        connection.execute("BEGIN IMMEDIATE")
        known = connection.execute(LOOK, (store, registered_as(question.producer))).fetchone()
        if known is None:
            raise WrongDatabase(path, question.producer)
        found = connection.execute(LOOK, (store, tx_id)).fetchone()
        # Written either way: the sync of this commit covers the producer's, too.
        connection.execute(TOMBSTONE if found is None else SEEN, (store, tx_id))
        connection.execute("COMMIT")
    return "commit" if found is not None and found[0] == "C" else "rollback"


def create_table(connection: sqlite3.Connection) -> None:
    """Make the marker table if it is not there."""
    found = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (TABLE,)
    ).fetchone()
    if found is None:
        connection.execute(DDL["sqlite"])
        connection.commit()


def purge(
    connection: sqlite3.Connection, store: str, undecided: frozenset[str], older_seconds: float
) -> int:
    """Remove markers that nobody can ask about any more; how many."""
    old = connection.execute(OLD_MARKERS, (store, REGISTERED + "%", older_seconds)).fetchall()
    gone = [(store, tx_id) for (tx_id,) in old if tx_id not in undecided]
    connection.executemany(REMOVE, gone)
    tombstones = connection.execute(REMOVE_TOMBSTONES, (store, GRACE_SECONDS)).rowcount
    connection.commit()
    return len(gone) + tombstones


def path_of(connection: sqlite3.Connection) -> str:
    """The file of the connection's own database; BindError if it has none."""
    try:
        files = connection.execute("PRAGMA database_list").fetchall()
    except sqlite3.ProgrammingError as error:  # closed, or another thread's
        raise unusable(error) from None
    for _, name, file in files:
        if name == "main" and file:
            return str(file)
    raise BindError(
        "a database in memory is gone with its process, so it can tell nothing after a crash. "
        "Nothing was changed. Bind one that has a file."
    )


LEVELS = ("OFF", "NORMAL", "FULL", "EXTRA")


def loss_of(connection: sqlite3.Connection, path: str) -> str:
    """How a power cut may take back what this connection commits; nothing if it cannot."""
    [(mode,)] = connection.execute("PRAGMA journal_mode")
    [(level,)] = connection.execute("PRAGMA synchronous")
    # Deleting the rollback journal commits, and that the name is gone is durable with EXTRA only.
    least = 2 if mode in ("wal", "truncate", "persist") else 3
    if mode not in ("off", "memory") and level >= least:
        return ""
    return (
        f"{path}: with journal_mode={mode} and synchronous={LEVELS[level]} a power cut may take "
        "back what was committed, and leave the messages that tell of it. journal_mode=WAL with "
        "synchronous=FULL, or journal_mode=DELETE with synchronous=EXTRA, keeps them together."
    )


binding = SqliteBinding
