"""`fmq ship`, beside an engine that goes on, and `fmq restore` of what it has shipped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import fmq
from tests.cli.command import fmq_json, fmq_process

ROOT = Path(__file__).parent.parent.parent


def test_once_ships_all_that_is_there_and_it_can_be_restored(shop: Path, tmp_path: Path) -> None:
    place, again = tmp_path / "place", tmp_path / "again"
    said = fmq_json("ship", shop, place, "--once")
    assert said.code == 0
    assert said.of("ship")[0]["shipped_bytes"] > 0
    assert fmq_json("ship", shop, place, "--once").of("ship")[0]["shipped_bytes"] == 0
    assert fmq_json("restore", place, again).code == 0
    assert fmq_json("verify", again).of("report")[0]["messages"] == 5
    assert "waits no more" in fmq_process("ship", shop, place, "--forget").stderr
    assert "did not wait" in fmq_process("ship", shop, place, "--forget").stderr


def test_sigterm_ends_ship_after_all_that_is_durable(shop: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with fmq.open(shop, background=False) as engine:
        tool = subprocess.Popen(
            [sys.executable, "-m", "fmq", "ship", shop, place, "--every", "600"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        ends = time.monotonic() + 60
        while not [*place.glob("*.ready")]:
            assert time.monotonic() < ends
            Event().wait(0.01)
        engine.send("orders", b"the last one")
        tool.send_signal(signal.SIGTERM)
        tool.communicate()
        assert tool.returncode == 0
    fmq.restore(place, tmp_path / "again")
    with fmq.open(tmp_path / "again", background=False) as engine:
        found = [each.body for queue in engine.queues("orders") for each in read(engine, queue)]
    assert b"the last one" in found


def read(engine: fmq.Engine, queue: fmq.QueueInfo) -> list[fmq.Message]:
    return engine.read("orders", queue=queue.queue, offset=queue.first)


def test_ship_to_a_directory_with_other_files_exits_with_3(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("x")
    done = fmq_process("ship", shop, tmp_path, "--once")
    assert (done.returncode, "no journal is shipped here" in done.stderr) == (3, True)
