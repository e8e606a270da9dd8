"""Running a tool of `tools/`, as its user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def said_by(tool: str, *arguments: object, timeout: float = 300.0) -> str:
    """Return what `tools/TOOL.py` prints. It must end well, within `timeout` seconds."""
    done = subprocess.run(
        [sys.executable, f"tools/{tool}.py", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
