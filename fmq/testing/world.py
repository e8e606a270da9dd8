"""What surrounds an engine in one life of a program: files, a clock, and what the program has told.

Files lie in a real directory, because SQLite and other libraries reach theirs without a door.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import fmq
from fmq.machine.disk import Directory
from fmq.testing.crash_disk import CrashDisk
from fmq.testing.fake_clock import FakeClock

Files = dict[str, bytes | None]  # contents by path below the directory; None stands for a directory


class World:
    """The surroundings that a program gets beside its engine. After a crash the next life gets new
    ones like them.
    """

    def __init__(self, path: Path, clock: FakeClock, told: Iterable[object] = ()) -> None:
        self.path = path
        """A real directory for the program's own files: what is in it is crashed, too."""
        self.clock = clock
        """The engine's clock; it stands still until somebody moves it."""
        self._told = list(told)

    def tell(self, what: object) -> None:
        """Note that the program told `what` to the outside, so no crash can take it back."""
        self._told.append(what)

    @property
    def told(self) -> tuple[object, ...]:
        """Return all that the program told to the outside, before the crash and after it."""
        return tuple(self._told)


Act = Callable[[fmq.Engine, World], object]


def read_files(directory: Path, known: Files) -> Files:
    """Return all files as they are now. Files equal to those in `known` share their bytes.

    A database in the directory loses its locks against other processes by being read. Within
    this one SQLite keeps its own account of them.
    """
    found: Files = {}
    _read_below(os.fspath(directory), "", known, found)
    return found


def _read_below(directory: str, prefix: str, known: Files, found: Files) -> None:
    with os.scandir(directory) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            found[name] = None
            _read_below(entry.path, f"{name}/", known, found)
        elif entry.is_file():
            with suppress(FileNotFoundError), open(entry.path, "rb", buffering=0) as file:
                data = file.read()
                found[name] = known[name] if known.get(name) == data else data


def write_files(directory: Path, files: Files) -> None:
    """Write `files` to `directory`, which is made if it does not exist."""
    directory.mkdir(exist_ok=True)
    for name, data in files.items():
        if data is None:
            (directory / name).mkdir()
        else:
            (directory / name).write_bytes(data)


def read_disk(disk: CrashDisk, path: str) -> Files:
    """Return all files of a directory on a disk in memory."""
    found: Files = {}
    _collect(disk.directory(path, make=False), "", found)
    return found


def _collect(directory: Directory, prefix: str, found: Files) -> None:
    for name in directory.names():
        try:
            below = directory.subdirectory(name, make=False)
        except NotADirectoryError:
            file = directory.open(name)
            found[prefix + name] = file.read(0, file.size())
            file.close()
        else:
            found[prefix + name] = None
            _collect(below, f"{prefix}{name}/", found)
