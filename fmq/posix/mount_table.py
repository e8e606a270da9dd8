"""The mounts of this machine, in the words of Linux's /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
import sys
from functools import cached_property

from fmq.machine.mounts import remote_kind

MOUNTS = "/proc/self/mountinfo"
MOUNT_COMMAND = "/sbin/mount"
LINE = re.compile(r"(.+?) on (/.*) \(([^,()]+)((?:, [^()]*)?)\)")


class MountedAt:
    """The file system at an absolute path, of which the kernel is asked once it matters."""

    def __init__(self, path: str) -> None:
        self._path = path

    @cached_property
    def remote(self) -> str | None:
        """The kind of the file system if another machine serves it, else None."""
        return remote_kind(os.path.realpath(self._path), mountinfo())


def mountinfo() -> str:
    """Return the kernel's list of mounts; "" if it has none. Then no file system is refused."""
    if sys.platform == "darwin":
        return of_macos(_said_by_mount())
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            return mounts.read()
    except OSError:
        return ""


def of_macos(said: str) -> str:
    """Return what macOS's command `mount` prints, in the words of Linux."""
    lines = []
    for found in map(LINE.fullmatch, said.splitlines()):
        if found:
            source, point, kind, options = found.groups()
            point = point.replace("\\", "\\134").replace(" ", "\\040")
            options = options.replace(", ", ",").lstrip(",") or "rw"
            source = source.replace(" ", "\\040")
            lines.append(f"0 0 0:0 / {point} {options} - {kind} {source} {options}")
    return "\n".join(lines)


def _said_by_mount() -> str:
    import subprocess  # only on macOS, as it is slow to import

    try:
        return subprocess.run(
            [MOUNT_COMMAND], capture_output=True, text=True, errors="surrogateescape", check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
