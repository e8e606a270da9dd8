"""All interleavings of machines that share a home and may pause anywhere, as an exhaustive model.

A *home* is storage beyond a machine that acknowledges what an engine writes. The machine that has
filled the newest OWN is its owner.

    python -m tests.home.protocol_model      every state of two machines, of three if no answer is
                                             lost and each append has one piece, and of three in the
                                             middle of freeing; then each rule is taken out. Four
                                             minutes; with --long some hours more, for three

A step is one call to the home, or one look at it. So a pause, or the death of a machine, may come
between any two. Nothing here is fmq's code: the model says which rules `fmq/home/home_log.py` has
to follow. tests/home/test_rivals.py pauses that code in the same way.

    slots     number -> entry; each is filled once
    floors    number -> what was true before this slot; the largest number counts
    blobs     the numbers of the floors of which all is in the home: the bytes of the journal, the
              checkpoint, and the pieces of a floor that is larger than one object

An entry is (kind, term, what). `what` of DATA is the append and whether this is its last piece.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

OWN, DATA, CHECKPOINT, BEAT = "own", "data", "checkpoint", "beat"
Entry = tuple[str, int, Any]

RULES = {
    "an OWN is never removed",
    "look at the floor after an OWN",
    "look at the floor after reading",
    "compare what has no answer",
    "an append counts as a whole",
    "blobs before the floor",
    "a checkpoint has only what counts",
    "remove only the blobs of older floors",
    "the largest floor counts",
    "an older term is dead",
    "acknowledge in order",
    "fill the slot after an OWN",
    "two entries on their way",
    "look at the floor before a refusal",
}

NEED_THREE = {"look at the floor after reading", "look at the floor before a refusal"}
"""The rules that two machines alone do not need."""
# Added to the rules, "answers" and "one piece" leave states out: no answer is lost, and each append
# has one piece.
ON_ITS_WAY, NO_ANSWER, MINE, TAKEN = "on its way", "no answer", "mine", "taken"
# Another's entry is there. An earlier try may have had no answer, so this says nothing if the slot
# was freed since: if it lies below the floor, and no OWN has counted there.
DOUBTED, UNKNOWN = "doubted", "unknown"

Frozen = frozenset[Any]
NONE: Frozen = frozenset()


class Machine(NamedTuple):
    """One machine: what it does next, and what it knows."""

    does: str
    n: int = 0
    term: int = 0
    applied: Frozen = NONE
    half: Any = None
    """The append of which it has read some pieces."""
    data: int = 0
    checkpoints: int = 0
    beats: int = 0
    holds: Any = None
    """What it has read and not applied, or is about to create, or removes next."""
    flights: tuple[tuple[Entry, str], ...] = ()
    """What the owner has begun to put into slot n and the next ones, and the answers so far."""
    rest: Any = None
    """The last piece of the append that it puts."""
    floor: Any = None
    """The floor that the owner raises: its number, the term, and what was applied."""


class World(NamedTuple):
    """The home, the machines, and what their callers were told."""

    slots: tuple[tuple[int, Entry], ...]
    floors: tuple[tuple[int, tuple[int, Frozen]], ...]
    floor: int
    blobs: frozenset[int]
    acked: Frozen
    refused: Frozen
    """Appends whose callers were told that they were not sent."""
    is_owner_refused: bool
    """A machine gave up its home though no other had taken it over."""
    machines: tuple[Machine, ...]


def applied_by(machine: Machine, entry: Entry, rules: set[str]) -> Machine:
    """Return `machine` after it has applied the entry at its place."""
    kind, term, what = entry
    place = machine.n
    machine = machine._replace(n=place + 1)
    if kind == OWN:
        if term > machine.term:
            half = None if "an append counts as a whole" in rules else machine.half
            return machine._replace(term=term, half=half, applied=machine.applied | {(OWN, place)})
    elif kind == DATA and (term == machine.term or "an older term is dead" not in rules):
        append, is_last = what
        if "an append counts as a whole" not in rules or is_last:
            return machine._replace(applied=machine.applied | {append}, half=None)
        return machine._replace(half=append)
    return machine


def seen_in(world: World, rules: set[str]) -> Frozen | None:
    """Return the appends that a machine finds which knows nothing; None if bytes are missing."""
    if world.floor not in world.blobs:
        return None
    slots = dict(world.slots)
    term, applied = dict(world.floors)[world.floor]
    machine = Machine("", world.floor, term, applied)
    while machine.n in slots:
        machine = applied_by(machine, slots[machine.n], rules)
    return machine.applied


def steps(world: World, rules: set[str]) -> Iterator[World]:
    """Yield each world that one step of one machine leads to."""
    for i, machine in enumerate(world.machines):
        for then, changes in _steps_of(i, machine, world, rules):
            machines = (*world.machines[:i], then, *world.machines[i + 1 :])
            yield world._replace(machines=machines, **changes)


Step = tuple[Machine, dict[str, Any]]


def _steps_of(i: int, m: Machine, world: World, rules: set[str]) -> Iterator[Step]:
    slots = dict(world.slots)
    again = m._replace(does="look", n=0, term=0, applied=NONE, half=None, holds=None)
    if m.does == "look":
        yield m._replace(does="fetch", n=world.floor), {}
    elif m.does == "fetch":
        if m.n not in world.blobs:
            if world.floor > m.n:  # its bytes were removed, because there is a newer floor
                yield again, {}
        else:
            term, applied = dict(world.floors)[m.n]
            yield m._replace(does="read", term=term, applied=applied), {}
    elif m.does == "read":
        if m.n not in slots:
            own = OWN, m.term + 1, i
            yield m._replace(does="own", holds=own), {}
        else:
            yield m._replace(does="apply", holds=slots[m.n]), {}
    elif m.does == "apply":
        if world.floor > m.n and "look at the floor after reading" in rules:
            yield again, {}
        else:
            yield applied_by(m, m.holds, rules)._replace(does="read", holds=None), {}
    elif m.does == "own":
        if m.n in slots:
            yield m._replace(does="read", holds=None), {}
        else:
            mine = applied_by(m, m.holds, RULES)
            yield mine._replace(does="check", holds=None), _filled(slots, m.n, m.holds)
    elif m.does == "check":
        if world.floor > m.n - 1 and "look at the floor after an OWN" in rules:
            yield again, {}
        else:
            then = "fill" if "fill the slot after an OWN" in rules else "serve"
            yield m._replace(does=then), {}
    elif m.does == "fill":
        # What the owner before had on its way may be there already, or comes too late.
        if m.n not in slots:
            yield m._replace(does="serve", n=m.n + 1), _filled(slots, m.n, (BEAT, m.term, i))
        else:
            read = applied_by(m, slots[m.n], rules)
            yield read._replace(does="serve") if read.term == m.term else Machine("fenced"), {}
    else:
        yield from _flights_of(i, m, world, rules)
        yield from _floor_of(m, world, rules)


def _flights_of(i: int, m: Machine, world: World, rules: set[str]) -> Iterator[Step]:
    """Yield what the owner does to put entries into slots: begin one, ask, compare."""
    slots = dict(world.slots)
    most = 2 if "two entries on their way" in rules else 3
    if len(m.flights) < most:
        if m.rest:
            begun = m.flights, ((DATA, m.term, m.rest), ON_ITS_WAY)
            yield m._replace(flights=(*begun[0], begun[1]), rest=None), {}
        else:
            if m.data:
                append = i, m.data, m.term
                is_one = "one piece" in rules
                entry: Entry = DATA, m.term, (append, int(is_one))
                then = m._replace(data=m.data - 1, rest=None if is_one else (append, 1))
                yield then._replace(flights=(*m.flights, (entry, ON_ITS_WAY))), {}
            if m.beats:
                flights = (*m.flights, ((BEAT, m.term, i), ON_ITS_WAY))
                yield m._replace(beats=m.beats - 1, flights=flights), {}
            if m.checkpoints and m.floor is None:
                flights = (*m.flights, ((CHECKPOINT, m.term, i), ON_ITS_WAY))
                yield m._replace(checkpoints=m.checkpoints - 1, flights=flights), {}
    taken = DOUBTED if "look at the floor before a refusal" in rules else TAKEN
    for at, (entry, answer) in enumerate(m.flights):
        n = m.n + at
        found = slots.get(n)
        if answer == ON_ITS_WAY:
            landed = _filled(slots, n, entry)
            if found is None:
                yield _answered(m, at, MINE, world, landed, rules)
            else:
                yield _answered(m, at, taken, world, {}, rules)
            if "answers" not in rules:  # it may be lost, whether the entry landed or not
                yield _answered(m, at, NO_ANSWER, world, {}, rules)
                if found is None:
                    yield _answered(m, at, NO_ANSWER, world, landed, rules)
        elif answer == NO_ANSWER:
            if found is None:
                yield _answered(m, at, ON_ITS_WAY, world, {}, rules)
            elif found == entry or "compare what has no answer" not in rules:
                yield _answered(m, at, MINE, world, {}, rules)
            else:
                yield _answered(m, at, taken, world, {}, rules)
        elif answer == DOUBTED:
            is_freed = world.floor > n and (OWN, n) not in dict(world.floors)[world.floor][1]
            yield _answered(m, at, UNKNOWN if is_freed else TAKEN, world, {}, rules)


def _answered(
    m: Machine, at: int, answer: str, world: World, changes: dict[str, Any], rules: set[str]
) -> Step:
    """Return what follows when the entry at the place `at` of the flights has this answer: those
    that are the first, and are there, are acknowledged in order.
    """
    flights = [*m.flights]
    flights[at] = flights[at][0], answer
    changes = {**changes}
    if answer == MINE and "acknowledge in order" not in rules:
        changes["acked"] = world.acked | _appends([flights[at][0]])
    while flights and flights[0][1] == MINE:
        (kind, _, what), _ = flights.pop(0)
        m = m._replace(n=m.n + 1)
        if kind == CHECKPOINT:
            # Who begins at the floor begins with what the owner's checkpoint says.
            on_their_way = _appends([entry for entry, _ in flights], m.rest)
            is_wrong = "a checkpoint has only what counts" not in rules
            said = m.applied | (on_their_way if is_wrong else NONE)
            m = m._replace(does="put", floor=(m.n, m.term, said))
        elif kind == DATA and what[1]:
            m = m._replace(applied=m.applied | {what[0]})
            changes["acked"] = changes.get("acked", world.acked) | {what[0]}
    if flights and flights[0][1] == UNKNOWN:
        return Machine("fenced"), changes
    if flights and flights[0][1] == TAKEN:
        lost = _appends([entry for entry, _ in flights], m.rest)
        changes["refused"] = world.refused | (lost - changes.get("acked", world.acked))
        terms = [term for _, (kind, term, _) in world.slots if kind == OWN]
        changes["is_owner_refused"] = world.is_owner_refused or max(terms, default=0) <= m.term
        return Machine("fenced"), changes
    return m._replace(flights=tuple(flights)), changes


def _appends(entries: list[Entry], rest: Any = None) -> Frozen:
    """Return the appends that end with these entries, or with `rest`."""
    found = {what[0] for kind, _, what in entries if kind == DATA and what[1]}
    return frozenset(found | ({rest[0]} if rest else set()))


def _floor_of(m: Machine, world: World, rules: set[str]) -> Iterator[Step]:
    """Yield what the owner does to raise the floor and free what lies below."""
    slots = dict(world.slots)
    if m.floor is None:
        return
    number = m.floor[0]
    if m.does == "put":
        if "blobs before the floor" in rules:
            yield m._replace(does="raise"), {"blobs": world.blobs | {number}}
        else:
            yield m._replace(does="put late"), _raised(world, m, rules)
    elif m.does == "put late":
        yield m._replace(does="sweep"), {"blobs": world.blobs | {number}}
    elif m.does == "raise":
        yield m._replace(does="sweep"), _raised(world, m, rules)
    elif m.does == "sweep":
        if "remove only the blobs of older floors" in rules:
            kept = frozenset(each for each in world.blobs if each >= number)
        else:
            kept = world.blobs & {number}
        yield m._replace(does="free", holds=0), {"blobs": kept}
    elif m.does == "free":
        if m.holds == number:
            yield m._replace(does="serve", holds=None, floor=None), {}
        else:
            kind = slots.get(m.holds, ("",))[0]
            if kind and (kind != OWN or "an OWN is never removed" not in rules):
                del slots[m.holds]
            yield m._replace(holds=m.holds + 1), {"slots": _sorted(slots)}


def _filled(slots: dict[int, Entry], n: int, entry: Entry) -> dict[str, Any]:
    return {"slots": _sorted({**slots, n: entry})}


def _raised(world: World, m: Machine, rules: set[str]) -> dict[str, Any]:
    number, term, applied = m.floor
    floors = {**dict(world.floors), number: (term, applied)}
    counts = max(world.floor, number) if "the largest floor counts" in rules else number
    return {"floors": tuple(sorted(floors.items(), key=_number)), "floor": counts}


def _sorted(slots: dict[int, Entry]) -> tuple[tuple[int, Entry], ...]:
    return tuple(sorted(slots.items(), key=_number))


def _number(item: tuple[int, object]) -> int:
    return item[0]


def broken_in(world: World, rules: set[str]) -> str | None:
    """Return which promise `world` breaks, or None."""
    seen = seen_in(world, rules)
    if seen is None:
        return "bytes below the floor are missing"
    if not world.acked <= seen:
        return "an acknowledged append is lost"
    if world.refused & seen:
        return "an append is there whose caller was told that it was not sent"
    if world.is_owner_refused:
        return "an owner was refused though no other machine has taken over"
    whole = {what[0] for _, (kind, _, what) in world.slots if kind == DATA and what[1]}
    # Below the floor, an owner that had no answer may put the first piece of what is there again.
    above = [entry for n, entry in world.slots if n >= world.floor]
    halves = {what[0] for kind, _, what in above if kind == DATA} - whole
    return "half of an append is there" if halves & seen else None


class Result(NamedTuple):
    """How many states were seen, and the first that breaks a promise."""

    states: int
    broken: str | None
    world: World | None


def search_while_freeing(rules: set[str]) -> Result:
    """Try all interleavings of three machines from the moment at which the owner has freed one of
    the slots below its floor. The two others have begun to read before, and are paused.
    """
    append = "first", 1, 1
    owner = Machine("free", 3, 1, frozenset({append}), holds=2, floor=(3, 1, frozenset({append})))
    others = (
        Machine("own", 1, 1, holds=(OWN, 2, 1), checkpoints=1),
        Machine("read", 0, 0, data=1),
    )
    floors = (0, (0, NONE)), (3, (1, frozenset({append})))
    slots = (0, (OWN, 1, "first")), (2, (CHECKPOINT, 1, 0))
    acked = frozenset({append})
    start = World(slots, floors, 3, frozenset({3}), acked, NONE, False, (owner, *others))
    return _searched(start, rules)


def search_without_answer(rules: set[str]) -> Result:
    """Do so from the moment at which an owner has had no answer, though its entry is there. The
    next owner frees the slot, and a third machine has found it empty before.
    """
    append = 0, 1, 1
    entry: Entry = DATA, 1, (append, 1)
    applied = frozenset({append})
    machines = (
        Machine("serve", 1, 1, flights=((entry, NO_ANSWER),)),
        Machine("free", 4, 2, applied, holds=1, floor=(4, 2, applied)),
        Machine("own", 1, 1, holds=(OWN, 2, 2), data=1),
    )
    floors = (0, (0, NONE)), (4, (2, applied))
    slots = (0, (OWN, 1, "first")), (1, entry), (2, (OWN, 2, 1)), (3, (CHECKPOINT, 2, 1))
    start = World(slots, floors, 4, frozenset({4}), NONE, NONE, False, machines)
    return _searched(start, rules)


def search(machines: int, rules: set[str], *, beats: int = 0, late: bool = False) -> Result:
    """Try all interleavings, up to the first that breaks a promise. Every machine sends once. The
    first one, which owns the home, takes a checkpoint, and so does the last one if it is `late`.
    """
    first = Machine("serve", 1, 1, data=1, checkpoints=1, beats=beats)
    others = [Machine("look", data=1, checkpoints=1) for _ in range(machines - 1)]
    if not late:
        others[1:] = [each._replace(checkpoints=0) for each in others[1:]]
    start = World(
        ((0, (OWN, 1, "first")),),
        ((0, (0, NONE)),),
        *(0, frozenset({0}), NONE, NONE, False),
        (first, *others),
    )
    return _searched(start, rules)


def _searched(start: World, rules: set[str]) -> Result:
    seen, todo = {start}, [start]
    judged = set[tuple[Any, ...]]()
    while todo:
        world = todo.pop()
        # What the machines do next is no part of what was promised, or of what is there.
        if world[:-1] not in judged:
            judged.add(world[:-1])
            broken = broken_in(world, rules)
            if broken is not None:
                return Result(len(seen), broken, world)
        for each in steps(world, rules):
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return Result(len(seen), None, None)


def searches_of_three(rules: set[str]) -> Result:
    """Search from both moments at which three machines meet, up to what breaks a promise."""
    first = search_while_freeing(rules)
    if first.broken:
        return first
    second = search_without_answer(rules)
    return second._replace(states=first.states + second.states)


def main() -> None:
    """Search with all rules, and then without each of them."""
    small = "answers", "one piece"
    wholes = [(2, set[str](), True), (3, {*small}, False)]
    if "--long" in sys.argv[1:]:
        wholes += [(3, {each}, False) for each in small]
    for machines, fewer, late in wholes:
        found = search(machines, RULES | fewer, late=late)
        print(f"{machines} machines, all rules{[*fewer] or ''}: {found.states:,} states, "
              f"{found.broken}", flush=True)  # fmt: skip
    found = searches_of_three(RULES)
    print(f"3 machines that meet, all rules: {found.states:,} states, {found.broken}", flush=True)
    for rule in sorted(RULES):
        rules = RULES - {rule}
        found = searches_of_three(rules) if rule in NEED_THREE else search(2, rules, late=True)
        print(f"without {rule!r}: {found.broken}, after {found.states:,} states", flush=True)
        if found.world is not None:
            for n, entry in found.world.slots:
                print("   ", n, *entry)


if __name__ == "__main__":
    main()
