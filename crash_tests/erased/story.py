"""A story: messages of a few people are sent, prepared and consumed, and people are erased.

The model knows nothing of the engine. It has the state that the last call has left, and the one
that the running call leads to: a crash must leave one of the two. Of what is erased in it, no file
may have a byte, and of all else nothing may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq import Message
from fmq.errors import EraseRefused
from fmq.testing import CrashDisk, FakeClock

PEOPLE = "anna", "bert", "carl"
KINDS = (
    *("send", "send", "many", "commit", "prepare", "decide", "decide", "consume"),
    *("erase", "erase", "erase_one", "fill", "checkpoint", "reopen"),
)
STEPS = 24


class Sent(NamedTuple):
    """A message: its number, and whose it is."""

    number: int
    who: str

    @property
    def secret(self) -> bytes:
        """Return the bytes that only this message has."""
        return b"<%d of %s>" % (self.number, self.who.encode())


class State:
    """The durable state, as a user knows it."""

    def __init__(self) -> None:
        self.queue: list[Sent] = []
        self.erased: set[int] = set()  # numbers of messages, also of such as were rolled back
        self.dropped: list[Sent] = []  # rolled back
        self.undecided: dict[str, list[Sent]] = {}
        self.taken: set[int] = set()  # offsets that the group is done with


class Story:
    """An engine with what it does, and what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.options = fmq.Options(
            segment_bytes=16384,
            first_segment_bytes=4096,
            checkpoint_bytes=4096,
            relocate_bytes=6000,
            topic_queues={"t": 1},
            compress_bytes_min=64 if seed % 2 else None,
        )
        self.engine = self._opened(self.disk)
        self.now, self.running = State(), State()
        self.engine.create_topic("t")
        self.engine.create_group("g", "t")
        self.numbers = 0

    def _opened(self, disk: CrashDisk) -> fmq.Engine:
        return fmq.open(PATH, self.options, disk=disk, clock=self.clock, background=False)

    def tell(self) -> None:
        """Make all steps."""
        for kind in ["send", "many", *self.random.choices(KINDS, k=STEPS)]:
            getattr(self, f"_{kind}")()
        self.engine.close()

    def _call(self, call: Callable[[], Any], after: State) -> Any:
        self.running = after
        found = call()
        self.now = after
        return found

    def _new(self) -> Sent:
        self.numbers += 1
        return Sent(self.numbers, self.random.choice(PEOPLE))

    def _message(self, sent: Sent) -> Message:
        body = sent.secret + self.random.randbytes(self.random.choice((9, 40, 300)))
        return Message(body, sent.who, None, {"of": sent.secret.decode()})

    # --- the steps ------------------------------------------------------------------------------

    def _send(self) -> None:
        self._publish([self._new()])

    def _many(self) -> None:
        self._publish([self._new() for _ in range(4)])

    def _publish(self, batch: list[Sent]) -> None:
        after = deepcopy(self.now)
        after.queue += batch
        messages = [self._message(each) for each in batch]
        self._call(lambda: self.engine.send_many("t", messages), after)

    def _filled(self, batch: list[Sent], tx_id: str | None = None) -> fmq.Transaction:
        tx = self.engine.transaction(tx_id=tx_id)
        for each in batch:
            body, key, tag, headers = self._message(each)[:4]
            tx.send("t", body, key=key, tag=tag, headers=headers)
        return tx

    def _commit(self) -> None:
        batch = [self._new(), self._new()]
        after = deepcopy(self.now)
        after.queue += batch
        self._call(self._filled(batch).commit, after)

    def _prepare(self) -> None:
        batch = [self._new(), self._new()]
        tx_id = f"T{self.numbers}"
        after = deepcopy(self.now)
        after.undecided[tx_id] = batch
        self._call(self._filled(batch, tx_id).prepare, after)

    def _decide(self) -> None:
        if not self.now.undecided:
            return
        after = deepcopy(self.now)
        tx_id = self.random.choice(sorted(after.undecided))
        batch = after.undecided.pop(tx_id)
        if self.random.random() < 0.7:
            after.queue += batch
            self._call(lambda: self.engine.decide(tx_id, "commit"), after)
        else:
            after.dropped += batch
            self._call(lambda: self.engine.decide(tx_id, "rollback"), after)

    def _consume(self) -> None:
        consumer = self.engine.consumer("t", group="g")
        found = consumer.poll(limit=3, timeout=0)
        for each in found:
            after = deepcopy(self.now)
            offset = each.message.offset
            assert offset is not None
            if self.now.queue[offset].number in self.now.erased:
                raise Violation("I7", f"the group gets the erased message {offset}")
            after.taken.add(offset)
            self._call(each.ack, after)
        consumer.close()

    def _erase(self) -> None:
        who = self.random.choice(PEOPLE)
        after = deepcopy(self.now)
        known = after.queue + after.dropped
        after.erased |= {each.number for each in known if each.who == who}
        held = [each for batch in after.undecided.values() for each in batch]
        try:
            self._call(lambda: self.engine.erase("t", key=who), after)
        except EraseRefused:
            self.running = self.now
            if not any(each.who == who for each in held) and not self.options.compress_bytes_min:
                raise

    def _erase_one(self) -> None:
        offset = self.random.randrange(len(self.now.queue))
        after = deepcopy(self.now)
        after.erased.add(after.queue[offset].number)
        try:
            self._call(lambda: self.engine.erase("t", 0, offset), after)
        except EraseRefused:
            self.running = self.now
            if not self.options.compress_bytes_min:
                raise

    def _fill(self) -> None:
        bodies = [bytes(900)] * 3
        self._call(lambda: self.engine.send_many("others", bodies), self.now)

    def _checkpoint(self) -> None:
        self._call(self.engine.checkpoint, self.now)

    def _reopen(self) -> None:
        self._call(self.engine.close, self.now)
        self.engine = self._opened(self.disk)

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows one of the allowed states."""
        with self._opened(disk) as engine:
            faults = []
            for state in (self.running, self.now):
                fault = self._fault(engine, disk, state)
                if not fault:
                    break
                faults.append(fault)
            else:
                raise Violation("I1", f"neither state: {faults}")
        if full and (problems := fmq.check(PATH, disk=disk).problems):
            raise Violation("I10", f"{problems}")

    def _fault(self, engine: fmq.Engine, disk: CrashDisk, state: State) -> str:
        """Return how what there is differs from `state`; "" if it does not."""
        if {each.tx_id for each in engine.undecided()} != set(state.undecided):
            return "others are undecided"
        found = engine.read("t", limit=9999) if engine.queues("t") else []
        if len(found) != len(state.queue):
            return f"{len(found)} messages, not {len(state.queue)}"
        for message, sent in zip(found, state.queue, strict=True):
            is_erased = sent.number in state.erased
            if message.erased != is_erased:
                return f"{sent} is erased: {message.erased}, not {is_erased}"
            whole = (message.key, message.headers) == (sent.who, {"of": sent.secret.decode()})
            if not is_erased and not (whole and message.body.startswith(sent.secret)):
                return f"{sent} is {message}"
        for name, file in disk.files(PATH).items():
            content = file.content()
            for number in state.erased:
                if b"<%d of " % number in content:
                    return f"{name} has something of the erased message {number}"
        unread = {each.offset or 0 for each in engine.unread("g", "t", limit=9999)}
        wanted = {
            offset
            for offset, sent in enumerate(state.queue)
            if offset not in state.taken and sent.number not in state.erased
        }
        return "" if unread == wanted else f"the group lacks {sorted(unread ^ wanted)}"
