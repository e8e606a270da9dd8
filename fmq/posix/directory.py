"""One open directory of this machine, and the files in it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from fmq.errors import Locked, RemoteFileSystem
from fmq.machine.disk import PAGE_BYTES, Page
from fmq.posix.denied import denied_in
from fmq.posix.descriptors import (
    FILE_MODE,
    UNFOLLOWED,
    close,
    directory_mode,
    set_mode,
    set_mode_or_close,
)
from fmq.posix.engine_lock import EngineLock
from fmq.posix.file import RealFile
from fmq.posix.full_sync import full_sync
from fmq.posix.locks import lock_past_looks
from fmq.posix.mount_table import MountedAt
from fmq.posix.page import RealPage
from fmq.posix.write_call import WriteCall

NEW = ".new"  # the suffix of a page that is being written


class RealDirectory:
    """A directory of this machine."""

    def __init__(
        self,
        path: str,
        fd: int,
        writer: WriteCall,
        mounted: MountedAt,
        *,
        allow_remote: bool = False,
        file_mode: int = FILE_MODE,
    ) -> None:
        self.path = path
        self.file_mode = file_mode
        self._fd = fd
        self._writer = writer
        self._mounted = mounted
        self._allow_remote = allow_remote

    def names(self) -> list[str]:
        if self._fd < 0:  # the directory is closed, and listdir(-1) would list another one
            raise OSError(errno.EBADF, f"{self.path}: closed")
        return os.listdir(self._fd)

    def free_bytes(self) -> int:
        found = os.fstatvfs(self._fd)
        return found.f_bavail * found.f_frsize

    def open(self, name: str, *, write: bool = False) -> RealFile:
        return self._file(name, os.O_RDWR if write else os.O_RDONLY)

    def create(self, name: str) -> RealFile:
        return self._file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def _file(self, name: str, flags: int) -> RealFile:
        try:
            fd = os.open(name, flags | UNFOLLOWED, FILE_MODE, dir_fd=self._fd)
        except PermissionError as error:
            raise denied_in(error, self.path, self._fd) from None
        if flags & os.O_CREAT:
            set_mode_or_close(fd, self.file_mode)
        return RealFile(fd, os.path.join(self.path, name), self._writer)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        # Set the mode: an engine with another mode may have made the spare that becomes a segment.
        with contextlib.suppress(OSError):
            fd = os.open(new, os.O_RDONLY | UNFOLLOWED, dir_fd=self._fd)
            try:
                set_mode(fd, self.file_mode)
            finally:
                close(fd)

    def link(self, old: str, new: str) -> None:
        """Give the file `old` the name `new`, too. Raises FileExistsError: of many machines that
        try, one succeeds.
        """
        os.link(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._fd)

    def sync(self) -> None:
        full_sync(self._fd)

    def subdirectory(self, name: str, *, make: bool) -> RealDirectory:
        if make:
            try:
                os.mkdir(name, 0o700, dir_fd=self._fd)
            except FileExistsError:
                make = False
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except PermissionError as error:
            raise denied_in(error, self.path, self._fd) from None
        if make:
            set_mode_or_close(fd, directory_mode(self.file_mode))
        where = path, fd, self._writer, self._mounted
        return RealDirectory(*where, allow_remote=self._allow_remote, file_mode=self.file_mode)

    def lock(self, name: str) -> Callable[[], None]:
        remote = self._mounted.remote
        if remote is not None and not self._allow_remote:
            raise RemoteFileSystem(self.path, remote)
        try:
            return self._lock(name).take(is_local=remote is None)
        except PermissionError as error:
            raise denied_in(error, self.path, self._fd) from None

    def locked_by(self, name: str) -> Locked | None:
        return self._lock(name).holder()

    def _lock(self, name: str) -> EngineLock:
        return EngineLock(self._fd, self.path, name, self.file_mode)

    def make_page(self, name: str, begin: Callable[[Page], None]) -> RealPage:
        self._check_shares_pages()
        new = name + NEW

        def remove() -> None:
            os.unlink(name, dir_fd=self._fd)

        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=self._fd)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        fd = os.open(new, flags | UNFOLLOWED, FILE_MODE, dir_fd=self._fd)
        page: RealPage | None = None
        try:
            if not lock_past_looks(fd):
                raise OSError(errno.EAGAIN, "another program has locked the page", new)
            set_mode(fd, self.file_mode)
            # Write zeros, so that a full disk refuses the page here and not when it is mapped.
            os.pwrite(fd, bytes(PAGE_BYTES), 0)
            page = RealPage(fd, remove=remove)
            begin(page)
            os.replace(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            return page
        except BaseException:
            if page is None:
                close(fd)
            else:
                page.close(keep=True)  # the name may belong to the page of a later engine
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=self._fd)
            raise

    def page(self, name: str) -> RealPage:
        self._check_shares_pages()
        fd = os.open(name, os.O_RDONLY | UNFOLLOWED, dir_fd=self._fd)
        try:
            return RealPage(fd)
        except BaseException:
            close(fd)
            raise

    def _check_shares_pages(self) -> None:
        """Raise OSError if another machine serves the files: what it writes to a mapped page is not
        seen here.
        """
        if self._mounted.remote is not None:
            raise OSError(errno.EOPNOTSUPP, "no pages on a remote file system", self.path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close(fd)
