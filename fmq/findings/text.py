"""Values as people read them on a terminal: times, sizes, bytes, and untrusted text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

PREVIEW_BYTES = 60
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def plain(value: object) -> str:
    """Return any value as one line, without control characters that a terminal would obey."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return preview(bytes(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{plain(name)}={plain(item)}" for name, item in value.items())
    if not isinstance(value, str) and isinstance(value, Iterable):
        return ", ".join(map(plain, value))
    return printable(str(value))


def printable(text: str) -> str:
    """Return `text` as one line, with unprintable characters spelled out.

    Names and reasons come from anywhere. Not printable are control characters, marks that turn the
    direction of the text and separators of lines: a terminal obeys them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return `text` with unprintable characters spelled out and its line breaks kept."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    r"""Return equal JSON, with unprintable characters as \uXXXX."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def preview(body: bytes) -> str:
    """Return the beginning of a body as text; in hexadecimal if it is not text."""
    start = body[:PREVIEW_BYTES]
    more = f" … {size(len(body))}" if len(body) > PREVIEW_BYTES else ""
    try:
        # The cut may split a character: then leave its bytes out.
        text = start.decode("utf-8", "strict" if start == body else "ignore")
    except UnicodeDecodeError:
        return f"0x{start[: PREVIEW_BYTES // 2].hex()}{more}"
    return printable(text) + more


def laid_out(body: bytes) -> str:
    """Return a whole body: text as it is, JSON with a line for each field, other bytes as hex."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body.hex(" ", 4)
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def exact(number: int) -> str:
    """Return a number as people copy it: positions and offsets have no commas."""
    return str(number)


def moment(time: datetime) -> str:
    """Return a time to the millisecond in UTC, like all times in a journal."""
    return time.strftime("%Y-%m-%d %H:%M:%S.") + f"{time.microsecond // 1000:03d}"


def size(count: int) -> str:
    """Return a number of bytes, in the largest unit with at least one digit before the point."""
    if count < 1024:
        return f"{count} B"
    power = min(count.bit_length() - 1, 49) // 10
    return f"{count / 1024**power:.1f} {UNITS[power]}"


def duration(seconds: float) -> str:
    """Return a time in its largest unit, as in `4.5 h`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def brief(seconds: float) -> str:
    """Return a time that may be far below a second, as in `0.3 ms`."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else duration(seconds)


def counted(count: int, what: str) -> str:
    """Return a number with its noun: `1 message`, `2 messages`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def place(row: Mapping[str, Any], first: int, end: int) -> str:
    """Return the offsets from `first` up to, not including, `end`, as text."""
    return f"{printable(row['topic'])}/{row['queue']}/{span(first, end)}"


def span(first: int, end: int) -> str:
    """Return the offsets from `first` up to, not including, `end`, as text."""
    return f"{first}" if end - first == 1 else f"{first}–{end - 1}"
