"""Running the command in this process and in one of its own, and what a directory looks like."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from fmq.cli.main import main
from tests import warm

ROOT = Path(__file__).parent.parent.parent
# Neither a terminal nor colours, and output is buffered, whatever the tests themselves run in.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("FORCE_COLOR", "PYTHONUNBUFFERED")
} | {
    "PYTHONPATH": str(ROOT),
}
COMMAND = (sys.executable, "-m", "fmq")


class Said(NamedTuple):
    """How a run of the command ended."""

    code: int
    lines: list[dict[str, Any]]
    error: str

    def of(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["what"] == what]


def fmq_json(*arguments: object) -> Said:
    """Run the command in this process, and read its JSON lines."""
    return fmq_piped(*arguments, "--format", "json")


def fmq_piped(*arguments: object) -> Said:
    """Run the command in this process, with an output that is no terminal."""
    code, out, error = _run(*arguments)
    return Said(code, [json.loads(line) for line in out.splitlines()], error)


def fmq_table(*arguments: object) -> str:
    """Run the command in this process with the output that a terminal gets."""
    return fmq_table_with("--format", *arguments)


def fmq_table_with(option: str, *arguments: object) -> str:
    """Do the same; `option` makes the command print tables."""
    code, out, error = _run(*arguments, option, "table")
    assert code == 0, error
    return out


def _run(*arguments: object) -> tuple[int, str, str]:
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), error.getvalue()


def fmq_process(
    *arguments: object, cwd: Path | None = None, timeout: float = 180, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own, with an output that is no terminal."""
    told = {**ENVIRONMENT, **environment}
    return warm.run(["-m", "fmq", *arguments], cwd=cwd, env=told, timeout=timeout)


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below `path`: its bytes, and when it was written last."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }
