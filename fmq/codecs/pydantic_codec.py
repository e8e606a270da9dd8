"""Types that pydantic knows, as JSON: its models, dataclasses, TypedDicts and more."""

from __future__ import annotations

from typing import TypeVar

from fmq.codecs.codec import FieldRefused
from fmq.codecs.json_codec import Decoders, JsonCodec
from fmq.errors import ExtraMissing

T = TypeVar("T")


def pydantic(kind: type[T], *, version: int = 1, old: Decoders[T] | None = None) -> JsonCodec[T]:
    """Return a codec for values of the type `kind`, as pydantic writes and reads them.

    A model may have been changed since it was made. So each body is validated once before it is
    sent. `version` and `old`: see `Codec`. Raises ExtraMissing.
    """
    try:
        from pydantic import TypeAdapter, ValidationError
    except ImportError as error:
        raise ExtraMissing("the codec pydantic", "pydantic", "pydantic") from error
    adapter = TypeAdapter(kind)

    def read(body: bytes) -> T:
        try:
            return adapter.validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise FieldRefused(field, first["msg"]) from None

    def write(value: T) -> bytes:
        body = adapter.dump_json(value, by_alias=True, warnings="none")
        read(body)
        return body

    return JsonCodec(write, read, kind, adapter.json_schema(), version, old)
