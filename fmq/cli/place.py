"""Which engine a verb asks: a client of the process that serves the directory, one that reads the
files, or its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches

import fmq
from fmq.arguments.path import ADDRESS, without_secrets
from fmq.errors import BadName, BadOption
from fmq.findings.text import plain
from fmq.findings.visit import connected, visit
from fmq.recovery.layout import QUARANTINE


def served(path: str) -> fmq.RemoteEngine | None:
    """Return a client of the process that serves the directory. Return None if no process does, or
    if it is a home: its owner would ask for a token.
    """
    if ADDRESS.match(path):
        return None
    try:
        return connected(path)
    except (fmq.errors.NotServed, fmq.errors.NotAllowed, fmq.errors.Locked):
        return None


@contextmanager
def asked(path: str, engine: fmq.ReadOnlyEngine) -> Iterator[fmq.ReadOnlyEngine | fmq.RemoteEngine]:
    """Yield a client of the process that serves the directory, because it has the newest state. If
    none serves, yield `engine`.
    """
    client = served(path)
    if client is None:
        yield engine
        return
    with client:
        yield client


def reading(path: str, *, follows: bool = False) -> fmq.ReadOnlyEngine | fmq.RemoteEngine:
    """Return an engine to ask: a client of the process that serves the directory, because it has
    the newest state. If none serves, return an engine that reads the files, beside any process that
    writes them. A home is shown as it is now, so it is refused if the verb `follows` what comes.
    """
    if follows and ADDRESS.match(path):
        raise BadOption(
            f"{without_secrets(path)}: a home is shown as it is at one moment, so nothing that "
            "comes would be seen. Nothing was changed. Ask for what is there (such as fmq tail "
            "--no-follow), or name the directory of the owner: `fmq home` says where it is."
        )
    with visit(path):
        return served(path) or fmq.open(path, read_only=True)


def writing(
    path: str, *, create: bool | None = None, resolve: Mapping[str, str] | None = None
) -> fmq.Engine | fmq.RemoteEngine:
    """Return an engine that writes: a client of the process that serves the directory, or else our
    own engine; it asks the databases of `resolve`. Raises NotAStore if no journal was begun there,
    unless it may `create` one: fmq.open would make the directory of a mistyped name. None stands
    for a verb without `--create`.
    """
    check_no_address(path)
    if not create:
        try:
            with visit(path):
                pass
        except fmq.NotAStore as error:
            if create is None or (os.path.exists(path) and os.listdir(path)):
                raise
            raise fmq.NotAStore(f"{error} Or add --create, which makes it.") from None
    with suppress(fmq.errors.NotServed):
        return connected(path, resolve=resolve)
    return fmq.open(path, background=False, resolve=resolve)


def check_no_address(path: str) -> None:
    """Raise BadName for an address, in a verb that changes something."""
    if ADDRESS.match(path):
        raise BadName(
            f"path {without_secrets(path)!r}: an address, and what is there is only read here: a "
            "home is changed by its owner. Nothing was changed. Name the directory of the owner "
            "(`fmq home` says which process that is), or connect a program by fmq.connect."
        )


def groups_near(path: str, name: str) -> str:
    """Say which group was meant by a `name` that no group has, or how to see all."""
    with suppress(fmq.FmqError), reading(path) as engine:
        near = get_close_matches(name, sorted({info.group for info in engine.groups()}), 1)
        if near:
            return f"Did you mean {plain(near[0])}?"
    return f"`fmq group list {path}` shows them."


def sizes_of(path: str) -> dict[str, int]:
    """Return the bytes on disk of each kind of file; holes do not count."""
    sizes = {"segments": 0, "indexes": 0, "spares": 0, QUARANTINE: 0, "other": 0}
    sorts = {
        ".seg": "segments",
        ".idx": "indexes",
        ".keys": "indexes",
        ".part": "indexes",
        ".spare": "spares",
    }
    for folder, _, names in os.walk(path):
        for name in names:
            sort = sorts.get(os.path.splitext(name)[1], "other")
            if os.path.basename(folder) == QUARANTINE:
                sort = QUARANTINE
            # Retention or recovery may remove a file meanwhile.
            with suppress(FileNotFoundError):
                sizes[sort] += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return sizes
