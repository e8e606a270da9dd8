"""System checks of FMQ_DIR: fmq.W002, another machine serves its files; fmq.W003, FMQ_OPTIONS are
not those that are stored in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks

import fmq
from fmq.admin.settings_engine import directory, reading
from fmq.arguments.stored_options import others_of
from fmq.machine.mounts import remote_kind
from fmq.posix import mountinfo

W002 = "fmq.W002"
W003 = "fmq.W003"


def register() -> None:
    """Register the checks with Django."""
    checks.register(check_directory)


def check_directory(app_configs: Any, **_: Any) -> list[checks.CheckMessage]:
    """Warn if messages cannot be written to FMQ_DIR, or not as FMQ_OPTIONS say."""
    if not getattr(settings, "FMQ_DIR", None) or "://" in directory():
        return []
    return [*remote_warnings(directory(), mountinfo()), *_options_that_differ()]


def remote_warnings(path: str, mounts: str) -> Iterator[checks.CheckMessage]:
    """Yield a warning if a network file system has the directory, or will have it."""
    kind = remote_kind(os.path.realpath(path), mounts)
    if kind:
        said = f"{path} is on a network file system ({kind}): no engine opens it for writing."
        hint = "Name a directory of this machine, or connect to one that is served by TCP."
        yield checks.Warning(said, hint=hint, obj="FMQ_DIR", id=W002)


def _options_that_differ() -> Iterator[checks.CheckMessage]:
    wanted = getattr(settings, "FMQ_OPTIONS", None)
    if wanted is None:
        return
    try:
        with reading() as engine:
            stored = {
                each.name: each.value
                for each in engine.settings()
                if each.source == "directory" or each.waits
            }
    except fmq.FmqError:  # no messages were sent yet
        return
    for name, (asked, counts) in sorted(others_of(wanted, stored).items()):
        said = f"FMQ_OPTIONS has {name}={asked!r}, and {directory()} has {counts!r}, which counts."
        hint = "Change the one or the other: engine.configure, or the settings."
        yield checks.Warning(said, hint=hint, obj="FMQ_OPTIONS", id=W003)
