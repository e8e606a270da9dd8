"""The lock that one engine has on its directory, and the file LOCK, which says who has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from fmq.errors import Locked
from fmq.posix.descriptors import FILE_MODE, UNFOLLOWED, close, set_mode
from fmq.posix.locks import has_locks, is_only_shared, lock_past_looks, share, unlock

WORDS_BYTES_MAX = 200  # of LOCK


class EngineLock:
    """The lock of one directory, whether it is taken or not."""

    def __init__(self, directory: int, path: str, name: str, file_mode: int) -> None:
        """`directory` is the descriptor of the directory at `path`; `name` that of LOCK in it."""
        self._directory = directory
        self._path = path
        self._name = name
        self._file_mode = file_mode

    def take(self, *, is_local: bool) -> Callable[[], None]:
        """Lock the directory. Return what releases it; raise Locked if another engine has it.

        `is_local` says that the lock of the directory itself keeps all other engines away.
        """
        kept: list[int] = []
        try:
            # Lock the directory itself as well: users remove the file when they think that it keeps
            # an engine from opening. The file says who has the lock, and it is all that can be
            # locked where another machine serves the directory.
            kept.append(self._itself())
            if not lock_past_looks(kept[0]):
                raise self._locked()
            kept.append(self._open())
            if is_local and has_locks(kept[0]) and is_only_shared(kept[1]):
                # `fmq.check` shares it while it reads. A new file lets the engine open at once, and
                # shows the check that an engine was here (recovery/lock_check.py).
                close(kept.pop())
                os.unlink(self._name, dir_fd=self._directory)
                kept.append(self._open())
            if not lock_past_looks(kept[1]):
                raise self._locked()
            set_mode(kept[1], self._file_mode)
            # In this order: on a full disk there may be no room for a new file.
            os.ftruncate(kept[1], os.pwrite(kept[1], _own_words(), 0))
        except BaseException:
            while kept:
                close(kept.pop())
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
                        unlock(kept[-1])
                close(kept.pop())

        return release

    def _open(self) -> int:
        return os.open(
            self._name, os.O_RDWR | os.O_CREAT | UNFOLLOWED, FILE_MODE, dir_fd=self._directory
        )

    def holder(self) -> Locked | None:
        """Return the error that names the engine that has the lock; None if none has it."""
        kept = [self._itself()]
        try:
            free = share(kept[0])
            if free:
                # A user who may not read it looks at the directory only, which an engine locks,
                # too.
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    kept.append(
                        os.open(self._name, os.O_RDONLY | UNFOLLOWED, dir_fd=self._directory)
                    )
                    free = share(kept[1])
        finally:
            for fd in kept:
                close(fd)
        return None if free else self._locked()

    def _itself(self) -> int:
        """Return a new descriptor of the directory, so that a lock ends with it and with no
        other.
        """
        return os.open(".", os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory)

    def _locked(self) -> Locked:
        try:
            fd = os.open(self._name, os.O_RDONLY | UNFOLLOWED, dir_fd=self._directory)
        except FileNotFoundError:
            return Locked(self._path, f"an engine whose {self._name} has been removed")
        except OSError:  # not every user may read LOCK
            return Locked(self._path, "another process")
        try:
            words = os.pread(fd, WORDS_BYTES_MAX, 0)
        finally:
            close(fd)
        holder, *_ = words.decode("ascii", "replace").split("\n")
        return Locked(self._path, holder or "another process", here=words == _own_words())


def _own_words() -> bytes:
    """Return the text of LOCK while this process writes. It names the host, for a reader of a copy
    of the directory, and because each container has a process 1.
    """
    return f"process {os.getpid()}\nhost {host_name()}\n".encode()


def host_name() -> str:
    """Return the name of this machine, as LOCK files have it."""
    return os.uname().nodename
