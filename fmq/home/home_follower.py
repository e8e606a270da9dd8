"""A machine that stands by: it follows a home into its cache, and judges how long the owner has
been silent.
"""

from __future__ import annotations

from typing import Any

from fmq.basics.clock import Clock
from fmq.home.home_cache import HomeCache, check_is_cache
from fmq.home.home_disk import HomeDisk
from fmq.home.home_log import HomeLog
from fmq.machine.disk import Directory, Disk
from fmq.recovery.layout import LOCK


class HomeFollower:
    """Has the directory locked until it is closed. Other threads may only look at `owner`."""

    def __init__(self, disk: Disk, path: str, log: HomeLog, clock: Clock) -> None:
        self._disk = disk
        self._log = log
        self._clock = clock
        self._directory: Directory = disk.directory(path, make=True)
        check_is_cache(self._directory, log.address)
        self._unlock = self._directory.lock(LOCK)
        self._cache = HomeCache(self._directory, log.address)
        self._heard_at = clock.monotonic()

    @property
    def address(self) -> str:
        return self._log.address

    @property
    def owner(self) -> dict[str, Any]:
        """What the home says of its owner; empty if it has none."""
        return self._log.history.said

    @property
    def is_free(self) -> bool:
        """Whether nobody has to be waited for: the owner has ended, or there never was one."""
        return not self._log.history.home or bool(self.owner.get("ended"))

    def look(self) -> float:
        """Write what is new in the home to the cache. Return for how many seconds the home has said
        nothing new. Raises OSError if the home gives no answer.
        """
        if self._log.mirror(self._cache):
            self._heard_at = self._clock.monotonic()
        return self._clock.monotonic() - self._heard_at

    def disk_to_take_over(self) -> HomeDisk:
        """Let go of the directory. Return the disk on which opening it takes over the home, unless
        the owner has said something meanwhile, or another machine was faster: then opening raises
        TakenOver.
        """
        self._cache.finish(self._log.history)
        self._let_go()
        return HomeDisk(self._disk, self._log, self._log.history.next)

    def _let_go(self) -> None:
        self._cache.close()
        self._unlock()
        self._directory.close()

    def close(self) -> None:
        """Let go of the directory and the home."""
        self._let_go()
        self._log.close()
