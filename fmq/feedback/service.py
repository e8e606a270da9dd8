"""The feedback service: producers ask what is undecided, wait until something is, and answer.

One call serves all: whoever asks gets questions, each with a lease, and nobody else gets those
until it ends. No question due: the call waits for the next one, woken by whatever makes one
due. In process a thread asks for the registered checkers; over a network the same two calls
serve producers elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from fmq.clock import as_datetime
from fmq.errors import AlreadyDecided, BadOption, LeaseLost, UnknownTransaction
from fmq.feedback.answers import ANSWERS, Answer, is_answer
from fmq.feedback.question import Question
from fmq.feedback.schedule import Key, OpenQuestion, Schedule
from fmq.feedback.waiters import Asker, Waiters
from fmq.options import Options
from fmq.results import Outcome, UndecidedTransaction
from fmq.tx.decisions import Decisions, check_reason
from fmq.tx.ledger import Entry, Ledger, seal_text
from fmq.tx.messages import Messages, Wakeup
from fmq.tx.names import check_count, check_names, check_seconds, check_tx_id
from fmq.tx.outcomes import undecided_view

Producers = str | Iterable[str]


class Asked(NamedTuple):
    """An undecided transaction, and how often it had been asked about at some moment."""

    open: OpenQuestion
    tries: int


class Feedback:
    """Questions and answers of one engine. Safe for threads."""

    def __init__(
        self,
        messages: Messages,
        decisions: Decisions,
        options: Options,
        store: bytes,
        seed: bytes,
        check: Callable[[], None],
        check_open: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        """`check` raises if the engine takes nothing any more, `check_open` if it shows nothing;
        `after` follows what has written.
        """
        self._lock = messages.lock
        self._changing = decisions.changing
        self._clock = messages.clock
        self._ledger: Ledger = messages.ledger
        self._decisions = decisions
        self._options = options
        self.store = store.hex()
        self._check, self._check_open = check, check_open
        self._after = after
        self._waiting = Waiters()
        self._calls = 0  # who waits comes back when it changes
        self.book = Schedule(options, seed, decisions.is_deciding)
        now = self._clock.monotonic()
        for entry in self._ledger.undecided.values():
            self.book.add(entry, now)  # whoever prepared it here has died with its process
        self._ledger.on_undecided = self._opened
        self._ledger.on_decided = self._decided

    # --- told by what is applied, under the lock ------------------------------------------------

    def _opened(self, entry: Entry) -> None:
        wanted_ms = entry.prepare.check_after_ms
        after = self._options.check_after_seconds if wanted_ms < 0 else wanted_ms / 1000
        due = self._clock.monotonic() + after
        self.book.add(entry, due)
        if self._waiting.sleeps_beyond(due):
            self._waiting.due(self.book.keys_of(self.book.open(entry.tx)), due)

    def _decided(self, entry: Entry) -> None:
        self.book.remove(entry.tx)
        self._waiting.ended()

    # --- asking ---------------------------------------------------------------------------------

    def ask(
        self,
        producer: Producers,
        topics: str | Iterable[str] | None = None,
        *,
        limit: int = 32,
        wait: float = 5.0,
    ) -> list[Question]:
        """Up to `limit` questions about what `producer` prepared, as soon as one is due.

        Empty after `wait` seconds, and now and then sooner: ask again. With `topics` only
        transactions with a message for one of them. Several producers may be named, too; "" are
        those that prepared without a name.
        """
        self._decisions.refuse_nested()
        limit, wait = check_count("limit", limit), check_seconds("wait", wait)
        keys = _keys(producer, topics)
        now = self._clock.monotonic()
        deadline, calls = now + wait, self._calls
        while True:
            asker = Asker(keys)
            try:
                with self._lock, self._changing:
                    self._check()
                    taken = self.book.take(keys, limit, now)
                    if taken:
                        return [self._question(each) for each in taken]
                    on_its_way = self.book.met_busy
                    if not on_its_way:
                        if now >= deadline or calls != self._calls:
                            return []
                        until = min(deadline, self.book.next_due(keys))
                        self._waiting.ask(asker, until)
                if on_its_way:
                    self._decisions.flush()
                else:
                    self._clock.wait(asker.lock, until - now)
            finally:
                with self._lock, self._changing:
                    self._waiting.forget(asker)
            now = self._clock.monotonic()

    def ask_about(self, tx_id: str) -> list[Question]:
        """The question about this one transaction, whoever has it now; none if it is decided."""
        self._decisions.refuse_nested()
        check_tx_id(tx_id)
        with self._lock, self._changing:
            each = self._undecided(tx_id)
            if each is None:
                return []
            self.book.lease(each, self._clock.monotonic())
            return [self._question(each)]

    def _undecided(self, tx_id: str) -> OpenQuestion | None:
        self._check()
        entry = self._ledger.by_tx_id.get(tx_id)
        return None if entry is None else self.book.open(entry.tx)

    def _question(self, each: OpenQuestion) -> Question:
        prepare = each.entry.prepare
        return Question(
            prepare.tx_id,
            prepare.producer,
            as_datetime(prepare.prepared_us),
            each.topics,
            prepare.messages,
            prepare.bytes,
            seal_text(prepare.seal),
            self.store,
            each.entry.tx,
            each.token,
            self._options.check_lease_seconds,
            each.answers,
            prepare.bound,
        )

    def wake_all(self) -> None:
        """Let every call that waits look again, and return: the engine closes. Under the lock."""
        self._calls += 1
        self._waiting.wake_all()

    def come_back(self) -> None:
        """Let every call that waits return, with nothing if there is nothing."""
        with self._lock, self._changing:
            self.wake_all()

    # --- answering ------------------------------------------------------------------------------

    def answer(self, question: Question, decision: Answer, *, reason: str = "") -> Outcome | None:
        """Decide what `question` asks about; None if "unknown" leaves it undecided.

        The same decision made by another caller meanwhile is a success, the opposite one is
        AlreadyDecided. A decision names the transaction's number and seal, so it counts after its
        lease has ended, too. "unknown" is LeaseLost then, if the question was asked again.
        """
        self._decisions.refuse_nested()
        if not is_answer(decision):
            raise BadOption(
                f"answer {decision!r}: must be one of {', '.join(ANSWERS)}. Nothing was changed."
            )
        if not hasattr(question, "token"):
            raise TypeError(
                f"an answer takes a Question, as ask gives them, not {type(question).__name__}. "
                "Nothing was changed."
            )
        check_reason(reason)
        if question.store != self.store:
            raise UnknownTransaction(
                f"transaction {question.tx_id!r} is one of the store {question.store}, not of "
                f"{self.store}: nothing was changed. Answer where the question was asked."
            )
        if decision != "unknown":
            with self._lock, self._changing:
                each = self._undecided(question.tx_id)
                if each is not None:
                    if each.entry.tx != question.tx:  # its id, and perhaps its seal, too
                        raise _lost(question)
                    each.entry.asked += 1
            return self._decide(question, decision, reason)
        if self._unknown(question) and self._options.on_undecided == "rollback":
            why = f"{self._options.check_answers_max} answers were unknown"
            with suppress(AlreadyDecided):  # by somebody else, just now
                return self._decide(question, "rollback", why)
        return None

    def _decide(self, question: Question, decision: Answer, reason: str) -> Outcome:
        assert decision != "unknown"
        outcome = self._decisions.decide(
            question.tx_id, decision, reason=reason, decided_by="checker", seal=question.seal
        )
        self._after()
        return outcome

    def _unknown(self, question: Question) -> bool:
        with self._lock, self._changing:
            each = self._asked_about(question)
            if each is None:
                return False
            too_often = self.book.unknown(each, self._clock.monotonic())
            self._waiting.due(self.book.keys_of(each), each.due)
            self._waiting.ended()
            return too_often

    def _asked_about(self, question: Question) -> OpenQuestion | None:
        """What `question` asks about; None if it has been decided. Under the lock."""
        # By its id, as the decision finds it: one that has the id of an earlier one, and maybe its
        # seal, too, has not its token.
        each = self._undecided(question.tx_id)
        if each is not None and (not each.token or each.token != question.token):
            raise _lost(question)
        return each

    def give_up(self, question: Question) -> None:
        """Its checker failed: it comes again when the lease ends, and nobody waits for it."""
        with self._lock, self._changing, suppress(LeaseLost):
            each = self._asked_about(question)
            if each is not None:
                each.token = ""
                each.tries += 1
                self._waiting.ended()

    # --- by hand --------------------------------------------------------------------------------

    def resume(self, tx_id: str) -> None:
        """Have it asked about now, even if it was parked; UnknownTransaction if it was decided."""
        self._decisions.refuse_nested()
        check_tx_id(tx_id)
        with self._lock, self._changing:
            each = self._undecided(tx_id)
            if each is None:
                raise UnknownTransaction(
                    f"transaction {tx_id!r} is not undecided, so nobody is asked about it; "
                    f"engine.outcome({tx_id!r}) tells what became of it"
                )
            self._hurry(each, self._clock.monotonic())

    def _hurry(self, each: OpenQuestion, now: float) -> None:
        self.book.hurry(each, now)
        self._waiting.due(self.book.keys_of(each), now)

    def catch_up(self) -> None:
        """Wait for the decisions that are on their way; EngineFailed if they have failed."""
        self._decisions.refuse_nested()
        self._check_open()
        self._decisions.check_undecided()

    def undecided(self) -> list[UndecidedTransaction]:
        """All that wait for their decision, the oldest first, and how asking stands."""
        self.catch_up()
        with self._lock:
            snapshot = self.book.snapshot()
        return [
            replace(undecided_view(each.entry), answers=each.answers, parked=each.parked)
            for each in self.book.in_order(snapshot)
        ]

    def has_bound(self, producer: str) -> bool:
        """Whether something of `producer` is undecided that is bound to a database."""
        with self._lock:
            snapshot = self.book.snapshot()
        mine = (each for each in self.book.in_order(snapshot) if each.producer == producer)
        return any(each.entry.prepare.bound for each in mine)

    # --- all at once ----------------------------------------------------------------------------

    def hurry(self, producers: Container[str]) -> list[Asked]:
        """Make everything of `producers` due that nobody is being asked about, but what is parked.

        All that is undecided now, the oldest first.
        """
        self._decisions.refuse_nested()
        with self._lock, self._changing:
            self._check()
            everything = self.book.oldest_first()
            now = self._clock.monotonic()
            for each in everything:
                if each.producer in producers and not each.parked:
                    self._hurry(each, now)
            return [Asked(each, each.tries) for each in everything]

    def has_ended(self, asked: Asked) -> bool:
        """Whether it was decided, or a question about it has ended since."""
        with self._lock, self._changing:
            return self._has_ended(asked)

    def _has_ended(self, asked: Asked) -> bool:
        self._check()
        return asked.open.is_decided or asked.open.tries != asked.tries

    def pause(self, asked: Asked, producers: Producers, seconds: float) -> None:
        """Wait until some question ends, or one of `producers` is due; not if `asked` has ended."""
        watcher = Wakeup()
        try:
            with self._lock, self._changing:
                if self._has_ended(asked):
                    return
                due_in = self.book.next_due(_keys(producers, None)) - self._clock.monotonic()
                self._waiting.watch(watcher)
            self._clock.wait(watcher.lock, min(seconds, max(0.0, due_in)))
        finally:
            with self._lock, self._changing:
                self._waiting.forget_watcher(watcher)


def _lost(question: Question) -> LeaseLost:
    return LeaseLost(
        f"the question about transaction {question.tx_id!r} is no longer yours: its lease of "
        f"{question.lease_seconds:g} s ended, or the engine was opened again, and it may be "
        "another caller's. Nothing was changed; ask again."
    )


def _keys(producer: Producers, topics: str | Iterable[str] | None) -> list[Key]:
    producers = check_names("producer", producer, or_none=True)
    if topics is None:
        return [(each, None) for each in producers]
    names = check_names("topic", topics)
    return [(each, topic) for each in producers for topic in names]
