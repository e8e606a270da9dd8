"""docs/adding-a-record.md adds a kind that works, in at most six files of fmq."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES_MAX = 6


def test_the_page_adds_a_kind_that_is_written_replayed_carried_and_shown(tmp_path: Path) -> None:
    """Its changes are made to a copy of fmq, on which its program runs."""
    page = (ROOT / "docs/adding-a-record.md").read_text()
    shutil.copytree(ROOT / "fmq", tmp_path / "fmq", ignore=shutil.ignore_patterns("__pycache__"))
    changed = {change(tmp_path, block) for block in blocks(page, "diff")}
    assert len(changed) <= FILES_MAX
    (program,) = blocks(page, "python")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "is there already" in done.stdout


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return found


def change(root: Path, block: str) -> str:
    """Make the changes of a diff without line numbers to its file; return the name of the file."""
    name, _, hunks = block.removeprefix("--- ").partition("\n")
    text = (root / name).read_text()
    for hunk in hunks.split("@@\n"):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        before, after = (
            "".join(line for mark, line in lines if mark != left_out) for left_out in "+-"
        )
        assert text.count(before) == 1, f"{name} has {text.count(before)} times:\n{before}"
        text = text.replace(before, after)
    (root / name).write_text(text)
    return name
