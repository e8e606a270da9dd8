"""The faces are made of one text; doors, servers and tests agree on the names of the calls."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

import fmq
from fmq.engines.read_only_door import ReadOnlyDoor
from fmq.faces.blocking import handles as blocking_handles
from fmq.faces.table import GROUP_CHANGES, IN_STEPS, LOOKS, RECALL
from fmq.server import named_calls as served
from fmq.testing import CrashDisk, FakeClock
from fmq.wire import requests
from tests.faces.differences import CANNOT_RUN, MEANT
from tests.small import opened
from tools.make_faces import AWAITED, MADE, blocking, target

ROOT = Path(__file__).parent.parent
FACES = ROOT / "tests/faces"


@pytest.mark.parametrize("difference", [*MEANT, *CANNOT_RUN], ids=lambda each: each.reason[:40])
def test_each_known_difference_of_a_face_names_existing_tests(difference: object) -> None:
    assert isinstance(difference, tuple)
    for file, names in difference[2].items():
        module = import_module(f"tests.faces.{file}")
        assert [name for name in names if name != "*" and not hasattr(module, name)] == []


def test_each_test_file_on_all_faces_also_runs_on_an_engine() -> None:
    """The modules there only import the tests of another file."""
    for file in FACES.glob("test_*.py"):
        assert "import *" in file.read_text(), file


# Public calls that no test of that folder makes, each with a file that makes it on clients.
ELSEWHERE = {
    "backup": "copies/test_engine_backups.py",  # writes beside the disk in memory
    "configure": "test_stored_options.py",
    "erase": "test_erase.py",
    "offset_at": "test_looks.py",
    "serve": "remote/test_processes.py",
    "settings": "test_stored_options.py",
    "is_settled": "aio/test_handling.py",
    "path": "remote/test_network.py",
}


def public_calls() -> set[str]:
    """The names of the public calls and properties of engines, and of what they give."""
    kinds = (fmq.Engine, fmq.Consumer, fmq.Delivery, fmq.DeliveryBatch, fmq.Transaction)
    handles = [
        each
        for each in vars(blocking_handles).values()
        if isinstance(each, type) and each.__module__ == blocking_handles.__name__
    ]
    return {name for kind in (*kinds, *handles) for name in dir(kind) if not name.startswith("_")}


def test_each_public_call_is_made_on_each_face() -> None:
    """A new call has a file there, which imports its tests; or it is in ELSEWHERE."""
    made = {
        module.replace(".", "/") + ".py"
        for file in FACES.glob("test_*.py")
        for module in re.findall(r"^from (tests\..+) import \*", file.read_text(), re.MULTILINE)
    }
    used = set(re.findall(r"\.(\w+)", "".join((ROOT / file).read_text() for file in made)))
    assert public_calls() - used == set(ELSEWHERE)
    for name, file in ELSEWHERE.items():
        assert f".{name}" in (ROOT / "tests" / file).read_text(), (name, file)


@pytest.mark.parametrize("name", sorted({each.stem for each in AWAITED.glob("[!_]*.py")} | {*MADE}))
def test_the_blocking_faces_are_generated_from_the_awaited_ones(name: str) -> None:
    assert target(name).read_text() == blocking(name), "run python3 tools/make_faces.py"


def test_a_server_answers_each_call_of_the_table() -> None:
    """It checks what a client says for each call that it answers, and for no other."""
    assert served.CALLS.keys() == requests.CALLS.keys()
    assert LOOKS.keys() | IN_STEPS.keys() <= served.CALLS.keys()
    assert requests.CHANGES.keys() == GROUP_CHANGES.keys()
    assert not LOOKS.keys() & (IN_STEPS.keys() | GROUP_CHANGES.keys() | {RECALL})


def test_a_read_only_door_knows_every_name_in_looks() -> None:
    disk = CrashDisk()
    opened(disk).close()
    where = "data", disk.directory("data", make=False), disk
    door = ReadOnlyDoor(*where, fmq.Options(), FakeClock())
    for name in LOOKS:
        with suppress(TypeError, fmq.ReadOnly):  # what has other arguments, or is not known here
            door.look(name)
    with pytest.raises(KeyError):
        door.look("what is in no table")
    door.close()


def test_no_engine_has_a_call_of_its_own_that_its_face_should_have() -> None:
    """What is written on one engine only is what no other one can do."""
    own = {
        kind: {name for name in vars(kind) if not name.startswith("_")}
        for kind in (fmq.Engine, fmq.RemoteEngine, fmq.ReadOnlyEngine)
    }
    assert own[fmq.Engine] == {"serve"}
    assert own[fmq.RemoteEngine] == {"stop"}
    assert own[fmq.ReadOnlyEngine] == {"damage", "refresh", "visible_to"}
