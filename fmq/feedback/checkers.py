"""The checkers registered in this process, and the threads that ask them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from fmq.arguments.names import check_producer
from fmq.basics.clock import Clock
from fmq.basics.results import Settled
from fmq.errors import BadOption
from fmq.feedback.answers import Checker, check_callable
from fmq.feedback.loop import CheckLoop
from fmq.feedback.needs import Questions
from fmq.feedback.service import Feedback
from fmq.feedback.settle import settle

JOIN_SECONDS = 5.0  # how long a close waits for a running checker


class BoundDatabase(NamedTuple):
    """The database that a producer is bound to, and the place of its markers in the database."""

    path: str
    markers: str


class Checkers:
    """At most one checker for each producer. Threads of the engine ask them."""

    def __init__(
        self, feedback: Feedback, questions: Questions[Any], clock: Clock, threads: int
    ) -> None:
        """Without `threads`, checkers are asked only by `settle`."""
        self._feedback = feedback
        self._questions = questions
        self._clock = clock
        self._count = threads
        self._checkers: dict[str, Checker] = {}
        self._bound: dict[str, BoundDatabase] = {}  # the database of each bound producer
        self._loops: list[CheckLoop] = []
        self._threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    def register(self, producer: str, checker: Checker) -> None:
        """Ask `checker` about the transactions of `producer` from now on."""
        check_callable("checker", checker)
        with self.lock:
            if producer in self._checkers:
                raise BadOption(
                    f"producer {producer!r} has a checker in this process, and two could "
                    "contradict each other. The first one stays."
                )
            self._add(producer, checker)

    def _add(self, producer: str, checker: Checker) -> None:
        # Make a new dict, as running threads still read the old one.
        self._checkers = {**self._checkers, producer: checker}
        self._restart()

    def is_unbound(self, producer: str, database: str) -> bool:
        """Return whether `producer` is not bound to `database` yet. Raises if another one is.

        Raises BadOption if it is bound to another one.
        """
        with self.lock:
            known = self._bound.get(producer)
            if known is not None and known.path != database:
                raise BadOption(
                    f"producer {producer!r} is bound to {known.path} in this process, not "
                    f"{database}: "
                    "after a crash it would be unknown which one to ask. Nothing was begun; give "
                    "each database a producer of its own."
                )
            return known is None

    def add_bound(self, producer: str, database: str, place: str, checker: Checker) -> None:
        """Bind `producer` to `database`. Use `checker` unless the user registered another one."""
        with self.lock:
            # Two threads may bind at once. Keep the place that the first one found.
            self._bound.setdefault(producer, BoundDatabase(database, place))
            if producer not in self._checkers:
                self._add(producer, checker)

    def place_of(self, producer: str) -> str:
        """Return where the markers of `producer` are in its database."""
        return self._bound[producer].markers

    def has_bound(self, producer: str) -> bool:
        """Return whether any undecided transaction of `producer` is bound to a database."""
        return self._questions.has_bound(producer)

    def decorator(self, producer: str) -> Callable[[Checker], Checker]:
        """Return a decorator that registers a function as the checker of `producer`.

        The producer without a name is "".
        """
        if callable(producer):
            raise TypeError(
                f"engine.checker takes the name of a producer, not {producer!r}: write "
                "@engine.checker('name') above the function. Nothing was registered."
            )
        check_producer(producer)

        def registered(checker: Checker) -> Checker:
            self.register(producer, checker)
            return checker

        return registered

    def _restart(self) -> None:
        """Replace the threads by new ones that ask all checkers registered so far."""
        for loop in self._loops:
            loop.stop()
        self._loops = [
            # One question at a time, so that a slow checker delays no other question.
            CheckLoop(
                self._feedback,
                self._checkers,
                limit=1,
                pause=0.0,
                clock=self._clock,
                gave_up=self._questions.end_try,
            )
            for _ in range(self._count)
        ]
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for number, loop in enumerate(self._loops):
            thread = threading.Thread(target=loop.run, name=f"fmq checker {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._questions.release_waiting()

    def stop(self) -> None:
        """Stop the threads when the engine closes. Wait some seconds for a running checker."""
        with self.lock:
            for loop in self._loops:
                loop.stop()
            threads, self._threads = self._threads, []
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    def settle(self, timeout: float) -> Settled:
        """Ask about every transaction that is undecided now, in the caller's thread. Return a
        report.
        """
        return settle(self._feedback, self._questions, self._checkers, self._clock, timeout)
