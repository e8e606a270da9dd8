"""The inside of an engine, for fmq's own tests.

A program has no use for it, and nothing here is promised: the parts change with the engine. A
test of fmq uses it where no public call shows or does what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from fmq.assembly.shutdown import forget
from fmq.basics.lock_owner import is_mine
from fmq.engines.engine import Engine
from fmq.engines.read_only_engine import ReadOnlyEngine
from fmq.errors import Closed

if TYPE_CHECKING:
    from fmq.assembly.parts import Parts
    from fmq.feedback.schedule import Schedule
    from fmq.recovery.follow import Follower


@overload
def inside(engine: Engine) -> Parts: ...


@overload
def inside(engine: ReadOnlyEngine) -> Follower: ...


def inside(engine: Engine | ReadOnlyEngine) -> Parts | Follower:
    """Return the parts of an engine; for a read-only engine, its follower."""
    if isinstance(engine, ReadOnlyEngine):
        return engine._door._follower
    wrapped: Any = engine  # an engine, or what tests wrap around one
    found: Parts = wrapped._parts if hasattr(wrapped, "_parts") else wrapped._door.parts
    return found


def has_lock(engine: Engine) -> bool:
    """Return whether this thread has the engine's lock."""
    return is_mine(inside(engine).lock)


def locks_of(engine: Engine | ReadOnlyEngine) -> list[Any]:
    """Return all locks that another thread may hold at any moment, the outermost first."""
    if isinstance(engine, ReadOnlyEngine):
        door = engine._door
        return [door._lock, door._refreshing, door._follower.files.lock]
    parts = inside(engine)
    return [parts.lock, *parts.locks(), parts.catalog.looking]


def schedule_of(engine: Engine) -> Schedule:
    """Return the schedule of questions. The caller takes the engine's lock first."""
    return inside(engine).questions._schedule


def end_as_killed(engine: Engine) -> None:
    """Refuse all further calls, and write nothing, as if the engine's process were dead."""
    engine._door.refusal = Closed(f"{engine.path}: its process was killed")
    forget(engine._door)  # write nothing when this process ends
