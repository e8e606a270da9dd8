"""The databases that producers are bound to, as the engine asks and purges them.

The engine asks them what became of transactions. It also purges them, that is, it removes markers
that no checker needs any more. A database that `resolve=` names is purged when the engine opens and
once a day, any other after each 1,000 bound blocks. Both use connections of their own. A failure is
in `engine.stats().trouble`, is logged when it begins and when it ends, and is tried again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress

from fmq.arguments.names import check_producer
from fmq.basics.clock import Clock
from fmq.bind.bind_errors import NoMarkerTable, Unreachable
from fmq.bind.drivers import database_at
from fmq.bind.fork_guard import GUARD
from fmq.bind.interface import Database, DecisionSource
from fmq.bind.maintenance import purge_markers
from fmq.bind.marker import RETENTION_SECONDS
from fmq.errors import EngineFailed, UsageError
from fmq.feedback.answers import Answer, Checker
from fmq.feedback.question import Question

DAY_SECONDS = 86400.0
RETRY_SECONDS = 5.0  # seconds to wait after an error
BLOCKS_BETWEEN_PURGES = 1000
JOIN_SECONDS = 5.0
LOG = logging.getLogger("fmq.bind")


def check_resolve(resolve: object) -> None:
    """Raise unless `resolve` is a mapping of producers to databases."""
    if not isinstance(resolve, Mapping):
        raise TypeError(
            f"resolve={resolve!r}: is a mapping of producers to their databases, as in "
            '{"shop": "sqlite:///shop.db"}. Nothing was opened.'
        )
    for producer in resolve:
        check_producer(producer)


class ProducerDatabase:
    """The database of one producer: when to purge it next, and what went wrong with it."""

    def __init__(self, producer: str, database: Database, purge_every: float, due: float) -> None:
        self.producer = producer
        self.database = database
        self.purge_every = purge_every
        self.due = due  # the time of the next purge, by `Clock.monotonic`
        self.blocks = 0  # bound blocks that have ended since the last purge
        # The last error of each step, "asked" or "reached": one may fail while the other works.
        self.troubles: dict[str, str] = {}

    def note(self, tried: str, trouble: str | None) -> None:
        """Remember how the step `tried` went (None: well), and log it if that is new."""
        if trouble == self.troubles.get(tried):
            return
        if trouble is None:
            del self.troubles[tried]
            LOG.info("the database of producer %r answers again", self.producer)
        else:
            self.troubles[tried] = trouble
            LOG.warning(
                "the database of producer %r cannot be %s: %s; it is tried again",
                self.producer, tried, trouble,
            )  # fmt: skip


class Databases:
    """All databases that an engine asks and purges. Any thread may call it."""

    def __init__(self, engine: DecisionSource, clock: Clock, *, background: bool) -> None:
        self._engine = engine
        self._clock = clock
        self._background = background
        self._all: dict[str, ProducerDatabase] = {}  # the database of each producer
        self._thread: threading.Thread | None = None
        self._purging = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stopped = False

    def resolve(self, addresses: Mapping[str, object]) -> None:
        """Ask the databases at `addresses` what became of their producers' transactions."""
        for producer, address in addresses.items():
            checker = self.add_configured(producer, database_at(address))
            self._engine.checker(producer)(checker)
        self._engine.settle()
        others = {tx.producer or "" for tx in self._engine.undecided()} - addresses.keys()
        if others:
            LOG.warning(
                "transactions of other producers than those of resolve= are undecided, and no "
                "database is asked about them: %s",
                ", ".join(map(repr, sorted(others))),
            )
        self.start()

    def add_configured(self, producer: str, database: Database) -> Checker:
        """Return a checker that asks a database of `resolve=`. Purge that database each day."""
        return self._add(ProducerDatabase(producer, database, DAY_SECONDS, self._clock.monotonic()))

    def add_bound(self, producer: str, database: Database) -> Checker:
        """Return a checker that asks a bound database. Purge that database after each 1,000
        blocks.
        """
        if producer in self._all:
            return self._checker(self._all[producer])
        return self._add(ProducerDatabase(producer, database, math.inf, math.inf))

    def _add(self, database: ProducerDatabase) -> Checker:
        # Make a new dict, because the thread may be iterating over the old one.
        self._all = {**self._all, database.producer: database}
        return self._checker(database)

    def _checker(self, database: ProducerDatabase) -> Checker:
        return lambda question: self._answer(database, question)

    def _answer(self, database: ProducerDatabase, question: Question) -> Answer:
        if not question.bound:
            # A transaction that is not bound never has a marker, so the lack of one proves nothing.
            return "unknown"
        try:
            with GUARD.using():
                answer = database.database.check(question)
        except Exception as error:
            database.note("asked", driver_message(error))
            self._purge_by(database, self._clock.monotonic() + RETRY_SECONDS)
            if isinstance(error, Unreachable):
                return "unknown"
            raise
        database.note("asked", None)
        return answer

    @property
    def trouble(self) -> str | None:
        """Return the error of the first database that does not answer, or None."""
        for each in self._all.values():
            for tried, why in list(each.troubles.items()):
                return f"the database of producer {each.producer!r} cannot be {tried}: {why}"
        return None

    # --- purging --------------------------------------------------------------------------------

    def block_ended(self, producer: str) -> None:
        """Count a bound block of `producer` that has ended. Raises nothing."""
        database = self._all.get(producer)
        if database is None:
            return
        database.blocks += 1
        if database.purge_every == math.inf and database.blocks >= BLOCKS_BETWEEN_PURGES:
            database.blocks = 0
            self._purge_by(database, self._clock.monotonic())
        if not self._background:
            self.attempt()

    def _purge_by(self, database: ProducerDatabase, due: float) -> None:
        # A purge also finds out whether a database answers again.
        database.due = min(database.due, due)
        self._kick()

    def _kick(self) -> None:
        with suppress(RuntimeError):  # another thread has just released the lock
            self._wake.release()

    def start(self) -> None:
        """Start the thread that purges, or purge what is due now if the engine has no threads."""
        if not self._background:
            self.attempt()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fmq databases", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopped and self.attempt():
            seconds = self._next_due() - self._clock.monotonic()
            self._clock.wait(self._wake, None if seconds == math.inf else max(0.0, seconds))

    def _next_due(self) -> float:
        return min((each.due for each in self._all.values()), default=math.inf)

    def attempt(self) -> bool:
        """Purge what is due. Return False if the engine is closed or has failed."""
        if not self._purging.acquire(blocking=False):
            return True  # another thread is purging
        try:
            return all(self._purge(each) for each in self._due())
        finally:
            self._purging.release()

    def _due(self) -> Iterable[ProducerDatabase]:
        now = self._clock.monotonic()
        return [each for each in self._all.values() if each.due <= now]

    def _purge(self, database: ProducerDatabase) -> bool:
        now = self._clock.monotonic()
        database.due = now + database.purge_every
        try:
            with GUARD.using():
                purge_markers(self._engine, database.database.purge, RETENTION_SECONDS)
        except (UsageError, EngineFailed):
            return False  # the engine is closed, or this is a forked child
        except NoMarkerTable:
            # The table does not exist, because no producer was bound yet.
            database.note("reached", None)
        except Exception as error:
            database.note("reached", driver_message(error))
            database.due = now + RETRY_SECONDS
        else:
            database.note("reached", None)
        return True

    def stop(self) -> None:
        """End the thread. Wait some seconds for a running purge."""
        self._stopped = True
        self._kick()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)


def driver_message(error: BaseException) -> str:
    """Return the driver's message alone, without the statements that SQLAlchemy adds."""
    return str(getattr(error, "orig", None) or error).strip() or type(error).__name__
