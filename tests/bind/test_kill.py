"""Wherever the process dies inside a bound transaction, the row and the message agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import warm
from tests.bind.shop import connect as connected
from tests.bind.shop import messages, place, reopened, rows

ROOT = Path(__file__).parent.parent.parent
CALLS_MAX = 20


@pytest.mark.parametrize("kind", ["sqlite3", "aiosqlite"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_leaves_both_or_neither(tmp_path: Path, when: str, kind: str) -> None:
    """The process dies at every call of its connection, before it or after it.

    The next process goes on.
    """
    seen = set()
    for call in range(1, CALLS_MAX):
        folder = tmp_path / str(call)
        folder.mkdir()
        child = warm.run(["-m", "tests.bind.child", folder, call, when, kind], cwd=ROOT)
        assert child.returncode in (0, 1), child.stderr
        with reopened(folder) as engine:
            assert engine.undecided() == []
            assert rows(folder) == messages(engine), f"died {when} call {call}"
            seen.add(len(rows(folder)))
            connection = connected(folder)
            place(engine, connection, "next")
            connection.close()
            assert rows(folder) == messages(engine)
        if child.stdout:
            break
    else:
        raise AssertionError("so many calls?")
    assert seen == {1, 2}, "it died on both sides of the commit"
