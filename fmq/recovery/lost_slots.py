"""Finding out whether a reader may miss durable appends because a slot is lost.

A reader shows what is proven durable. A newer checkpoint than those that it can read may have
proven more. Beside a writer the next checkpoint will prove it. In a directory that no engine has
open nothing will, so the reader raises an error instead of showing less than there is.
"""

from __future__ import annotations

from fmq.errors import CheckpointLost
from fmq.machine.disk import Directory
from fmq.recovery.checkpoint import Slots
from fmq.recovery.layout import LOCK


def doubt(
    directory: Directory, slots: Slots, proven_to: int, sound_to: int
) -> CheckpointLost | None:
    """Return the error if a reader that shows appends up to `proven_to` may miss durable ones.

    Sound appends end at `sound_to`. Return None if no checkpoint can have proven more.
    """
    if sound_to <= proven_to or not slots.unusable or _has_writer(directory):
        return None
    return CheckpointLost(directory.path, slots.unusable, proven_to, sound_to)


def _has_writer(directory: Directory) -> bool:
    """Return whether an engine has the directory open. This neither writes nor waits."""
    try:
        return directory.locked_by(LOCK) is not None
    except OSError:
        # This file system does not tell whether an engine has the lock. Say no: an error is better
        # than missing messages.
        return False
