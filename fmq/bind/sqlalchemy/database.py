"""Databases of SQLAlchemy engines: inserts a marker, asks what became of it, and purges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
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
from fmq.bind.bind_errors import (
    RULED_OUT,
    TOO_OLD,
    BindError,
    Fenced,
    NoMarkerTable,
    Unreachable,
    WrongDatabase,
    unknown_producer,
)
from fmq.bind.dialects import (
    MYSQL,
    POSTGRES,
    POSTGRES_SCHEMA,
    SQLITE,
    Dialect,
    MarkerRows,
    key_of,
    sqlite_path,
)
from fmq.bind.marker import DDL, TABLE, registered_as
from fmq.errors import BadOption
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question

T = TypeVar("T")

DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRES, "mysql": MYSQL, "mariadb": MYSQL}
# without the type, SQLAlchemy would send 32 bits
DEADLINE = bindparam("deadline", type_=BigInteger)

_PATHS: WeakKeyDictionary[Engine, str] = WeakKeyDictionary()


class MarkerPlace(NamedTuple):
    """The values that PostgreSQL returns for a new marker. Other databases return none."""

    began: str  # the time at which the transaction of the marker began
    schema: str  # the schema of the table with the marker


class SqlAlchemyDatabase:
    """The database of an engine. It keeps none of the engine's connections."""

    def __init__(self, engine: Engine) -> None:
        self.dialect = dialect_named(engine.dialect.name)
        self.engine = engine

    @cached_property
    def _own(self) -> Engine:
        # The user's pool may be disposed of. Or its last connection may belong to the transaction
        # in question. A recreated pool keeps the hooks that run when it connects.
        return create_engine(self.engine.url, pool=self.engine.pool.recreate())

    def on_new_connection(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a new connection, which is then closed, and return its result."""
        if self.engine.dialect.is_async:
            from fmq.bind.sqlalchemy.own_loop import (
                on_new_connection,  # imported here, because asyncio is slow to import
            )

            return on_new_connection(self.engine, work)
        with self._own.connect() as connection:
            connection.detach()
            return work(connection)

    def in_new_transaction(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction on a new connection, and return its result."""

        def begun(connection: Connection) -> T:
            with connection.begin():
                return work(connection)

        return self.on_new_connection(begun)

    @property
    def path(self) -> str:
        """Return the name of the database, if possible as a connection of its driver would."""
        if self.engine not in _PATHS:
            _PATHS[self.engine] = self.on_new_connection(
                lambda connection: _path_of(connection, self.dialect)
            )
        return _PATHS[self.engine]

    def register(self, store: str, producer: str, *, new: bool) -> str:
        """Write durably that `producer` binds this database. Return PostgreSQL's schema, or "".

        Raises BindError if the database did not know that, and `producer` is not `new`.
        """
        values = key_of(store, registered_as(producer))

        def added(own: Connection) -> str:
            done = own.execute(text(self.dialect.statements.register), values)
            if done.rowcount and not new:
                raise unknown_producer(self.path, producer)
            if self.dialect is not POSTGRES:
                return ""
            return str(own.scalar(text(f"{POSTGRES_SCHEMA}to_regclass(:table)"), {"table": TABLE}))

        with self._checking_table():
            return self.in_new_transaction(added)

    def insert_marker(
        self, connection: Connection, store: str, tx_id: str, deadline: int
    ) -> MarkerPlace:
        """Insert the marker as the last statement of the transaction, and return what it returns.

        Raises Fenced if a checker has ruled the transaction out, or the deadline is over.
        """
        statement = text(self.dialect.statements.insert).bindparams(DEADLINE)
        values = key_of(store, tx_id) | {"deadline": deadline}
        try:
            with self._checking_table():
                done = connection.execute(statement, values)
                inserted = done.rowcount
                returned = done.one_or_none() if done.returns_rows else None
        except IntegrityError:
            raise Fenced(tx_id, RULED_OUT) from None
        if inserted != 1:
            raise Fenced(tx_id, TOO_OLD)
        return MarkerPlace(*returned) if returned else MarkerPlace("", "")

    def check(self, question: Question) -> Answer:
        """Return whether the database committed. The fence makes the answer final."""
        try:
            return self.on_new_connection(lambda own: self._fence(own, question))
        except ProgrammingError:
            raise
        except DBAPIError as error:
            if _is_busy(error.orig):
                return "unknown"  # the producer's transaction may still be open
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
            # Waits for the row of a transaction that is still open.
            connection.execute(text(say.tombstone), key)
            return "rollback"
        # The key was taken. Its row is read in a new transaction.
        with connection.begin():
            # this commit's sync covers the producer's commit, too
            connection.execute(text(say.seen), key)
            state = connection.scalar(text(say.look), key)
        return "commit" if state == "C" else "rollback" if state == "R" else "unknown"

    @contextmanager
    def _checking_table(self) -> Iterator[None]:
        """Raise NoMarkerTable if a statement failed for lack of the table."""
        try:
            yield
        except (OperationalError, ProgrammingError):
            if not self._has_table():
                raise NoMarkerTable(self.path, DDL[self.dialect.ddl]) from None
            raise

    def _has_table(self) -> bool:
        with suppress(DBAPIError):
            return self.on_new_connection(lambda own: inspect(own).has_table(TABLE))
        # The database cannot be asked now, so do not report that the table is missing.
        return True

    def create_table(self) -> None:
        """Make the marker table if it does not exist."""
        if not self.on_new_connection(lambda own: inspect(own).has_table(TABLE)):
            self.in_new_transaction(lambda own: own.execute(text(DDL[self.dialect.ddl])))

    def purge(self, store: str, undecided: frozenset[str], older_seconds: float) -> int:
        """Remove markers that no checker can ask about any more, and return how many."""
        say = self.dialect.statements

        def work(own: Connection) -> int:
            return dialects.purge(_Cursor(own), own.commit, say, store, undecided, older_seconds)

        with self._checking_table():
            return self.on_new_connection(work)

    def markers(self, store: str) -> MarkerRows:
        """Return the rows of a store in the marker table."""
        say, spread = self.dialect.statements, self.dialect.spread_seconds
        try:
            with self._checking_table():
                return self.on_new_connection(
                    lambda own: dialects.markers(_Cursor(own), say, store, spread)
                )
        except DBAPIError as error:
            raise Unreachable(str(error.orig)) from error


BUSY_ERRORS = ("55P03", "40P01", "40001", "57014", 1205, 1213)


def _is_busy(error: BaseException | None) -> bool:
    """Return whether a driver's error means that another transaction is in the way."""
    # `sqlstate` in most drivers, `pgcode` in psycopg2, the first argument in drivers of MySQL.
    said = [getattr(error, "sqlstate", None), getattr(error, "pgcode", None)]
    said += [*getattr(error, "args", ())][:1]
    return any(each in BUSY_ERRORS for each in said if each) or "database is locked" in str(error)


def database_at(address: Any) -> SqlAlchemyDatabase:
    """Return the database of a SQLAlchemy URL or engine. Raises BadOption for other values, and
    ImportError without the driver.
    """
    address = getattr(address, "sync_engine", address)  # the engine inside an asyncio engine
    if isinstance(address, Engine):
        return SqlAlchemyDatabase(address)
    try:
        return SqlAlchemyDatabase(create_engine(address, poolclass=NullPool))
    except ArgumentError as error:
        raise BadOption(
            f"{address!r} is no address of a database that SQLAlchemy can reach here: {error}. "
            "Nothing was changed."
        ) from error


class _Cursor:
    """A connection of SQLAlchemy with the methods of a DB-API cursor."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: dict[str, Any]) -> Any:
        return self._connection.execute(text(statement), values)

    def executemany(self, statement: str, values: list[dict[str, Any]]) -> Any:
        return self._connection.execute(text(statement), values)


def dialect_named(name: str) -> Dialect:
    """Return the dialect that SQLAlchemy calls `name`. Raises BindError if fmq has none."""
    if name not in DIALECTS:
        raise BindError(
            f"a database of kind {name!r} cannot be bound; these can: {', '.join(DIALECTS)}. "
            "Nothing was changed. With another one, prepare and decide yourself and register a "
            "checker; the guide has the steps."
        )
    return DIALECTS[name]


def _path_of(connection: Connection, dialect: Dialect) -> str:
    if dialect is SQLITE:
        return sqlite_path(connection.exec_driver_sql)
    url = connection.engine.url
    place: Any = url.host, url.port, url.database
    info: Any = getattr(connection.connection.driver_connection, "info", None)
    if dialect is POSTGRES and hasattr(info, "dbname"):
        place = info.host, info.port, info.dbname  # psycopg knows the parts that the URL leaves out
    host, port, name = place
    return f"{url.get_backend_name()}://{host or ''}{f':{port}' if port else ''}/{name or ''}"
