"""The promises to several threads, and an order of their calls that explains what is there.

The calls of one thread follow each other; those of several overlap, and the engine may put them
in any order, as long as a call that had returned stands before one that began later, and all
queues show the same order. So while the threads run this oracle notes who was before whom, and
where each message is; when something was read it looks for one order that fits, and becomes an
oracle like that of a single thread, which knows the rest.
"""

from __future__ import annotations

from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from threading import get_ident

from crash_tests.oracle import Fate, Lane, Oracle, Place, Rules, Seen, Unit, Violation
from crash_tests.verdict import observed


class ThreadsOracle(Oracle):
    """Everything promised so far to threads that ran at once."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.ordered = False
        # Unit -> the units that had returned when it began.
        self._before: dict[str, frozenset[str]] = {}
        # Unit -> the fate that each thread tries to give it.
        self._tries: dict[str, dict[int, Fate]] = {}
        # The same for the try of one thread.
        self._behind: dict[tuple[str, int], frozenset[str]] = {}
        # Thread -> the units that had returned when its step began.
        self._since: dict[int, frozenset[str]] = {}
        self._places: dict[Place, bytes] = {}
        self._at: dict[str, int] = {}  # unit -> its position, if a receipt has one

    def copy(self) -> ThreadsOracle:
        twin = ThreadsOracle(self.rules)
        twin.__dict__.update(
            {
                name: each.copy() if isinstance(each, dict | list) else each
                for name, each in self.__dict__.items()
            }
        )
        twin._tries = {name: each.copy() for name, each in self._tries.items()}
        return twin

    def promises(self) -> int:
        order = tuple(self._before.items()), tuple(self._places.items())
        return hash((super().promises(), self.ordered, order, tuple(self._at.items())))

    # --- told by the threads as they run --------------------------------------------------------

    def begin_step(self) -> None:
        """Note that the calling thread begins a step."""
        self._since[get_ident()] = self._returned()

    def _returned(self) -> frozenset[str]:
        return frozenset(name for name, unit in self.units.items() if unit.returned)

    def trying(self, unit: Unit) -> None:
        super().trying(unit)
        self._tried(unit.name)

    def trying_prepare(self, unit: Unit) -> None:
        super().trying_prepare(unit)
        self._tried(unit.name)

    def trying_decision(self, name: str, decision: str) -> None:
        super().trying_decision(name, decision)
        # A call begun after the prepare may have begun before this decision: it proves nothing.
        self._before = {other: names - {name} for other, names in self._before.items()}
        self._behind = {each: names - {name} for each, names in self._behind.items()}
        self._since = {thread: names - {name} for thread, names in self._since.items()}
        self._tried(name)

    def _tried(self, name: str) -> None:
        unit, tries = self.units[name], self._tries.setdefault(name, {})
        before = self._returned() - {name}
        if any(goal is not Fate.UNDECIDED for goal in tries.values()):
            before &= self._before[name]  # a rival decision has begun before this one
        self._before[name] = before
        tries[get_ident()] = unit.goal
        self._behind[name, get_ident()] = before

    def returned(self, name: str, *, durable: bool = True) -> None:
        if self.ordered:
            super().returned(name, durable=durable)
            return
        goal, unit = self._tries[name][get_ident()], self.units[name]
        vouched = self._behind[name, get_ident()]
        if goal is Fate.UNDECIDED and unit.goal is not goal:
            # It is prepared, and another thread is deciding it, or has decided it.
            self.units[name] = replace(unit, fates=unit.fates - {Fate.ABSENT})
        elif goal not in unit.fates:
            raise Violation("I4", f"{name} was told to be {goal}, and is {self.fate(name)}")
        else:
            self.units[name] = replace(unit, returned=True, goal=goal)
            vouched |= {name}
        if durable:
            self._settle(vouched)

    def synced(self) -> None:
        """Note that everything that returned before the calling thread's step is durable now."""
        if self.ordered:
            super().synced()
        else:
            self._settle(self._since.get(get_ident(), self._returned()))

    def _settle(self, names: frozenset[str] | set[str]) -> None:
        for name in names:
            unit = self.units[name]
            if unit.returned and len(unit.fates) > 1:
                self.units[name] = replace(unit, fates=frozenset({unit.goal}))

    def refused(self, name: str) -> None:
        if self.ordered:
            super().refused(name)
            return
        goal = self._tries[name].pop(get_ident())
        unit = self.units[name]
        if goal not in self._tries[name].values() and unit.fates != {goal}:
            self.units[name] = replace(unit, fates=unit.fates - {goal})

    def decided_otherwise(self, name: str, fate: Fate) -> None:
        """Note that the calling thread's decision was refused, because the opposite one is
        durable.
        """
        self._tries[name].pop(get_ident())
        unit = self.units[name]
        if fate not in unit.fates:
            raise Violation("I4", f"{name} is said to be {fate}, and is {self.fate(name)}")
        self.units[name] = replace(unit, fates=frozenset({fate}), goal=fate, returned=True)

    def told(self, name: str, lane: Lane, offset: int, position: int) -> None:
        if self.ordered:
            super().told(name, lane, offset, position)
            return
        self._stands(name, lane, offset, position)
        self._at[name] = max(position, self._at.get(name, 0))
        for i, body in enumerate(self.units[name].bodies[lane], offset):
            self._stays((*lane, i), body)

    def shown(
        self, lane: Lane, offset: int, body: bytes, *, to: str = "", is_durable: bool = False
    ) -> None:
        if self.ordered:
            super().shown(lane, offset, body, to=to, is_durable=is_durable)
            return
        self.read_from[to, lane] = min(offset, self.read_from.get((to, lane), offset))
        self._stays((*lane, offset), body)
        name, belongs = self.owner.get(body, ("", lane))
        if not name or belongs != lane:
            raise Violation("I5", f"{lane} shows {body[:20]!r}, which is not of it")
        unit = self.units[name]
        if Fate.VISIBLE not in unit.fates:
            raise Violation("I3", f"{lane} shows {body[:20]!r} of {name}: {self.fate(name)}")
        if is_durable or self.rules.shown_is_durable:
            self.units[name] = replace(unit, fates=frozenset({Fate.VISIBLE}), goal=Fate.VISIBLE)
            self._settle(self._before[name])

    def _stays(self, place: Place, body: bytes) -> None:
        known = self._places.setdefault(place, body)
        if known != body:
            raise Violation("I6", f"{place} is {body[:20]!r}, and was said to be {known[:20]!r}")

    # --- when something was read ----------------------------------------------------------------

    def arrange(self, seen: Seen) -> None:
        """Choose an order that explains what was seen; from now on that is the order."""
        if self.ordered:
            return
        self._check_places(seen)
        visible = {body for _, bodies in seen.lanes.values() for body in bodies}
        there: set[str] = set()
        for name, unit in self.units.items():
            fate = observed(self, unit, visible, seen)
            if fate is not Fate.UNDECIDED and fate in self._tries[name].values():
                self.units[name] = replace(unit, goal=fate)  # of rivals, the one that won
            if fate is self.units[name].goal:
                there.add(name)
        for tick, name in enumerate(self._order(there, seen), 1):
            self.units[name] = replace(self.units[name], tried_at=tick)
        self._tick = len(self.units)
        ticks = {name: unit.tried_at for name, unit in self.units.items()}
        published = (name for name, unit in self.units.items() if Fate.VISIBLE in unit.fates)
        self.published = sorted(published, key=ticks.__getitem__)
        self.ordered = True

    def _check_places(self, seen: Seen) -> None:
        """Check that each message that is there has the place in its receipt."""
        for (topic, queue, offset), body in self._places.items():
            first, bodies = seen.lanes.get((topic, queue), (0, []))
            if body in bodies and bodies.index(body) + first != offset:
                at = bodies.index(body) + first
                raise Violation("I6", f"{body[:20]!r} is at {at}, and was said to be at {offset}")

    def _order(self, there: set[str], seen: Seen) -> list[str]:
        """Return all units, those that exist first, as far as their known order allows."""
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for name in self.units:
            sorter.add(name, *self._before[name])
        for chain in self._chains(seen):
            for earlier, later in pairwise(chain):
                sorter.add(later, earlier)
        try:
            sorter.prepare()
        except CycleError as error:
            way = " before ".join(reversed(error.args[1]))
            raise Violation("I6", f"no order of the calls explains it: {way}") from None
        order: list[str] = []
        ready: list[str] = []
        while sorter.is_active():
            ready += sorter.get_ready()
            ready.sort(key=lambda name: (name not in there, self.units[name].tried_at))
            order.append(ready.pop(0))
            sorter.done(order[-1])
        return order

    def _chains(self, seen: Seen) -> list[list[str]]:
        """Return the orders that were seen: of each queue, and of the positions in receipts."""
        chains = []
        for _, bodies in seen.lanes.values():
            names = (self.owner[body][0] for body in bodies if body in self.owner)
            chains.append(list(dict.fromkeys(names)))
        chains.append(sorted(self._at, key=self._at.__getitem__))
        return chains
