"""Django's tasks on an engine: with Django 6, so with Python 3.12 or later."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fmq

pytest.importorskip("django.tasks", reason="Django's tasks came with Django 6")
ROOT = Path(__file__).resolve().parent.parent.parent
STORY = Path(__file__).parent / "django_tasks_story.py"


def test_tasks_are_messages_that_belong_to_transactions_and_are_tried_again(tmp_path: Path) -> None:
    """The child's settings are for all of a process."""
    with fmq.open(tmp_path / "queue") as engine:
        engine.serve()
        done = subprocess.run(
            [sys.executable, STORY, tmp_path],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        ran = told["ran"]
        assert ran[:2] == [["urgent", 1], ["lamp", 1]]
        assert sorted(ran[2:]) == [["async", 1], ["fails", 1], ["fails", 2]]
        assert told["rolled back"] == 0, "a task of a block that failed was not sent"
        assert told["status"] == "READY" and told["finished"] == ["SUCCESSFUL"] * 3 + ["FAILED"] * 2
        (letter,) = engine.dead_letters("django-tasks").list()
        assert json.loads(letter.body)["args"] == ["fails"]
        assert engine.delayed("tasks-default"), "run_after waits"
