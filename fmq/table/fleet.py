"""Many directories as one table: which exist, which engine wrote each, and which are copies."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fmq import buckets
from fmq.buckets import described, folders_like, in_bucket
from fmq.errors import NotAStore
from fmq.machine.disk import Disk
from fmq.posix import absolute
from fmq.table.copies import as_one
from fmq.table.journal_places import HOME, as_home, names_home
from fmq.table.snapshot import Snapshot, see


def is_pattern(path: str) -> bool:
    """Return whether `path` may stand for several directories."""
    return not names_home(path) and buckets.is_pattern(path)


def is_fleet(paths: Sequence[str]) -> bool:
    """Return whether `paths` may name more than one directory."""
    return len(paths) > 1 or any(map(is_pattern, paths))


def see_all(
    paths: Sequence[str],
    *,
    permissive: bool = False,
    waiting: bool = False,
    undecided: bool = False,
    disk: Disk | None = None,
) -> Iterator[Snapshot]:
    """Return the journals that `paths` and patterns name. Copies of one store become one journal.
    Raises Diverged.

    With `waiting`, a directory that a pattern finds may have no journal yet. With `undecided`, each
    is read from its oldest undecided transaction on, which may be far back.
    """
    named = directories((path for path in paths if not is_pattern(path)), disk)
    by_store: dict[bytes | str, list[Snapshot]] = {}
    for path in directories(paths, disk):
        origin = origin_of(path)
        try:
            journal = see(
                path,
                origin.engine,
                origin.host,
                permissive=permissive,
                undecided=undecided,
                disk=disk,
            )
        except NotAStore:
            if not waiting or path in named:
                raise
            continue
        # Without a sound header the store of a journal is unknown, so the journal stands alone.
        by_store.setdefault(journal.store or path, []).append(journal)
    for copies in by_store.values():
        yield copies[0] if len(copies) == 1 else as_one(copies, disk)


class PathOrigin(NamedTuple):
    """What a path tells about the engine that wrote there."""

    engine: str
    host: str | None


def origin_of(path: str) -> PathOrigin:
    """Return the engine and host named in `path`, as in `engine=shop/host=web1`; else the
    directory's name as the engine.
    """
    path, is_home = path.removeprefix(HOME), path.startswith(HOME)
    front = path.partition("?")[0] if is_home or in_bucket(path) else path
    parts = front.rstrip("/").split("/")
    said = {key: unquote(value) for key, _, value in (part.partition("=") for part in parts)}
    return PathOrigin(said.get("engine") or parts[-1], said.get("host") or None)


def directories(paths: Iterable[str], disk: Disk | None = None) -> list[str]:
    """Return the directories that `paths` name, sorted for each pattern. Raises NotAStore if there
    are none.

    A reader may run in another working directory or process, so a path is made one that says
    everywhere what it says here.
    """
    found: dict[str, None] = {}
    for path in map(_local, paths):
        if not is_pattern(path):
            found[as_home(_whole(path)) if disk is None else path] = None
            continue
        matches = _matches(path)
        if not matches:
            raise NotAStore(
                f"{path}: no directory is called so. Nothing was read. A * stands for a part of "
                "one name: /data/*/shop finds /data/web1/shop, and not /data/a/b/shop."
            )
        found.update(dict.fromkeys(map(as_home, matches)))
    return list(found)


def _whole(path: str) -> str:
    if names_home(path):
        return path
    return described(path) if in_bucket(path) else absolute(path)


def _matches(pattern: str) -> list[str]:
    if in_bucket(pattern):
        return folders_like(pattern)
    # With a slash at its end the pattern matches directories only.
    return sorted(absolute(match) for match in glob.glob(f"{pattern.rstrip('/')}/"))


def _local(path: str) -> str:
    """Return `path` as a path of this machine, or as the address in an object store that it is.
    Raises NotAStore for another kind of address.
    """
    if names_home(path):
        return path
    scheme, _, rest = path.partition(":")
    if scheme == "file" and rest.startswith("/"):
        return unquote(urlsplit(path).path)
    if rest.startswith("//") and not in_bucket(path):
        raise NotAStore(
            f"{path}: fmq reads directories that the file system of every machine of the cluster "
            "shows, and no addresses but those of object stores (s3://, gs://, abfs://) and of "
            "homes. Nothing was read. docs/spark.md says how to read what lies in HDFS."
        )
    return path
