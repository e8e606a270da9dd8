"""The root of the errors of fmq, which a process can hand to another."""

from __future__ import annotations

from typing import Any


class FmqError(Exception):
    """Anything that fmq raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Many are made of other arguments than their text. A pool of processes that cannot build
        # the error of a worker again breaks, or waits for ever.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[FmqError], args: tuple[object, ...]) -> FmqError:
    """Return an error with the text `args`. Unpickling sets its attributes afterwards."""
    error = kind.__new__(kind)
    error.args = args
    return error
