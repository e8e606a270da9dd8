"""The disk of this machine: the directories that it opens or makes, and those that it refuses."""

from __future__ import annotations

import contextlib
import os
import sys

from fmq.arguments.path import check_local
from fmq.errors import NotAStore, UnsupportedSystem
from fmq.errors.storage_errors import no_directory, no_parent
from fmq.posix.denied import denied
from fmq.posix.descriptors import FILE_MODE, IS_POSIX, close, directory_mode, set_mode_or_close
from fmq.posix.directory import RealDirectory
from fmq.posix.full_sync import CAN_SYNC, full_sync
from fmq.posix.mount_table import MountedAt
from fmq.posix.write_call import writer


class RealDisk:
    """The files of this machine.

    With `hold_gil` a synced write keeps the interpreter's lock, see `writer`. With
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
        self._writer = writer(hold_gil=hold_gil)

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        if not path:
            raise NotAStore("an empty path names no directory. Nothing was changed.")
        check_local(path)
        if make and not CAN_SYNC:
            raise UnsupportedSystem(sys.platform, can_read=True)
        try:
            is_new = make and self._make(path)
            fd = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError as error:
            raise denied(error, path) from None
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_directory(path, error) from None
        if is_new:
            set_mode_or_close(fd, directory_mode(self._file_mode))
        mounted = MountedAt(os.path.abspath(path))
        return RealDirectory(
            path,
            fd,
            self._writer,
            mounted,
            allow_remote=self._allow_remote,
            file_mode=self._file_mode,
        )

    def _make(self, path: str) -> bool:
        """Make the directory at `path`. Return False if it existed."""
        made = True
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            made = False
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_parent(path) from error
        # Sync the parent even if the directory existed: the process that made it may have died
        # before its sync.
        try:
            parent = os.open(os.path.dirname(os.path.abspath(path)), os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            # The user may be allowed to enter the parent directory and not to read it.
            if not made:
                # This user may not sync the parent directory. The user who made the directory may.
                return False
            with contextlib.suppress(OSError):
                os.rmdir(path)
            raise
        try:
            full_sync(parent)
        finally:
            close(parent)
        return made

    @staticmethod
    def random(size: int) -> bytes:
        return os.urandom(size)


def absolute(path: str) -> str:
    """Return `path` as an absolute path."""
    return os.path.abspath(path)
