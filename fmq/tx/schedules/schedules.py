"""Schedules: what makes and changes them, and what publishes their messages when they are due.

A due time is published by one append, as that of a timer is: the message, and DUE, which ends this
due time and says the next one. So a crash can neither lose a due time nor have it twice. The next
one follows from the last one, and not from the clock, so it does not matter how late it is
published, or that a clock was set.

A due time that is more than GRACE_US in the past is *missed*: no engine ran, or a clock was set
forward. Of all that a schedule has missed, one is published or none, as its `missed` says.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from fmq.arguments.names import check_name, check_text
from fmq.basics.clock import as_datetime, as_text
from fmq.basics.message import Body, Message
from fmq.errors import (
    BadOption,
    FmqError,
    ScheduleDiffers,
    StorageFull,
    TooLarge,
    TooMany,
    UnknownSchedule,
)
from fmq.store.bytes.content import copied_headers, encode_messages, text_bytes
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.kinds import Changed, ChangeKind, Run, TopicMade
from fmq.tx.commands.limits import REASON_BYTES_MAX
from fmq.tx.commands.router import Router
from fmq.tx.commands.writer import Writer
from fmq.tx.said.pauses import PauseMet
from fmq.tx.said.schedule_met import MISSED, NEVER, ScheduleMet
from fmq.tx.schedules.cron import next_due_us

logger = logging.getLogger("fmq")

GRACE_US = 60_000_000
SCHEDULES_MAX = 1000
BODY_BYTES_MAX = 16 * 1024
# All schedules are in each checkpoint, and in each STATE.
TOTAL_BYTES_MAX = 1 << 20
NAME_HEADER, DUE_HEADER = "fmq-schedule", "fmq-due"
"""The headers of a message of a schedule: its name, and the time that was due."""
COMPARED = ("cron", "timezone", "topic", "body", "key", "tag", "headers", "missed")


class DueFound(NamedTuple):
    """A schedule that is due, and the records that publish it."""

    schedule: ScheduleMet
    records: list[Changed | Run]


def check_schedule(
    name: str,
    cron: str,
    topic: str,
    body: Body,
    timezone: str,
    key: str | None,
    tag: str | None,
    headers: Mapping[str, str] | None,
    missed: str,
    by: str,
) -> ScheduleMet:
    """Return the schedule that these arguments describe. Raises TypeError, BadName, BadOption or
    TooLarge. Whether its expression can be read is not checked.
    """
    check_name("schedule name", name)
    for what, text in (("cron", cron), ("timezone", timezone)):
        text_bytes(what, text, 255)
    check_name("topic", topic)
    if check_text("missed", missed) not in MISSED:
        raise BadOption(f"missed={missed!r:.80}: is 'once' or 'skip'. Nothing was changed.")
    said = copied_headers({} if headers is None else headers)
    message = Message(body, key, tag, said)
    data = bytes(encode_messages((message,), None).bodies or b"")
    if len(data) > BODY_BYTES_MAX:
        what = "the body of a schedule in bytes"
        raise TooLarge(what, len(data), BODY_BYTES_MAX, "fixed by fmq")
    said_by = check_name("by", by)
    return ScheduleMet(name, topic, cron, timezone, missed, data, key, tag, said, said_by)


class Schedules:
    """The schedules of one engine. One thread at a time publishes them."""

    def __init__(self, writer: Writer, router: Router) -> None:
        self._writer = writer
        self._router = router
        self._ledger = writer.ledger
        self._queue = writer.commit_queue
        self._bytes_max = writer.journal.append_bytes_max // 2
        self._no_room: str | None = None
        # Schedules that cannot be published, and why. A change of one lets it be tried again.
        self._aside: dict[str, tuple[ScheduleMet, str]] = {}

    # --- changes, each planned under the engine's lock ------------------------------------------

    def adding(
        self, wanted: ScheduleMet, next_us: int, *, replace: bool
    ) -> list[Changed | TopicMade]:
        """Return the records that make a schedule; none if it is there already. Raises
        ScheduleDiffers, TooLarge or TooMany.
        """
        known = self._ledger.schedules.get(wanted.name)
        if known is not None:
            differs = [each for each in COMPARED if getattr(wanted, each) != getattr(known, each)]
            if not differs:
                return []
            if not replace:
                what = differs[0]
                raise ScheduleDiffers(
                    wanted.name, what, getattr(wanted, what), getattr(known, what)
                )
            if next_us and next_us <= known.last_us:
                # A clock was set back: what was published is not due again.
                next_us = next_due_us(wanted.cron, wanted.timezone, known.last_us)
            wanted = wanted._replace(paused=known.paused)
        elif len(self._ledger.schedules) >= SCHEDULES_MAX:
            how = "fixed by fmq", "remove some"
            raise TooMany("schedules", SCHEDULES_MAX + 1, SCHEDULES_MAX, *how)
        others = [each for each in self._ledger.schedules.values() if each.name != wanted.name]
        total = sum(len(each.text()) for each in (wanted, *others))
        if total > TOTAL_BYTES_MAX:
            raise TooLarge("all schedules in bytes", total, TOTAL_BYTES_MAX, "fixed by fmq")
        made: list[Changed | TopicMade] = []
        if wanted.topic not in self._ledger.topics:
            made.append(TopicMade(wanted.topic, self._writer.options.queues_of(wanted.topic), 0))
        return [*made, _changed(wanted._replace(next_us=next_us))]

    def first_due_us(self, wanted: ScheduleMet) -> int:
        """Return when a new schedule is due first. Raises BadOption or ExtraMissing."""
        first_us = next_due_us(wanted.cron, wanted.timezone, self._writer.clock.time_us())
        if first_us == NEVER:
            raise BadOption(
                f"cron={wanted.cron!r:.80}: names no time in 50 years. Nothing was changed."
            )
        return first_us

    def pausing(self, name: str, by: str, reason: str) -> list[Changed]:
        """Return the record that pauses a schedule. Raises UnknownSchedule."""
        pause = PauseMet(check_name("by", by), _why(reason), self._writer.clock.time_us())
        return [_changed(self._known(name)._replace(paused=pause))]

    def resuming(self, name: str, by: str, reason: str) -> list[Changed]:
        """Return the record that ends a pause; none without a pause. What was due in the pause is
        passed over.
        """
        check_name("by", by), _why(reason)
        known = self._known(name)
        if known.paused is None:
            return []
        after_us = max(self._writer.clock.time_us(), known.last_us)
        next_us = next_due_us(known.cron, known.timezone, after_us)
        return [_changed(known._replace(paused=None, next_us=next_us))]

    def removing(self, name: str, by: str, reason: str) -> list[Changed]:
        """Return the record that removes a schedule. Raises UnknownSchedule."""
        known = self._known(name)
        said = {"name": known.name, "by": check_name("by", by), "reason": _why(reason)}
        return [Changed(ChangeKind.UNSCHEDULE, "", known.topic, text=_json(said))]

    def running(self, name: str, by: str, reason: str) -> list[Changed | Run]:
        """Return the records that publish a schedule at once, due or not. Raises
        UnknownSchedule.
        """
        known = self._known(name)
        said = {"name": name, "due": 0, "by": check_name("by", by), "reason": _why(reason)}
        change = Changed(ChangeKind.DUE, "", known.topic, value=known.next_us, text=_json(said))
        return [change, self._message(known, self._writer.clock.time_us())]

    def _known(self, name: str) -> ScheduleMet:
        known = self._ledger.schedules.get(check_text("schedule name", name))
        if known is None:
            raise UnknownSchedule(name)
        return known

    # --- publishing ---------------------------------------------------------------------------

    def fire_due(self) -> None:
        """Publish all schedules that are due. Raises EngineFailed, Closed or StorageFull."""
        while self._fire_some():
            pass

    @property
    def are_waiting(self) -> bool:
        """True if there is any schedule."""
        return bool(self._ledger.schedules)

    @property
    def trouble(self) -> str | None:
        """The reason why a schedule that is due cannot be published."""
        for name, (schedule, why) in [*self._aside.items()]:
            if self._ledger.schedules.get(name) is schedule:
                return f"the schedule named {name!r} is due, and waits on: {why}"
        return None

    @property
    def no_room(self) -> str | None:
        """The reason why what is due was not published: the disk is full."""
        return self._no_room if self._ledger.schedules else None

    def next_due_us(self) -> int | None:
        """Return when the next schedule is due; None without one."""
        with self._queue.lock:
            waiting = self._not_aside()
        return min((each.next_us for each in waiting if not each.paused), default=None)

    def _not_aside(self) -> list[ScheduleMet]:
        """Return the schedules that can be due. The caller holds the engine's lock."""
        aside = [schedule for schedule, _ in self._aside.values()]
        schedules = self._ledger.schedules.values()
        return [each for each in schedules if each.next_us and each not in aside]

    def _fire_some(self) -> bool:
        if not self._ledger.schedules:  # a first look, without the lock
            return False
        with self._queue.lock:
            self._queue.check()
            now_us = self._writer.clock.time_us()
            due = [each for each in self._not_aside() if each.is_due(now_us)]
        found: list[DueFound] = []
        size = 0
        for each in sorted(due, key=lambda each: each.next_us):
            try:
                published = self._published(each, now_us)
                own = measured(published.records)
                if own > 2 * self._bytes_max:
                    # The schedule was made while segments were larger.
                    self._writer.journal.refuse(own)
            except FmqError as error:
                logger.warning("the schedule named %r is not published: %s", each.name, error)
                self._aside[each.name] = each, str(error)
                continue
            size += own
            if found and size > self._bytes_max:
                break
            found.append(published)
        if not found:
            self._no_room = None
            return False
        try:
            self._queue.run(self._plan_due, found, wait=True)
            self._no_room = None
        except StorageFull as error:
            self._no_room = f"schedules are due, and there is no room to publish them: {error}"
            raise
        return True

    def _published(self, schedule: ScheduleMet, now_us: int) -> DueFound:
        """Return the records that publish the due time of a schedule, or pass it over."""
        due_us, passed = schedule.next_us, False
        after_us = due_us
        if due_us < now_us - GRACE_US:
            passed = schedule.missed == "skip"
            # The first due time that is not missed is the next one.
            after_us = now_us - GRACE_US - 1
        next_us = next_due_us(schedule.cron, schedule.timezone, after_us)
        said = {"name": schedule.name, "due": due_us, "passed": passed}
        change = Changed(ChangeKind.DUE, "", schedule.topic, value=next_us, text=_json(said))
        return DueFound(schedule, [change] if passed else [change, self._message(schedule, due_us)])

    def _plan_due(self, found: list[DueFound]) -> None:
        """Plan the append that publishes what is due, without what was changed meanwhile."""
        records: list[Any] = []
        for schedule, own in found:
            if self._ledger.schedules.get(schedule.name) is schedule:
                records += own
                # The clock said that the schedule is due. So the records may have no earlier time.
                self._writer.not_before_us = max(self._writer.not_before_us, schedule.next_us)
        if records:
            self._writer.send(records)

    def _message(self, schedule: ScheduleMet, due_us: int) -> Run:
        own = {NAME_HEADER: schedule.name, DUE_HEADER: as_text(as_datetime(due_us))}
        message = Message(schedule.body, schedule.key, schedule.tag, {**schedule.headers, **own})
        run = encode_messages((message,), self._writer.options.compress_bytes_min)
        run.topic, run.queue = self._router.target(schedule.topic, schedule.key, None)
        return run


def _changed(schedule: ScheduleMet) -> Changed:
    value, text = schedule.next_us, schedule.text()
    return Changed(ChangeKind.SCHEDULE, "", schedule.topic, value=value, text=text)


def _json(said: dict[str, Any]) -> str:
    return json.dumps(said, separators=(",", ":"))


def _why(reason: str) -> str:
    text_bytes("reason", reason, REASON_BYTES_MAX)
    return reason
