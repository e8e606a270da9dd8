"""Checks that a target keeps the rules that relays rely on.

    def test_my_target():
        fmq.testing.relay.check_target(MySystem)

`MySystem()` is a new and empty system. Its method `target` returns a new RelayTarget of it each
time, and its method `shown` returns the topic, queue and offset of each message that a reader of
the system sees, in order. Relays crash, overlap, come back after a pause, and do not get an answer.
After each of that the system must show each message once and in order. A target that is not
`atomic` may show one again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import fmq
from fmq.relay import Relay, RelayBatch, RelayPlace, RelayTakenOver, RelayTarget, Unsure
from fmq.testing.crash_disk import CrashDisk

TOPICS, TRANSACTIONS, MESSAGES = ("a", "b"), 8, 6
BATCH = 10  # messages; because transactions are whole, each batch has 12
MessageShown = tuple[str, int, int]
"""Topic, queue and offset."""


class System(Protocol):
    """A system that messages are copied into."""

    def target(self) -> RelayTarget: ...

    def shown(self) -> Iterable[MessageShown]: ...


class Crash(BaseException):
    """Raised where a relay dies."""


class Hooked:
    """A target that calls `hook` around each of its calls."""

    def __init__(self, target: RelayTarget, hook: Callable[[str], None]) -> None:
        self._target = target
        self._hook = hook
        self.atomic = target.atomic

    def claim(self) -> RelayPlace | None:
        self._hook("before claim")
        place = self._target.claim()
        self._hook("claimed")
        return place

    def deliver(self, batch: RelayBatch) -> None:
        self._hook("before deliver")
        self._target.deliver(batch)
        self._hook("delivered")

    def status(self) -> RelayPlace | None:
        return self._target.status()

    def close(self) -> None:
        self._target.close()


class Catcher(Hooked):
    """A target that keeps what it is given, instead of storing it, and lets the relay die."""

    caught: RelayBatch

    def deliver(self, batch: RelayBatch) -> None:
        self.caught = batch
        raise Crash


class RelayWorld:
    """An engine with transactions over two topics, and a new system."""

    def __init__(self, system: Callable[[], System]) -> None:
        self.engine = fmq.open("data", disk=CrashDisk())
        self.system = system()
        self.targets: list[RelayTarget] = []
        for _ in range(TRANSACTIONS):
            with self.engine.transaction() as tx:
                for number in range(MESSAGES):
                    tx.send(TOPICS[number % 2], b"%d" % number)
        self.sent: list[MessageShown] = [
            (each.topic or "", each.queue or 0, each.offset or 0) for each in self.all()
        ]

    def target(self) -> RelayTarget:
        """Return a new target of the system. All are closed at the end."""
        self.targets.append(self.system.target())
        return self.targets[-1]

    def close(self) -> None:
        for each in self.targets:
            each.close()
        self.engine.close()

    def all(self) -> list[fmq.Message]:
        return self.engine.tail(limit=10_000).messages

    def check_whole(self) -> None:
        """Raise AssertionError if a part of a transaction is shown."""
        shown, parts = {*self.system.shown()}, dict[str, list[bool]]()
        for place, message in zip(self.sent, self.all(), strict=True):
            assert message.origin is not None, "it was read"
            parts.setdefault(message.origin.tx_id or "", []).append(place in shown)
        halves = [tx_id for tx_id, there in parts.items() if len({*there}) > 1]
        assert not halves, f"transactions are shown by halves: {halves}"

    def relay(self, hook: Callable[[str], None] = lambda _: None) -> str:
        """Run a relay until all is copied. Return how it ended."""
        target = Hooked(self.target(), hook)
        relay = Relay(self.engine, target, topics=TOPICS, name="n", batch=BATCH)
        try:
            relay.run(once=True)
        except Crash:
            return "crashed"  # the target of the relay that crashed stays as it is
        except RelayTakenOver:
            return "taken over"
        relay.close()
        return "done"

    def batch(self, target: RelayTarget) -> RelayBatch:
        """Return the batch that a relay with this target would deliver next."""
        catcher = Catcher(target, lambda _: None)
        with suppress(Crash):
            Relay(self.engine, catcher, topics=TOPICS, name="n", batch=BATCH).run(once=True)
        return catcher.caught


def crash_at(point: str, times: int = 1) -> Callable[[RelayWorld], None]:
    """Return the case in which a relay dies at a point, and another one goes on."""

    def case(world: RelayWorld) -> None:
        left = [times]

        def hook(name: str) -> None:
            if name == point:
                left[0] -= 1
                if not left[0]:
                    raise Crash

        assert world.relay(hook) == "crashed"
        world.check_whole()
        assert world.relay() == "done"

    return case


def overlap(world: RelayWorld) -> None:
    """Let the old relay deliver once more before the new one has claimed, and once more after."""
    old = world.target()
    old.deliver(world.batch(old))
    late = world.batch(old)

    def hook(name: str) -> None:
        if name == "claimed":
            refused_or_unsure(old, late)

    assert world.relay(hook) == "done"


def zombie(world: RelayWorld) -> None:
    """Stop a relay that has a batch in hand. Let it go on when another one has ended."""
    old = world.target()
    late = world.batch(old)
    assert world.relay() == "done"
    refused_or_unsure(old, late)


def refused_or_unsure(target: RelayTarget, batch: RelayBatch) -> None:
    """Check that a target that another relay has claimed does not deliver."""
    try:
        target.deliver(batch)
    except (RelayTakenOver, Unsure):
        return
    assert not target.atomic, "a relay was let in that another one had shut out"


def doubt(world: RelayWorld) -> None:
    """Lose the answer to a batch that was stored."""
    left = [1]

    def hook(name: str) -> None:
        if name == "delivered" and left[0]:
            left[0] = 0
            raise Unsure("the answer is lost")

    assert world.relay(hook) == "done"


def kept(world: RelayWorld) -> None:
    """Check that a relay goes on at the place of the last batch, and that `status` returns this
    place.
    """
    target = world.target()
    assert target.status() is None
    assert world.relay() == "done"
    last = world.all()[-1]
    place = world.target().status()
    assert place is not None
    assert (place.topic, place.queue, place.offset) == (last.topic, last.queue, last.offset)
    assert world.target().claim() == place
    assert world.relay() == "done"


CASES: dict[str, Callable[[RelayWorld], None]] = {
    "all is copied": lambda world: None,
    "the place is kept": kept,
    "a crash before the claim": crash_at("before claim"),
    "a crash after the claim": crash_at("claimed"),
    "a crash before a delivery": crash_at("before deliver", 2),
    "a crash after a delivery": crash_at("delivered", 2),
    "a relay that overlaps": overlap,
    "a relay that comes back": zombie,
    "a lost answer": doubt,
}
"""What each relay meets, by its name."""


def check_target(system: Callable[[], System], only: str | None = None) -> None:
    """Raise AssertionError if a target of `system` loses a message, cuts a transaction, changes the
    order, or, if it is atomic, shows a message twice. `only` is the name of one case.
    """
    for name, case in CASES.items():
        if only not in (None, name):
            continue
        world = RelayWorld(system)
        try:
            case(world)
            world.relay()
            shown, is_atomic = [*world.system.shown()], world.target().atomic
            found = shown if is_atomic else [*dict.fromkeys(shown)]
            for topic in TOPICS:
                sent = [each for each in world.sent if each[0] == topic]
                got = [each for each in found if each[0] == topic]
                assert got == sent, f"{name}: {topic} shows {got}, and {sent} were sent"
        finally:
            world.close()
