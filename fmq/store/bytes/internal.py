"""The names of internal topics and groups: fmq's own, which no caller can use.

The dead letters of a group are in one of them. Replayed messages are in others, one for each topic
that they came from. A member that gets every message has a group of its own.
"""

from __future__ import annotations

from hashlib import blake2b

INTERNAL = "\t"
"""What each of these names begins with. It cannot be printed, so no caller's topic has it."""
NAME_BYTES_MAX = 255  # the largest name that a record may have, in bytes
DEAD, AGAIN, LONG = "dead", "again", "of a long name"
BROADCAST = "broadcast"


def is_internal(topic: str) -> bool:
    """Return whether `topic` is internal."""
    return topic[:1] == INTERNAL


def dead_topic(group: str) -> str:
    """Return the topic with the dead letters of `group`."""
    return _name(DEAD, group)


def replay_topic(group: str, topic: str) -> str:
    """Return the topic of the messages from `topic` that are replayed to `group`."""
    return _name(AGAIN, group, topic)


def broadcast_group(group: str, member: str) -> str:
    """Return the name of the group in which a broadcast member of `group` is alone, to get every
    message.
    """
    return _name(BROADCAST, group, member)


def is_broadcast(group: str) -> bool:
    """Return whether `group` is the own group of a broadcast member."""
    return group.startswith(INTERNAL + BROADCAST + INTERNAL)


def shown(topic: str) -> str:
    """Return the name of any topic or group in printable form."""
    return "fmq:" + "/".join(topic.split(INTERNAL)[1:]) if is_internal(topic) else topic


def _name(*parts: str) -> str:
    name = INTERNAL + INTERNAL.join(parts)
    if len(name.encode()) > NAME_BYTES_MAX:
        digest = blake2b(name.encode(), digest_size=16).hexdigest()
        name = INTERNAL + INTERNAL.join((parts[0], LONG, digest))
    return name
