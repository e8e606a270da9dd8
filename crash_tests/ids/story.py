"""Sends messages under ids, some of them again and again. Each must be there once.

The model knows nothing of the engine. It has every state that a crash may leave now: the last one
that was made durable, those after calls that did not wait for a sync, and that after the call that
is running. Of the ids that were taken, the newest must be known; older ones are not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq import Message
from fmq.basics.message import Decision
from fmq.errors import MessageIdUndecided, UsageError
from fmq.testing import CrashDisk, FakeClock

TOPICS = "s", "t"
KINDS = (
    *("send", "send", "send", "many", "many", "commit", "commit", "prepare", "prepare", "decide"),
    *("decide", "fill", "fill", "fill", "drop", "checkpoint", "reopen"),
)
STEPS = 36
KEPT = 10  # how many ids are kept, in every third story


class Taken(NamedTuple):
    """The message that has taken an id, and how many ids had been taken before."""

    offset: int
    position: int
    rank: int


class State:
    """The durable state, as a user knows it."""

    def __init__(self) -> None:
        self.messages: dict[str, list[bytes]] = {}  # the messages of each topic
        # The message that has taken an id, by topic and id.
        self.taken: dict[tuple[str, str], Taken] = {}
        # Tx_id -> topic, id and body of each message.
        self.undecided: dict[str, list[tuple[str, str, bytes]]] = {}
        self.rank = 0

    def add(self, topic: str, message_id: str, body: bytes) -> None:
        """Add a message, unless its id is taken."""
        if (topic, message_id) in self.taken and message_id:
            return
        sent = self.messages.setdefault(topic, [])
        if message_id:
            self.taken[topic, message_id] = Taken(len(sent), -1, self.rank)
            self.rank += 1
        sent.append(body)

    def holder(self, topic: str, message_id: str) -> str | None:
        """Return the transaction that holds an id."""
        for tx_id, held in self.undecided.items():
            if message_id and any(each[:2] == (topic, message_id) for each in held):
                return tx_id
        return None

    def must_know(self, taken: Taken, kept: int) -> bool:
        """Return whether the id is one of the newest."""
        return taken.rank >= self.rank - kept


class Story:
    """An engine with what it sends, and what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.kept = KEPT if seed % 3 == 0 else 1000
        self.lazy = seed % 4 == 1  # most calls do not wait for a sync
        self.options = fmq.Options(
            sync="never" if self.lazy else "always",
            segment_bytes=4096,
            checkpoint_bytes=2048,
            relocate_bytes=6000,
            reference_bytes_min=200,
            retain_bytes=12288,
            message_ids_kept=self.kept,
        )
        self.engine = self._opened(self.disk)
        self.left = [State()]  # the states that a crash may leave, the newest last
        self.running: State | None = None
        self.sent = self.named = 0

    def _opened(self, disk: CrashDisk) -> fmq.Engine:
        return fmq.open(PATH, self.options, disk=disk, clock=self.clock, background=False)

    def tell(self) -> None:
        """Make all steps."""
        for kind in ["send", "send", *self.random.choices(KINDS, k=STEPS)]:
            getattr(self, f"_{kind}")()
        self.engine.close()

    @property
    def now(self) -> State:
        """Return the state that readers see."""
        return self.left[-1]

    def _call(self, call: Callable[[], Any], after: State, *, synced: bool) -> Any:
        """Make a call of the engine that leads to the state `after`."""
        self.running = after
        try:
            found = call()
        finally:
            self.running = None
        self.left = [after] if synced or not self.lazy else [*self.left, after]
        return found

    def _body(self) -> bytes:
        self.sent += 1
        return b"%d:" % self.sent + bytes(self.random.choice((10, 300)))

    def _picked(self, topic: str = "") -> tuple[str, str, bytes]:
        """Return a topic, mostly an id, and a body. The id is new, or the engine must know it."""
        topic = topic or TOPICS[self.random.random() < 0.3]
        state, kind = self.now, self.random.random()
        known = [
            each
            for (name, each), taken in state.taken.items()
            if name == topic and state.must_know(taken, self.kept - 4)
        ]
        held = [
            each
            for batch in state.undecided.values()
            for name, each, _ in batch
            if name == topic and each
        ]
        if kind < 0.1:
            return topic, "", self._body()
        if kind < 0.5 and (known or held):
            return topic, self.random.choice(known + held), self._body()
        self.named += 1
        return topic, self.random.choice((f"n{self.named}", f"n{self.named - 1}")), self._body()

    # --- the steps ------------------------------------------------------------------------------

    def _send(self) -> None:
        topic, message_id, body = self._picked()
        sync = True if self.random.random() < 0.3 else None
        name = message_id or None
        self._publish(
            [(topic, message_id, body)],
            lambda: [self.engine.send(topic, body, sync=sync, message_id=name)],
            synced=sync is True,
        )

    def _many(self) -> None:
        topic = self.random.choice(TOPICS)
        batch = [self._picked(topic) for _ in range(self.random.randint(1, 4))]
        messages = [Message(body, message_id=each or None) for _, each, body in batch]
        sync = True if self.random.random() < 0.3 else None
        call = lambda: self.engine.send_many(topic, messages, sync=sync)  # noqa: E731
        self._publish(batch, call, synced=sync is True)

    def _commit(self) -> None:
        batch = [self._picked() for _ in range(self.random.randint(1, 3))]
        self._publish(batch, lambda: self._filled(batch, None).commit(), synced=False)

    def _filled(self, batch: list[tuple[str, str, bytes]], tx_id: str | None) -> fmq.Transaction:
        tx = self.engine.transaction(tx_id=tx_id)
        for topic, message_id, body in batch:
            tx.send(topic, body, message_id=message_id or None)
        return tx

    def _publish(
        self,
        batch: list[tuple[str, str, bytes]],
        call: Callable[[], list[fmq.Receipt]],
        *,
        synced: bool,
    ) -> None:
        """Send a batch, and compare its receipts with the model."""
        holder = next((h for each in batch if (h := self.now.holder(*each[:2]))), None)
        if holder is not None:
            self._expect_refusal(call, {self.now.holder(*each[:2]) for each in batch})
            return
        after = deepcopy(self.now)
        for topic, message_id, body in batch:
            after.add(topic, message_id, body)
        receipts = self._call(call, after, synced=synced)
        self._compare(batch, receipts)

    def _compare(self, batch: list[tuple[str, str, bytes]], receipts: list[fmq.Receipt]) -> None:
        """Raise Violation unless the receipt of each message of `batch` names the first message
        with its id.
        """
        state = self.now
        for topic, message_id, _ in batch:
            if not message_id:
                continue
            taken = state.taken[topic, message_id]
            named = [
                each
                for each in receipts
                if each.topic == topic and each.offset <= taken.offset < each.offset + each.count
            ]
            if not named:
                raise Violation("I5", f"{topic}: {message_id!r} has no receipt in {receipts}")
            if taken.position < 0:
                state.taken[topic, message_id] = taken._replace(position=named[0].position)
            elif named[0].position != taken.position:
                raise Violation("I6", f"{topic}: {message_id!r} was at {taken}, not {named[0]}")

    def _expect_refusal(self, call: Callable[[], Any], holders: set[str | None]) -> None:
        try:
            call()
        except MessageIdUndecided as error:
            if error.tx_id not in holders:
                raise Violation("I4", f"{error.tx_id} is named, not one of {holders}") from None
        else:
            raise Violation("I5", f"a message was sent whose id {holders} hold")

    def _prepare(self) -> None:
        batch = [self._picked() for _ in range(self.random.randint(1, 3))]
        self.named += 1
        tx_id = f"T{self.named}"
        holders = {self.now.holder(*each[:2]) for each in batch} - {None}
        if holders:
            tx = self._filled(batch, None)
            self._expect_refusal(tx.prepare, holders)
            tx.rollback()
            return
        after = deepcopy(self.now)
        held: list[tuple[str, str, bytes]] = []
        for each in batch:
            known = each[:2] in after.taken or any(each[:2] == other[:2] for other in held)
            if not each[1] or not known:
                held.append(each)
        after.undecided[tx_id] = held
        self._call(lambda: self._filled(batch, tx_id).prepare(), after, synced=True)

    def _decide(self) -> None:
        if not self.now.undecided:
            return
        tx_id = self.random.choice(sorted(self.now.undecided))
        choices: tuple[Decision, Decision] = ("commit", "rollback")
        decision = self.random.choice(choices)
        after = deepcopy(self.now)
        held = after.undecided.pop(tx_id)
        if decision == "commit":
            for topic, message_id, body in held:
                after.add(topic, message_id, body)
        outcome = self._call(lambda: self.engine.decide(tx_id, decision), after, synced=False)
        if decision == "commit":
            self._compare(held, list(outcome.receipts))

    def _fill(self) -> None:
        """Send messages without ids, so that the journal grows and retention drops its
        beginning.
        """
        after, bodies = deepcopy(self.now), [self._body() + bytes(600) for _ in range(3)]
        for body in bodies:
            after.add("t", "", body)
        self._call(lambda: self.engine.send_many("t", bodies), after, synced=False)

    def _drop(self) -> None:
        """Delete a topic, which forgets its ids."""
        if "s" not in self.now.messages:
            return
        after = deepcopy(self.now)
        del after.messages["s"]
        for key in [key for key in after.taken if key[0] == "s"]:
            del after.taken[key]
        with suppress(UsageError):  # an undecided transaction has messages for it
            self._call(lambda: self.engine.topic("s").delete(), after, synced=True)

    def _checkpoint(self) -> None:
        self._call(self.engine.checkpoint, self.now, synced=False)

    def _reopen(self) -> None:
        self.engine.close()
        self.left = [self.now]
        self.engine = self._opened(self.disk)

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows what must be there, and knows the ids."""
        states = [*self.left, *([self.running] if self.running else [])]
        engine = self._opened(disk)
        try:
            faults = []
            for state in reversed(states):
                fault = self._fault(engine, state)
                if not fault:
                    break
                faults.append(fault)
            else:
                raise Violation("I5", f"none of {len(states)} states: {faults}")
            self._repeat(engine, state)
        finally:
            engine.close()
        if full and (problems := fmq.check(PATH, disk=disk).problems):
            raise Violation("I0", f"{problems}")

    def _fault(self, engine: fmq.Engine, state: State) -> str:
        """Return how what the engine has differs from `state`; "" if it does not."""
        undecided = {each.tx_id for each in engine.undecided()}
        if undecided != set(state.undecided):
            return f"{undecided} are undecided, not {set(state.undecided)}"
        ends = {queue.topic: queue for queue in engine.queues()}
        for topic, sent in state.messages.items():
            queue = ends.get(topic)
            if queue is None or queue.next != len(sent):
                return f"{topic} is {queue}, where {len(sent)} were sent"
            found = [each.body for each in engine.read(topic, offset=queue.first, limit=9999)]
            if found != sent[queue.first :]:
                return f"{topic} holds {len(found)} others from {queue.first} on"
        for topic, queue in ends.items():
            if topic not in state.messages and queue.next:
                return f"{topic} is there"
        return ""

    def _repeat(self, engine: fmq.Engine, state: State) -> None:
        """Send under each id once more. Ids that are taken must give their first receipts."""
        for (topic, message_id), taken in state.taken.items():
            if state.must_know(taken, self.kept):
                receipt = engine.send(topic, b"again", message_id=message_id)
                known = taken.position in (-1, receipt.position)
                if receipt.offset != taken.offset or not known:
                    raise Violation("I5", f"{topic}: {message_id!r} at {taken}, not {receipt}")
        for holder, held in state.undecided.items():
            for topic, message_id, _ in held:
                if message_id:
                    self._expect_refusal(
                        partial(engine.send, topic, b"again", message_id=message_id), {holder}
                    )
        before = len(state.messages.get("t", ()))
        for number in range(self.named + 1):
            message_id = f"n{number}"
            taken_by = ("t", message_id) in state.taken or state.holder("t", message_id)
            if not taken_by:
                receipt = engine.send("t", b"new", message_id=message_id)
                if receipt.offset != before:
                    raise Violation("I5", f"t: {message_id!r} is free, and has {receipt}")
                break
