"""The states that a CrashDisk makes of itself: distinct, repeatable, independent, cheap."""

from __future__ import annotations

import json
from itertools import pairwise

from fmq.testing import CrashDisk, Loss, Tear
from tests.testing.outcomes import content, made


def busy() -> CrashDisk:
    """A disk with seven pending changes of all sorts."""
    disk = CrashDisk()
    directory = made(disk)
    file = directory.create("a")
    directory.sync()
    file.allocate(30)
    for i in range(3):
        file.write(i * 10, (bytes([65 + i]) * 10,), sync=False)
    directory.create("b").write(0, (b"x" * 600,), sync=False)
    directory.rename("a", "c")
    return disk


def test_states_are_distinct_and_the_same_for_each_seed() -> None:
    disk = busy()
    states = [state.fingerprint() for state in disk.states()]
    assert len(set(states)) == len(states) > 100
    assert states == [state.fingerprint() for state in disk.states()]
    assert set(states) != {state.fingerprint() for state in disk.states(seed=1)}


def test_a_loss_written_as_json_gives_the_same_state_again() -> None:
    disk = busy()
    for state in disk.states():
        assert state.loss is not None
        written = json.dumps(state.loss.as_json())
        again = Loss.from_json(json.loads(written))
        assert again == state.loss
        assert disk.after(again).fingerprint() == state.fingerprint()


def test_no_change_is_pending_after_a_power_loss() -> None:
    for state in busy().states():
        assert state.pending() == []
        assert [again.fingerprint() for again in state.states()] == [state.fingerprint()]


def test_a_seed_chooses_one_state_and_seeds_reach_every_kind() -> None:
    disk = busy()
    chosen = {disk.after_power_loss(seed).fingerprint() for seed in range(200)}
    assert disk.after_power_loss(7).fingerprint() == disk.after_power_loss(7).fingerprint()
    assert len(chosen) > 50
    assert disk.after_kill().fingerprint() in chosen, "all kept"
    assert disk.after(Loss()).fingerprint() in chosen, "none kept"
    torn = [disk.after_power_loss(seed).loss for seed in range(200)]
    assert {loss.torn.tear for loss in torn if loss and loss.torn} == set(Tear)


def test_writes_to_one_disk_do_not_change_its_siblings() -> None:
    disk = CrashDisk()
    directory = made(disk)
    file = directory.create("a")
    directory.sync()
    file.write(0, (b"old",), sync=True)
    siblings = [disk.after_kill(), disk.after_power_loss(0), *disk.states()]
    for one, other in pairwise([disk, *siblings]):
        made(one).open("a", write=True).write(0, (b"new",), sync=True)
        made(one).create("b")
        assert content(other, "a") == b"old"
        assert content(other, "b") is None


def test_states_are_those_of_the_moment_they_were_asked_for() -> None:
    disk = CrashDisk()
    directory = made(disk)
    file = directory.create("a")
    directory.sync()
    file.write(0, (b"x",), sync=False)
    states = disk.states()
    assert content(next(states), "a") == b""
    file.write(0, (b"yy",), sync=True)
    assert b"yy" not in {content(state, "a") for state in states}


def test_a_huge_file_of_zeros_is_cheap() -> None:
    """Segments are 16 MiB of zeros with little at their start, and thousands are copied."""
    disk = CrashDisk()
    directory = made(disk)
    file = directory.create("a")
    directory.sync()
    file.write_zeros(1 << 40)
    file.write(100, (b"x",), sync=False)
    file.sync()
    states = [disk.after_power_loss(seed) for seed in range(100)]
    for state in states:
        made(state).open("a", write=True).write(0, (b"y",), sync=True)
        assert made(state).open("a").size() == 1 << 40
    assert len({state.fingerprint() for state in states}) == 1
