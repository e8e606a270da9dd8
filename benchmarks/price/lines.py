"""Counts lines of code: without blank lines, comments and docstrings."""

from __future__ import annotations

import ast
from pathlib import Path

import fmq

HOME = Path(fmq.__file__).parent
FACES = ("aio", "remote", "server", "wire", "faces")
CORE = (
    *("basics", "errors", "machine", "arguments", "posix", "store", "tx", "recovery"),
    *("consume", "feedback", "chores", "assembly", "engines"),
)
MADE = "# Made of "  # the first line of a file that tools/make_faces.py has made
WIDEST = 8  # files that are listed by name
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count(source: str) -> int:
    """Return how many lines of `source` have code."""
    lines = [line.strip() for line in source.splitlines()]
    code = {number for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            code.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(code)


def counted() -> dict[str, int]:
    """Return the lines of the core, of the faces, of all of fmq and of the widest files, by name.

    The core is what a program with one process and no database runs. What a tool has made of
    another file is counted apart, as it is nobody's to read or to change.
    """
    sources = {file: file.read_text(encoding="utf-8") for file in HOME.rglob("*.py")}
    sizes = {file: count(source) for file, source in sources.items()}
    sums = {"core": 0, "faces": 0, "made of the faces": 0, "all of fmq": 0}
    for file, size in sizes.items():
        if sources[file].startswith(MADE):
            sums["made of the faces"] += size
            continue
        parts = file.relative_to(HOME).parts
        sums["all of fmq"] += size
        if parts[0] in FACES:
            sums["faces"] += size
        elif parts[0] in CORE or len(parts) == 1:
            sums["core"] += size
    widest = sorted(sizes, key=lambda file: (-sizes[file], str(file)))[:WIDEST]
    return sums | {f"fmq/{file.relative_to(HOME)}": sizes[file] for file in widest}
