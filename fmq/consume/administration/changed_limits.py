"""Setting and ending the limit of a group: one append, as the changes of groups and topics."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from fmq.arguments.names import as_index, check_flag, check_name
from fmq.consume.administration.change_plans import Changes, Plan
from fmq.consume.groups.group_limits import ordered_by_key
from fmq.errors import BadOption
from fmq.store.bytes.content import text_bytes
from fmq.store.bytes.kinds import Changed, ChangeKind
from fmq.tx.commands.limits import REASON_BYTES_MAX
from fmq.tx.said.limit_met import COUNT_MAX, RATE_MAX, RATE_MIN, LimitMet


def limit(
    changes: Changes,
    group: str,
    concurrency: Any,
    rate: Any,
    concurrency_by_key: Any,
    rate_by_key: Any,
    fair: Any,
    by: str,
    reason: str,
) -> Plan:
    """Limit how much `group` is handed from now on. An argument that is None sets no limit. If all
    are None, the group has no limit any more. Raises UnknownGroup, BadOption or TypeError.
    """
    wanted = LimitMet(
        _count("concurrency", concurrency),
        _rate("rate", rate),
        _count("concurrency_by_key", concurrency_by_key),
        _rate("rate_by_key", rate_by_key),
        check_flag("fair", fair),
        check_name("by", by),
        reason,
    )
    text_bytes("reason", reason, REASON_BYTES_MAX)

    def plan() -> list[Changed]:
        changes.check_group(group)
        room = changes.rooms.get(group)
        if wanted.is_by_key and room is not None and room.is_ordered:
            raise ordered_by_key(group)
        if wanted.is_empty and group not in changes.ledger.limits:
            return []
        return [Changed(ChangeKind.LIMIT, group, "", text=wanted.text())]

    return plan


def _count(what: str, number: Any) -> int | None:
    if number is None:
        return None
    count = as_index(what, number)
    if not 1 <= count <= COUNT_MAX:
        raise BadOption(
            f"{what}={count}: is from 1 to {COUNT_MAX:,}, or None for no limit; a pause hands out "
            "nothing. Nothing was changed."
        )
    return count


def _rate(what: str, number: Any) -> float | None:
    if number is None:
        return None
    if not isinstance(number, Real) or isinstance(number, bool):
        raise TypeError(
            f"{what}={number!r:.40}: is a number of messages a second, not "
            f"{type(number).__name__}. Nothing was changed."
        )
    try:
        rate = float(number)
    except OverflowError:  # an int that no float can hold
        rate = math.inf
    if not RATE_MIN <= rate <= RATE_MAX:  # nor is NaN
        raise BadOption(
            f"{what}={rate:g}: is from {RATE_MIN:g} to {RATE_MAX:g} messages a second, or None for "
            "no limit; a pause hands out nothing. Nothing was changed."
        )
    return rate
