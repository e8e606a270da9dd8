"""What cannot be shared is refused with an error that says what to do."""

from __future__ import annotations

import inspect
import pickle
from functools import partial
from typing import Any

import pytest

from fmq.allocation import (
    NAMES,
    allocate,
    average,
    by_circle,
    by_configuration,
    by_name,
    by_room,
    consistent_hash,
    describe,
    nearby,
    sticky,
    wants_before,
)
from fmq.errors import BadAllocation, UsageError


def room(value: object) -> str:
    return "here"


ALL: list[Any] = [
    *(average, by_circle, sticky, consistent_hash(), by_configuration({"a": [0]})),
    *(by_room(["here"], room), nearby(average, room, room), partial(allocate, average)),
]


@pytest.mark.parametrize("strategy", ALL)
@pytest.mark.parametrize(
    ("queues", "members", "match"),
    [
        ([0], [], r"no members.* once a member has joined\."),
        ([], ["a"], r"no queues.* Pass the queues of the topic"),
        ([0], ["a", ""], r"empty name\. Give each member a name"),
        ([0, 1], ["a", "b", "a"], r"member 'a' is given twice\. Give"),
        ([0, 1, 0], ["a"], r"queue 0 is given twice\. Pass each queue once"),
    ],
)
def test_arguments_that_cannot_be_shared_are_refused(
    strategy: Any, queues: list[int], members: list[str], match: str
) -> None:
    with pytest.raises(BadAllocation, match=rf"{match}.* Nothing was changed\.$"):
        strategy(queues, members)


@pytest.mark.parametrize("strategy", ALL)
def test_arguments_of_a_wrong_type_are_refused(strategy: Any) -> None:
    for queues, members in (([0], "ab"), ("01", ["a"]), ([0], [7]), ([0], [None])):
        with pytest.raises(TypeError, match=r"not (str|int|NoneType)"):
            strategy(queues, members)


def test_bad_allocation_is_a_usage_error_and_a_value_error() -> None:
    assert issubclass(BadAllocation, UsageError)
    assert issubclass(BadAllocation, ValueError)


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"a": [0, 1], "b": [2, 1]}, r"queue 1 for 'a' and 'b'\. .* list it once"),
        ({"a": [0, 1, 0]}, r"queue 0 twice for 'a'\. .* list it once"),
        ({"": [0]}, "empty name"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(table: Any, match: str) -> None:
    """At once, not at the first call."""
    with pytest.raises(BadAllocation, match=match):
        by_configuration(table)


@pytest.mark.parametrize("table", [{"a": "01"}, {"a": 0}, {7: [0]}])
def test_a_table_of_a_wrong_type_is_refused(table: Any) -> None:
    with pytest.raises(TypeError):
        by_configuration(table)


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "10", None])
def test_a_ring_without_points_is_refused(number: Any) -> None:
    with pytest.raises(BadAllocation, match=r"virtual_nodes=.*10 is the default"):
        consistent_hash(number)


def test_impossible_rooms_are_refused() -> None:
    with pytest.raises(BadAllocation, match=r"rooms is empty.* Name the rooms"):
        by_room([], room)
    with pytest.raises(TypeError, match="pass a list"):
        by_room("here", room)


@pytest.mark.parametrize("nowhere", [None, ""])
def test_nearby_refuses_queues_and_members_without_a_room(nowhere: Any) -> None:
    for strategy, what in (
        (nearby(average, lambda queue: nowhere, room), r"queue_room\(0\)"),
        (nearby(average, room, lambda member: nowhere), r"member_room\('a'\)"),
    ):
        with pytest.raises(BadAllocation, match=rf"{what} returned .*every .* in a room\. Return"):
            strategy([0], ["a"])


def test_a_table_can_name_the_rooms() -> None:
    wrong: Any = {0: 7}
    with pytest.raises(TypeError, match=r"queue_room\[0\] is a str, not int"):
        by_room(["here"], wrong)
    with pytest.raises(BadAllocation, match=r"member_room has an empty room for 'a'"):
        nearby(average, {}, {"a": ""})


@pytest.mark.parametrize("name", ["", "Average", "nearby"])
def test_an_unknown_name_is_refused_with_a_list_of_known_ones(name: str) -> None:
    with pytest.raises(BadAllocation, match="Use one of average, by_circle, consistent_hash, stic"):
        by_name(name)


def test_a_name_that_is_not_a_str_is_refused() -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match="is a str, not int"):
        by_name(wrong)


@pytest.mark.parametrize(
    ("shares", "match"),
    [
        ({"a": [0], "b": [0, 1]}, "gave the queue 0 to 'a' and to 'b'"),
        ({"a": [0, 0]}, "gave the queue 0 to 'a' and to 'a'"),
        ({"a": [2]}, "gave 'a' the queue 2, which the topic does not have"),
        ({"c": [0]}, "gave queues to 'c', which is not a member"),
    ],
)
def test_a_result_that_is_no_valid_share_is_refused(shares: Any, match: str) -> None:
    def wrong(queues: object, members: object) -> Any:
        return shares

    with pytest.raises(BadAllocation, match=rf"strategy \S+wrong {match}\. Return each queue once"):
        allocate(wrong, [0, 1], ["a", "b"])


def test_a_strategy_may_leave_out_members_and_queues() -> None:
    assert allocate(lambda queues, members: {"b": (1,)}, [0, 1], ["a", "b"]) == {"a": [], "b": [1]}


def test_only_a_strategy_that_asks_for_it_gets_the_former_result() -> None:
    given: list[Any] = []

    class Mine:
        name = "mine"
        wants_before = True

        def __call__(self, queues: Any, members: Any, before: Any = None) -> Any:
            given.append(before)
            return {}

    before = {"a": [0]}
    assert allocate(Mine(), [0], ["a"], before) == {"a": []}
    assert allocate(average, [0], ["a"], before) == before
    assert given == [before]
    assert [
        wants_before(each) for each in (Mine(), sticky, average, nearby(sticky, room, room))
    ] == [*(True, True, False, True)]
    assert not wants_before(nearby(average, room, room))


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_with_a_name_is_found_by_it(name: str) -> None:
    assert by_name(name) is NAMES[name]
    assert describe(by_name(name)).partition("(")[0] == name


HERE = __name__
TEXTS: list[tuple[Any, str]] = [
    (average, "average"),
    (by_circle, "by_circle"),
    (sticky, "sticky"),
    (consistent_hash(), "consistent_hash(virtual_nodes=10)"),
    (consistent_hash(3, repr), "consistent_hash(virtual_nodes=3, queue_key=repr)"),
    (by_room({"b", "a"}, room), f"by_room(rooms=['a', 'b'], queue_room={HERE}.room)"),
    (
        nearby(consistent_hash(), room, str.lower),
        f"nearby(consistent_hash(virtual_nodes=10), queue_room={HERE}.room, member_room=str.lower)",
    ),
    (by_room(["a"], {1: "b", 0: "a"}), "by_room(rooms=['a'], queue_room={0: 'a', 1: 'b'})"),
    (
        nearby(average, {0: "a"}, {"m": "a"}),
        "nearby(average, queue_room={0: 'a'}, member_room={'m': 'a'})",
    ),
    (by_configuration({"b": [2], "a": [1, 0]}), "by_configuration({'a': [0, 1], 'b': [2]})"),
    (room, f"{HERE}.room"),
]


@pytest.mark.parametrize(("strategy", "text"), TEXTS)
def test_the_text_of_a_strategy_is_stable(strategy: Any, text: str) -> None:
    """No address of an object is in it, and nothing of the order of a set or a table."""
    assert describe(strategy) == text
    if not inspect.isfunction(strategy):
        assert repr(strategy) == text


def test_equal_arguments_make_equal_strategies() -> None:
    def made() -> list[Any]:
        return [
            *(consistent_hash(3), by_room({"b", "a"}, room), nearby(sticky, room, room)),
            by_configuration({"b": [2], "a": [1, 0]}),
        ]

    assert made() == made()
    assert set(made()) == set(made())
    assert consistent_hash(3) != consistent_hash(4)
    assert by_configuration({"a": [0]}) != by_configuration({"a": [1]})
    assert consistent_hash(10) == by_name("consistent_hash")
    assert pickle.loads(pickle.dumps([consistent_hash(3), sticky])) == [consistent_hash(3), sticky]


def test_a_strategy_cannot_be_changed() -> None:
    strategy: Any = consistent_hash()
    with pytest.raises(AttributeError):
        strategy.virtual_nodes = 7
    other: Any = sticky
    with pytest.raises(AttributeError):
        other.wants_before = False


def test_an_object_without_a_name_is_refused() -> None:
    """Its text would differ from process to process."""
    nameless = partial(room)
    for call in (
        lambda: describe(nameless),
        lambda: consistent_hash(queue_key=nameless),
        lambda: by_room(["here"], nameless),
        lambda: nearby(average, nameless, room),
    ):
        with pytest.raises(BadAllocation, match=r"type partial has no name.* attribute `name`"):
            call()
