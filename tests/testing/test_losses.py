"""Which losses are tried: all of few changes, the telling shapes of many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from random import Random

import pytest

from fmq.testing import Loss, Tear, Torn
from fmq.testing.changes import Change, Cut, Room, Write
from fmq.testing.losses import losses, random_loss


def rooms(count: int) -> list[Change]:
    """Changes that happen whole or not at all, numbered from 10 on."""
    return [Room(10 + i, 1) for i in range(count)]


def kept(pending: list[Change]) -> list[frozenset[int]]:
    return [loss.kept for loss in losses(pending, Random(1))]


@pytest.mark.parametrize("count", range(6))
def test_every_subset_of_up_to_five_changes_is_tried(count: int) -> None:
    numbers = range(10, 10 + count)
    subsets = chain.from_iterable(combinations(numbers, size) for size in range(count + 1))
    assert sorted(map(sorted, kept(rooms(count)))) == sorted(map(list, subsets))


@pytest.mark.parametrize("count", [6, 40])
def test_of_many_pending_changes_some_subsets_are_tried(count: int) -> None:
    tried = kept(rooms(count))
    numbers = list(range(10, 10 + count))
    for i in range(count):
        assert frozenset(numbers[:i]) in tried
        assert frozenset(numbers[: i + 1]) in tried
        assert frozenset(numbers[i : i + 1]) in tried
        assert frozenset(numbers) - {numbers[i]} in tried
    assert len(tried) < 4 * count + 20
    others = set(tried) - {frozenset(numbers[:i]) for i in range(count + 1)}
    assert any(2 <= len(some) <= count - 2 for some in others), "some at random"


def test_simple_losses_come_before_torn_ones() -> None:
    tried = list(losses([Write(1, 0, b"abc", 0), Write(2, 3, b"def", 3)], Random(1)))
    assert tried[0] == Loss()
    assert tried[3] == Loss(frozenset({1, 2}))
    assert all(loss.torn is not None for loss in tried[4:])


def test_a_torn_write_is_tried_with_its_prefix_and_with_all_other_changes() -> None:
    writes = [Write(number, number * 3, b"abc", 0) for number in range(3)]
    tried = set(losses(writes, Random(1)))
    torn = Torn(1, 2, Tear.SHORT)
    assert {loss.kept for loss in tried if loss.torn == torn} == {
        frozenset({0}),
        frozenset({0, 2}),
    }


class OneTear:
    """A change that can be torn in one way."""

    number = 10

    def tears(self, random: Random) -> Iterator[Cut]:
        yield 1, Tear.SHORT


@pytest.mark.parametrize("pending", [[], rooms(1), rooms(9), [OneTear(), *rooms(3)[1:]]])
def test_a_random_loss_is_one_of_the_possible_losses(pending: list[Change]) -> None:
    numbers = {change.number for change in pending}
    chosen = {random_loss(pending, Random(seed)) for seed in range(300)}
    for loss in chosen:
        assert loss.kept <= numbers
        assert loss.torn is None or (loss.torn.number == 10 and 10 not in loss.kept)
    assert Loss() in chosen
    assert Loss(frozenset(numbers)) in chosen
    if len(numbers) == 9:
        assert len(chosen) > 50
    if any(isinstance(change, OneTear) for change in pending):
        torn = [loss.kept for loss in chosen if loss.torn]
        assert frozenset() in torn
        assert len(set(torn)) > 3, "also among later changes"
