"""Whether a program's codec fits the one that is stored with a topic.

The version decides. Two codecs of one version have the same name and the same fields. A higher
version takes the place of the stored one, whatever its name: its bodies say their version. A lower
one is that of a program that was not changed yet, and changes nothing.
"""

from __future__ import annotations

from typing import Any

from fmq.basics.results import TopicCodec
from fmq.codecs.codec import NAME_BYTES_MAX, VERSION_MAX, Codec, version_of
from fmq.codecs.json_fields import fields_in
from fmq.errors import BadOption, CodecDiffers

FIELDS_MAX = 1000
FIELDS_BYTES_MAX = 32 * 1024


def described(codec: Codec[Any]) -> TopicCodec:
    """Return what is stored of `codec`. Of a type with very many fields, none are."""
    fields = fields_in(getattr(codec, "schema", None))
    if fields is not None and not _is_small(fields):
        fields = None
    return TopicCodec(codec.name, version_of(codec), fields)


def check_stored(said: TopicCodec) -> TopicCodec:
    """Return what a program says of its codec, or raise TypeError or BadOption: a client may say
    anything.
    """
    name, version, fields = said.name, said.version, said.fields
    if type(name) is not str or (fields is not None and type(fields) is not dict):
        raise TypeError(f"codec={said!r:.80}: has a name, which is a text. Nothing was changed.")
    if (
        not 0 < len(name.encode(errors="replace")) <= NAME_BYTES_MAX
        or type(version) is not int
        or not 1 <= version <= VERSION_MAX
        or (fields is not None and not _is_small(fields))
    ):
        raise BadOption(f"codec={said!r:.80}: cannot be stored. Nothing was changed.")
    return said


def must_store(topic: str, wanted: TopicCodec, stored: TopicCodec | None) -> bool:
    """Return whether `wanted` takes the place of what is stored for `topic`. Raises CodecDiffers if
    both cannot be.
    """
    if stored is None or wanted.version > stored.version:
        return True
    if wanted.version < stored.version:
        return False
    if wanted.name != stored.name:
        raise CodecDiffers(topic, said_of(wanted), said_of(stored))
    if stored.fields is None or wanted.fields is None:
        return wanted.fields is not None
    for name in sorted(wanted.fields.keys() | stored.fields.keys()):
        brings, has = wanted.fields.get(name), stored.fields.get(name)
        if brings != has:
            what = (
                f"{said_of(each)}, whose field {name!r} is {kind or 'not there'}"
                for each, kind in ((wanted, brings), (stored, has))
            )
            raise CodecDiffers(topic, *what)
    return False


def said_of(codec: TopicCodec) -> str:
    """Return `codec` as an error names it."""
    return f"the codec {codec.name!r} of version {codec.version}"


def _is_small(fields: dict[str, str]) -> bool:
    texts = [*fields, *fields.values()]
    return (
        len(fields) <= FIELDS_MAX
        and all(type(each) is str for each in texts)
        and sum(map(len, texts)) <= FIELDS_BYTES_MAX
    )
