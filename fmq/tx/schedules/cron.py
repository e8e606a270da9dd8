"""When a cron expression names a time: `next_due_us`. The one place that knows the library for it.

cronsim has five fields as Debian's cron, or six with the seconds in front, and keeps to Debian's
rules where clocks are set for daylight saving: a fixed time that is left out is due right after the
gap, and one that comes twice is due once.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import NoReturn

from fmq.basics.clock import as_datetime, as_us
from fmq.errors import BadOption, ExtraMissing
from fmq.tx.said.schedule_met import NEVER

CRON_BYTES_MAX = 255
SERVER = "the process that has the directory open"


def next_due_us(cron: str, timezone: str, after_us: int) -> int:
    """Return the first time that `cron` names after a time; NEVER if there is none in 50 years.

    Raises BadOption if the expression or the time zone cannot be read, or ExtraMissing.
    """
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise ExtraMissing("a schedule", "cronsim", "cron", SERVER) from None
    after = as_datetime(after_us).astimezone(_zone(timezone))
    if len(cron) > CRON_BYTES_MAX:
        _refuse(cron, f"is longer than {CRON_BYTES_MAX} characters")
    try:
        for moment in CronSim(cron, after):
            # In the hour that a clock shows twice, cronsim returns the first of both, which may
            # have passed. Times that fall into a gap are all due at its end, and once.
            if (found := as_us(moment)) > after_us:
                return found
    except (CronSimError, ValueError, OverflowError, AssertionError) as error:
        _refuse(cron, f"cannot be read: {error}")
    return NEVER


def _zone(timezone: str) -> tzinfo:
    # Importing it takes longer than most of fmq, and few programs have schedules.
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(timezone)
    # A name may be no path that the system can open.
    except (LookupError, ValueError, OSError):
        raise BadOption(
            f"timezone={timezone!r:.80}: is not known here. It is a name as Europe/Berlin or UTC. "
            "Nothing was changed."
        ) from None


def _refuse(cron: str, why: str) -> NoReturn:
    raise BadOption(
        f"cron={cron!r:.80}: {why}. It has five fields (minute, hour, day, month, weekday), or six "
        "with the seconds in front. Nothing was changed."
    )
