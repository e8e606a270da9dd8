"""The groups of an engine: which member holds what of each queue, and who gets what next.

    GroupHolds      what of each queue is held, given back or untried, and where polls look
    GroupRooms      the members of each group, and which of them owns which queue
    GroupClaims     what a poll is handed next

An example: topic "orders" has four queues, and group "mail" has the members A and B with the
strategy "average". A owns the queues 0 and 1, B the queues 2 and 3. Only the polls of B look at
queue 3. When B closes, or makes no call for `member_timeout`, B is out: its holds are given back,
and the next call of A shares the queues out again. From then on A owns all four, and B's messages
are among those that it is handed. Without a strategy, A and B would share all four queues, and
compete.

A poll calls `rooms.see` (the member is alive) and `claims.claim` (hold messages of the first ready
queue that has some).

All of it is guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable

from fmq.basics.clock import Clock
from fmq.basics.counts import GroupTally
from fmq.consume.groups.group_claims import GroupClaims
from fmq.consume.groups.group_holds import GroupHolds
from fmq.consume.groups.group_rooms import GroupRooms
from fmq.store.bytes.kinds import AckRange, Changed, ChangeKind
from fmq.tx.ledger.ledger import Ledger


class Groups:
    """The members and holds of all groups, and what a change in the journal does to them."""

    def __init__(self, ledger: Ledger, member_timeout: float, clock: Clock) -> None:
        """A member that makes no call for `member_timeout` seconds is out."""
        self._ledger = ledger
        self.holds = GroupHolds(ledger, clock)
        self.rooms = GroupRooms(self.holds, member_timeout)
        self.claims = GroupClaims(self.holds)
        self.tallies: dict[str, GroupTally] = {}  # what each group has done
        self._by_kind: dict[int, Callable[[Changed], object]] = {
            ChangeKind.SEEK: self._seek,
            ChangeKind.SKIP: self._skip,
            ChangeKind.DELETE_TOPIC: self._delete_topic,
            ChangeKind.ADD_QUEUES: self._add_queues,
            ChangeKind.RESUME: self._resume,
            ChangeKind.LIMIT: lambda change: self.holds.limits.changed(change.group),
            ChangeKind.DELETE_GROUP: self._delete_group,
        }

    def changed(self, change: Changed) -> None:
        """Make new holds where a change has moved or deleted a group or a topic. The ledger calls
        this when the append is applied.
        """
        act = self._by_kind.get(change.asked)
        if act is not None:
            act(change)
        self._ledger.arrived.add(change.topic)

    def _seek(self, change: Changed) -> None:
        for number, _ in change.places:
            self.holds.begin_again((change.group, change.topic, number))

    def _skip(self, change: Changed) -> None:
        for number, offset in change.places:
            end = offset + change.value
            self.holds.end_holds(AckRange(change.group, change.topic, number, offset, end))

    def _delete_topic(self, change: Changed) -> None:
        self.holds.forget(lambda group, topic: topic == change.topic)
        self.rooms.forget_topic(change.topic)

    def _add_queues(self, change: Changed) -> None:
        for (_, topic, owner), ready in self.holds.ready.items():
            if topic == change.topic and owner is None:
                ready.add_all(range(change.value))

    def _resume(self, change: Changed) -> None:
        whose = {group for group, topic in self._ledger.subscriptions if topic == change.topic}
        for group in (change.group,) if change.group else whose:
            self.holds.wake(group)

    def hand_out_until(self, until: float, now: float) -> None:
        """Hand out nothing after `until`, because another machine may own the home by then. If that
        is over at `now`, wake the polls. The caller holds the engine's lock.
        """
        before, self.claims.hands_out_until = self.claims.hands_out_until, until
        if before < now <= until:
            for group in {group for group, _ in self._ledger.subscriptions}:
                self.holds.wake(group)

    def _delete_group(self, change: Changed) -> None:
        self.tallies.pop(change.group, None)
        # If the group is made again, the new group has to look at queues that the old one had found
        # idle.
        self.holds.forget(lambda group, topic: group == change.group)
        self.holds.limits.forget(change.group)
        self.rooms.delete(change.group)
