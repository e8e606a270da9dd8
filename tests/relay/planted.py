"""Targets that break one rule of relays each, around any other target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

import fmq
from fmq.relay import Relay, RelayBatch, RelayPlace, RelayTakenOver, RelayTarget
from fmq.relay.source import NO_TOPIC
from fmq.testing import CrashDisk
from fmq.testing.relay import BATCH, TOPICS, Crash, check_target


class Planted:
    """A target as it should be."""

    atomic = True

    def __init__(self, target: RelayTarget) -> None:
        self.target = target

    def claim(self) -> RelayPlace | None:
        return self.target.claim()

    def deliver(self, batch: RelayBatch) -> None:
        self.target.deliver(batch)

    def status(self) -> RelayPlace | None:
        return self.target.status()

    def close(self) -> None:
        self.target.close()


class LetsOlderIn(Planted):
    """It claims the target again, instead of ending."""

    def deliver(self, batch: RelayBatch) -> None:
        try:
            super().deliver(batch)
        except RelayTakenOver:
            super().claim()
            super().deliver(batch)


class KeepsPlaceLater(Planted):
    """It stores the place of a batch with the next one."""

    last: RelayPlace | None = None

    def deliver(self, batch: RelayBatch) -> None:
        start = RelayPlace(batch.place.store, 0, NO_TOPIC, 0, 0, 0)
        super().deliver(batch._replace(place=self.last or start))
        self.last = batch.place


class TrustsItself(Planted):
    """After a doubt it goes on where it was, without asking the target."""

    has_claimed = False
    place: RelayPlace | None = None

    def claim(self) -> RelayPlace | None:
        place = super().claim()
        if not self.has_claimed:
            self.has_claimed, self.place = True, place
        return self.place


class CutsTransactions(Planted):
    """It ends a batch after so many messages, also amid a transaction, and dies before the rest."""

    place: RelayPlace | None = None

    def claim(self) -> RelayPlace | None:
        self.place = super().claim()
        return self.place

    def deliver(self, batch: RelayBatch) -> None:
        assert len(batch.messages) > BATCH, "the last transaction of the batch makes it longer"
        before = self.place or RelayPlace(batch.place.store, 0, NO_TOPIC, 0, 0, 0)
        super().deliver(RelayBatch(batch.messages[:BATCH], before))
        raise Crash


class AsksTooEarly(Planted):
    """It asks for the place, and then shuts out the others."""

    def __init__(self, target: RelayTarget, between: Callable[[], object]) -> None:
        super().__init__(target)
        self.between = between

    def claim(self) -> RelayPlace | None:
        place = super().status()
        self.between()
        super().claim()
        return place


CAUGHT_BY = {
    LetsOlderIn: "a relay that comes back",
    KeepsPlaceLater: "a crash after a delivery",
    TrustsItself: "a lost answer",
    CutsTransactions: "a crash after a delivery",
}
SAYS: dict[type[Planted], str] = {CutsTransactions: "shown by halves"}


def check_planted(system: Callable[[], Any], kind: type[Planted]) -> None:
    """Check that `check_target` fails for a wrong target of `system`."""

    class Wrong:
        def __init__(self) -> None:
            self.system = system()

        def target(self) -> Planted:
            return kind(self.system.target())

        def shown(self) -> Any:
            return self.system.shown()

    with pytest.raises(AssertionError, match=SAYS.get(kind, ".")):
        check_target(Wrong, only=CAUGHT_BY[kind])


def check_asking_too_early(system: Callable[[], Any]) -> None:
    """Check that a reader sees messages twice if a relay asks first: another one that has not ended
    copies between the question and the claim.
    """
    made = system()
    targets = [made.target(), made.target()]

    def copy(target: RelayTarget) -> None:
        Relay(engine, target, topics=TOPICS, name="n").run(once=True)

    with fmq.open("data", disk=CrashDisk()) as engine:
        for topic in TOPICS:
            engine.send(topic, b"1")
        copy(targets[0])
        engine.send_many(TOPICS[0], [b"1"] * 3)
        copy(AsksTooEarly(targets[1], lambda: copy(targets[0])))
    for each in targets:
        each.close()
    shown = [*made.shown()]
    assert len(shown) > len({*shown})


def check_sharing_a_place(system: Callable[[], Any]) -> None:
    """Check that messages are missing if two relays of different names keep one place in the
    target: the second one begins where the first one is.
    """
    made = system()
    with fmq.open("data", disk=CrashDisk()) as engine:
        for topic in TOPICS:
            engine.send_many(topic, [b"1"] * 3)
        for topic in reversed(TOPICS):
            with closing(made.target()) as target:
                Relay(engine, target, topics=topic, name=f"of-{topic}").run(once=True)
    assert {topic for topic, _, _ in made.shown()} == {TOPICS[1]}
