"""One file served through /dev/fuse. With a loop device over it, it is a disk whose writes this
process sees.

Only what a loop device asks for is answered. The numbers and structs are those of the kernel's
linux/fuse.h, protocol 7.31.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import stat
import time
from enum import IntEnum
from multiprocessing.connection import Connection
from pathlib import Path
from struct import Struct

from crash_tests.real.blocks import Blocks

NAME = b"disk"
ROOT, DISK = 1, 2  # node ids
MAX_WRITE = 128 * 1024
READ_BYTES = MAX_WRITE + 4096


class Op(IntEnum):
    """The requests of the kernel that are served; others are refused."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


NO_REPLY = {Op.FORGET, Op.INTERRUPT, Op.DESTROY, Op.BATCH_FORGET}

IN_HEADER = Struct("<IIQQIIII")
OUT_HEADER = Struct("<IiQ")
INIT_OUT = Struct("<IIIIHHIIHHI28x")
ATTR = Struct("<QQQQQQIIIIIIIIII")
ENTRY = Struct("<QQQQII")
ATTR_OUT = Struct("<QII")
OPEN_OUT = Struct("<QIi")
READ_IN = Struct("<QQI")
WRITE_IN = Struct("<QQIIQII")
WRITE_OUT = Struct("<II")
STATFS_OUT = Struct("<QQQQQIIII24x")


def mount(point: Path) -> int:
    """Mount a file system at `point`, and return the descriptor on which its requests arrive."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"fmq-blocks", os.fsencode(point), b"fuse", 0, options):
        number = ctypes.get_errno()
        os.close(fd)
        raise OSError(number, os.strerror(number), str(point))
    return fd


def serve(point: Path, durable: Path, current: Path, pipe: Connection) -> None:
    """Run a process that mounts, answers requests until it is told to stop, and reports when the
    power has failed.

    Asked with a number, the disk fails after so many more operations, and when it began to is told,
    as time.monotonic(); with None, what was written since the last flush is told.
    """
    # The process that has started it unmounts, and so ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fd = mount(point)
    blocks = Blocks(durable, current)
    pipe.send("mounted")
    told = False
    while True:
        ready, _, _ = select.select([fd, pipe.fileno()], [], [])
        now = time.monotonic()  # no later than the first refusal
        if pipe.fileno() in ready:
            asked = pipe.recv()
            if asked is None:
                pipe.send(blocks.pending)
            else:
                blocks.fail_at, told = blocks.operations + asked, False
        if fd in ready:
            try:
                request = os.read(fd, READ_BYTES)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                raise
            _answer(fd, request, blocks)
        if blocks.failed and not told:
            pipe.send(now)
            told = True


def _answer(fd: int, request: bytes, blocks: Blocks) -> None:
    _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
    if opcode in NO_REPLY:
        return
    try:
        reply, error = _reply(opcode, node, request[IN_HEADER.size :], blocks), 0
    except OSError as failed:
        reply, error = b"", -(failed.errno or errno.EIO)
    os.write(fd, OUT_HEADER.pack(OUT_HEADER.size + len(reply), error, unique) + reply)


def _reply(opcode: int, node: int, body: bytes, blocks: Blocks) -> bytes:
    match opcode:
        case Op.INIT:
            return INIT_OUT.pack(7, 31, 0, 0, 16, 12, MAX_WRITE, 1, 0, 0, 0)
        case Op.LOOKUP:
            if body.rstrip(b"\0") != NAME:
                raise OSError(errno.ENOENT, "no such file")
            return ENTRY.pack(DISK, 0, 3600, 3600, 0, 0) + _attributes(DISK, blocks)
        case Op.GETATTR | Op.SETATTR:
            return ATTR_OUT.pack(3600, 0, 0) + _attributes(node, blocks)
        case Op.OPEN:
            return OPEN_OUT.pack(0, 0, 0)
        case Op.READ:
            _, offset, size = READ_IN.unpack_from(body)
            return blocks.read(offset, size)
        case Op.WRITE:
            _, offset, size, *_ = WRITE_IN.unpack_from(body)
            blocks.write(offset, body[WRITE_IN.size : WRITE_IN.size + size])
            return WRITE_OUT.pack(size, 0)
        case Op.FSYNC:
            blocks.flush()
            return b""
        case Op.STATFS:
            return STATFS_OUT.pack(0, 0, 0, 0, 0, 4096, 255, 4096, 0)
        case Op.RELEASE | Op.FLUSH | Op.ACCESS:
            return b""
    raise OSError(errno.ENOSYS, "not served")


def _attributes(node: int, blocks: Blocks) -> bytes:
    if node == ROOT:
        return ATTR.pack(ROOT, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o700, 2, 0, 0, 0, 4096, 0)
    size, mode = blocks.size, stat.S_IFREG | 0o600
    return ATTR.pack(DISK, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
