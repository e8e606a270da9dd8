"""The feedback service: producers ask what is undecided, wait until something is, and answer.

One call serves all: whoever asks gets questions, each with a lease, and nobody else gets those
until it ends. No question due: the call waits for the next one, woken by whatever makes one
due. In process a thread asks for the registered checkers; over a network the same two calls
serve producers elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace

from fmq.clock import as_datetime
from fmq.errors import BadOption, LeaseLost, UnknownTransaction
from fmq.feedback.book import Book, Key, Open
from fmq.feedback.question import ANSWERS, Answer, Question
from fmq.message import Outcome, OutcomeState, UndecidedTransaction
from fmq.options import Options
from fmq.tx.ledger import Entry, Ledger, seal_text
from fmq.tx.manager import TransactionManager
from fmq.tx.messages import Messages, Wakeup
from fmq.tx.names import check_name
from fmq.tx.outcomes import undecided_view

Producers = str | Iterable[str]


class Feedback:
    """Questions and answers of one engine. Safe for threads."""

    def __init__(
        self,
        messages: Messages,
        manager: TransactionManager,
        options: Options,
        store: bytes,
        seed: bytes,
        check: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        """`check` raises if the engine takes nothing any more; `after` follows what has written."""
        self._lock = messages.lock
        self._clock = messages.clock
        self._ledger: Ledger = messages.ledger
        self._manager = manager
        self._options = options
        self.store = store.hex()
        self._check = check
        self._after = after
        self._waiting: dict[Key, list[Wakeup]] = {}
        self._calls = 0  # who waits comes back when it changes
        self.book = Book(options, seed)
        now = self._clock.monotonic()
        for entry in self._ledger.undecided.values():
            self.book.add(entry, now)  # whoever prepared it here has died with its process
        self._ledger.on_undecided = self._opened
        self._ledger.on_decided = self._decided

    # --- told by what is applied, under the lock ------------------------------------------------

    def _opened(self, entry: Entry) -> None:
        wanted_ms = entry.prepare.check_after_ms
        after = self._options.check_after_seconds if wanted_ms < 0 else wanted_ms / 1000
        self.book.add(entry, self._clock.monotonic() + after)
        self._wake(self._keys_of(entry.tx))

    def _decided(self, entry: Entry) -> None:
        self._wake(self._keys_of(entry.tx))
        self.book.remove(entry.tx)

    def _keys_of(self, tx: int) -> tuple[Key, ...]:
        each = self.book.get(tx)
        return each.keys if each is not None else ()

    # --- asking ---------------------------------------------------------------------------------

    def ask(
        self,
        producer: Producers,
        topics: Iterable[str] | None = None,
        *,
        limit: int = 32,
        wait: float = 5.0,
    ) -> list[Question]:
        """Up to `limit` questions about what `producer` prepared, as soon as one is due.

        Empty after `wait` seconds. With `topics` only transactions with a message for one of
        them. Several producers may be named, too.
        """
        if limit < 1:
            raise BadOption(f"limit={limit}: must be at least 1")
        keys = _keys(producer, topics)
        now = self._clock.monotonic()
        deadline, calls = now + wait, self._calls
        while True:
            with self._lock:
                self._check()
                taken = self.book.take(keys, limit, now)
                if taken:
                    return [self._question(each) for each in taken]
                if now >= deadline or calls != self._calls:
                    return []
                wakeup = self._listen(keys)
                until = min(deadline, self.book.next_due(keys))
            self._wait(wakeup, keys, until - now)
            now = self._clock.monotonic()

    def _listen(self, keys: Iterable[Key]) -> Wakeup:
        """A wakeup for whatever happens to one of `keys`. Under the lock."""
        wakeup = Wakeup()
        for key in keys:
            self._waiting.setdefault(key, []).append(wakeup)
        return wakeup

    def _wait(self, wakeup: Wakeup, keys: Iterable[Key], seconds: float) -> None:
        try:
            self._clock.wait(wakeup.lock, seconds)
        finally:
            self._forget(wakeup, keys)

    def ask_about(self, tx_id: str) -> list[Question]:
        """The question about this one transaction, whoever has it now; none if it is decided."""
        with self._lock:
            self._check()
            entry = self._ledger.by_tx_id.get(tx_id)
            each = None if entry is None else self.book.get(entry.tx)
            if each is None:
                return []
            self.book.lease(each, self._clock.monotonic())
            return [self._question(each)]

    def _question(self, each: Open) -> Question:
        prepare = each.entry.prepare
        return Question(
            prepare.tx_id,
            prepare.producer,
            as_datetime(prepare.prepared_us),
            tuple(topic for _, topic in each.keys if topic is not None),
            prepare.messages,
            prepare.bytes,
            seal_text(prepare.seal),
            self.store,
            each.entry.tx,
            each.token,
            self._options.check_lease_seconds,
            each.answers,
        )

    def _forget(self, wakeup: Wakeup, keys: Iterable[Key]) -> None:
        with self._lock:
            for key in keys:
                waiting = self._waiting.get(key, [])
                if wakeup in waiting:
                    waiting.remove(wakeup)
                if not waiting:
                    self._waiting.pop(key, None)

    def _wake(self, keys: Iterable[Key]) -> None:
        """Have those look again who wait for one of `keys`. Under the lock."""
        for key in keys:
            for wakeup in self._waiting.get(key, ()):
                wakeup()

    def wake_all(self) -> None:
        """Let every call that waits look again: the engine closes. Under the lock."""
        self._calls += 1
        self._wake(list(self._waiting))

    def come_back(self) -> None:
        """Let every call that waits return, with nothing if there is nothing."""
        with self._lock:
            self.wake_all()

    # --- answering ------------------------------------------------------------------------------

    def answer(self, question: Question, decision: Answer, *, reason: str = "") -> Outcome | None:
        """Decide what `question` asks about; None if the answer is "unknown".

        The same decision made by somebody else meanwhile is a success, the opposite one is
        AlreadyDecided. LeaseLost if the lease ended and the question may be somebody else's.
        """
        if decision not in ANSWERS:
            raise BadOption(f"answer {decision!r}: must be one of {', '.join(ANSWERS)}")
        if question.store != self.store:
            raise UnknownTransaction(
                f"transaction {question.tx_id!r} is one of the store {question.store}, not of "
                f"{self.store}: nothing was changed. Answer where the question was asked."
            )
        tx_id, seal = question.tx_id, question.seal
        if decision != "unknown":
            self._require_token(question)
            return self._decide(tx_id, decision, seal, reason)
        if self._unknown(question) and self._options.on_undecided == "rollback":
            why = f"{self._options.check_answers_max} answers were unknown"
            return self._decide(tx_id, "rollback", seal, why)
        return None

    def _decide(self, tx_id: str, decision: Answer, seal: str, reason: str) -> Outcome:
        assert decision != "unknown"
        outcome = self._manager.decide(
            tx_id, decision, reason=reason, decided_by="checker", seal=seal
        )
        self._after()
        return outcome

    def _require_token(self, question: Question) -> None:
        with self._lock:
            self._check()
            each = self.book.get(question.tx)
            if each is not None and each.token != question.token:
                self._refuse(question)

    def _unknown(self, question: Question) -> bool:
        with self._lock:
            self._check()
            each = self.book.get(question.tx)
            if each is None:
                return False  # decided meanwhile: nothing is left to be asked
            if each.token != question.token:
                self._refuse(question)
            self._wake(each.keys)
            return self.book.unknown(each, self._clock.monotonic())

    def _refuse(self, question: Question) -> None:
        raise LeaseLost(
            f"the question about transaction {question.tx_id!r} is no longer yours: its lease of "
            f"{question.lease_seconds:g} s ended, or the engine was opened again, and it may be "
            "somebody else's. Nothing was changed; ask again."
        )

    # --- by hand --------------------------------------------------------------------------------

    def resume(self, tx_id: str) -> None:
        """Ask about it now, even if it was parked; UnknownTransaction if it is not undecided."""
        with self._lock:
            self._check()
            entry = self._ledger.by_tx_id.get(tx_id)
            each = None if entry is None else self.book.get(entry.tx)
            if each is None:
                raise UnknownTransaction(
                    f"transaction {tx_id!r} is not undecided, so nobody is asked about it; "
                    f"engine.outcome({tx_id!r}) tells what became of it"
                )
            self.book.hurry(each, self._clock.monotonic())
            self._wake(each.keys)

    def undecided(self) -> list[UndecidedTransaction]:
        """All that wait for their decision, the oldest first, and how asking stands."""
        with self._lock:
            return [
                replace(undecided_view(each.entry), answers=each.answers, parked=each.parked)
                for each in self.book.all()
            ]

    # --- all at once ----------------------------------------------------------------------------

    def hurry(self, producers: Container[str]) -> list[tuple[Open, int]]:
        """Make everything of `producers` due that nobody is being asked about, but what is parked.

        All that is undecided now, each with the number of its answers so far.
        """
        with self._lock:
            self._check()
            now = self._clock.monotonic()
            for each in self.book.all():
                asked = each.token and each.due > now
                if each.producer in producers and not each.parked and not asked:
                    self.book.hurry(each, now)
                    self._wake(each.keys)
            return [(each, each.answers) for each in self.book.all()]

    def unanswered(self, asked: Iterable[tuple[Open, int]]) -> list[Open]:
        """Those of `asked` that are undecided, and have had no answer since."""
        with self._lock:
            self._check()
            return [
                each
                for each, answers in asked
                if self.book.get(each.entry.tx) is each and each.answers == answers
            ]

    def state_of(self, each: Open) -> OutcomeState:
        """What has become of it."""
        with self._lock:
            if self.book.get(each.entry.tx) is each:
                return "undecided"
        return self._manager.outcome(each.tx_id).state

    def pause(self, producers: Producers, seconds: float) -> None:
        """Wait until something happens to what `producers` have prepared, or becomes due."""
        keys = _keys(producers, None)
        with self._lock:
            now = self._clock.monotonic()
            wakeup = self._listen(keys)
            seconds = min(seconds, max(0.0, self.book.next_due(keys) - now))
        self._wait(wakeup, keys, seconds)


def _keys(producer: Producers, topics: Iterable[str] | None) -> list[Key]:
    producers = [producer] if isinstance(producer, str) else list(producer)
    for name in producers:
        if name:
            check_name("producer", name)
    names = [None] if topics is None else list(topics)
    return [(each, topic) for each in producers for topic in names]
