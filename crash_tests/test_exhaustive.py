"""Every short workload."""

from itertools import islice

from crash_tests.budget import Budget
from crash_tests.exhaustive import ALPHABET, MODES, OPTIONS, Exhaustive, words, workloads
from crash_tests.explore import Depth, Explorer
from crash_tests.failure import Failure
from crash_tests.mutants import ROOT
from crash_tests.suite import SEED, one_of
from crash_tests.workload import Workload

UP_TO_TWO_STEPS = sum(1 for n in (1, 2) for mode in MODES for _ in words(n, mode))


def test_each_workload_of_up_to_two_steps_keeps_every_promise() -> None:
    found: list[Failure] = []
    budget = Budget(SEED, rounds=UP_TO_TWO_STEPS, full=0.0, every=one_of(16), found=found.append)
    tally = Exhaustive().run(budget)
    assert not found, found[0]
    assert tally.workloads == UP_TO_TWO_STEPS > 150


def test_every_kind_of_step_occurs_in_some_short_workload() -> None:
    assert {letter for word in words(3, "interval") for letter in word} == ALPHABET.keys()


def test_the_readme_has_the_numbers_of_short_workloads() -> None:
    counts = [sum(1 for mode in MODES for _ in words(length, mode)) for length in range(1, 6)]
    readme = (ROOT / "crash_tests" / "README.md").read_text()
    assert f"up to three steps, {sum(counts[:3]):,} workloads" in readme
    assert f"up to five are {sum(counts):,}" in readme


def test_no_step_of_a_short_workload_is_refused() -> None:
    """A refused step would test nothing, without a notice."""
    for workload in islice(workloads(3), SEED % one_of(24), None, one_of(24)):
        run = Explorer(workload).start()
        assert run.go()
        assert not run.refused, workload.name
        run.live.close()


def test_enumeration_goes_on_where_it_ended() -> None:
    """A workload has the same number wherever the enumeration begins."""
    whole = list(islice(workloads(3), 300))
    assert list(islice(workloads(3, first=150), 150)) == whole[150:]
    assert len({workload.name for workload in whole}) == len(whole)


def test_a_message_that_retention_has_dropped_was_there_before() -> None:
    """Test it also if no sync was reported, and nothing was read before the crash."""
    steps = [ALPHABET[each] for each in "fsfs"]
    workload = Workload("fsfs", steps, {**OPTIONS, "sync": "interval"})
    tally = Explorer(workload, depth=Depth(full=0.0, every=one_of(4))).explore()
    assert not tally.failures, tally.failures[0]


def test_crashes_of_the_last_step_and_of_the_shorter_workload_are_all() -> None:
    """Of each workload only the crashes in its last step are tried. The earlier ones are those of
    a shorter workload.
    """
    shorter, longer = (Workload("", [ALPHABET[each] for each in word]) for word in ("sp", "spc"))
    before, whole, last = (
        {number for number, _ in Explorer(workload, since=since).moments()}
        for workload, since in ((shorter, 0), (longer, 0), (longer, 2))
    )
    assert whole == before | last
    assert len(last) < len(whole)
