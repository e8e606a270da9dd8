"""Many directories as one: which there are, and whose rows are whose."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence

from fmq.disk import Disk
from fmq.errors import NotAStore
from fmq.table.journal import Journal, see

PATTERN = frozenset("*?[")


def is_fleet(paths: Sequence[str]) -> bool:
    """Whether `paths` may name more than one directory."""
    return len(paths) > 1 or any(PATTERN.intersection(path) for path in paths)


def see_all(
    paths: Iterable[str], *, permissive: bool = False, disk: Disk | None = None
) -> Iterator[Journal]:
    """The journals that `paths` and patterns name."""
    for path in directories(paths):
        yield see(path, disk=disk)


def directories(paths: Iterable[str]) -> list[str]:
    """The directories that `paths` name, sorted by pattern; NotAStore for what names none."""
    found: dict[str, None] = {}
    for path in paths:
        if not PATTERN.intersection(path):
            found[path] = None
            continue
        matches = sorted(glob.glob(path))
        if not matches:
            raise NotAStore(f"{path}: no directory is called so. Nothing was read.")
        found.update(dict.fromkeys(matches))
    return list(found)
