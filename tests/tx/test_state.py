"""The table of what may follow what, row by row, and everything that is not in it."""

from __future__ import annotations

from itertools import product

import pytest

from fmq.store.bytes.kinds import Kind
from fmq.tx.ledger.state import NEXT, IllegalStep, State, after

ALLOWED = {
    ("absent", "PREPARE"): "undecided",
    ("absent", "TX_MESSAGE"): "committing",
    ("absent", "TIMER"): "committing",
    ("absent", "ACK"): "committing",
    ("absent", "MARK"): "committing",
    ("absent", "COMMIT"): "committed",
    ("undecided", "PREPARE"): "undecided",
    ("undecided", "PRE_MESSAGE"): "undecided",
    ("undecided", "REF_MESSAGE"): "committing",
    ("undecided", "TX_MESSAGE"): "committing",
    ("undecided", "MARK"): "undecided",
    ("undecided", "TIMER"): "committing",
    ("undecided", "ACK"): "committing",
    ("undecided", "COMMIT"): "committed",
    ("undecided", "ROLLBACK"): "rolled back",
    ("committing", "REF_MESSAGE"): "committing",
    ("committing", "TX_MESSAGE"): "committing",
    ("committing", "MARK"): "committing",
    ("committing", "TIMER"): "committing",
    ("committing", "ACK"): "committing",
    ("committing", "COMMIT"): "committed",
}
"""Written a second time on purpose: a rule of the journal never changes by accident."""


def word(state: State) -> str:
    return state.name.lower().replace("_", " ")


@pytest.mark.parametrize(("state", "kind"), NEXT)
def test_every_step_in_the_table_leads_to_its_state(state: State, kind: Kind) -> None:
    assert word(after(state, kind)) == ALLOWED[word(state), kind.name]


@pytest.mark.parametrize(("state", "kind"), [*product(State, Kind)])
def test_a_step_that_is_not_in_the_table_is_refused(state: State, kind: Kind) -> None:
    if (word(state), kind.name) in ALLOWED:
        assert (state, kind) in NEXT
        return
    with pytest.raises(IllegalStep, match=f"{kind.name} cannot follow {word(state)}"):
        after(state, kind)


def test_no_step_follows_a_decision() -> None:
    """A decision never changes."""
    decided = {State.COMMITTED, State.ROLLED_BACK}
    assert not [step for step in NEXT if step[0] in decided]
