"""Types that msgspec knows, as JSON: its Structs, dataclasses, TypedDicts and more."""

from __future__ import annotations

from typing import Any, TypeVar

from fmq.codecs.codec import FieldRefused
from fmq.codecs.json_codec import Decoders, JsonCodec
from fmq.errors import ExtraMissing

T = TypeVar("T")
PATH = " - at `$"


def msgspec(kind: type[T], *, version: int = 1, old: Decoders[T] | None = None) -> JsonCodec[T]:
    """Return a codec for values of the type `kind`, as msgspec writes and reads them.

    msgspec does not look at the types of fields when it writes. So each body is read once before it
    is sent. `version` and `old`: see `Codec`. Raises ExtraMissing.
    """
    try:
        from msgspec import DecodeError, ValidationError
        from msgspec.json import Decoder, Encoder, schema
    except ImportError as error:
        raise ExtraMissing("the codec msgspec", "msgspec", "msgspec") from error
    encode, decode = Encoder().encode, Decoder(kind).decode

    def read(body: bytes) -> T:
        try:
            return decode(body)
        except ValidationError as error:
            why, _, path = str(error).partition(PATH)
            raise FieldRefused(path.rstrip("`").lstrip("."), why) from None
        except DecodeError as error:
            raise ValueError(f"it is no JSON: {error}") from None

    def write(value: T) -> bytes:
        body = encode(value)
        read(body)
        return body

    return JsonCodec(write, read, kind, _schema(schema, kind), version, old)


def _schema(schema: Any, kind: Any) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = schema(kind)
    except TypeError:  # a type for which there is no JSON schema, such as an Ext
        return None
    return found
