"""All interleavings of machines that share a home and may pause anywhere, as an exhaustive model.

A *home* is storage beyond a machine that acknowledges what an engine writes. The machine that has
filled the newest OWN is its owner.

    python -m tests.home.protocol_model      every state of two machines, and of three that get all
                                             answers; then each rule is taken out. A minute

A step is one call to the home, or one look at it. So a pause, or the death of a machine, may come
between any two. Nothing here is fmq's code: the model says which rules `fmq/home/home_log.py` has
to follow. tests/home/test_rivals.py pauses that code in the same way.

    slots     number -> entry; each is filled once
    floors    number -> what was true before this slot; the largest number counts
    blobs     the numbers of the floors whose bytes are in the home

An entry is (kind, term, what). `what` of DATA is the append and whether this is its last piece.
"""

from __future__ import annotations

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
    "remove only the blobs of older floors",
    "the largest floor counts",
    "an older term is dead",
}
"""The last one follows from the others while one entry at a time is on its way: see the test."""

NEEDS_THREE = "look at the floor after reading"
"""The rule that two machines alone do not need."""
FEWER = {"answers", "one piece"}
"""Added to the rules, they leave states out: no answer is lost, and each append has one piece."""

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


class World(NamedTuple):
    """The home, the machines, and what their callers were told."""

    slots: tuple[tuple[int, Entry], ...]
    floors: tuple[tuple[int, tuple[int, Frozen]], ...]
    floor: int
    blobs: frozenset[int]
    acked: Frozen
    refused: Frozen
    """Appends whose callers were told that they were not sent."""
    machines: tuple[Machine, ...]


def applied_by(machine: Machine, entry: Entry, rules: set[str]) -> Machine:
    """Return `machine` after it has applied the entry at its place."""
    kind, term, what = entry
    machine = machine._replace(n=machine.n + 1)
    if kind == OWN:
        if term > machine.term:
            half = None if "an append counts as a whole" in rules else machine.half
            return machine._replace(term=term, half=half)
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
    fenced = Machine("fenced")
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
            mine = m._replace(does="check", n=m.n + 1, term=m.term + 1, half=None, holds=None)
            yield mine, _filled(slots, m.n, m.holds)
    elif m.does == "check":
        if world.floor > m.n - 1 and "look at the floor after an OWN" in rules:
            yield again, {}
        else:
            yield m._replace(does="serve"), {}
    elif m.does == "serve":
        if m.data:
            append = i, m.n, m.term
            holds: Entry = DATA, m.term, (append, int("one piece" in rules))
            yield m._replace(does="create", data=m.data - 1, holds=holds), {}
        if m.beats:
            yield m._replace(does="create", beats=m.beats - 1, holds=(BEAT, m.term, i)), {}
        if m.checkpoints:
            holds = CHECKPOINT, m.term, i
            yield m._replace(does="create", checkpoints=m.checkpoints - 1, holds=holds), {}
    elif m.does == "create":
        if m.n in slots:
            yield fenced, _refusal(world, m)
        else:
            yield _after(m, world), _filled(slots, m.n, m.holds) | _ack(world, m)
        if "answers" not in rules:  # the answer may be lost, whether the entry landed or not
            yield m._replace(does="compare"), {}
            if m.n not in slots:
                yield m._replace(does="compare"), _filled(slots, m.n, m.holds)
    elif m.does == "compare":
        found = slots.get(m.n)
        if found is None:
            yield m._replace(does="create"), {}
        elif found == m.holds or "compare what has no answer" not in rules:
            yield _after(m, world), _ack(world, m)
        else:
            yield fenced, _refusal(world, m)
    elif m.does == "put":
        if "blobs before the floor" in rules:
            yield m._replace(does="raise"), {"blobs": world.blobs | {m.n}}
        else:
            yield m._replace(does="put late"), _raised(world, m, rules)
    elif m.does == "put late":
        yield m._replace(does="sweep"), {"blobs": world.blobs | {m.n}}
    elif m.does == "raise":
        yield m._replace(does="sweep"), _raised(world, m, rules)
    elif m.does == "sweep":
        if "remove only the blobs of older floors" in rules:
            kept = frozenset(each for each in world.blobs if each >= m.n)
        else:
            kept = world.blobs & {m.n}
        yield m._replace(does="free", holds=0), {"blobs": kept}
    elif m.does == "free":
        if m.holds == m.n:
            yield m._replace(does="serve", holds=None), {}
        else:
            kind = slots.get(m.holds, ("",))[0]
            if kind and (kind != OWN or "an OWN is never removed" not in rules):
                del slots[m.holds]
            yield m._replace(holds=m.holds + 1), {"slots": _sorted(slots)}


def _after(m: Machine, world: World) -> Machine:
    """Return the owner after what it holds is in the home."""
    kind, term, what = m.holds
    then = m._replace(does="serve", n=m.n + 1, holds=None)
    if kind == CHECKPOINT:
        return then._replace(does="put")
    if kind == DATA and not what[1]:  # it has two pieces
        return then._replace(does="create", holds=(DATA, term, (what[0], 1)))
    return then._replace(applied=m.applied | {what[0]}) if kind == DATA else then


def _ack(world: World, m: Machine) -> dict[str, Any]:
    kind, _, what = m.holds
    return {"acked": world.acked | {what[0]}} if kind == DATA and what[1] else {}


def _refusal(world: World, m: Machine) -> dict[str, Any]:
    kind, _, what = m.holds
    return {"refused": world.refused | {what[0]}} if kind == DATA else {}


def _filled(slots: dict[int, Entry], n: int, entry: Entry) -> dict[str, Any]:
    return {"slots": _sorted({**slots, n: entry})}


def _raised(world: World, m: Machine, rules: set[str]) -> dict[str, Any]:
    floors = {**dict(world.floors), m.n: (m.term, m.applied)}
    number = max(world.floor, m.n) if "the largest floor counts" in rules else m.n
    return {"floors": tuple(sorted(floors.items(), key=_number)), "floor": number}


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
    whole = {what[0] for _, (kind, _, what) in world.slots if kind == DATA and what[1]}
    halves = {what[0] for _, (kind, _, what) in world.slots if kind == DATA} - whole
    return "half of an append is there" if halves & seen else None


class Result(NamedTuple):
    """How many states were seen, and the first that breaks a promise."""

    states: int
    broken: str | None
    world: World | None


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
        *(0, frozenset({0}), NONE, NONE),
        (first, *others),
    )
    seen, todo = {start}, [start]
    while todo:
        world = todo.pop()
        broken = broken_in(world, rules)
        if broken is not None:
            return Result(len(seen), broken, world)
        for each in steps(world, rules):
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return Result(len(seen), None, None)


def main() -> None:
    """Search with all rules, and then without each of them."""
    for machines, rules in ((2, RULES), (3, RULES | FEWER)):
        found = search(machines, rules, beats=3 - machines, late=True)
        print(
            f"{machines} machines, all rules: {found.states:,} states, {found.broken}", flush=True
        )
    for rule in sorted(RULES):
        machines, fewer = (3, FEWER) if rule == NEEDS_THREE else (2, NONE)
        found = search(machines, (RULES - {rule}) | fewer, late=True)
        print(f"without {rule!r}: {found.broken}, after {found.states:,} states", flush=True)
        if found.world is not None:
            for n, entry in found.world.slots:
                print("   ", n, *entry)


if __name__ == "__main__":
    main()
