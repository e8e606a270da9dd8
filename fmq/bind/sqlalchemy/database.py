"""A database as one of SQLAlchemy's engines reaches it, on connections of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import BigInteger, Connection, Engine, bindparam, create_engine, inspect, text
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.pool import NullPool

from fmq.bind import dialects
from fmq.bind.dialects import MYSQL, POSTGRES, POSTGRES_SCHEMA, SQLITE, Dialect, key_of, sqlite_path
from fmq.bind.errors import (
    RULED_OUT,
    TOO_OLD,
    BindError,
    Fenced,
    NoMarkerTable,
    Unreachable,
    WrongDatabase,
    strangers,
)
from fmq.bind.marker import DDL, TABLE, registered_as
from fmq.errors import BadOption
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question

T = TypeVar("T")

DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRES, "mysql": MYSQL, "mariadb": MYSQL}
DEADLINE = bindparam("deadline", type_=BigInteger)  # a plain int would be one of 32 bits

_PATHS: WeakKeyDictionary[Engine, str] = WeakKeyDictionary()


class SqlAlchemyDatabase:
    """What is behind one engine; it does not keep any of its connections."""

    def __init__(self, engine: Engine) -> None:
        self.dialect = dialect_named(engine.dialect.name)
        self.engine = engine

    @cached_property
    def _own(self) -> Engine:
        # The user's pool may have no connection left, as who is asked about still has one, or be
        # disposed of. Made anew it connects in the same way, whatever hooks there are for that.
        return create_engine(self.engine.url, pool=self.engine.pool.recreate())

    def on_new_connection(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, done on a new connection: what it sets there is for nobody else."""
        if self.engine.dialect.is_async:
            from fmq.bind.sqlalchemy.on_loop import (
                on_new_connection,  # here: asyncio is slow to import
            )

            return on_new_connection(self.engine, work)
        with self._own.connect() as connection:
            connection.detach()
            return work(connection)

    def in_new_transaction(self, work: Callable[[Connection], T]) -> T:
        """The same in one transaction."""

        def begun(connection: Connection) -> T:
            with connection.begin():
                return work(connection)

        return self.on_new_connection(begun)

    @property
    def path(self) -> str:
        """Its name; the same as that of a plain connection of the driver's, if we know that."""
        if self.engine not in _PATHS:
            _PATHS[self.engine] = self.on_new_connection(
                lambda connection: _path_of(connection, self.dialect)
            )
        return _PATHS[self.engine]

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Have the database know, for good, that it is the one that `producer` binds; BindError
        if it does not know that yet, and `producer` is not `new`. PostgreSQL's schema of the table.
        """
        values = key_of(store, registered_as(producer))

        def added(own: Connection) -> str:
            done = own.execute(text(self.dialect.statements.register), values)
            if done.rowcount and not new:
                raise strangers(self.path, producer)
            if self.dialect is not POSTGRES:
                return ""
            return str(own.scalar(text(f"{POSTGRES_SCHEMA}to_regclass(:table)"), {"table": TABLE}))

        with self._checking_table():
            return self.in_new_transaction(added)

    def mark(
        self, connection: Connection, store: str, tx_id: str, deadline: int
    ) -> tuple[str, str]:
        """The last statement of a transaction; Fenced if it comes too late. Of PostgreSQL's when it
        began, and in which schema the mark is.
        """
        statement = text(self.dialect.statements.mark).bindparams(DEADLINE)
        values = key_of(store, tx_id) | {"deadline": deadline}
        try:
            with self._checking_table():
                done = connection.execute(statement, values)
                marked = done.rowcount
                told = done.one_or_none() if done.returns_rows else None
        except IntegrityError:
            raise Fenced(tx_id, RULED_OUT) from None
        if marked != 1:
            raise Fenced(tx_id, TOO_OLD)
        began, place = told or ("", "")
        return began, place

    def check(self, question: Question) -> Answer:
        """Whether the database committed: asked behind the fence, so it is final."""
        try:
            return self.on_new_connection(lambda own: self._fence(own, question))
        except ProgrammingError:
            raise
        except DBAPIError as error:
            if _is_busy(error.orig):
                return "unknown"  # perhaps the producer is still at it
            raise Unreachable(str(error.orig)) from error

    def _fence(self, connection: Connection, question: Question) -> Answer:
        say = self.dialect.statements
        key = key_of(question.store, question.tx_id)
        registered = key_of(question.store, registered_as(question.producer))
        for statement in self.dialect.setup:
            connection.exec_driver_sql(statement)
        connection.commit()
        with self._checking_table(), connection.begin():
            known = connection.execute(text(say.look), registered).first()
        if known is None:
            raise WrongDatabase(self.path, question.producer)
        with suppress(IntegrityError), connection.begin():
            # It waits for the row of a transaction that is still open.
            connection.execute(text(say.tombstone), key)
            return "rollback"
        # Somebody was first; what stands there is read in a new transaction.
        with connection.begin():
            connection.execute(text(say.seen), key)  # its sync covers the producer's commit, too
            state = connection.scalar(text(say.look), key)
        return "commit" if state == "C" else "rollback" if state == "R" else "unknown"

    @contextmanager
    def _checking_table(self) -> Iterator[None]:
        """NoMarkerTable, if that is why a statement failed."""
        try:
            yield
        except (OperationalError, ProgrammingError):
            if not self._has_table():
                raise NoMarkerTable(self.path, DDL[self.dialect.ddl]) from None
            raise

    def _has_table(self) -> bool:
        with suppress(DBAPIError):
            return self.on_new_connection(lambda own: inspect(own).has_table(TABLE))
        return True  # it could not be asked, so that is not why

    def create_table(self) -> None:
        """Make the marker table if it is not there."""
        if not self.on_new_connection(lambda own: inspect(own).has_table(TABLE)):
            self.in_new_transaction(lambda own: own.execute(text(DDL[self.dialect.ddl])))

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers that nobody can ask about any more; how many."""
        say = self.dialect.statements

        def work(own: Connection) -> int:
            return dialects.purge(_Cursor(own), own.commit, say, store, undecided, older_seconds)

        with self._checking_table():
            return self.on_new_connection(work)


BUSY_ERRORS = ("55P03", "40P01", "40001", "57014", 1205, 1213)


def _is_busy(error: BaseException | None) -> bool:
    """Whether a driver's error says that another transaction is in the way now."""
    # psycopg and most others; psycopg2 has its own word for it; drivers of MySQL begin with it.
    said = [getattr(error, "sqlstate", None), getattr(error, "pgcode", None)]
    said += [*getattr(error, "args", ())][:1]
    return any(each in BUSY_ERRORS for each in said if each) or "database is locked" in str(error)


def database_at(address: Any) -> SqlAlchemyDatabase:
    """That of one of SQLAlchemy's URLs or engines; BadOption if it is neither."""
    address = getattr(address, "sync_engine", address)  # of an engine of asyncio
    if isinstance(address, Engine):
        return SqlAlchemyDatabase(address)
    try:
        return SqlAlchemyDatabase(create_engine(address, poolclass=NullPool))
    except (ArgumentError, ImportError) as error:
        raise BadOption(
            f"{address!r} is no address of a database that SQLAlchemy can reach here: {error}. "
            "Nothing was changed."
        ) from error


class _Cursor:
    """A connection of SQLAlchemy as a cursor of DB-API."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: dict[str, Any]) -> Any:
        return self._connection.execute(text(statement), values)

    def executemany(self, statement: str, values: list[dict[str, Any]]) -> Any:
        return self._connection.execute(text(statement), values)


def dialect_named(dialect: str) -> Dialect:
    """Which kind of database that is, by SQLAlchemy's name for it."""
    if dialect not in DIALECTS:
        raise BindError(
            f"a database of kind {dialect!r} cannot be bound; these can: {', '.join(DIALECTS)}. "
            "Nothing was changed. With another one, prepare and decide yourself and register a "
            "checker; the guide has the steps."
        )
    return DIALECTS[dialect]


def _path_of(connection: Connection, kind: Dialect) -> str:
    if kind is SQLITE:
        return sqlite_path(connection.exec_driver_sql)
    url = connection.engine.url
    place: Any = url.host, url.port, url.database
    info: Any = getattr(connection.connection.driver_connection, "info", None)
    if kind is POSTGRES and hasattr(info, "dbname"):
        place = info.host, info.port, info.dbname  # what the URL leaves out, psycopg knows
    host, port, name = place
    return f"{url.get_backend_name()}://{host or ''}{f':{port}' if port else ''}/{name or ''}"
