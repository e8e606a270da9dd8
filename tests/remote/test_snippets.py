"""The documents' code also runs with a client of an engine that is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_public import SNIPPETS, run

# `docs/testing.md` is about disks and clocks that a test hands in, without threads.
HERE = {code: at for code, at in SNIPPETS.items() if not at.startswith("docs/testing.md")}


@pytest.mark.parametrize("source", HERE, ids=HERE.get)
def test_each_runnable_snippet_runs_through_the_socket(source: str, tmp_path: Path) -> None:
    through = "import tests.remote.through_socket\n"
    done = run(["-W", "error", "-c", through + source], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
