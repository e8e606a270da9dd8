"""`fmq.open`: a path becomes an engine, or an engine that only reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal, overload

from fmq.arguments.names import check_name, check_seconds
from fmq.arguments.options import Options
from fmq.arguments.path import ADDRESS, MEMORY, PathLike, check_local, text_of
from fmq.basics.clock import Clock, SystemClock
from fmq.bind.databases import check_resolve
from fmq.engines.engine import Engine
from fmq.engines.read_only_door import ReadOnlyDoor
from fmq.engines.read_only_engine import ReadOnlyEngine
from fmq.engines.thread_door import ThreadDoor
from fmq.errors import StorageFull, Unreadable
from fmq.machine.disk import Directory, Disk, is_full
from fmq.posix import RealDisk
from fmq.posix.memory_disk import MemoryDisk
from fmq.recovery.recover import lock_and_recover
from fmq.remote.handover import when_let_go


@overload
def open(
    path: str | PathLike,
    options: Options | None = ...,
    *,
    read_only: Literal[False] = ...,
    disk: Disk | None = ...,
    clock: Clock | None = ...,
    background: bool = ...,
    resolve: Mapping[str, object] | None = ...,
    timeout: float = ...,
    home: str | None = ...,
) -> Engine: ...
@overload
def open(
    path: str | PathLike,
    options: Options | None = ...,
    *,
    read_only: Literal[True],
    disk: Disk | None = ...,
    clock: Clock | None = ...,
    background: bool = ...,
) -> ReadOnlyEngine: ...
@overload
def open(
    path: str | PathLike,
    options: Options | None = ...,
    *,
    read_only: bool,
    disk: Disk | None = ...,
    clock: Clock | None = ...,
    background: bool = ...,
    timeout: float = ...,
    home: str | None = ...,
) -> Engine | ReadOnlyEngine: ...
def open(
    path: str | PathLike,
    options: Options | None = None,
    *,
    read_only: bool = False,
    disk: Disk | None = None,
    clock: Clock | None = None,
    background: bool = True,
    resolve: Mapping[str, object] | None = None,
    timeout: float = 0.0,
    home: str | None = None,
) -> Engine | ReadOnlyEngine:
    """Open the directory at `path`, and make it if it is missing. Recovery needs no other call.

    One engine writes at a time: a second one gets Locked, after `timeout` seconds. A process that
    `fmq.connect` has started gives way to one that waits. With `read_only` the engine takes no
    lock, writes nothing, and follows a live engine up to what is durable; `path` may be the
    address of a home then, which is shown as it was at the opening. `disk` and `clock` are
    the doors to the machine; tests hand in others. Without `background` the engine has no threads
    and does its chores at the end of its calls. `resolve` names a database for each producer that
    binds its transactions, such as "sqlite:///shop.db" or an engine of SQLAlchemy. Each is asked,
    before this returns, what became of the transactions that a crash left undecided.

    `home` is the address of storage that outlives this machine, such as "file:///mnt/shared/shop"
    or "s3://bucket/shop"; docs/home.md has all kinds. What a call acknowledges is there first, and
    the directory is a cache of it, which may be empty. This engine takes the home over; the one
    that had it acknowledges nothing more (TakenOver).
    """
    where = text_of(path)
    if disk is None and read_only and ADDRESS.match(where):
        from fmq.home.home_reader import home_to_read  # imported here: few programs have a home

        disk = home_to_read(where)
    in_memory = where == MEMORY and disk is None and home is None
    if not in_memory and (disk is None or not read_only):
        check_local(where)
    options = _checked(options)
    _check_flag("read_only", read_only)
    _check_flag("background", background)
    timeout = check_seconds("timeout", timeout)
    if resolve is not None:
        _check_resolve(resolve, read_only=read_only)
    if disk is None:
        disk = disk_of(options)
        if in_memory:
            disk = MemoryDisk(where, disk)
    else:
        check_door("disk", disk, "directory", "random")
    if clock is None:
        clock = SystemClock()
    else:
        check_door("clock", clock, "time_us", "monotonic", "wait")
    if home is not None:
        # Imported here: few programs have a home, and all import this module.
        from fmq.home.home_addresses import home_disk

        disk = home_disk(disk, _checked_home(home, read_only=read_only), clock)
    try:
        directory = disk.directory(where, make=not read_only)
        try:
            if read_only:
                return ReadOnlyEngine(ReadOnlyDoor(where, directory, disk, options, clock))
            what = where, directory, options, clock, disk
            open_now = partial(_open, *what, background=background)
            engine = when_let_go(where, open_now, clock, timeout) if timeout else open_now()
        except BaseException:
            directory.close()
            raise
    except OSError as error:
        if is_full(error):
            raise StorageFull(
                f"{error.filename or where}: no room ({error.strerror}), so {where} was not opened."
                " Nothing was lost; free some room, of files as well as of bytes, and open again."
            ) from error
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(where, error) from error
    if resolve:
        try:
            engine._door.resolve(resolve)
        except BaseException:
            engine.close()
            raise
    return engine


def disk_of(options: Options) -> RealDisk:
    """Return this machine's disk, as an engine with `options` uses it."""
    return RealDisk(
        hold_gil=options.hold_gil,
        allow_remote=options.allow_remote,
        file_mode=options.file_mode,
    )


def check_door(what: str, door: object, *methods: str) -> None:
    """Raise TypeError if `door`, such as a disk or a clock, lacks one of `methods`."""
    if not all(callable(getattr(door, method, None)) for method in methods):
        raise TypeError(
            f"{what}={door!r}: must have {', '.join(f'{method}()' for method in methods)}, and "
            f"{type(door).__name__} has not. Nothing was opened; leave {what}= out for this "
            "machine's."
        )


def _check_flag(what: str, flag: object) -> None:
    """Raise TypeError for anything but True and False: the text "no" counts as true."""
    if not isinstance(flag, bool):
        raise TypeError(
            f"{what}={flag!r}: is True or False, not {type(flag).__name__}. Nothing was opened."
        )


def _checked_home(home: object, *, read_only: bool) -> str:
    if read_only:
        raise TypeError(
            "home= takes over the home, and read_only=True writes nothing. Nothing was opened; "
            "leave home= out to look at the cache."
        )
    from fmq.home.home_addresses import check_address

    return check_address(home)


def _check_resolve(resolve: object, *, read_only: bool) -> None:
    if read_only:
        raise TypeError(
            "resolve= decides what a crash left, and read_only=True writes nothing. Nothing was "
            "opened; leave one of them out."
        )
    check_resolve(resolve)


def _checked(options: Options | None) -> Options:
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise TypeError(
            f"{options!r}: options are an fmq.Options, as in "
            'fmq.open(path, fmq.Options(sync="interval")). Nothing was opened.'
        )
    for topic in options.topic_queues:
        check_name("topic", topic)
    return options


def _open(
    path: str,
    directory: Directory,
    options: Options,
    clock: Clock,
    disk: Disk,
    *,
    background: bool,
) -> Engine:
    locked = lock_and_recover(directory, disk, options.capacity)
    try:
        what = path, directory, locked, disk, options, clock
        return Engine(ThreadDoor(*what, background=background))
    except BaseException:
        locked.unlock()
        raise
