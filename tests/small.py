"""Engines on a disk in memory, so small that every boundary is met within a few calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fmq
from fmq import Engine, Message, Options
from fmq.arguments.stored_options import named_by, others_of
from fmq.basics.clock import Clock
from fmq.machine.disk import Disk
from fmq.steps.call_steps import Wakeup
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.testing.shadow import Shadow

SMALL: dict[str, Any] = {"segment_bytes": 4096}
SHADOWS: list[Shadow] = []  # of the engines that the test has opened; conftest.py verifies them


# What stands between a test and each engine that it opens: the last of these, if there is one.
BETWEEN: list[Callable[[Engine, FakeClock], Any]] = []


def opened(disk: Disk, clock: Clock | None = None, **options: Any) -> Engine:
    """The engine of the directory `data` on `disk`: small segments, no thread of its own.

    A shadow replays whatever it writes, and compares.
    """
    chosen, clock = Options(**{**SMALL, **options}), clock or FakeClock()
    engine = fmq.open("data", chosen, disk=disk, clock=clock, background=False)
    if others_of(chosen, inside(engine).ledger.options):
        # A test that opens with other values means them for the directory.
        engine.configure(Options(**named_by(chosen)))
        if any(each.waits for each in engine.settings()):
            engine.close()
            engine = fmq.open("data", chosen, disk=disk, clock=clock, background=False)
    SHADOWS.append(Shadow(engine))
    return BETWEEN[-1](engine, clock) if BETWEEN else engine  # type: ignore[arg-type]


def bodies(engine: Any, topic: str, queue: int = 0, offset: int = 0) -> list[Any]:
    """All bodies of a queue, from `offset` on."""
    return [message.body for message in engine.read(topic, queue=queue, offset=offset, limit=9999)]


def listening(engine: Engine, *topics: str) -> Wakeup:
    """A wakeup that waits for the next message of `topics`, as a poll does."""
    messages, wakeup = inside(engine).messages, Wakeup()
    with messages.lock:
        messages.listen(topics, wakeup)
    return wakeup


def content(disk: Disk) -> dict[str, bytes]:
    """Every file of the directory, by name, as a reader would see it."""
    directory = disk.directory("data", make=False)
    found = {}
    for name in directory.names():
        if name != "quarantine":
            file = directory.open(name)
            found[name] = file.read(0, file.size())
    return found


def segments(disk: Disk) -> list[str]:
    """The names of the segments, oldest first."""
    return sorted(name for name in content(disk) if name.endswith(".seg"))


def overwrite(disk: Disk, name: str, offset: int, data: bytes) -> None:
    """Change bytes of a file without the engine's knowledge."""
    file = disk.directory("data", make=False).open(name, write=True)
    file.write(offset, (data,), sync=True)


def flip(disk: Disk, name: str, offset: int) -> None:
    """Turn one bit of a file over. In a head of durable bytes it is turned back."""
    (byte,) = content(disk)[name][offset : offset + 1]
    overwrite(disk, name, offset, bytes([byte ^ 0x10]))


def flip_two(disk: Disk, name: str, offset: int) -> None:
    """Turn one bit over in each of two bytes of a file, which nothing turns back."""
    flip(disk, name, offset)
    flip(disk, name, offset + 1)


def remove(disk: Disk, *names: str) -> None:
    """Remove files without the engine's knowledge."""
    directory = disk.directory("data", make=False)
    for name in names:
        directory.remove(name)


def truncate(disk: Disk, name: str, size: int) -> None:
    """Leave only the first `size` bytes of a file."""
    data = content(disk)[name][:size]
    remove(disk, name)
    file = disk.directory("data", make=False).create(name)
    file.write(0, (data,), sync=True)


def fill(engine: Engine, topic: str = "fill", body_bytes: int = 400) -> None:
    """Send until the journal goes on in a new segment."""
    before = engine.stats().position // 4096
    while engine.stats().position // 4096 == before:
        engine.send(topic, b"f" * body_bytes)


def check(disk: Disk) -> None:
    """The directory at rest is sound."""
    problems = fmq.check("data", disk=disk).problems
    assert problems == (), problems


__all__ = [
    "CrashDisk",
    "FakeClock",
    "bodies",
    "check",
    "content",
    "fill",
    "flip",
    "flip_two",
    "opened",
    "overwrite",
    "remove",
    "segments",
    "truncate",
]


def ways_to_send(engine: Engine) -> list[Callable[..., Any]]:
    """Return all calls that send, by the arguments of `send`."""

    def many(topic: str, body: Any, *, queue: Any = None, **carried: Any) -> None:
        engine.send_many(topic, [Message(body, **carried)], queue=queue)

    def in_transaction(topic: str, body: Any, **more: Any) -> None:
        with engine.transaction() as tx:
            tx.send(topic, body, **more)

    def many_in_transaction(topic: str, body: Any, *, queue: Any = None, **carried: Any) -> None:
        with engine.transaction() as tx:
            tx.send_many(topic, [Message(body, **carried)], queue=queue)

    return [engine.send, many, in_transaction, many_in_transaction]
