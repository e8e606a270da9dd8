"""Whether a reader would hide appends that had been durable, because a slot cannot be used.

A reader shows what is proven durable. A newer checkpoint than those that it can read may have
proven more. Beside a writer that is a matter of time: its next checkpoint tells. In a directory at
rest nothing else will tell, so the reader raises an error instead of showing less than there is.
"""

from __future__ import annotations

from fmq.disk import Directory
from fmq.errors import CheckpointLost
from fmq.recovery.checkpoint import Slots
from fmq.recovery.layout import LOCK


def doubt(
    directory: Directory, slots: Slots, proven_to: int, sound_to: int
) -> CheckpointLost | None:
    """Return the error for a reader that would show appends up to `proven_to`, of those that are
    sound up to `sound_to`; None if it hides nothing that a checkpoint may have proven.
    """
    if sound_to <= proven_to or not slots.unusable or _has_writer(directory):
        return None
    return CheckpointLost(directory.path, slots.unusable, proven_to, sound_to)


def _has_writer(directory: Directory) -> bool:
    """Whether an engine has the directory open. Nothing is written, and nothing is waited for."""
    try:
        return directory.locked_by(LOCK) is not None
    except OSError:
        return False  # nobody can tell, and an error is better than messages that are missing
