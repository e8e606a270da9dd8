"""A pause is in a backup, in what is restored of it, and in what is salvaged of a damaged
directory.
"""

from __future__ import annotations

from pathlib import Path

import fmq


def paused(path: Path) -> tuple[str, str]:
    """Return the reasons of the group's pause and of the topic's."""
    with fmq.open(path, background=False) as engine:
        [group], [queue] = engine.groups("g"), engine.queues("t")
        assert group.paused is not None
        assert queue.paused is not None
        return group.paused.reason, queue.paused.reason


def made(path: Path) -> Path:
    with fmq.open(path, background=False) as engine:
        engine.send("t", b"1")
        engine.create_group("g", "t")
        engine.group("g").pause(reason="one")
        engine.topic("t").pause(reason="two")
        engine.send("t", b"2")
    return path


def test_a_pause_is_in_a_backup_and_in_what_is_restored_of_it(tmp_path: Path) -> None:
    made(tmp_path / "shop")
    fmq.backup(tmp_path / "shop", tmp_path / "backup")
    fmq.restore(tmp_path / "backup", tmp_path / "restored")
    assert paused(tmp_path / "restored") == ("one", "two")


def test_a_pause_is_salvaged_with_and_without_a_checkpoint(tmp_path: Path) -> None:
    shop = made(tmp_path / "shop")
    fmq.salvage(shop, tmp_path / "one")
    for checkpoint in shop.glob("checkpoint.*"):
        checkpoint.unlink()
    fmq.salvage(shop, tmp_path / "two")
    assert paused(tmp_path / "one") == paused(tmp_path / "two") == ("one", "two")
