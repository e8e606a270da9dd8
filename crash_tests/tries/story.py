"""A group tries messages, acks some, gives others back, and is killed at any moment.

The model knows nothing of the engine. It has how often each message was tried, and when it is due,
as of the last call that returned, and as of each call since the last checkpoint. A kill leaves the
first exactly. A power cut leaves one of the others for each message, and every ack that has
returned.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.consume.calls.consumer import member_of
from fmq.errors import UsageError
from fmq.store.journal.attempt_page import ENTRY
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside

OPTIONS = fmq.Options(segment_bytes=2048, checkpoint_bytes=1024, retain_bytes=6144)
KINDS = (
    *("send", "poll", "poll", "poll", "poll", "ack", "ack", "advance", "advance", "release"),
    *("release", "delay", "not counted", "expire", "fill", "fill", "checkpoint", "skip"),
    *("reopen", "seek", "ack ticket", "lend", "lend"),
)
STEPS = 26
LEASE_SECONDS, LATER_SECONDS = 10, 5000


class State:
    """The attempts of each message, by its offset."""

    def __init__(self) -> None:
        self.sent = 0
        self.acked: set[int] = set()
        # Offset -> the number of attempts, and when it is due, or 0.
        self.tried: dict[int, tuple[int, int]] = {}

    def of(self, offset: int) -> tuple[int, int]:
        """Return how often a message was tried, and when it is due."""
        return self.tried.get(offset, (0, 0))

    def done(self, offset: int) -> None:
        """Note that a message is acked."""
        self.acked.add(offset)
        self.tried.pop(offset, None)


class Story:
    """Drives an engine through random steps, and states what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.done = State()
        self.since = [self.done]  # the states since the last sync that has returned
        # Earlier states since the last checkpoint or seek: a power cut may leave their attempts.
        self.before: list[State] = []
        self.running: list[State] = []
        self.hand: list[fmq.Delivery] = []
        # Each ticket with its offset and attempt. They outlive the engine.
        self.tickets: list[tuple[str, int, int]] = []
        self._open()

    def _open(self) -> None:
        self.engine = self._opened(self.disk, self.clock)
        # So small a page of attempts is full again and again.
        inside(self.engine).writer.attempts._size = ENTRY.size * self.random.randint(1, 6)
        how: dict[str, Any] = {"group": "g", "lease_seconds": LEASE_SECONDS}
        self.consumer = self.engine.consumer("t", **how)

    def _opened(self, disk: CrashDisk, clock: FakeClock) -> fmq.Engine:
        return fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False)

    def tell(self) -> None:
        """Make all steps. After each, a kill must leave what the model says."""
        for kind in ["send", "poll", *self.random.choices(KINDS, k=STEPS)]:
            self.clock.advance(1)
            getattr(self, f"_{kind.replace(' ', '_')}")()
            self._judge(self.disk.after_kill(), [self.done], [], full=False)
        self.engine.close()

    def _call(
        self, call: Callable[[], Any], effect: Callable[[State], object], *, syncs: bool
    ) -> None:
        after = deepcopy(self.done)
        effect(after)
        self.running = [after]
        try:
            call()
        except UsageError:
            after = self.done
        self.done, self.running = after, []
        self.before += self.since if syncs else []
        self.since = [after] if syncs else [*self.since, after]

    # --- the steps ------------------------------------------------------------------------------

    def _send(self) -> None:
        count = self.random.randint(1, 3)

        def effect(state: State) -> None:
            state.sent += count

        bodies = [bytes(self.random.choice((1, 200)))] * count
        self._call(lambda: self.engine.send_many("t", bodies), effect, syncs=True)

    def _fill(self) -> None:
        self._call(lambda: self.engine.send("filler", bytes(900)), lambda state: None, syncs=True)

    def _checkpoint(self) -> None:
        self._call(self.engine.checkpoint, lambda state: None, syncs=True)
        self.before = []

    def _poll(self) -> None:
        self._may_try(self.done)
        found = self.consumer.poll(limit=self.random.randint(1, 3))
        self._have_tried(found, self.done)
        self.since.append(self.done)

    def _advance(self) -> None:
        """Ack the message in hand, and get the next one, as `run` does."""
        done = self._take()
        if done is None:
            return
        acked = deepcopy(self.done)
        acked.done(done.offset)
        self._may_try(acked, self.done)  # the lease may be lost
        found = member_of(self.consumer).advance(done)
        self._have_tried([found] if found else [], acked if done.is_settled else self.done)
        if done.is_settled or found:
            self.before += self.since
            self.since = [self.done]

    def _may_try(self, *states: State) -> None:
        """Begin a call after one of `states`. It is not known before which messages it claims: any
        of them may have been tried once more.
        """
        self.running = [deepcopy(each) for each in states]
        for running in self.running:
            for offset in range(running.sent):
                if offset not in running.acked:
                    running.tried[offset] = (running.of(offset)[0] + 1, 0)

    def _have_tried(self, found: list[fmq.Delivery], before: State) -> None:
        """Note the messages that a call has returned, after the state `before`."""
        after = deepcopy(before)
        now_us = self.clock.time_us()
        for delivery in found:
            count, due_us = after.of(delivery.offset)
            if delivery.offset in after.acked or due_us > now_us:
                raise Violation("I7", f"{delivery} came although it was acked or is not due")
            if delivery.attempt != count + 1:
                raise Violation("I7", f"{delivery}: attempt {delivery.attempt} after {count}")
            after.tried[delivery.offset] = (count + 1, 0)
            self.tickets.append((delivery.ticket, delivery.offset, delivery.attempt))
        self.hand += found
        self.done, self.running = after, []

    def _take(self) -> fmq.Delivery | None:
        if not self.hand:
            return None
        return self.hand.pop(self.random.randrange(len(self.hand)))

    def _ack(self) -> None:
        delivery = self._take()
        if delivery is not None:
            offset = delivery.offset
            self._settle(delivery.ack, lambda state: state.done(offset), syncs=True)

    def _settle(
        self, call: Callable[[], Any], effect: Callable[[State], object], *, syncs: bool
    ) -> None:
        """Make a call about a delivery whose lease may have ended."""
        before = self.done
        try:
            self._call(call, effect, syncs=syncs)
        except fmq.errors.LeaseLost:
            self.done, self.running = before, []

    def _give_back(self, delay: int, *, count: bool = True) -> None:
        delivery = self._take()
        if delivery is not None:
            offset, due_us = delivery.offset, self.clock.time_us() + delay * 1_000_000

            def effect(state: State) -> None:
                state.tried[offset] = (state.of(offset)[0] - (not count), due_us)

            call = lambda: delivery.release(delay=delay, count=count)  # noqa: E731
            self._settle(call, effect, syncs=False)

    def _ack_ticket(self) -> None:
        if self.tickets:
            ticket, offset, attempt = self.random.choice(self.tickets)
            call = lambda: self.engine.group("g").ack_ticket(ticket)  # noqa: E731
            self._by_ticket(call, lambda state: state.done(offset), offset, attempt, syncs=True)

    def _lend(self) -> None:
        """Let a message wait by its ticket, whoever has it in hand."""
        if self.tickets:
            ticket, offset, attempt = self.random.choice(self.tickets[-6:])
            delay = self.random.choice((0, 3, LATER_SECONDS))
            due = (attempt, self.clock.time_us() + delay * 1_000_000)
            call = lambda: self.engine.group("g").release_ticket(ticket, delay=delay)  # noqa: E731
            effect = lambda state: state.tried.update({offset: due})  # noqa: E731
            self._by_ticket(call, effect, offset, attempt, syncs=False)

    def _by_ticket(
        self,
        call: Callable[[], Any],
        effect: Callable[[State], object],
        offset: int,
        attempt: int,
        *,
        syncs: bool,
    ) -> None:
        """Make a call with a ticket, which is good while its attempt is the latest one."""
        before, is_acked = self.done, offset in self.done.acked
        is_good = not is_acked and before.of(offset)[0] == attempt
        try:
            self._call(call, effect if is_good else lambda state: None, syncs=syncs and is_good)
        except fmq.errors.LeaseLost:
            self.done, self.running = before, []
            if is_good:
                raise Violation("I9", f"the good ticket of {offset} was refused") from None
        else:
            if not is_good and not (is_acked and syncs):
                raise Violation("I9", f"attempt {attempt} of {offset} was settled too late")

    def _release(self) -> None:
        self._give_back(0)

    def _delay(self) -> None:
        self._give_back(self.random.choice((3, 20, LATER_SECONDS)))

    def _not_counted(self) -> None:
        self._give_back(0, count=False)

    def _expire(self) -> None:
        self.clock.advance(LEASE_SECONDS + 1)

    def _skip(self) -> None:
        left = [each for each in range(self.done.sent) if each not in self.done.acked]
        if left:
            offset = self.random.choice(left)
            skip = lambda: self.engine.group("g").skip("t", 0, offset)  # noqa: E731
            self._call(skip, lambda state: state.done(offset), syncs=True)

    def _seek(self) -> None:
        """Move the group to the last message, if retention has left that. Attempts are
        forgotten.
        """
        last = self.done.sent - 1
        queue = inside(self.engine).ledger.queue("t", 0)
        if queue is not None and queue.first <= last:

            def effect(state: State) -> None:
                state.acked = {*range(last)}
                state.tried.clear()

            seek = lambda: self.engine.group("g").seek("t", queue=0, offset=last)  # noqa: E731
            self._call(seek, effect, syncs=True)
            self.hand.clear()
            self.before = []

    def _reopen(self) -> None:
        self._call(self.engine.close, lambda state: None, syncs=True)
        self.before = []
        self.hand.clear()
        self._open()

    # --- what must be there ---------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine finds what the model allows."""
        self._judge(disk, [*self.since, *self.running], self.before, full=full)

    def _judge(
        self, disk: CrashDisk, allowed: list[State], tried_before: list[State], *, full: bool
    ) -> None:
        """Raise Violation unless an engine on `disk` shows one of the states `allowed`. Attempts
        may also be those of `tried_before`.
        """
        clock = FakeClock(self.clock.time_us())
        with self._opened(disk, clock) as engine:
            ledger = inside(engine).ledger
            queue = ledger.queue("t", 0)
            sent = 0 if queue is None else queue.next
            acked = ledger.acked_of("g", "t", 0)
            tried: dict[int, tuple[int, int]] = {}
            for first, end, count, due_us in ledger.tried_of("g", "t", 0).all():
                tried |= dict.fromkeys(range(first, end), (count, due_us))
            for offset in range(sent):
                is_acked, what = offset in acked, tried.get(offset, (0, 0))
                states = [each for each in allowed if offset < each.sent] or allowed
                if is_acked and not any(offset in each.acked for each in states):
                    raise Violation("I7", f"offset {offset} is acked, and nobody has acked it")
                if not is_acked and all(offset in each.acked for each in allowed):
                    raise Violation("I7", f"the ack of offset {offset} is lost")
                if is_acked and offset in tried:
                    raise Violation("I7", f"offset {offset} is acked, and its attempts are kept")
                known = [each.of(offset) for each in [*states, *tried_before]]
                if not is_acked and what not in known:
                    raise Violation("I7", f"offset {offset} was tried {what}, not one of {known}")
            if full:
                self._consume(engine, clock, {*range(sent)}, tried)

    def _consume(
        self,
        engine: fmq.Engine,
        clock: FakeClock,
        left: set[int],
        tried: dict[int, tuple[int, int]],
    ) -> None:
        """Ack all messages. Check that each comes when it is due, with one attempt more."""
        acked = inside(engine).ledger.acked_of("g", "t", 0)
        left = {offset for offset in left if offset not in acked}
        with engine.consumer("t", group="g") as consumer:
            while left and (found := consumer.poll(timeout=LATER_SECONDS)):
                for delivery in found:
                    count, due_us = tried.get(delivery.offset, (0, 0))
                    if delivery.attempt != count + 1 or clock.time_us() < due_us:
                        raise Violation(
                            "I7", f"{delivery}: attempt {delivery.attempt}, or too early"
                        )
                    left.remove(delivery.offset)
                    delivery.ack()
        if left:
            raise Violation("I7", f"{sorted(left)} were never delivered again")
