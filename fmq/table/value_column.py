"""The column `value`: the fields of bodies that are JSON, as their topic's stored codec says them.

The type of the column says which fields those are. So whoever reads a split needs no codec, and
no type of the program that has sent the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from fmq.codecs.body_fields import as_text, kinds_of, value_in
from fmq.errors import BadOption
from fmq.table.snapshot import Snapshot

TYPE_OF = {
    frozenset({"integer"}): pa.int64(),
    frozenset({"number"}): pa.float64(),
    frozenset({"integer", "number"}): pa.float64(),
    frozenset({"boolean"}): pa.bool_(),
}
"""The type of a field by its kinds of JSON. Any other field is a text."""


def value_type(journals: Iterable[Snapshot], topics: frozenset[str] | None) -> pa.StructType:
    """Return the type of the column for messages of `topics`. Raises BadOption if the fields of
    their bodies are not known.
    """
    if topics is None:
        raise BadOption(
            "the column 'value' has the fields of a topic, and no topic is named. Nothing was "
            "read; name it, as in topic='orders'."
        )
    found = [codec for each in journals for name, codec in each.codecs.items() if name in topics]
    fields = [
        pa.field(name, TYPE_OF.get(kinds, pa.string())) for name, kinds in kinds_of(found).items()
    ]
    if not fields:
        raise BadOption(
            f"there is no column 'value' for {', '.join(map(repr, sorted(topics)))}: no codec that "
            "says its fields is stored there. Nothing was read; the column 'body' has the bytes."
        )
    return pa.struct(fields)


def check_value_type(type_: pa.DataType) -> None:
    """Raise BadOption unless the column can have this type, which a caller has chosen."""
    known = (pa.string(), *TYPE_OF.values())
    if not pa.types.is_struct(type_) or any(field.type not in known for field in type_):
        raise BadOption(
            f"the column 'value' is a struct of texts, whole numbers of 64 bits, doubles and "
            f"booleans, not {type_}. Nothing was read."
        )


def values_of(bodies: Iterable[bytes], type_: pa.StructType) -> pa.Array:
    """Return the column for `bodies`: null for a body that is no JSON object. In it, a field is
    null if the body does not have it, or has another kind of value there.
    """
    objects = [found if isinstance(found := value_in(body), dict) else None for body in bodies]
    columns = []
    for field in type_:
        fitted = FITTED[field.type]
        found = [None if each is None else fitted(each.get(field.name)) for each in objects]
        columns.append(pa.array(found, field.type))
    missing = pa.array([each is None for each in objects], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=missing)


def _whole(value: Any) -> int | None:
    fits = type(value) is int and -(1 << 63) <= value < 1 << 63
    return value if fits else None


def _number(value: Any) -> float | None:
    try:
        return float(value) if type(value) in (int, float) else None
    except OverflowError:
        return None


def _flag(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _text(value: Any) -> str | None:
    text = as_text(value)
    # Half a pair of surrogates, which JSON can spell, is no text for Arrow.
    return text if text is None or text.isascii() or _is_encodable(text) else None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


FITTED: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): _whole,
    pa.float64(): _number,
    pa.bool_(): _flag,
    pa.string(): _text,
}
