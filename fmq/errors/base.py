"""The root of the errors of fmq. One process can pickle them for another."""

from __future__ import annotations

from typing import Any


class FmqError(Exception):
    """The base of all errors that fmq raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Many errors take other arguments than their text, which the default pickling would pass. A
        # pool that cannot unpickle the error of a worker breaks or hangs.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[FmqError], args: tuple[object, ...]) -> FmqError:
    """Return an error with the text `args`. Unpickling sets its attributes afterwards."""
    error = kind.__new__(kind)
    error.args = args
    return error
