"""One shop over many lives. Each life ends, or is killed somewhere. Then rows and messages must
agree.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import fmq
from crash_tests.bound import producer
from crash_tests.bound.database import Database
from crash_tests.bound.producer import Life, settle
from crash_tests.bound.promises import Promises
from crash_tests.bound.server import Server
from crash_tests.bound.steps import LEAVES_THE_PRODUCER, OF_A_CHECKER, Blow, Step
from crash_tests.bound.ways import PRODUCER, RIGHT, TOPICS, Way
from crash_tests.oracle import Violation
from crash_tests.real.life import processes

SECONDS_MAX = 60.0  # how long a life may report nothing
AT_WORK = 0.7  # the share of blows at any moment that hit a life at work, and not in its recovery
MOMENT_SECONDS_MAX = 0.15
COMMIT_SECONDS = 0.002  # how long to wait so that a database is in the middle of a commit
AWAY_SECONDS_MAX = 0.1
NTH_MAX = 3
THREADS_MAX = 3
LEAVES_UNDECIDED = (Step.PREPARED, Step.COMMITTED)


class Story:
    """A directory, its database, and what their producers have reported."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        seed: int,
        way: Way = RIGHT,
        server: Server | None = None,
    ) -> None:
        """`database` and `folder` are made anew."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        database.make()
        self._folder = folder
        self._store = str(folder / "shop")
        self._database = database
        self._server = server
        self._way = way
        self._random = Random(seed)
        self._lives = 0
        self.promises = Promises()
        self.seed = seed
        self._told = [f"seed {seed}, {way.name}, {database}"]

    def live(self, blow: Blow, step: Step | None) -> None:
        """Run one more life, which `blow` hits at `step`, or at any moment. Then look at some
        orders.
        """
        if step in OF_A_CHECKER:
            # A checker is asked only if an earlier producer left something undecided.
            self._live(Blow.PRODUCER, self._random.choice(LEAVES_UNDECIDED))
        self._live(blow, step)
        if self._random.random() < 0.7:  # otherwise the next life decides what is left
            self.look()

    def _live(self, blow: Blow, step: Step | None) -> None:
        life = Life(
            self._store,
            self._database,
            self._way,
            self._lives,
            self._random.randint(1, THREADS_MAX) if step is None else 1,
            blow,
            step,
            self._random.randint(1, NTH_MAX),
        )
        self._lives += 1
        self._told.append(f"life {life.number}: {blow}, {step or 'at any moment'}")
        ours, theirs = processes.Pipe()
        process = processes.Process(target=producer.main, args=(life, theirs))
        process.start()
        theirs.close()
        try:
            self._spend(life, process, Ear(ours, self.promises))
        finally:
            process.kill()
            process.join()
            process.close()
            ours.close()

    def _spend(self, life: Life, process: BaseProcess, ear: Ear) -> None:
        """Let a life run until the blow hits it. If it survives that, let it go on, and end it."""
        strike = self._aim(life.blow, process, self._moment(life, ear))
        if life.step is Step.COMMITTING:
            ear.go_on()
            time.sleep(self._random.uniform(0, COMMIT_SECONDS))
        strike()
        if life.blow in LEAVES_THE_PRODUCER:
            ear.go_on()
        self._mend(life.blow)
        if life.blow not in LEAVES_THE_PRODUCER:
            ear.listen_to_the_end()
            return
        ear.listen_until("placed")
        ear.end()
        ear.listen_until("closed")
        if ear.left:
            raise Violation("undecided", f"{len(ear.left)} are undecided after settle()")

    def _moment(self, life: Life, ear: Ear) -> int | None:
        """Wait for the moment of the blow. Return the process of the server that it has to hit, if
        any.
        """
        if life.step is not None:
            return ear.listen_until("at")
        if life.blow is Blow.BACKEND or self._random.random() < AT_WORK:
            ear.listen_until("placed")
        ear.listen(self._random.uniform(0, MOMENT_SECONDS_MAX))
        if life.blow is not Blow.BACKEND:
            return None
        assert self._server is not None
        backends = self._server.backends()
        return self._random.choice(backends) if backends else None

    def _aim(self, blow: Blow, process: BaseProcess, backend: int | None) -> Callable[[], None]:
        """Prepare the blow, and return the function that strikes it without delay."""
        server = self._server
        if blow is Blow.PRODUCER:
            return process.kill
        if server is None or blow in (Blow.CONNECTION, Blow.ASKED):
            return lambda: None  # the life has killed itself
        if blow is Blow.BACKEND:
            return partial(server.kill_one, backend) if backend else lambda: None
        if blow is Blow.IMMEDIATE:
            return server.stop_at_once
        targets = server.processes()
        if blow is Blow.SERVER:
            return partial(server.kill, targets)

        def both() -> None:
            process.kill()
            server.kill(targets)

        return both

    def _mend(self, blow: Blow) -> None:
        """Make the server serve again, after a while."""
        if self._server is None:
            return
        if blow in (Blow.SERVER, Blow.BOTH, Blow.IMMEDIATE):
            time.sleep(self._random.uniform(0, AWAY_SECONDS_MAX))
            self._server.start()
        elif blow is Blow.BACKEND:
            self._server.wait_until_it_serves()

    def look(self) -> None:
        """Open the directory, have everything decided, and compare it with the database."""
        with self._opened() as engine:
            left = settle(engine)
            if left:
                raise Violation("undecided", f"{len(left)} are undecided behind settle()")
            topics = {topic: _messages(engine, topic) for topic in TOPICS}
            rows = self._database.rows()
            self.promises.compare(rows, topics)
            for order in self.promises.doubtful:
                committed = engine.outcome(order).state == "committed"
                if committed != (order in rows):
                    raise Violation("agree", f"{order}: its outcome says {committed=}")
        problems = fmq.check(self._store).problems
        if problems:
            raise Violation("I10", str(problems[0]))

    def save(self, violation: Violation, folder: Path) -> Violation:
        """Save all that is known of a failure in `folder`. Return the violation with the steps that
        led to it.
        """
        text = "\n".join((violation.what, *self._told, f"kept in {folder}"))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._folder, folder)
        (folder / "story.txt").write_text(f"{violation.invariant}: {text}\n")
        return Violation(violation.invariant, text)

    def _opened(self) -> fmq.Engine:
        if self._way is RIGHT:
            return fmq.open(self._store, resolve={PRODUCER: self._database.address})
        engine = fmq.open(self._store)
        engine.checker(PRODUCER)(self._way.checker(self._database))
        return engine


def _messages(engine: fmq.Engine, topic: str) -> list[str]:
    return [bytes(each.body).decode() for each in engine.read(topic, limit=1_000_000)]


class Ear:
    """Hears what a life reports, and tells the life when to go on and when to end."""

    def __init__(self, pipe: Connection, promises: Promises) -> None:
        self._pipe = pipe
        self._promises = promises
        self.left: list[str] = []  # transactions that were undecided after the life had settled

    def go_on(self) -> None:
        self._say("go on")

    def end(self) -> None:
        self._say("end")

    def _say(self, what: str) -> None:
        with suppress(BrokenPipeError):  # the child is dead; the next `listen` finds out why
            self._pipe.send(what)

    def listen(self, seconds: float) -> None:
        """Listen for up to `seconds`."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._pipe.poll(left):
            self._hear()

    def listen_until(self, wanted: str) -> int | None:
        """Listen until the life reports this. Return the number that it reports with it."""
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until:
            what, said = self._hear()
            if what == wanted:
                return said if isinstance(said, int) else None
        raise Violation("alive", f"{wanted!r} was not heard for {SECONDS_MAX} seconds")

    def listen_to_the_end(self) -> None:
        try:
            while True:
                self._hear()
        except Silence:
            pass

    def _hear(self) -> tuple[str, object]:
        if not self._pipe.poll(SECONDS_MAX):
            raise Violation("alive", f"nothing was heard for {SECONDS_MAX} seconds")
        try:
            _, what, *said = self._pipe.recv()  # the time of a report matters only at a power cut
        except (EOFError, OSError):  # an OSError comes in the middle of a report
            raise Silence("alive", "the process ended, and nothing had happened to it") from None
        promises = self._promises
        match what, *said:
            case "placed", order:
                promises.placed.add(order)
            case "refused", order, error:
                promises.refused[order] = error
            case "doubt", order, state:
                promises.doubtful[order] = state
            case "answered", answer:
                promises.answers[answer] += 1
            case "settled", left:
                self.left = left
            case "broke", error:
                raise Violation("typed errors", error)
        return what, said[0] if said else None


class Silence(Violation):
    """The other end has closed."""
