"""The subscriptions of a ledger, and their index by group."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from fmq.tx.ledger.ledger import Subscription, Subscriptions

KEYS = st.tuples(st.sampled_from("gh"), st.sampled_from("abc"))


@given(st.lists(st.tuples(st.booleans(), KEYS), max_size=30))
def test_the_index_has_the_topics_of_each_group(steps: list[tuple[bool, tuple[str, str]]]) -> None:
    """Whatever was set, set again and deleted, a scan of all finds the same, in the same order."""
    known = Subscriptions()
    for is_deleted, key in steps:
        if not is_deleted:
            known[key] = Subscription(*key)
        elif key in known:
            del known[key]
    for each in (known, deepcopy(known)):
        for group in "ghi":
            assert each.topics_of(group) == tuple(topic for of, topic in each if of == group)
    assert known._topics.keys() == {group for group, _ in known}, "no group is left behind"
