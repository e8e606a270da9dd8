"""The pages of the site are those of docs/, with links and fences as the site needs them.

`python3 tools/make_site.py` makes the site, and checks the links of its HTML. That takes a minute,
so here only the pages are made.
"""

import re
from pathlib import Path

from tools.make_diagrams import DIAGRAMS, DOCS, drawn
from tools.make_site import (
    CODE,
    LINK,
    ROOT,
    all_for_programs,
    list_for_programs,
    navigation,
    on_the_site,
    pages,
)

PLACES = pages()
MADE = {str(place.with_suffix(".html")) for place in PLACES.values()}
MADE |= {"decisions.html", "examples.html"}
PICTURES = {Path(name) for name in ("demo.svg", "dash-overview.png", "dash-group.png")}
PICTURES |= {Path(f"{name}.svg") for name in DIAGRAMS}


def test_each_page_of_the_documents_is_on_the_site() -> None:
    """No two pages have one place there."""
    assert {*(ROOT / "docs").rglob("*.md")} < {*PLACES}
    assert len({*PLACES.values()}) == len(PLACES)


def test_each_link_leads_to_a_page_of_the_site() -> None:
    """A link to a file of the source becomes plain text, but one to an example."""
    files = {Path("decisions.md"), Path("examples.md"), *PICTURES, *PLACES.values()}
    missing = []
    for page, place in PLACES.items():
        prose = CODE.sub("code", on_the_site(page, PLACES))
        for _, link in LINK.findall(prose):
            path = link.partition("#")[0]
            if path and not re.match(r"[a-z]+:", path):
                target = (ROOT / place.parent / path).resolve().relative_to(ROOT)
                missing += [(place, link)] if target not in files else []
    assert missing == []


def test_a_link_is_named_by_the_title_of_its_page_and_not_by_its_file() -> None:
    """A reader of the site sees no files."""
    named = [
        (place, text)
        for page, place in PLACES.items()
        for text, link in LINK.findall(CODE.sub("code", on_the_site(page, PLACES)))
        if text.endswith(".md") and not re.match("[a-z]+:", link)
    ]
    assert named == []
    assert "[Errors](errors.md): each error" in on_the_site(ROOT / "docs" / "README.md", PLACES)


def test_each_page_is_two_clicks_from_the_index() -> None:
    """Those of decisions are listed by a page that the site makes, which the index links to."""
    files = {place: page for page, place in PLACES.items()}

    def linked(page: Path) -> set[Path]:
        found = (link.partition("#")[0] for _, link in LINK.findall(CODE.sub("", page.read_text())))
        paths = {(page.parent / each).resolve() for each in found if each}
        return {path for path in paths if path in PLACES}

    index = ROOT / "docs" / "README.md"
    first = linked(index)
    reached = first.union(*map(linked, first), {index, files[Path("index.md")]})
    assert "](decisions)" in index.read_text()
    far = {page for page in {*PLACES} - reached if page.parent.name != "decisions"}
    assert far == set()


def test_each_diagram_is_what_its_script_draws() -> None:
    """Else `python3 tools/make_diagrams.py` was forgotten."""
    for name, diagram in DIAGRAMS.items():
        assert (DOCS / f"{name}.svg").read_text() == drawn(diagram), name


def test_a_fence_has_a_language_and_at_most_a_title() -> None:
    """The site would take ``` with other words for text."""
    for page in PLACES:
        for line in re.findall(r"^ *```(.+)$", on_the_site(page, PLACES), re.MULTILINE):
            assert re.fullmatch(r' ?\w+( title="[\w.]+")?', line), (page, line)


def test_the_list_for_programs_has_each_page_with_what_it_is_about() -> None:
    """llms.txt begins with what fmq is, and its links lead to pages of the site."""
    said = list_for_programs()
    assert said.startswith("# fmq\n\n> fmq is an embedded transaction engine for messages")
    links = {link.partition("#")[0] for _, link in LINK.findall(said)}
    assert links <= MADE
    assert {"guide.html", "databases/sqlite.html", "contributing.html", "zh/index.html"} <= links
    assert {"databases/index.html", "price.html", "examples.html"} <= links
    assert "](tutorial.html): in half an hour" in said


def test_the_text_for_programs_has_each_english_page_once() -> None:
    """llms-full.txt begins with the README. The decisions are left out."""
    said = all_for_programs()
    assert said.startswith("# fmq\n")
    for page in {*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "README.md"}:
        title = page.read_text().partition("\n")[0]
        assert said.count(f"\n{title}\n") == 1, title
    assert "\n# 指南\n" not in said
    links = {link.partition("#")[0] for _, link in LINK.findall(CODE.sub("", said))}
    local = {link for link in links if link and not re.match("[a-z]+:", link)}
    assert local <= MADE | {str(each) for each in PICTURES}
    assert "databases/sqlite.html" in local


def test_the_menu_has_the_examples_and_the_prices(tmp_path: Path) -> None:
    """So it has all that the list of all pages has."""
    index = ROOT / "docs" / "README.md"
    files = {(index.parent / link.partition("#")[0]).resolve() for link in linked_from(index)}
    places = {PLACES[file] for file in files & PLACES.keys()} | {Path("examples.md")}
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(f"# {place}\n")
    menu = navigation(PLACES, tmp_path)
    assert [place for place in places if f'= "{place}"' not in menu] == []
    assert Path("price.md") in places


def linked_from(page: Path) -> set[str]:
    return {link for _, link in LINK.findall(CODE.sub("", page.read_text()))}
