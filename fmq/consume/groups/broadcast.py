"""Members that get every message: each is a group of its own, which goes with its consumer.

Its group has a name that no caller can give, begins after the newest message, and is deleted when
its consumer is closed. If the consumer is dropped, its connection ends, or its process is killed,
the group is deleted `reclaim_seconds` later, unless a client has come back to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from fmq.basics.clock import Clock
from fmq.consume.groups.administration import GroupChanges
from fmq.consume.groups.groups import Groups
from fmq.errors import BadOption, FmqError
from fmq.store.bytes.internal import broadcast_group, is_broadcast
from fmq.tx.ledger.ledger import Ledger


def check_broadcast(strategy: object, *, ordered: bool, strict: bool) -> None:
    """Raise BadOption for arguments that make no sense for a member that is alone in its group."""
    if strategy is not None or ordered or strict:
        raise BadOption(
            "broadcast=True: each member gets every message, so there is nothing to share out or "
            "to keep in order among members. Nothing was changed; leave strategy, ordered and "
            "strict away."
        )


class Broadcasts:
    """The groups of one engine that each have one member."""

    def __init__(
        self, changes: GroupChanges, groups: Groups, ledger: Ledger, clock: Clock, grace: float
    ) -> None:
        """A group without its member is kept for `grace` seconds, as a client may come back."""
        self._changes = changes
        self._groups = groups
        self._ledger = ledger
        self._clock = clock
        self._grace = grace
        self._unused_since: dict[str, float] = {}
        self._joining: dict[str, int] = {}
        self._may_be_some = True  # so that a round of chores looks at no other groups

    @contextmanager
    def joining(
        self, group: str, member: str, topics: Iterable[str], wanted: str | None
    ) -> Iterator[str]:
        """Make the group of a member, and keep it while the block makes its consumer."""
        name = broadcast_group(group, member)
        self._may_be_some = True
        self._joining[name] = self._joining.get(name, 0) + 1
        try:
            self._changes.join(name, topics, wanted, at_end=True)
            yield name
        finally:
            self._joining[name] -= 1
            if not self._joining[name]:
                del self._joining[name]

    def _is_used(self, name: str) -> bool:
        return name in self._groups.rooms or name in self._joining

    def _unused(self) -> list[str]:
        if not self._may_be_some:
            return []
        groups = {group for group, _ in [*self._ledger.subscriptions] if is_broadcast(group)}
        self._may_be_some = bool(groups or self._joining)
        return [name for name in groups if not self._is_used(name)]

    def has_unused(self) -> bool:
        """Return whether there are groups without their members, which are deleted soon."""
        return bool(self._unused())

    def sweep(self) -> None:
        """Delete the groups that are without their members for long enough."""
        now, unused = self._clock.monotonic(), self._unused()
        if unused or self._unused_since:
            since = self._unused_since
            self._unused_since = {name: since.get(name, now) for name in unused}
            for name, began in self._unused_since.items():
                if now - began >= self._grace:
                    self.left(name)

    def left(self, name: str) -> None:
        """Delete a group, whose member has left it. Raises nothing: a sweep tries again."""
        with suppress(FmqError):
            self._changes.delete(name, unless=self._is_used)
