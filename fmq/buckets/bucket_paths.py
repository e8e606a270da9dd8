"""Which directories a path means: those of this machine, or those of an object store."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fmq.buckets.bucket_address import described, in_bucket
from fmq.errors import ExtraMissing
from fmq.machine.disk import Directory, Disk
from fmq.posix import RealDisk

if TYPE_CHECKING:
    from fmq.buckets.bucket_directory import BucketDirectory


def directory_at(path: str, disk: Disk | None = None) -> Directory:
    """Return the directory at `path`, to be read. Raises NotAStore, or ExtraMissing."""
    if disk is None and in_bucket(path):
        return _directory(path)
    return (disk or RealDisk()).directory(path, make=False)


def folders_like(pattern: str) -> list[str]:
    """Return the directories of an object store that `pattern` names, sorted. A * stands for a
    part of one name.
    """
    front, mark, query = described(pattern).partition("?")
    scheme, _, path = front.partition("://")
    bucket, *parts = path.split("/")
    found = [f"{scheme}://{bucket}"]
    for part in parts:
        found = [
            f"{folder}/{name}"
            for folder in found
            for name in sorted(_directory(f"{folder}{mark}{query}").folders())
            if fnmatchcase(name, part)
        ]
    return [f"{each}{mark}{query}" for each in found]


def _directory(address: str) -> BucketDirectory:
    try:
        from fmq.buckets.bucket_directory import BucketDirectory
    except ImportError as error:
        raise ExtraMissing(f"reading {address}", "pyarrow", "arrow") from error
    return BucketDirectory(address)
