#!/usr/bin/env python3
"""Make the site of the documents in build/site: python3 tools/make_site.py

The pages are those of docs/, with the README as their start; they can be read without the site. It
adds a search, a menu, and a reference of the public names made of their docstrings. The tools for
it are installed into build/site-tools, and the site loads nothing from elsewhere. It can be read
from the disk; the search needs a server, such as `python3 -m http.server -d build/site`. The
environment must have the tools of `tools/dev.py`, because the modules of the reference are
imported. Beside the pages lie llms.txt and llms-full.txt, for programs that read.

What is checked, in the HTML: each link leads to a file and an anchor that are there, each page is
reached from the start in two clicks and leads back to it. The exit code is 1 otherwise.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
import types
import venv
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
TOOLS, PAGES, SITE = BUILD / "site-tools", BUILD / "site-pages", BUILD / "site"
# The last Zensical whose parts are all on the package index; the next ones need zensical-ui.
NEEDS = ("zensical==0.0.40", "mkdocstrings-python>=2,<3")

FENCE = re.compile(r"^( *)```(\w+) +(\S+)(.*)$", re.MULTILINE)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK_OR_CODE = re.compile(f"{LINK.pattern}|{CODE.pattern}", re.MULTILINE | re.DOTALL)
PLACES = {
    "README.md": "index.md",
    "README.zh.md": "zh/index.md",
    "docs/README.md": "pages.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "crash_tests/README.md": "crash_tests.md",
    "crash_tests/BUGS.md": "bugs.md",
    "benchmarks/price.md": "price.md",
}
PICTURES = (".svg", ".png")
EXAMPLES = ROOT / "examples"
LANGUAGES = {".py": "python", ".yml": "yaml", ".json": "json"}
REFERENCE = (
    *("fmq", "fmq.aio", "fmq.bind", "fmq.bind.sqlalchemy", "fmq.compat", "fmq.filters"),
    *("fmq.relay", "fmq.testing"),
)
CONFIGURATION = """\
[project]
site_name = "fmq"
site_description = "An embedded transaction engine for messages"
docs_dir = "{pages}"
site_dir = "{site}"
use_directory_urls = false
extra_css = ["site.css"]
extra_javascript = ["site.js"]
{addresses}
nav = [{nav}]
[project.theme]
font = false
features = ["navigation.sections", "navigation.top", "content.code.copy", "search.highlight"]
[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"
[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light"
[project.plugins.search]
[project.plugins.mkdocstrings.handlers.python]
paths = ["{root}"]
options.show_source = false
options.show_root_heading = true
options.show_root_full_path = true
options.heading_level = 2
options.inherited_members = true
options.show_bases = false
options.separate_signature = true
options.show_signature_annotations = true
options.filters = ["!^_"]
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.tables]
[project.markdown_extensions.toc]
permalink = true
"""
STYLE = """\
/* Lines of code fit: 88 characters at a width of 1280, and 110 in a wide window. */
.md-grid { max-width: 76rem; }
.md-typeset pre > code { font-size: .78em; }
/* A name in a table is not broken: on a phone the table scrolls. */
.md-typeset td code { word-break: normal; }
"""
SCRIPT = """\
// The theme would load this from elsewhere. It shows pictures in a box; no page has one.
class GLightbox { on() {} reload() {} setElements() {} destroy() {} }
"""


# --- the pages ---


def pages() -> dict[Path, Path]:
    """Return each page of the checkout with its place on the site."""
    found = {ROOT / page: Path(place) for page, place in PLACES.items()}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        place = page.relative_to(ROOT / "docs")
        found.setdefault(page, place.with_name("index.md") if place.stem == "README" else place)
    return found


def on_the_site(page: Path, places: dict[Path, Path]) -> str:
    """Return the text of `page` with the links and fences that the site needs."""
    here = places[page].parent

    def link(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        file = (page.parent / path).resolve()
        if file.suffix == ".md" and text.strip("`").endswith(file.name) and file in places:
            text = title_of(file)
        if file == ROOT / "docs" / "decisions":
            place = Path("decisions.md")
        elif file == EXAMPLES or EXAMPLES in file.parents:
            place, anchor = Path("examples.md"), anchor_of(file)
        elif file in places:
            place = places[file]
        elif file.suffix in PICTURES:
            place = Path(file.name)
        else:
            return text  # a file of the source, which the site does not have
        return f"[{text}]({os.path.relpath(place, here)}{'#' + anchor if anchor else ''})"

    return FENCE.sub(fence, with_links(page.read_text(), link))


def with_links(text: str, link: Callable[[re.Match[str]], str]) -> str:
    """Return `text` with each link as `link` makes it; what looks like one in code is left."""
    return LINK_OR_CODE.sub(lambda found: found[0] if found[2] is None else link(found), text)


def fence(found: re.Match[str]) -> str:
    """Return the start of a fence as the site knows it; the name of a file is its title."""
    space, language, word, _ = found.groups()
    name = word.removeprefix("file=")
    title = f' title="{name}"' if name != word else ""
    return f"{space}``` {'text' if language == 'console' else language}{title}"


def decisions() -> str:
    """Return a page that lists all decisions, with their titles."""
    listed = ["# Decisions\n", "Why fmq is as it is, one page a decision.\n"]
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = page.read_text().splitlines()[0].lstrip("# ")
        listed.append(f"- [{page.name[:4]}](decisions/{page.name}) {title}")
    return "\n".join(listed) + "\n"


def examples() -> str:
    """Return a page with all examples, each with its whole text."""
    said = [
        "# Examples",
        "Programs and files to run, and to change: `python FILE` in a new directory.",
    ]
    for file in sorted(EXAMPLES.rglob("*.*"), key=lambda each: (each.suffix != ".py", each)):
        if file.suffix in LANGUAGES:
            name = file.relative_to(EXAMPLES)
            said += [
                f"## {name}",
                f"``` {LANGUAGES[file.suffix]}\n{file.read_text().rstrip()}\n```",
            ]
    return "\n\n".join(said) + "\n"


def anchor_of(example: Path) -> str:
    """Return the anchor of an example, as the site makes it of its heading."""
    name = "" if example == EXAMPLES else str(example.relative_to(EXAMPLES))
    return re.sub(r"[^\w-]", "", name)


def reference(name: str) -> str:
    """Return a page with each public name of a module; errors have a page of their own."""
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None) or [
        each for each, value in vars(module).items() if is_of(value, name)
    ]
    shown = [each for each in public if not is_left_out(getattr(module, each))]
    heads = "\n\n".join(f"::: {name}.{each}" for each in sorted(shown))
    about = inspect.getdoc(module) or ""
    return f"# {name}\n\n{about.splitlines()[0]}\n\n{heads}\n"


def is_of(value: object, name: str) -> bool:
    named = getattr(value, "__module__", "")
    return callable(value) and str(named).startswith(name) and not is_left_out(value)


def is_left_out(value: object) -> bool:
    is_error = isinstance(value, type) and issubclass(value, (Exception, Warning))
    return is_error or isinstance(value, types.ModuleType)


def navigation(places: dict[Path, Path], made: Path = PAGES) -> str:
    """Return the menu, which has the sections and pages of docs/README.md in their order."""
    index = ROOT / "docs" / "README.md"
    sections = ['{"Start" = "index.md"}', '{"All pages" = "pages.md"}']
    for part in re.split(r"^## ", index.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        files = [
            (index.parent / target.partition("#")[0]).resolve() for _, target in LINK.findall(text)
        ]
        with_examples = {**places, EXAMPLES: Path("examples.md")}
        inside = [with_examples[file] for file in files if file in with_examples]
        entries = [f'{{"{title_of(made / place)}" = "{place}"}}' for place in dict.fromkeys(inside)]
        if title.startswith("Reference"):
            entries += [f'{{"{name}" = "{name}.md"}}' for name in REFERENCE]
        if title.startswith("Explanation"):
            entries.append('{"Decisions" = "decisions.md"}')
        sections.append(f'{{"{title.partition(":")[0]}" = [{", ".join(entries)}]}}')
    return ", ".join(sections)


def title_of(place: Path) -> str:
    return place.read_text().splitlines()[0].lstrip("# ").replace("`", "").replace('"', "'")


def write_texts() -> None:
    """Write the pages for programs that read: a list of them, and all of them in one file."""
    (SITE / "llms.txt").write_text(list_for_programs())
    (SITE / "llms-full.txt").write_text(all_for_programs())


def list_for_programs() -> str:
    """Return llms.txt: what fmq is, and the list of all pages with what each is about."""
    places = pages()
    _, *paragraphs = (ROOT / "README.md").read_text().split("\n\n")
    about = next(each for each in paragraphs if not each.startswith("["))
    _, listed = on_the_site(ROOT / "docs" / "README.md", places).split("\n\n", 1)
    listed = for_programs(listed, Path())
    return f"# fmq\n\n> {about.replace(chr(10), chr(10) + '> ')}\n\n{listed}"


def for_programs(text: str, here: Path) -> str:
    """Return the text of a page of the site in `here`, with links from the site's top to HTML."""

    def link(found: re.Match[str]) -> str:
        path, sign, anchor = found[2].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        target = Path(os.path.normpath(here / path))
        target = target.with_suffix(".html") if target.suffix == ".md" else target
        return f"[{found[1]}]({target}{sign}{anchor})"

    return with_links(text, link)


def all_for_programs() -> str:
    """Return llms-full.txt: all pages in English but the decisions, in the order of the list."""
    index = ROOT / "docs" / "README.md"
    linked = [
        (index.parent / target.partition("#")[0]).resolve()
        for _, target in LINK.findall(index.read_text())
    ]
    files = [ROOT / "README.md", *(file for file in linked if file in pages())]
    left_out, places = (ROOT / "docs" / "zh", ROOT / "README.zh.md"), pages()
    return "\n\n".join(
        for_programs(on_the_site(file, places), places[file].parent)
        for file in dict.fromkeys(files)
        if file not in left_out and file.parent not in left_out
    )


def write_pages() -> None:
    places = pages()
    shutil.rmtree(PAGES, ignore_errors=True)
    for page, place in places.items():
        (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / place).write_text(on_the_site(page, places))
    for picture in (ROOT / "docs").iterdir():
        if picture.suffix in PICTURES:
            shutil.copy(picture, PAGES)
    (PAGES / "site.css").write_text(STYLE)
    (PAGES / "site.js").write_text(SCRIPT)
    (PAGES / "decisions.md").write_text(decisions())
    (PAGES / "examples.md").write_text(examples())
    for name in REFERENCE:
        (PAGES / f"{name}.md").write_text(reference(name))
    settings = {"pages": PAGES.name, "site": SITE.name, "root": ROOT, "nav": navigation(places)}
    configuration = CONFIGURATION.format(**settings, addresses=addresses())
    (BUILD / "zensical.toml").write_text(configuration)


def addresses() -> str:
    """Return the lines with the public addresses that pyproject.toml names, if it names any."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    urls = project.get("urls", {})
    names = {"site_url": "Documentation", "repo_url": "Repository"}
    return "\n".join(f'{key} = "{urls[name]}"' for key, name in names.items() if name in urls)


# --- what is checked ---


FOR_ROBOTS = ("prev", "next", "canonical")  # a browser loads none of these


class Page(HTMLParser):
    """The links and anchors of a page of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attributes}
        self.anchors.add(has.get("id", ""))
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        elif tag in ("img", "script", "link") and has.get("rel") not in FOR_ROBOTS:
            self.loads.append(has.get("src", has.get("href", "")))


def troubles() -> list[str]:
    """Return a line for each thing that is wrong with the site."""
    read = {
        path: Page(path.read_text()) for path in SITE.rglob("*.html") if path.name != "404.html"
    }
    found: list[str] = []
    leads: dict[Path, set[Path]] = {}
    for path, page in read.items():
        here = path.relative_to(SITE)
        found += [f"{here}: loads {each}" for each in page.loads if "//" in each]
        leads[path] = set()
        for link in page.links + [each for each in page.loads if "//" not in each]:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = unquote(link).partition("#")
            file = (path.parent / target).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            leads[path].add(file)
            if not file.exists():
                found.append(f"{here}: {link} is not there")
            elif file in read and anchor not in read[file].anchors:
                found.append(f"{here}: {link} has no such anchor")
    start = SITE / "index.html"
    near = leads[start] | {start}
    near |= {file for page in near & leads.keys() for file in leads[page]}
    found += [f"{path.relative_to(SITE)}: not in two clicks" for path in leads.keys() - near]
    found += [
        f"{path.relative_to(SITE)}: no way back" for path in leads if start not in leads[path]
    ]
    return sorted({*found})


def main() -> int:
    if not (TOOLS / "done").exists():
        venv.create(TOOLS, with_pip=True, clear=True)
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([TOOLS / "bin" / "python", *pip, *NEEDS], check=True)
        (TOOLS / "done").touch()
    write_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    built = subprocess.run(
        [TOOLS / "bin" / "zensical", "build", "--clean"],
        cwd=BUILD,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        print(built.stdout + built.stderr)
        return 1
    write_texts()
    if not addresses():
        (SITE / "sitemap.xml").unlink(missing_ok=True)  # it has whole addresses, or says nothing
    wrong = troubles()
    print("\n".join(wrong[:50]))
    count = len([*SITE.rglob("*.html")])
    print(f"{count} pages in {SITE}; {len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
