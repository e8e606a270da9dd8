"""The fields of a JSON schema, each with the kinds of JSON that it may be.

Only these are stored and compared. A whole schema also has titles, defaults and limits, which
libraries write in ways of their own that change with their versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ANY = "any"
KIND_OF = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}
DEPTH_MAX = 20


def fields_in(schema: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the fields of an object with such a schema, as {"id": "integer", "note":
    "null|string"}; None if its values are no objects, or nothing is known of them.
    """
    if schema is None:
        return None
    top = _resolved(schema, schema)
    properties = top.get("properties")
    if not isinstance(properties, Mapping):
        return None
    found = {}
    for name, each in properties.items():
        kinds = {*_kinds(each, schema, DEPTH_MAX)}
        if "number" in kinds:
            kinds.discard("integer")
        found[str(name)] = ANY if ANY in kinds else "|".join(sorted(kinds))
    return found


def _resolved(part: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `part` refers to; `part` itself if it is no reference."""
    depth = DEPTH_MAX
    while isinstance(part, Mapping) and "$ref" in part and depth:
        where: Any = schema
        for step in str(part["$ref"]).removeprefix("#/").split("/"):
            where = where.get(step) if isinstance(where, Mapping) else None
        part, depth = where, depth - 1
    return part if isinstance(part, Mapping) else {}


def _kinds(part: Any, schema: Mapping[str, Any], depth: int) -> Iterator[str]:
    part = _resolved(part, schema)
    either = part.get("anyOf") or part.get("oneOf")
    if either and depth:
        for each in either:
            yield from _kinds(each, schema, depth - 1)
    elif "type" in part:
        kinds = part["type"]
        yield from [kinds] if isinstance(kinds, str) else kinds
    elif "enum" in part or "const" in part:
        for value in part.get("enum", [part.get("const")]):
            yield KIND_OF.get(type(value), ANY)
    else:
        yield ANY
