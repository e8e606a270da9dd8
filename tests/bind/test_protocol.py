"""The protocol holds over all interleavings, and each of its rules is needed."""

from __future__ import annotations

import pytest

from tests.bind.protocol import Rules, disagreement

RIGHT = {
    "as it ships": Rules(),
    "prepared early": Rules(mark_first=False),
    "marked first and waiting, no tombstone is needed": Rules(fence=False),
}
WRONG = {
    "a plain SELECT": Rules(fence=False, waits=False),
    "a plain SELECT, prepared early": Rules(fence=False, waits=False, mark_first=False),
    "no tombstone, prepared early": Rules(fence=False, mark_first=False),
    "rolled back because COMMIT raised": Rules(in_doubt=False),
    "the tombstone purged early": Rules(tombstone_kept=False, mark_first=False),
    "the marker purged before the decision": Rules(marker_kept=False),
    "the conflict ignored": Rules(conflict_seen=False, mark_first=False),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_journal_committed_if_and_only_if_the_database_did(name: str) -> None:
    story, states = disagreement(RIGHT[name])
    assert story is None
    assert states > 80, "everything was explored"


@pytest.mark.parametrize("name", WRONG)
def test_rows_and_messages_disagree_if_a_rule_of_the_protocol_is_broken(name: str) -> None:
    story, _ = disagreement(WRONG[name])
    assert story is not None
    print(name, "·", " > ".join(story))
