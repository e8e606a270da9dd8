"""A table of the journal shows what engines show of it, whatever a crash left."""

from crash_tests.budget import Budget
from crash_tests.suite import SEED, one_of
from crash_tests.tables import Tables


def test_tables_show_what_engines_show() -> None:
    """A state of some crash points of each workload; `--tier tables` has all."""
    tally = Tables().run(Budget(SEED, rounds=1, every=one_of(48)))
    assert not tally.failures, tally.failures[0]
    assert tally.states > 10
