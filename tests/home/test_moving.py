"""A store moves into a home and out of it, and a home gets back what it has lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fmq
from fmq.basics.clock import SystemClock
from fmq.errors import FmqError, HomeBehind, HomeRefused
from fmq.home.home_addresses import home_log
from fmq.posix import RealDisk
from tests.cli.command import fmq_json, fmq_process

SMALL = fmq.Options(segment_bytes=64 * 1024)


def filled(path: Path, home: str | None = None, count: int = 200) -> list[bytes]:
    with fmq.open(path, SMALL, home=home) as engine:
        tx = engine.transaction(tx_id="left")
        tx.send("t", b"sealed")
        tx.prepare()
        for number in range(count):
            engine.send("t", b"%d " % number + bytes(900), queue=0)
        return bodies(engine)


def bodies(engine: fmq.AnyEngine) -> list[bytes]:
    return [bytes(each.body) for each in engine.read("t", queue=0, limit=9999)]


def move(*words: object) -> int:
    (said,) = fmq_json("move", *words).of("move")
    return int(said["bytes"])


def test_a_store_moves_in_and_out_again_with_all_that_it_has(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    sent = filled(tmp_path / "a")
    assert move(tmp_path / "a", home) > 200 * 900
    with fmq.open(tmp_path / "b", home=home) as other:
        assert bodies(other) == sent
        assert [each.tx_id for each in other.undecided()] == ["left"]
        other.send("t", b"in the home", queue=0)
    with fmq.open(tmp_path / "a", home=home) as engine:  # it is a cache now
        assert bodies(engine) == [*sent, b"in the home"]
    assert move(home, tmp_path / "c") > 200 * 900
    with fmq.open(tmp_path / "c") as alone:
        assert bodies(alone) == [*sent, b"in the home"]
        assert alone.stats().home is None
    with pytest.raises(HomeRefused, match="was moved to"):
        fmq.open(tmp_path / "b", home=home)
    with fmq.open(tmp_path / "c") as alone:
        alone.send("t", b"alone", queue=0)
    move(tmp_path / "c", home)  # back into the same home, which is a beginning of it
    with fmq.open(tmp_path / "d", home=home) as engine:
        assert bodies(engine) == [*sent, b"in the home", b"alone"]


def test_a_move_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    """Nobody takes over meanwhile: the home is not whole."""
    home = f"file://{tmp_path}/home"
    sent = filled(tmp_path / "a")
    log = home_log(RealDisk(), home, SystemClock())
    log.claim(moving="somewhere").append(
        0, 0, (tmp_path / "a" / f"{0:020d}.seg").read_bytes()[:5000]
    )
    log.close()
    with pytest.raises(HomeRefused, match="is on its way here"):
        fmq.open(tmp_path / "b", home=home)
    move(tmp_path / "a", home)
    with fmq.open(tmp_path / "b", home=home) as engine:
        assert bodies(engine) == sent


def killed(words: tuple[object, ...], folder: Path, names: int) -> None:
    """Kill a move once `folder` has so many names, if the move has not ended before."""
    line = [sys.executable, "-m", "fmq", "move", *map(str, words)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (folder.exists() and len([*folder.iterdir()]) >= names):
        pass
    process.kill()
    process.wait()


def test_a_move_that_is_killed_goes_on(tmp_path: Path) -> None:
    """In and out, at several moments each."""
    home = f"file://{tmp_path}/home"
    sent = filled(tmp_path / "a")
    for names in (1, 3, 5, 7):
        killed((tmp_path / "a", home), tmp_path / "home" / "slots", names)
    move(tmp_path / "a", home)
    move(tmp_path / "a", home)  # as if only the answer had been lost
    with fmq.open(tmp_path / "b", home=home) as engine:
        assert bodies(engine) == sent
    for names in (1, 3, 6, 9):
        killed((home, tmp_path / "c"), tmp_path / "c", names)
    if (tmp_path / "c" / "HOME").exists() or not [*(tmp_path / "c").glob("*.seg")]:
        move(home, tmp_path / "c")
    with fmq.open(tmp_path / "c") as alone:
        assert bodies(alone) == sent
        assert [each.tx_id for each in alone.undecided()] == ["left"]


def test_another_store_is_not_moved_over_what_a_home_has(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    sent = filled(tmp_path / "a", home)
    filled(tmp_path / "b")
    done = fmq_process("move", tmp_path / "b", home)
    assert (done.returncode, "are not one store" in done.stderr) == (3, True)
    with fmq.open(tmp_path / "a", home=home) as engine:
        assert bodies(engine) == sent


def test_two_directories_or_two_homes_are_no_move(tmp_path: Path) -> None:
    done = fmq_process("move", tmp_path / "a", tmp_path / "b")
    assert (done.returncode, "one of the two is a directory" in done.stderr) == (3, True)


def test_a_home_gets_back_what_it_had_acknowledged_and_lost(tmp_path: Path) -> None:
    """It was put back from a copy. The directory has more, and gives it back."""
    home = f"file://{tmp_path}/home"
    filled(tmp_path / "a", home, count=5)
    shutil.copytree(tmp_path / "home", tmp_path / "old")
    with fmq.open(tmp_path / "a", SMALL, home=home) as engine:
        for number in range(100):
            engine.send("t", b"later %d " % number + bytes(900), queue=0)
        sent = bodies(engine)
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "old").rename(tmp_path / "home")
    with pytest.raises(HomeBehind, match="take-over --from-cache"):
        fmq.open(tmp_path / "a", home=home)
    done = fmq_process("take-over", home, tmp_path / "a", "--from-cache")
    assert (done.returncode, "has got back" in done.stderr) == (0, True), done.stderr
    with fmq.open(tmp_path / "b", home=home) as engine:
        assert bodies(engine) == sent


def test_a_person_takes_over_and_the_owner_is_fenced(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", home=home) as engine:
        engine.send("t", b"1", queue=0)
        stats = engine.stats().home
        assert stats is not None
        assert (stats.term, stats.serves_at, stats.lag) == (1, None, stats.entries - stats.floor)
        assert stats.latency > 0
        (said,) = fmq_json("take-over", home, tmp_path / "b").of("home")
        assert (said["term"], said["behind"] is not None) == (2, True)
        with pytest.raises(FmqError, match="has taken over"):
            engine.send("t", b"2", queue=0)
