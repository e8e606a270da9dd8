"""The strategies that RocketMQ has give what RocketMQ gives.

vectors.json holds what RocketMQ's own classes have returned. make_vectors.py says how. The cases of
RocketMQ's own tests are below with the numbers that these tests have.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fmq.allocation import (
    average,
    by_circle,
    by_configuration,
    by_room,
    consistent_hash,
    nearby,
)
from fmq.errors import BadAllocation

FILE = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))


class MessageQueue(NamedTuple):
    """A queue as RocketMQ has it."""

    topic: str
    broker: str
    number: int


def printed(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.number}]"


def room_before_at(queue: MessageQueue) -> str | None:
    """The room of a broker's name "room@broker", as AllocateMessageQueueByMachineRoom finds it."""
    parts = queue.broker.split("@")
    while parts and not parts[-1]:
        parts.pop()  # Java drops empty parts at the end
    return parts[0] if len(parts) == 2 else None


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker.partition("-")[0]


def room_of_member(member: str) -> str:
    return member.partition("-")[0]


def strategy_of(case: dict[str, Any]) -> Any:
    match case["strategy"]:
        case "average":
            return average
        case "by_circle":
            return by_circle
        case "consistent_hash":
            return consistent_hash(case["virtual_nodes"], printed)
        case "by_room":
            return by_room(case["rooms"], room_before_at)
        case "nearby":
            inner = strategy_of({"strategy": case["inner"], "virtual_nodes": 10})
            return nearby(inner, room_of_queue, room_of_member)
        case other:
            raise AssertionError(other)


def title(case: dict[str, Any]) -> str:
    more = [str(case[key]) for key in ("inner", "virtual_nodes", "rooms") if key in case]
    queues = sum(len(numbers) for *_, numbers in case["queues"])
    return "-".join([case["strategy"], *more, str(queues), str(len(case["members"]))])


@pytest.mark.parametrize("case", FILE["cases"], ids=title)
def test_shares_are_those_of_rocketmq(case: dict[str, Any]) -> None:
    """Each member gets the same queues in the same order."""
    queues = [
        MessageQueue(topic, broker, number)
        for topic, broker, numbers in case["queues"]
        for number in numbers
    ]
    expected = {
        member: [queues[index] for index in share]
        for member, share in zip(case["members"], case["shares"], strict=True)
    }
    shares = strategy_of(case)(queues, case["members"])
    assert shares == expected
    assert list(shares) == case["members"]


def test_there_are_vectors_of_every_strategy() -> None:
    """The file also has the cases that are easily lost: equal places, rooms without members."""
    strategies = [case["strategy"] for case in FILE["cases"]]
    assert {name: strategies.count(name) for name in dict.fromkeys(strategies)} == {
        "average": 84,
        "by_circle": 84,
        "consistent_hash": 28,
        "by_room": 30,
        "nearby": 18,
    }
    same_place = [case for case in FILE["cases"] if "m63437" in case["members"]]
    assert [case["shares"] for case in same_place] == [[[], [0, 1, 2, 3]]] * 2


# The folder of RocketMQ's tests: client/src/test/java/org/apache/rocketmq/client/consumer/rebalance
MEMBERS = [f"CID_PREFIX{number}" for number in range(4)]


def test_average_as_in_rocketmqs_test() -> None:
    """AllocateMessageQueueAveragelyTest.testAllocateMessageQueueAveragely."""
    shares = average(range(10), MEMBERS)
    assert [len(shares[member]) for member in MEMBERS] == [3, 3, 2, 2]


def test_by_circle_as_in_rocketmqs_test() -> None:
    """AllocateMessageQueueAveragelyByCircleTest.testAllocateMessageQueueAveragelyByCircle."""
    assert list(by_circle(range(10), MEMBERS).values()) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_by_room_as_in_rocketmqs_test() -> None:
    """AllocateMessageQueueByMachineRoomTest.testAllocateMessageQueueByMachineRoom."""
    strategy = by_room(["room1"], lambda queue: "room1" if queue < 5 else "room2")
    assert strategy(range(10), MEMBERS[:2]) == {MEMBERS[0]: [0, 1, 4], MEMBERS[1]: [2, 3]}


def test_by_configuration_refuses_what_rocketmqs_test_shows() -> None:
    """AllocateMessageQueueByConfigTest.testAllocateMessageQueueByConfig.

    There both members get all of the queues, so each message is read twice.
    """
    with pytest.raises(BadAllocation, match="queue 0 for 'CID_PREFIX0' and 'CID_PREFIX1'"):
        by_configuration({member: range(4) for member in MEMBERS[:2]})


@pytest.mark.parametrize(("queues", "members"), [(20, 10), (10, 20)])
def test_consistent_hash_moves_little_as_in_rocketmqs_test(queues: int, members: int) -> None:
    """AllocateMessageQueueConsitentHashTest.testAllocate1 and testAllocate2."""
    strategy = consistent_hash(3, printed)
    all_queues = [MessageQueue("topic_test", "brokerName", number) for number in range(queues)]
    names = [f"CID-{number}" for number in range(members)]
    first = strategy(all_queues, names)
    less = strategy(all_queues, names[1:])
    more = strategy(all_queues, [*names[1:], "CID-NEW"])
    for member in names[1:]:
        assert set(first[member]) <= set(less[member])
        assert set(more[member]) <= set(less[member])
    assert sorted(chain(*more.values())) == sorted(all_queues)
