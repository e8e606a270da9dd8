"""An engine that only reads. It has the calls of `AnyEngine`, and refuses all others by their
names.
"""

from __future__ import annotations

from fmq.basics.results import UndecidedTransaction
from fmq.engines.engine import Engine
from fmq.engines.read_only_door import ReadOnlyDoor, refuse
from fmq.errors import Damaged
from fmq.faces.blocking.engine_face import AnyEngine

WRITING = frozenset(name for name in dir(Engine) if not hasattr(AnyEngine, name))
"""The calls that only an engine has that writes."""


class ReadOnlyEngine(AnyEngine):
    """A directory opened with read_only=True, made by `fmq.open`. Safe for threads."""

    _door: ReadOnlyDoor

    def __init__(self, door: ReadOnlyDoor) -> None:
        self._door = door

    def refresh(self) -> None:
        """Apply what has become durable since the last refresh. Every call that reads does this by
        itself.
        """
        self._door.refresh()

    @property
    def damage(self) -> Damaged | None:
        """Return the damage that stopped following, if any. What comes before it can be read."""
        return self._door.damage

    @property
    def visible_to(self) -> int:
        """Return the position up to which everything is shown."""
        return self._door.visible_to

    def __getattr__(self, name: str) -> object:
        if name in WRITING:
            refuse(self.path, name)
        raise AttributeError(name)

    def __repr__(self) -> str:
        return repr(self._door)


def retained_seconds(engine: ReadOnlyEngine) -> dict[str, float]:
    """Return how long each topic keeps its messages, if it has a time of its own."""
    return engine._door.retained_seconds()


def undecided_on_the_disk(engine: ReadOnlyEngine) -> list[UndecidedTransaction]:
    """Return the undecided transactions that are on the disk, proven durable or not."""
    return engine._door.undecided_on_the_disk()
