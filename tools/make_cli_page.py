"""Write docs/cli.md: python3 tools/make_cli_page.py

The page is made of the parser of the command, so it says what the command does, and of one example
a verb in tools/cli_examples.txt.
tests/cli/test_cli_page.py compares the page with what is made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fmq.cli.described import Argument, Verb, verbs_of
from fmq.cli.main import make_parser

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
EXAMPLES = Path(__file__).parent / "cli_examples.txt"

START = """\
# The command

<!-- Made of fmq/cli by tools/make_cli_page.py: change the parser, and run it. -->

`fmq VERB ...`, or `python -m fmq VERB ...`. A table for each verb. [on_call.md](on_call.md) says
which one to use when something is wrong.

- **DIR** is the directory of a journal. Where it is left out, `FMQ_DIR` stands for it: after
  `export FMQ_DIR=/var/lib/shop`, `fmq tail orders` is enough. An argument that names a directory
  is DIR, whatever `FMQ_DIR` says.
- **Output** is tables on a terminal, and JSON lines in a pipe or a file; `--json` and
  `--format table|json` choose; in `fmq export`, `--format` is that of the files, and
  `--show table|json` chooses. Each line is an object whose first member, `what`, says what it
  speaks of. `fmq demo` tells a story in a pipe, too. Notes and errors go to the standard error.
  `NO_COLOR=1` keeps colours away.
- **Words**, such as slot, spare or impaired, are in the [glossary](glossary.md), and the kinds of
  records, such as STATE, in [format.md](format.md#kinds).
- **Exit code**: 0 fine, 1 a problem was found and printed, 2 the command line makes no sense, 3 an
  error, 130 Ctrl-C, 141 the reader of a pipe has ended.
- What changes a journal goes through the process that serves the directory, if there is one, and
  else opens the directory itself. What only looks asks that process, or reads the files. No verb
  can end an engine that runs.
"""


def page() -> str:
    """Return the page."""
    verbs = [verb for verb in verbs_of(make_parser()) if verb.words]
    parts = [START, "| verb | what it does |\n| --- | --- |\n" + "".join(map(_line, verbs))]
    for before, verb in pairwise([None, *verbs]):
        assert verb is not None
        parts.append(_section(verb, before))
    return "\n".join(parts)


def _line(verb: Verb) -> str:
    if len(verb.words) > 1:
        return ""
    name = verb.words[0]
    others = "".join(f", `{each}`" for (each,) in verb.other_words)
    return f"| [`{name}`](#fmq-{name}){others} | {_cell(verb.help)} |\n"


def _section(verb: Verb, before: Verb | None) -> str:
    name = " ".join(("fmq", *verb.words))
    head = f"{'#' * (len(verb.words) + 1)} {name}\n"
    if verb.is_group:
        also = "".join(f"\n\n`fmq {each}` is the same." for (each,) in verb.other_words)
        return f"{head}\n{_about(verb)}{also}\n"
    usage = " ".join((name, *(each.usage for each in verb.arguments if not _is_common(each))))
    told = _about(verb) if len(verb.words) == 1 else f"{verb.help[0].upper()}{verb.help[1:]}."
    if before is not None and verb.description and verb.description == before.description:
        told = f"{verb.help[0].upper()}{verb.help[1:]}: see `fmq {' '.join(before.words)}`."
    example = example_of(verb.words)
    usage += f"\n\nFor example `{example}`.\n" if example else "\n"
    lines = [_row(each) for each in verb.arguments if not _is_common(each)]
    table = "\n| argument | meaning |\n| --- | --- |\n" + "".join(lines) if lines else ""
    return f"{head}\n{told}\n\n    {usage}{table}"


def example_of(words: Sequence[str]) -> str | None:
    """Return a command line of this verb, from tools/cli_examples.txt."""
    start = " ".join(("fmq", *words))
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if f"{line} ".startswith(f"{start} ")), None)


def _about(verb: Verb) -> str:
    """Return the description, in which the paragraphs of a docstring are kept."""
    return (verb.description or f"{verb.help[0].upper()}{verb.help[1:]}.").strip()


def _is_common(argument: Argument) -> bool:
    """Return whether the start of the page speaks of the argument."""
    has_format = "--format" in argument.options and bool(argument.choices)
    return has_format or "--json" in argument.options


def _row(argument: Argument) -> str:
    name = ", ".join(argument.options) or argument.value
    if argument.options and argument.value:
        name += f" {argument.value}"
    words = "" if "|" in name or not argument.choices else f": {', '.join(argument.choices)}"
    return f"| `{_cell(name)}` | {_cell(argument.help + words)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
