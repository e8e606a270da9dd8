"""What only a disk of this machine can show: modes, links, short system calls."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import fmq
from fmq.errors import EngineFailed
from fmq.machine.disk import Buffer, Directory, is_full
from fmq.posix import RealDisk, RealFile, descriptors
from fmq.testing import FaultDisk
from fmq.testing.faults import Operation
from tests.store.lines import Lines

NOBODY = 65534


@pytest.fixture
def real(tmp_path: Path) -> Directory:
    return RealDisk().directory(str(tmp_path / "data"), make=True)


def test_other_users_cannot_read_files_or_directories(real: Directory) -> None:
    real.create("a").close()
    real.lock("LOCK")()
    real.subdirectory("below", make=True)
    modes = {name: stat.S_IMODE(os.stat(f"{real.path}/{name}").st_mode) for name in real.names()}
    assert modes == {"a": 0o600, "LOCK": 0o600, "below": 0o700}
    assert stat.S_IMODE(os.stat(real.path).st_mode) == 0o700


def test_an_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    """Others may be allowed to list it. The files are private all the same."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o750)
    real = RealDisk().directory(str(tmp_path / "data"), make=True)
    real.create("a").close()
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (real.path, f"{real.path}/a")]
    assert modes == [0o750, 0o600]


def test_what_was_made_is_closed_if_its_mode_cannot_be_set(tmp_path: Path) -> None:
    """Nobody would ever close it: the call that has opened it raises."""

    def refuse() -> None:
        raise OSError(errno.EIO, "the disk is gone")

    real = RealDisk().directory(str(tmp_path / "data"), make=True)
    calls: list[Callable[[], object]] = [
        lambda: real.create("a"),
        lambda: real.subdirectory("b", make=True),
        lambda: RealDisk().directory(str(tmp_path / "c"), make=True),
    ]
    before = len(os.listdir("/proc/self/fd"))
    for call in calls:
        with pytest.raises(OSError, match="the disk is gone"):
            Lines(descriptors, 0, refuse, descriptors.set_mode.__code__).run(call)
        assert len(os.listdir("/proc/self/fd")) == before


@contextmanager
def below_what_cannot_be_listed() -> Iterator[Path]:
    """Yield a directory that the user of the process may enter and write, but not list."""
    with TemporaryDirectory() as top:
        parent = Path(top) / "parent"
        parent.mkdir()
        parent.chmod(0o333)
        Path(top).chmod(0o711)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            yield parent
        finally:
            if root:
                os.seteuid(0)
            parent.chmod(0o700)


def test_a_directory_below_one_that_cannot_be_listed_can_be_opened() -> None:
    """Home directories of mode 0711 are such. Only a user who may read the parent can sync it."""
    with below_what_cannot_be_listed() as parent:
        (parent / "data").mkdir()
        with fmq.open(parent / "data", background=False) as engine:
            engine.send("t", b"x")


def test_a_directory_that_cannot_be_made_durable_is_not_left_behind() -> None:
    """The next opening would take it for durable."""
    with below_what_cannot_be_listed() as parent:
        for _ in range(2):
            with pytest.raises(PermissionError):
                RealDisk().directory(str(parent / "data"), make=True)
        assert not (parent / "data").exists()


def test_symbolic_links_are_not_followed(real: Directory, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_bytes(b"x")
    os.symlink(tmp_path / "elsewhere" / "a", f"{real.path}/link")
    os.symlink(tmp_path / "elsewhere", f"{real.path}/folder")
    for work in (
        lambda: real.open("link"),
        lambda: real.lock("link"),
        lambda: real.subdirectory("folder", make=True),
    ):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            work()


def test_a_short_write_is_continued(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    calls = []

    def short(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        calls.append(flags)
        return os.pwrite(fd, b"".join(buffers)[:4], offset)

    file = RealFile(fd, "a", short)
    file.write(2, (b"01234", b"56789"), sync=True)
    assert file.read(2, 100) == b"0123456789"
    assert calls == [os.RWF_DSYNC] * 3
    file.close()


def test_a_write_that_makes_no_progress_is_an_error(tmp_path: Path) -> None:
    file = RealFile(os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT), "a", lambda *_: 0)
    with pytest.raises(OSError, match="no progress"):
        file.write(0, (b"x",), sync=False)
    file.close()


@pytest.mark.parametrize(
    ("number", "full"),
    [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EFBIG, True), (errno.EIO, False)],
)
def test_a_full_disk_is_distinguished_from_a_failing_one(number: int, full: bool) -> None:
    assert is_full(OSError(number, "")) is full


@pytest.mark.parametrize("operation", ["rename", "write"])
def test_an_engine_that_failed_at_a_roll_keeps_no_file_when_it_is_closed(
    tmp_path: Path, operation: Operation
) -> None:
    """Otherwise the file system that failed could not be unmounted while the program runs."""
    disk = FaultDisk(RealDisk())
    engine = fmq.open(tmp_path / "data", fmq.Options(segment_bytes=1 << 16), disk=disk)
    disk.fail(operation, names="*.spare*")
    with pytest.raises(EngineFailed):
        for _ in range(100):
            engine.send("t", bytes(4000))
    engine.close()
    fds = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    held = [str(fd.readlink()) for fd in fds if fd.is_symlink()]
    assert not [path for path in held if path.startswith(str(tmp_path))]
