"""Errors of calls about topics, groups, their members and deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from fmq.errors.base import FmqError
from fmq.errors.usage_errors import UsageError


class UnknownDeadLetter(UsageError):
    """The group has no dead letter with this number."""

    def __init__(self, group: str, number: int) -> None:
        super().__init__(
            f"the group {group!r} has no dead letter {number}: there was none, or it was replayed "
            "or purged. Nothing was changed; `fmq dead list`, or list(), says which there are."
        )
        self.group = group
        self.number = number


class GroupExists(UsageError):
    """The group is subscribed to the topic already."""

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(
            f"the group {group!r} of the topic {topic!r} exists already. Nothing was changed; "
            "engine.group(...).seek(...) moves it."
        )
        self.group = group
        self.topic = topic


class TopicExists(UsageError):
    """The topic exists already."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"the topic {topic!r} exists already. Nothing was changed; engine.topic({topic!r}) "
            "shows and changes it."
        )
        self.topic = topic


class TopicInUse(UsageError):
    """An undecided transaction writes to the topic."""

    def __init__(self, topic: str, tx_id: str) -> None:
        super().__init__(
            f"the undecided transaction {tx_id!r} writes to the topic {topic!r}, which cannot be "
            "deleted meanwhile. Nothing was changed; decide that one first."
        )
        self.topic = topic
        self.tx_id = tx_id


class UnknownTopic(UsageError):
    """There is no such topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic!r}. Nothing was changed; `fmq topics` lists those that are "
            "there. Its first message makes a topic, or engine.create_topic(...) does."
        )
        self.topic = topic


class CodecDiffers(UsageError):
    """The bodies of the topic are made by another codec, or of other fields."""

    def __init__(self, topic: str, brings: str, has: str) -> None:
        super().__init__(
            f"the topic {topic!r} has {has}, and this program brings {brings}. Nothing was "
            "changed; give all programs the same codec, or the new one a higher version=, with "
            "old= if it cannot decode the bodies that are there."
        )
        self.topic = topic
        self.brings = brings
        self.has = has


class UnknownGroup(UsageError):
    """There is no such group, or it is not subscribed to the topic."""

    def __init__(
        self, group: str, topic: str = "", topics: Sequence[str] = (), *, was_deleted: bool = False
    ) -> None:
        if was_deleted:
            what = f"the group {group!r} was deleted"
        elif topics:
            what = f"the group {group!r} takes from {', '.join(topics)}, and not from {topic}"
        else:
            what = f"there is no group {group!r}"
        super().__init__(
            f"{what}. Nothing was changed; engine.groups() lists all, and engine.consumer(...) or "
            "engine.create_group(...) makes it."
        )
        self.group = group
        self.topic = topic


class StillUndecided(UsageError):
    """An undecided transaction still needs what the call would remove."""

    def __init__(self, tx_id: str, group: str, topic: str, queue: int) -> None:
        super().__init__(
            f"the undecided transaction {tx_id!r} acks messages of {topic}/{queue} for the group "
            f"{group!r}, which cannot be moved or deleted meanwhile. Nothing was changed; decide "
            "that one first."
        )
        self.tx_id = tx_id


class StrategyDiffers(UsageError):
    """The other members of the group share its queues by another strategy."""

    def __init__(self, group: str, brings: str, has: str) -> None:
        super().__init__(
            f"the members of the group {group!r} share its queues by {has}, and this "
            f"one brings {brings}. Nothing was changed; give all of them the same, or "
            "close the others first."
        )
        self.group = group


class TopicsDiffer(UsageError):
    """A strict member and another member of its group read different topics."""

    def __init__(
        self, group: str, member: str, topics: Sequence[str], other: str, others: Sequence[str]
    ) -> None:
        super().__init__(
            f"in the group {group!r} the member {member!r} reads {', '.join(topics)} and "
            f"{other!r} reads {', '.join(others)}, which strict=True refuses. Nothing was changed; "
            "give both the same topics, or leave out strict=True."
        )
        self.group = group


class FilterDiffers(UsageError):
    """The group has another filter for the topic than this member."""

    def __init__(self, group: str, topic: str, brings: str, has: str) -> None:
        super().__init__(
            f"the group {group!r} wants of the topic {topic!r} {_wanted(has)}, and this member "
            f"{_wanted(brings)}. Nothing was changed; leave out filter=, or change it for all with "
            f"engine.group({group!r}).set_filter({topic!r}, ...)."
        )
        self.group = group
        self.topic = topic
        self.brings = brings
        self.has = has


def _wanted(text: str) -> str:
    return text or "all messages"


class MemberReplaced(UsageError):
    """Another consumer has joined under the name of this member."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(
            f"another consumer is now the member {member!r} of the group {group!r}, and this one "
            "is out: what it held was redelivered. Close it, or give each consumer a name of its "
            "own."
        )
        self.group = group
        self.member = member


class UnknownMember(UsageError):
    """The group has no member of this name now."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(
            f"the group {group!r} has no member {member!r} now. Nothing was changed; "
            f"`fmq group show`, or engine.group({group!r}).members(), lists those that it has."
        )
        self.group = group
        self.member = member


class MemberPutOut(UsageError):
    """An operator has put this member out of its group."""

    def __init__(self, group: str, member: str, by: str, reason: str) -> None:
        super().__init__(
            f"the member {member!r} was put out of the group {group!r} by {by}"
            f"{f': {reason}' if reason else ''}. What it held was redelivered. Close the consumer; "
            "a new one may join."
        )
        self.group = group
        self.member = member
        self.by = by
        self.reason = reason


class LeaseLost(FmqError):
    """The lease of the delivery or question ended, and another caller may have it now."""
