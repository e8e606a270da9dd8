"""Compares what was read after a crash with what was promised before it.

From then on it is promised itself: of the fates that a unit may have had, it has the one that
was seen. The oracle knows, or finds, one order of all calls, so the content of every queue follows
from the fates exactly, and it is compared exactly. Like the oracle this imports nothing of fmq.
"""

from __future__ import annotations

from dataclasses import replace

from crash_tests.oracle import (
    OUTCOMES,
    Fate,
    Lane,
    Oracle,
    Place,
    Seen,
    Unit,
    Violation,
    sets_a_mark,
    tx_id_of,
)


def check(oracle: Oracle, seen: Seen) -> None:
    """Raise Violation unless `seen` keeps every promise. What was seen is promised from then on."""
    oracle.arrange(seen)
    visible = _no_phantoms(oracle, seen)
    oracle.check_joint(visible)
    _settle(oracle, seen, visible)
    for lane in oracle.lanes() | seen.lanes.keys():
        _check_lane(oracle, lane, *seen.lanes.get(lane, (0, [])))
    _check_undecided(oracle, seen)
    for name, outcome in seen.outcomes.items():
        _check_outcome(oracle, name, outcome)
        _check_mark(oracle, name, name in seen.marks)
    _check_options(oracle, seen)
    _forget_who_only_looked(oracle)
    if seen.acking:
        raise Violation("I7", f"{sorted(seen.acking)} never acked anything, and has")
    for group, delivered in seen.delivered.items():
        _check_group(oracle, group, delivered, seen)


def _forget_who_only_looked(oracle: Oracle) -> None:
    """Forget groups that have acked nothing of a topic. No promise about them has to
    survive a crash.
    """
    begun = {
        (group, topic)
        for unit in oracle.units.values()
        if unit.fates == {Fate.VISIBLE}
        for group, (topic, *_) in unit.acks
    }
    for group, lane in list(oracle.read_from):
        if group and (group, lane[0]) not in begun:
            del oracle.read_from[group, lane]


def _no_phantoms(oracle: Oracle, seen: Seen) -> set[bytes]:
    """Return all visible bodies, after checking that each belongs where it is."""
    known: set[bytes] = set()
    for lane, (_, bodies) in seen.lanes.items():
        for body in bodies:
            name, belongs = oracle.owner.get(body, ("", lane))
            if not name:
                raise Violation("I5", f"{lane} has {body[:20]!r}, which nobody ever sent")
            if belongs != lane:
                raise Violation("I5", f"{body[:20]!r} of {belongs} is in {lane}")
            if body in known:
                raise Violation("I5", f"{body[:20]!r} is there twice")
            known.add(body)
    return known


def _settle(oracle: Oracle, seen: Seen, visible: set[bytes]) -> None:
    """Choose for each unit the fate that was seen. In the order of the journal, none may be missing
    before one that is there.
    """
    skipped = ""
    unsettled = [unit for unit in oracle.units.values() if len(unit.fates) > 1]
    for unit in sorted(unsettled, key=lambda unit: unit.tried_at):
        fate = observed(oracle, unit, visible, seen)
        if fate not in unit.fates:
            allowed = " or ".join(sorted(unit.fates))
            which = "I2" if fate is Fate.VISIBLE else "I4"
            raise Violation(which, f"{unit.name} is {fate}, and must be {allowed}")
        if fate is not unit.goal:
            skipped = skipped or unit.name
        elif skipped:
            raise Violation("I6", f"{unit.name} is there, and {skipped} before it is not")
        oracle.units[unit.name] = replace(unit, fates=frozenset({fate}))
        if fate is not Fate.VISIBLE and unit.name in oracle.published:
            oracle.published.remove(unit.name)


def observed(oracle: Oracle, unit: Unit, visible: set[bytes], seen: Seen) -> Fate:
    """Return what became of `unit`, according to `seen`."""
    if unit.option is not None:
        option, value = unit.option
        return Fate.VISIBLE if seen.options.get(option) == value else Fate.ABSENT
    there = [body in visible for bodies in unit.bodies.values() for body in bodies]
    if any(there):
        if not all(there) and oracle.rules.retain_bytes is None:
            raise Violation("I2", f"{sum(there)} of {len(there)} messages of {unit.name}")
        return Fate.VISIBLE
    if _is_dropped(unit, seen):
        return Fate.VISIBLE
    if unit.is_tx:
        fate = OUTCOMES[seen.outcomes[unit.name]]
        if fate is Fate.ABSENT and _may_be_forgotten(oracle, unit):
            return Fate.ROLLED_BACK
        of_earlier = fate is Fate.VISIBLE and "#" in unit.name  # no body of this unit is there
        return Fate.ABSENT if of_earlier else fate
    return _fate_of_ack(oracle, unit, seen) if unit.acks else Fate.ABSENT


def _may_be_forgotten(oracle: Oracle, unit: Unit) -> bool:
    """Return whether the unit may have been rolled back in a segment that retention has dropped."""
    return oracle.rules.retain_bytes is not None and unit.fates == {
        Fate.UNDECIDED,
        Fate.ROLLED_BACK,
    }


def _is_dropped(unit: Unit, seen: Seen) -> bool:
    """Return whether retention has dropped all of the unit. Another check finds out whether that
    was allowed.
    """
    firsts = {lane: seen.lanes[lane][0] if lane in seen.lanes else 0 for lane in unit.bodies}
    return bool(firsts) and all(
        lane in unit.offsets and unit.offsets[lane] + len(unit.bodies[lane]) <= first
        for lane, first in firsts.items()
    )


def _fate_of_ack(oracle: Oracle, unit: Unit, seen: Seen) -> Fate:
    """Return VISIBLE if none of its messages is open, ABSENT if all are, else raise Violation."""
    # A roll back may be lost, as sync="never" allows: then its transaction holds them again.
    undecided = (each for each in oracle.units.values() if tx_id_of(each.name) in seen.undecided)
    held = {ack for each in undecided for ack in each.acks}
    # If the message itself is lost, its ack is lost, too.
    open_ones = [
        place in seen.delivered[group] or (group, place) in held or not _reached(seen, place)
        for group, place in unit.acks
    ]
    if any(open_ones) and not all(open_ones):
        raise Violation("I7", f"half of the ack {unit.name} is there")
    return Fate.ABSENT if any(open_ones) else Fate.VISIBLE


def _check_lane(oracle: Oracle, lane: Lane, first: int, bodies: list[bytes]) -> None:
    expected = list(oracle.content(lane))
    _check_floor(oracle, lane, first, expected)
    if expected[first:] == bodies:
        return
    there = set(bodies)
    for body in expected[first:]:
        if body not in there:
            name = oracle.owner[body][0]
            part = any(b in there for bs in oracle.units[name].bodies.values() for b in bs)
            raise Violation("I2" if part else "I1", f"{body[:20]!r} of {name}, {lane}, is lost")
    for body in bodies:
        if body not in expected:
            name = oracle.owner[body][0]
            raise Violation("I3", f"{name} is {oracle.fate(name)}, and {lane} shows it")
    raise Violation("I6", f"{lane} has its messages in another order, or from {first} on")


def _check_floor(oracle: Oracle, lane: Lane, first: int, expected: list[bytes]) -> None:
    if first < oracle.first.get(lane, 0):
        raise Violation("I6", f"{lane} begins at {first} again, after {oracle.first[lane]}")
    oracle.first[lane] = first
    if not first:
        return
    readers = {topic for group, topics in oracle.rules.groups.items() for topic in topics}
    if oracle.rules.only_acked and lane[0] not in readers:
        raise Violation("I7", f"{lane} begins at {first}, and no group has read it")
    if oracle.rules.retain_bytes is None or first > len(expected):
        raise Violation("I1", f"{lane} begins at {first} of {len(expected)}: who dropped that?")
    name = oracle.owner[expected[first - 1]][0]
    position, size = oracle.units[name].positions.get(lane, 0), oracle.rules.segment_bytes
    kept = (oracle.reach // size + 3) * size - position // size * size
    if kept <= oracle.rules.retain_bytes:
        raise Violation("I1", f"{lane} lost {first - 1}, with only {kept} bytes kept")


def _check_undecided(oracle: Oracle, seen: Seen) -> None:
    expected = {tx_id_of(name): oracle.units[name].messages for name in oracle.undecided()}
    if seen.undecided == expected:
        return
    for name in seen.undecided.keys() - expected.keys():
        which = "I3" if oracle.fate(name) is Fate.ROLLED_BACK else "I4"
        raise Violation(which, f"{name} is offered, and was {oracle.fate(name)}")
    raise Violation("I4", f"undecided are {seen.undecided}, and must be {expected}")


def _check_outcome(oracle: Oracle, name: str, outcome: str) -> None:
    if "#" in name and oracle.fate(name) is Fate.ABSENT:
        name = tx_id_of(name)  # the outcome is that of the earlier transaction
    fate = oracle.fate(name) if name in oracle.units else Fate.ABSENT
    may_go = oracle.rules.retain_bytes is not None or oracle.is_past_the_window(name)
    gone = outcome == "unknown" and may_go
    decided = fate in (Fate.VISIBLE, Fate.ROLLED_BACK)
    if OUTCOMES[outcome] is not fate and not (gone and decided):
        raise Violation("I4", f"the outcome of {name} is {outcome!r}, and it was {fate}")


def _check_options(oracle: Oracle, seen: Seen) -> None:
    """Check that each option has the value that was stored last."""
    expected = {}
    for unit in sorted(oracle.units.values(), key=lambda unit: unit.tried_at):
        if unit.option is not None and unit.fates == {Fate.VISIBLE}:
            option, value = unit.option
            expected[option] = value
    for option, value in expected.items():
        if (found := seen.options.get(option)) != value:
            raise Violation("I22", f"{option} is stored as {found}, and must be {value}")


def _check_mark(oracle: Oracle, name: str, is_there: bool) -> None:
    expected = sets_a_mark(name) and oracle.fate(name) is Fate.VISIBLE
    if is_there is not expected:
        raise Violation("I14", f"the mark of {name} is there: {is_there}, and must be: {expected}")


def _check_group(oracle: Oracle, group: str, delivered: set[Place], seen: Seen) -> None:
    acked, held = _done(oracle, group)
    there = {
        (topic, queue, first + i)
        for (topic, queue), (first, bodies) in seen.lanes.items()
        if topic in oracle.rules.groups[group]
        for i in range(len(bodies))
    }
    if again := delivered & acked:
        raise Violation("I7", f"{group} gets again what it had acked: {sorted(again)}")
    if early := delivered & held:
        raise Violation("I7", f"{group} gets what an undecided tx acks: {sorted(early)}")
    if missing := there - acked - held - delivered:
        raise Violation("I7", f"{group} does not get {sorted(missing)}")
    for (reader, lane), begun in oracle.read_from.items():
        if reader != group:
            continue
        first = seen.lanes[lane][0] if lane in seen.lanes else 0
        unread = [i for i in range(begun, first) if (*lane, i) not in acked]
        if unread:
            raise Violation("I7", f"{group} had not read {unread} of {lane}, and it is dropped")


def _done(oracle: Oracle, group: str) -> tuple[set[Place], set[Place]]:
    """Return what the group has acked, and what undecided transactions hold of it."""
    done: dict[Fate, set[Place]] = {fate: set() for fate in Fate}
    for unit in oracle.units.values():
        for by, place in unit.acks:
            if by == group and len(unit.fates) == 1:
                done[next(iter(unit.fates))].add(place)
    return done[Fate.VISIBLE], done[Fate.UNDECIDED] - done[Fate.VISIBLE]


def _reached(seen: Seen, place: Place) -> bool:
    first, bodies = seen.lanes.get(place[:2], (0, []))
    return place[2] < first + len(bodies)
