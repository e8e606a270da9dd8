"""Which fates one unit may have while a call about it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from crash_tests.oracle import OUTCOMES, Fate, Place, Seen, Violation
from crash_tests.real.plan import Unit


@dataclass(slots=True)
class Standing:
    """The fates of a unit: the promised one, those that running calls may give it, and the one that
    the call under way aims at.
    """

    unit: Unit
    fate: Fate = Fate.ABSENT
    maybe: set[Fate] = field(default_factory=set)
    goal: Fate | None = None
    acks: frozenset[Place] = frozenset()

    def aim(self, goal: Fate) -> None:
        self.goal = goal
        self.maybe.add(goal)

    def settle(self, fate: Fate) -> None:
        self.fate, self.goal = fate, None
        self.maybe.clear()

    def observed(self, visible: set[bytes], seen: Seen) -> Fate:
        """Return the fate that a recovery gave the unit. Raises Violation if only a part of it is
        there.
        """
        unit = self.unit
        if unit.kind == "ack":
            (delivered,) = seen.delivered.values()
            return Fate.ABSENT if self.acks & delivered else Fate.VISIBLE
        there = sum(body in visible for bodies in unit.bodies.values() for body in bodies)
        if there not in (0, unit.messages):
            raise Violation("I2", f"{there} of {unit.messages} messages of {unit.name}")
        if there:
            return Fate.VISIBLE
        return OUTCOMES[seen.outcomes[unit.name]] if unit.is_tx else Fate.ABSENT
