"""A path to a directory, as a caller gives it."""

from __future__ import annotations

import re
from typing import Protocol

from fmq.errors import BadName

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # one slash is enough: pathlib makes one of two
SECRET = re.compile(r"(?<=://)([^:/?#]*):[^/?#]*(?=@)|(?<=[?&])(?:ssl)?password=[^&]*&?")
MEMORY = ":memory:"


class PathLike(Protocol):
    """A path that is not a str, such as pathlib's."""

    def __fspath__(self) -> str: ...


def text_of(path: object) -> str:
    """Return `path` as a str. Raises TypeError for bytes and non-paths, BadName for bad text."""
    text = path if isinstance(path, str) else getattr(path, "__fspath__", lambda: None)()
    if not isinstance(text, str):
        raise TypeError(
            f"{path!r}: a path is a str or has a __fspath__ that gives one, as pathlib's have. "
            "Nothing was opened."
        )
    try:
        text.encode("utf-8", "surrogateescape")  # Python decodes names like this that are not UTF-8
    except UnicodeEncodeError:
        raise BadName(f"path {text!r}: not text that the machine can write") from None
    if "\0" in text:
        raise BadName(f"path {text!r}: no path has a zero byte")
    return text


def check_local(path: str) -> str:
    """Return `path`. Raises BadName for an address such as s3://bucket/shop, because no folder
    called "s3:" is meant, and for ":memory:", which means something to SQLite.
    """
    if path == MEMORY:
        raise BadName(
            f"path {path!r}: a journal in memory is of the engine alone that fmq.open made, and no "
            f"other finds it. Nothing was opened or made. A folder that is called so is ./{path}"
        )
    if ADDRESS.match(path):
        shown = without_secrets(path)
        raise BadName(
            f"path {shown!r}: an address, and no directory that the file system of this machine "
            "shows. Nothing was opened or made. Name the directory itself, or where it is mounted; "
            f"a folder that is called so is ./{shown}"
        )
    return path


def without_secrets(address: str) -> str:
    """Return `address` as it may be shown and stored."""
    return SECRET.sub(r"\1", address).rstrip("?&")
