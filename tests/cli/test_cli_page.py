"""docs/cli.md is made of the parser."""

from __future__ import annotations

import shlex

from fmq.cli.described import verbs_of
from fmq.cli.main import make_parser
from fmq.cli.parser import parse
from tools.make_cli_page import EXAMPLES, PAGE, example_of, page


def test_the_page_of_the_command_is_what_the_parser_says() -> None:
    assert PAGE.read_text() == page(), "run python3 tools/make_cli_page.py"


def test_each_verb_has_an_example_that_the_parser_takes() -> None:
    """Nothing is run."""
    leaves = [verb.words for verb in verbs_of(make_parser()) if verb.words and not verb.is_group]
    assert [words for words in leaves if example_of(words) is None] == []
    lines = EXAMPLES.read_text().splitlines()
    assert sorted(lines) == sorted({example_of(words) or "" for words in leaves})
    for line in lines:
        _, *words = shlex.split(line)
        assert callable(parse(make_parser(), words).run), line


def test_each_verb_and_each_argument_says_what_it_is() -> None:
    for verb in verbs_of(make_parser()):
        assert verb.help or not verb.words, verb.words
        for argument in verb.arguments:
            assert argument.help, (verb.words, argument)


def test_each_verb_has_the_same_output_options() -> None:
    """ddl and completion print texts for other programs, and nothing else."""
    for verb in verbs_of(make_parser()):
        if not verb.is_group and verb.words not in (("ddl",), ("completion",)):
            options = {option for each in verb.arguments for option in each.options}
            assert {"--json", "--format"} <= options, verb.words
