"""The producers of this process: their checkers, and the databases that they are bound to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.basics.message import Body, Message
from fmq.basics.results import Outcome, Settled, UndecidedTransaction
from fmq.bind.begin import Beginner, begin_bound
from fmq.bind.databases import Databases
from fmq.feedback.answers import Checker, check_callable
from fmq.feedback.checkers import Checkers
from fmq.feedback.local_transaction import send_with
from fmq.feedback.needs import Questions
from fmq.feedback.service import Feedback
from fmq.tx.commands.transaction import Transaction


class Producing:
    """The transactions that a process begins, and the questions about them. The databases see it as
    their engine.
    """

    def __init__(
        self,
        door: Any,
        manager: Beginner,
        feedback: Feedback,
        questions: Questions[Any],
        options: Options,
        clock: Clock,
        *,
        background: bool,
    ) -> None:
        """Without `background` no thread asks checkers or databases."""
        self._door = door
        self._manager = manager
        self.feedback = feedback
        self._questions = questions
        self._options = options
        self._clock = clock
        self._background = background
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all checkers and databases."""
        threads = self._options.checker_threads if self._background else 0
        self.checkers = Checkers(self.feedback, self._questions, self._clock, threads)
        self.databases: Databases | None = None

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None, bind: Any
    ) -> Transaction:
        """Return a new transaction. With `bind` it commits with a transaction of the user's
        database.
        """
        if bind is None:
            buffer = self._manager.buffer_for(tx_id, producer, check_after)
            return Transaction(self._manager, buffer)
        names = tx_id, "" if producer is None else producer
        what = self._manager, self.feedback, self.checkers, self._with_databases(), bind
        return begin_bound(*what, *names, check_after, strict=self._options.strict_bind)

    def send_with(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
    ) -> Outcome:
        """Prepare `messages` in a transaction, call `local`, and decide as its answer says."""
        check_callable("local", local)
        tx = self.begin(tx_id, producer, check_after, None)
        return send_with(tx, messages, local, self._questions)

    def checker(self, producer: str) -> Callable[[Checker], Checker]:
        """Return the decorator that registers a checker for `producer`."""
        return self.checkers.decorator(producer)

    def settle(self, timeout: float = 30.0) -> Settled:
        """Ask the checkers about all transactions that are undecided now. Return what they
        answered.
        """
        return self.checkers.settle(timeout)

    def undecided(self) -> list[UndecidedTransaction]:
        """Return the transactions that wait for their decision."""
        found: list[UndecidedTransaction] = self._door.look("undecided")
        return found

    def sync(self) -> None:
        """Make everything sent so far durable."""
        self._door.change("sync")

    def _with_databases(self) -> Databases:
        """Return the object that knows the producers' databases. The first call makes it."""
        with self.checkers.lock:
            if self.databases is None:
                self.databases = Databases(self, self._clock, background=self._background)
            return self.databases

    def resolve(self, addresses: Mapping[str, object]) -> None:
        """Ask the databases at `addresses` what became of their producers' transactions."""
        self._with_databases().resolve(addresses)

    def stop(self) -> None:
        """End the threads that ask checkers and databases."""
        self.checkers.stop()
        if self.databases is not None:
            self.databases.stop()


class ProducingDoor:
    """The part of a door that is for producers, in this process or in another one."""

    check: Callable[[], None]
    """Raises if the engine is closed or has failed."""
    _producing: Producing

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None, bind: Any
    ) -> Transaction:
        """Return a new transaction."""
        self.check()
        return self._producing.begin(tx_id, producer, check_after, bind)

    def send_with(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
    ) -> Outcome:
        """Prepare `messages`, call `local`, and decide as its answer says."""
        self.check()
        return self._producing.send_with(messages, local, tx_id, producer, check_after)

    def checker(self, producer: str) -> Callable[[Checker], Checker]:
        """Return the decorator that registers a checker."""
        self.check()
        return self._producing.checker(producer)

    def settle(self, timeout: float) -> Settled:
        """Ask the registered checkers about all undecided transactions."""
        self.check()
        return self._producing.settle(timeout)

    def resolve(self, addresses: Mapping[str, object]) -> None:
        """Ask the databases at `addresses` what became of their producers' transactions."""
        self._producing.resolve(addresses)
