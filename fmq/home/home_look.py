"""What a home says of itself, to one who only looks: nothing is written, and nobody is fenced."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime
from typing import NamedTuple

from fmq.basics.clock import SystemClock, as_datetime
from fmq.errors import HomeRefused
from fmq.home.home_addresses import RETRY_SECONDS, check_address, is_away, objects_at
from fmq.home.home_cache import HomeCache
from fmq.home.home_log import HomeLog
from fmq.home.objects import NoAnswer
from fmq.posix import RealDisk


class HomeSeen(NamedTuple):
    """A home at one moment. Its owner may have written more since."""

    address: str
    host: str
    pid: int
    since: datetime
    term: int
    position: int
    """The end of the journal."""
    entries: int
    floor: int
    """The number below which entries may be gone."""
    above_floor: int
    """How many entries a machine with an empty directory reads, besides the pieces."""
    segments: int
    bytes: int
    """Of the segments, which are in the home once, or twice above the floor."""
    serves_at: str | None
    lag_bytes: int
    """Of the entries above the floor."""
    moved: str | None
    """Where its data went, as `fmq move` has said; it opens no more then."""
    beat: datetime | None
    """When the owner has given the last sign of life that a standby asked for."""
    beat_seconds: float | None
    """How long ago that was, by the clocks of both machines."""
    behind: int | None
    """How many entries a directory lacks since it agreed with the home; None if none was named."""


def find_owner(address: str) -> str | None:
    """Return where the owner of a home serves, as far as the home says; None if it does not.

    It may serve no more. Raises OSError if the home gives no answer, and HomeRefused.
    """
    try:
        objects = objects_at(check_address(address), make=False)
    except HomeRefused as error:
        if is_away(error):  # its server may come back
            raise ConnectionError(str(error)) from error
        raise
    with closing(objects):
        try:
            for name in reversed(objects.names("owners")):
                data = objects.read(f"owners/{name}")
                if data is not None:
                    return str(json.loads(data)["address"])
        except NoAnswer as error:
            raise ConnectionError(f"the home gives no answer: {error}") from error
    return None


def look_at_home(address: str, path: str | None = None) -> HomeSeen:
    """Return what the home at `address` says, and how far its cache at `path` is behind.

    Raises BadName, HomeBehind or HomeRefused.
    """
    disk = RealDisk()
    objects = objects_at(check_address(address), make=False)
    with closing(objects):
        clock = SystemClock()
        log = HomeLog(objects, disk.random, clock, {}, retry_seconds=RETRY_SECONDS)
        cache = None
        if path is not None:
            with closing(disk.directory(path, make=False)) as directory:
                cache = HomeCache(directory, objects.address)
        if cache is not None and not cache.said:
            raise HomeRefused(f"{path}: is no cache of a home, it has no file HOME.")
        try:
            log.follow(cache)
        except OSError as error:
            raise HomeRefused(
                f"{objects.address}: cannot be read ({error.strerror}). Nothing was changed. Look "
                "whether it can be reached, and is yours to read."
            ) from error
        history = log.history
        if not history.home:
            raise HomeRefused(f"{objects.address}: no engine has opened this home yet.")
        beat: int | None = history.said.get("beat_us")
        behind = None
        if cache is not None:
            behind = history.next - cache.said["next"]
            if behind < 0:
                raise cache.behind(f"it ends at slot {history.next}")
        return HomeSeen(
            objects.address,
            history.said["host"],
            history.said["pid"],
            as_datetime(history.said["time_us"]),
            history.term,
            history.position,
            history.next,
            history.next - len(history.kinds),
            len(history.kinds),
            len(history.segments),
            sum(each.end for each in history.segments.values()),
            history.said.get("address"),
            history.bytes_since_floor,
            history.said.get("moved"),
            None if beat is None else as_datetime(beat),
            None if beat is None else (clock.time_us() - beat) / 1e6,
            behind,
        )
