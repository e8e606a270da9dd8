"""A move is killed before each change that it makes to a directory. The same command, or the one
that the errors name, goes on, and nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

import fmq
from fmq.basics.clock import SystemClock
from fmq.engines.home_moves import move_in, move_out
from fmq.errors import HomeRefused

CHANGES = {"os.link", "os.remove", "os.rename", "os.truncate"}
"""What Python tells an audit hook. A file is written under another name first, so these are all
moments at which a directory has something new.
"""


def is_killed(at: int, call: Callable[[], object]) -> bool:
    """Make a call in a process of its own, which is killed before the change with this number.
    Return False if it has ended before.
    """
    child = os.fork()
    if not child:
        numbers = count()

        def kill(event: str, _: object) -> None:
            if event in CHANGES and next(numbers) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def bodies(engine: fmq.AnyEngine) -> list[bytes]:
    return [bytes(each.body) for each in engine.read("t", queue=0, limit=999)]


def send(path: Path, home: str, number: int) -> None:
    with fmq.open(path, home=home) as engine:
        engine.send_many("t", [b"%d" % each * 100 for each in range(number)], queue=0)


def put_back(saved: Path, path: Path) -> None:
    for name in ("a", "c", "home"):
        shutil.rmtree(path / name, ignore_errors=True)
        if (saved / name).exists():
            shutil.copytree(saved / name, path / name)


def save(path: Path) -> Path:
    for name in ("a", "home"):
        shutil.copytree(path / name, path / "saved" / name)
    return path / "saved"


def shown_by(path: Path, home: str) -> list[bytes]:
    """Return what a machine shows that has nothing."""
    shutil.rmtree(path / "b", ignore_errors=True)
    with fmq.open(path / "b", home=home) as engine:
        return bodies(engine)


def test_a_home_that_gets_back_what_it_has_lost(tmp_path: Path) -> None:
    """`fmq move` goes on where `fmq take-over --from-cache` was killed once the home has been
    claimed, up to its very end.
    """
    home, path, clock = f"file://{tmp_path}/home", tmp_path / "a", SystemClock()
    send(path, home, 5)
    shutil.copytree(tmp_path / "home", tmp_path / "old")
    send(path, home, 50)
    shutil.rmtree(tmp_path / "home")
    (tmp_path / "old").rename(tmp_path / "home")
    saved = save(tmp_path)
    by_move: list[bool] = []
    for at in count():
        put_back(saved, tmp_path)
        if not is_killed(at, partial(move_in, str(path), home, clock, of_cache=True)):
            break
        try:
            move_in(str(path), home, clock)
            by_move.append(True)
        except HomeRefused:
            move_in(str(path), home, clock, of_cache=True)
            by_move.append(False)
        assert len(shown_by(tmp_path, home)) == 55
        with fmq.open(path, home=home) as engine:
            assert len(bodies(engine)) == 55
    assert by_move == sorted(by_move)
    assert by_move.count(False) > 1
    assert by_move.count(True) > 3


@pytest.mark.parametrize("back", [False, True])
def test_a_move_out(tmp_path: Path, back: bool) -> None:
    """The same command goes on. So does the one that moves the directory back into its home, once
    the directory has all.
    """
    home, path, clock = f"file://{tmp_path}/home", tmp_path / "c", SystemClock()
    send(tmp_path / "a", home, 50)
    saved, went_back = save(tmp_path), list[bool]()
    for at in count():
        put_back(saved, tmp_path)
        if not is_killed(at, partial(move_out, home, str(path), clock)):
            break
        if back and (path / "HOME").exists():
            try:
                move_in(str(path), home, clock)
                went_back.append(True)
            except HomeRefused:
                went_back.append(False)
        if went_back[-1:] == [True]:
            assert len(shown_by(tmp_path, home)) == 50
            continue
        move_out(home, str(path), clock)
        with fmq.open(path) as alone:
            assert len(bodies(alone)) == 50
        with pytest.raises(HomeRefused, match="was moved to"):
            fmq.open(tmp_path / "b", home=home)
    assert at > 10
    assert went_back == sorted(went_back)
    assert went_back.count(True) > 3 * back - 1
