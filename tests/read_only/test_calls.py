"""The calls of a reader: what they refuse, how they wait, and how they end."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import ReadOnlyEngine
from fmq.errors import (
    BadOption,
    Closed,
    NotAStore,
    ReadOnly,
    Unreadable,
)
from fmq.recovery import follow as follow_module
from fmq.testing import CrashDisk, FaultDisk
from tests.read_only.looking import looking
from tests.small import FakeClock, bodies, fill, opened
from tests.store.lines import Lines

WRITING = {
    "send": lambda reader: reader.send("t", b""),
    "send_many": lambda reader: reader.send_many("t", [b""]),
    "transaction": lambda reader: reader.transaction(),
    "decide": lambda reader: reader.decide("T", "commit"),
    "consumer": lambda reader: reader.consumer("t", group="g"),
    "sync": lambda reader: reader.sync(),
    "checkpoint": lambda reader: reader.checkpoint(),
}


@pytest.mark.parametrize("call", WRITING)
def test_calls_that_would_write_are_refused(reader: ReadOnlyEngine, call: str) -> None:
    with pytest.raises(ReadOnly, match="read_only=True"):
        WRITING[call](reader)


def test_an_unknown_attribute_is_an_attribute_error(reader: ReadOnlyEngine) -> None:
    with pytest.raises(AttributeError):
        reader.no_such_thing  # noqa: B018


def test_a_closed_reader_refuses_every_call(disk: CrashDisk) -> None:
    with opened(disk):
        pass
    with looking(disk) as reader:
        pass
    reader.close()
    for call in (
        lambda: reader.read("t"),
        reader.queues,
        reader.undecided,
        lambda: reader.outcome("T"),
        reader.refresh,
    ):
        with pytest.raises(Closed):
            call()


def test_a_reader_needs_a_journal(disk: CrashDisk) -> None:
    disk.directory("data", make=True)
    with pytest.raises(NotAStore, match="no journal"):
        looking(disk)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"offset": -1}])
def test_a_negative_offset_or_limit_is_refused(
    reader: ReadOnlyEngine, wrong: dict[str, int]
) -> None:
    with pytest.raises(BadOption):
        reader.read_batch("t", **wrong)


def test_a_reader_needs_no_room_and_no_permission_to_write(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send("t", b"0")
        fill(engine)
        left = disk.after_kill()
    faults = FaultDisk(left)
    for operation in ("write", "create", "allocate", "sync", "rename", "remove", "mkdir"):
        faults.fail(operation, persistently=True)
    with looking(faults) as reader:
        assert bodies(reader, "t") == [b"0"]


@pytest.mark.parametrize("operation", ["open", "read"])
def test_an_os_error_is_a_typed_error_for_a_reader(disk: CrashDisk, operation: Any) -> None:
    """Like that of an engine it names the file and the remedy. Afterwards the reader works."""
    with opened(disk) as engine:
        engine.send("t", b"0")
        fill(engine)
        engine.decide(prepared(engine), "commit")
    faults = FaultDisk(disk)
    with looking(faults) as reader:
        expected = content_of(reader)
        for call in (
            reader.refresh,
            reader.queues,
            reader.groups,
            reader.undecided,
            lambda: reader.outcome("T"),
            lambda: reader.read("t"),
            lambda: reader.read_batch("u", offset=10_000),
        ):
            faults.fail(operation, error=errno.EMFILE, persistently=True)
            with suppress(Unreadable):
                call()
            faults.heal()
        assert content_of(reader) == expected


def prepared(engine: fmq.Engine) -> str:
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"of a transaction")
    tx.prepare()
    return "T"


def content_of(reader: ReadOnlyEngine) -> object:
    return bodies(reader, "t"), reader.queues(), reader.outcome("T")


def test_a_closed_reader_or_engine_refuses_even_a_limit_of_zero(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send("t", b"0")
    with looking(disk) as reader:
        pass
    for closed in (engine, reader):
        for limit in (0, 1):
            with pytest.raises(Closed):
                closed.read("t", limit=limit)


def test_a_reader_waits_for_the_first_message_until_its_timeout(disk: CrashDisk) -> None:
    """The clock lets the time of each wait pass at once. A message comes during one of them."""
    clock = FakeClock()

    class Waking(FakeClock):
        waits = 0

        def wait(self, lock: Any, timeout: float | None) -> bool:
            self.waits += 1
            if self.waits == 3:
                engine.send("t", b"news")
                engine.checkpoint()
            return super().wait(lock, timeout)

    with opened(disk, clock) as engine:
        waking = Waking()
        with fmq.open("data", read_only=True, disk=disk, clock=waking) as reader:
            (message,) = reader.read("t", timeout=1)
            assert (message.body, waking.waits) == (b"news", 3)
            began = waking.monotonic()
            assert reader.read("t", offset=1, timeout=1) == []
            assert reader.read_batch("none", timeout=0.5) is None
            assert waking.monotonic() - began == pytest.approx(1.5)
            with pytest.raises(BadOption):
                reader.read("t", timeout=float("nan"))
            with pytest.raises(TypeError, match="timeout"):
                reader.read_batch("t", timeout="1")  # type: ignore[arg-type]


def test_an_interrupted_close_is_finished_by_the_next_one(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("t", b"x")
    interrupts = 0
    for at in range(50):
        before = len(list(Path("/proc/self/fd").iterdir()))
        reader = fmq.open(tmp_path / "shop", read_only=True)
        reader.read("t")

        def interrupt() -> None:
            raise KeyboardInterrupt

        lines = Lines(follow_module, at, interrupt)
        with suppress(KeyboardInterrupt):
            lines.run(reader.close)
        reader.close()
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
        if not lines.met:
            break
        interrupts += 1
    assert interrupts
