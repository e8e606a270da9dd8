"""A limit of so many at once holds while workers and the server are killed.

    python tools/limits.py DIR --seed 7 --minutes 10

does in full what is done here for a moment.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.budget import SEED, within_budget
from tests.remote.test_reclaim import Machine
from tests.tool import ROOT, said_by

spec = importlib.util.spec_from_file_location("limits", ROOT / "tools" / "limits.py")
assert spec is not None
assert spec.loader is not None
limits = importlib.util.module_from_spec(spec)
sys.modules["limits"] = limits
spec.loader.exec_module(limits)
Note: Any = limits.Note


def test_four_processes_never_have_more_in_work_than_the_limit(tmp_path: Path) -> None:
    kills = within_budget(3)
    said = said_by("limits", tmp_path / "d", "--seed", SEED, "--kills", kills, "--minutes", 1.5)
    assert f"{kills} kills, 0 leases lost" in said, said


def test_what_clients_of_the_server_before_have_in_hand_is_counted() -> None:
    """In queues, too, of which nobody has polled anything since."""
    machine = Machine()
    first = machine.server.connect()
    first.create_topic("t", queues=2)
    first.create_topic("u")
    for queue in (0, 1):
        first.send_many("t", [b"0", b"1"], queue=queue)
    first.send_many("u", [b"0", b"1"])
    mine = first.consumer(("t", "u"), group="g")
    first.group("g").limit(concurrency=3)
    taken = [each for _ in range(3) for each in mine.poll(limit=1)]
    assert len({(each.topic, each.queue) for each in taken}) == 3
    machine.kill()
    other = machine.server.connect().consumer(("t", "u"), group="g")
    assert other.poll() == []
    taken[0].ack()
    assert len(other.poll(limit=9)) == 1
    assert other.poll() == []
    machine.clock.advance(60.0)
    assert len(other.poll(limit=9)) + len(other.poll(limit=9)) <= 3
    machine.engine.close()


@pytest.mark.parametrize(
    ("notes", "killed", "most"),
    [
        ([], {}, 0),
        ([Note(1, 7, "begin", "a"), Note(2, 8, "begin", "b"), Note(3, 7, "end", "a")], {8: 9}, 2),
        ([Note(1, 7, "begin", "a"), Note(2, 7, "end", "a"), Note(2, 8, "begin", "b")], {8: 9}, 1),
        ([Note(1, 7, "begin", "a"), Note(6, 8, "begin", "a")], {7: 5, 8: 9}, 1),
        ([Note(1, 7, "begin", "a"), Note(4, 8, "begin", "a")], {7: 5, 8: 9}, 2),
    ],
)
def test_the_notes_tell_how_many_were_in_work(
    notes: list[Any], killed: dict[int, int], most: int
) -> None:
    assert limits.most_at_once(notes, killed)[0] == most
