"""Looks at groups: how far they are, their members, what they have in hand, and whether they exist.

A look takes out the members that made no call for too long. So it shows none of them.
"""

from __future__ import annotations

from dataclasses import replace

from fmq.basics.results import FormerMember, GroupInfo, HeldMessages, MemberInfo
from fmq.consume.administration.change_plans import Changes
from fmq.consume.administration.held_messages import HeldPages, HeldPlace
from fmq.consume.groups.groups import Groups


class GroupLooks:
    """Looks at the groups and topics of one engine, for callers and for chores."""

    def __init__(self, changes: Changes, groups: Groups) -> None:
        self._changes = changes
        self._writer, self._messages = changes.writer, changes.messages
        self._ledger, self._queue = changes.ledger, changes.writer.commit_queue
        self._rooms, self._holds = groups.rooms, groups.holds
        self._held = HeldPages(groups.holds)

    def groups(self, group: str | None) -> list[GroupInfo]:
        """Return the state of all groups, or of one, in every queue of their topics."""
        self.expire_members()
        return [self._with_members(info) for info in self._messages.groups(group)]

    def _with_members(self, info: GroupInfo) -> GroupInfo:
        """Return `info` with what the journal does not say."""
        with self._queue.lock:
            room = self._rooms.get(info.group)
            in_hand = self._holds.count_held(info.group, info.topic, info.queue)
        return replace(info, members=0 if room is None else len(room.members), in_hand=in_hand)

    def members(self, group: str) -> list[MemberInfo]:
        """Return the members of `group` that are alive."""
        self.expire_members()
        with self._queue.lock, self._queue.changing:
            found = self._rooms.infos(group, self._writer.clock.monotonic())
            if self._ledger.arrived:
                self._messages.wake()
        return found

    def former_members(self, group: str) -> list[FormerMember]:
        """Return the members of `group` that went out last, the last one first."""
        self.expire_members()
        with self._queue.lock:
            self._changes.check_group(group)
            return self._rooms.former(group)

    def in_hand(self, group: str, after: HeldPlace | None, limit: int) -> list[HeldMessages]:
        """Return what `group` has in hand or will try again, from the place `after` on."""
        self.expire_members()
        self._writer.catch_up(max(self._ledger.changed_at, self._ledger.acked_at))
        with self._queue.lock:
            self._changes.check_group(group)
            return self._held.page(group, after, limit)

    def expire_members(self) -> None:
        """Take out the members of all groups that made no call for too long, and redeliver what
        they hold.
        """
        now = self._writer.clock.monotonic()
        if now < self._rooms.first_death:  # a first look, without the lock
            return
        with self._queue.lock, self._queue.changing:
            self._rooms.expire(now)
            if self._ledger.arrived:
                self._messages.wake()

    def next_death(self) -> float:
        """Return when the next member of any group may count as dead, by the monotonic clock."""
        return self._rooms.first_death

    def check_group(self, group: str) -> None:
        """Raise UnknownGroup if there is no `group`."""
        with self._queue.lock:
            self._changes.check_group(group)

    def check_topic(self, topic: str) -> None:
        """Raise UnknownTopic if there is no `topic`."""
        with self._queue.lock:
            self._changes.topic(topic)
