"""The marker table: one row for each bound transaction, under a key that only one can take.

The producer inserts state C as the last statement of its own database transaction. A checker
that finds no row inserts a tombstone under the same key: a row of state R. A later insert of the
producer then fails. So the key is a fence: what a checker reads after its insert is final.
"""

from __future__ import annotations

from fmq.errors import BadOption

TABLE = "fmq_tx"
DEADLINE_SECONDS = 3600  # seconds after a transaction's begin in which its marker may be inserted
GRACE_SECONDS = 3600  # seconds that a tombstone stays after the deadline of its marker
RETENTION_SECONDS = 7 * 86400.0
REGISTERED = "§"  # the first character of producers' own rows; no tx_id begins with it
BUSY_SECONDS = 0.5  # seconds that a checker waits for the producer's open transaction

DDL = {
    "sqlite": f"""\
CREATE TABLE IF NOT EXISTS {TABLE} (
  store_id   TEXT NOT NULL,     -- the directory of the engine; two may share a database
  tx_id      TEXT NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('C', 'R')),  -- committed by its producer; ruled out
  deadline   INTEGER NOT NULL,  -- no C may be inserted later, by this database's clock
  created_at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)),
  checked_at INTEGER,
  PRIMARY KEY (store_id, tx_id) -- the fence
) WITHOUT ROWID;
""",
    "postgres": f"""\
CREATE TABLE IF NOT EXISTS {TABLE} (
  store_id   varchar(36) NOT NULL,   -- the directory of the engine; two may share a database
  tx_id      varchar(256) NOT NULL,
  state      char(1) NOT NULL CHECK (state IN ('C', 'R')),  -- committed by its producer; ruled out
  deadline   timestamptz NOT NULL,   -- no C may be inserted later, by this database's clock
  created_at timestamptz NOT NULL DEFAULT now(),
  checked_at timestamptz,
  PRIMARY KEY (store_id, tx_id)      -- the fence
);
""",
    "mysql": f"""\
-- fmq binds it through SQLAlchemy; its guide has the statements that insert a marker and that ask.
-- They were run on MariaDB 10.11, and on MySQL (8.0.16 or newer) never.
-- innodb_flush_log_at_trx_commit = 1.
CREATE TABLE IF NOT EXISTS {TABLE} (
  store_id   CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,  -- an engine's directory
  tx_id      VARBINARY(260) NOT NULL,  -- bytes: as text 'A' may equal 'a', and 'a ' does 'a'
  state      CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL CHECK (state IN ('C', 'R')),
  deadline   BIGINT NOT NULL,          -- no C may be inserted later, by this database's clock
  created_at BIGINT NOT NULL DEFAULT (UNIX_TIMESTAMP()),
  checked_at BIGINT,
  PRIMARY KEY (store_id, tx_id)        -- the fence: of a storage engine that locks rows
) ENGINE = InnoDB;
""",
}


def registered_as(producer: str) -> str:
    """Return the key of a producer's own row, which says that the producer binds this database."""
    return REGISTERED + producer


def ddl(dialect: str) -> str:
    """Return the statement that makes the marker table unless it exists."""
    if dialect not in DDL:
        raise BadOption(f"dialect {dialect!r}: must be one of {', '.join(sorted(DDL))}")
    return DDL[dialect]
