"""Broadcast: members that get every message. Each is a group of its own, deleted with its consumer.

The group has a name that no caller can give. It begins after the newest message, and is deleted
when its consumer is closed. If the consumer is dropped, or its connection or its process ends, the
group is deleted `reclaim_seconds` later, unless a client has come back to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fmq.consume.administration.change_plans import Changes
from fmq.consume.administration.group_changes import delete
from fmq.consume.groups.group_holds import GroupHolds
from fmq.errors import FmqError
from fmq.steps.call_steps import Steps
from fmq.store.bytes.internal import broadcast_group, is_broadcast


class Broadcasts:
    """The broadcast groups of one engine. Each has one member."""

    def __init__(self, changes: Changes, holds: GroupHolds, grace: float) -> None:
        """A group without its member is kept for `grace` seconds, because a client may come
        back.
        """
        self._changes = changes
        self._rooms = holds.rooms
        self._ledger, self._clock = holds.ledger, holds.clock
        self._grace = grace
        self._unused_since: dict[str, float] = {}
        self._joining: dict[str, int] = {}
        # False: there are no broadcast groups, so a round of chores need not look for them.
        self._may_be_some = True

    @contextmanager
    def joining(self, group: str, member: str) -> Iterator[str]:
        """Return the name of a member's own group. The group is not swept while the block makes it
        and its consumer.
        """
        name = broadcast_group(group, member)
        self._may_be_some = True
        self._joining[name] = self._joining.get(name, 0) + 1
        try:
            yield name
        finally:
            self._joining[name] -= 1
            if not self._joining[name]:
                del self._joining[name]

    def _is_used(self, name: str) -> bool:
        return name in self._rooms or name in self._joining

    def _unused(self) -> list[str]:
        if not self._may_be_some:
            return []
        groups = {group for group, _ in [*self._ledger.subscriptions] if is_broadcast(group)}
        self._may_be_some = bool(groups or self._joining)
        return [name for name in groups if not self._is_used(name)]

    def has_unused(self) -> bool:
        """Return whether any groups have no member. They will be deleted soon."""
        return bool(self._unused())

    def sweep(self) -> None:
        """Delete the groups that have had no member for long enough."""
        now, unused = self._clock.monotonic(), self._unused()
        if unused or self._unused_since:
            since = self._unused_since
            self._unused_since = {name: since.get(name, now) for name in unused}
            for name, began in self._unused_since.items():
                if now - began >= self._grace:
                    with suppress(FmqError):  # the next sweep tries again
                        self._changes.write(delete, name, unless=self._is_used)

    def leaving(self, name: str) -> Steps[None]:
        """Delete a group that its member has left. Errors are not raised: a sweep tries again."""
        with suppress(FmqError):
            yield from self._changes.writing(delete(self._changes, name, unless=self._is_used))
