"""The values by key of fmq.compat: a change is there as a whole, or not at all, after any crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

import fmq
from crash_tests.suite import one_of
from fmq.compat.values import Values
from fmq.testing import CrashDisk, FakeClock, PowerLoss

OPTIONS = fmq.Options(segment_bytes=4096, checkpoint_bytes=2048)
LOSSES = 3
Change = Callable[[Values, dict[str, bytes]], None]


def values_of(engine: fmq.Engine, random: Random) -> Values:
    return Values(lambda: engine, "v/", "values", random.getrandbits)


def changes(random: Random) -> Iterator[tuple[str, str, bytes]]:
    """Yield what is done: put, put_if_empty or pop, with values on both sides of the limit."""
    for number in range(14):
        what = random.choice(["put", "put", "put if empty", "pop"])
        value = b"%d " % number * random.choice([1, 40])
        yield what, random.choice(["a", "b"]), value


def change(values: Values, state: dict[str, bytes], step: tuple[str, str, bytes]) -> None:
    """Make a change, and the same in `state`, which a caller gives for what is to be."""
    what, key, value = step
    if what == "put":
        values.put(key, value)
    elif what == "put if empty":
        version, is_there = values.version(key)
        assert is_there == (key in state)
        assert values.put(key, value, expect=version) or is_there
    else:
        assert values.pop(key) == state.get(key)


def after(state: dict[str, bytes], step: tuple[str, str, bytes]) -> dict[str, bytes]:
    what, key, value = step
    if what == "pop":
        return {each: found for each, found in state.items() if each != key}
    return state | ({key: value} if what == "put" or key not in state else {})


def run(disk: CrashDisk, seed: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Make all changes until the power fails. Return what was promised, and the change that was
    running.
    """
    state: dict[str, bytes] = {}
    begun = state
    try:
        with fmq.open("data", OPTIONS, disk=disk, clock=FakeClock(), background=False) as engine:
            values = values_of(engine, Random(seed))
            for step in changes(Random(seed)):
                if step[0] == "put if empty" and step[1] in state:
                    continue
                begun = after(state, step)
                change(values, state, step)
                state = begun
                assert values.items() == state
    except PowerLoss:
        pass
    return state, begun


@pytest.mark.parametrize("seed", range(2))
def test_a_change_of_a_value_survives_as_a_whole_or_not_at_all(seed: int) -> None:
    """Lose the power at each operation of the disk, and different parts of what was not synced."""
    whole = CrashDisk()
    run(whole, seed)
    for crash_at in range(seed, whole.operations, one_of(2)):
        disk = CrashDisk(crash_at=crash_at)
        promised, begun = run(disk, seed)
        for loss in range(LOSSES):
            left = disk.after_power_loss(loss)
            with fmq.open("data", OPTIONS, disk=left, clock=FakeClock(), background=False) as again:
                found = values_of(again, Random(seed + 1)).items()
            assert found in (promised, begun), f"{seed=} {crash_at=} {loss=}"
