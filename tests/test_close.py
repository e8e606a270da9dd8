"""`close()` ends the engine whatever the machine refuses: the lock is gone, and no bare OSError
comes out of it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

import fmq
from fmq.arguments.options import SyncMode
from fmq.errors import Closed, EngineFailed, FmqError, StorageError
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.testing.faults import Operation

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
OPTIONS = fmq.Options(segment_bytes=4096)

# A filter of system calls lets flock(fd, LOCK_UN) fail with EIO, and nothing else.
REFUSED_UNLOCK = """
import ctypes, errno, fcntl, os, platform, struct, sys
import fmq

FLOCK = {"x86_64": 73, "aarch64": 32}[platform.machine()]
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, EQUAL, HAS, RETURN = 0x20, 0x15, 0x45, 0x06  # of what is loaded: 32 bits of the call
NUMBER_AT, SECOND_ARGUMENT_AT = 0, 24
ERRNO, ALLOW = 0x00050000, 0x7FFF0000

def refuse_unlock():
    program = b"".join(struct.pack("HBBI", *step) for step in (
        (LOAD, 0, 0, NUMBER_AT),
        (EQUAL, 0, 3, FLOCK),
        (LOAD, 0, 0, SECOND_ARGUMENT_AT),
        (HAS, 0, 1, fcntl.LOCK_UN),
        (RETURN, 0, 0, ERRNO | errno.EIO),
        (RETURN, 0, 0, ALLOW),
    ))
    kept = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0) == 0, ctypes.get_errno()

engine = fmq.open(sys.argv[1])
engine.send("t", b"0")
refuse_unlock()
try:
    fcntl.flock(os.open(".", os.O_RDONLY), fcntl.LOCK_UN)
except OSError as error:
    assert error.errno == errno.EIO
else:
    sys.exit("the filter does nothing")
try:
    engine.close()
except fmq.FmqError:
    pass
engine.close()
with fmq.open(sys.argv[1]) as again:
    found = [message.body for message in again.read("t")]
print(found, flush=True)
sys.stdin.read()
"""


def test_close_releases_the_lock_even_if_unlocking_fails(tmp_path: Path) -> None:
    """The same process can open the directory again, and so can another one."""
    child = subprocess.Popen(
        [sys.executable, "-c", REFUSED_UNLOCK, str(tmp_path / "d")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    with child:
        said = child.stdout.readline()
        try:
            if said:
                with fmq.open(tmp_path / "d") as engine:
                    assert [message.body for message in engine.read("t")] == [b"0"]
        finally:
            child.stdin.close()
        assert said == "[b'0']\n", child.stderr.read()
    assert child.returncode == 0


def opened(disk: FaultDisk) -> fmq.Engine:
    return fmq.open("data", OPTIONS, disk=disk, clock=FakeClock(), background=False)


def used(disk: FaultDisk) -> fmq.Engine:
    """An open engine with a sealed segment, something undecided, and a message that just came."""
    engine = opened(disk)
    for _ in range(3):
        engine.send("t", bytes(1500))
    tx = engine.transaction(tx_id="undecided")
    tx.send("t", b"prepared")
    tx.prepare()
    engine.send("t", b"last")
    return engine


def refuses(close: Callable[[], object]) -> bool:
    """Call `close`; return whether it raised an error of fmq's. Any other one goes on."""
    try:
        close()
    except FmqError:
        return True
    return False


def counts(disk: FaultDisk, close: Callable[[], object]) -> dict[Operation, int]:
    """Return how often `close` asks `disk` for each operation."""
    before = {operation: disk.count(operation) for operation in OPERATIONS}
    close()
    return {operation: disk.count(operation) - before[operation] for operation in OPERATIONS}


@pytest.mark.parametrize("persistently", [False, True])
def test_close_ends_the_engine_whichever_operation_fails(persistently: bool) -> None:
    """It returns or raises an error of fmq. A second close does nothing, and the next engine has
    everything.

    Method: each operation of a close fails in turn, alone or with all of its kind after it.
    """
    disk = FaultDisk(CrashDisk())
    asked = counts(disk, used(disk).close)
    assert asked["close"] > 3
    assert asked["unlock"] == 1
    raised = 0
    for operation, times in asked.items():
        for nth in range(times):
            disk = FaultDisk(CrashDisk())
            engine = used(disk)
            disk.fail(operation, nth=nth, persistently=persistently)
            raised += refuses(engine.close)
            engine.close()
            with pytest.raises(Closed):
                engine.send("t", b"x")
            disk.heal()
            with opened(disk) as again:
                bodies = [message.body for message in again.read("t")]
                assert bodies == [bytes(1500)] * 3 + [b"last"], (operation, nth)
                assert [each.tx_id for each in again.undecided()] == ["undecided"]
    assert raised > 0


def test_close_of_a_read_only_engine_raises_only_errors_of_fmq() -> None:
    disk = FaultDisk(CrashDisk())
    used(disk).close()

    def reader() -> fmq.ReadOnlyEngine:
        engine = fmq.open("data", disk=disk, clock=FakeClock(), read_only=True)
        engine.read("t")
        return engine

    asked = counts(disk, reader().close)
    assert asked["close"] > 1
    for nth in range(asked["close"]):
        engine = reader()
        disk.fail("close", nth=nth)
        with pytest.raises(StorageError, match="refused a part of it"):
            engine.close()
        engine.close()
        with pytest.raises(Closed):
            engine.read("t")


@pytest.mark.parametrize(("mode", "operation"), [("interval", "write"), ("never", "sync")])
def test_close_raises_if_it_cannot_make_earlier_sends_durable(
    mode: SyncMode, operation: Operation
) -> None:
    """They did not wait, so no other call can report it. A second close does nothing."""
    disk = FaultDisk(CrashDisk())
    engine = fmq.open("data", fmq.Options(sync=mode), disk=disk, clock=FakeClock())
    engine.send("t", b"0")
    disk.fail(operation)
    with pytest.raises(EngineFailed):
        engine.close()
    engine.close()
    disk.heal()
    opened(disk).close()


def test_close_does_not_repeat_a_failure_that_was_raised() -> None:
    disk = FaultDisk(CrashDisk())
    engine = used(disk)
    disk.fail("write", names="*.seg")
    with pytest.raises(EngineFailed):
        engine.send("t", b"x")
    engine.close()
    engine.close()
