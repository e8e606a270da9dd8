"""The type of a strategy, and how to call one, which may be the user's own function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar

from fmq.allocation.checks import check_arguments
from fmq.allocation.description import describe
from fmq.errors import BadAllocation

Q = TypeVar("Q", bound=Hashable)

Strategy: TypeAlias = Callable[[Sequence[int], Sequence[str]], dict[str, list[int]]]


class StrategyWithBefore(Protocol):
    """A strategy whose third argument is the former result. It says so with `wants_before`."""

    @property
    def wants_before(self) -> bool:
        """True: this strategy takes the former result."""

    def __call__(
        self,
        queues: Sequence[int],
        members: Sequence[str],
        before: Mapping[str, Iterable[int]] | None = None,
    ) -> dict[str, list[int]]:
        """Return the queues of each member."""


def wants_before(strategy: Callable[..., Any]) -> TypeGuard[StrategyWithBefore]:
    """Return whether the strategy takes the former result as a third argument."""
    return getattr(strategy, "wants_before", False) is True


def call(
    strategy: Callable[..., Any],
    queues: Sequence[Q],
    members: Sequence[str],
    before: Mapping[str, Iterable[Q]] | None,
) -> dict[str, list[Q]]:
    """Return what the strategy returns, unchecked. Pass `before` if the strategy takes it."""
    if wants_before(strategy):
        shares = strategy(queues, members, before)  # type: ignore[arg-type]
    else:
        shares = strategy(queues, members)
    return shares  # type: ignore[return-value]


def allocate(
    strategy: Callable[..., Any],
    queues: Sequence[Q],
    members: Sequence[str],
    before: Mapping[str, Iterable[Q]] | None = None,
) -> dict[str, list[Q]]:
    """Return the queues of each member as `strategy` shares them, after checking the result.

    `before` is the former result, for a strategy that wants it. A member that the strategy leaves
    out gets nothing. Raises BadAllocation if the strategy gives a queue to two members, a queue
    that is not in `queues`, or anything to a member that is not in `members`.
    """
    check_arguments(queues, members)
    given = call(strategy, queues, members, before)
    shares = {member: list(given.get(member, ())) for member in members}
    wrong = None
    for member in given:
        if member not in shares:
            wrong = f"gave queues to {member!r}, which is not a member"
    owner: dict[Q, str] = {}
    known = set(queues)
    for member, share in shares.items():
        for queue in share:
            if queue not in known:
                wrong = f"gave {member!r} the queue {queue!r}, which the topic does not have"
            elif queue in owner:
                wrong = f"gave the queue {queue!r} to {owner[queue]!r} and to {member!r}"
            owner[queue] = member
    if wrong is not None:
        raise BadAllocation(
            f"the strategy {describe(strategy)} {wrong}. Return each queue once, for members and "
            "queues that were passed."
        )
    return shares
