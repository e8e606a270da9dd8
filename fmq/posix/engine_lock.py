"""The lock that one engine has on its directory, and the file LOCK, which says who has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from fmq.errors import Locked
from fmq.posix.descriptors import FILE_MODE, UNFOLLOWED, close, set_mode
from fmq.posix.locks import has_locks, is_only_shared, lock_past_looks, share, unlock

WORDS_BYTES_MAX = 200  # the size of LOCK, at most


class EngineLock:
    """The lock of one directory, which this process may hold or not."""

    def __init__(self, directory: int, path: str, name: str, file_mode: int) -> None:
        """`directory` is the descriptor of the directory at `path`; `name` is the name of LOCK."""
        self._directory = directory
        self._path = path
        self._name = name
        self._file_mode = file_mode

    def take(self, *, is_local: bool) -> Callable[[], None]:
        """Lock the directory and return a function that releases the lock. Raises Locked if another
        engine has it.

        `is_local` says that the lock of the directory itself keeps all other engines away.
        """
        kept: list[int] = []
        try:
            # Lock the directory itself, too: users remove the file if they believe that it keeps an
            # engine from opening. The file tells who has the lock. Where another machine serves the
            # directory, only the file can be locked.
            kept.append(self._itself())
            if not lock_past_looks(kept[0]):
                raise self._locked()
            kept.append(self._open())
            if is_local and has_locks(kept[0]) and is_only_shared(kept[1]):
                # `fmq.check` has a shared lock on this file while it reads. Replace the file, so
                # that the engine need not wait for the check. The check notices the new file, and
                # knows that an engine has opened (recovery/lock_check.py).
                close(kept.pop())
                os.unlink(self._name, dir_fd=self._directory)
                kept.append(self._open())
            if not lock_past_looks(kept[1]):
                raise self._locked()
            set_mode(kept[1], self._file_mode)
            # Write before truncating: on a full disk there may be no room to write to an empty
            # file.
            os.ftruncate(kept[1], os.pwrite(kept[1], _own_words(), 0))
        except BaseException:
            while kept:
                close(kept.pop())
            raise
        owner = os.getpid()

        def release() -> None:
            # A second call finds nothing to close: its descriptors may belong to other files by
            # now.
            while kept:
                # A forked child with a copy of the descriptor would keep the lock until it closes
                # it or calls exec. So the parent unlocks, and a child does not.
                if os.getpid() == owner:
                    # An error is harmless: closing releases the lock, too, unless a child has a
                    # copy.
                    with contextlib.suppress(OSError):
                        unlock(kept[-1])
                close(kept.pop())

        return release

    def _open(self) -> int:
        return os.open(
            self._name, os.O_RDWR | os.O_CREAT | UNFOLLOWED, FILE_MODE, dir_fd=self._directory
        )

    def holder(self) -> Locked | None:
        """Return a Locked error that names the engine with the lock; None if no engine has it."""
        kept = [self._itself()]
        try:
            free = share(kept[0])
            if free:
                # A user who may not read LOCK checks only the directory, which an engine locks as
                # well.
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
        """Return a new descriptor of the directory. A lock taken on it ends with it alone."""
        return os.open(".", os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory)

    def _locked(self) -> Locked:
        try:
            fd = os.open(self._name, os.O_RDONLY | UNFOLLOWED, dir_fd=self._directory)
        except FileNotFoundError:
            return Locked(self._path, f"an engine whose {self._name} has been removed")
        except OSError:  # this user may not read LOCK
            return Locked(self._path, "another process")
        try:
            words = os.pread(fd, WORDS_BYTES_MAX, 0)
        finally:
            close(fd)
        holder, *_ = words.decode("ascii", "replace").split("\n")
        return Locked(self._path, holder or "another process", here=words == _own_words())


def _own_words() -> bytes:
    """Return the text that LOCK has while this process writes. The text names the host: a copy of
    the directory may be read elsewhere, and each container has a process 1.
    """
    return f"process {os.getpid()}\nhost {host_name()}\n".encode()


def host_name() -> str:
    """Return the name of this machine, as LOCK files state it."""
    return os.uname().nodename
