"""sticky is even, and moves as few queues as an even result can."""

from __future__ import annotations

from itertools import chain, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.allocation import average, nearby, sticky

MEMBERS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)
COUNTS = st.integers(1, 16)

# Former shares, with members that have left and queues that are gone, or given to two.
FORMER = st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 7), unique=True))


def stayed(before: dict[str, list[int]], after: dict[str, list[int]]) -> int:
    """The number of queues that still have their former member."""
    return sum(len(set(share) & set(before.get(member, ()))) for member, share in after.items())


def best(before: dict[str, list[int]], queues: list[int], members: list[str]) -> int:
    """The largest number that can stay in an even result, found by trying all results."""
    largest = 0
    for owners in product(members, repeat=len(queues)):
        counts = [owners.count(member) for member in members]
        if max(counts) - min(counts) <= 1:
            kept = sum(q in before.get(m, ()) for q, m in zip(queues, owners, strict=True))
            largest = max(largest, kept)
    return largest


def disjoint(former: dict[str, list[int]]) -> dict[str, list[int]]:
    seen: set[int] = set()
    result = {}
    for member, share in former.items():
        result[member] = [queue for queue in share if queue not in seen]
        seen.update(share)
    return result


@given(
    FORMER.map(disjoint),
    st.lists(st.integers(0, 7), min_size=1, max_size=6, unique=True),
    st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True),
)
def test_sticky_moves_as_few_queues_as_any_even_result(
    before: dict[str, list[int]], queues: list[int], members: list[str]
) -> None:
    """Method: try every way to share up to six queues among up to three members."""
    after = sticky(queues, members, before)
    counts = [len(share) for share in after.values()]
    assert max(counts) - min(counts) <= 1
    assert stayed(before, after) == best(before, queues, members)


@given(FORMER, st.lists(st.integers(0, 9), min_size=1, unique=True), MEMBERS)
def test_sticky_gives_each_queue_one_member_whatever_was_before(
    before: dict[str, list[int]], queues: list[int], members: list[str]
) -> None:
    """Also if a queue had two members. Each share is in the order of the queues."""
    after = sticky(queues, members, before)
    assert list(after) == members
    assert sorted(chain(*after.values())) == sorted(queues)
    counts = [len(share) for share in after.values()]
    assert max(counts) - min(counts) <= 1
    for share in after.values():
        assert share == sorted(share, key=queues.index)


@given(COUNTS, MEMBERS)
def test_sticky_without_a_former_result_is_average(count: int, members: list[str]) -> None:
    assert sticky(range(count), members) == average(range(count), members)
    assert sticky(range(count), members, {}) == average(range(count), members)


@given(COUNTS, st.lists(MEMBERS, min_size=2, max_size=6))
def test_sticky_moves_no_more_than_it_must_when_members_change(
    count: int, story: list[list[str]]
) -> None:
    """What stays is the sum of the smaller of former and new count, for the best new counts."""
    shares: dict[str, list[int]] = {}
    for members in story:
        after = sticky(range(count), members, shares)
        size, larger = divmod(count, len(members))
        had = [len(shares.get(member, ())) for member in members]
        most = sum(min(n, size) for n in had) + min(larger, sum(n > size for n in had))
        assert stayed(shares, after) == most
        assert sticky(range(count), members, after) == after
        assert sticky(range(count), members[::-1], after) == after
        shares = after


def test_a_joining_member_takes_one_queue_from_each_that_has_too_many() -> None:
    before = {"a": [0, 1, 2], "b": [3, 4, 5]}
    assert sticky(range(6), ["a", "b", "c"], before) == {"a": [0, 1], "b": [3, 4], "c": [2, 5]}


def test_new_queues_go_to_the_members_with_fewest() -> None:
    before = {"a": [0, 1], "b": [2]}
    assert sticky(range(5), ["a", "b"], before) == {"a": [0, 1, 3], "b": [2, 4]}
    assert sticky(range(4), ["a", "b"], before) == {"a": [0, 1], "b": [2, 3]}


def test_the_larger_share_goes_to_the_member_that_has_it() -> None:
    """Wherever that member is in the list."""
    before = {"a": [0], "b": [1, 2]}
    assert sticky(range(3), ["a", "b"], before) == before
    assert sticky(range(3), ["b", "a"], before) == before


@pytest.mark.parametrize("left", ["a1", "a2", "b1"])
def test_nearby_hands_the_former_result_to_sticky(left: str) -> None:
    """A member's room is its letter. Queues 0 to 5 are in room a, 6 to 9 in room b."""
    strategy = nearby(sticky, lambda queue: "a" if queue < 6 else "b", lambda member: member[0])
    assert strategy.wants_before
    before = strategy(range(10), ["a1", "a2", "a3", "b1", "b2"])
    members = [member for member in before if member != left]
    after = strategy(range(10), members, before)
    for member in members:
        assert set(before[member]) <= set(after[member])


def test_a_queue_that_two_members_had_stays_with_the_first_in_the_list() -> None:
    before = {"b": [0, 1], "a": [1, 2]}
    assert sticky(range(3), ["a", "b"], before) == {"a": [1, 2], "b": [0]}
    assert sticky(range(3), ["b", "a"], before) == {"b": [0, 1], "a": [2]}
