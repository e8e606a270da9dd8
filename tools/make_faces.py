"""Write the blocking faces of fmq: python3 tools/make_faces.py

Each call is written once, awaited, in fmq/aio/face. Without its `async` and `await` it is the
blocking call, in the room that MADE names. A line that begins with `#| ` is for the blocking face
only, and one with the comment `# on a loop: ...` for the awaited one. So is a sentence of a
docstring that begins with "On a loop" or names a coroutine. tests/test_faces.py compares the files
with what is made here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
AWAITED = ROOT / "fmq/aio/face"
MADE = {
    "consumer": "fmq.consume.calls.any_consumer",
    "delivery": "fmq.consume.claims.delivery",
    "door": "fmq.faces.blocking.door",
    "engine_face": "fmq.faces.blocking.engine_face",
    "handles": "fmq.faces.blocking.handles",
    "iteration": "fmq.consume.calls.iteration",
    "member_door": "fmq.consume.calls.member_door",
    "transaction": "fmq.tx.commands.transaction",
    "typed_topic": "fmq.faces.blocking.typed_topic",
}
"""What is made of each file."""
MODULES = {
    **{f"fmq.aio.face.{name}": made for name, made in MADE.items()},
    "fmq.aio.feedback": "fmq.feedback.service",
    "fmq.aio.loop_workers": "fmq.consume.calls.workers",
    "fmq.bind.on_loop": "fmq.bind.bound_transaction",
}
NAMES = {
    "AsyncConsumer": "AnyConsumer",
    "AsyncIterator": "Iterator",
    "AsyncRange": "DeliveredRange",
    "AsyncSchedule": "ScheduleHandle",
    "AsyncTopic": "TopicHandle",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
}
SYNTAX = [
    # A `def` with this comment is left out with all of its lines.
    (r"(?m)^( *)(?:async )?def .*# on a loop: .*\n(?:\1 +.*\n|\n(?=\1 +))*\n?", ""),
    (r".*# on a loop: .*\n", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    ("an `async with`", "a `with`"),
    (r"\basync (?=def |with |for |with`|`)", ""),
    (r"\bawait ", ""),
    (r"#\| ", ""),
    (r"\bAsync(?=[A-Z])", ""),
]


def target(name: str) -> Path:
    """Return the file that is made of the file `name` of awaited calls."""
    return ROOT / (MADE[name].replace(".", "/") + ".py")


def blocking(name: str) -> str:
    """Return the blocking face of the file `name` of awaited calls."""
    source = AWAITED / f"{name}.py"
    text = source.read_text(encoding="utf-8")
    for old, new in [*MODULES.items(), *NAMES.items()]:
        text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    for pattern, new in SYNTAX:
        text = re.sub(pattern, new, text)
    text = DOCSTRING.sub(_without_loops, text)
    where = source.relative_to(ROOT)
    text = f"# Made of {where} by tools/make_faces.py: change that file, and run it.\n{text}"
    for command in (["check", "--select=I,F401", "--fix-only"], ["format"]):
        text = _ruff(command, text, target(name))
    return text


WIDTH = 100
DOCSTRING = re.compile(r'(?ms)^( *)"""(.*?)"""')
OF_LOOPS = re.compile(r"On a loop |.*\bcoroutines?\b")


def _without_loops(docstring: re.Match[str]) -> str:
    """Return a docstring without its sentences about loops."""
    indent, before = docstring[1], docstring[2].split("\n\n")
    after = []
    for paragraph in before:
        words = " ".join(paragraph.split())
        left = " ".join(each for each in re.split(r"(?<=\.) ", words) if not OF_LOOPS.match(each))
        if left == words:
            after.append(paragraph)
        elif left:
            first = indent if after else f"{indent}   "  # room for the quotes
            lines = textwrap.fill(left, WIDTH, initial_indent=first, subsequent_indent=indent)
            after.append(lines if after else lines.lstrip())
    if after == before:
        return docstring[0]
    text = f'{indent}"""' + "\n\n".join(after).rstrip()
    return f'{text}"""' if len(text) + 3 <= WIDTH else f'{text}\n{indent}"""'


def _ruff(command: list[str], text: str, name: Path) -> str:
    run = [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={name}", "-"]
    return subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write all files of the blocking faces."""
    for name in MADE:
        target(name).write_text(blocking(name), encoding="utf-8")


if __name__ == "__main__":
    main()
