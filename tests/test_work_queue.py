"""`tools/work_queue.py` at its smallest: workers and server are killed, and each job is as it must
be.
"""

from __future__ import annotations

from pathlib import Path

from tests.tool import said_by


def test_killed_workers_lose_no_job_and_do_none_twice(tmp_path: Path) -> None:
    said = said_by("work_queue", str(tmp_path), "--kills", "2", "--jobs", "30", timeout=300.0)
    assert said.endswith("each job as it must be\n")
