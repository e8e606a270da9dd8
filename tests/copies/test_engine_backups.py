"""`engine.backup`: in process, through a client, on a loop, and of an engine that only reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.basics.clock import SystemClock
from fmq.copies import back_up
from fmq.errors import BackupRefused, BadName, Closed
from fmq.posix import RealDisk
from fmq.testing import CrashDisk, FakeClock
from tests.small import bodies, opened


def last_body(backup: Path, new: Path) -> bytes:
    """Restore a backup, and return the newest message of the topic t."""
    fmq.restore(backup, new)
    with fmq.open(new, background=False) as engine:
        (queue,) = engine.queues("t")
        return bytes(engine.read("t", offset=queue.next - 1)[0].body)


def test_every_engine_of_a_directory_backs_up_all_that_is_visible(tmp_path: Path) -> None:
    path, backup = tmp_path / "shop", tmp_path / "backup"
    told: list[tuple[int, int]] = []

    async def on_a_loop(client: Any) -> None:
        async with client as engine:
            await engine.send("t", b"%d" % len(told))
            made.append(await engine.backup(backup, progress=lambda *how: told.append(how)))

    def by_thread(engine: Any) -> None:
        engine.send("t", b"%d" % len(told))
        made.append(engine.backup(backup, progress=lambda *how: told.append(how)))

    made: list[fmq.Backup] = []
    with fmq.open(path, fmq.Options(sync="never")) as engine, engine.serve():
        by_thread(engine)
        with fmq.connect(path, start=False) as client:
            by_thread(client)
        with fmq.connect(f"unix:{path}/SOCKET", lazy=True) as client:
            by_thread(client)
        asyncio.run(on_a_loop(fmq.aio.connect(path, start=False)))
        asyncio.run(on_a_loop(fmq.aio.of(engine)))
        assert last_body(backup, tmp_path / "again") == b"4"
        assert [position for position, _ in told] == [each.copied_bytes for each in made]
        assert fmq.backup(path, backup) == fmq.Backup(
            str(backup), made[-1].position, 1, made[-1].bytes, 0, ()
        )
    with fmq.open(path, read_only=True) as reader:
        assert reader.backup(backup).copied_bytes == 0


def test_a_backup_of_a_disk_in_memory_lies_on_that_disk() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
        made = engine.backup("backup")
        assert made.position == engine.stats().position
        reader = fmq.open("data", read_only=True, disk=disk)
        assert reader.backup("backup").copied_bytes == 0
        reader.close()
    fmq.restore("backup", "again", disk=disk)
    with fmq.open("again", disk=disk, clock=FakeClock(), background=False) as again:
        assert bodies(again, "t") == [b"1"]


def test_an_error_of_progress_ends_the_call_and_leaves_the_backup_from_before() -> None:
    disk = CrashDisk()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with opened(disk) as engine:
        engine.send("t", b"1")
        engine.backup("backup")
        engine.send("t", b"2")
        with pytest.raises(KeyboardInterrupt):
            engine.backup("backup", progress=stop)
        fmq.restore("backup", "again", disk=disk)
        with fmq.open("again", disk=disk, clock=FakeClock(), background=False) as again:
            assert bodies(again, "t") == [b"1"]
        assert engine.backup("backup").copied_bytes > 0


def test_the_error_for_a_backup_over_tcp_says_where_to_make_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("ab" * 32)
    token.chmod(0o600)
    with (
        fmq.open(tmp_path / "shop") as engine,
        engine.serve(tcp="127.0.0.1:0", token_file=str(token)) as serving,
    ):
        (port,) = (each[1] for each in serving.addresses if isinstance(each, tuple))
        with (
            fmq.connect(f"tcp://127.0.0.1:{port}", token_file=str(token)) as client,
            pytest.raises(BackupRefused, match="Run fmq backup on that machine"),
        ):
            client.backup(tmp_path / "backup")
        assert not (tmp_path / "backup").exists()


def test_a_client_backs_up_no_other_store_under_the_same_path(tmp_path: Path) -> None:
    """A client in a container sees another directory under the path of its engine process."""
    fmq.open(tmp_path / "shop").close()
    what = str(tmp_path / "shop"), tmp_path / "backup", None, RealDisk(), SystemClock()
    with pytest.raises(BackupRefused, match="where that process runs"):
        back_up(*what, store="00" * 16)
    assert not (tmp_path / "backup").exists()


def test_a_closed_engine_and_an_address_are_refused() -> None:
    engine = opened(CrashDisk())
    with pytest.raises(BadName):
        engine.backup("s3://bucket/shop")
    engine.close()
    with pytest.raises(Closed):
        engine.backup("backup")
