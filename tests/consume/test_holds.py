"""What a group holds of a queue, compared with a model that has one state for each message."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from fmq.basics.process import Process
from fmq.consume.claims.backoff import DEFAULT
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.holds import QueueHolds
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.queues import Topic
from tests.budget import within_budget


class Member:
    """Of the group."""

    name, retry = "m", DEFAULT
    process: Process | None = None


def claim_of(member: Member) -> Claim:
    return Claim(member, Topic("t", 1).queues[0], QueueHolds(AckSet()), 0, 0)


OWNERS = (claim_of(Member()), claim_of(Member()))


class Model:
    """The state of each message: free, acked, or held by an owner until a deadline."""

    def __init__(self) -> None:
        self.first = 0
        self.now = 0.0
        self.messages: list[object] = []
        self.acked = AckSet()
        self.holds = QueueHolds(self.acked)

    def unheld(self) -> list[int]:
        return [n for n, state in enumerate(self.messages) if state == "free" and n >= self.first]

    def held(self, owner: Claim) -> list[int]:
        return [
            n
            for n, state in enumerate(self.messages)
            if isinstance(state, tuple) and state[0] == owner
        ]

    # --- what may happen ------------------------------------------------------------------------

    def publish(self, a: int, b: int) -> None:
        self.messages += ["free"] * (a + 1)

    def claim(self, a: int, b: int) -> None:
        """Claim the lowest free messages: consecutive ones, at most `limit`."""
        owner, limit, free = OWNERS[b % 2], a + 1, self.unheld()
        deadline = self.now + 5 + b
        found = self.holds.next_range(len(self.messages), self.first, limit)
        if found is None:
            assert not free
            return
        first, end, count = found
        assert count == 0
        self.holds.hold(first, end, owner, deadline)
        assert free
        assert first == free[0]
        assert 1 <= end - first <= limit
        for offset in range(first, end):
            assert self.messages[offset] == "free", offset
            self.messages[offset] = (owner, deadline)

    def part(self, a: int, b: int) -> tuple[Claim, range]:
        """Return consecutive messages with one owner and deadline."""
        owner = OWNERS[b % 2]
        held = self.held(owner)
        if not held:
            return owner, range(0)
        first = held[a % len(held)]
        end = first
        while (
            end < len(self.messages)
            and self.messages[end] == self.messages[first]
            and end - first <= b
        ):
            end += 1
        return owner, range(first, end)

    def ack(self, a: int, b: int) -> None:
        _, part = self.part(a, b)
        if part:
            self.acked.add(part.start, part.stop)
            self.holds.end_acked(part.start, part.stop)
            for offset in part:
                self.messages[offset] = "acked"

    def ack_of_anything(self, a: int, b: int) -> None:
        """Ack any range, as a replay may."""
        part = range(min(a, len(self.messages)), min(a + b, len(self.messages)))
        if part:
            self.acked.add(part.start, part.stop)
            self.holds.end_acked(part.start, part.stop)
            for offset in part:
                self.messages[offset] = "acked"

    def give_back(self, a: int, b: int) -> None:
        _, part = self.part(a, b)
        if part and self.holds.is_held_by(part.start, part.stop, OWNERS[b % 2]):
            self.holds.give_back(part.start, part.stop)
            for offset in part:
                self.messages[offset] = "free"

    def give_back_any(self, a: int, b: int) -> None:
        """Give back all that is held in a range, as a roll back does, and nothing else."""
        part = range(min(a, len(self.messages)), min(a + b, len(self.messages)))
        self.holds.give_back_all(part.start, part.stop)
        for offset in part:
            if isinstance(self.messages[offset], tuple):
                self.messages[offset] = "free"

    def let_time_pass(self, a: int, b: int) -> None:
        self.now += a
        late = [
            n
            for n, state in enumerate(self.messages)
            if isinstance(state, tuple) and state[1] <= self.now
        ]
        assert self.holds.expire(self.now) == bool(late)
        for offset in late:
            self.messages[offset] = "free"

    def leave(self, a: int, b: int) -> None:
        self.holds.give_back_of(OWNERS[b % 2].member)
        for offset in self.held(OWNERS[b % 2]):
            self.messages[offset] = "free"

    def drop(self, a: int, b: int) -> None:
        """Drop the oldest messages, as retention does."""
        self.first = min(max(self.first, a), len(self.messages))

    # --- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        self.holds._check()
        for number, state in enumerate(self.messages):
            for owner in OWNERS:
                holds = isinstance(state, tuple) and state[0] == owner
                assert self.holds.is_held_by(number, number + 1, owner) == holds, (number, state)
        ends = [state[1] for state in self.messages if isinstance(state, tuple)]
        assert self.holds.next_deadline() == min(ends, default=math.inf)


STEPS = [
    Model.publish,
    Model.claim,
    Model.claim,
    Model.ack,
    Model.ack_of_anything,
    Model.give_back,
    Model.give_back_any,
    Model.let_time_pass,
    Model.leave,
    Model.drop,
]


@settings(max_examples=within_budget(100), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), max_size=40)
)
def test_every_message_is_free_held_by_one_or_acked(steps: list[tuple[object, int, int]]) -> None:
    """After any steps model and holds agree, and a claim takes the lowest free messages."""
    model = Model()
    for step, a, b in steps:
        step(model, a, b)  # type: ignore[operator]
        model.check()


def test_a_claim_skips_what_a_transaction_held_at_opening() -> None:
    acked = AckSet()
    holds = QueueHolds(acked)
    transaction = object()
    holds.reserve(2, 4, transaction)
    claimed = []
    while (found := holds.next_range(6, 0, 10)) is not None:
        holds.hold(*found[:2], "anna", 5.0)
        claimed.append(found[:2])
    assert claimed == [(0, 2), (4, 6)]
    assert not holds.expire(4.9)
    holds.expire(1e9)
    assert holds.is_held_by(2, 4, transaction)
    holds.give_back(2, 4)
    assert holds.next_range(6, 0, 10) == (0, 6, 0)


def test_messages_given_back_one_by_one_are_handed_out_together() -> None:
    """A transaction holds each delivery by itself. Its roll back makes one range of them again."""
    holds = QueueHolds(AckSet())
    assert holds.next_range(100, 0, 100) == (0, 100, 0)
    holds.hold(0, 100, "anna", 5.0)
    for offset in range(100):
        holds.give_back(offset, offset + 1)
    claimed = [holds.next_range(100, 0, 40) for _ in range(3)]
    assert claimed == [(0, 40, 0), (40, 80, 0), (80, 100, 0)]
