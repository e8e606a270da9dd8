"""What a codec is, and how one is called: a value that it refuses becomes a BadBody.

A message says in a header by which version of its codec it was made. One of the first version says
nothing, so that it may be a body alone, which is the shortest record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from fmq.basics.message import Message
from fmq.errors import BadBody, BadOption

T = TypeVar("T")
VERSION_HEADER = "fmq-version"
"""The header with the version of a body, if that is not 1."""
VERSION_MAX = 1 << 31
NAME_BYTES_MAX = 255


class Codec(Protocol[T]):
    """Makes bodies of values, and values of bodies.

    It may also have a `version`, which is 1 otherwise; `old`, a dict that leads from an earlier
    version to a function that decodes its bodies; and `schema`, the JSON schema of its values.
    """

    @property
    def name(self) -> str:
        """How its bodies are written, such as "json". All programs of a topic must agree on it."""

    def encode(self, value: T, /) -> bytes:
        """Return the body. Raises any Exception for a value that the topic must not have."""
        ...

    def decode(self, body: bytes, /) -> T:
        """Return the value. Raises any Exception for a body that is none."""
        ...


class FieldRefused(ValueError):
    """A codec of fmq has met a value that is wrong in one field."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def version_of(codec: Codec[Any]) -> int:
    """Return the version of the bodies that `codec` makes."""
    return getattr(codec, "version", 1)


def check_codec(codec: Any) -> None:
    """Raise TypeError unless `codec` has what a codec needs."""
    name, version = getattr(codec, "name", None), getattr(codec, "version", 1)
    schema, old = getattr(codec, "schema", None), getattr(codec, "old", {})
    what = ""
    if not all(callable(getattr(codec, call, None)) for call in ("encode", "decode")):
        what = "has the calls encode(value) and decode(body)"
    elif type(name) is not str or not 0 < len(name.encode(errors="replace")) <= NAME_BYTES_MAX:
        what = f"has a name of 1 to {NAME_BYTES_MAX} bytes, as in name = 'json'"
    elif type(version) is not int or not 1 <= version <= VERSION_MAX:
        what = f"has a version from 1 to {VERSION_MAX:,}"
    elif schema is not None and not isinstance(schema, Mapping):
        what = "has a JSON schema as its schema, which is a dict"
    elif not isinstance(old, Mapping) or not all(
        type(each) is int and each < version and callable(decoder) for each, decoder in old.items()
    ):
        what = "has as `old` a dict from earlier versions to functions that decode their bodies"
    if what:
        raise TypeError(
            f"codec={codec!r:.80}: a codec {what}; or take one of fmq.codecs. Nothing was changed."
        )


def encoded(topic: str, codec: Codec[T], value: T) -> bytes:
    """Return the body for `value`. Raises BadBody."""
    try:
        body: Any = codec.encode(value)
    except Exception as error:
        raise BadBody(
            f"topic {topic!r}: {_named(codec)} refuses {_field(error)}a value of "
            f"{type(value).__name__}: {error}. Nothing was written.",
            *(topic, codec.name, getattr(error, "field", None)),
        ) from error
    if type(body) is not bytes:
        raise TypeError(
            f"topic {topic!r}: {_named(codec)} has made {type(body).__name__} of a value, and a "
            "body is bytes. Nothing was written."
        )
    return body


def with_version(codec: Codec[Any], headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the headers of a message that `codec` makes, which has `headers` of its own."""
    version = version_of(codec)
    return headers if version == 1 else {**(headers or {}), VERSION_HEADER: str(version)}


def decoded(codec: Codec[T], message: Message) -> T:
    """Return the value of a message that was read. Raises BadBody."""
    headers = message.headers or {}
    said = headers.get(VERSION_HEADER, "1")
    newest = version_of(codec)
    try:
        if message.erased:
            raise ValueError("the message was erased")
        version = int(said)
        if version > newest:
            raise ValueError(f"it has the version {version}, and this codec knows up to {newest}")
        decode: Callable[[bytes], T] = getattr(codec, "old", {}).get(version, codec.decode)
        return decode(message.body)
    except Exception as error:
        topic, place = message.topic or "", (message.queue, message.offset)
        raise BadBody(
            f"{topic}/{message.queue} offset {message.offset}: {_named(codec)} cannot decode "
            f"{_field(error)}the body: {error}. The message is as it was sent.",
            *(topic, codec.name, getattr(error, "field", None), place),
        ) from error


def value_of(codecs: Mapping[str, Codec[Any]], message: Message) -> Any:
    """Return the value of a message by the codec of its topic. Raises BadBody or BadOption."""
    codec = codecs.get(message.topic or "")
    if codec is None:
        raise BadOption(
            f"the topic {message.topic!r} has no codec in this engine object, so a message has a "
            f"body and no value. Nothing was changed; engine.topic({message.topic!r}, codec=...) "
            "gives it one."
        )
    return decoded(codec, message)


def _named(codec: Codec[Any]) -> str:
    return f"the codec {codec.name!r} (version {version_of(codec)})"


def _field(error: Exception) -> str:
    field = getattr(error, "field", None)
    return f"the field {field!r} of " if field else ""
