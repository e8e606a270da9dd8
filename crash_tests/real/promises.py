"""The promises of a store of many lives, and the check whether what it shows keeps them.

Several threads were at work when the crash came, so each may have had one unit under way, which
may go either way but only as a whole; all that was said to be done is promised, at the place
that was said. What a recovery shows is promised from then on. This module knows nothing of fmq.

A call that overlaps a cut may return though nothing of it is on the disk: ext4 and xfs do that
for synced writes that run while they abort their journal. With the power gone nobody would be left
to be told, so a call that returned after a cut began is in doubt, and what a life shows then is
compared and not promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace

from crash_tests.oracle import OUTCOMES, Fate, Lane, Place, Seen, Violation
from crash_tests.real.plan import CONSUMER, DONE, WAYS, Unit, transforming, units
from crash_tests.real.standing import Standing

Told = tuple[Lane, int, int, int]  # lane, first offset, count, position


@dataclass(frozen=True, slots=True)
class Kept:
    """The options of retention. Without it nothing is dropped."""

    retain_bytes: int | None = None
    segment_bytes: int = 0


class Promises:
    """All promises of one store so far."""

    def __init__(self, seed: int, kept: Kept) -> None:
        self.seed = seed
        self.kept = kept
        self.standings: dict[str, Standing] = {}
        self.owner: dict[bytes, tuple[str, Lane]] = {}
        self.places: dict[Place, bytes] = {}  # the body at each place; it never changes
        self.positions: dict[Place, int] = {}
        self.first: dict[Lane, int] = {}
        self.dropped: set[bytes] = set()  # the bodies that retention has dropped
        self.acked: set[Place] = set()
        self.reach = 0
        self.done = 0  # how many calls have returned
        self.in_doubt = False  # True: the call that is noted now returned after a cut had begun
        self._threads: dict[int, Iterator[Unit]] = {}
        self._later: dict[int, list[tuple[Standing, list[Told]]]] = {}

    def copy(self) -> Promises:
        """Return a copy of the promises, between two lives."""
        twin = copy(self)
        for name in ("owner", "places", "positions", "first", "dropped", "acked"):
            setattr(twin, name, getattr(self, name).copy())
        twin.standings = {
            name: replace(each, maybe=each.maybe.copy()) for name, each in self.standings.items()
        }
        return twin

    # --- told as a life goes on -----------------------------------------------------------------

    def begin(self, life: int, threads: int) -> None:
        """Note that a process begins. Each of its threads may be at its first unit."""
        self._later = {thread: [] for thread in range(threads)}
        self._threads = {thread: units(self.seed, life, thread) for thread in range(threads)}
        for thread in range(threads):
            self._next(thread)

    def _next(self, thread: int) -> None:
        self._try(Standing(next(self._threads[thread])))

    def _try(self, standing: Standing) -> None:
        unit = standing.unit
        for lane, bodies in unit.bodies.items():
            self.owner.update((body, (unit.name, lane)) for body in bodies)
        standing.aim(WAYS[unit.kind][1])
        self.standings[unit.name] = standing

    def acks(self, name: str, kind: str, places: Iterable[Place]) -> None:
        """Note that the consumer begins a unit that acks these messages."""
        self._try(Standing(transforming(self.seed, name, kind), acks=frozenset(places)))

    def did(self, name: str, told: list[Told]) -> None:
        """Note that the unit's running call returned, with these receipts. Its thread goes on."""
        standing = self.standings[name]
        way, thread = WAYS[standing.unit.kind], name.split(".")[1]
        reached = standing.goal
        assert reached is not None, f"{name} was not under way"
        if standing.unit.kind == "send later":
            self._later[int(thread)].append((standing, told))
        else:
            self._promise(standing, told)
            if thread != CONSUMER:
                self._promise_later(int(thread))
        if reached is not way[-1]:
            standing.aim(way[way.index(reached) + 1])
        elif thread != CONSUMER:
            self._next(int(thread))

    def _promise_later(self, thread: int) -> None:
        """Promise what this thread had sent before: a later call of it has waited for its sync."""
        for standing, told in self._later[thread]:
            self._promise(standing, told)
        self._later[thread].clear()

    def _promise(self, standing: Standing, told: list[Told]) -> None:
        if self.in_doubt or standing.goal is None:
            return
        self.done += 1
        standing.settle(standing.goal)
        if standing.fate is Fate.VISIBLE:
            self.acked |= standing.acks
        for lane, offset, count, position in told:
            bodies = standing.unit.bodies[lane]
            if len(bodies) != count:
                raise Violation("I2", f"{standing.unit.name}: {count} of {len(bodies)} in {lane}")
            for i, body in enumerate(bodies, offset):
                self._stays((*lane, i), body, position)

    def _stays(self, place: Place, body: bytes, position: int | None = None) -> None:
        if self.places.setdefault(place, body) != body:
            raise Violation("I6", f"{place} is {body[:20]!r}, and was {self.places[place][:20]!r}")
        if position is not None:
            self.positions[place] = position
            self.reach = max(self.reach, position)

    def deciding(self, name: str, fate: Fate) -> None:
        self.standings[name].aim(fate)

    def decided(self, name: str, told: list[Told]) -> None:
        self._promise(self.standings[name], told)

    def shown(self, place: Place, body: bytes) -> None:
        """Note that a reader was shown a message: the message and its unit are durable."""
        standing = self._standing(body, place[:2])
        if standing.goal is Fate.VISIBLE:
            # The call that shows it may still have to return.
            standing.fate = Fate.VISIBLE
            standing.maybe.clear()
            self.acked |= standing.acks
        self._stays(place, body)

    def _standing(self, body: bytes, lane: Lane) -> Standing:
        name, belongs = self.owner.get(body, ("", lane))
        if not name:
            raise Violation("I5", f"{lane} has {body[:20]!r}, which nobody ever sent")
        if belongs != lane:
            raise Violation("I5", f"{body[:20]!r} of {belongs} is in {lane}")
        return self.standings[name]

    # --- asked ----------------------------------------------------------------------------------

    def undecided(self) -> list[str]:
        return [n for n, each in self.standings.items() if each.fate is Fate.UNDECIDED]

    def transactions(self, count: int) -> list[str]:
        """Return the names of all transactions without an end, and of the last `count` others."""
        known = [name for name, each in self.standings.items() if each.unit.is_tx]
        running = [name for name in known if self.standings[name].maybe]
        return list(dict.fromkeys(running + self.undecided() + known[-count:]))

    # --- after a crash --------------------------------------------------------------------------

    def check(self, seen: Seen) -> None:
        """Raise Violation unless `seen` keeps every promise. What was seen is promised from then
        on, unless it is in doubt.
        """
        if self.in_doubt:
            twin = self.copy()
            twin.in_doubt = False
            twin.check(seen)
            return
        self._check_bodies(seen)
        self._check_floors(seen)
        self._settle(seen)
        self._check_units(seen)
        self._check_places(seen)
        self._check_group(seen)

    def _check_bodies(self, seen: Seen) -> None:
        known: set[bytes] = set()
        for lane, (_, bodies) in seen.lanes.items():
            for body in bodies:
                self._standing(body, lane)
                if body in known:
                    raise Violation("I5", f"{body[:20]!r} is there twice")
                known.add(body)

    def _check_floors(self, seen: Seen) -> None:
        """Check that retention has dropped only the oldest messages of each lane, and only those
        that it may drop.
        """
        under_way = (each.acks for each in self.standings.values() if Fate.VISIBLE in each.maybe)
        acked = self.acked.union(*under_way)
        read = {place[:2] for place in self.acked}  # a group begins in a queue with its first ack
        for lane, (first, _) in seen.lanes.items():
            if first < self.first.get(lane, 0):
                raise Violation("I6", f"{lane} begins at {first}, after {self.first[lane]}")
            for offset in range(self.first.get(lane, 0), first):
                place = (*lane, offset)
                body = self._drop(place)
                if lane in read and place not in acked:
                    raise Violation("I7", f"{body[:20]!r} at {place} was dropped unread")
            self.first[lane] = first

    def _drop(self, place: Place) -> bytes:
        body = self.places.pop(place, b"")
        position = self.positions.pop(place, 0)
        self.dropped.add(body)
        if self.kept.retain_bytes is None:
            raise Violation("I1", f"{body[:20]!r} at {place} is gone")
        if position > self.reach - self.kept.retain_bytes + 2 * self.kept.segment_bytes:
            raise Violation("I1", f"{body[:20]!r} at {place} was dropped too early")
        return body

    def _settle(self, seen: Seen) -> None:
        """Note for every unit that was under way how it has ended. That is final."""
        visible = {body for _, bodies in seen.lanes.values() for body in bodies}
        for name, standing in self.standings.items():
            if not standing.maybe:
                continue
            fate = standing.observed(visible, seen)
            if fate not in {standing.fate, *standing.maybe}:
                allowed = " or ".join((standing.fate, *standing.maybe))
                raise Violation("I4", f"{name} is {fate}, and must be {allowed}")
            standing.settle(fate)
            if fate is Fate.VISIBLE:
                self.acked |= standing.acks

    def _check_units(self, seen: Seen) -> None:
        for lane, (_, bodies) in seen.lanes.items():
            for body in bodies:
                standing = self._standing(body, lane)
                if standing.fate is not Fate.VISIBLE:
                    raise Violation("I3", f"{standing.unit.name} is {standing.fate}, and shown")
        sealed = {name: self.standings[name].unit.messages for name in self.undecided()}
        if seen.undecided != sealed:
            raise Violation("I4", f"undecided are {seen.undecided}, and must be {sealed}")
        for name, outcome in seen.outcomes.items():
            fate = self.standings[name].fate
            dropped = outcome == "unknown" and self.kept.retain_bytes is not None
            if OUTCOMES[outcome] is not fate and not (dropped and fate is not Fate.UNDECIDED):
                raise Violation("I4", f"the outcome of {name} is {outcome!r}, and it was {fate}")

    def _check_places(self, seen: Seen) -> None:
        for (topic, queue, offset), body in self.places.items():
            first, bodies = seen.lanes.get((topic, queue), (0, []))
            if not 0 <= offset - first < len(bodies):
                raise Violation("I1", f"{body[:20]!r}, {topic}/{queue} {offset}, is lost")
        for lane, (first, bodies) in seen.lanes.items():
            for offset, body in enumerate(bodies, first):
                self._stays((*lane, offset), body)
        visible = {body for _, bodies in seen.lanes.values() for body in bodies}
        for name, standing in self.standings.items():
            if standing.fate is Fate.VISIBLE and not self._is_there(standing.unit, visible):
                raise Violation("I1", f"{name} was visible, and is lost")

    def _is_there(self, unit: Unit, visible: set[bytes]) -> bool:
        """Return whether all of the unit is there. Raise Violation if only a part is, or if it is
        missing without retention.
        """
        bodies = {body for each in unit.bodies.values() for body in each}
        return bodies <= visible or bodies <= self.dropped

    def _check_group(self, seen: Seen) -> None:
        """Check that acked messages stay acked, that undecided transactions hold what they ack, and
        that all others are delivered.
        """
        (delivered,) = seen.delivered.values()
        there = {
            (topic, queue, first + i)
            for (topic, queue), (first, bodies) in seen.lanes.items()
            for i in range(len(bodies))
            if (topic, queue) != DONE
        }
        held: set[Place] = set()
        for name in self.undecided():
            held |= self.standings[name].acks
        if again := delivered & (self.acked | held):
            raise Violation("I7", f"comes again though acked or held: {sorted(again)[:5]}")
        if missing := there - self.acked - held - delivered:
            raise Violation("I7", f"not acked, and does not come: {sorted(missing)[:5]}")
