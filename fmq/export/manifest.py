"""The manifest, `_fmq/export.json`: it says which positions are exported, beside the files.

It is replaced as a whole, and durable before anything follows from it. What readers of such
folders leave out begins with an underscore.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fmq.errors import NewerFormat
from fmq.export.errors import NotAnExport, OtherExport
from fmq.export.plan import Gap
from fmq.export.shape import Shape

FOLDER = "_fmq"
NAME = "export.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Publishing:
    """A chunk whose files are made, and are now being moved to their places."""

    moves: dict[str, str]
    reached: dict[str, int]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was exported, and with which arguments."""

    shape: Shape
    paths: dict[str, str] = field(default_factory=dict)
    """By store, the directory that it was last read from."""
    reached: dict[str, int] = field(default_factory=dict)
    """By store, the position up to which it is exported."""
    chunks: int = 0
    gaps: list[Gap] = field(default_factory=list)
    publishing: Publishing | None = None

    def published(self) -> Manifest:
        """Return the manifest to save after all files are in their places."""
        assert self.publishing is not None
        reached = self.reached | self.publishing.reached
        return replace(self, reached=reached, chunks=self.chunks + 1, publishing=None)


def load(out: str) -> Manifest | None:
    """Return the manifest at `out`, or None. Raises NotAnExport if the file is not a manifest."""
    path = os.path.join(out, FOLDER, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    return decoded(text, path)


def decoded(text: str | bytes, path: str) -> Manifest:
    """Return the manifest that `text` is. Raises NotAnExport if it is none."""
    try:
        return _decode(json.loads(text), path)
    except (ValueError, KeyError, TypeError) as error:
        raise NotAnExport(
            f"{path}: not what an export writes down ({error}). Nothing was written. Export to a "
            "new directory; the files that are here stay as they are."
        ) from None


def _decode(says: dict[str, Any], path: str) -> Manifest:
    if says["version"] > VERSION:
        raise NewerFormat(path, 0, f"version {says['version']} of exports")
    publishing = says["publishing"]
    return Manifest(
        Shape(**says["shape"]),
        says["paths"],
        says["reached"],
        says["chunks"],
        [Gap(*gap) for gap in says["gaps"]],
        None if publishing is None else Publishing(**publishing),
    )


def encoded(state: Manifest, **also: str) -> str:
    said = {"version": VERSION, **asdict(state), **also}
    return json.dumps(said, ensure_ascii=False, indent=1)


def save(out: str, state: Manifest) -> None:
    """Save `state` as the manifest; durable on return."""
    folder = os.path.join(out, FOLDER)
    new, path = os.path.join(folder, f"{NAME}.new"), os.path.join(folder, NAME)
    with open(new, "w", encoding="utf-8") as file:
        file.write(encoded(state))
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(folder)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_same(out: str, state: Manifest, shape: Shape, stores: dict[str, str]) -> None:
    """Raise OtherExport unless a run with `shape`, of `stores`, can continue the export at
    `out`.
    """
    was, now = asdict(state.shape), asdict(shape)
    for name, value in was.items():
        if now[name] != value:
            raise OtherExport(
                f"{out}: the export here was begun with {SAYS[name]} {_said(value)}, and this one "
                f"has {_said(now[name])}. Nothing was written. Go on as it was begun, or export to "
                "another directory."
            )
    if state.reached and not state.reached.keys() & stores.keys():
        known = ", ".join(sorted(set(state.paths.values())))
        raise OtherExport(
            f"{out}: the export here is that of {known}, and {', '.join(stores.values())} is not "
            "the same journal. Nothing was written. Export to another directory; several journals "
            "are exported together by naming all of them."
        )


def _said(value: object) -> str:
    return repr(value) if isinstance(value, str) else "yes" if value else "no"


SAYS = {
    "format": "the format",
    "view": "the view",
    "text": "bodies as text:",
    "fleet": "several directories:",
    "raw": "cells as they are:",
}
