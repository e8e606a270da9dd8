"""Real file systems in image files: made, mounted through a loop device, and cut off by an ioctl.

The ioctl makes the kernel drop everything that it has not written to the device, as a power cut
would, and refuse whatever follows; the next mount replays the file system's own journal. What
has been written to the device stays, in whatever order: `blocks` reorders that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN, FS_IOC_SHUTDOWN: _IOR('X', 125, u32)
FLUSH_LOG, DROP_LOG = 1, 2  # whether the file system's journal is written first
MIB = 1 << 20
BUSY_SECONDS = 60.0

# How each is made, and the smallest image that it takes.
KINDS = {
    "ext4": (("mkfs.ext4", "-q", "-F"), 96 * MIB),
    "xfs": (("mkfs.xfs", "-q", "-f"), 320 * MIB),
}


def why_not(kind: str) -> str | None:
    """Return why no such file system can be made and mounted here; None if it can."""
    if os.geteuid() != 0:
        return "it needs root, for mounting"
    if not os.path.exists("/dev/loop-control"):
        return "there is no loop device"
    program = KINDS[kind][0][0]
    if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        return f"{program} is not installed"
    if f"\t{kind}\n" not in Path("/proc/filesystems").read_text() and not _loadable(kind):
        return f"the kernel has no {kind}"
    return None


def _loadable(kind: str) -> bool:
    with suppress(FileNotFoundError):
        return subprocess.run(["modprobe", "-q", kind], check=False).returncode == 0
    return False


# Keep as little as possible that was not synced: by default ext4 writes its journal every five
# seconds, which is the time of a few syncs on a slow disk.
MOUNTED = {"ext4": ("commit=900",), "xfs": ()}


class FileSystem:
    """A file system in an image file below `scratch`. It is unmounted at the end of the block."""

    def __init__(self, kind: str, scratch: Path, size: int = 0) -> None:
        self.kind = kind
        self.image = scratch / f"{kind}.image"
        self.point = scratch / f"{kind}.mounted"
        self._size = size or KINDS[kind][1]
        self.point.mkdir(exist_ok=True)

    def make(self) -> None:
        """Make a fresh file system, and mount it."""
        self.unmount()
        self.create()
        self.mount()

    def create(self) -> None:
        """Make a fresh file system in the image."""
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as image:
            image.truncate(self._size)
        run(*KINDS[self.kind][0], str(self.image))

    def mount(self, *options: str) -> None:
        """Mount the file system. The kernel recovers what its journal has. The loop device ends
        with the mount.
        """
        given = ",".join(("loop", *MOUNTED[self.kind], *options))
        run("mount", "-t", self.kind, "-o", given, str(self.image), str(self.point))

    def remount(self, *options: str) -> None:
        run("mount", "-o", ",".join(("remount", *options)), str(self.point))

    def cut(self, *, flush_log: bool) -> None:
        """Cut the power."""
        fd = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            flag = FLUSH_LOG if flush_log else DROP_LOG
            fcntl.ioctl(fd, SHUTDOWN, flag.to_bytes(4, "little"))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        unmount(self.point)

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.unmount()
        self.image.unlink(missing_ok=True)
        self.point.rmdir()


def unmount(point: Path) -> None:
    """Unmount the file system if it is mounted. A killed process may need a moment until it has
    closed its files.
    """
    until = time.monotonic() + BUSY_SECONDS
    while is_mounted(point):
        done = subprocess.run(["umount", str(point)], capture_output=True, text=True, check=False)
        if done.returncode and time.monotonic() > until:
            raise RuntimeError(done.stderr)
        if done.returncode:
            time.sleep(0.01)  # nothing tells when a mount stops being busy


@contextmanager
def scratch_below(directory: Path, name: str) -> Iterator[Path]:
    """Return a directory for this run alone. Files that killed runs have left beside it are removed
    first.

    A run locks its directory, so that another one does not take it for a leftover.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(f"fmq-{name}-*"):
        fd = _lock(left)
        if fd is not None:
            _remove(left)
            os.close(fd)
    fd = None
    while fd is None:  # another run may take it for a leftover before it is locked
        scratch = Path(tempfile.mkdtemp(prefix=f"fmq-{name}-", dir=directory))
        fd = _lock(scratch)
    try:
        yield scratch
    finally:
        _remove(scratch)
        os.close(fd)


def _lock(scratch: Path) -> int | None:
    """Lock the directory until the descriptor is closed; None if another run has locked it, or
    has removed it.
    """
    try:
        fd = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    with suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if scratch.exists():
            return fd
    os.close(fd)
    return None


def _remove(scratch: Path) -> None:
    """Unmount all that is mounted in it, and remove it."""
    clear(scratch)
    scratch.rmdir()


def clear(scratch: Path) -> None:
    """Unmount all that is mounted in it, and empty it."""
    for point in mounts_below(scratch):
        subprocess.run(["umount", "--lazy", point], check=False)
    for path in scratch.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def is_mounted(point: Path) -> bool:
    return str(point.resolve()) in mounts_below(point)


def mounts_below(path: Path) -> list[str]:
    """Return the mount points at or below `path`, the innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split(" ")[1].replace("\\040", " ") for line in lines]
    top = str(path.resolve())
    return [each for each in reversed(points) if each == top or each.startswith(top + "/")]


def run(*command: str) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
