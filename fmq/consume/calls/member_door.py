# Made of fmq/aio/face/member_door.py by tools/make_faces.py: change that file, and run it.
"""What carries out the calls of a consumer and of its deliveries: a member of a group.

It is one of an engine of this process, of another process, or on a loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from fmq.basics.message import Message
from fmq.consume.calls.in_hand import Draining
from fmq.consume.calls.lookahead import Lookahead
from fmq.consume.claims.backoff import Retry
from fmq.consume.claims.delivery import Delivery, DeliveryBatch
from fmq.consume.claims.handed import HandedRange, Held


class MemberDoor(Protocol):
    """A member of a group, which carries out the calls of its consumer and of its deliveries.

    They have checked the arguments. A range is given as its claim, the offset of its first message
    and the one after its last.
    """

    topics: tuple[str, ...]
    named: str
    """The group, as the program has named it."""
    name: str
    retry: Retry
    lease_seconds: float
    is_ordered: bool
    loop_seconds: float
    """For how long one poll of a loop waits."""

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
        """Return deliveries; none after `timeout` seconds, or once it drains."""
        ...

    def poll_batch(self, limit: int, timeout: float) -> DeliveryBatch | None:
        """Return messages of one queue; None after `timeout` seconds, or once it drains."""

    def take(self, limit: int, timeout: float, sync: bool | None) -> list[Message]:
        """Return messages of one queue, whose ack is written as `sync` says."""
        ...

    def ack(self, claim: Any, first: int, end: int, sync: bool | None) -> None:
        """Ack a range; raise LeaseLost."""

    def ack_all(self, ranges: list[Held[Any]], sync: bool | None) -> None:
        """Ack several ranges, or none; raise LeaseLost."""

    def extend(self, claim: Any, first: int, end: int, seconds: float) -> None:
        """Let the lease of a range end `seconds` from now; raise LeaseLost."""

    def give_back(self, claim: Any, first: int, end: int, delay: float, *, count: bool) -> None:
        """Redeliver a range after `delay` seconds; raise LeaseLost. Say whether to `count` it."""

    def give_back_unseen(self, deliveries: Iterable[HandedRange]) -> None:
        """Redeliver what a loop has taken, and its program has not seen. Raises nothing."""

    def reject(self, claim: Any, first: int, end: int, reason: str) -> None:
        """Make dead letters of a range; raise LeaseLost."""

    def count_members(self) -> int:
        """Return how many members the group has."""
        ...

    def drain(self, timeout: float) -> bool:
        """Take nothing new. Return whether nothing is in hand within `timeout` seconds."""
        ...

    def close(self, *, counts: bool) -> None:
        """Leave the group. Without `counts`, attempts of messages in hand do not count."""
