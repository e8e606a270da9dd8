"""The schedules, as people see them."""

from __future__ import annotations

from fmq.basics.clock import as_datetime
from fmq.basics.results import Pause, ScheduleInfo
from fmq.tx.looks.messages import Messages
from fmq.tx.said.schedule_met import ScheduleMet


def schedule_list(messages: Messages, name: str | None) -> list[ScheduleInfo]:
    """Return all schedules by name, or the one that is named, as they are at one instant."""
    messages.catch_up(messages.ledger.changed_at)
    with messages.lock:
        found = sorted(messages.ledger.schedules.items())
    return [_info(each) for known, each in found if name in (None, known)]


def _info(each: ScheduleMet) -> ScheduleInfo:
    pause = each.paused
    return ScheduleInfo(
        name=each.name,
        cron=each.cron,
        timezone=each.timezone,
        topic=each.topic,
        next=as_datetime(each.next_us) if each.next_us else None,
        last=as_datetime(each.last_us) if each.last_us else None,
        missed=each.missed,
        by=each.by,
        body=each.body,
        key=each.key,
        tag=each.tag,
        headers=dict(each.headers),
        paused=pause and Pause("schedule", pause.by, pause.reason, as_datetime(pause.time_us)),
    )
