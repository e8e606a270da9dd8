"""A story: messages wait, are published, recalled and carried forward, and clocks are set.

The model knows nothing of the engine. Of each message it has when it is due, and what the calls
that returned have said; a call that is running may have come to pass or not. Published messages are
consumed by a group, so retention may drop what it has acked.

A crash is judged in two steps. An engine is opened when the clock stands where it stood. It
publishes what is due, and nothing else. Then ten years pass, and everything that was promised was
there once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from random import Random
from typing import NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.errors import UnknownTransaction, UsageError
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.tx.ledger.timers import Bounds

OPTIONS = fmq.Options(
    segment_bytes=4096, checkpoint_bytes=1024, retain_bytes=8192, keep_unread=True
)
FEW = Bounds(near=8, noted=2, runs=2, gone=2)
KINDS = (
    *("send", "send", "send", "send", "many", "tx", "prepare", "decide", "decide"),
    *("recall", "recall", "recall", "wait", "wait", "wait", "take", "take", "take"),
    *("fill", "fill", "fill", "fill", "checkpoint", "checkpoint", "reopen"),
    *("back", "forward", "other", "drop"),
)
STEPS = 30
YEARS = 10 * 366 * 24 * 3600
SECOND = 1_000_000


class Sent(NamedTuple):
    """A message that waits, or was published at once."""

    body: bytes
    due_us: int
    group: int
    """What was sent together is there together."""


class Story:
    """Drives an engine through random steps, and states what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.engine = self._opened(self.disk, self.clock)
        self.number = 0
        # Messages of calls that returned, or may have taken effect.
        self.sent: dict[bytes, Sent] = {}
        self.may: set[bytes] = set()  # messages of the call that is running
        self.undecided: dict[str, list[Sent]] = {}
        self.tx_of: dict[bytes, str] = {}  # body -> the transaction that has sent it
        self.deciding: set[bytes] = set()  # messages of a transaction whose decision is running
        self.recalled: set[bytes] = set()
        self.recalling: set[bytes] = set()
        self.receipts: list[tuple[fmq.Receipt, list[bytes]]] = []
        self.taken: set[bytes] = set()  # messages that were acked
        self.taking: set[bytes] = set()
        self.ever_due: set[bytes] = set()  # messages whose due time the clock has reached once
        self.dropped: set[bytes] = set()  # messages of the other topic from before its deletion
        self.others: list[bytes] = []
        self.engine.consumer("t", group="g").close()

    def _opened(self, disk: CrashDisk, clock: FakeClock) -> fmq.Engine:
        engine = fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False)
        inside(engine).ledger.timers.bounds = FEW
        return engine

    def tell(self) -> None:
        """Make all steps."""
        for kind in ["send", "tx", *self.random.choices(KINDS, k=STEPS)]:
            self._look_at_the_clock()
            getattr(self, f"_{kind}")()
        self.engine.close()

    def _look_at_the_clock(self) -> None:
        now = self.clock.time_us()
        # What is undecided is published with its decision, even if the clock was set back since.
        undecided = chain.from_iterable(self.undecided.values())
        known = chain(self.sent.values(), undecided)
        self.ever_due |= {each.body for each in known if each.due_us <= now}

    def _message(self, group: int, delay: int | None = None) -> Sent:
        if delay is None:
            delay = self.random.choice((0, 1, 5, 10, 20, 30, 50))
        self.number += 1
        body = b"%d:" % self.number + bytes(self.random.choice((10, 10, 300)))
        return Sent(body, self.clock.time_us() + delay * SECOND, group)

    def _begin(self, messages: Iterable[Sent]) -> None:
        """Note that messages are being sent."""
        for each in messages:
            self.sent[each.body] = each
            self.may.add(each.body)
        self._look_at_the_clock()

    def _end(self) -> None:
        self.may.clear()

    def _delay(self, each: Sent) -> float:
        return (each.due_us - self.clock.time_us()) / SECOND

    # --- the steps ------------------------------------------------------------------------------

    def _send(self) -> None:
        each = self._message(self.number)
        self._begin([each])
        receipt = self.engine.send("t", each.body, delay=self._delay(each))
        self.receipts.append((receipt, [each.body]))
        self._end()

    def _many(self) -> None:
        group = self.number
        first = self._message(group, self.random.choice((5, 20)))
        more = [first, *(self._message(group)._replace(due_us=first.due_us) for _ in range(2))]
        self._begin(more)
        bodies = [each.body for each in more]
        (receipt,) = self.engine.send_many("t", bodies, delay=self._delay(first))
        self.receipts.append((receipt, bodies))
        self._end()

    def _tx(self) -> None:
        group = self.number
        messages = [self._message(group) for _ in range(3)]
        self._begin(messages)
        tx_id = f"one{group}"
        with self.engine.transaction(tx_id=tx_id) as tx:
            for each in messages:
                self.tx_of[each.body] = tx_id
                tx.send("t", each.body, delay=self._delay(each))
        self._end()

    def _prepare(self) -> None:
        group, tx_id = self.number, f"tx{self.number}"
        messages = [self._message(group) for _ in range(2)]
        with suppress(UsageError):
            tx = self.engine.transaction(tx_id=tx_id)
            for each in messages:
                self.tx_of[each.body] = tx_id
                tx.send("t", each.body, delay=self._delay(each))
            tx.prepare()
            self.undecided[tx_id] = messages

    def _decide(self) -> None:
        if not self.undecided:
            return
        tx_id = self.random.choice(sorted(self.undecided))
        decision = self.random.choice(("commit", "commit", "rollback"))
        messages = self.undecided.pop(tx_id)
        if decision == "commit":
            self._begin(messages)
        with suppress(UnknownTransaction):
            self.engine.decide(tx_id, decision)  # type: ignore[arg-type]
        self._end()

    def _recall(self) -> None:
        if not self.receipts:
            return
        receipt, bodies = self.receipts.pop(self.random.randrange(len(self.receipts)))
        self.recalling = set(bodies)
        in_time = self.engine.recall(receipt)
        if in_time:
            self.recalled |= self.recalling
        elif self.recalling - self.ever_due:
            raise Violation("I1", f"{receipt} is not due, and was not recalled")
        self.recalling = set()

    def _wait(self) -> None:
        self.clock.advance(self.random.choice((0.5, 1, 5, 10)))
        self._look_at_the_clock()
        self.engine.sync()

    def _back(self) -> None:
        self.clock.set_wall_clock(self.clock.time_us() - self.random.choice((3, 30)) * SECOND)
        self.engine.sync()

    def _forward(self) -> None:
        self.clock.set_wall_clock(self.clock.time_us() + 7 * SECOND)
        self._look_at_the_clock()
        self.engine.sync()

    def _take(self) -> None:
        with self.engine.consumer("t", group="g") as consumer:
            found = consumer.poll(limit=5)
            self._check_visible(each.body for each in found)
            for each in found:
                if each.body in self.taken:
                    raise Violation("I5", f"{each.body[:9]!r} is there twice")
                self.taking = {each.body}
                each.ack()
                self.taken.add(each.body)
                self.taking = set()

    def _check_visible(self, bodies: Iterable[bytes]) -> None:
        for body in bodies:
            if body not in self.sent:
                raise Violation("I5", f"{body[:9]!r} was never committed")
            if body not in self.ever_due:
                raise Violation("I2", f"{body[:9]!r} is there before it is due")
            if body in self.recalled:
                raise Violation("I3", f"{body[:9]!r} was recalled")

    def _fill(self) -> None:
        with suppress(UsageError):
            self.engine.send("f", bytes(1800))

    def _checkpoint(self) -> None:
        self.engine.checkpoint()

    def _reopen(self) -> None:
        self.engine.close()
        self.engine = self._opened(self.disk, self.clock)

    def _other(self) -> None:
        each = self._message(0)
        self.others.append(each.body)
        self.engine.send("u", each.body, delay=self._delay(each))

    def _drop(self) -> None:
        with suppress(UsageError):
            self.engine.topic("u").delete()
            self.dropped |= {*self.others}

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows what must be there."""
        if full and self.random_of(disk) < 0.5:
            self._remove_derived(disk)
        clock = FakeClock(self.clock.time_us())
        engine = self._opened(disk, clock)
        try:
            engine.sync()
            soon = self._visible(engine)
            self._check_soon(soon, clock)
            self._decide_all(engine)
            clock.advance(YEARS)
            engine.sync()
            self._check_all(soon + self._visible(engine))
            self._check_other(engine)
            if engine.stats().delayed:
                raise Violation("I1", f"{engine.stats().delayed} wait for ever")
        finally:
            engine.close()
        if full and (problems := fmq.check(PATH, disk=disk).problems):
            raise Violation("I0", f"{problems}")

    @staticmethod
    def random_of(disk: CrashDisk) -> float:
        """Return a number that depends on the disk alone."""
        return int(str(disk.fingerprint())[-4:], 16) / 65536

    @staticmethod
    def _remove_derived(disk: CrashDisk) -> None:
        directory = disk.directory(PATH, make=True)
        for name in directory.names():
            if name.endswith(".due"):
                directory.remove(name)
        directory.sync()

    def _decide_all(self, engine: fmq.Engine) -> None:
        """Roll back what is undecided, so that none of it appears."""
        for each in engine.undecided():
            engine.decide(each.tx_id, "rollback")

    def _visible(self, engine: fmq.Engine) -> list[bytes]:
        """Return the messages that the group gets, after acking them."""
        found: list[bytes] = []
        with engine.consumer("t", group="g") as consumer:
            while deliveries := consumer.poll():
                for each in deliveries:
                    found.append(each.body)
                    if each.message.tx_id != self.tx_of.get(each.body):
                        raise Violation("I14", f"{each.body[:9]!r} is of {each.message.tx_id}")
                    each.ack()
        return found

    def _check_soon(self, soon: list[bytes], clock: FakeClock) -> None:
        now = clock.time_us()
        due_now = {each.body for each in self.sent.values() if each.due_us <= now}
        for body in soon:
            if body not in self.sent:
                raise Violation("I5", f"{body[:9]!r} was never committed")
            if body not in self.ever_due | due_now:
                raise Violation("I2", f"{body[:9]!r} is there before it is due")
        missing = due_now - set(soon) - self.taken - self.taking - self._uncertain()
        if missing - self.recalled:
            raise Violation("I1", f"{[each[:9] for each in missing]} are due and not there")

    def _uncertain(self) -> set[bytes]:
        undecided = {each.body for prepared in self.undecided.values() for each in prepared}
        return self.may | self.recalling | undecided

    def _check_all(self, found: list[bytes]) -> None:
        twice = [body[:9] for body, times in Counter(found).items() if times > 1]
        twice += [body[:9] for body in found if body in self.taken]
        if twice:
            raise Violation("I5", f"{twice} are there twice")
        if recalled := self.recalled & set(found):
            raise Violation("I3", f"{[each[:9] for each in recalled]} were recalled")
        there = set(found) | self.taken | self.taking
        lost = self.sent.keys() - there - self.recalled - self._uncertain()
        if lost:
            raise Violation("I1", f"{[each[:9] for each in lost]} are lost")
        if strange := set(found) - self.sent.keys():
            raise Violation("I5", f"{[each[:9] for each in strange]} were never committed")
        for part in (self.may, self.recalling):
            if part - self.recalled and 0 < len(part & there) < len(part):
                raise Violation("I2", f"{[each[:9] for each in part]} are there in part")

    def _check_other(self, engine: fmq.Engine) -> None:
        for queue in engine.queues("u"):
            found = engine.read("u", offset=queue.first, limit=999) if queue.next else []
            bodies = [each.body for each in found]
            if len(set(bodies)) < len(bodies) or self.dropped & set(bodies):
                raise Violation("I3", f"{[each[:9] for each in bodies]} of a deleted topic")
