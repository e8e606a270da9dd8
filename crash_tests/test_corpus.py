"""Failures of the past do not appear again, and would be found if they did."""

import pytest

from crash_tests.budget import Budget
from crash_tests.corpus import Corpus, files
from crash_tests.failure import Failure, load
from crash_tests.mutants import shows
from crash_tests.planted import MUTANTS
from crash_tests.suite import SEED, one_of


def test_no_failure_of_the_corpus_fails_again() -> None:
    """Repeat each failure as it was, and some other crashes of the same workload."""
    found: list[Failure] = []
    tally = Corpus().run(Budget(SEED, full=0.0, every=one_of(12), found=found.append))
    assert not found, found[0]
    assert tally.workloads == len(files()) > 0


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_a_file_of_the_corpus_fails_with_its_planted_bug(file) -> None:
    """A file that does not show its bug any more does no harm, but is of no use."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == load(file).planted]
    assert shows(mutant, file)


def test_a_failure_is_the_same_after_it_was_written_down(tmp_path) -> None:
    for file in files():
        failure = load(file)
        failure.save(tmp_path / "again.json")
        assert load(tmp_path / "again.json").as_json() == failure.as_json()
