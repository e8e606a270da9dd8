# Made of fmq/aio/face/member_door.py by tools/make_faces.py: change that file, and run it.
"""The door of a consumer and its deliveries: the member of a group that carries out their calls.

There is one class of members for an engine of this process, one for an engine of another process,
and one for a loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from fmq.basics.message import Message
from fmq.consume.calls.in_hand import Draining
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.backoff import Retry
from fmq.consume.claims.delivery import Delivery, DeliveryBatch
from fmq.consume.claims.handed import HandedRange, OwnedRange


class MemberDoor(Protocol):
    """A member of a group, which carries out the calls of its consumer and of its deliveries.

    The consumer and the delivery have checked the arguments. `claim`, `first` and `end` name
    messages: the claim that holds them, the offset of the first one, and the one after the last.
    """

    topics: tuple[str, ...]
    named: str
    """The group, as the program has named it."""
    name: str
    retry: Retry
    lease_seconds: float
    is_ordered: bool
    loop_seconds: float
    """The timeout of each poll that a `for` loop over the consumer makes."""

    @property
    def is_closed(self) -> bool: ...

    @property
    def draining(self) -> Draining: ...

    @property
    def aheads(self) -> set[Lookahead[Delivery]]: ...

    def check(self) -> None:
        """Raise if the consumer or its engine is closed."""

    def caller(self) -> object:
        """Return who calls: a thread, or a task of a loop."""

    def monotonic(self) -> float:
        """Return the time by a clock that never goes back."""
        ...

    def poll(self, limit: int, timeout: float) -> list[Delivery]:
        """Return deliveries; none if none comes within `timeout` seconds, or while draining."""
        ...

    def poll_batch(self, limit: int, timeout: float) -> DeliveryBatch | None:
        """Return messages of one queue; None if none comes within `timeout` seconds, or if the
        member drains.
        """

    def take(self, limit: int, timeout: float, sync: bool | None) -> list[Message]:
        """Return messages of one queue and ack them. `sync` says whether the ack is synced."""
        ...

    def ack(self, claim: Any, first: int, end: int, sync: bool | None) -> None:
        """Ack the messages from `first` up to `end`. Raises LeaseLost."""

    def ack_all(self, ranges: list[OwnedRange[Any]], sync: bool | None) -> None:
        """Ack all of `ranges`, or none of them if that raises LeaseLost."""

    def extend(self, claim: Any, first: int, end: int, seconds: float) -> None:
        """Let the lease of these messages end `seconds` from now. Raises LeaseLost."""

    def give_back(self, claim: Any, first: int, end: int, delay: float, *, count: bool) -> None:
        """Redeliver these messages after `delay` seconds. With `count` this attempt counts. Raises
        LeaseLost.
        """

    def give_back_unseen(self, deliveries: Iterable[HandedRange]) -> None:
        """Redeliver deliveries that a `for` loop has polled and its program has not seen. Raises
        nothing.
        """

    def reject(self, claim: Any, first: int, end: int, reason: str) -> None:
        """Move these messages to the dead letters of the group. Raises LeaseLost."""

    def count_members(self) -> int:
        """Return how many members the group has."""
        ...

    def drain(self, timeout: float) -> bool:
        """Take nothing new. Wait up to `timeout` seconds, and return whether nothing is in hand."""
        ...

    def close(self, *, counts: bool) -> None:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
