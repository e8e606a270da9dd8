"""A table of the journal shows what engines show of it, whatever a crash left."""

from crash_tests.budget import Budget
from crash_tests.tables import Tables


def test_tables_show_what_engines_show() -> None:
    """Some states of every crash point of the corpus's workloads; `--tier tables` has all."""
    tally = Tables().run(Budget(seed=1, rounds=1))
    assert not tally.failures, tally.failures[0]
    assert tally.states > 80
