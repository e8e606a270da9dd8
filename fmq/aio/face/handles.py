"""What a program asks of one group, of one topic, or of the dead letters of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any

from fmq.aio.face.door import AsyncLookingDoor
from fmq.arguments.names import (
    check_count,
    check_flag,
    check_seconds,
    check_sync,
    check_text,
    check_time,
)
from fmq.basics.clock import as_us
from fmq.basics.own_process import caller
from fmq.basics.results import (
    DeadLetter,
    FormerMember,
    GroupInfo,
    HeldMessages,
    MemberInfo,
    QueueInfo,
    ScheduleInfo,
    TopicCodec,
)
from fmq.consume.administration.change_plans import EARLIEST, LATEST, At
from fmq.consume.administration.held_messages import PAGE_MAX
from fmq.consume.groups.sieve import text_of
from fmq.errors import BadOption, UnknownDeadLetter, UnknownSchedule
from fmq.faces.explanation import explained
from fmq.filters import Filter


class AsyncGroup:
    """A group of an engine, made by `engine.group`."""

    def __init__(self, door: AsyncLookingDoor, name: str) -> None:
        self._door = door
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def infos(self) -> list[GroupInfo]:
        """Return the group's progress in each queue of its topics."""
        return await self._door.look("groups", self._name)

    async def members(self) -> list[MemberInfo]:
        """Return the group's members, with the queues that each of them owns."""
        return await self._door.look("members", self._name)

    async def former_members(self) -> list[FormerMember]:
        """Return the members that went out of the group last, up to ten, the last one first: who
        each was, when and why it went, and how many messages it held. A restart of the engine
        forgets them.

        Raises ReadOnly of an engine that only reads, which cannot know it.
        """
        return await self._door.look("former_members", self._name)

    async def in_hand(
        self, *, limit: int = 100, after: HeldMessages | None = None
    ) -> list[HeldMessages]:
        """Return up to `limit` ranges of messages, by topic, queue and offset: those that the group
        has in hand, each with its holder and its lease, and those that wait for their next attempt.
        With `after`, the last range of a page, return the next page.

        Raises ReadOnly of an engine that only reads, which cannot know it.
        """
        limit = check_count("limit", limit)
        if after is not None and not isinstance(after, HeldMessages):
            raise TypeError(
                f"after={after!r:.80}: is the last result of the page before, as in "
                "in_hand(after=page[-1])."
            )
        found: list[HeldMessages] = []
        while len(found) < limit:
            at = None if after is None else _place_behind(after)
            wanted = min(limit - len(found), PAGE_MAX)
            page = await self._door.look("in_hand", self._name, at, wanted)
            found += page
            if len(page) < wanted:
                break
            after = page[-1]
        return found

    async def seek(
        self,
        topic: str,
        *,
        queue: int | None = None,
        offset: int | None = None,
        time: datetime | None = None,
        to: str | None = None,
    ) -> None:
        """Let the group go on at `offset`, at the first message that is not older than `time`, or
        at `to`, which is "earliest" or "latest": in one queue of `topic` or in all.

        Acks from there on are taken back, and deliveries in hand raise LeaseLost. Raises
        StillUndecided while an undecided transaction acks messages there.
        """
        at = _place_of("seek", topic, offset, time, to)
        await self._door.change("seek", self._name, topic, queue, at)

    async def purge(
        self,
        topic: str,
        *,
        queue: int | None = None,
        offset: int | None = None,
        time: datetime | None = None,
        to: str | None = None,
        reason: str,
        by: str | None = None,
    ) -> None:
        """Pass over the backlog of `topic` before `offset`, before the first message that is not
        older than `time`, or up to `to`, which is "latest": in one queue or in all.

        Unlike `seek` it takes back no ack, and what is in hand behind the place stays so. What is
        passed over is counted in `skipped`. `reason` and `by`, this process by default, are in the
        journal. Raises StillUndecided while an undecided transaction acks messages there.
        """
        at = _place_of("purge", topic, offset, time, to)
        await self._door.change("purge", self._name, topic, queue, at, caller(by), reason)

    async def ack_below(self, topic: str, queue: int, offset: int) -> None:
        """Ack all messages of `queue` below `offset`. The caller need not have polled them.

        A program that reads a topic and copies it elsewhere says with this how far it is. The group
        holds what it has not copied, and `infos()` shows how far behind it is. The call never takes
        back an ack: with a lower offset than before, nothing is changed. Raises StillUndecided
        while an undecided transaction acks messages there.
        """
        topic = check_text("topic", topic)
        await self._door.change("ack_below", self._name, topic, queue, offset)

    async def skip(self, topic: str, queue: int, offset: int, *, count: int = 1) -> None:
        """Pass over `count` messages from `offset` on, such as damaged ones.

        They are counted in `skipped`, unless the group had acked them.
        """
        topic = check_text("topic", topic)
        await self._door.change("skip", self._name, topic, queue, offset, count)

    async def reject(self, topic: str, queue: int, offset: int, *, reason: str = "") -> None:
        """Move one message to the dead letters of the group and ack it, in one append. The caller
        need not have polled it.

        A message that the group has acked stays as it is, so the call may be repeated. If a member
        has the message in hand, its ack raises LeaseLost. Raises OffsetBeyond or OffsetGone if
        there is no such message, and StillUndecided while an undecided transaction acks it.
        """
        topic, reason = check_text("topic", topic), check_text("reason", reason)
        await self._door.change("reject", self._name, topic, queue, offset, reason)

    async def ack_ticket(self, ticket: str, *, sync: bool | None = None) -> None:
        """Ack the message of `delivery.ticket`. The caller need not hold it: its consumer may have
        closed, and the engine may have been opened again since. The ack is durable on return, as a
        send is, and `sync` overrides the engine's option.

        A message that the group has acked stays so, and the call may be repeated. Raises LeaseLost
        if the message was handed out again, or the group moved, since the ticket was made. A
        release with `count=False` lets a later attempt have the same number, and so the same
        ticket; so may a power cut. Raises StillUndecided while an undecided transaction acks it.
        """
        ticket, sync = check_text("ticket", ticket), check_sync(sync)
        await self._door.change("ack_ticket", self._name, ticket, sync)

    async def release_ticket(self, ticket: str, *, delay: float, count: bool = True) -> None:
        """Give back the message of `delivery.ticket`: the group gets it again after `delay`
        seconds, and not before, also over a restart. Until then the ticket is good.

        So a program that passes messages on to others can lend one for a time, and lend it for
        longer. It is no failure, and what is lent is not in hand. Without `count` the attempt does
        not count, and the ticket is spent. Raises LeaseLost as `ack_ticket` does, or if the message
        is acked.
        """
        ticket, count = check_text("ticket", ticket), check_flag("count", count)
        delay = check_seconds("delay", delay)
        await self._door.change("release_ticket", self._name, ticket, delay, count)

    async def reject_ticket(self, ticket: str, *, reason: str = "") -> None:
        """Move the message of `delivery.ticket` to the dead letters of the group and ack it, in one
        append. It may be repeated, and raises what `ack_ticket` does.
        """
        ticket, reason = check_text("ticket", ticket), check_text("reason", reason)
        await self._door.change("reject_ticket", self._name, ticket, reason)

    async def set_filter(self, topic: str, wanted: Filter | None) -> None:
        """Let all members want other messages of `topic` from now on; None: all messages.

        Messages that were passed over before are not looked at again: `seek` goes back to them.
        """
        topic = check_text("topic", topic)
        await self._door.change("set_filter", self._name, topic, text_of(wanted))

    async def pause(self, *, reason: str, by: str | None = None) -> None:
        """Hand out nothing to the group from now on: its polls wait.

        What is in hand may be acked, extended and given back meanwhile. The pause is durable: it
        holds until `resume`, whichever process has the engine. `reason` and `by`, who asks for it,
        are in the journal; `by` is this process by default. A second pause
        replaces the reason of the first.
        """
        await self._door.change("pause", self._name, "", caller(by), reason)

    async def resume(self, *, reason: str = "", by: str | None = None) -> None:
        """End the pause. Without one, change nothing."""
        await self._door.change("resume", self._name, "", caller(by), reason)

    async def limit(
        self,
        *,
        concurrency: int | None = None,
        rate: float | None = None,
        concurrency_by_key: int | None = None,
        rate_by_key: float | None = None,
        fair: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> None:
        """Limit from now on how much all members of the group together are handed. Beyond that
        their polls wait. A call replaces the limit that was set before. A call without any number
        ends it.

        `concurrency`: so many messages in hand at once, of all its topics. A message is in hand
        from the poll that brings it until it is acked, given back, or its lease ends.
        `rate`: so many messages a second, each attempt counted. With 10, no second has more than
        10; with 0.1 there is one in ten seconds.
        `concurrency_by_key`, `rate_by_key`: so many of the messages of one key. Those without a key
        count as one key.
        `fair`: keys take turns, so that a long backlog of one does not hold up the others. A limit
        by key includes it. Not for groups with `ordered=True`, and priorities do not count then.

        The limit is durable: it holds until another call, whichever process has the engine.
        `reason` and `by`, who asks for it, are in the journal; `by` is this process by default.
        """
        limits = concurrency, rate, concurrency_by_key, rate_by_key, fair
        await self._door.change("limit", self._name, *limits, caller(by), reason)

    async def release(self, member: str, *, reason: str, by: str | None = None) -> int:
        """Give back the messages that `member` holds, and return how many there were. Others get
        them at once. A later ack or release of them by `member` raises LeaseLost. The member stays
        in the group.

        The log of the engine's process has the `reason`, and `by` whom. Raises UnknownMember.
        """
        return await self._door.change("release", self._name, member, caller(by), reason)

    async def put_out(self, member: str, *, reason: str, by: str | None = None) -> int:
        """Put `member` out of the group, and return how many messages it held. Others get these
        messages and its queues at once. Its next call raises MemberPutOut, with `by` and `reason`.

        A new consumer may join under its name. A member that was put out before and is not back
        counts as 0. Raises UnknownMember for any other that is not there.
        """
        return await self._door.change("put_out", self._name, member, caller(by), reason)

    async def delete(self) -> None:
        """Delete the group in all its topics: nothing is kept for it any more.

        Its members get UnknownGroup. Raises StillUndecided while an undecided transaction acks
        messages for it.
        """
        await self._door.change("delete_group", self._name)

    async def explain(self) -> str:
        """Return a text that says which member reads which queue, and why.

        Where the group has a filter, it says how many of the oldest messages pass it, and reads
        their heads for that.
        """
        infos, members = await self.infos(), await self.members()
        passing: dict[tuple[str, int], tuple[int, int]] = {}
        for topic in sorted({info.topic for info in infos if info.filter and info.unread}):
            for queue, looked, passed in await self._door.look("passing", self._name, topic):
                passing[topic, queue] = looked, passed
        return explained(self._name, infos, members, passing)

    def __repr__(self) -> str:
        return f"<Group {self._name!r}>"


class AsyncTopic:
    """A topic of an engine, made by `engine.topic`."""

    def __init__(self, door: AsyncLookingDoor, name: str) -> None:
        self._door = door
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def queues(self) -> list[QueueInfo]:
        """Return the topic's queues, with their offsets at this instant."""
        return await self._door.look("queues", self._name)

    async def codec(self) -> TopicCodec | None:
        """Return how the bodies of the topic are made, as it is stored; None if it is not."""
        return await self._door.look("codec_of", self._name)

    async def add_queues(self, count: int) -> None:
        """Add `count` queues, which begin empty.

        From now on messages with a key may go to another queue than earlier ones with the same key.
        """
        await self._door.change("add_queues", self._name, count)

    async def retain(self, seconds: float | None) -> None:
        """Keep the topic's messages for `seconds`; None: as long as the options say.

        Older messages are gone at once for all readers, even if a group has not acked them. Their
        bytes go with their segment.
        """
        await self._door.change("retain", self._name, seconds)

    async def pause(self, *, reason: str, by: str | None = None) -> None:
        """Hand out nothing of the topic to any group from now on: their polls wait. Sends go on.

        What is in hand may be acked, extended and given back meanwhile. The pause is durable: it
        holds until `resume`, whichever process has the engine. `reason` and `by`, who asks for it,
        are in the journal; `by` is this process by default. A second pause
        replaces the reason of the first.
        """
        await self._door.change("pause", "", self._name, caller(by), reason)

    async def resume(self, *, reason: str = "", by: str | None = None) -> None:
        """End the pause. Without one, change nothing."""
        await self._door.change("resume", "", self._name, caller(by), reason)

    async def delete(self) -> None:
        """Delete the topic with its messages. If a message makes it again, its offsets begin at 0.

        Groups keep their filters, and begin anew. Raises TopicInUse while an undecided transaction
        writes to the topic, and StillUndecided while one acks messages of it.
        """
        await self._door.change("delete_topic", self._name)

    def __repr__(self) -> str:
        return f"<Topic {self._name!r}>"


class AsyncSchedule:
    """A schedule of an engine, made by `engine.schedule` or `engine.scheduled`."""

    def __init__(self, door: AsyncLookingDoor, name: str) -> None:
        self._door = door
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def info(self) -> ScheduleInfo:
        """Return what the schedule is, and when it is due. Raises UnknownSchedule."""
        found = await self._door.look("schedules", self._name)
        if not found:
            raise UnknownSchedule(self._name)
        return found[0]

    async def pause(self, *, reason: str, by: str | None = None) -> None:
        """Publish nothing from now on. What comes due meanwhile is passed over.

        The pause is durable: it holds until `resume`, whichever process has the engine. `reason`
        and `by`, who asks for it, are in the journal; `by` is this process by default.
        """
        await self._door.change("pause_schedule", self._name, caller(by), reason)

    async def resume(self, *, reason: str = "", by: str | None = None) -> None:
        """End the pause. Without one, change nothing."""
        await self._door.change("resume_schedule", self._name, caller(by), reason)

    async def run_now(self, *, reason: str = "", by: str | None = None) -> None:
        """Publish the message once more, now, even in a pause. Its due times stay as they are."""
        await self._door.change("run_schedule", self._name, caller(by), reason)

    async def remove(self, *, reason: str = "", by: str | None = None) -> None:
        """Remove the schedule. What it has published stays."""
        await self._door.change("remove_schedule", self._name, caller(by), reason)

    def __repr__(self) -> str:
        return f"<Schedule {self._name!r}>"


class AsyncDeadLetters:
    """The dead letters of a group, made by `engine.dead_letters`."""

    def __init__(self, door: AsyncLookingDoor, group: str) -> None:
        self._door = door
        self._group = group

    @property
    def group(self) -> str:
        return self._group

    #| def __len__(self) -> int:
    #|     return self.count()

    def __bool__(self) -> bool:
        return True

    async def count(self) -> int:
        """Return the number of dead letters."""
        return await self._door.look("count_dead", self._group)

    async def list(self, *, limit: int = 100, after: int | None = None) -> list[DeadLetter]:
        """Return up to `limit` dead letters, sorted by number; with `after`, only those with larger
        numbers.
        """
        limit = check_count("limit", limit)
        at = -1 if after is None else check_count("after", after, 0)
        found: list[DeadLetter] = []
        while len(found) < limit:
            page = await self._door.look("page_of_dead", self._group, at, limit - len(found))
            if not page:
                break
            found += page
            at = page[-1].number
        return found

    async def __aiter__(self) -> AsyncIterator[DeadLetter]:
        """Yield all dead letters. They are read in pages."""
        at = -1
        while page := await self._door.look("page_of_dead", self._group, at, 1000):
            for each in page:
                yield each
            at = page[-1].number

    async def get(self, number: int) -> DeadLetter:
        """Return the dead letter with this number. Raises UnknownDeadLetter."""
        number = check_count("number", number, 0)
        page = await self._door.look("page_of_dead", self._group, number - 1, 1)
        if not page or page[0].number != number:
            raise UnknownDeadLetter(self._group, number)
        return page[0]

    async def replay(self, numbers: int | Iterable[int] | None = None) -> int:
        """Redeliver the dead letters with these `numbers`, or all, to this group alone. Return how
        many.

        Each goes to a consumer of the topic that it came from, whatever the group's filter is by
        now, and its attempts begin anew. Raises UnknownDeadLetter.
        """
        return await self._door.change("replay_dead", self._group, _numbers(numbers))

    async def purge(
        self,
        numbers: int | Iterable[int] | None = None,
        *,
        before: datetime | None = None,
        all: bool = False,
    ) -> int:
        """Drop the dead letters with these `numbers`, or those that died `before` a time, or all.
        Return how many were dropped.

        They cannot be restored. Raises UnknownDeadLetter.
        """
        if (numbers is not None) + (before is not None) + check_flag("all", all) != 1:
            raise BadOption(
                "purge takes one of numbers, before= and all=True: what it drops is gone. Nothing "
                "was changed."
            )
        before_us = None if before is None else as_us(check_time("before", before))
        return await self._door.change("purge_dead", self._group, _numbers(numbers), before_us)

    def __repr__(self) -> str:
        return f"<DeadLetters of {self._group!r}>"


def _place_of(
    call: str, topic: str, offset: int | None, time: datetime | None, to: str | None
) -> At:
    """Return the one place that is given. Raises TypeError or BadOption."""
    check_text("topic", topic)
    given: list[At] = []
    if offset is not None:
        given.append(check_count("offset", offset, 0))
    if time is not None:
        given.append(check_time("time", time))
    if to is not None:
        if not isinstance(to, str):
            raise TypeError(
                f"to={to!r}: is {EARLIEST!r} or {LATEST!r}, not {type(to).__name__}. Nothing "
                "was changed."
            )
        given.append(to)
    if len(given) != 1:
        raise BadOption(
            f"{call} takes one of offset=, time= and to=, as in "
            f"{call}({topic!r}, to={LATEST!r}). Nothing was changed."
        )
    return given[0]


def _place_behind(last: HeldMessages) -> list[Any]:
    """Return where the page after `last` begins, as a list for the wire."""
    return [last.topic, last.replayed, last.queue, last.offset + last.count]


def _numbers(given: int | Iterable[int] | None) -> list[int] | None:
    if given is None:
        return None
    is_text = isinstance(given, (str, bytes, bytearray))
    each = given if isinstance(given, Iterable) and not is_text else (given,)
    return [*dict.fromkeys(check_count("number", number, 0) for number in each)]
