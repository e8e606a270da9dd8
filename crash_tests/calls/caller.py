"""A caller that makes public calls at random: a thread of the engine's process, or a client."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from crash_tests.calls.arguments import (
    KEPT,
    MARKS,
    PRODUCERS,
    Arguments,
)
from crash_tests.oracle import Violation
from fmq import FmqError, Retry
from fmq.errors import (
    CheckpointLost,
    Damaged,
    EngineFailed,
    Locked,
    NewerFormat,
    OutcomeUnknown,
    ProtocolError,
    StorageFull,
    Unreadable,
)

# Errors that no call may raise while the machine is sound and the engine is not closed.
BAD_NEWS = (
    *(CheckpointLost, Damaged, EngineFailed, Locked, NewerFormat, OutcomeUnknown),
    *(ProtocolError, StorageFull, Unreadable),
)
IN_HAND_MAX = 12
STRATEGIES = (None, None, None, "average", "circle", "sticky")


class Hands:
    """The objects that callers got from the engine. They may use each other's."""

    def __init__(self) -> None:
        self.consumers: list[Any] = []
        self.deliveries: list[Any] = []
        self.delayed: list[Any] = []
        self.questions: list[Any] = []
        self.said: list[str] = []  # each call, and what came of it


class Promises:
    """The calls that were acknowledged, whose effects must be there whatever happens."""

    def __init__(self) -> None:
        self.sent: list[tuple[tuple[Any, ...], tuple[bytes, ...]]] = []
        """Receipts, with all their bodies in order, if these are known."""
        self.committed: list[str] = []


class Caller:
    """Makes one call after the other."""

    def __init__(
        self,
        name: str,
        engine: Any,
        hands: Hands,
        promises: Promises,
        random: Random,
        now_us: Callable[[], int],
        *,
        waits: bool,
        move_clock: Callable[[Random], None],
    ) -> None:
        """`waits` says whether a call that returns has made durable what it has done."""
        self.name = name
        self._engine = engine
        self._hands = hands
        self._promises = promises
        self._random = random
        self._any = Arguments(random, now_us)
        self._waits = waits
        self._move_clock = move_clock
        self._transactions: list[Any] = []  # each is used by one thread at a time
        self._sent = 0
        self.calls = 0

    def step(self) -> None:
        """Make a call or a few that belong together. Raises Violation."""
        kind = self._random.choices(KINDS, WEIGHTS)[0]
        self._any.begin()
        said = len(self._hands.said)
        try:
            kind(self)
        except FmqError as error:
            if isinstance(error, BAD_NEWS):
                raise self._violation(said, error) from error
            self._say(f"  {self.name}: {type(error).__name__}")
        except (TypeError, ValueError) as error:
            if not self._any.is_odd or isinstance(error, UnicodeError):
                raise self._violation(said, error) from error
            self._say(f"  {self.name}: {type(error).__name__}")
        except Exception as error:
            raise self._violation(said, error) from error

    def _violation(self, said: int, error: Exception) -> Violation:
        calls = [each for each in self._hands.said[said:] if each.startswith(f"{self.name}: ")]
        return Violation("typed errors", f"{'; '.join(calls[-3:])} raises {error!r}")

    def _say(self, what: str) -> None:
        self._hands.said.append(what)

    def call(self, whose: Any, name: str, *args: Any, **named: Any) -> Any:
        """Make a call."""
        given = [*map(short, args), *(f"{key}={short(value)}" for key, value in named.items())]
        self._say(f"{self.name}: {type(whose).__name__}.{name}({', '.join(given)})")
        self.calls += 1
        return getattr(whose, name)(*args, **named)

    def _pick(self, shared: list[Any]) -> Any:
        """Return one of the objects that other callers may change meanwhile; None if none
        is left.
        """
        known = [*shared]
        return self._random.choice(known) if known else None

    # --- sending --------------------------------------------------------------------------------

    def _body(self) -> bytes:
        self._sent += 1
        return f"{self.name} {self._sent}".encode()

    def _named(self, **named: Any) -> dict[str, Any]:
        """Return these named arguments, mostly without those that are None."""
        return {
            key: each for key, each in named.items() if each is not None or self._any.chance(0.1)
        }

    def send(self) -> None:
        body, more = self._any.body(self._body()), self._any.properties()
        timing, sync = self._any.timing(), self._any.flag()
        if self._any.chance(0.3):
            more["producer"] = self._any.one_of(PRODUCERS)
        if self._any.chance(0.3):
            more["queue"] = self._any.queue()
        topic = self._any.topic()
        receipt = self.call(
            self._engine, "send", topic, body, **more, **timing, **self._named(sync=sync)
        )
        if timing:
            self._hands.delayed.append(receipt)
        elif "message_id" not in more:
            self._promise(topic, [receipt], [bytes(body)], sync)

    def send_many(self) -> None:
        count = self._random.choice((0, 1, 2, 5, 30))
        bodies = [self._any.message(self._body()) for _ in range(count)]
        timing, sync, topic = self._any.timing(), self._any.flag(), self._any.topic()
        queue = self._any.queue() if self._any.chance(0.3) else None
        named = self._named(sync=sync, queue=queue)
        receipts = self.call(self._engine, "send_many", topic, bodies, **timing, **named)
        if timing:
            self._hands.delayed += receipts
        elif not any(getattr(each, "message_id", None) for each in bodies):
            self._promise(topic, receipts, [bytes(body_of(each)) for each in bodies], sync)

    def _promise(self, topic: Any, receipts: list[Any], bodies: list[bytes], sync: Any) -> None:
        if topic in KEPT and (sync or (sync is None and self._waits)):
            self._promises.sent.append((tuple(receipts), tuple(sorted(bodies))))

    def recall(self) -> None:
        if self._hands.delayed and not self._any.chance(0.1):
            self.call(self._engine, "recall", self._pick(self._hands.delayed))
        elif self._any.chance(0.5):
            self.call(self._engine, "delayed", limit=self._any.number(1, 50))
        else:
            self._hands.delayed += self.call(self._engine, "delayed", self._any.topic())

    # --- transactions ---------------------------------------------------------------------------

    def begin(self) -> None:
        named: dict[str, Any] = {}
        if self._any.chance(0.5):
            named["tx_id"] = self._any.one_of([f"tx {number}" for number in range(8)])
        if self._any.chance(0.5):
            named["producer"] = self._any.one_of(PRODUCERS)
        if self._any.chance(0.3):
            named["check_after"] = self._any.seconds(0, 1, 60)
        tx = self.call(self._engine, "transaction", **named)
        self._transactions.append(tx)
        for _ in range(self._random.randint(1, 4)):
            self._add(tx)
        end = self._random.random()
        if end < 0.35:
            self._commit(tx)
        elif end < 0.75:
            self.call(tx, "prepare")
            if self._any.chance(0.5):
                self._commit(tx)

    def _add(self, tx: Any) -> None:
        what = self._random.random()
        if what < 0.4:
            topic, body, more = self._any.topic(), self._body(), self._any.properties()
            queue = self._any.queue() if self._any.chance(0.3) else None
            timing = self._any.timing()
            self.call(tx, "send", topic, body, **more, **timing, **self._named(queue=queue))
        elif what < 0.55:
            bodies = [self._any.message(self._body()) for _ in range(self._random.randint(0, 9))]
            self.call(tx, "send_many", self._any.passing(), bodies, **self._any.timing())
        elif what < 0.75:
            if self._hands.deliveries:
                self.call(tx, "ack", self._pick(self._hands.deliveries))
        elif what < 0.85:
            expect = self._any.number(-1, 3) if self._any.chance(0.3) else None
            data = self._any.body() if self._any.chance(0.3) else b""
            name, value = self._any.one_of(MARKS), self._any.number(0, 9)
            self.call(tx, "mark", name, value, data, **self._named(expect=expect))
        elif what < 0.9:
            self.call(tx, "unmark", self._any.one_of(MARKS))
        else:
            back = self.call(tx, "savepoint")
            self.call(tx, "send", self._any.topic(), self._body())
            back()

    def _commit(self, tx: Any) -> None:
        sync = self._any.flag()
        receipts = self.call(tx, "commit", **self._named(sync=sync))
        if sync or (sync is None and self._waits):
            self._promises.committed.append(tx.tx_id)
            at_once = [each for each in receipts if each.offset is not None]
            kept = tuple(each for each in at_once if each.topic in KEPT)
            self._promises.sent.append((kept, ()))

    def go_on(self) -> None:
        """Do something with a transaction that is open, or over."""
        if not self._transactions:
            return
        tx = self._random.choice(self._transactions[-6:])
        match self._random.randrange(7):
            case 0 | 1:
                self._add(tx)
            case 2:
                self.call(tx, "prepare")
            case 3:
                self._commit(tx)
            case 4:
                self.call(tx, "rollback")
            case 5:
                self.call(tx, "outcome")
            case 6:
                self._transactions.remove(tx) if tx in self._transactions else None

    def decide(self) -> None:
        undecided = self.call(self._engine, "undecided")
        known = [each.tx_id for each in undecided] or ["tx 1"]
        tx_id = self._any.one_of(known)
        named = self._named(reason=self._any.one_of(("because", "", None)))
        if self._any.chance(0.1):
            named["seal"] = self._any.one_of([each.seal for each in undecided] or ["x"])
        what = self._any.one_of(("commit", "rollback"))
        self.call(self._engine, "decide", tx_id, what, **named)

    def decide_many(self) -> None:
        """Of what is undecided, and perhaps an id that is not known, all or some at once."""
        known = [each.tx_id for each in self.call(self._engine, "undecided")]
        tx_ids = [each for each in known if self._any.chance(0.7)]
        if self._any.chance(0.2):
            tx_ids.append("tx 1")
        mark = ("joint", self._random.randrange(9), self._any.one_of((None, -1, 5)))
        what = self._any.one_of(("commit", "rollback"))
        self.call(self._engine, "decide_many", tx_ids, what, mark=self._any.one_of((None, mark)))

    def ask(self) -> None:
        feedback = self._engine.feedback
        if self._hands.questions and self._any.chance(0.6):
            question = self._pick(self._hands.questions)
            answer = self._any.one_of(("commit", "rollback", "unknown"))
            self.call(feedback, "answer", question, answer)
        elif self._any.chance(0.2):
            tx_id = self._any.one_of(("tx 1", "tx 2"))
            self.call(feedback, self._random.choice(("resume", "ask_about")), tx_id)
        else:
            producer = self._any.one_of(PRODUCERS)
            named = {"limit": self._any.number(1, 9), "wait": self._random.choice((0.0, 0.01))}
            self._hands.questions[:0] = self.call(feedback, "ask", producer, **named)
            del self._hands.questions[9:]

    # --- consuming ------------------------------------------------------------------------------

    def join(self) -> None:
        topics = [self._any.topic() for _ in range(self._random.choice((1, 1, 2, 3)))]
        named: dict[str, Any] = {"group": self._any.group()}
        if self._any.chance(0.3):
            named["lease_seconds"] = self._any.seconds(0.5, 5, 60)
        if self._any.chance(0.3):
            named["member"] = self._any.one_of(("one", "two"))
        if self._any.chance(0.2):
            named["strategy"] = self._any.one_of(STRATEGIES)
        if self._any.chance(0.15):
            named["ordered"] = self._any.flag() or False
        if self._any.chance(0.1):
            named["strict"] = True
        if self._any.chance(0.1):
            named["broadcast"] = True
        if self._any.chance(0.1):
            named["expired"] = self._any.one_of(("count", "dead_letter"))
        if self._any.chance(0.1):
            named["filter"] = self._any.filter()
        if self._any.chance(0.3):
            attempts = self._any.number(1, 3)
            named["retry"] = Retry(attempts, backoff=self._any.seconds(0, 0.5, 3))
        given = self._random.choice(topics) if len(topics) == 1 else topics
        consumer = self.call(self._engine, "consumer", given, **named)
        self._hands.consumers.append(consumer)
        if len(self._hands.consumers) > 6:
            self.leave()

    def poll(self) -> None:
        if not self._hands.consumers:
            self.join()
        consumer = self._pick(self._hands.consumers)
        named = {"limit": self._any.number(1, 20)}
        if self._any.chance(0.3):
            named["timeout"] = self._any._or_odd(0.01, (-1, float("nan")))
        match self._random.randrange(8):
            case 0:
                self.call(consumer, "take", **named)
                return
            case 1 | 2:
                found = [self.call(consumer, "poll_batch", **named)]
            case _:
                found = self.call(consumer, "poll", **named)
        self._hands.deliveries += [each for each in found if each is not None]
        del self._hands.deliveries[:-IN_HAND_MAX]

    def settle(self) -> None:
        if not self._hands.deliveries:
            self.poll()
        if not self._hands.deliveries:
            return
        delivery = self._pick(self._hands.deliveries)
        match self._random.randrange(8):
            case 0 | 1 | 2:
                self.call(delivery, "ack", **self._named(sync=self._any.flag()))
            case 3:
                self.call(delivery, "extend", self._any.seconds(1, 5))
            case 4 | 5:
                count = self._any._or_odd(self._random.random() < 0.5)
                self.call(delivery, "release", delay=self._any.seconds(0, 0, 1, 5), count=count)
            case _:
                self.call(delivery, "reject", self._any.one_of(("", "no", "bad" * 9)))

    def leave(self) -> None:
        known = self._hands.consumers
        if known:
            consumer = self._pick(known)
            known[:] = [each for each in known if each is not consumer]
            if self._any.chance(0.8):
                self.call(consumer, "close")  # otherwise the consumer is dropped without a close

    # --- groups and topics ----------------------------------------------------------------------

    def group(self) -> None:
        group = self.call(self._engine, "group", self._any.group())
        match self._random.randrange(9):
            case 0 | 1:
                self.call(group, "delete")
            case 2 | 3 | 4:
                self._seek(group)
            case 5:
                self.call(group, "set_filter", self._any.topic(), self._any.filter())
            case 6:
                place = self._any.topic(), self._any.queue(), self._any.number(0, 30)
                self.call(group, "skip", *place, count=self._any.number(1, 5))
            case 7:
                self.call(group, "explain")
            case 8:
                self.call(group, self._random.choice(("infos", "members")))

    def _seek(self, group: Any) -> None:
        named: dict[str, Any] = {}
        match self._random.randrange(3):
            case 0:
                named["to"] = self._any.one_of(("earliest", "latest"))
            case 1:
                named["offset"] = self._any.number(0, 30)
            case 2:
                named["time"] = self._any.time(-20, -1, 0, 5)
        if self._any.chance(0.4):
            named["queue"] = self._any.queue()
        self.call(group, "seek", self._any.topic(), **named)

    def create(self) -> None:
        if self._any.chance(0.5):
            named = self._named(filter=self._any.filter() if self._any.chance(0.3) else None)
            what = self._any.group(), self._any.topic()
            self.call(self._engine, "create_group", *what, at=self._any.place(), **named)
        else:
            queues = self._any.number(1, 4) if self._any.chance(0.6) else None
            seconds = self._any.seconds(1, 5, 100) if self._any.chance(0.4) else None
            named = self._named(queues=queues, retain_seconds=seconds)
            self.call(self._engine, "create_topic", self._any.passing(), **named)

    def topic(self) -> None:
        what = self._random.randrange(8)
        name = self._any.topic() if what < 3 else self._any.passing()
        topic = self.call(self._engine, "topic", name)
        match what:
            case 0:
                self.call(topic, "queues")
            case 1 | 2:
                self.call(topic, "add_queues", self._any.number(1, 2))
            case 3 | 4:
                seconds = self._any.seconds(0.5, 2, 9) if self._any.chance(0.8) else None
                self.call(topic, "retain", seconds)
            case _:
                self.call(topic, "delete")

    def letters(self) -> None:
        dead = self.call(self._engine, "dead_letters", self._any.group())
        found = self.call(dead, "list", limit=self._any.number(1, 20))
        numbers: Any = [each.number for each in found if self._any.chance(0.5)]
        numbers = self._any._or_odd(numbers, ([1 << 64], [-1], [99]))
        match self._random.randrange(5):
            case 0:
                self.call(dead, "replay")
            case 1:
                self.call(dead, "replay", numbers)
            case 2:
                self.call(dead, "purge", numbers)
            case 3:
                self.call(dead, "purge", before=self._any.time(-5, 0))
            case 4:
                self.call(dead, "purge", all=self._any._or_odd(self._random.random() < 0.5))

    # --- looking, and the engine itself ---------------------------------------------------------

    def look(self) -> None:
        engine, what = self._engine, self._any
        match self._random.randrange(11):
            case 0 | 1:
                place = {"queue": what.queue(), "offset": what.number(0, 9)}
                timeout = {"timeout": what._or_odd(0.01)} if what.chance(0.1) else {}
                name = self._random.choice(("read", "read_batch"))
                self.call(engine, name, what.topic(), **place, limit=what.number(1, 99), **timeout)
            case 2:
                self.call(engine, "find", what.topic(), key=what.one_of(("k", "l")))
            case 3:
                self.call(engine, "queues", *([what.topic()] if what.chance(0.5) else []))
            case 4:
                self.call(engine, "groups", *([what.group()] if what.chance(0.5) else []))
            case 5:
                self.call(engine, "unread", what.group(), what.topic(), limit=what.number(1, 50))
            case 6:
                self.call(engine, "offset_at", what.topic(), what.queue(), what.time(-30, -1, 9))
            case 7:
                self.call(engine, "mark", what.one_of(MARKS))
            case 8:
                self.call(engine, "marks", what.one_of(MARKS), prefix=what.one_of(("", "m")))
            case 9:
                self.call(engine, "outcome", what.one_of(("tx 1", "tx 2", "x")))
            case 10:
                self.call(engine, self._random.choice(("stats", "undecided", "delayed")))

    def keep(self) -> None:
        self.call(self._engine, self._random.choice(("sync", "checkpoint", "checkpoint")))

    def clock(self) -> None:
        self._say(f"{self.name}: time passes")
        self._move_clock(self._random)


def short(value: Any) -> str:
    """Return a value as a short text."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)})"


def body_of(given: Any) -> Any:
    """Return the body of a sent message."""
    return getattr(given, "body", given)


WEIGHTED: dict[Callable[[Caller], None], int] = {
    Caller.send: 12,
    Caller.send_many: 10,
    Caller.recall: 2,
    Caller.begin: 10,
    Caller.go_on: 6,
    Caller.decide: 3,
    Caller.decide_many: 2,
    Caller.ask: 2,
    Caller.join: 4,
    Caller.poll: 16,
    Caller.settle: 16,
    Caller.leave: 2,
    Caller.group: 6,
    Caller.create: 4,
    Caller.topic: 5,
    Caller.letters: 5,
    Caller.look: 10,
    Caller.keep: 3,
    Caller.clock: 5,
}
KINDS, WEIGHTS = [*WEIGHTED], [*WEIGHTED.values()]
