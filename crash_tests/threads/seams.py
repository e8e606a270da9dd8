"""The seams where a thread of fmq may be stopped: before it takes a lock, waits, or uses the disk.

The engine's sources are looked at instead of being changed: their syntax tree says on which
lines a lock is taken, and the frame that runs the line says which one it is. So nothing in fmq
knows that it is being watched. Where many threads meet, every line is a seam, if that is asked
for: what is read without a lock can only go wrong between two lines.
"""

from __future__ import annotations

import ast
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import fmq
import fmq.testing
from fmq.store.journal.section import OwnedLock

HOME = str(Path(fmq.__file__).parent) + "/"
FAKES = str(Path(fmq.testing.__file__).parent) + "/"
# The wait for an OwnedLock is in C, too.
LOCKS = type(threading.Lock()), type(threading.RLock()), OwnedLock

# The operations of a disk that are seams. The seam is before the operation.
OPERATIONS = {
    *(f"CrashFile.{name}" for name in ("read", "write", "sync", "allocate", "write_zeros")),
    *(f"CrashDirectory.{name}" for name in ("open", "create", "rename", "remove", "sync")),
}
# The modules whose data several threads use. Modules that only encode, decode or compute are left
# out.
MEETING = (
    "assembly/shutdown.py", "assembly/parts.py", "engines/thread_door.py",
    "chores/thread.py", "chores/checkpointer.py", "chores/runner.py",
    "consume/calls/consumer.py", "consume/calls/member.py",
    "consume/claims/delivery.py", "consume/groups/group_claims.py",
    "consume/groups/group_holds.py", "consume/groups/group_rooms.py", "consume/groups/groups.py",
    "store/journal/committer.py", "store/journal/commit_queue.py",
    "store/journal/journal.py", "store/journal/spares.py",
    "tx/commands/ids.py", "tx/commands/manager.py", "tx/commands/relocation.py",
    "tx/commands/transaction.py", "tx/commands/writer.py", "tx/looks/messages.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread may have to wait for, as the source spells it."""

    what: ast.expr
    block: bool  # True in a `with`: its line is reached once more at the end of the block


@dataclass(frozen=True, slots=True)
class Watch:
    """The seams in one function: its call, some of its lines, or all of them."""

    operation: str = ""  # the operation of the disk
    waits: dict[int, list[Wait]] = field(default_factory=dict)  # the waits in each line
    meeting: bool = False  # whether each line is a seam


# By the id of the code, which is kept with it: hashing code would hash all of its content.
_watches: dict[int, tuple[CodeType, Watch | None]] = {}


def watch_of(code: CodeType) -> Watch | None:
    """Return what to watch in a function; None for nothing."""
    known = _watches.get(id(code))
    if known is None:
        known = _watches[id(code)] = code, _look_at(code)
    return known[1]


def _look_at(code: CodeType) -> Watch | None:
    file = code.co_filename
    if not file.startswith(HOME) or code.co_name == "__del__":
        return None  # a destructor may run at any time, in any thread
    if file.startswith(FAKES):
        named = code.co_qualname in OPERATIONS
        return Watch(code.co_qualname.partition(".")[2]) if named else None
    lines = {line for _, _, line in code.co_lines()}
    waits = {line: found for line, found in waits_in(file).items() if line in lines}
    meeting = file.removeprefix(HOME) in MEETING
    return Watch("", waits, meeting) if waits or meeting else None


def is_try(call: ast.Call) -> bool:
    """Return whether it is `acquire(blocking=False)`, which waits for nothing."""
    return any(
        each.arg == "blocking" and isinstance(each.value, ast.Constant) and not each.value.value
        for each in call.keywords
    )


@cache
def waits_in(file: str) -> dict[int, list[Wait]]:
    """Return what a thread may have to wait for, by line of the file."""
    found: dict[int, list[Wait]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.With):
            for item in node.items:
                if isinstance(item.context_expr, ast.Attribute | ast.Name):
                    wait = Wait(item.context_expr, block=True)
                    found.setdefault(node.lineno, []).append(wait)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("acquire", "join")
            and isinstance(node.func.value, ast.Attribute | ast.Name)
            and not is_try(node)
        ):
            found.setdefault(node.lineno, []).append(Wait(node.func.value, block=False))
    return found


def value_of(written: ast.expr, frame: FrameType) -> Any:
    """Return the value of a name, or of an attribute of one, in `frame`."""
    if isinstance(written, ast.Attribute):
        return getattr(value_of(written.value, frame), written.attr)
    assert isinstance(written, ast.Name)
    found = frame.f_locals.get(written.id, frame.f_globals)
    return frame.f_globals.get(written.id) if found is frame.f_globals else found


_places: dict[tuple[int, int], str] = {}


def place_of(frame: FrameType) -> str:
    """Return the place of a frame by its code and not by its line number, as lines move."""
    key = id(frame.f_code), frame.f_lineno
    place = _places.get(key)
    if place is None:
        file = frame.f_code.co_filename
        line = _lines(file)[frame.f_lineno - 1].strip()
        place = f"{file.removeprefix(HOME)} {frame.f_code.co_name}: {line}"
        _places[key] = place
    return place


@cache
def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()
