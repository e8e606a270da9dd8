"""Targets that break one rule of relays each, around any other target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fmq
from fmq.relay import Relay, RelayBatch, RelayPlace, RelayTakenOver, RelayTarget
from fmq.relay.source import NO_TOPIC
from fmq.testing import CrashDisk
from fmq.testing.relay import TOPICS, check_target


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
}


def check_planted(system: Callable[[], Any], kind: type[Planted]) -> None:
    """Check that `check_target` fails for a wrong target of `system`."""

    class Wrong:
        def __init__(self) -> None:
            self.system = system()

        def target(self) -> Planted:
            return kind(self.system.target())

        def shown(self) -> Any:
            return self.system.shown()

    with pytest.raises(AssertionError):
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
            engine.send(topic, b"x")
        copy(targets[0])
        engine.send_many(TOPICS[0], [b"x"] * 3)
        copy(AsksTooEarly(targets[1], lambda: copy(targets[0])))
    for each in targets:
        each.close()
    shown = [*made.shown()]
    assert len(shown) > len({*shown})
