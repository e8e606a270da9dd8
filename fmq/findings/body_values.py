"""What bodies mean, as the codec says that is stored with their topic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import fmq
from fmq.codecs.body_fields import NOTHING, as_text, is_json, value_in


def codec_of(engine: fmq.AnyEngine, topic: str) -> fmq.TopicCodec | None:
    """Return the stored codec of `topic`; None if there is none, or no such topic any more."""
    with suppress(fmq.UnknownTopic):
        return engine.topic(topic).codec()
    return None


def fields_of(body: bytes, codec: fmq.TopicCodec | None) -> Mapping[str, str | None] | None:
    """Return the fields of a body as texts. None if `codec` says that it has none, or it is not
    what the codec says.
    """
    value = value_in(body) if is_json(codec) else NOTHING
    if not isinstance(value, dict):
        return None
    return {name: as_text(each) for name, each in value.items()}
