"""What a body holds, read without the type that a program gives its codec.

All codecs of fmq write JSON. So a topic that says so in its stored codec can be shown by fields, by
a program that knows nothing of the type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from fmq.basics.results import TopicCodec
from fmq.codecs.json_codec import JSON

NOTHING = object()
"""What `value_in` returns for a body that is no JSON."""


def value_in(body: bytes) -> Any:
    """Return the JSON value that `body` is, or NOTHING."""
    try:
        return json.loads(body, parse_constant=_refused)
    except (ValueError, RecursionError):
        return NOTHING


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def is_json(codec: TopicCodec | None) -> bool:
    """Return whether the bodies of a topic with this codec are JSON."""
    return codec is not None and codec.name == JSON


def as_text(value: Any) -> str | None:
    """Return a text as it is, null as None, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def kinds_of(codecs: Sequence[TopicCodec]) -> Mapping[str, frozenset[str]]:
    """Return the fields that the codecs know, each with the kinds of JSON that it has in any of
    them, null left out.
    """
    found: dict[str, frozenset[str]] = {}
    for name, kinds in _each(codecs):
        found[name] = found.get(name, frozenset()) | kinds
    return found


def _each(codecs: Sequence[TopicCodec]) -> Iterator[tuple[str, frozenset[str]]]:
    for codec in codecs:
        if is_json(codec):
            for name, kinds in (codec.fields or {}).items():
                yield name, frozenset(kinds.split("|")) - {"null"}
