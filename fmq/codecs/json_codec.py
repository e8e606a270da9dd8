"""Any value that JSON has, as JSON. It is also what the codecs of other files are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import dumps, loads
from typing import Any, Generic, TypeVar, overload

from fmq.codecs.codec import FieldRefused

T = TypeVar("T")
JSON = "json"
"""The name of all codecs whose bodies are JSON."""
Decoders = Mapping[int, Callable[[bytes], T]]


class JsonCodec(Generic[T]):
    """A codec whose bodies are JSON. `write` and `read` say how."""

    name = JSON

    def __init__(
        self,
        write: Callable[[T], bytes],
        read: Callable[[bytes], T],
        kind: Any,
        schema: Mapping[str, Any] | None,
        version: int,
        old: Decoders[T] | None,
    ) -> None:
        """`kind` is the type of the values. Another type is refused, if it is a class."""
        self._write = write
        self.decode = read
        self._kind = kind
        self._is_class = isinstance(kind, type)
        self.schema = schema
        self.version = version
        self.old = {} if old is None else dict(old)

    def encode(self, value: T, /) -> bytes:
        """Return `value` as JSON. Raises FieldRefused or another Exception."""
        if self._is_class and not isinstance(value, self._kind):
            raise TypeError(f"it is no {self._kind.__name__}")
        return self._write(value)

    def __repr__(self) -> str:
        kind = getattr(self._kind, "__name__", self._kind)
        return f"<codec {self.name} of {kind}, version {self.version}>"


@overload
def json(*, version: int = 1, old: Decoders[Any] | None = None) -> JsonCodec[Any]: ...


@overload
def json(kind: type[T], /, *, version: int = 1, old: Decoders[T] | None = None) -> JsonCodec[T]: ...


def json(
    kind: Any = object, /, *, version: int = 1, old: Decoders[Any] | None = None
) -> JsonCodec[Any]:
    """Return a codec for any value that JSON has, or for those that are a `kind`, such as dict.

    `version` and `old`: see `Codec`.
    """
    return JsonCodec(written, _reader(kind), kind, None, version, old)


def written(value: Any) -> bytes:
    """Return `value` as JSON. Raises FieldRefused for what JSON does not have."""
    try:
        text = dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FieldRefused(_refused_in(value), str(error)) from None


def _reader(kind: type[T]) -> Callable[[bytes], T]:
    def read(body: bytes) -> T:
        value = loads(body)
        if not isinstance(value, kind):
            raise TypeError(f"it is no {kind.__name__}")
        return value

    return read


def _refused_in(value: Any, path: str = "", depth: int = 20) -> str:
    """Return the path of the first part of `value` that JSON does not have; "" if it is `value`."""
    if isinstance(value, Mapping):
        parts = [(f"{path}.{name}" if path else str(name), each) for name, each in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{path}[{at}]", each) for at, each in enumerate(value)]
    else:
        return path
    for name, each in parts:
        try:
            dumps(each, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError):
            return _refused_in(each, name, depth - 1) if depth else name
    return path
