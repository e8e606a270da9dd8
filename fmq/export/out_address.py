"""What a destination of an export names: a directory, or a place in an object store."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from urllib.parse import unquote, urlsplit

from fmq.arguments.path import ADDRESS, check_local
from fmq.errors import BadName, ExtraMissing
from fmq.export.destination import Destination, opened
from fmq.export.shape import Shape

SCHEMES = ("s3://", "gs://", "az://")
FILE = "file:///"


def checked_out(text: str) -> str:
    """Return `text` as the path or the address that it is. Raises BadName for other addresses."""
    if text.startswith(FILE):
        return unquote(urlsplit(text).path)
    if text.startswith(SCHEMES):
        return text.rstrip("/")
    if ADDRESS.match(text):
        raise BadName(
            f"{text!r}: an address that no export can be written to. Nothing was written or made. "
            f"It may be a directory, {', '.join(SCHEMES)} or file:///, each with two slashes and "
            f"more; a folder that is called so is ./{text}"
        )
    return check_local(text)


def destination_at(out: str, shape: Shape) -> AbstractContextManager[Destination]:
    """Return the destination at what `checked_out` has returned."""
    if not out.startswith(SCHEMES):
        return opened(os.path.abspath(out), shape)
    try:
        from fmq.export.bucket_destination import opened_in_bucket
    except ImportError as error:
        raise ExtraMissing(f"an export to {out}", "obstore", "buckets") from error
    return opened_in_bucket(out, shape)
