"""What holds for the shares of every strategy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.allocation import (
    allocate,
    average,
    by_circle,
    by_configuration,
    by_room,
    consistent_hash,
    nearby,
    sticky,
)

MEMBERS = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=7, unique=True)
QUEUES = st.lists(st.integers(0, 40), min_size=1, max_size=20, unique=True)


def room_of_queue(queue: int) -> str:
    return "abc"[queue % 3]


def room_of_member(member: str) -> str:
    return "abcd"[ord(member[0]) % 4]


WHOLE: dict[str, Any] = {
    "average": average,
    "by_circle": by_circle,
    "consistent_hash": consistent_hash(),
    "sticky": sticky,
    "by_room": by_room(["a", "b", "c"], room_of_queue),
    "nearby average": nearby(average, room_of_queue, room_of_member),
    "nearby sticky": nearby(sticky, room_of_queue, room_of_member),
}
EVEN = ("average", "by_circle", "sticky", "by_room")


@pytest.mark.parametrize("name", WHOLE)
@given(QUEUES, MEMBERS)
def test_each_queue_has_one_member_and_every_member_is_listed(
    name: str, queues: list[int], members: list[str]
) -> None:
    """The members keep their order, and the same arguments give the same shares."""
    shares = WHOLE[name](queues, members)
    assert list(shares) == members
    assert sorted(chain(*shares.values())) == sorted(queues)
    assert WHOLE[name](tuple(queues), tuple(members)) == shares
    assert allocate(WHOLE[name], queues, members) == shares


@pytest.mark.parametrize("name", EVEN)
@given(QUEUES, MEMBERS)
def test_the_counts_of_even_strategies_differ_by_at_most_one(
    name: str, queues: list[int], members: list[str]
) -> None:
    counts = [len(share) for share in WHOLE[name](queues, members).values()]
    assert max(counts) - min(counts) <= 1


@given(QUEUES, MEMBERS, st.randoms(use_true_random=False))
def test_consistent_hash_does_not_depend_on_the_order_of_members(
    queues: list[int], members: list[str], random: Any
) -> None:
    """If two members had a point in one place, the order would matter: that hardly ever happens."""
    shares = consistent_hash()(queues, members)
    random.shuffle(members)
    random.shuffle(queues)
    again = consistent_hash()(queues, members)
    assert {member: sorted(share) for member, share in again.items()} == {
        member: sorted(share) for member, share in shares.items()
    }


@given(QUEUES, MEMBERS.filter(lambda members: len(members) > 1))
def test_consistent_hash_moves_only_queues_of_joining_or_leaving_members(
    queues: list[int], members: list[str]
) -> None:
    with_all = consistent_hash()(queues, members)
    without_last = consistent_hash()(queues, members[:-1])
    for member in members[:-1]:
        assert set(with_all[member]) <= set(without_last[member])


@given(QUEUES, MEMBERS)
def test_nearby_reads_each_room_from_within_while_it_has_a_member(
    queues: list[int], members: list[str]
) -> None:
    """A queue of a room with members is read there. Other rooms are shared by all, evenly."""
    shares = WHOLE["nearby average"](queues, members)
    live = {room_of_member(member) for member in members}
    for member, share in shares.items():
        assert {room_of_queue(queue) for queue in share} & live <= {room_of_member(member)}
    for room in set("abc") - live:
        counts = [[room_of_queue(q) for q in share].count(room) for share in shares.values()]
        assert max(counts) - min(counts) <= 1


@given(QUEUES, MEMBERS, st.sets(st.sampled_from("abc"), min_size=1))
def test_by_room_leaves_out_the_queues_of_other_rooms(
    queues: list[int], members: list[str], rooms: set[str]
) -> None:
    shares = by_room(rooms, room_of_queue)(queues, members)
    assert sorted(chain(*shares.values())) == sorted(q for q in queues if room_of_queue(q) in rooms)


TABLE = {"a": [3, 0], "b": [1], "away": [2], "none": []}


def test_by_configuration_gives_what_the_table_has_and_nothing_else() -> None:
    """No member reads queue 2, as its member is away, and 4, as the table has not got it. Queue 9
    does not exist in the topic.
    """
    strategy = by_configuration({**TABLE, "c": [9]})
    shares = strategy(range(5), ["new", "c", "b", "a"])
    assert shares == {"new": [], "c": [], "b": [1], "a": [0, 3]}
    assert strategy(range(10), ["c"]) == {"c": [9]}


@given(QUEUES, MEMBERS)
def test_a_table_can_repeat_the_shares_of_another_strategy(
    queues: list[int], members: list[str]
) -> None:
    shares = average(queues, members)
    assert by_configuration(shares)(queues, members) == shares


def test_queues_may_be_anything_with_an_order() -> None:
    queues: Sequence[tuple[str, int]] = [("a", 0), ("a", 1), ("b", 0)]
    assert average(queues, ["x", "y"]) == {"x": [("a", 0), ("a", 1)], "y": [("b", 0)]}
    assert sticky(queues, ["x"]) == {"x": list(queues)}
    assert by_configuration({"x": queues})(queues, ["x"]) == {"x": list(queues)}
