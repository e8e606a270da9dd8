"""Names: RocketMQ's resources, which may have a namespace, as the names of fmq, and back.

The group or topic `orders` of the namespace `shop` is `shop%orders` in fmq, as in RocketMQ. So a
name itself may have no `%`.
"""

from __future__ import annotations

from typing import Any

from fmq_rocketmq.protocol import Code, Resource
from fmq_rocketmq.refusals import Refused

SEPARATOR = "%"


def topic_name(resource: Any) -> str:
    """Return the name of a topic in fmq. Raises Refused."""
    return _name(resource, "topic", Code.ILLEGAL_TOPIC)


def group_name(resource: Any) -> str:
    """Return the name of a group in fmq. Raises Refused."""
    return _name(resource, "consumer group", Code.ILLEGAL_CONSUMER_GROUP)


def _name(resource: Any, what: str, code: int) -> str:
    space, name = resource.resource_namespace, resource.name
    if not name or SEPARATOR in name or SEPARATOR in space:
        why = "is empty" if not name else f"has a {SEPARATOR}, which separates a namespace from it"
        raise Refused(code, f"the name of the {what} {name[:40]!r} {why}. Nothing was changed.")
    return f"{space}{SEPARATOR}{name}" if space else str(name)


def resource_of(name: str) -> Any:
    """Return the resource that a client knows under the name `name` of fmq."""
    space, found, rest = name.partition(SEPARATOR)
    return Resource(resource_namespace=space, name=rest) if found else Resource(name=name)
