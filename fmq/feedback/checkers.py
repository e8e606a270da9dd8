"""The checkers registered in this process, and the few threads that ask them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fmq.clock import Clock
from fmq.errors import BadOption
from fmq.feedback.answers import Checker, check_callable
from fmq.feedback.loop import CheckLoop
from fmq.feedback.service import Feedback
from fmq.feedback.settle import settle
from fmq.results import Settled
from fmq.tx.names import check_producer

JOIN_SECONDS = 5.0


class Checkers:
    """One function for each producer that has any, asked from threads of our own."""

    def __init__(self, feedback: Feedback, clock: Clock, threads: int) -> None:
        """With no `threads`, nobody is asked but by `settle`."""
        self._feedback = feedback
        self._clock = clock
        self._count = threads
        self._checkers: dict[str, Checker] = {}
        self._databases: dict[str, str] = {}  # by producer, of those that are bound
        self._places: dict[str, str] = {}  # the same; where in the database, if it has several
        self._loops: list[CheckLoop] = []
        self._threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    def register(self, producer: str, checker: Checker) -> None:
        """From now on `checker` is asked what became of what `producer` has prepared."""
        check_callable("checker", checker)
        with self.lock:
            if producer in self._checkers:
                raise BadOption(
                    f"producer {producer!r} has a checker in this process, and two could "
                    "contradict each other. The first one stays."
                )
            self._add(producer, checker)

    def _add(self, producer: str, checker: Checker) -> None:
        # A new dict: the threads look at the one that they were handed.
        self._checkers = {**self._checkers, producer: checker}
        self._restart()

    def needs(self, producer: str, database: str) -> bool:
        """Whether nobody has been named yet who knows what `database` did for `producer`."""
        with self.lock:
            known = self._databases.get(producer)
            if known is not None and known != database:
                raise BadOption(
                    f"producer {producer!r} is bound to {known} in this process, not {database}: "
                    "after a crash nobody could tell which one to ask. Nothing was begun; give "
                    "each database a producer of its own."
                )
            return known is None

    def add_bound(self, producer: str, database: str, place: str, checker: Checker) -> None:
        """`checker` asks `database`, unless the user has registered one for `producer`."""
        with self.lock:
            self._databases[producer] = database
            self._places.setdefault(producer, place)  # two threads may be the first
            if producer not in self._checkers:
                self._add(producer, checker)

    def place_of(self, producer: str) -> str:
        """Where in its database the marks of a producer are that is bound."""
        return self._places[producer]

    def decorator(self, producer: str) -> Callable[[Checker], Checker]:
        """What registers the function that it is given for `producer`, "": those without a name."""
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
        for loop in self._loops:
            loop.stop()
        self._loops = [
            # One question at a time, so that a slow checker holds back no other question.
            CheckLoop(
                self._feedback,
                self._checkers,
                limit=1,
                pause=0.0,
                clock=self._clock,
                gave_up=self._feedback.give_up,
            )
            for _ in range(self._count)
        ]
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for number, loop in enumerate(self._loops):
            thread = threading.Thread(target=loop.run, name=f"fmq checker {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._feedback.come_back()

    def stop(self) -> None:
        """Wait for the threads of a closed engine; a checker that runs is given some seconds."""
        with self.lock:
            for loop in self._loops:
                loop.stop()
            threads, self._threads = self._threads, []
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_SECONDS)

    def settle(self, timeout: float) -> Settled:
        """Ask about everything that is undecided now, in the caller's thread, and report."""
        return settle(self._feedback, self._checkers, self._clock, timeout)
