"""The chaos of tools/home_chaos.py, small: one owner dies and one pauses, under load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_nothing_is_lost_doubled_out_of_order_or_half() -> None:
    program = ROOT / "tools" / "home_chaos.py"
    done = subprocess.run(
        [sys.executable, program, "--seed", "7", "--kills", "1", "--pauses", "1", "--after", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
