"""`fmq home` says who owns a home, and how far a cache is behind. It writes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import fmq
from tests.cli.command import fmq_json, fmq_process


def test_the_owner_is_named_and_goes_on(tmp_path: Path) -> None:
    home, path = f"file://{tmp_path}/home", tmp_path / "a"
    with fmq.open(path, home=home) as engine:
        engine.send("t", b"1")
        (said,) = fmq_json("home", home, path).of("home")
        assert (said["pid"], said["term"]) == (os.getpid(), 1)
        assert said["position"] == engine.stats().position
        behind = said["behind"]
        engine.send("t", b"2")
        (said,) = fmq_json("home", home, path).of("home")
        assert said["behind"] == behind + 1
        shown = fmq_process("home", home, "--format", "table")
        assert f"process {os.getpid()} on" in shown.stdout
        assert "DIR" not in shown.stdout
        engine.send("t", b"3")
    with fmq.open(tmp_path / "b", home=home):
        assert fmq_json("home", home).of("home")[0]["term"] == 2


def test_what_is_no_home_is_refused_and_not_made(tmp_path: Path) -> None:
    done = fmq_process("home", f"file://{tmp_path}/none")
    assert (done.returncode, "No such file or directory" in done.stderr) == (3, True)
    done = fmq_process("home", "shop")
    assert "not the address of a home" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    fmq.open(tmp_path / "a", home=home).close()
    fmq.open(tmp_path / "b").close()
    done = fmq_process("home", home, tmp_path / "b")
    assert (done.returncode, "is no cache of a home" in done.stderr) == (3, True)
