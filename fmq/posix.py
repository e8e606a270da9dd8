"""The files of this machine, by system calls. No other part of fmq touches the file system.

Everything below a directory is opened relative to it, without following symbolic links. What is
made has the permissions that are asked for, whatever the umask: by default 0600 for files and 0700
for directories.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Sequence

from fmq.clock import SystemClock, sleep
from fmq.disk import PAGE_BYTES, Buffer
from fmq.errors import Locked, NotAStore, RemoteFileSystem, UnsupportedSystem
from fmq.errors.storage import no_directory, no_parent
from fmq.mounts import remote_kind

try:
    import fcntl

    IS_POSIX = True
except ImportError:  # Windows: `import fmq` works, and RealDisk refuses
    IS_POSIX = False

MOUNTS = "/proc/self/mountinfo"
OPEN_FILES = "/proc/self/fd"
BOOT = "/proc/sys/kernel/random/boot_id"
WORDS_BYTES_MAX = 200  # of LOCK
# How often to try a lock that another program looks at: longer than any look takes.
LOOKS_MAX = 100
LOOK_SECONDS = 0.005
IOV_MAX = 1024  # buffers that one pwritev takes on Linux
# The page cache keeps the zeros in folios of this size. A later synced write walks through all
# blocks of the folios that it touches: see benchmarks/zeros.py.
ZEROS_BYTES = 128 << 10
UNCHECKED_BYTES_MAX = 4 << 20
# O_NONBLOCK has no effect on a file. It avoids waiting for a named pipe.
UNFOLLOWED = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK if IS_POSIX else 0
# The errors of remote file systems for a lock on a directory.
FILE_MODE = 0o600  # unless others are asked for
NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES)


class RealFile:
    """A file of this machine."""

    __slots__ = ("_fd", "_path", "_writer")

    def __init__(self, fd: int, path: str, writer: Writer) -> None:
        self._fd = fd
        self._path = path
        self._writer = writer

    def read(self, offset: int, size: int) -> bytes:
        if size > UNCHECKED_BYTES_MAX:
            # The kernel takes any size, but Python allocates all of it first.
            size = max(0, min(size, self.size() - offset))
        try:
            data = os.pread(self._fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            while data and (size := size - len(data)):
                offset += len(data)
                data = os.pread(self._fd, size, offset)
                parts.append(data)
        except OSError as error:
            self._name(error)
            raise
        return b"".join(parts)

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        if len(buffers) > IOV_MAX:
            buffers = (b"".join(buffers),)
        # One system call that writes and, with sync, makes durable what it wrote.
        flags = os.RWF_DSYNC if sync else 0
        write = self._writer
        size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        try:
            written = write(self._fd, buffers, offset, flags)
            if written != size:
                self._write_rest(offset, b"".join(buffers), written, flags)
        except OSError as error:
            self._name(error)
            raise

    def _write_rest(self, offset: int, data: bytes, written: int, flags: int) -> None:
        """Go on after a short write. The next call says why it was short."""
        while written < len(data):
            more = self._writer(self._fd, (memoryview(data)[written:],), offset + written, flags)
            if not more:
                raise OSError(errno.EIO, "a write made no progress")
            written += more

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def write_zeros(self, size: int) -> None:
        zeros = bytes(min(size, ZEROS_BYTES))
        for offset in range(0, size, ZEROS_BYTES):
            self.write(offset, (memoryview(zeros)[: size - offset],), sync=False)

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._name(error)
            raise

    def _name(self, error: OSError) -> None:
        """Put the name of the file into `error`: the system call knows only a number. It is the
        present name, as spares become segments.
        """
        error.filename = self._path
        with contextlib.suppress(OSError):
            error.filename = os.readlink(f"{OPEN_FILES}/{self._fd}")

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def identity(self) -> tuple[int, int]:
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def pin(self, *, exclusive: bool) -> bool:
        how = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(self._fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _close(fd)


class RealPage:
    """A file of this machine that is mapped."""

    def __init__(self, fd: int, *, remove: Callable[[], None] | None = None) -> None:
        """Take over `fd`. The maker passes `remove`, which removes the name."""
        self.boot = _boot()
        access = mmap.ACCESS_READ if remove is None else mmap.ACCESS_WRITE
        try:
            self._mapped = mmap.mmap(fd, PAGE_BYTES, access=access)
        except ValueError as error:  # the file is shorter
            raise OSError(errno.EINVAL, str(error)) from None
        self.words = memoryview(self._mapped).cast("Q")
        self._fd = fd
        self._remove = remove
        self._maker = os.getpid()

    def is_held(self) -> bool:
        if not _flock(self._fd, fcntl.LOCK_SH):
            return True
        _flock(self._fd, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        # The child of a fork has a copy: closing that changes nothing for its parent.
        if self._remove is not None and os.getpid() == self._maker:
            with contextlib.suppress(OSError):
                self._remove()
            with contextlib.suppress(OSError):
                _flock(fd, fcntl.LOCK_UN)
        self.words.release()
        self._mapped.close()
        _close(fd)


# As os.pwritev: file, buffers, position, flags; returns how many bytes it wrote.
Writer = Callable[[int, Sequence[Buffer], int, int], int]


def gil_holding_writer() -> Writer:
    """Return a writer that keeps the interpreter's lock through a synced write.

    Beside a thread that computes, it takes up to the switch interval (5 ms) to get that lock back.
    Keeping it makes a send many times faster there. The price: all other Python threads stand still
    while the disk syncs.
    """
    import ctypes  # imported here, because few programs need it and it is slow to import

    libc = ctypes.PyDLL(None, use_errno=True)
    pwritev2 = libc.pwritev2
    pwritev2.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_int)
    pwritev2.restype = ctypes.c_ssize_t

    class Iovec(ctypes.Structure):
        _fields_ = (("base", ctypes.c_char_p), ("size", ctypes.c_size_t))

    def write_holding_gil(fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        if not flags:
            return os.pwritev(fd, buffers, offset)
        data = b"".join(buffers)
        vector = Iovec(data, len(data))
        while True:
            written = pwritev2(fd, ctypes.byref(vector), 1, offset, flags)
            if written >= 0:
                return int(written)
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))

    return write_holding_gil


class RealDirectory:
    """A directory of this machine."""

    def __init__(
        self,
        path: str,
        fd: int,
        writer: Writer,
        *,
        remote: str | None,
        is_local: bool = True,
        file_mode: int = FILE_MODE,
    ) -> None:
        """`remote` is the kind of file system if it must not be written. `is_local` is False also
        if it is remote and may be written.
        """
        self.path = path
        self.file_mode = file_mode
        self._fd = fd
        self._writer = writer
        self.remote = remote
        self._is_local = is_local

    def names(self) -> list[str]:
        if self._fd < 0:
            raise OSError(
                errno.EBADF, f"{self.path}: closed"
            )  # listdir(-1) would list another directory
        return os.listdir(self._fd)

    def open(self, name: str, *, write: bool = False) -> RealFile:
        return self._file(name, os.O_RDWR if write else os.O_RDONLY)

    def create(self, name: str) -> RealFile:
        return self._file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def _file(self, name: str, flags: int) -> RealFile:
        fd = os.open(name, flags | UNFOLLOWED, FILE_MODE, dir_fd=self._fd)
        if flags & os.O_CREAT:
            _set_mode(fd, self.file_mode)
        return RealFile(fd, os.path.join(self.path, name), self._writer)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        # A spare that becomes a segment may be of an engine with another mode.
        with contextlib.suppress(OSError):
            fd = os.open(new, os.O_RDONLY | UNFOLLOWED, dir_fd=self._fd)
            try:
                _set_mode(fd, self.file_mode)
            finally:
                _close(fd)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._fd)

    def sync(self) -> None:
        os.fsync(self._fd)

    def subdirectory(self, name: str, *, make: bool) -> RealDirectory:
        if make:
            try:
                os.mkdir(name, 0o700, dir_fd=self._fd)
                made = True
            except FileExistsError:
                made = False
        fd = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        if make and made:
            _set_mode(fd, directory_mode(self.file_mode))
        path = os.path.join(self.path, name)
        mode, is_local = self.file_mode, self._is_local
        return RealDirectory(
            path, fd, self._writer, remote=self.remote, is_local=is_local, file_mode=mode
        )

    def lock(self, name: str) -> Callable[[], None]:
        if self.remote is not None:
            raise RemoteFileSystem(self.path, self.remote)
        kept: list[int] = []
        try:
            # Lock the directory itself as well: users remove the file when they think that it keeps
            # an engine from opening. The file says who has the lock, and it is all that can be
            # locked where another machine serves the directory.
            kept.append(self._itself())
            if not _flock_alone(kept[0]):
                raise self._locked(name)
            kept.append(self._open_lock(name))
            if self._is_local and _is_locked(kept[0]) and _is_only_shared(kept[1]):
                # `fmq.check` shares it while it reads. A new file lets the engine open at once, and
                # shows the check that an engine was here (recovery/lock_check.py). This is done
                # only where the lock of the directory keeps all other engines away.
                _close(kept.pop())
                os.unlink(name, dir_fd=self._fd)
                kept.append(self._open_lock(name))
            if not _flock_alone(kept[1]):
                raise self._locked(name)
            _set_mode(kept[1], self.file_mode)
            # In this order: on a full disk there may be no room for a new file.
            os.ftruncate(kept[1], os.pwrite(kept[1], _own_words(), 0))
        except BaseException:
            while kept:
                _close(kept.pop())
            raise
        owner = os.getpid()

        def release() -> None:
            # A second call does nothing: the numbers may belong to other files by now.
            while kept:
                # A child that has not closed its copy, or called exec, would keep the lock. And a
                # child that closes its copy must not unlock its parent.
                if os.getpid() == owner:
                    # If it fails: where no child has a copy, closing releases the lock, too.
                    with contextlib.suppress(OSError):
                        _flock(kept[-1], fcntl.LOCK_UN)
                _close(kept.pop())

        return release

    def _open_lock(self, name: str) -> int:
        return os.open(name, os.O_RDWR | os.O_CREAT | UNFOLLOWED, FILE_MODE, dir_fd=self._fd)

    def locked_by(self, name: str) -> Locked | None:
        kept = [self._itself()]
        try:
            free = _flock(kept[0], fcntl.LOCK_SH)
            if free:
                # A user who may not read it looks at the directory only, which an engine locks,
                # too.
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    kept.append(os.open(name, os.O_RDONLY | UNFOLLOWED, dir_fd=self._fd))
                    free = _flock(kept[1], fcntl.LOCK_SH)
        finally:
            for fd in kept:
                _close(fd)
        return None if free else self._locked(name)

    def make_page(self, name: str) -> RealPage:
        self._check_shares_pages()

        def remove() -> None:
            os.unlink(name, dir_fd=self._fd)

        with contextlib.suppress(FileNotFoundError):
            remove()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        fd = os.open(name, flags | UNFOLLOWED, FILE_MODE, dir_fd=self._fd)
        try:
            if not _flock_alone(fd):
                raise OSError(errno.EAGAIN, "another program has locked the page", name)
            _set_mode(fd, self.file_mode)
            # Written, so that a full disk refuses it here and not when it is mapped.
            os.pwrite(fd, bytes(PAGE_BYTES), 0)
            return RealPage(fd, remove=remove)
        except BaseException:
            _close(fd)
            with contextlib.suppress(OSError):
                remove()
            raise

    def page(self, name: str) -> RealPage:
        self._check_shares_pages()
        fd = os.open(name, os.O_RDONLY | UNFOLLOWED, dir_fd=self._fd)
        try:
            return RealPage(fd)
        except BaseException:
            _close(fd)
            raise

    def _check_shares_pages(self) -> None:
        """Raise OSError if another machine serves the files: a page that is mapped there is not
        seen here.
        """
        if not self._is_local:
            raise OSError(errno.EOPNOTSUPP, "no pages on a remote file system", self.path)

    def _itself(self) -> int:
        """Return a new descriptor of the directory, so that a lock ends with it and with no
        other.
        """
        return os.open(".", os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)

    def _locked(self, name: str) -> Locked:
        try:
            fd = os.open(name, os.O_RDONLY | UNFOLLOWED, dir_fd=self._fd)
        except FileNotFoundError:
            return Locked(self.path, f"an engine whose {name} has been removed")
        except OSError:  # not every user may read LOCK
            return Locked(self.path, "another process")
        try:
            words = os.pread(fd, WORDS_BYTES_MAX, 0)
        finally:
            _close(fd)
        holder, *_ = words.decode("ascii", "replace").split("\n")
        return Locked(self.path, holder or "another process", here=words == _own_words())

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _close(fd)


def _close(fd: int) -> None:
    """Close `fd`, and ignore an error: the kernel has released the number and its lock, and what
    must be durable was synced before.
    """
    with contextlib.suppress(OSError):
        os.close(fd)


def _boot() -> bytes:
    """Return the id of this start of the kernel, as 16 bytes; raise OSError if it has none."""
    fd = os.open(BOOT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bytes.fromhex(os.read(fd, 36).decode("ascii").replace("-", ""))
    finally:
        _close(fd)


def directory_mode(file_mode: int) -> int:
    """Return the mode of a directory whose files have `file_mode`: a user who may read them may
    enter it.
    """
    return file_mode | (file_mode & 0o444) >> 2


def _set_mode(fd: int, mode: int) -> None:
    """Set the mode of the open file `fd`, which the umask may have narrowed, if this user
    owns it.
    """
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        with contextlib.suppress(PermissionError):  # another user made it
            os.fchmod(fd, mode)


def _own_words() -> bytes:
    """Return the text of LOCK while this process writes. It names the host, for a reader of a copy
    of the directory, and because each container has a process 1.
    """
    return f"process {os.getpid()}\nhost {host_name()}\n".encode()


def _flock_alone(fd: int) -> bool:
    """Lock the open file `fd` for an engine; return False if another engine has the lock.

    An engine never shares its lock. If the lock can be shared, another program is only looking
    whether there is an engine (`locked_by`): wait for it.
    """
    for _ in range(LOOKS_MAX):
        if _flock(fd, fcntl.LOCK_EX):
            return True
        if not _flock(fd, fcntl.LOCK_SH):
            return False
        _flock(fd, fcntl.LOCK_UN)
        sleep(SystemClock(), LOOK_SECONDS)
    return False


def _is_locked(fd: int) -> bool:
    """Return whether the directory `fd` has been locked; False if its file system has no such
    locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_only_shared(fd: int) -> bool:
    """Take the lock of the file `fd`, or share it; return whether it could only be shared. Then
    other programs share it, and no engine has it.
    """
    return not _flock(fd, fcntl.LOCK_EX) and _flock(fd, fcntl.LOCK_SH)


def _flock(fd: int, how: int) -> bool:
    """Lock or unlock the open file `fd` without waiting; return False if another one has the lock.

    It is flock, not fcntl: a POSIX lock is lost when any part of the process closes the file.
    """
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS or not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise
    return True


class RealDisk:
    """The files of this machine.

    With `hold_gil` a synced write keeps the interpreter's lock, see `gil_holding_writer`. With
    `allow_remote` a directory that another machine serves may be opened for writing. Each new file
    gets `file_mode`. A new directory gets it, too, and users who may read it may enter it.
    """

    def __init__(
        self, *, hold_gil: bool = False, allow_remote: bool = False, file_mode: int = FILE_MODE
    ) -> None:
        if not IS_POSIX:
            raise UnsupportedSystem(sys.platform)
        self._allow_remote = allow_remote
        self._file_mode = file_mode
        self._writer = gil_holding_writer() if hold_gil else os.pwritev

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        if not path:
            raise NotAStore("an empty path names no directory. Nothing was changed.")
        if make and sys.platform != "linux":
            # macOS has no RWF_DSYNC, and its sync does not reach the disk.
            raise UnsupportedSystem(sys.platform, can_read=True)
        made = make and self._make(path)
        try:
            fd = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_directory(path, error) from None
        if made:
            _set_mode(fd, directory_mode(self._file_mode))
        kind = _remote_kind(path)
        remote = None if self._allow_remote else kind
        mode, is_local = self._file_mode, kind is None
        return RealDirectory(
            path, fd, self._writer, remote=remote, is_local=is_local, file_mode=mode
        )

    def _make(self, path: str) -> bool:
        """Make the directory at `path`; return False if it existed."""
        made = True
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            made = False
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_parent(path) from error
        # Also if it existed: the process that made it may have died before it synced the parent.
        try:
            parent = os.open(os.path.dirname(os.path.abspath(path)), os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            # It may be entered and not read, as other users' directories.
            if not made:
                return False  # the user who made it may sync it, this user may not
            with contextlib.suppress(OSError):
                os.rmdir(path)
            raise
        try:
            os.fsync(parent)
        finally:
            _close(parent)
        return made

    @staticmethod
    def random(size: int) -> bytes:
        return os.urandom(size)


def _remote_kind(path: str) -> str | None:
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            return remote_kind(os.path.realpath(path), mounts.read())
    except OSError:
        return None  # a kernel without this list: then no file system is refused


def host_name() -> str:
    """Return the name of this machine, as LOCK files have it."""
    return os.uname().nodename


def absolute(path: str) -> str:
    """Return `path` as an absolute path."""
    return os.path.abspath(path)


def after_fork_in_child(call: Callable[[], None]) -> None:
    """Have `call` run first of all in each forked child."""
    if IS_POSIX:
        os.register_at_fork(after_in_child=call)


def around_forks(
    before: Callable[[], None], in_parent: Callable[[], None], in_child: Callable[[], None]
) -> None:
    """Have these called before each fork, and after it in the parent and in the child."""
    if IS_POSIX:
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
