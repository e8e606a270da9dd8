"""A store moves into a home or out of it, and a home is taken over by a person's decision."""

from __future__ import annotations

from contextlib import closing, suppress

import fmq.engines.startup as startup
from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.basics.own_process import here
from fmq.engines.engine import Engine
from fmq.engines.verification import check
from fmq.errors import HomeRefused, NotAStore
from fmq.home.home_addresses import check_address, home_disk, home_log
from fmq.home.home_cache import HomeCache, become_store
from fmq.home.home_log import HomeLog
from fmq.home.moving_in import MovingIn
from fmq.posix import RealDisk
from fmq.recovery.layout import LOCK, known_segments, look
from fmq.wire.processes import absolute


def move_in(path: str, home: str, clock: Clock, *, of_cache: bool = False) -> int:
    """Put what the directory has, and the home lacks, into the home, and verify it. Return how many
    bytes that were. The directory is the cache of the home then.

    With `of_cache` the directory has been one already: the home has lost what it had acknowledged
    to it. Without, a cache of this home was moved before: that is verified, or finished. Raises
    HomeRefused, and changes nothing, if they are not one store, and NotAStore without a journal.
    """
    home, disk = check_address(home), RealDisk()
    is_cache = of_cache or _is_cache_of(path, home)
    if not is_cache:
        startup.open(path, read_only=True).close()  # the next line would begin a journal
        startup.open(path).close()  # recovers it
    with startup.open(path, read_only=True) as engine:
        position = engine.stats().position
    with closing(disk.directory(path, make=False)) as directory:
        unlock = directory.lock(LOCK)
        try:
            segments = known_segments(directory, look(directory), None)
            ends = {each.base: each.end - each.base for each in segments}
            ends[segments[-1].base] = position - segments[-1].base
            moving = MovingIn(directory, ends)
            put = 0
            with closing(home_log(disk, home, clock)) as log:
                if of_cache or not is_cache or _is_moving(log):
                    put = moving.put(log, _named(path))
            with closing(home_log(disk, home, clock)) as log:
                moving.become_cache(moving.verify(log), home)
        finally:
            unlock()
    return put


def _is_cache_of(path: str, home: str) -> bool:
    with suppress(NotAStore), closing(RealDisk().directory(path, make=False)) as directory:
        return HomeCache(directory, home).said.get("address") == home
    return False


def _is_moving(log: HomeLog) -> bool:
    """Return whether a move into this home, or out of it, has not come to its end."""
    log.follow(None)
    return any(log.history.said.get(each) is not None for each in ("moving", "moved"))


def move_out(home: str, path: str, clock: Clock) -> int:
    """Take the home over for the last time, and make its cache at `path` a store of its own. Return
    how many bytes the journal has. The home says where its data went, and opens no more.
    """
    disk = RealDisk()
    made = home_disk(disk, check_address(home), clock, moved=_named(path))
    with startup.open(path, disk=made, clock=clock, background=False) as engine:
        home_stats = engine.stats().home
    assert home_stats is not None
    report = check(path)
    if report.problems:
        raise HomeRefused(f"{path}: is not sound after the move: {report.problems[0]}")
    with closing(disk.directory(path, make=False)) as directory:
        become_store(directory)
    return home_stats.bytes


def take_over(home: str, path: str, options: Options | None, clock: Clock) -> None:
    """Take the home over, and end, so that a machine that stands by, or the next program, goes on.
    The owner that it had acknowledges nothing more.
    """
    disk = home_disk(startup.disk_of(options or Options()), check_address(home), clock)
    with startup.open(path, options, disk=disk, clock=clock, background=False) as engine:
        give_up(engine)


def give_up(engine: Engine) -> None:
    """Say in the home that nobody need wait for `engine`, which is closed next."""
    engine._door.say_that_it_ends()


def _named(path: str) -> str:
    return f"{absolute(path)} on {here()[0]}"
