"""What waits, with few timers in memory and many in runs, compared with a dict."""

from __future__ import annotations

from random import Random

import pytest

from fmq.chores.due_files import DueFiles
from fmq.recovery.timer_files import carry_timers, check_timers, number_files
from fmq.store.bytes.content import encode_one
from fmq.store.bytes.kinds import TIMER, Run
from fmq.store.bytes.timing import Timing, with_timing
from fmq.store.journal.commit_queue import CommitQueue
from fmq.testing import CrashDisk
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.ledger.timers import Bounds, Timers
from tests.budget import within_budget

STORE = bytes(range(16))
SMALL = Bounds(near=24, noted=6, runs=3, gone=12)


def timer(position: int, due_us: int, number: int = 0) -> Run:
    """Return a TIMER at `position`."""
    run = encode_one(b"body", None)
    run.kind, run.topic = TIMER, "t"
    run.extension = with_timing(b"", Timing(due_us, number))
    run.position, run.size = position, 128
    return run


class Lock:
    """What DueFiles needs of a commit queue."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    @property
    def lock(self) -> Lock:
        return self

    changing = lock


def files_of(timers: Timers, disk: CrashDisk) -> DueFiles:
    directory = disk.directory("data", make=True)
    queue: CommitQueue = Lock()  # type: ignore[assignment]
    return DueFiles(directory, STORE, timers, queue)


@pytest.mark.parametrize("seed", range(within_budget(4)))
def test_timers_agree_with_a_dict(seed: int) -> None:
    """Add, fire, recall, carry forward, write and open again, merge; in any order."""
    print(f"{seed=}")
    random, disk = Random(seed), CrashDisk()
    timers, model = Timers(0, SMALL), dict[int, int]()  # number: due
    newest: dict[int, int] = {}
    position, now = 64, 0
    for _ in range(600):
        step = random.choice(("add", "add", "add", "fire", "recall", "carry", "note", "merge"))
        if step == "add":
            for _ in range(random.randint(1, 8)):
                position += 128
                due = now + random.randint(0, 400)
                timers.add(timer(position, due))
                model[position], newest[position] = due, position
        elif step == "fire":
            now += random.randint(0, 40)
            taken = timers.due(now, random.randint(1, 9), 1 << 20)
            expected = sorted((due, number) for number, due in model.items() if due <= now)
            assert [(each.due_us, each.number) for each in taken] == expected[: len(taken)]
            assert len(taken) == len(expected) or taken
            assert [each.position for each in taken] == [newest[each.number] for each in taken]
            for each in taken[: random.randint(0, 9)]:
                timers.fire(each.number, now)
                del model[each.number]
            timers.put_back()
        elif step == "recall" and model:
            number = random.choice(sorted(model))
            assert timers.find(Timing(model[number], number)) is not None
            assert timers.find(Timing(model[number] + 1, number)) is None
            timers.recall(Timing(model[number], number))
            assert timers.find(Timing(model[number], number)) is None
            del model[number]
        elif step == "carry" and model:
            for number in random.sample(sorted(model), min(4, len(model))):
                position += 128
                timers.add(timer(position, model[number], number))
                newest[number] = position
        elif step == "merge":
            files_of(timers, disk).merge(all_of_them=random.random() < 0.3)
        elif step == "note":
            timers = written_and_opened(timers, disk)
        listed = [(each.due_us, each.number) for each in timers.after(b"", 1 << 20)]
        assert listed == sorted((due, number) for number, due in model.items())
        assert timers.waiting == len(model)
        assert timers.messages == len(model)
        assert timers.bytes == 4 * len(model)
        assert timers.next_due_us() == min(model.values(), default=None)
    assert len(timers.view().runs) > 1


def written_and_opened(timers: Timers, disk: CrashDisk) -> Timers:
    """Return the timers that an engine knows if it opens a checkpoint of this instant."""
    files = files_of(timers, disk)
    noted = timers.noted(STORE)
    obsolete, timers.obsolete = timers.obsolete, []
    files.save()
    files.remove(obsolete)
    if noted is not None:
        check_timers(noted)
    directory, again = disk.directory("data", make=False), Timers(0, timers.bounds)
    assert carry_timers(again, noted, directory, STORE)
    number_files(again, directory)
    assert again.state() == timers.state()
    timers.close()
    return again


def test_memory_does_not_grow_with_the_number() -> None:
    timers, disk = Timers(), CrashDisk()
    files = files_of(timers, disk)
    for number in range(1, 100_000):
        timers.add(timer(number * 8, 1_000_000 + number * 7919 % 100_003))
        if number % 20_000 == 0:
            timers.noted(STORE)
            files.save()
            files.merge()
    timers.noted(STORE)
    files.save()
    assert timers.waiting == 99_999
    assert len(timers._near) <= timers.bounds.noted
    assert sum(run.bytes_in_memory() for run in timers.view().runs) == 0
    assert len(timers.due(2_000_000, 1000, 1 << 20)) == 1000


def test_a_timer_that_ends_twice_is_refused() -> None:
    timers = Timers()
    timers.add(timer(64, 10))
    with pytest.raises(IllegalStep, match="before it is due"):
        timers.fire(64, 9)
    timers.fire(64, 10)
    for end in (lambda: timers.fire(64, 10), lambda: timers.recall(Timing(10, 64))):
        with pytest.raises(IllegalStep, match="does not wait"):
            end()
    with pytest.raises(IllegalStep, match="carried forward"):
        timers.add(timer(128, 10, 64))


def test_the_end_of_a_timer_from_a_dropped_segment_is_ignored() -> None:
    """Retention has dropped the record of the timer. What ends it is left."""
    timers = Timers(known_from=4096)
    timers.fire(64, 10)
    timers.recall(Timing(10, 128))
    timers.add(timer(5000, 10, 192))
    timers.add(timer(6000, 10, 192))
    assert timers.waiting == 1
    with pytest.raises(IllegalStep):
        timers.fire(4096, 10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runs", None),
        ("runs", [["x", 0, 0]]),
        ("runs", [["00000000000000000001.seg", 0, 0]]),
        ("runs", [["00000000000000000001.due", -1, 0]]),
        ("runs", [["00000000000000000001.due", 0, 1 << 32]]),
        ("near", "00"),
        ("near", "xx"),
        ("near", 3),
        ("gone", "00" * 7),
        ("counts", [0, 0, 0]),
        ("counts", [0, 0, 0, -1]),
    ],
)
def test_timers_of_a_checkpoint_with_a_wrong_field_are_refused(name: str, value: object) -> None:
    timers = Timers()
    timers.add(timer(64, 10))
    noted = timers.noted(STORE)
    assert noted is not None
    check_timers(noted)
    with pytest.raises((ValueError, TypeError)):
        check_timers({**noted, name: value})


def test_a_checkpoint_without_timers_does_not_mention_them() -> None:
    timers = Timers()
    assert timers.noted(STORE) is None
    with pytest.raises(ValueError, match="timers are"):
        check_timers(3)
