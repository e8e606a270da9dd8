"""Dataclasses as JSON objects, with nothing but Python's own modules.

Each type of a field has a *form*: how a value of it becomes JSON, and how it is made of JSON. Both
check the type, so a wrong value is found before it is sent, with the path of its field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date, datetime
from json import loads
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from fmq.codecs.codec import FieldRefused
from fmq.codecs.json_codec import Decoders, JsonCodec, written
from fmq.errors import BadOption

T = TypeVar("T")
Turn = Callable[[Any, str], Any]
"""Takes a value and the path of its field. Returns it in its other form, or raises FieldRefused."""


class TypeForm(NamedTuple):
    """How values of one type become JSON, and are made of it."""

    to_json: Turn
    of_json: Turn
    schema: dict[str, Any]


def dataclass(
    kind: type[T], /, *, version: int = 1, old: Decoders[T] | None = None
) -> JsonCodec[T]:
    """Return a codec for values of the dataclass `kind`.

    Its fields may be texts, numbers, booleans, None, datetimes, dates, literals, lists, dicts with
    texts as keys, other dataclasses, and unions of those. A field that a body lacks gets its
    default; a name that is no field is passed over. `version` and `old`: see `Codec`. Raises
    BadOption for any other type.
    """
    given: Any = kind
    if not (isinstance(given, type) and dataclasses.is_dataclass(given)):
        raise TypeError(f"kind={kind!r:.80}: is a dataclass. Nothing was changed.")
    to_json, of_json, schema = _of_dataclass(kind, ())
    return JsonCodec(
        lambda value: written(to_json(value, "")),
        lambda body: of_json(loads(body), ""),
        *(kind, schema, version, old),
    )


def _form_of(hint: Any, path: str, outer: tuple[Any, ...]) -> TypeForm:
    """Return the form of a type. `outer` are the dataclasses around it."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return TypeForm(_as_it_is, _as_it_is, {})
    if hint in PLAIN:
        return _plain(hint)
    if hint is datetime or hint is date:
        return _time(hint)
    if origin is Union or origin is UnionType:
        return _union([_form_of(each, path, outer) for each in args], hint)
    if origin is Literal:
        return _literal(args)
    if hint is list or origin is list:
        return _list(_form_of(args[0] if args else Any, f"{path}[]", outer))
    if hint is dict or (origin is dict and args[0] is str):
        return _dict(_form_of(args[1] if args else Any, f"{path}{{}}", outer))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in outer:
        return _of_dataclass(hint, outer)
    raise BadOption(
        f"the field {path!r} is {hint!r:.80}, which the codec of dataclasses cannot write. Nothing "
        "was changed; take fmq.codecs.msgspec or fmq.codecs.pydantic, or a codec of your own."
    )


PLAIN: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    None: "null",
    NoneType: "null",
}


def _as_it_is(value: Any, path: str) -> Any:
    return value


def _expected(what: str, value: Any, path: str) -> FieldRefused:
    return FieldRefused(path, f"expected {what}, and it is {value!r:.60}")


def _plain(hint: Any) -> TypeForm:
    kinds = {float: (float, int), None: (NoneType,)}.get(hint, (hint,))
    what = PLAIN[hint]

    def check(value: Any, path: str) -> Any:
        if type(value) not in kinds:
            raise _expected(what, value, path)
        return float(value) if hint is float else value

    return TypeForm(check, check, {"type": what})


def _time(hint: Any) -> TypeForm:
    def to_json(value: Any, path: str) -> str:
        if type(value) is not hint:
            raise _expected(hint.__name__, value, path)
        text: str = value.isoformat()
        return text

    def of_json(value: Any, path: str) -> Any:
        try:
            return hint.fromisoformat(value)
        except (TypeError, ValueError):
            raise _expected(f"{hint.__name__} as ISO 8601", value, path) from None

    return TypeForm(to_json, of_json, {"type": "string"})


def _literal(values: tuple[Any, ...]) -> TypeForm:
    def check(value: Any, path: str) -> Any:
        if not any(type(value) is type(each) and value == each for each in values):
            raise _expected(f"one of {', '.join(map(repr, values))}", value, path)
        return value

    return TypeForm(check, check, {"enum": [*values]})


def _union(forms: list[TypeForm], hint: Any) -> TypeForm:
    def first(turns: list[Turn]) -> Turn:
        def turn(value: Any, path: str) -> Any:
            refusals = []
            for each in turns:
                try:
                    return each(value, path)
                except FieldRefused as error:
                    refusals.append(error)
            # The refusal of the part that lies deepest says most.
            raise max(refusals, key=lambda error: len(error.field))

        return turn

    schema = {"anyOf": [each.schema for each in forms]}
    return TypeForm(
        first([each.to_json for each in forms]), first([each.of_json for each in forms]), schema
    )


def _list(inner: TypeForm) -> TypeForm:
    def all_by(turn: Turn) -> Turn:
        def each(value: Any, path: str) -> Any:
            if type(value) is not list:
                raise _expected("array", value, path)
            return [turn(part, f"{path}[{at}]") for at, part in enumerate(value)]

        return each

    schema = {"type": "array", "items": inner.schema}
    return TypeForm(all_by(inner.to_json), all_by(inner.of_json), schema)


def _dict(inner: TypeForm) -> TypeForm:
    def all_by(turn: Turn) -> Turn:
        def each(value: Any, path: str) -> Any:
            if type(value) is not dict or not all(type(name) is str for name in value):
                raise _expected("object with texts as keys", value, path)
            return {name: turn(part, _inside(path, name)) for name, part in value.items()}

        return each

    schema = {"type": "object", "additionalProperties": inner.schema}
    return TypeForm(all_by(inner.to_json), all_by(inner.of_json), schema)


def _of_dataclass(kind: Any, outer: tuple[Any, ...]) -> TypeForm:
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise BadOption(
            f"{kind.__name__}: a type of its fields is not known here: {error}. Nothing was "
            "changed; define it at the top of a module."
        ) from None
    fields = [each for each in dataclasses.fields(kind) if each.init]
    forms = {each.name: _form_of(hints[each.name], each.name, (*outer, kind)) for each in fields}
    needed = [
        each.name
        for each in fields
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]

    def to_json(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise _expected(kind.__name__, value, path)
        return {
            name: form.to_json(getattr(value, name), _inside(path, name))
            for name, form in forms.items()
        }

    def of_json(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise _expected("object", value, path)
        for name in needed:
            if name not in value:
                raise FieldRefused(_inside(path, name), "it is missing")
        known = value.keys() & forms.keys()
        return kind(
            **{name: forms[name].of_json(value[name], _inside(path, name)) for name in known}
        )

    properties = {name: form.schema for name, form in forms.items()}
    return TypeForm(to_json, of_json, {"type": "object", "properties": properties})


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
