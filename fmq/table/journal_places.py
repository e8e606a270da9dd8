"""Which journal a path means: a directory of this machine, a copy in an object store, or a home.

    home+s3://lake/shop?region=eu-west-1        the home at this address

Who plans a read looks for the folder of a home's slots, and puts `home+` in front. So each split
says on every machine what to read. A home shows its segments, and its newest entries.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import closing, suppress
from threading import Lock
from typing import NoReturn

from fmq import buckets
from fmq.basics.own_process import here
from fmq.buckets import in_bucket
from fmq.errors import NotAStore
from fmq.errors.storage_errors import unreadable_within
from fmq.home.home_addresses import is_home, objects_at, without_secrets
from fmq.home.home_reader import HomeReadDirectory
from fmq.home.objects import Objects, read_together
from fmq.machine.disk import Directory, Disk

HOME = "home+"
SLOTS = "slots"
HOMES_KEPT = 4  # a home in memory has its newest entries, some 16 MiB at most

_kept: dict[tuple[str, object], HomeReadDirectory] = {}
_keeping = Lock()


def names_home(path: str) -> bool:
    """Return whether `path` says that it is a home, as the path of a directory does not."""
    is_folder = in_bucket(path) or path.startswith("file:")
    return path.startswith(HOME) or (is_home(path) and not is_folder)


def as_home(path: str) -> str:
    """Return `path`, with `home+` in front if a home is there. Raises NotAStore if it has a
    password, which all would see who see a plan.
    """
    if names_home(path):
        if without_secrets(path) != path:
            raise NotAStore(
                f"{without_secrets(path)}: has a password, which everybody would see who sees this "
                "query. Nothing was read. Leave it out, and put it where the client of the "
                "database finds it on each machine, such as ~/.pgpass."
            )
        return HOME + path.removeprefix(HOME)
    with (
        suppress(NotAStore),
        unreadable_within(path),
        closing(buckets.directory_at(path)) as directory,
    ):
        if SLOTS in directory.names():
            return f"{HOME}{path}" if in_bucket(path) else f"{HOME}file://{path}"
    return path


def directory_at(path: str, disk: Disk | None = None, upto: int | None = None) -> Directory:
    """Return the directory at `path`, to be read. Raises NotAStore, ExtraMissing or HomeRefused.

    A home may be shown as this process has seen it before, if it had the journal `upto` this
    position then: its newest entries are many requests.
    """
    if disk is not None or not path.startswith(HOME):
        return buckets.directory_at(path, disk)
    key = path, here()
    with _keeping:
        known = _kept.pop(key, None)
        if known is not None and (upto is None or known.position < upto):
            known.close()
            known = None
        if known is None:
            known = HomeReadDirectory(_objects_of(path.removeprefix(HOME)), path)
        _kept[key] = known
        while len(_kept) > HOMES_KEPT:
            _kept.pop(next(iter(_kept))).close()
        return known.again()


def _objects_of(address: str) -> Objects:
    if in_bucket(address):
        return BucketHome(buckets.directory_at(address))
    return objects_at(address, make=False)


class BucketHome:
    """Implements Objects, to be read, in an object store whose address says where it is."""

    object_bytes_max = 0

    def __init__(self, directory: Directory) -> None:
        self.address = directory.path
        self._directory = directory

    def read(self, key: str) -> bytes | None:
        folder, _, name = key.partition("/")
        try:
            file = self._directory.subdirectory(folder, make=False).open(name)
        except FileNotFoundError:
            return None
        with closing(file):
            return file.read(0, file.size())

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        return read_together(self.read, keys)

    def names(self, folder: str) -> list[str]:
        return sorted(self._directory.subdirectory(folder, make=False).names())

    def create(self, key: str, data: bytes) -> NoReturn:
        raise OSError(errno.EROFS, "a home is only read here", self.address)

    def remove(self, keys: Sequence[str]) -> NoReturn:
        raise OSError(errno.EROFS, "a home is only read here", self.address)

    def close(self) -> None:
        self._directory.close()
