"""Schedules of threads: all keep the promises, each is the same every time, and a lie of the disk
is found out.
"""

import json
import threading
from random import Random

import pytest

import fmq
from crash_tests.__main__ import arguments
from crash_tests.budget import Budget
from crash_tests.explore import Depth
from crash_tests.failure import Failure, load
from crash_tests.mutants import caught
from crash_tests.oracle import Fate, Rules, Unit, Violation
from crash_tests.planted import MUTANTS
from crash_tests.run import Run
from crash_tests.threads.choosers import Chance, Follow
from crash_tests.threads.play import Play
from crash_tests.threads.programs import PROGRAMS, generate
from crash_tests.threads.promised import ThreadsOracle
from crash_tests.threads.schedule import Schedule
from crash_tests.threads.scheduler import Scheduler
from crash_tests.threads.shrink import shrink
from crash_tests.threads.steps import decide
from crash_tests.threads.tier import Threads
from crash_tests.threads.tour import Tour, replayed
from crash_tests.workload import Workload
from fmq.testing import CrashDisk

FEW = (
    "who planned during a write is answered with it",
    "the lead is not handed on",
    "a send is planned before the lock is taken",
)
WITHOUT_SEED = Schedule(lines=False)


def test_some_schedules_of_each_program_keep_every_promise() -> None:
    found: list[Failure] = []
    tally = Threads().run(Budget(seed=1, rounds=10, full=0.0, found=found.append))
    assert not found, found[0]
    assert tally.schedules == 10
    assert tally.states > 150


def test_every_schedule_with_one_preemption_is_run() -> None:
    """All schedules differ, and there is at least one for each place where a thread can stop."""
    tour = Tour(PROGRAMS["rivals"], 1, Depth(full=0.0))
    left = [left for _, left in tour.all_of(1)]
    assert tour.failure is None, tour.failure
    assert left[-1] == 0
    assert len(left) > left[0] > 20


@pytest.mark.parametrize("lines", [False, True])
def test_a_schedule_is_the_same_each_time(lines: bool) -> None:
    """The noted choices alone give the same turns, operations and moments as the random run."""
    for seed in range(5):
        workload = generate(seed)
        first = Play(workload, Chance(Random(seed), 3, 50), lines=lines)
        first.go()
        schedule = Schedule(lines, tuple(first.scheduler.choices))
        schedule = Schedule.from_json(json.loads(json.dumps(schedule.as_json())))
        again = Play(workload, Follow(schedule), lines=lines)
        again.go()
        assert again.scheduler.switches == first.scheduler.switches, seed
        assert again.places == first.places, seed


def test_threads_that_wait_for_each_other_are_reported() -> None:
    """Each thread takes one lock and wants the other's. The scheduler ends both threads."""
    before = {*threading.enumerate()}
    one, other, nobodys = threading.Lock(), threading.Lock(), threading.Lock()
    scheduler = Scheduler(Follow(WITHOUT_SEED), lines=False)
    nobodys.acquire()

    def take(first: threading.Lock, second: threading.Lock) -> None:
        scheduler.clock.wait(first, None)
        scheduler.clock.wait(nobodys, 1.0)  # lets the other one begin
        scheduler.clock.wait(second, None)

    scheduler.start("A", lambda: take(one, other))
    scheduler.start("B", lambda: take(other, one))
    with pytest.raises(Violation, match=r"I15.*A at.*B at"):
        scheduler.run()
    scheduler.abandon()
    assert {*threading.enumerate()} <= before


def test_time_passes_only_for_a_thread_that_waits_for_it() -> None:
    lock = threading.Lock()
    lock.acquire()
    scheduler = Scheduler(Follow(WITHOUT_SEED), lines=False)
    woken: list[bool] = []
    scheduler.start("A", lambda: woken.append(scheduler.clock.wait(lock, 3600.0)))
    scheduler.run()
    assert woken == [False]
    assert scheduler.clock.monotonic() == 3600.0


def test_a_failure_on_a_disk_that_does_not_sync_is_found_reduced_and_replayed(tmp_path) -> None:
    depth = Depth(full=0.0, honest=False)
    tour = Tour(PROGRAMS["one-order"], 1, depth)
    while tour.failure is None:
        tour.by_chance()
    smaller = shrink(tour.failure, depth, seconds=300)
    assert sum(map(len, smaller.workload.threads)) == 1
    assert smaller.schedule is not None
    assert not smaller.schedule.choices
    smaller.save(tmp_path / "failure.json")
    _, again = replayed(load(tmp_path / "failure.json"), honest=False)
    assert again is not None
    assert again.invariant == smaller.violation.invariant


def test_a_prepare_makes_durable_only_calls_that_returned_before_it() -> None:
    """The prepare may return after another thread has decided without a sync."""
    oracle = ThreadsOracle(Rules())
    oracle.trying_prepare(Unit("t1", {("a", 0): [b"1"]}, is_tx=True))

    def decide() -> None:
        oracle.trying(Unit("x", {("a", 0): [b"2"]}))
        oracle.returned("x", durable=False)
        oracle.trying_decision("t1", "commit")
        oracle.returned("t1", durable=False)

    other = threading.Thread(target=decide)
    other.start()
    other.join()
    oracle.returned("t1", durable=True)
    assert oracle.units["x"].fates == {Fate.ABSENT, Fate.VISIBLE}
    assert oracle.units["t1"].fates == {Fate.UNDECIDED, Fate.VISIBLE}


@pytest.mark.parametrize("vouching", ["a prepare", "a sync"])
def test_a_call_that_began_after_a_prepare_does_not_prove_its_decision(vouching: str) -> None:
    """The decision may have been planned after the position up to which the other call synced."""
    oracle = ThreadsOracle(Rules())
    oracle.trying_prepare(Unit("t1", {("a", 0): [b"1"]}, is_tx=True))
    oracle.returned("t1", durable=True)
    oracle.begin_step()
    oracle.trying_prepare(Unit("t2", {("a", 0): [b"2"]}, is_tx=True))

    def decide() -> None:
        oracle.trying_decision("t1", "commit")
        oracle.returned("t1", durable=False)

    other = threading.Thread(target=decide)
    other.start()
    other.join()
    if vouching == "a prepare":
        oracle.returned("t2", durable=True)
    else:
        oracle.synced()
    assert oracle.units["t1"].fates == {Fate.UNDECIDED, Fate.VISIBLE}
    oracle.begin_step()
    oracle.synced()
    assert oracle.units["t1"].fates == {Fate.VISIBLE}


def test_a_thread_that_finds_the_engine_closed_decides_nothing() -> None:
    """It has to ask the engine what is undecided, and another thread may have closed that."""
    oracle = ThreadsOracle(Rules())
    oracle.trying_prepare(Unit("t1", {("a", 0): [b"1"]}, is_tx=True))  # and its call never returned
    run = Run(PROGRAMS["rivals"], CrashDisk(), oracle)
    run.engine = fmq.open("data", disk=run.disk, background=False)
    run.engine.close()
    decide(run, "t1", "commit")
    assert oracle.units["t1"].fates == {Fate.ABSENT, Fate.UNDECIDED}


@pytest.mark.parametrize("name", FEW)
def test_a_bug_between_threads_is_caught(name: str) -> None:
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]
    assert caught(mutant)


def test_a_program_and_a_bound_choose_the_tier() -> None:
    assert arguments(["--workload", "rivals"]).tier == ["threads"]
    assert arguments(["--preemptions", "2"]).tier == ["threads"]


@pytest.mark.parametrize("kind", ["tx", "lazy tx", "sure tx", "prepare"])
def test_a_group_that_only_a_transaction_names_is_known(kind: str) -> None:
    """Its acks are promises, and the oracle asks for its topics."""
    step = [kind, "t1", [["b", 0, 1, 20]], "h"]
    workload = Workload("", [["send", "a", 0, 20]], threads=[[step]])
    assert "h" in workload.groups()
    tour = Tour(workload, 1, Depth(full=0.0))
    tour.follow(WITHOUT_SEED)
    assert tour.failure is None, tour.failure


@pytest.mark.parametrize("how", ["commit", "lazy commit", "sure commit", "rollback"])
def test_a_decision_that_comes_after_a_close_is_refused(how: str) -> None:
    """Another thread makes it, and it was not known whether the transaction is undecided."""
    workload = Workload(
        "",
        [["prepare", "t1", [["a", 0, 1, 150]], None]],
        threads=[[["close"]], [[how, "t1"]]],
    )
    tour = Tour(workload, 1, Depth(full=0.0))
    for _ in tour.all_of(1):
        assert tour.failure is None, tour.failure
