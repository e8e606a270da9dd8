"""The members of all groups: they join, leave, are out when silent, and share the queues out.

A member that comes or goes only marks its room. The next look shares the queues out, once, however
many members came and went before it. So a thousand joins cost one sharing, not a thousand.

Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable

from fmq.allocation.named import NAMES
from fmq.arguments.options import Options
from fmq.basics.clock import as_datetime
from fmq.basics.results import FormerMember, MemberInfo, OutReason
from fmq.consume.claims.membership import GroupRoom, Member
from fmq.consume.groups.group_holds import GroupHolds
from fmq.consume.groups.group_limits import ordered_by_key
from fmq.errors import MemberPutOut, UnknownGroup

FORMER_KEPT = 10  # for each group


class GroupRooms:
    """The room of each group that has members. They are kept in `GroupHolds.rooms`."""

    def __init__(self, holds: GroupHolds, member_timeout: float) -> None:
        """A member that makes no call for `member_timeout` seconds is out."""
        self._holds = holds
        self._by_group = holds.rooms
        self._member_timeout = member_timeout
        # Rooms whose members came or went. The next look shares out their queues anew.
        self._unshared: set[GroupRoom] = set()
        # Who went out of each group last, and how many members did, by why.
        self._former: dict[str, deque[FormerMember]] = {}
        self.out: dict[str, Counter[str]] = {}
        self.first_death = math.inf  # no member of any group will be out before this time
        # Called when `first_death` becomes earlier.
        self.on_sooner: Callable[[], object] = lambda: None

    def get(self, group: str) -> GroupRoom | None:
        """Return the room of `group`; None if it has no members."""
        return self._by_group.get(group)

    # --- who is in ------------------------------------------------------------------------------

    def enter(self, group: str, member: Member, now: float) -> None:
        """Take `member` into `group`. Raises StrategyDiffers or TopicsDiffer, or UnknownGroup if
        the group was deleted since the member joined, or BadOption if it wants the order of keys
        and the group has a limit by key.
        """
        holds = self._holds
        if any((group, topic) not in holds.ledger.subscriptions for topic in member.topics):
            raise UnknownGroup(group, was_deleted=True)
        if member.is_ordered and holds.limits.is_by_key(group):
            raise ordered_by_key(group)
        room = self._living_room(group, now)
        if room is None:
            room = GroupRoom(group, self._member_timeout, holds.queues_of)
        room.check(member)
        self._by_group[group] = room
        before = room.enter(member, now)
        if before is not None:
            self._note_out(group, before, "replaced")
            holds.drop_member(group, before)
        self._has_changed(room)
        if member.strategy not in (None, *NAMES.values()):
            self._try_out(room, member)
        if room.next_death < self.first_death:
            self.first_death = room.next_death
            self.on_sooner()

    def _try_out(self, room: GroupRoom, member: Member) -> None:
        """Share out at once, by a strategy that is not one of fmq. If it refuses, so does the call
        that brings in `member`.
        """
        try:
            self._share_out(room)
        except BaseException:
            room.leave(member)
            self._has_changed(room)
            raise

    def see(self, group: str, member: Member, now: float) -> GroupRoom:
        """Note that `member` is alive, and return the room of its group. If it was taken out, or
        was silent for too long, it joins again.
        """
        room = self._by_group.get(group)
        if room is not None and now >= room.next_death:
            room = self._living_room(group, now)
        if room is None or room.members.get(member.name) is not member:
            if member.refusal is not None:
                raise member.refusal.with_traceback(None)
            self.enter(group, member, now)
            room = self._by_group[group]
        member.seen = now
        if room.strategy is not None and (room in self._unshared or room.is_stale):
            self._share_out(room)
        return room

    def leave(self, group: str, member: Member) -> None:
        """Take `member` out of `group`, and redeliver everything that it holds."""
        room = self._living_room(group, self._holds.clock.monotonic())
        if room is not None and room.leave(member):
            is_put_out = isinstance(member.refusal, MemberPutOut)
            left: OutReason = "disconnected" if member.is_cut_off else "left"
            self._note_out(group, member, "put out" if is_put_out else left)
            self._has_changed(room)
        self._holds.drop_member(group, member)

    def _note_out(self, group: str, member: Member, why: OutReason) -> None:
        """Remember a member that is out, before what it holds is given back."""
        held = sum(hold.end - hold.first for *_, hold in self._holds.held_by(group, member))
        out_at = as_datetime(self._holds.clock.time_us())
        what = member.name, member.topics, out_at, why, held, *(member.process or (None,) * 3)
        refusal = member.refusal
        who = (refusal.by, refusal.reason) if isinstance(refusal, MemberPutOut) else ()
        former = self._former.setdefault(group, deque(maxlen=FORMER_KEPT))
        former.append(FormerMember(*what, *who))
        self.out.setdefault(group, Counter())[why] += 1

    def former(self, group: str) -> list[FormerMember]:
        """Return the members of `group` that went out last, the last one first."""
        return [*reversed(self._former.get(group, ()))]

    def expire(self, now: float) -> None:
        """Take out the members of all groups that made no call for too long."""
        for group in [*self._by_group]:
            self._living_room(group, now)
        deaths = (room.next_death for room in self._by_group.values())
        self.first_death = min(deaths, default=math.inf)

    def _living_room(self, group: str, now: float) -> GroupRoom | None:
        """Return the room of `group` with the members that are alive; None if it has none."""
        room = self._by_group.get(group)
        dead = [] if room is None or now < room.next_death else room.expire(now)
        if room is None or not dead:
            return room
        for member in dead:
            self._note_out(group, member, "silent")
            self._holds.drop_member(group, member)
        self._has_changed(room)
        return room if room.members else None

    def forget_topic(self, topic: str) -> None:
        """Let the queues of a deleted topic belong to no member. If the topic is made again, maybe
        with fewer queues, they are shared out anew.
        """
        for room in self._by_group.values():
            if topic in room.owners:
                room.forget(topic)
                self._unshared.add(room)

    def delete(self, group: str) -> None:
        """End the room of a group that was deleted. Later calls of its members are refused."""
        room = self._by_group.pop(group, None)
        self._former.pop(group, None)
        self.out.pop(group, None)
        if room is not None:
            self._unshared.discard(room)
            for member in room.members.values():
                member.refusal = UnknownGroup(group, was_deleted=True)
                member.stir()  # the polls of the member have nothing to wait for
                self._holds.ledger.arrived.update(member.topics)

    def take_over(self, options: Options) -> None:
        """Set how long members may be silent, as `options` say, from now on."""
        self._member_timeout = options.member_timeout_seconds
        for room in self._by_group.values():
            room.set_timeout(self._member_timeout)
        self.first_death = 0.0  # the next look finds out when a member may be out
        self.on_sooner()

    def infos(self, group: str, now: float) -> list[MemberInfo]:
        """Return the members of `group` that are alive, with what they own from now on."""
        self.have_owners(group)
        room = self._by_group.get(group)
        return [] if room is None else room.infos(now)

    # --- who owns what --------------------------------------------------------------------------

    def have_owners(self, group: str) -> bool:
        """Share the queues of `group` out, if members came or went, or queues were added, since
        that was done. Return whether the group has members.
        """
        room = self._by_group.get(group)
        if room is not None and (room in self._unshared or room.is_stale):
            self._share_out(room)
        return room is not None

    def _has_changed(self, room: GroupRoom) -> None:
        """Have the queues shared out by the next look, as members came or went. If none is left,
        the queues belong to no member from now on.
        """
        if not room.members:
            self._share_out(room)
            del self._by_group[room.group]
        elif room.strategy is not None:
            self._unshared.add(room)

    def _share_out(self, room: GroupRoom) -> None:
        """Share the queues out again. A former owner loses its holds before the new owner
        can poll.
        """
        group, all_holds = room.group, self._holds
        self._unshared.discard(room)
        moved = room.share_out()
        taken: dict[tuple[str, Member], list[int]] = {}
        for (topic, number), old, _ in moved:
            if old is not None:
                taken.setdefault((topic, old), []).append(number)
                holds = all_holds.by_queue.get((group, topic, number))
                if holds is not None:
                    holds.give_back_of(old)
        for (topic, old), numbers in taken.items():
            all_holds.stop_looking(group, topic, old, numbers)
            if room.members.get(old.name) is not old:
                all_holds.ready.pop((group, topic, old), None)
        for (topic, number), _, new in moved:
            ready = all_holds.ready_of(group, topic, new)
            ready.add(number)
            holds = all_holds.by_queue.get((group, topic, number))
            if holds is not None:
                holds.belong_to(ready)
            all_holds.ledger.arrived.add(topic)
