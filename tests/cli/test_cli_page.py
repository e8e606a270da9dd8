"""docs/cli.md is made of the parser."""

from __future__ import annotations

from fmq.cli.described import verbs_of
from fmq.cli.main import make_parser
from tools.make_cli_page import PAGE, page


def test_the_page_of_the_command_is_what_the_parser_says() -> None:
    assert PAGE.read_text() == page(), "run python3 tools/make_cli_page.py"


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
