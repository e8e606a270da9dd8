"""The steps of a bound transaction by name, and what happens to a process at one of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum


class Step(StrEnum):
    """The step of a transaction, or of a checker's question."""

    UNMARKED = "before marker"
    MARKED = "after marker"
    PREPARING = "inside prepare"
    PREPARED = "after prepare"
    COMMITTING = "inside the database's commit"
    COMMITTED = "after the database's commit"
    CONFIRMING = "inside confirm"
    CONFIRMED = "after confirm"
    ASKED = "asked by a checker, before the fence"
    FENCED = "behind the fence, before the answer"


# At these steps a call is running that cannot be observed, or that makes other calls wait.
INSIDE = (Step.PREPARING, Step.COMMITTING, Step.CONFIRMING)
# Steps of a checker that runs later, about a transaction that a dead producer left.
OF_A_CHECKER = (Step.ASKED, Step.FENCED)


class Blow(StrEnum):
    """The kinds of blow."""

    PRODUCER = "the producer is killed"
    SERVER = "the server is killed with all its processes"
    BOTH = "both are killed"
    BACKEND = "one process of the server is killed"
    IMMEDIATE = "the server is stopped at once"
    CONNECTION = "the connection is cut"
    ASKED = "somebody asks"


AT_ANY_MOMENT = (Blow.PRODUCER, Blow.SERVER, Blow.BOTH, Blow.BACKEND, Blow.IMMEDIATE)
LEAVES_THE_PRODUCER = (Blow.SERVER, Blow.BACKEND, Blow.IMMEDIATE, Blow.CONNECTION, Blow.ASKED)


def may_happen(blow: Blow, step: Step) -> bool:
    """Return whether `blow` can hit anything at `step`."""
    if blow is Blow.ASKED:
        return step not in INSIDE + OF_A_CHECKER
    # A checker's connection is its own, and its process of the server is, too.
    return step not in OF_A_CHECKER or blow not in (Blow.CONNECTION, Blow.BACKEND)


class Stage:
    """Follows the orders of one thread, and has something happen once, at `step` of order `nth`."""

    def __init__(self, step: Step | None, nth: int, happen: Callable[[], None]) -> None:
        self._step = step
        self._left = nth
        self._happen = happen
        self._latest: Step | None = None
        self._thread = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Note that the next order begins, in this thread."""
        self._left -= 1
        self._latest = None
        self._thread = threading.get_ident()

    def aims_at(self, step: Step) -> bool:
        """Return whether the present order is to be hit at `step`, and was not yet."""
        return self._left < 0 and step is self._step

    @property
    def is_marked(self) -> bool:
        """Return whether the present order has its marker, so that the next commit is its own."""
        return self._latest in (Step.MARKED, Step.PREPARING)

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        """Note that the marker is inserted in this block."""
        self.reached(Step.UNMARKED)
        yield
        self.reached(Step.MARKED)

    def reached(self, step: Step) -> None:
        """Note that the order under way is at `step`."""
        self._latest = step
        if self._left < 0:
            self._at(step)

    def committing(self, commit: Callable[[], None]) -> None:
        """Note that `commit` of a connection begins. If the order under way has its marker, it is
        its commit.
        """
        if not self.is_marked:
            commit()
            return
        self.reached(Step.PREPARED)
        self.reached(Step.COMMITTING)
        commit()
        self.reached(Step.COMMITTED)

    def asked(self, step: Step) -> None:
        """Note that a checker is at `step`, in a thread of its own."""
        with self._lock:
            self._at(step)

    def _at(self, step: Step) -> None:
        if step is self._step:
            self._step = None
            self._happen()

    def splits(self) -> Step | None:
        """Return the step at which this write of the journal has to be interrupted; None if there
        is none.
        """
        follows = {Step.MARKED: Step.PREPARING, Step.COMMITTED: Step.CONFIRMING}
        step = None if self._latest is None else follows.get(self._latest)
        ours = self._left < 0 and threading.get_ident() == self._thread
        return step if ours and step is self._step else None
