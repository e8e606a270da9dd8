"""The calls that doors carry out by name. For each it says what the call does with the parts of an
engine.

An engine process answers its clients from the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fmq.consume.administration import group_changes, topic_changes
from fmq.consume.administration.change_plans import Plan
from fmq.consume.administration.changed_limits import limit
from fmq.consume.administration.changed_schedules import change_schedule, make_schedule
from fmq.consume.administration.stored_changes import configure
from fmq.consume.groups.filter_counts import passing
from fmq.steps.call_steps import Steps
from fmq.tx.looks.schedule_list import schedule_list
from fmq.tx.schedules.schedules import Schedules

if TYPE_CHECKING:
    from fmq.assembly.parts import Parts

PublicCall = Callable[..., Any]

LOOKS: dict[str, Callable[[Parts], PublicCall]] = {
    "appended": lambda parts: parts.tail.look,
    "check_group": lambda parts: parts.group_looks.check_group,
    "check_topic": lambda parts: parts.group_looks.check_topic,
    "clients": lambda parts: parts.list_clients,
    "codec_of": lambda parts: parts.messages.codec_of,
    "count_dead": lambda parts: parts.burying.count,
    "delayed": lambda parts: parts.delays.look,
    "former_members": lambda parts: parts.group_looks.former_members,
    "groups": lambda parts: parts.group_looks.groups,
    "in_hand": lambda parts: parts.group_looks.in_hand,
    "mark": lambda parts: parts.messages.mark,
    "marks": lambda parts: parts.messages.marks,
    "members": lambda parts: parts.group_looks.members,
    "offset_at": lambda parts: parts.messages.offset_at,
    "outcome": lambda parts: parts.manager.decisions.outcome,
    "page_of_dead": lambda parts: parts.burying.page,
    "passing": lambda parts: partial(passing, parts.messages),
    "places_of": lambda parts: parts.finder.places,
    "queues": lambda parts: parts.messages.queues,
    "schedules": lambda parts: partial(schedule_list, parts.messages),
    "settings": lambda parts: parts.settings,
    "replayed": lambda parts: parts.burying.replayed,
    "unacked": lambda parts: parts.messages.unacked,
    "undecided": lambda parts: parts.questions.undecided,
}
"""Calls that change nothing."""

GROUP_CHANGES: dict[str, Callable[..., Plan]] = {
    "ack_below": group_changes.ack_below,
    "add_queues": topic_changes.add_queues,
    "configure": configure,
    "delete_group": group_changes.delete,
    "delete_topic": topic_changes.delete_topic,
    "limit": limit,
    "make_group": group_changes.make,
    "make_topic": topic_changes.make_topic,
    "pause": group_changes.pause,
    "pause_schedule": partial(change_schedule, Schedules.pausing),
    "purge": group_changes.purge,
    "reject": group_changes.reject,
    "remove_schedule": partial(change_schedule, Schedules.removing),
    "resume": group_changes.resume,
    "resume_schedule": partial(change_schedule, Schedules.resuming),
    "retain": topic_changes.retain,
    "run_schedule": partial(change_schedule, Schedules.running),
    "schedule": make_schedule,
    "seek": group_changes.seek,
    "set_codec": topic_changes.set_codec,
    "set_filter": group_changes.set_filter,
    "skip": group_changes.skip,
}
"""Changes of groups, topics, schedules and options. Each checks its arguments, as a client may send
any, and returns its plan (`change_plans.py`). It is carried out once, even if a client has to ask
again.
"""

IN_STEPS: dict[str, Callable[[Parts], Callable[..., Steps[Any]]]] = {
    "ack_ticket": lambda parts: parts.tickets.acking,
    "checkpoint": lambda parts: parts.checkpointing,
    "decide": lambda parts: parts.manager.decisions.deciding,
    "decide_many": lambda parts: parts.manager.joint_decisions.deciding,
    "erase": lambda parts: parts.eraser.erasing,
    "purge_dead": lambda parts: parts.burying.purging,
    "put_out": lambda parts: parts.evictions.putting_out,
    "reject_ticket": lambda parts: parts.tickets.rejecting,
    "release": lambda parts: parts.evictions.releasing,
    "release_ticket": lambda parts: parts.tickets.releasing,
    "replay_dead": lambda parts: parts.burying.replaying,
    "sync": lambda parts: parts.syncing,
}
"""Other changes, as generators of their steps: only those that a client may ask for again when its
answer is lost, as that does no harm. All others go into GROUP_CHANGES.
"""

RECALL = "recall"
"""The change that ends the wait of delayed messages. Clients ask for it by an op of its own, as it
is carried out once.
"""
