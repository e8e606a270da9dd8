"""The databases that producers are bound to, as the engine itself asks them.

It asks what became of transactions, and it removes rows of the marker table that no checker needs
any more: when it is opened and once a day where `resolve=` names the database, else after one bound
block in 1,000. Either is done on a connection of its own, in transactions of its own. What fails is
noted for `engine.stats().trouble`, logged when that changes, and tried again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable
from contextlib import suppress

from fmq.bind.errors import NoMarkerTable, Unreachable
from fmq.bind.interface import Database, DecisionSource
from fmq.bind.maintenance import purge_markers
from fmq.bind.marker import RETENTION_SECONDS
from fmq.clock import Clock
from fmq.errors import EngineFailed, UsageError
from fmq.feedback.answers import Answer, Checker
from fmq.feedback.question import Question

DAY_SECONDS = 86400.0
RETRY_SECONDS = 5.0  # after something failed
BLOCKS_BETWEEN_PURGES = 1000
JOIN_SECONDS = 5.0
LOG = logging.getLogger("fmq.bind")


class ProducerDatabase:
    """That of one producer."""

    def __init__(self, producer: str, database: Database, purge_every: float, due: float) -> None:
        self.producer = producer
        self.database = database
        self.purge_every = purge_every
        self.due = due  # when it is purged next; a time of `Clock.monotonic`
        self.blocks = 0
        # What is wrong, by what was tried: the one may fail where the other does not.
        self.troubles: dict[str, str] = {}

    def note(self, tried: str, trouble: str | None) -> None:
        """Note how it went, and log that if it is news."""
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
    """All that an engine asks. Safe for threads."""

    def __init__(self, engine: DecisionSource, clock: Clock, *, background: bool) -> None:
        self._engine = engine
        self._clock = clock
        self._background = background
        self._all: dict[str, ProducerDatabase] = {}  # by producer
        self._thread: threading.Thread | None = None
        self._purging = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._stopped = False

    def add_configured(self, producer: str, database: Database) -> Checker:
        """A checker that asks the database that `resolve=` names; it is purged each day."""
        return self._add(ProducerDatabase(producer, database, DAY_SECONDS, self._clock.monotonic()))

    def add_bound(self, producer: str, database: Database) -> Checker:
        """The same for one that was bound; it is purged after so many blocks."""
        if producer in self._all:
            return self._checker(self._all[producer])
        return self._add(ProducerDatabase(producer, database, math.inf, math.inf))

    def _add(self, database: ProducerDatabase) -> Checker:
        # A new dict: the thread goes through the one that it was handed.
        self._all = {**self._all, database.producer: database}
        return self._checker(database)

    def _checker(self, database: ProducerDatabase) -> Checker:
        return lambda question: self._answer(database, question)

    def _answer(self, database: ProducerDatabase, question: Question) -> Answer:
        if not question.bound:
            return "unknown"  # that it has no mark says nothing
        try:
            answer = database.database.check(question)
        except Exception as error:
            database.note("asked", driver_message(error))
            self._look_at(database, self._clock.monotonic() + RETRY_SECONDS)
            if isinstance(error, Unreachable):
                return "unknown"
            raise
        database.note("asked", None)
        return answer

    @property
    def trouble(self) -> str | None:
        """What is wrong with the first database that does not answer."""
        for each in self._all.values():
            for tried, why in list(each.troubles.items()):
                return f"the database of producer {each.producer!r} cannot be {tried}: {why}"
        return None

    # --- purging --------------------------------------------------------------------------------

    def block_ended(self, producer: str) -> None:
        """A bound block of `producer` has ended; raises nothing."""
        database = self._all.get(producer)
        if database is None:
            return
        database.blocks += 1
        if database.purge_every == math.inf and database.blocks >= BLOCKS_BETWEEN_PURGES:
            database.blocks = 0
            self._look_at(database, self._clock.monotonic())
        if not self._background:
            self.attempt()

    def _look_at(self, database: ProducerDatabase, due: float) -> None:
        database.due = min(database.due, due)
        self._kick()

    def _kick(self) -> None:
        with suppress(RuntimeError):  # another thread just did
            self._wake.release()

    def start(self) -> None:
        """Do what is due now: in a thread from now on, or at once where there are no threads."""
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
        """Purge what is due; False if the engine has ended."""
        if not self._purging.acquire(blocking=False):
            return True  # another thread is at it
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
            purge_markers(self._engine, database.database.purge, RETENTION_SECONDS)
        except (UsageError, EngineFailed):
            return False  # closed, or a copy in a forked child
        except NoMarkerTable:
            database.note("reached", None)  # nothing was bound yet
        except Exception as error:
            database.note("reached", driver_message(error))
            database.due = now + RETRY_SECONDS
        else:
            database.note("reached", None)
        return True

    def stop(self) -> None:
        """End the thread; a purge that runs is given some seconds."""
        self._stopped = True
        self._kick()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)


def driver_message(error: BaseException) -> str:
    """What the driver said; SQLAlchemy says more, its statements among them."""
    return str(getattr(error, "orig", None) or error).strip() or type(error).__name__
