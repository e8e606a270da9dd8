"""docs/commit.md, docs/poll.md and docs/client.md walk through the code: each file and name on them
exists.

A file or function that is renamed fails here, so the pages do not lag behind. The print-outs of
docs/poll.md and docs/client.md are compared with what a real client, server and engine write.
"""

import ast
import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WALKS = "commit.md", "poll.md", "client.md"

spec = spec_from_file_location("poll_example", ROOT / "tools" / "poll_example.py")
assert spec is not None
assert spec.loader is not None
example = module_from_spec(spec)
spec.loader.exec_module(example)


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Return the names of the functions, classes and constants that a file defines."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.Assign):
            found.update(each.id for each in node.targets if isinstance(each, ast.Name))
    return frozenset(found)


def places(text: str) -> list[tuple[str, str | None]]:
    """Return the files that a page names, each with the name that follows it, or None."""
    pattern = r"`([\w/]+\.py)`(?:,\s+`(\w+)`)?"
    return [(found[1], found[2]) for found in re.finditer(pattern, text)]


@pytest.mark.parametrize("page", WALKS)
def test_each_file_on_a_walk_exists_and_defines_the_name_beside_it(page: str) -> None:
    """`fmq/tx/commands/writer.py`, `send` says that the file defines a function `send`."""
    found = places((DOCS / page).read_text())
    assert len(found) > 20, "the pattern finds the places of the page"
    for file, name in found:
        assert (ROOT / file).is_file(), f"{page} names {file}"
        assert name is None or name in defined_in(ROOT / file), f"{page} names {name} of {file}"


def test_the_bytes_printed_in_poll_md_are_those_that_a_poll_sends_and_writes() -> None:
    """Bytes on the wire and records in the journal, by tools/poll_example.py."""
    assert printed_in("poll.md") == [example.frames(), example.records()]


def test_the_print_out_of_the_send_is_what_is_sent() -> None:
    """Bytes on the wire, by tools/poll_example.py."""
    assert printed_in("client.md") == [example.send_frames()]


def printed_in(page: str) -> list[str]:
    """Return the print-outs in a page."""
    return re.findall(r"```text\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
