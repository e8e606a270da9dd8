"""Errors of libraries that read and write tables, as ones that say what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fmq
from fmq.cli.output import Row
from fmq.errors import StorageError

EXTRAS = {"delta": "delta", "iceberg": "iceberg"}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def lacks(verb: str, error: ImportError, to: str | None) -> fmq.ExtraMissing:
    """Return the error that a package is missing for `verb` and tables of the format `to`."""
    what = error.name or f"a package that can be loaded ({error})"
    return fmq.ExtraMissing(verb, what, EXTRAS.get(str(to), "arrow"))


@contextmanager
def failures_told(
    url: str, show: Callable[[Row], None], kept: str
) -> Iterator[Callable[[Row], None]]:
    """Yield `show`. Raise StorageError for what fails otherwise: libraries of tables raise errors
    of many kinds, and some of them are OSErrors, as is an output that cannot be written.
    """
    unshown: list[OSError] = []

    def told(row: Row) -> None:
        try:
            show(row)
        except OSError as error:
            unshown.append(error)
            raise

    try:
        yield told
    except (fmq.FmqError, AssertionError):
        raise
    except Exception as error:
        if error in unshown:
            raise
        text = " ".join(COLOURS.sub("", str(error)).split()).rstrip(".")
        raise StorageError(
            f"{url}: {type(error).__name__}: {text}. {kept} Put that right, and run it again."
        ) from error
