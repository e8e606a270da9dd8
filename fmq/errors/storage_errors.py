"""Errors of a directory, its files and the machine under them, each with what to do next."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fmq.errors.base import FmqError


class StorageError(FmqError):
    """The cause is the directory, one of its files, or the machine."""


class NotAStore(StorageError):
    """The path has files that fmq did not make, or no journal where one is needed."""


def no_directory(path: str, error: OSError) -> NotAStore:
    """Return the error for a `path` where the machine finds no directory."""
    advice = "Look whether the path is right."
    if isinstance(error, NotADirectoryError):
        advice = "Name a directory of fmq's, or a new one: it keeps its files in one of their own."
    return NotAStore(f"{path}: {error.strerror}. Nothing was changed. {advice}")


def no_parent(path: str) -> NotAStore:
    """Return the error for a `path` whose parent directory does not exist."""
    return NotAStore(
        f"{path}: its parent directory does not exist, or is no directory. Nothing was changed. "
        "Look whether the path is right, or make the parent first: only the last part is made."
    )


class RemoteFileSystem(StorageError):
    """The directory lies on a file system of another machine, so its locks and syncs cannot be
    relied on.
    """

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(
            f"{path}: lies on {kind}, which another machine serves, so nothing here can promise "
            "that a sync is durable or that one engine writes at a time. Nothing was written. "
            "Name a directory on a local disk, look with fmq.open(path, read_only=True), or take "
            "the risk with Options(allow_remote=True)."
        )
        self.path = path
        self.kind = kind


class UnsupportedSystem(StorageError):
    """The operating system is neither Linux nor macOS, so fmq cannot write a directory, or not even
    read one.
    """

    def __init__(self, system: str, *, can_read: bool = False) -> None:
        here = (
            'Here fmq is a client: fmq.connect("tcp://host:port") works. Run `fmq serve` on Linux.'
        )
        if can_read:
            here = "Here journals can be read, with fmq.open(path, read_only=True) or fmq.check."
        super().__init__(
            f"fmq writes on Linux and macOS only, and this is {system}. Nothing was changed. {here}"
        )
        self.system = system


DROPPED = " One that was dropped without close() has it until its process ends."


class Locked(StorageError):
    """Another engine, here or in another process, has this directory open."""

    def __init__(
        self,
        path: str,
        holder: str,
        *,
        here: bool = False,
        closed: bool = False,
        served: bool | None = None,
        ends_itself: bool = False,
    ) -> None:
        """`here`: this process itself has the directory open. `closed`: an engine had it open while
        it was read, and has closed it. `served=False`: a client wanted to connect. `ends_itself`:
        the process was asked to end, but it runs a program that only ends by itself.
        """
        who = f"this process ({holder})" if here else holder
        if closed:
            text = (
                f"{path}: {who} had it open for writing while it was read, so what was read proves "
                "nothing. Nothing was changed. Call again while no engine has it open, or for a "
                "copy."
            )
        elif ends_itself:
            text = (
                f"{path}: {who} has it open, and is a program of its own, which no other one may "
                "stop. Nothing was changed. End that program: fmq.stop() ends `fmq serve` and what "
                "fmq.connect() has started, and programs that serve with on_stop=."
            )
        elif served is False:
            text = (
                f"{path}: {who} has it open and lets no other process in. Nothing was changed. "
                "If it is about to serve, try again. If not, call engine.serve() there, or use "
                "fmq.connect there, too: then any number of processes can share the directory."
            )
        else:
            text = (
                f"{path}: already open for writing by {who}. One engine writes at a time, and "
                "nothing was changed. Use fmq.connect(path) in both processes to share it, close "
                "the other one (`fmq stop DIR` ends a process that only serves others), wait for "
                "it with fmq.open(path, timeout=10), or look with "
                f"fmq.open(path, read_only=True).{DROPPED if here else ''}"
            )
        super().__init__(text)
        self.path = path
        self.holder = holder


class Damaged(StorageError):
    """Bytes that had been durable are missing or wrong; nothing was changed."""

    of_record = False
    """Whether the bytes of one record are wrong, and not those of a whole file."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(
            f"{file}, position {position}: {reason}. Nothing was changed. "
            "`fmq verify DIR` lists everything that is wrong. Restore the file from a backup, or "
            "copy all that is sound to a new directory: `fmq salvage DIR NEW`. Until then "
            "fmq.open(path, read_only=True) reads as far as that goes."
        )
        self.file = file
        self.position = position
        self.reason = reason

    def advise(self, advice: str) -> None:
        """Add to the text what the caller can do. Only the first call does so."""
        if len(self.args) == 1 and not str(self).endswith(advice):
            self.args = (f"{self} {advice}",)


class CheckpointLost(StorageError):
    """A checkpoint that may have proven more of the journal durable cannot be read.

    No engine has the directory open. So a reader cannot know how much it may show.
    """

    def __init__(self, path: str, slots: dict[str, str], proven_to: int, sound_to: int) -> None:
        """`slots` maps the names of the checkpoints to what is wrong with each."""
        self.path = path
        self.slots = tuple(slots)
        self.position = proven_to
        self.sound_to = sound_to
        self.reason = (
            "; ".join(f"{path}/{name}: {trouble}" for name, trouble in slots.items())
            + f". So nothing proves that the sound appends from position {proven_to} up to "
            f"{sound_to} were durable"
        )
        super().__init__(
            f"{self.reason}, and no engine that would know has the directory open. Nothing was "
            "changed, and no reader leaves them out in silence. Opening it for writing once "
            "repairs this: fmq.open(path).close(). If a slot may not be read, allow it instead."
        )


class NewerFormat(StorageError):
    """The bytes are sound and were written by a newer fmq; nothing was changed."""

    def __init__(self, file: str, position: int, what: str) -> None:
        super().__init__(
            f"{file}, position {position}: {what} is newer than this fmq understands. "
            "Nothing was changed. Open the directory with the fmq that wrote it, or a later one."
        )
        self.file = file
        self.position = position
        self.what = what
        self.reason = f"{what} is newer than this fmq understands"


BROKEN_DISK = (
    "The disk under it fails: the system's log says more. Copy what can be read to another disk, "
    "and restore the rest from a backup."
)
ONLY_READ = "It may only be read there: look with fmq.open(path, read_only=True)."
NOT_YOURS = (
    "If it is not yours to open, run this as the user who owns it, or connect to what that user "
    "serves, over TCP, with a token. If it is yours, put its mode right."
)
TOO_MANY_FILES = "Close some files, or raise the limit (`ulimit -n`), and call again."
NO_BUCKET = (
    "If it is the bucket, the credentials, the region or the endpoint, put that right: they are "
    "those of the environment (AWS_...). Then run it again: it goes on where it was."
)
ADVICE_BY_ERRNO = {
    errno.EPROTO: NO_BUCKET,
    errno.EIO: BROKEN_DISK,
    errno.EUCLEAN: BROKEN_DISK,
    errno.EROFS: ONLY_READ,
    errno.EACCES: NOT_YOURS,
    errno.EMFILE: TOO_MANY_FILES,
    errno.ENFILE: TOO_MANY_FILES,
}
# What to do next for a new journal, which has nothing yet to copy or to read.
ADVICE_ON_NEW = {
    BROKEN_DISK: "The disk under it fails: the system's log says more. Take another disk.",
    ONLY_READ: "It may only be read there: take another place.",
}


class Unreadable(StorageError, OSError):
    """The machine refused to open or read a file, or to make a new journal.

    Nothing was changed, except that a new journal may be half made.
    """

    def __init__(self, path: str, error: OSError, *, begun: bool = False) -> None:
        """`begun`: the refusal came while a new journal was being made in `path`."""
        file = error.filename or path
        advice = ADVICE_BY_ERRNO.get(
            error.errno or 0,
            "If it is no file, or not yours to open, put that right and open the directory again.",
        )
        left = f"Nothing was changed in {path}."
        if begun:
            left = (
                f"{path} was to get a new journal and may hold a half-made one, which the next "
                "opening makes anew; no message was in it."
            )
            advice = ADVICE_ON_NEW.get(advice, advice)
        super().__init__(f"{file}: {error.strerror or error}. {left} {advice}")
        self.file = str(file)
        self.errno = error.errno

    def __reduce__(self) -> tuple[Any, ...]:
        again, args, state = super().__reduce__()
        # OSError keeps `errno` outside of the state.
        return again, args, {**state, "errno": self.errno}


@contextmanager
def unreadable_within(path: str) -> Iterator[None]:
    """Turn an OSError of the block into Unreadable, with the error's own file or else `path`."""
    try:
        yield
    except Unreadable:
        raise
    except OSError as error:
        raise Unreadable(path, error) from error


class BackupRefused(StorageError):
    """A backup cannot be made in this directory, or this one cannot be restored from it."""


class NotServed(StorageError):
    """No engine process serves the directory, or none could be started."""


class OutcomeUnknown(StorageError):
    """The engine process ended before it answered, and no later one answered in time."""


class NotAllowed(StorageError):
    """The engine process may not serve this client: another user, a wrong token, or no TLS."""


class ProtocolError(StorageError):
    """An engine process and its client do not understand each other: they speak different versions
    of the protocol, or one has sent bytes that break its rules.
    """


class StorageFull(StorageError):
    """The disk has no room. The call was refused before any byte was written."""


class IllegalRecord(StorageError):
    """fmq built a record that an opening would refuse. The call was refused before any byte was
    written.
    """

    def __init__(self, kind: int, reason: str) -> None:
        super().__init__(
            f"a record of kind {kind} was refused, because no opening would take it: {reason}. "
            "Nothing was written and nothing was changed; the engine goes on. This is a defect of "
            "fmq: please report it with this text."
        )
        self.kind = int(kind)
        self.reason = reason


class EngineFailed(StorageError):
    """A write or sync failed, so the engine takes no calls until the directory is opened again.

    If this call was waiting for that write, all of it happened or nothing. Opening the directory
    again shows which.
    """


class TakenOver(EngineFailed):
    """Another machine has taken over the home of this engine, so this engine acknowledges nothing
    more. What the call wanted to write was not sent.
    """

    def __init__(self, home: str, owner: str, address: str | None = None) -> None:
        """`owner` says who has the home now, as far as this engine could see, and `address` where
        it serves, if it does.
        """
        super().__init__(
            f"{home}: {owner} has taken over. This call was not sent, and what had been "
            "acknowledged is safe in the home. Repeat it there; or close this engine and open the "
            "directory again with home=, which takes the home back."
        )
        self.home = home
        self.owner = owner
        self.address = address


class HomeBehind(StorageError):
    """The home lacks what it had acknowledged to this directory. Nothing was changed."""

    def __init__(self, home: str, path: str, what: str) -> None:
        super().__init__(
            f"{home}: {what}, so the home has lost what it had acknowledged, or it is another one. "
            f"Nothing was changed. {path} still has those messages: copy it, and look with "
            "fmq.open(path, read_only=True). Then give the home back what it lost (fmq take-over "
            "--from-cache), or open the home with an empty directory, which goes on without them."
        )
        self.home = home


class HomeRefused(StorageError):
    """The home, or this directory as its cache, cannot be used."""
