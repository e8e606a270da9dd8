"""The set of acked offsets against a plain Python set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fmq.tx.ledger.acks import AckSet

RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))),
    max_size=25,
)


def made(ranges: list[tuple[int, int]], floor: int = 0) -> tuple[AckSet, set[int]]:
    acked, model = AckSet(floor), set(range(floor))
    for first, end in ranges:
        acked.add(first, end)
        model |= set(range(first, end))
        acked._check()
    return acked, model


@given(RANGES, st.integers(0, 5))
def test_an_ack_set_holds_the_same_offsets_as_a_set(
    ranges: list[tuple[int, int]], floor: int
) -> None:
    acked, model = made(ranges, floor)
    assert {offset for offset in range(60) if offset in acked} == model


@given(RANGES)
def test_the_floor_is_the_first_offset_without_an_ack(ranges: list[tuple[int, int]]) -> None:
    acked, model = made(ranges)
    assert acked.floor == min(set(range(60)) - model)


@given(RANGES, st.integers(0, 60), st.integers(0, 60))
def test_gaps_list_the_missing_offsets_in_order(
    ranges: list[tuple[int, int]], first: int, end: int
) -> None:
    acked, model = made(ranges)
    gaps = list(acked.gaps(first, end))
    assert [offset for gap in gaps for offset in range(*gap)] == [
        offset for offset in range(first, end) if offset not in model
    ]
    assert all(low < high for low, high in gaps)


@given(RANGES, RANGES)
def test_carried_acks_restore_the_same_set(
    ranges: list[tuple[int, int]], before: list[tuple[int, int]]
) -> None:
    """Checkpoints and STATE records carry acks as lists, which are added to known ones."""
    acked, model = made(ranges)
    again, known = made(before)
    floor, lists = acked.beyond(0)
    again.add(0, floor)
    for first, end in lists:
        again.add(first, end)
    again._check()
    assert {offset for offset in range(60) if offset in again} == model | known


@given(RANGES)
def test_the_order_of_acks_does_not_matter(ranges: list[tuple[int, int]]) -> None:
    one, _ = made(ranges)
    other, _ = made(ranges[::-1])
    assert one.beyond(0) == other.beyond(0)


@given(RANGES, RANGES, st.integers(0, 60))
def test_dropped_offsets_are_below_the_floor(
    before: list[tuple[int, int]], after: list[tuple[int, int]], first: int
) -> None:
    """An ack of dropped offsets changes nothing, before the drop or replayed after it."""
    acked, model = made(before)
    expected = acked.beyond(first)
    acked.drop_below(first)
    acked._check()
    assert acked.beyond(0) == expected
    for low, high in after:
        acked.add(low, high)
        acked._check()
    model |= set(range(first)).union(*(range(low, high) for low, high in after))
    assert {offset for offset in range(60) if offset in acked} == model
    assert acked.floor == min(set(range(61)) - model)


@given(RANGES, st.integers(0, 60))
def test_a_set_is_empty_until_an_ack_is_added(ranges: list[tuple[int, int]], first: int) -> None:
    """Dropping offsets does not change that. An ack of dropped offsets counts too."""
    acked = AckSet(first)
    assert acked.is_empty
    acked.drop_below(first + 5)
    assert acked.is_empty
    for low, high in ranges:
        acked.add(low, high)
    assert acked.is_empty is not any(low < high for low, high in ranges)
