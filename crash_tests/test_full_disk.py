"""Real file systems that are full, or read-only, or become so under a running engine.

Without root, or where a file system is missing, they are skipped, and say so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import fmq
from crash_tests.real.filesystem import FileSystem, why_not
from fmq.errors import EngineFailed, FmqError, StorageFull

MIB = 1 << 20
OPTIONS = fmq.Options(segment_bytes=MIB)
BODY = b"b" * 100_000


@pytest.fixture(params=["ext4", "xfs"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileSystem]:
    kind: str = request.param
    if reason := why_not(kind):
        pytest.skip(f"NOT RUN: {kind}: {reason}")
    with FileSystem(kind, tmp_path) as files:
        files.make()
        yield files


def fill_up(files: FileSystem, spare_bytes: int) -> Path:
    """A file that leaves so much room, about."""
    status = os.statvfs(files.point)
    ballast = files.point / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - spare_bytes)
        os.fsync(file.fileno())
    return ballast


def send_until_full(engine: fmq.Engine) -> list[bytes]:
    """What was acknowledged until there was no room for more."""
    sent: list[bytes] = []
    with suppress(StorageFull):
        while True:
            body = b"%d " % len(sent) + BODY
            engine.send("t", body)
            sent.append(body)
    return sent


def prepare(engine: fmq.Engine, name: str) -> None:
    tx = engine.transaction(tx_id=name)
    tx.send("decided", name.encode())
    tx.prepare()


def bodies(engine: fmq.Engine | fmq.ReadOnlyEngine, topic: str) -> list[bytes]:
    return [bytes(message.body) for message in engine.read(topic, limit=100_000)]


def test_a_full_disk_refuses_messages_whole_and_takes_decisions(files: FileSystem) -> None:
    """Room for decisions is kept; freed room is used at once; nothing acknowledged is lost."""
    with fmq.open(files.point / "store", OPTIONS) as engine:
        for name in ("A", "B"):
            prepare(engine, name)
        ballast = fill_up(files, 5 * MIB)
        sent = send_until_full(engine)
        assert sent
        engine.decide("A", "commit")
        engine.decide("B", "rollback")
        assert bodies(engine, "decided") == [b"A"]
        assert bodies(engine, "t") == sent
        ballast.unlink()
        engine.send("t", b"again")
    assert fmq.check(files.point / "store").ok
    with fmq.open(files.point / "store", OPTIONS) as engine:
        assert bodies(engine, "t") == [*sent, b"again"]


def test_a_power_cut_of_a_full_disk_loses_nothing(files: FileSystem) -> None:
    """It can be read as it is. Writing may have to wait for room, and is told so."""
    store = files.point / "store"
    engine = fmq.open(store, OPTIONS)
    try:
        prepare(engine, "A")
        fill_up(files, 5 * MIB)
        sent = send_until_full(engine)
        files.cut(flush_log=False)
    finally:
        engine.close()
    files.unmount()
    files.mount()
    with fmq.open(store, read_only=True) as looking:
        # The last group is shown once something behind it vouches for it.
        shown = bodies(looking, "t")
        assert shown in (sent, sent[:-1])
    with suppress(StorageFull), fmq.open(store, OPTIONS) as engine:
        assert bodies(engine, "t") == sent
    (files.point / "ballast").unlink()
    with fmq.open(store, OPTIONS) as engine:
        assert bodies(engine, "t") == sent
        engine.decide("A", "commit")
        assert bodies(engine, "decided") == [b"A"]
    assert fmq.check(store).ok


def test_a_read_only_file_system_can_be_read_after_a_power_cut(files: FileSystem) -> None:
    """Opening for writing is a typed error that changes nothing; looking shows what is there."""
    store = files.point / "store"
    engine = fmq.open(store, OPTIONS)
    try:
        for i in range(30):
            engine.send("t", b"%d" % i)
        prepare(engine, "A")
        files.cut(flush_log=False)
    finally:
        engine.close()
    files.unmount()
    files.mount()
    files.remount("ro")
    with pytest.raises(FmqError, match="Read-only file system"):
        fmq.open(store, OPTIONS)
    with fmq.open(store, read_only=True) as looking:
        assert bodies(looking, "t") == [b"%d" % i for i in range(30)]
        # What nothing behind it vouches for may be shown only once it has been recovered.
        assert [tx.tx_id for tx in looking.undecided()] in ([], ["A"])
    files.unmount()
    files.mount()
    with fmq.open(store, OPTIONS) as engine:
        assert [tx.tx_id for tx in engine.undecided()] == ["A"]
        engine.send("t", b"30")
    assert fmq.check(store).ok


def test_a_file_system_that_goes_read_only_ends_the_engine_and_loses_nothing(
    files: FileSystem,
) -> None:
    """What ext4 does to itself when it meets damage; what was visible can still be read."""
    if files.kind != "ext4":
        pytest.skip(f"NOT RUN: {files.kind} cannot be told to do so")
    store = files.point / "store"
    engine = fmq.open(store, OPTIONS)
    try:
        sent = [b"%d" % i for i in range(10)]
        for body in sent:
            engine.send("t", body)
        files.remount("abort")
        with pytest.raises(EngineFailed):
            engine.send("t", b"refused")
        with pytest.raises(EngineFailed):
            engine.send("t", b"refused, too")
        assert bodies(engine, "t") == sent
    finally:
        engine.close()
    files.unmount()
    files.mount()
    with fmq.open(store, OPTIONS) as engine:
        assert bodies(engine, "t")[:10] == sent
    assert fmq.check(store).ok
