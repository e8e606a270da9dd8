"""The codec of a topic, as the journal has it.

In a CODEC, and in what a checkpoint or STATE carries, it is JSON.
"""

from __future__ import annotations

import json
from typing import Any

from fmq.basics.results import TopicCodec

NAME_BYTES_MAX = 255
VERSION_MAX = 1 << 31
FIELDS_MAX = 1000
TEXT_BYTES_MAX = 64 * 1024


def codec_text(codec: TopicCodec) -> str:
    """Return what a CODEC has as its text, as JSON."""
    said = {"name": codec.name, "version": codec.version, "fields": codec.fields}
    return json.dumps(said, separators=(",", ":"))


def codec_in(text: Any) -> TopicCodec:
    """Return the codec in the text of a CODEC. Raises ValueError if it is none."""
    try:
        said = json.loads(text)
        name, version, fields = said["name"], said["version"], said["fields"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"a codec that cannot be read: {error!r:.80}") from None
    if not (
        len(text) <= TEXT_BYTES_MAX
        and type(name) is str
        and 0 < len(name) <= NAME_BYTES_MAX
        and type(version) is int
        and 1 <= version <= VERSION_MAX
        and (fields is None or _are_fields(fields))
    ):
        raise ValueError(f"a codec is {text:.80}")
    return TopicCodec(name, version, fields)


def _are_fields(fields: Any) -> bool:
    return (
        type(fields) is dict
        and len(fields) <= FIELDS_MAX
        and all(type(each) is str for each in fields.values())
    )
