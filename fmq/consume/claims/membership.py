"""The members of a group, and which of its queues each of them has.

Without a strategy all members of a group take from all queues of their topics. With one, each queue
belongs to one member. Guarded by the engine's lock.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fmq.allocation import Strategy, allocate, by_name, describe
from fmq.arguments.names import check_flag, check_name, check_names, check_seconds
from fmq.arguments.options import SECONDS_MAX, Options
from fmq.basics.process import Process
from fmq.basics.results import MemberInfo
from fmq.consume.claims.backoff import DEFAULT, Retry
from fmq.errors import BadOption, MemberReplaced, StrategyDiffers, TopicsDiffer

logger = logging.getLogger("fmq.groups")


COUNT, DEAD_LETTER = "count", "dead_letter"
"""What a consumer does with messages that have expired."""

RAISE, SKIP = "raise", "skip"
"""What a consumer does with messages that are damaged."""


class OwnedQueue(NamedTuple):
    """A queue that a member gains or loses."""

    topic: str
    queue: int


OnChange = Callable[[list[OwnedQueue], list[OwnedQueue]], object]


class News(NamedTuple):
    """The queues that a member has lost and gained."""

    lost: list[OwnedQueue]
    gained: list[OwnedQueue]


class Member:
    """One consumer, as its group knows it."""

    __slots__ = (
        *(
            "buries_expired",
            "gained",
            "is_ordered",
            "is_told",
            "lost",
            "name",
            "refusal",
            "retry",
            "seen",
            "strategy",
            "strict",
        ),
        *("is_cut_off", "on_stir", "process", "topics", "turn", "waiting"),
    )

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...],
        strategy: Strategy | None = None,
        *,
        ordered: bool = False,
        strict: bool = False,
        is_told: bool = False,
        retry: Retry = DEFAULT,
        buries_expired: bool = False,
    ) -> None:
        """`ordered`: the member gets the messages of each key in their order. `strict`: it joins no
        group whose members read other topics. `is_told`: its next poll tells which queues it has
        gained and lost. `buries_expired`: expired messages become dead letters.
        """
        self.buries_expired = buries_expired
        self.name = name
        self.topics = topics
        self.strategy = strategy
        self.strict = strict
        self.is_ordered = ordered
        self.is_told = is_told
        self.retry = retry
        self.process: Process | None = None  # where the member's program runs
        self.is_cut_off = False  # whether the connection of its client has ended
        self.turn = 0  # the queue at which its last poll began
        self.seen = 0.0  # when the member last polled, acked or extended a lease
        self.waiting: set[object] = set()  # the wakeups of the member's waiting polls
        # The error that the member's calls raise once it is out of the group for good.
        self.refusal: Exception | None = None
        self.lost: list[OwnedQueue] = []  # queues that the member has lost and was not told about
        self.gained: list[OwnedQueue] = []
        self.on_stir: Callable[[Member], object] | None = None  # called by `stir` while polls wait

    @property
    def has_news(self) -> bool:
        """Return whether its queues have changed since `take_news`."""
        return bool(self.lost or self.gained)

    def take_news(self) -> News:
        """Return the queues lost and gained since the last call. From now on the member knows of
        them.
        """
        news = News(self.lost, self.gained)
        self.lost, self.gained = [], []
        return news

    def end_wait(self, wakeup: object, now: float) -> None:
        """Note that a poll has stopped waiting. Its member was alive until now. The caller holds
        the engine's lock.
        """
        if wakeup in self.waiting:
            self.waiting.remove(wakeup)
            self.seen = now

    def stir(self) -> None:
        """Let the polls of this member look again: one of its queues may have a message, or they
        are to end. The caller holds the engine's lock.
        """
        if self.on_stir is not None:
            self.on_stir(self)

    def note(self, moved: OwnedQueue, *, gained: bool) -> None:
        """Note that the member gains or loses a queue. A queue that it gains and loses before it
        was told is no news.
        """
        if not self.is_told:
            return
        self.stir()
        here, there = (self.gained, self.lost) if gained else (self.lost, self.gained)
        if not gained and moved in there:
            there.remove(moved)
        else:
            here.append(moved)


class Joining(NamedTuple):
    """What a program asks for its consumer, checked."""

    group: str
    entry: Member
    lease_seconds: float
    wanted: str | None
    """The text of a filter."""
    on_change: OnChange | None
    broadcast: bool
    damaged: str


def check_joining(
    topics: str | Iterable[str],
    group: str,
    lease_seconds: float | None,
    name: str,
    strategy: str | Strategy | None,
    wanted: str | None,
    options: Options,
    *,
    ordered: bool,
    strict: bool,
    on_change: OnChange | None = None,
    is_told: bool = False,
    broadcast: bool = False,
    retry: Retry | None = None,
    expired: str = COUNT,
    damaged: str = RAISE,
) -> Joining:
    """Return what is asked for a consumer; raise TypeError or what refuses an argument. A client's
    consumer has `is_told` and no `on_change`: the client itself calls the function of its program.
    """
    names = check_names("topic", topics)
    group = check_name("group", group)
    if not names:
        raise BadOption("topics: name at least one to consume from. Nothing was changed.")
    lease = _check_lease(lease_seconds, options)
    name = check_name("member", name)
    check_flag("ordered", ordered)
    check_flag("strict", strict)
    if retry is not None and type(retry) is not Retry:
        raise TypeError(
            f"retry={retry!r}: is an fmq.Retry, as in Retry(5, backoff=10). Nothing was changed."
        )
    buries_expired = check_expired(expired) == DEAD_LETTER
    if check_flag("broadcast", broadcast) and (strategy is not None or ordered or strict):
        raise BadOption(
            "broadcast=True: each member gets every message, so there is nothing to share out or "
            "to keep in order among members. Nothing was changed; leave strategy, ordered and "
            "strict away."
        )
    entry = Member(
        *(name, names, _check_strategy(strategy, ordered=ordered)),
        ordered=ordered,
        strict=strict,
        is_told=is_told or on_change is not None,
        retry=DEFAULT if retry is None else retry,
        buries_expired=buries_expired,
    )
    damaged = check_damaged(damaged)
    return Joining(group, entry, lease, wanted, on_change, broadcast, damaged)


def _check_lease(lease_seconds: float | None, options: Options) -> float:
    if lease_seconds is None:
        return options.lease_seconds
    lease = check_seconds("lease_seconds", lease_seconds)
    if not 0 < lease <= SECONDS_MAX:
        raise BadOption(
            f"lease_seconds={lease:g}: must be more than 0, and at most a hundred years. "
            "Nothing was changed."
        )
    return lease


def _check_strategy(strategy: str | Strategy | None, *, ordered: bool) -> Strategy | None:
    if isinstance(strategy, str):
        return by_name(strategy)
    if strategy is None:
        return by_name("sticky") if ordered else None
    if callable(strategy):
        return strategy
    raise TypeError(
        f"strategy={strategy!r}: is a name or a function of fmq.allocation, or one of your "
        "own. Nothing was changed."
    )


def check_expired(expired: str) -> str:
    """Return what becomes of expired messages if the word is known. Raises BadOption."""
    if expired not in (COUNT, DEAD_LETTER):
        raise BadOption(
            f"expired={expired!r}: is {COUNT!r} or {DEAD_LETTER!r}, which says what becomes of "
            "messages that have expired. Nothing was changed."
        )
    return expired


def check_damaged(damaged: str) -> str:
    """Return what is done about damaged messages if the word is known. Raises BadOption."""
    if damaged not in (RAISE, SKIP):
        raise BadOption(
            f"damaged={damaged!r}: is {RAISE!r} or {SKIP!r}, which says whether a poll goes on "
            "behind messages that are damaged. Nothing was changed."
        )
    return damaged


class GroupRoom:
    """The members of one group, and the owners of its queues."""

    def __init__(self, group: str, timeout: float, queues_of: Callable[[str], int]) -> None:
        """A member is out after `timeout` seconds without a call."""
        self.group = group
        self._timeout = timeout
        self._queues_of = queues_of
        self.members: dict[str, Member] = {}
        self.strategy: Strategy | None = None
        self.is_ordered = False
        # Topic -> the owner of each queue, by number.
        self.owners: dict[str, list[Member | None]] = {}
        self.next_death = math.inf  # no member will be out before this time

    def set_timeout(self, timeout: float) -> None:
        """From now on, a member is out after `timeout` seconds without a call."""
        self._timeout = timeout
        self.next_death = 0.0  # the next look finds out when a member is out

    # --- who is in ------------------------------------------------------------------------------

    def check(self, member: Member) -> None:
        """Raise StrategyDiffers or TopicsDiffer if `member` cannot join."""
        has_others = len(self.members) > (member.name in self.members)
        how, ours = _text(member), _text(self)
        if has_others and how != ours:
            raise StrategyDiffers(self.group, how, ours)
        for name, other in self.members.items():
            if not (member.strict or other.strict) or name == member.name:
                continue
            if set(other.topics) != set(member.topics):
                both = member.name, member.topics, other.name, other.topics
                raise TopicsDiffer(self.group, *both)

    def enter(self, member: Member, now: float) -> Member | None:
        """Take `member` in. Return an earlier member of the same name, which is out from now on."""
        before = self.members.pop(member.name, None)
        if before is not None:
            before.refusal = MemberReplaced(self.group, member.name)
            before.stir()
        if not self.members:
            self.strategy, self.is_ordered = member.strategy, member.is_ordered
        self.members[member.name] = member
        self.see(member, now)
        return before

    def see(self, member: Member, now: float) -> None:
        """Note that the member has made a call, so it is alive."""
        member.seen = now
        self.next_death = min(self.next_death, now + self._timeout)

    def leave(self, member: Member) -> bool:
        """Take `member` out. Return whether it was in."""
        if self.members.get(member.name) is not member:
            return False
        del self.members[member.name]
        return True

    def expire(self, now: float) -> list[Member]:
        """Take out the members that made no call for too long, and return them."""
        dead = []
        self.next_death = math.inf
        for member in [*self.members.values()]:
            if member.waiting:
                member.seen = now
            if member.seen + self._timeout <= now:
                del self.members[member.name]
                dead.append(member)
                logger.warning(
                    "member %r of group %r is out: no poll, ack or extension for %g s. What it "
                    "had goes to the others. It comes in again with its next poll.",
                    *(member.name, self.group, self._timeout),
                )
            else:
                self.next_death = min(self.next_death, member.seen + self._timeout)
        return dead

    def infos(self, now: float) -> list[MemberInfo]:
        """Return all members as callers see them."""
        strategy = None if self.strategy is None else _text(self)
        owned: dict[Member | None, list[tuple[str, int]]] = {}
        for topic, owners in self.owners.items():
            for number, owner in enumerate(owners):
                owned.setdefault(owner, []).append((topic, number))
        return [
            MemberInfo(
                *(member.name, member.topics, tuple(owned.get(member, ())), strategy),
                0.0 if member.waiting else now - member.seen,
                *(member.process or ()),
            )
            for member in self.members.values()
        ]

    # --- who has what ---------------------------------------------------------------------------

    @property
    def is_stale(self) -> bool:
        """Return whether a topic has another number of queues than when the queues were
        shared out.
        """
        return any(len(owners) != self._queues_of(topic) for topic, owners in self.owners.items())

    def forget(self, topic: str) -> None:
        """Take the queues of a topic from their owners, because it was deleted."""
        for number, owner in enumerate(self.owners.pop(topic)):
            if owner is not None:
                owner.note(OwnedQueue(topic, number), gained=False)

    def share_out(self) -> list[tuple[OwnedQueue, Member | None, Member | None]]:
        """Share the queues of each topic among the members that read it, by the strategy.

        Return each queue that moves, with its former and its new owner.
        """
        if self.strategy is None:
            return []
        moved: list[tuple[OwnedQueue, Member | None, Member | None]] = []
        topics = dict.fromkeys(topic for member in self.members.values() for topic in member.topics)
        for topic in dict.fromkeys((*self.owners, *topics)):
            before = self.owners.get(topic, [])
            readers = {name: each for name, each in self.members.items() if topic in each.topics}
            now = self._owners_of(topic, readers, before)
            for number in range(max(len(before), len(now))):
                old = before[number] if number < len(before) else None
                new = now[number] if number < len(now) else None
                if old is not new:
                    moved.append((OwnedQueue(topic, number), old, new))
            if readers:
                self.owners[topic] = now
            else:
                self.owners.pop(topic, None)
        for owned, old, new in moved:
            if old is not None:
                old.note(owned, gained=False)
            if new is not None:
                new.note(owned, gained=True)
        return moved

    def _owners_of(
        self, topic: str, readers: dict[str, Member], before: Sequence[Member | None]
    ) -> list[Member | None]:
        """Return the owner of each queue of `topic` from now on."""
        owners: list[Member | None] = [None] * self._queues_of(topic)
        if not readers or not owners:
            return owners
        assert self.strategy is not None
        had: dict[str, list[int]] = {name: [] for name in readers}
        for number, owner in enumerate(before[: len(owners)]):
            if owner is not None and owner.name in had:
                had[owner.name].append(number)
        queues, names = [*range(len(owners))], sorted(readers)
        for name, numbers in allocate(self.strategy, queues, names, had).items():
            for number in numbers:
                owners[number] = readers[name]
        return owners


def _text(who: Member | GroupRoom) -> str:
    """Return the sharing as a text. Members in all processes compare these texts."""
    if who.strategy is None:
        return "no strategy"
    return f"{describe(who.strategy)}, in order" if who.is_ordered else describe(who.strategy)
