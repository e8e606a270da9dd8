"""Write the blocking faces of fmq: python3 tools/make_faces.py

Each call is written once, awaited, in fmq/aio/face. Without its `async` and `await` it is the
blocking call, in a file of the same name in fmq/faces/blocking. A line that begins with `#| ` is
for the blocking face only. tests/test_faces.py compares the files with what is made here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
AWAITED, BLOCKING = ROOT / "fmq/aio/face", ROOT / "fmq/faces/blocking"
MODULES = {
    "fmq.aio.face": "fmq.faces.blocking",
    "fmq.aio.loop_consumer": "fmq.faces.any_consumer",
    "fmq.aio.feedback": "fmq.feedback.service",
    "fmq.aio.loop_transaction": "fmq.tx.commands.transaction",
    "fmq.bind.on_loop": "fmq.bind.bound_transaction",
}
NAMES = {
    "AsyncConsumer": "AnyConsumer",
    "AsyncTopic": "TopicHandle",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
}
SYNTAX = [
    ("an `async with`", "a `with`"),
    (r"\basync (?=def |with |for |with`|`)", ""),
    (r"\bawait ", ""),
    (r"#\| ", ""),
    (r"\bAsync(?=[A-Z])", ""),
]


def blocking(source: Path) -> str:
    """Return the blocking face of a file of awaited calls."""
    text = source.read_text(encoding="utf-8")
    for old, new in [*MODULES.items(), *NAMES.items()]:
        text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    for pattern, new in SYNTAX:
        text = re.sub(pattern, new, text)
    where = source.relative_to(ROOT)
    text = f"# Made of {where} by tools/make_faces.py: change that file, and run it.\n{text}"
    for command in (["check", "--select=I,F401", "--fix-only"], ["format"]):
        text = _ruff(command, text, BLOCKING / source.name)
    return text


def _ruff(command: list[str], text: str, name: Path) -> str:
    run = [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={name}", "-"]
    return subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write all files of the blocking faces."""
    for source in sorted(AWAITED.glob("*.py")):
        if source.name != "__init__.py":
            (BLOCKING / source.name).write_text(blocking(source), encoding="utf-8")


if __name__ == "__main__":
    main()
