"""The pages in Chinese say the same as the English ones: code, commands, places, promises.

A page of docs/zh has the name of its English page in docs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import dev

ROOT = Path(__file__).resolve().parent.parent
ENGLISH = {ROOT / "README.zh.md": ROOT / "README.md"} | {
    page: ROOT / "docs" / page.name for page in sorted((ROOT / "docs" / "zh").glob("*.md"))
}
WHOLE = {"README.zh.md", "tutorial.md", "promises.md"}
"""Pages that leave out no code of their English page."""
BLOCK = re.compile(r"^```.*?^```$|^    [^\n]+(?:\n    [^\n]+)*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r" +# .*$", re.MULTILINE)
COMMAND = re.compile(r"`(fmq [a-z]+|python3? (?:-m )?[\w./]+|pytest [\w./-]+)")
EACH = pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.name)


def blocks(page: Path) -> list[str]:
    """Return the code of a page, without comments, which may be translated."""
    return [COMMENT.sub("", found) for found in BLOCK.findall(page.read_text())]


@EACH
def test_a_page_has_the_code_of_its_english_page_in_its_order(page: Path) -> None:
    theirs, ours = blocks(ENGLISH[page]), blocks(page)
    if page.name in WHOLE:
        assert ours == theirs
    places = [theirs.index(block) for block in ours]
    assert places == sorted(places)


@EACH
def test_a_page_names_commands_that_its_english_page_names(page: Path) -> None:
    """Of a page that is translated as a whole, both name the same."""
    theirs = set(COMMAND.findall(ENGLISH[page].read_text()))
    ours = set(COMMAND.findall(page.read_text()))
    assert ours - theirs == set()
    if page.name in WHOLE - {"README.zh.md"}:
        assert theirs - ours == set()


@EACH
def test_both_pages_lead_to_each_other_and_to_places_that_are_there(page: Path) -> None:
    prose = dev.INLINE_CODE.sub("", dev.FENCED.sub("", page.read_text()))
    links = [first or second for first, second in dev.LINK.findall(prose)]
    assert links
    there = {(page.parent / link.partition("#")[0]).resolve() for link in links if ":" not in link}
    assert [place for place in there if not place.exists()] == []
    assert ENGLISH[page] in there
    assert f"[中文]({page.relative_to(ENGLISH[page].parent)})" in ENGLISH[page].read_text()


def test_each_promise_is_there_with_its_number_and_its_names() -> None:
    """The names of calls and options in a promise are those of the English one."""
    found = []
    for page in (ROOT / "docs" / "zh" / "promises.md", ROOT / "docs" / "promises.md"):
        parts = re.split(
            r"^- \*\*(P\d+)\*\*", page.read_text().rpartition("\n\n")[0], flags=re.MULTILINE
        )
        promises = zip(parts[1::2], parts[2::2], strict=True)
        found.append({name: sorted(set(re.findall(r"`[^`]+`", text))) for name, text in promises})
    assert found[0] == found[1]
    assert len(found[0]) == 13
