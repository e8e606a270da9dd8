"""`tools/work_queue.py` at its smallest: workers and server are killed, and each job is as it must
be.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_killed_workers_lose_no_job_and_do_none_twice(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/work_queue.py", str(tmp_path), "--kills", "2", "--jobs", "30"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("each job as it must be\n")
