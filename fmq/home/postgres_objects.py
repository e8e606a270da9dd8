"""A home in a database of PostgreSQL: `postgresql://host/database/shop`.

    fmq_home (home, key, data)      a row is an object; the unique key refuses a second one

Each insert says itself that its commit waits for the disk, and for the synchronous standbys if
there are some. So no setting of the database, and no pooler in between, can take that away.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EACCES, ECONNREFUSED, EINVAL
from threading import Lock
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DuplicateTable, UniqueViolation

from fmq.basics.clock import SystemClock
from fmq.basics.own_process import here
from fmq.home.objects import KeyTaken, NoAnswer

SECONDS = 20  # how long an answer may take
CONNECT_SECONDS = 5
READ_TOGETHER = 16
TABLE = """
CREATE TABLE IF NOT EXISTS fmq_home (
    home text COLLATE "C",
    key text COLLATE "C",
    data bytea NOT NULL,
    PRIMARY KEY (home, key)
);
ALTER TABLE fmq_home ALTER data SET STORAGE EXTERNAL;
"""
DURABLY = """
FROM set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)
"""
CREATE = f"INSERT INTO fmq_home SELECT %s, %s, %b {DURABLY} ON CONFLICT DO NOTHING"
PROVE = f"""
INSERT INTO fmq_home SELECT %s, 'proof', '' {DURABLY}
ON CONFLICT (home, key) DO UPDATE SET data = ''
"""
READ = "SELECT key, data FROM fmq_home WHERE home = %s AND key = ANY(%s)"
NAMES = "SELECT key FROM fmq_home WHERE home = %s AND key >= %s AND key < %s ORDER BY key"
REMOVE = "DELETE FROM fmq_home WHERE home = %s AND key = ANY(%s)"
SERVER = "SELECT current_setting('fsync') = 'on', to_regclass('fmq_home') IS NOT NULL"
# A server that ends, is full, or has become a standby (ReadOnly, which is an InternalError).
PERHAPS_SENT = psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError


class PostgresObjects:
    """Implements Objects. Each call has a connection of its own while it lasts."""

    object_bytes_max = 8 << 20

    def __init__(self, address: str, conninfo: str, home: str, *, make: bool) -> None:
        """`conninfo` is what libpq takes. With `make` the table is made if it is missing."""
        self.address = address
        self._home = home
        self._process = here()
        self._idle: list[_HomeLink] = []
        self._makes = make
        # How often a call had no answer, and how many of these a later commit has proven.
        self._doubts, self._proven = 1, 0
        self._doubting = Lock()
        with self._explained():
            self._how: dict[str, Any] = conninfo_to_dict(conninfo)
            self._how.setdefault("connect_timeout", CONNECT_SECONDS)
        try:
            link = self._connected()
        except psycopg.Error as error:
            raise OSError(ECONNREFUSED, _line(error), self.address) from error
        with self._explained(), link:
            ((syncs, has_table),) = link.execute(SERVER).fetchall()
            if not syncs:
                raise OSError(EINVAL, "this server has fsync = off", self.address)
            if make and not has_table:
                with suppress(DuplicateTable, UniqueViolation):  # another machine has just made it
                    link.execute(TABLE)

    def create(self, key: str, data: bytes) -> None:
        with self._link() as link:
            made = link.execute(CREATE, (self._home, key, data)).rowcount
        if not made:
            raise KeyTaken

    def read(self, key: str) -> bytes | None:
        return next(iter(self.read_run([key])), None)

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = []
        with self._link() as link:
            for at in range(0, len(keys), READ_TOGETHER):
                part = [*keys[at : at + READ_TOGETHER]]
                rows = dict(link.execute(READ, (self._home, part), binary=True).fetchall())
                for key in part:
                    if key not in rows:
                        return found
                    found.append(rows[key])
        return found

    def names(self, folder: str) -> list[str]:
        start, end = f"{folder}/", f"{folder}0"  # 0 is what follows / in ASCII
        with self._link() as link:
            rows = link.execute(NAMES, (self._home, start, end)).fetchall()
        return [key.removeprefix(start) for (key,) in rows]

    def remove(self, keys: Sequence[str]) -> None:
        with self._link() as link:
            link.execute(REMOVE, (self._home, [*keys]))

    def close(self) -> None:
        if here() == self._process:  # in the child of a fork, connections are the parent's
            while self._idle:
                self._idle.pop().close()

    def _connected(self) -> _HomeLink:
        return _HomeLink.connect(**self._how, autocommit=True, prepare_threshold=None)

    @contextmanager
    def _link(self) -> Iterator[_HomeLink]:
        """Lend a connection. One that had no answer is closed."""
        with self._explained():
            link = self._idle.pop() if self._idle else self._connected()
            try:
                self._prove(link)
                yield link
                link.check_replicated()
            except BaseException:
                with self._doubting:
                    self._doubts += 1
                link.close()
                raise
        self._idle.append(link)

    def _prove(self, link: _HomeLink) -> None:
        """Commit behind everything that had no answer.

        Such an entry can be read as soon as it is on one machine. It may not be on the synchronous
        standby, if its connection was cut while it waited for that. A later commit that was not cut
        proves that it is.
        """
        doubts = self._doubts
        if self._makes and self._proven < doubts:
            link.execute(PROVE, (self._home,))
            link.check_replicated()
            self._proven = doubts

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the errors of the client into those of Objects."""
        try:
            yield
        except PERHAPS_SENT as error:
            raise NoAnswer(_line(error)) from error
        except psycopg.Error as error:
            raise OSError(EACCES, _line(error), self.address) from error


class _HomeLink(psycopg.Connection[Any]):
    """A connection that waits for an answer for some time, and not for ever."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._warned = ""
        self.add_notice_handler(self._noticed)

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self._warned = diagnostic.message_primary or "a warning"

    def check_replicated(self) -> None:
        """Raise NoAnswer if a commit was told not to wait for the standby any more."""
        if self._warned:
            raise NoAnswer(self._warned)

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(_in_time(gen), *args, **kwargs)


def _in_time(gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Do as `gen` does, up to the time for an answer. psycopg wakes it ten times a second."""
    ends = SystemClock.monotonic() + SECONDS
    try:
        asked = next(gen)
        while True:
            ready = yield asked
            if SystemClock.monotonic() > ends:
                raise psycopg.OperationalError(f"no answer in {SECONDS} s")
            asked = gen.send(ready)
    except StopIteration as ended:
        return ended.value


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
