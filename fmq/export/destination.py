"""The directory that is exported to. A lock keeps other exports out. Files are made in chunks.
What a chunk needs of any destination is `Destination`; a bucket is another one.

The files of a chunk are made in `_fmq/staging`. Once all of them are durable there, it is written
down where each belongs, and only then they are moved. So whatever is interrupted, the next run
either finds that a chunk was made and moves what is left of it, or makes it anew.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Protocol

from fmq.errors import Locked
from fmq.export.errors import ExportFailed, NotAnExport
from fmq.export.layout import FolderLayout
from fmq.export.manifest import FOLDER, Manifest, Publishing, load, save, sync_folder
from fmq.export.plan import Chunk
from fmq.export.shape import Shape

STAGING = f"{FOLDER}/staging"
LOCK = f"{FOLDER}/lock"
PART = "part"


class Destination(Protocol):
    """Where the files of an export go. Only this run adds to it."""

    out: str
    state: Manifest

    @property
    def chunk_bytes_max(self) -> int:
        """Return how many bytes of journals one chunk may have, or a little more."""

    @property
    def staging(self) -> str:
        """Return the folder in which files are made, below folders called `part=...`."""

    def clear_staging(self) -> None: ...

    def note(self, state: Manifest) -> None:
        """Save `state` as the new manifest."""

    def publish(self, chunk: Chunk, layout: FolderLayout) -> tuple[int, int]:
        """Move the staged files to their places. Return the number of files and of bytes."""

    def finish(self) -> None:
        """Finish the moves of an earlier run, if that run was interrupted in them."""


class FolderDestination:
    """The directory of an export, locked by this process."""

    chunk_bytes_max = sys.maxsize

    def __init__(self, out: str, state: Manifest) -> None:
        self.out = out
        self.state = state

    @property
    def staging(self) -> str:
        """Return the folder in which files are made, below folders called `part=...`."""
        return os.path.join(self.out, STAGING)

    def clear_staging(self) -> None:
        # A Spark task that was given up may still write files. So the directory is first renamed to
        # a name that the task does not know: no one reads what it writes there.
        aside = f"{self.staging}.gone"
        with suppress(FileNotFoundError):
            # An earlier run may have been killed while it removed this folder.
            shutil.rmtree(aside)
        with suppress(FileNotFoundError):
            os.replace(self.staging, aside)
            shutil.rmtree(aside)

    def note(self, state: Manifest) -> None:
        save(self.out, state)
        self.state = state

    def publish(self, chunk: Chunk, layout: FolderLayout) -> tuple[int, int]:
        made = staged_files(self.staging, layout, self.state.chunks, self.out)
        moves = {f"{STAGING}/{name}": target for name, target in made}
        size = sum(os.path.getsize(self._path(source)) for source in moves)
        for source in moves:
            _sync_file(self._path(source))
        for folder in sorted({os.path.dirname(source) for source in moves}):
            sync_folder(self._path(folder))
        if moves:
            sync_folder(self.staging)
            sync_folder(os.path.dirname(self.staging))
        self.note(replace(self.state, publishing=Publishing(moves, chunk.reached)))
        self.finish()
        return len(moves), size

    def finish(self) -> None:
        if self.state.publishing is None:
            return
        moves = self.state.publishing.moves
        for source, target in moves.items():
            self._move(source, target)
        for folder in sorted({os.path.dirname(target) for target in moves.values()}):
            for path in (folder, os.path.dirname(folder)):
                sync_folder(self._path(path))
        if moves:
            sync_folder(self.out)
        self.note(self.state.published())
        self.clear_staging()

    def _move(self, source: str, target: str) -> None:
        os.makedirs(self._path(os.path.dirname(target)), exist_ok=True)
        try:
            os.replace(self._path(source), self._path(target))
        except FileNotFoundError:
            if not os.path.exists(self._path(target)):
                raise taken_away(self._path(source), target) from None

    def _path(self, name: str) -> str:
        return os.path.join(self.out, name)


def staged_files(
    staging: str, layout: FolderLayout, chunk: int, out: str
) -> Iterator[tuple[str, str]]:
    """Yield the name in `staging` and the final name of each file. Final names begin with the
    number of the chunk, so they sort in order.
    """
    with suppress(FileNotFoundError):
        for folder in sorted(os.listdir(staging)):
            if not os.path.isdir(os.path.join(staging, folder)):
                continue
            name, _, part = folder.partition("=")
            if name != PART:
                raise ExportFailed(
                    f"the format keeps a folder {folder!r} of its own, which cannot be moved. "
                    f"Nothing new is in {out}. Write it with Spark itself: "
                    'spark.read.format("fmq").load(DIR).write.'
                )
            home, names = layout.folder_of(part), os.listdir(os.path.join(staging, folder))
            files = sorted(name for name in names if name[0] not in "._")
            for number, file in enumerate(files):
                yield f"{folder}/{file}", f"{home}/{chunk:08d}-{number:05d}{_ending(file)}"


def taken_away(source: str, target: str) -> ExportFailed:
    return ExportFailed(
        f"{source}: somebody has taken it away, so that {target} is missing here. Export to a new "
        "directory."
    )


def other_files(out: str, name: str) -> NotAnExport:
    return NotAnExport(
        f"{out}: holds {name!r}, which no export made. Nothing was written; name a new or empty "
        "directory, or one that an export has begun."
    )


@contextmanager
def opened(out: str, shape: Shape) -> Iterator[FolderDestination]:
    """Return the directory `out`, begun if it is new or empty. Raises Locked or
    NotAnExport.
    """
    try:
        names = set(os.listdir(out))
    except FileNotFoundError:
        names = set()
    except NotADirectoryError:
        raise NotAnExport(
            f"{out}: not a directory. Nothing was written; name a new or empty one."
        ) from None
    if names - {FOLDER} and load(out) is None:
        raise other_files(out, min(names - {FOLDER}))
    os.makedirs(os.path.join(out, FOLDER), exist_ok=True)
    lock = _locked(out)
    try:
        state = load(out)
        if state is None:
            state = Manifest(shape)
            save(out, state)
            for folder in (out, os.path.dirname(os.path.abspath(out))):
                sync_folder(folder)
        yield FolderDestination(out, state)
    finally:
        os.close(lock)


def _locked(out: str) -> int:
    fd = os.open(os.path.join(out, LOCK), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise busy(out, "is writing here. Nothing was changed; wait for it.") from None
    return fd


def busy(out: str, what: str) -> Locked:
    """Return the error that another export does `what`."""
    locked = Locked(out, "another export")
    locked.args = (f"{out}: another export {what}",)
    return locked


def hidden(task: int) -> str:
    """Return the prefix for the names of files that one attempt of a Spark task makes."""
    return f".{uuid.uuid4().hex}-{task:05d}-"


def show(staging: str, file: str) -> None:
    """Rename a file of the attempt that counts, so that it lies visibly in the folder of its
    part.
    """
    folder, name = os.path.split(os.path.join(staging, file))
    os.replace(os.path.join(folder, name), os.path.join(folder, name.partition("-")[2]))


def _ending(file: str) -> str:
    """Return the ending of a file's name: `.snappy.parquet` of
    `part-00000-….c000.snappy.parquet`.
    """
    return re.sub(r"^[^.]*(\.c\d+)?", "", file)


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
