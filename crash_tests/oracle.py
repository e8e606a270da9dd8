"""The promises made by each moment. `verdict` compares them with what is read after a crash.

Every call of a workload is a unit: a send, a transaction, an ack. A unit has fates, the ends
that a crash at this moment may give it; a call that has returned leaves it one. After each
recovery the fate that was seen is the only one left: what was visible stays so, what was absent
never comes back, what was decided is never decided again.

This module knows nothing of fmq and imports nothing from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

Lane = tuple[str, int]  # topic, queue
Place = tuple[str, int, int]  # topic, queue, offset


INVARIANTS = {
    "I0": "a crash leaves a directory that opens, without any error",
    "I1": "what was acknowledged is there",
    "I2": "a transaction is there whole or not at all, and never before its commit was tried",
    "I3": "what was rolled back is never seen and never offered again",
    "I4": "what was prepared is undecided until it is decided, and an outcome never changes",
    "I5": "nothing is there that was not sent, nothing twice, nothing in another queue",
    "I6": "offsets are dense and stay; what was shown is durable; nothing overtakes",
    "I7": "acks are never forgotten, what is not acked comes again, unread messages are kept",
    "I8": "recovering twice gives what recovering once gives, to the byte",
    "I9": "once there is a checkpoint, a crash leaves one, so that recovery never reads all of the "
    "journal",
    "I10": "fmq.check finds nothing",
    "I11": "what recovery cuts is kept in quarantine/",
    "I12": "a segment that an export has pinned is not removed",
    "I13": "everything undecided that a recovery finds is asked about at once, and only once",
    "I14": "a table of the journal shows what an engine shows of it",
    "I15": "however threads meet, each of their calls ends",
    "I16": "room is reserved while something is undecided, and only then",
    "I17": "no deleted file is kept open, and no file by an engine that is closed",
    "I18": "a call and the chores behind it end after a bounded number of operations",
    "I19": "a follower beside a sound writer, or a recovery, sees no damage, and nothing else than "
    "they show",
    "I20": "a sealed segment of another future of the journal is refused",
    "I21": "a kill takes nothing from readers that one of them was shown before it",
    "I22": "an option that was stored for all stays as it is until it is changed",
    "I23": "after a kill, a last segment that lacks what was durable is refused",
}


class Violation(Exception):
    """A promise was broken; `invariant` says which, by its number in the README."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what


class Fate(StrEnum):
    """The possible fates of a unit."""

    ABSENT = "absent"
    UNDECIDED = "undecided"
    VISIBLE = "visible"  # of an ack: it is applied
    ROLLED_BACK = "rolled back"


OUTCOMES = {
    "unknown": Fate.ABSENT,
    "undecided": Fate.UNDECIDED,
    "committed": Fate.VISIBLE,
    "rolled back": Fate.ROLLED_BACK,
}


def tx_id_of(name: str) -> str:
    """Return the id of the transaction `name`: `t1#2` is the second one that has the id `t1`."""
    return name.partition("#")[0]


def sets_a_mark(name: str) -> bool:
    """Return whether the transaction `name` also sets a mark of its own name."""
    return name.startswith("m")


@dataclass(frozen=True, slots=True)
class Unit:
    """One call, or one transaction: it survives as a whole or not at all."""

    name: str
    bodies: dict[Lane, list[bytes]] = field(default_factory=dict)
    acks: tuple[tuple[str, Place], ...] = ()  # the group, and the message that it has acked
    is_tx: bool = False
    # The option that the call stores; a value of None resets it.
    option: tuple[str, Any] | None = None
    fates: frozenset[Fate] = frozenset({Fate.ABSENT})
    goal: Fate = Fate.VISIBLE  # its fate if the last call about it has taken effect
    returned: bool = False
    tried_at: int = 0
    # A number that differs for units of one name with other messages, acks or receipts.
    content: int = 0
    positions: dict[Lane, int] = field(default_factory=dict)
    # The offset of its first message in each lane, as the receipts say.
    offsets: dict[Lane, int] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return sum(map(len, self.bodies.values()))


@dataclass(frozen=True, slots=True)
class Seen:
    """What an engine shows through its public calls."""

    lanes: dict[Lane, tuple[int, list[bytes]]]  # first offset, bodies from there on
    undecided: dict[str, int]  # tx_id -> how many messages it has
    outcomes: dict[str, str]
    delivered: dict[str, set[Place]]  # what a group gets if it asks for everything
    # The marks that are set, of the transactions asked about.
    marks: set[str] = field(default_factory=set)
    acking: set[str] = field(default_factory=set)  # further groups that have acked something
    # The options that the directory has stored.
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a workload's options change the promises."""

    retain_bytes: int | None = None
    only_acked: bool = False  # True if retention drops only what was acked
    segment_bytes: int = 0
    shown_is_durable: bool = True  # True unless the mode is sync="never"
    groups: dict[str, list[str]] = field(default_factory=dict)  # the topics of each group
    outcome_window_seconds: float | None = None


class Oracle:
    """Everything promised so far."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.units: dict[str, Unit] = {}
        self.published: list[str] = []  # the units, in the order in which they were sent
        self.first: dict[Lane, int] = {}  # offsets that retention was seen to have dropped to
        self.reach = 0  # the largest position heard of
        self.read_from: dict[tuple[str, Lane], int] = {}  # the first offset that a group ever got
        self.owner: dict[bytes, tuple[str, Lane]] = {}
        self.ages: dict[str, float] = {}  # seconds since a transaction was decided
        self.joint: list[tuple[str, ...]] = []  # transactions that are decided together
        self._tick = 0

    def copy(self) -> Oracle:
        twin = Oracle(self.rules)
        twin.units, twin.published = self.units.copy(), self.published.copy()
        twin.first, twin.reach = self.first.copy(), self.reach
        twin.read_from = self.read_from.copy()
        twin.owner, twin._tick = self.owner.copy(), self._tick
        twin.ages, twin.joint = self.ages.copy(), self.joint.copy()
        return twin

    def promises(self) -> int:
        """Return a value that differs between moments with different promises, in one process."""
        units = tuple((u.name, u.content, u.fates, u.goal, u.returned) for u in self.units.values())
        seen = tuple(self.first.items()), tuple(self.read_from.items())
        return hash((units, tuple(self.published), seen, self.reach, tuple(self.joint)))

    # --- told by the workload as it runs --------------------------------------------------------

    def time_passes(self, seconds: float) -> None:
        """Age the transactions that are decided. The engine may forget an outcome by its age."""
        for name in self.units:
            if self.fate(name) in (Fate.VISIBLE, Fate.ROLLED_BACK):
                self.ages[name] = self.ages.get(name, 0.0) + seconds

    def is_past_the_window(self, name: str) -> bool:
        window = self.rules.outcome_window_seconds
        return window is not None and self.ages.get(name, 0.0) > window

    def trying(self, unit: Unit) -> None:
        """Note that a call begins that publishes, or acks, at once."""
        self._add(unit, {Fate.ABSENT, Fate.VISIBLE}, Fate.VISIBLE)
        self.published.append(unit.name)

    def trying_prepare(self, unit: Unit) -> None:
        self._add(unit, {Fate.ABSENT, Fate.UNDECIDED}, Fate.UNDECIDED)

    def trying_decision(self, name: str, decision: str) -> None:
        # An earlier decision over many has not happened, or there was nothing to decide now.
        self.joint = [names for names in self.joint if name not in names]
        unit = self.units[name]
        goal = Fate.VISIBLE if decision == "commit" else Fate.ROLLED_BACK
        self._set(replace(unit, fates=unit.fates | {goal}, goal=goal, returned=False))
        if goal is Fate.VISIBLE and name not in self.published:
            self.published.append(name)

    def trying_joint_decision(self, names: list[str], decision: str) -> None:
        """Note that a call begins that decides many transactions together."""
        for name in names:
            self.trying_decision(name, decision)
        self.joint.append((*names,))

    def check_joint(self, visible: set[bytes]) -> None:
        """Raise Violation if only a part of what was decided together is visible."""
        if self.rules.retain_bytes is not None:
            return  # a part may be dropped
        for names in self.joint:
            bodies = [b for name in names for bs in self.units[name].bodies.values() for b in bs]
            there = sum(body in visible for body in bodies)
            if there not in (0, len(bodies)):
                raise Violation("I2", f"{there} of {len(bodies)} messages of {names}")

    def _add(self, unit: Unit, fates: set[Fate], goal: Fate) -> None:
        old = self.units.get(unit.name)
        assert old is None or old.fates == {Fate.ABSENT}, f"{unit.name} is used twice"
        for lane, bodies in unit.bodies.items():
            for body in bodies:
                self.owner[body] = unit.name, lane
        sent = tuple((lane, tuple(each)) for lane, each in unit.bodies.items())
        content = hash((sent, unit.acks, unit.is_tx))
        self._set(replace(unit, fates=frozenset(fates), goal=goal, content=content))

    def _set(self, unit: Unit) -> None:
        self._tick += 1
        self.units[unit.name] = replace(unit, tried_at=self._tick)

    def returned(self, name: str, *, durable: bool = True) -> None:
        """Note that the call returned. If it is durable, so is every unit before it."""
        self.units[name] = replace(self.units[name], returned=True)
        if durable:
            self.synced()

    def synced(self) -> None:
        """Note that everything that has returned is durable now."""
        for name, unit in self.units.items():
            if unit.returned and len(unit.fates) > 1:
                self.units[name] = replace(unit, fates=frozenset({unit.goal}))

    def refused(self, name: str) -> None:
        """Note that the call was refused as a whole: nothing of it may ever be there."""
        unit = self.units[name]
        self.units[name] = replace(unit, fates=unit.fates - {unit.goal})
        if name in self.published:
            self.published.remove(name)

    def told(self, name: str, lane: Lane, offset: int, position: int) -> None:
        """Note a receipt: the unit's messages in the lane begin at this offset."""
        self._stands(name, lane, offset, position)
        unit = self.units[name]
        live = list(self.content(lane, live=True))
        size = len(unit.bodies[lane])
        if live[offset : offset + size] != unit.bodies[lane]:
            raise Violation("I6", f"{name} was told offset {offset} in {lane}, {len(live)} there")

    def _stands(self, name: str, lane: Lane, offset: int, position: int) -> None:
        """Note where a unit's messages are. In a new unit, as copies of this oracle share units."""
        self.reach = max(self.reach, position)
        unit = self.units[name]
        self.units[name] = replace(
            unit,
            content=hash((unit.content, lane, offset, position)),
            positions={**unit.positions, lane: position},
            offsets={**unit.offsets, lane: offset},
        )

    def shown(
        self, lane: Lane, offset: int, body: bytes, *, to: str = "", is_durable: bool = False
    ) -> None:
        """Note that a running engine showed a message, perhaps to a group. With `is_durable` a
        follower showed it, which shows only durable messages.
        """
        self.read_from[to, lane] = min(offset, self.read_from.get((to, lane), offset))
        live = list(self.content(lane, live=True))
        if offset >= len(live) or live[offset] != body:
            raise Violation("I6", f"{lane} shows {body[:20]!r} at {offset}, which is not there")
        if is_durable or self.rules.shown_is_durable:
            # Visible means durable, and so is all that was appended before it.
            name = self.owner[body][0]
            tick = self.units[name].tried_at
            self.units[name] = replace(self.units[name], returned=True)
            for other in self.units.values():
                open_yet = len(other.fates) > 1  # what a crash has settled stays so
                if open_yet and other.returned and other.tried_at <= tick:
                    self.units[other.name] = replace(other, fates=frozenset({other.goal}))

    def polled(self, group: str, floors: dict[Lane, int]) -> None:
        """Note that a group polls. As long as it has acked nothing of a topic, retention may have
        dropped messages that it was shown there before. Then it begins with what is left.
        """
        counted = {Fate.VISIBLE, Fate.UNDECIDED}
        begun = {
            topic
            for unit in self.units.values()
            if unit.fates & counted
            for by, (topic, *_) in unit.acks
            if by == group
        }
        for (reader, lane), offset in list(self.read_from.items()):
            if reader == group and lane[0] not in begun:
                self.read_from[reader, lane] = max(offset, floors.get(lane, 0))

    def content(self, lane: Lane, *, live: bool = False) -> Iterator[bytes]:
        """Yield the bodies of the lane from offset 0 on. With `live`, yield those that a process
        sees that has not crashed.
        """
        for name in self.published:
            unit = self.units[name]
            if unit.fates == {Fate.VISIBLE} or (live and Fate.VISIBLE in unit.fates):
                yield from unit.bodies.get(lane, ())

    def lanes(self) -> set[Lane]:
        return {lane for unit in self.units.values() for lane in unit.bodies}

    def arrange(self, seen: Seen) -> None:
        """Do nothing: one thread makes its calls in one order, whatever was seen."""

    # --- asked by workloads ---------------------------------------------------------------------

    def fate(self, name: str) -> Fate | None:
        """Return the unit's only possible fate; None if several are possible or the unit is
        unknown.
        """
        unit = self.units.get(name)
        return next(iter(unit.fates)) if unit is not None and len(unit.fates) == 1 else None

    def tx_names(self) -> list[str]:
        """Return the transactions. Of those with one id, return the last that may be there."""
        last = {tx_id_of(name): name for name, unit in self.units.items() if self._may_be(unit)}
        return list(last.values())

    def _may_be(self, unit: Unit) -> bool:
        absent = unit.fates == {Fate.ABSENT} and "#" in unit.name
        return unit.is_tx and not absent

    def acking(self) -> dict[str, list[str]]:
        """Return the groups that may have acked something, and their topics."""
        groups = {group for unit in self.units.values() for group, _ in unit.acks}
        return {group: self.rules.groups[group] for group in sorted(groups)}

    def undecided(self) -> list[str]:
        return [name for name in self.tx_names() if self.fate(name) is Fate.UNDECIDED]
