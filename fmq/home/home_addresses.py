"""Which storage the address of a home means, and the disk of an engine that has it."""

from __future__ import annotations

import re

from fmq.arguments.path import without_secrets as without_secrets  # for the rooms above
from fmq.basics.clock import Clock
from fmq.basics.own_process import here
from fmq.errors import BadName, ExtraMissing, HomeRefused
from fmq.home.file_objects import FileObjects
from fmq.home.home_disk import HomeDisk
from fmq.home.home_log import HomeLog
from fmq.home.objects import NoAnswer, Objects
from fmq.machine.disk import Disk
from fmq.posix import RealDisk

FILE = re.compile(r"file://(/.+)")
S3 = re.compile(r"s3://([^/]+)/*(.*?)/*")
POSTGRES = re.compile(r"postgres(?:ql)?://([^/?#]*)/([^/?#]+)/([^/?#]+?)/*(\?[^#]*)?")
NATS = re.compile(r"(nats|tls)://(?:([^/?#]+)@)?([^/?#@]+)/([\w-]+)/*", re.ASCII)
CLOUD = re.compile(r"(?:az|gs)://([^/]+)(/.*)?")
ADDRESSES = FILE, S3, POSTGRES, NATS, CLOUD
RETRY_SECONDS = 30.0


def check_address(address: object) -> str:
    """Return `address`. Raises TypeError or BadName unless it is the address of a home."""
    if not isinstance(address, str):
        raise TypeError(
            f"home={address!r}: the address of a home is a str, such as 'file:///mnt/shared/shop', "
            f"not {type(address).__name__}. Nothing was opened."
        )
    if not any(each.fullmatch(address) for each in ADDRESSES) or "\0" in address:
        raise BadName(
            f"home {without_secrets(address)!r}: not the address of a home. Nothing was opened. "
            "One looks like file:///mnt/shared/shop, with an absolute path, s3://bucket/shop, "
            "postgresql://host/database/shop or nats://host:4222/shop"
        )
    return address


def is_home(text: str) -> bool:
    """Return whether `text` is the address of a home, and no path."""
    try:
        check_address(text)
    except BadName:
        return False
    return True


def objects_at(address: str, *, make: bool = True) -> Objects:
    """Open the storage of a home. Raises HomeRefused if it cannot be opened, or is missing and not
    to be made.
    """
    try:
        found = S3.fullmatch(address)
        if found is not None:
            return _in_bucket(*found.groups())
        found = POSTGRES.fullmatch(address)
        if found is not None:
            return _in_postgres(address, *found.groups(""), make=make)
        found = NATS.fullmatch(address)
        if found is not None:
            return _in_nats(address, *found.groups(""), make=make)
        if CLOUD.fullmatch(address):
            return _in_cloud(address.rstrip("/"))
        path = address.removeprefix("file://")
        return FileObjects(address, path, RealDisk(allow_remote=True), make=make)
    except (OSError, NoAnswer) as error:
        raise HomeRefused(
            f"{without_secrets(address)}: cannot be opened ({error}). Nothing was changed. Look "
            "whether it can be reached, or is mounted, and is yours to read and write."
        ) from error


def is_away(refused: HomeRefused) -> bool:
    """Return whether the storage gave no answer, so that a later try may succeed."""
    return isinstance(refused.__cause__, (NoAnswer, ConnectionError, TimeoutError))


def _in_bucket(bucket: str, prefix: str) -> Objects:
    try:
        from fmq.home.bucket_objects import BucketObjects
    except ImportError as error:
        what = f"a home at s3://{bucket}/{prefix}"
        raise ExtraMissing(what, "boto3", "home-s3") from error
    return BucketObjects(bucket, prefix)


def _in_postgres(
    address: str, server: str, database: str, home: str, how: str, *, make: bool
) -> Objects:
    shown = without_secrets(address)
    try:
        from fmq.home.postgres_objects import PostgresObjects
    except ImportError as error:
        raise ExtraMissing(f"a home at {shown}", "psycopg", "home-postgres") from error
    return PostgresObjects(shown, f"postgresql://{server}/{database}{how}", home, make=make)


def _in_nats(address: str, scheme: str, user: str, hosts: str, home: str, *, make: bool) -> Objects:
    shown = without_secrets(address)
    try:
        from fmq.home.nats_objects import NatsObjects
    except ImportError as error:
        raise ExtraMissing(f"a home at {shown}", "nats-py", "home-nats") from error
    at = f"{user}@" if user else ""
    servers = [f"{scheme}://{at}{host}" for host in hosts.split(",")]
    return NatsObjects(shown, servers, home, make=make)


def _in_cloud(address: str) -> Objects:
    try:
        from fmq.home.cloud_objects import CloudObjects
    except ImportError as error:
        extra = "azure" if address.startswith("az:") else "gcs"
        raise ExtraMissing(f"a home at {address}", "obstore", extra) from error
    return CloudObjects(address)


def home_disk(inner: Disk, address: str, clock: Clock, /, **says: str | None) -> HomeDisk:
    """Return a disk whose directory is the cache of the home at `address`. Nothing is taken over
    before its directory is locked.
    """
    return HomeDisk(inner, home_log(inner, address, clock, **says))


def home_log(inner: Disk, address: str, clock: Clock, /, **says: str | None) -> HomeLog:
    """Return the log of the home at `address`, as this process sees it.

    What this process `says` is in its OWN: the `address` at which it will serve, or the place to
    which the data has `moved`.
    """
    host, pid, _ = here()
    said: dict[str, object] = {"host": host, "pid": pid}
    said |= {name: value for name, value in says.items() if value is not None}
    objects = objects_at(address)
    return HomeLog(objects, inner.random, clock, said, retry_seconds=RETRY_SECONDS)
