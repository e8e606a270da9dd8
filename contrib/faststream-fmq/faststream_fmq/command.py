"""What is published, and how: a command for the producer."""

from __future__ import annotations

from typing import Any, Self

from faststream.response import BatchPublishCommand, PublishCommand, PublishType


class FmqPublishCommand(BatchPublishCommand):
    """Bodies for a topic. `how` has the other arguments of fmq's `send`, such as `key`."""

    def __init__(self, *bodies: Any, how: dict[str, Any] | None = None, **named: Any) -> None:
        super().__init__(*bodies or (None,), **named)
        self.how = {name: value for name, value in (how or {}).items() if value is not None}

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Return `cmd`, or one of this class that says the same: a handler has returned a value."""
        if isinstance(cmd, cls):
            return cmd
        body, more = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *more,
            destination=cmd.destination,
            reply_to=cmd.reply_to,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            _publish_type=cmd.publish_type,
        )


def command(topic: str, *bodies: Any, **named: Any) -> FmqPublishCommand:
    """Return the command of a call of `publish`."""
    return FmqPublishCommand(*bodies, destination=topic, _publish_type=PublishType.PUBLISH, **named)
