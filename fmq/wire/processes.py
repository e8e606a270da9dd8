"""The door to other processes: the socket of a directory, and starting a process that serves it.

Below the directory are `SOCKET`, `STARTING`, which is locked while a client starts a process, and
`SERVER.log`, where that process writes what it has to say.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from fmq.basics.own_process import here
from fmq.recovery.layout import SERVER_LOG, SOCKET, SOCKET_NEW, STARTING

# Windows has no fcntl: `import fmq` works, but no directory can be opened.
with suppress(ImportError):
    import fcntl

BACKLOG = 1024
FileId = tuple[int, int]  # device and inode
# Processes that this one has started and that may still run. Kept, so that they are reaped.
_started: list[Any] = []
PEER = struct.Struct("3i")  # pid, uid and gid, as SO_PEERCRED returns them
# On macOS: SOL_LOCAL, LOCAL_PEERCRED and the size of a xucred, which begins with version and uid.
MACOS_PEER_OPTION = 0, 1, 76
MACOS_PEER = struct.Struct("II")
DONT_WAIT = getattr(socket, "MSG_DONTWAIT", None)  # not on Windows
TIME = struct.Struct("ll")  # the seconds and microseconds of a timeout


_numbers = count(1)

STOPS = "the engine process is being stopped"
"""What it says to new clients then."""


def new_member() -> str:
    """Return a name that no other consumer of any process has: machine, process and number."""
    host, pid, _ = here()
    return f"{host}-{pid}-{next(_numbers)}"


@contextmanager
def _short(path: str, name: str) -> Iterator[str]:
    """Yield a path for `name` in the directory `path` that is short enough for a socket. On macOS
    it is as long as it is.
    """
    if not hasattr(os, "O_PATH"):
        yield os.path.join(path, name)
        return
    folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


def listen_in(path: str) -> tuple[socket.socket, FileId]:
    """Return a socket that listens in the directory `path`, for its owner alone, and the id of its
    file.

    It replaces a socket that a dead process has left. Only the holder of the directory's lock may
    call this.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path, SOCKET_NEW) as new, _short(path, SOCKET) as name:
            with suppress(FileNotFoundError):
                os.unlink(new)
            made.bind(new)
            os.chmod(new, 0o600)
            made.listen(BACKLOG)
            file = _id_of(new)
            os.rename(new, name)
    except BaseException:
        made.close()
        raise
    made.setblocking(False)
    return made, file


def _id_of(path: str) -> FileId:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def is_socket_of(path: str, made: socket.socket) -> bool:
    """Return whether `made` is the socket that clients of the directory `path` find."""
    if made.family != socket.AF_UNIX:
        return False
    name = made.getsockname()
    wanted = os.path.realpath(os.path.join(path, SOCKET))
    return isinstance(name, str) and os.path.realpath(name) == wanted


def stop_listening(path: str, file: FileId) -> None:
    """Remove the socket of the directory `path` if it is `file`. The socket is still open."""
    name = os.path.join(path, SOCKET)
    with suppress(OSError):
        # The directory may have been deleted and made again meanwhile. Then another process serves
        # the new one.
        if _id_of(name) == file:
            os.unlink(name)


def connect_to(path: str, socket_name: str = SOCKET, silence: float | None = None) -> socket.socket:
    """Return a socket that is connected to the process that serves the directory `path`, or to one
    that listens there under another name.

    With `silence`, the socket becomes `impatient`.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if silence is not None:
            impatient(made, silence)
        with _short(path, socket_name) as name:
            made.connect(name)
    except BaseException:
        made.close()
        raise
    return made


def impatient(made: socket.socket, silence: float) -> None:
    """Let `made` raise BlockingIOError if nothing arrives for `silence` seconds, or nothing can be
    sent for twice as many. The kernel counts them, so calls that are in time cost nothing more.
    """
    for option, seconds in ((socket.SO_RCVTIMEO, silence), (socket.SO_SNDTIMEO, 2 * silence)):
        if sys.platform == "win32":  # it counts milliseconds, and the error is a TimeoutError
            made.setsockopt(socket.SOL_SOCKET, option, int(seconds * 1000))
            continue
        made.setsockopt(socket.SOL_SOCKET, option, TIME.pack(*divmod(int(seconds * 1e6), 10**6)))


def send_at_once(made: socket.socket, data: Any) -> int:
    """Send what can be sent without waiting, and return how many bytes that were. Raises
    BlockingIOError if none can be.
    """
    if DONT_WAIT is not None:
        return made.send(data, DONT_WAIT)
    if not select.select([], [made], [], 0)[1]:
        raise BlockingIOError
    return made.send(data)


def receive_at_once(made: socket.socket, size: int) -> bytes:
    """Return up to `size` bytes that have arrived. Raises BlockingIOError if none have."""
    if DONT_WAIT is not None:
        return made.recv(size, DONT_WAIT)
    if not select.select([made], [], [], 0)[0]:
        raise BlockingIOError
    return made.recv(size)


def forget_socket(made: socket.socket) -> None:
    """Close this process's copy of a socket. Other copies stay open."""
    with suppress(OSError):
        os.close(made.fileno())


def peer_uid(made: socket.socket) -> int:
    """Return the user id at the other end of a Unix socket."""
    if not hasattr(socket, "SO_PEERCRED"):
        _, uid = MACOS_PEER.unpack_from(made.getsockopt(*MACOS_PEER_OPTION))
        return int(uid)
    _, uid, _ = PEER.unpack(made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return int(uid)


def is_allowed(uid: int, path: str) -> bool:
    """Return whether this user may use the directory `path` through its socket."""
    return uid in (os.geteuid(), os.stat(path).st_uid, 0)


def owns(path: str) -> bool:
    """Return whether this process's user owns the directory `path`."""
    return os.stat(path).st_uid == os.geteuid()


@contextmanager
def starting(path: str, wait: Callable[[float], None]) -> Iterator[None]:
    """Hold the lock for starting a process, while the block runs.

    `wait` sleeps between two attempts, or raises when its patience is over.
    """
    file = os.open(
        os.path.join(path, STARTING), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    raise
                wait(0.01)
        try:
            yield
        finally:
            # Closing alone would keep the lock if the child of a fork has a copy of the file.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def python() -> str | None:
    """Return the path of a Python that can start a process; None if there is none."""
    for each in (sys.executable, os.path.join(sys.prefix, "bin", "python3")):
        name = os.path.basename(each or "")
        if name.startswith(("python", "pypy")) and os.access(each, os.X_OK):
            return each
    return None


def start(path: str, program: str, arguments: list[str]) -> Callable[[], int | None]:
    """Start a process that outlives this one, with its output in SERVER.log of `path`.

    Return a function that returns its exit code, or None while it runs.
    """
    import subprocess  # imported here: slow to import, and most clients start no process

    class Outliving(subprocess.Popen[bytes]):
        """A process that may outlive this one. So Python must not warn about it at the end."""

        def __del__(self) -> None:
            pass

    _started[:] = [each for each in _started if each.poll() is None]

    log = os.open(
        os.path.join(path, SERVER_LOG),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW,
        0o600,
    )
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        child = Outliving(
            [program, "-m", "fmq", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
            close_fds=True,
        )
        _started.append(child)
        return child.poll
    finally:
        os.close(log)


def make_directory(path: str) -> None:
    """Make the directory `path`, for its owner alone, if it is missing."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)


def is_directory(path: str) -> bool:
    """Return whether there is a directory at `path`, as far as this user can tell."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # this user may not look at the path


def split(path: str) -> tuple[str, str]:
    """Return the directory of `path`, and the name in it."""
    return os.path.split(path)


def absolute(path: str) -> str:
    """Return `path` as an absolute path."""
    return os.path.abspath(path)
