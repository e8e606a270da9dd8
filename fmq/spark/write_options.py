"""The options of `df.write.format("fmq")` and of `df.writeStream.format("fmq")`, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fmq.errors import BadOption
from fmq.intake import PART_BYTES

KNOWN = {
    "path": "the directory, which a process on the same machine serves",
    "address": "of the process that serves it: tcp://HOST:PORT or unix:/run/shop.sock",
    "tokenFile": "the file with the token that the server asks for",
    "tlsCa": "the certificates of authorities to trust, if the server speaks TLS",
    "topic": "of all rows, if it is no column",
    "mark": "the name under which fmq notes what was written",
    "markValue": "batch only: the number of this job; the next job has a larger one",
    "partBytes": "so many bytes a task prepares at once, about",
    "retryFor": "so many seconds a call waits for an engine that does not answer",
}
OF_SPARK = frozenset(["checkpointlocation", "queryname"])
"""What Spark itself adds to the options of a stream."""
RETRY_SECONDS = 60.0


class WriteOptions(NamedTuple):
    """The checked options of one write."""

    where: str
    is_address: bool
    token_file: str | None = None
    tls_ca: str | None = None
    topic: str | None = None
    mark: str | None = None
    value: int = 0
    part_bytes: int = PART_BYTES
    retry_for: float = RETRY_SECONDS


def parse_write(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the options that Spark passes, whose names may be in any case. Raises BadOption."""
    by_name = {name.lower(): name for name in KNOWN}
    values: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in OF_SPARK:
            continue
        if name.lower() not in by_name:
            raise BadOption(
                f"there is no option {name!r} of a write. Nothing was written. The options are "
                f"{', '.join(KNOWN)}."
            )
        values[by_name[name.lower()]] = value
    if bool(values.get("path")) == bool(values.get("address")):
        raise BadOption(
            "a write needs the option 'path' or else 'address', which says where the journal is. "
            "Nothing was written."
        )
    if streaming and "markValue" in values:
        raise BadOption(
            "a stream has no markValue: its mark moves to the number of each batch. Nothing was "
            "written."
        )
    if not streaming and ("mark" in values) != ("markValue" in values):
        raise BadOption(
            "mark and markValue of a batch belong together: a name, and the number of this job. "
            "Nothing was written."
        )
    return WriteOptions(
        values.get("address") or values["path"],
        "address" in values,
        values.get("tokenFile"),
        values.get("tlsCa"),
        values.get("topic"),
        values.get("mark"),
        _number(values, "markValue", 0, 0),
        _number(values, "partBytes", PART_BYTES, 1),
        float(_number(values, "retryFor", int(RETRY_SECONDS), 0)),
    )


def _number(values: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = values.get(name, str(default)).strip()
    if not text.isdecimal() or not least <= int(text) < 1 << 63:
        raise BadOption(
            f"{name}={text!r}: must be a whole number from {least} on. Nothing was written."
        )
    return int(text)
