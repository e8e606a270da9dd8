"""A home in a directory that all machines see: `file:///mnt/shared/shop`.

    slots/  floors/  pieces/  files/  probes/  owners/   a folder for each kind; a file is an object

An object is written and synced under a name of its own first. Then a hard link gives it its key,
which succeeds once. At last the folder is synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import count

from fmq.errors import NotAStore
from fmq.home.objects import KeyTaken
from fmq.posix import RealDirectory, RealDisk

FOLDERS = ("slots", "floors", "pieces", "files", "probes", "owners")


class FileObjects:
    """Implements Objects. An OSError of the file system ends the engine: after a sync that failed,
    what can be read need not be durable.
    """

    object_bytes_max = 64 << 20

    def __init__(self, address: str, path: str, disk: RealDisk, *, make: bool) -> None:
        """With `make` the directory at `path` is made if it is missing.

        Raises NotAStore if it is another program's.
        """
        self.address = address
        root = disk.directory(path, make=make)
        with closing(root):
            others = sorted({*root.names()} - {*FOLDERS})
            if others:
                raise NotAStore(
                    f"{address}: no home, it holds {others[0]!r}. Nothing was changed. Name a new "
                    "or empty directory."
                )
            # A home of an older fmq has no folder for files, and no floor that names one.
            there = {*root.names(), *(FOLDERS if make else set(FOLDERS) - {"files"})}
            self._folders = {
                name: root.subdirectory(name, make=make) for name in FOLDERS if name in there
            }
            if make:
                root.sync()
        # The start of the names of files that have no key yet. Each engine draws its own.
        self._new = f".{disk.random(8).hex()}"
        self._numbers = count()

    def create(self, key: str, data: bytes) -> None:
        folder, name = self._place(key)
        new = f"{self._new}-{next(self._numbers)}"
        file = folder.create(new)
        try:
            with closing(file):
                file.write(0, (data,), sync=False)
                file.sync()
            folder.link(new, name)
        except FileExistsError:
            folder.sync()  # whoever made it may have died before its sync
            raise KeyTaken from None
        finally:
            with suppress(OSError):
                folder.remove(new)
        folder.sync()

    def read(self, key: str) -> bytes | None:
        folder, name = self._place(key)
        try:
            file = folder.open(name)
        except FileNotFoundError:
            return None
        with closing(file):
            return file.read(0, file.size())

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = []
        for key in keys:
            data = self.read(key)
            if data is None:
                break
            found.append(data)
        return found

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._folders[folder].names() if name[0] != ".")

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            folder, name = self._place(key)
            with suppress(FileNotFoundError):
                folder.remove(name)

    def _place(self, key: str) -> tuple[RealDirectory, str]:
        folder, _, name = key.partition("/")
        return self._folders[folder], name

    def close(self) -> None:
        for folder in self._folders.values():
            folder.close()
