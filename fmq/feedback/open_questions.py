"""The open questions of an engine: when each is due, which calls wait for one, and how each ends.

This module turns what the ledger says into Questions, under the engine's lock. It decides nothing:
`service` does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fmq.arguments.options import Options
from fmq.basics.clock import as_datetime
from fmq.basics.message import Message
from fmq.basics.results import UndecidedTransaction
from fmq.errors import LeaseLost, UnknownTransaction
from fmq.feedback.question import Question
from fmq.feedback.schedule import OpenQuestion, QuestionKey, Schedule
from fmq.feedback.waiters import Waiters
from fmq.steps.call_steps import Arrival, Notify, Steps, Wakeup
from fmq.steps.thread_driver import drive
from fmq.tx.commands.decisions import Decisions
from fmq.tx.ledger.ledger import Entry
from fmq.tx.ledger.seal import seal_text
from fmq.tx.ledger.state import State
from fmq.tx.looks.messages import Messages
from fmq.tx.looks.outcomes import undecided_view


class Baseline(NamedTuple):
    """An open question, with the number of its tries at one moment."""

    question: OpenQuestion
    tries: int

    @property
    def tx_id(self) -> str:
        return self.question.tx_id

    @property
    def producer(self) -> str:
        return self.question.producer

    @property
    def parked(self) -> bool:
        return self.question.parked

    @property
    def has_ended(self) -> bool:
        """Return whether a try has ended since that moment, with or without a decision."""
        return self.question.is_decided or self.question.tries != self.tries


class OpenQuestions:
    """One open question for each undecided transaction. Any thread may call it."""

    def __init__(
        self,
        messages: Messages,
        decisions: Decisions,
        options: Options,
        store: str,
        seed: bytes,
        check: Callable[[], None],
        check_readable: Callable[[], None],
    ) -> None:
        """`check` raises if the engine takes no decisions any more, `check_readable` if it is
        closed.
        """
        self._lock = messages.lock
        self._changing = decisions.changing
        self._clock = messages.clock
        self._ledger = messages.ledger
        self._decisions = decisions
        self._options = options
        self._store = store
        self._check, self._check_open = check, check_readable
        self._waiters = Waiters()
        self._releases = 0  # the number of calls of `wake_all`
        # How often checkers were asked, and how many answers came, since the engine was opened.
        self.asked = self.answered = 0
        self._schedule = Schedule(options, seed, decisions.is_deciding)
        now = self._clock.monotonic()
        for entry in self._ledger.undecided.values():
            self._schedule.add(entry, now)  # the process that prepared the transaction has ended

    # --- called when an append is applied, under the lock ---------------------------------------

    def add(self, entry: Entry) -> None:
        """Open the question of a transaction that became undecided."""
        wanted_ms = entry.prepare.check_after_ms
        after = self._options.check_after_seconds if wanted_ms < 0 else wanted_ms / 1000
        due = self._clock.monotonic() + after
        self._schedule.add(entry, due)
        if self._waiters.sleep_beyond(due):
            question = self._schedule.find(entry.tx)
            assert question is not None, "it was added above"
            self._wake_for(question, due)

    def remove(self, entry: Entry) -> None:
        """Drop the question of a transaction that was decided."""
        self._schedule.remove(entry.tx)
        self._waiters.wake_for_end()

    def _wake_for(self, question: OpenQuestion, due: float) -> None:
        self._waiters.wake_for_due(self._schedule.keys_of(question), due)

    # --- handing out ----------------------------------------------------------------------------

    def take(self, keys: list[QuestionKey], limit: int, wait: float) -> list[Question]:
        """Return up to `limit` questions under `keys`, as soon as one is due.

        Return none after `wait` seconds, and when `release_waiting` is called.
        """
        return drive(self.taking(keys, limit, wait), self._decisions.commit_queue, self._clock)

    def taking(self, keys: list[QuestionKey], limit: int, wait: float) -> Steps[list[Question]]:
        """Return what `take` does, for a caller that may not block."""
        deadline, releases = self._clock.monotonic() + wait, self._releases
        while True:
            now = self._clock.monotonic()
            with self._lock, self._changing:
                self._check()
                taken = self._schedule.take(keys, limit, now)
                if taken:
                    return [self._hand_out(question) for question in taken]
                met_busy = self._schedule.met_busy
            if met_busy:
                yield self._decisions.flush
            elif now >= deadline or releases != self._releases:
                return []
            else:
                stop = partial(self._stop_listening, keys)
                yield Arrival(partial(self._listen, keys, deadline), stop, deadline)

    def _listen(self, keys: list[QuestionKey], deadline: float, wakeup: Notify) -> float:
        """Call `wakeup` when a question under `keys` becomes due. Return when the caller looks
        without a wake-up: when the next question becomes due, or at the `deadline`.
        """
        with self._lock, self._changing:
            until = min(deadline, self._schedule.next_due(keys))
            self._waiters.wait_for_due(keys, wakeup, until)
            return until

    def _stop_listening(self, keys: list[QuestionKey], wakeup: Notify) -> None:
        """Do not call `wakeup` any more."""
        with self._lock, self._changing:
            self._waiters.remove_due(keys, wakeup)

    def take_one(self, tx_id: str) -> list[Question]:
        """Return the question about `tx_id`, even if another call has leased it; None if it is
        decided.
        """
        with self._lock, self._changing:
            question = self._find(tx_id)
            if question is None:
                return []
            self._schedule.lease(question, self._clock.monotonic())
            return [self._hand_out(question)]

    def _find(self, tx_id: str) -> OpenQuestion | None:
        """Return the open question about `tx_id`, or None if it is not undecided."""
        self._check()
        entry = self._ledger.by_tx_id.get(tx_id)
        return None if entry is None else self._schedule.find(entry.tx)

    def _hand_out(self, question: OpenQuestion) -> Question:
        prepare = question.entry.prepare
        self.asked += 1
        return Question(
            prepare.tx_id,
            prepare.producer,
            as_datetime(prepare.prepared_us),
            question.topics,
            prepare.messages,
            prepare.bytes,
            seal_text(prepare.seal),
            self._store,
            question.entry.tx,
            question.token,
            self._options.check_lease_seconds,
            question.answers,
            prepare.bound,
            self.messages_of,
        )

    def messages_of(self, asked: Question) -> list[Message]:
        """Return the messages of the transaction that `asked` is about."""
        return self._decisions.prepared(asked.tx_id, asked.tx)

    def wake_all(self) -> None:
        """Make every waiting call return, or raise if the engine has ended. The caller holds the
        lock.
        """
        self._releases += 1
        self._waiters.wake_all()

    def release_waiting(self) -> None:
        """Make every waiting call return, without a question unless one is due."""
        with self._lock, self._changing:
            self.wake_all()

    # --- how a question ends --------------------------------------------------------------------

    def count_decision(self, asked: Question) -> None:
        """Count an answer that decides. Raises LeaseLost if the id belongs to another transaction
        now.
        """
        with self._lock, self._changing:
            question = self._find(asked.tx_id)
            if question is not None:
                if question.entry.tx != asked.tx:
                    raise _lost(asked)
                question.entry.asked += 1
                self.answered += 1

    def count_unknown(self, asked: Question) -> bool:
        """Count an answer "unknown". Return True if the engine's options allow no further one."""
        with self._lock, self._changing:
            question = self._find_leased(asked)
            if question is None:
                return False
            self.answered += 1
            is_last = self._schedule.count_unknown(question, self._clock.monotonic())
            self._wake_for(question, question.due)
            self._waiters.wake_for_end()
            return is_last

    def end_try(self, asked: Question) -> None:
        """End a try whose checker failed. The question is due again when its lease ends."""
        with self._lock, self._changing, suppress(LeaseLost):
            question = self._find_leased(asked)
            if question is not None:
                question.token = ""
                question.tries += 1
                self._waiters.wake_for_end()

    def give_back(self, asked: Iterable[Question]) -> None:
        """Make `asked` due now for other checkers, because the checker that had these questions
        died.
        """
        with self._lock, self._changing:
            for each in asked:
                with suppress(LeaseLost):
                    question = self._find_leased(each)
                    if question is not None:
                        now = self._clock.monotonic()
                        self._schedule.give_back(question, now)
                        self._wake_for(question, question.due)

    def _find_leased(self, asked: Question) -> OpenQuestion | None:
        """Return the open question for `asked`, or None if it is decided. The caller holds the
        lock.

        Raises LeaseLost if it was asked again since. The token tells: a later transaction with
        the same id, even with the same seal, has another one.
        """
        question = self._find(asked.tx_id)
        if question is not None and (not question.token or question.token != asked.token):
            raise _lost(asked)
        return question

    # --- by hand --------------------------------------------------------------------------------

    def make_due(self, tx_id: str) -> None:
        """Make one question due now, parked or not.

        Raises UnknownTransaction if the transaction is not undecided.
        """
        with self._lock, self._changing:
            question = self._find(tx_id)
            if question is None:
                raise UnknownTransaction(
                    f"transaction {tx_id!r} is not undecided, so no checker is asked about it. "
                    f"engine.outcome({tx_id!r}) tells what became of it"
                )
            self._make_due(question, self._clock.monotonic())

    def _make_due(self, question: OpenQuestion, now: float) -> None:
        self._schedule.make_due(question, now)
        self._wake_for(question, now)

    def finish_decisions(self) -> None:
        """Wait for decisions that are being written. Raises EngineFailed if they failed."""
        self._decisions.refuse_nested()
        self._check_open()
        self._decisions.check_undecided()

    def undecided(self) -> list[UndecidedTransaction]:
        """Return all undecided transactions, the oldest first, each with the state of its
        question.
        """
        self.finish_decisions()
        return [
            replace(undecided_view(each.entry), answers=each.answers, parked=each.parked)
            for each in self._in_order()
        ]

    def has_bound(self, producer: str) -> bool:
        """Return whether any undecided transaction of `producer` is bound to a database."""
        mine = (each for each in self._in_order() if each.producer == producer)
        return any(each.entry.prepare.bound for each in mine)

    def _in_order(self) -> list[OpenQuestion]:
        with self._lock:
            snapshot = self._schedule.snapshot()
        return Schedule.in_order(snapshot)

    # --- all at once ----------------------------------------------------------------------------

    def make_all_due(self, producers: Container[str]) -> list[Baseline]:
        """Make all questions to `producers` due, except leased and parked ones.

        Return a baseline of all open questions, also of other producers, the oldest first.
        """
        self._decisions.refuse_nested()
        with self._lock, self._changing:
            self._check()
            everything = self._schedule.oldest_first()
            now = self._clock.monotonic()
            for question in everything:
                if question.producer in producers and not question.parked:
                    self._make_due(question, now)
            return [Baseline(question, question.tries) for question in everything]

    def has_ended(self, baseline: Baseline) -> bool:
        """Return whether a try has ended since `baseline`. Raises if the engine has ended."""
        with self._lock, self._changing:
            self._check()
            return baseline.has_ended

    def became(self, baselines: Sequence[Baseline]) -> list[State | None]:
        """Return the state of each transaction now; None if it is undecided and no try has ended
        since.
        """
        found: list[State | None] = []
        for each in baselines:
            state = each.question.entry.state
            unasked = state is State.UNDECIDED and each.question.tries == each.tries
            found.append(None if unasked else state)
        return found

    def wait_for_end(self, baseline: Baseline, keys: list[QuestionKey], seconds: float) -> None:
        """Wait until any question ends or one under `keys` is due, for at most `seconds`.

        Return at once if a try has ended since `baseline`.
        """
        wakeup = Wakeup()
        try:
            with self._lock, self._changing:
                self._check()
                if baseline.has_ended:
                    return
                due_in = self._schedule.next_due(keys) - self._clock.monotonic()
                self._waiters.wait_for_end(wakeup)
            self._clock.wait(wakeup.lock, min(seconds, max(0.0, due_in)))
        finally:
            with self._lock, self._changing:
                self._waiters.remove_end(wakeup)


def _lost(asked: Question) -> LeaseLost:
    return LeaseLost(
        f"the question about transaction {asked.tx_id!r} is no longer yours: its lease of "
        f"{asked.lease_seconds:g} s ended, or the engine was opened again, and it may be "
        "another caller's. Nothing was changed; ask again."
    )
