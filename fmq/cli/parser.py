"""The parser of the command line: what argparse does not do for `fmq`.

A verb that does not exist is answered by the one that it looks like. FMQ_DIR stands for DIR where
none is given.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from fmq.findings.text import printable

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

VARIABLE = "FMQ_DIR"
DIR = "DIR"
"""The metavar of the argument that FMQ_DIR stands for. It is the first one of its verb."""

HELP = {DIR: "the directory of the journal", "TOPIC": "a topic", "GROUP": "a group"}
LISTS = {"TOPIC": "fmq topics DIR", "GROUP": "fmq group list DIR"}
"""The verbs that list what may be named where an argument is missing."""


class WrongUsage(Exception):
    """A command line that makes no sense to `parser`."""

    def __init__(self, parser: Parser, message: str) -> None:
        super().__init__(message)
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are raised, and cannot send control characters to the
    terminal. It raises OSError if help cannot be written, where argparse would exit with 0.
    """

    subverbs: argparse._SubParsersAction[Parser] | None = None

    def add_subparsers(self, **named: Any) -> argparse._SubParsersAction[Parser]:  # type: ignore[override]
        """Remember the verbs, which argparse has no name for."""
        self.subverbs = super().add_subparsers(**named)
        return self.subverbs

    def add_argument(self, *names: Any, **named: Any) -> argparse.Action:
        """Add an argument. An argument that many verbs have needs no help of its own."""
        if help_ := HELP.get(named.get("metavar", "")):
            named.setdefault("help", help_)
        return super().add_argument(*names, **named)

    def error(self, message: str) -> NoReturn:
        """Raise the error, with the verb that lists what may be named if a name is missing."""
        _, found, missing = message.rpartition("arguments are required: ")
        lists = LISTS.get(missing.split(",")[0]) if found else None
        raise WrongUsage(self, f"{message}; `{lists}` lists them" if lists else message)

    def refuse(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        super().error(printable(message))

    def positionals(self) -> Iterator[argparse.Action]:
        """Yield the arguments that are no options and no verbs."""
        for action in self._actions:
            if not action.option_strings and action is not self.subverbs:
                yield action

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if file is None or file is not sys.stdout:
            super()._print_message(message, file)
        else:
            file.write(message)


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Return what the words of a command line say. Raises WrongUsage."""
    at, verb = 0, parser
    while verb.subverbs is not None and at < len(words) and words[at] in verb.subverbs.choices:
        verb = verb.subverbs.choices[words[at]]
        at += 1
    if verb.subverbs is not None:
        if at < len(words) and not words[at].startswith("-"):
            _refuse_verb(verb, words[at])
        return parser.parse_args(words)
    found = _with_directory(verb, words[at:], os.environ.get(VARIABLE))
    for name, value in parser._defaults.items():
        if not hasattr(found, name):
            setattr(found, name, value)
    return found


def _with_directory(
    verb: Parser, words: Sequence[str], directory: str | None
) -> argparse.Namespace:
    """Parse the words of one verb, with `directory` as DIR if they leave it out."""
    first = next(verb.positionals(), None)
    if not directory or first is None or first.metavar != DIR:
        return _parsed(verb, words)
    wrong, given = None, None
    try:
        given = _parsed(verb, words)
        found = getattr(given, first.dest)
        # An argument that names a directory is DIR, even if the environment names one, too. So is
        # what the environment names, before it is made. Any other argument may be the topic or the
        # group of a line that leaves DIR out.
        if isinstance(found, list) or (found is not None and _is_directory(found, directory)):
            return given
    except WrongUsage as error:
        wrong = error
    try:
        return _parsed(verb, [directory, *words])
    except WrongUsage as error:
        if given is not None:
            return given
        # There is one argument too many, so DIR was not left out.
        raise wrong if wrong and "unrecognized" in str(error) else error from None


def _is_directory(name: str, directory: str) -> bool:
    return os.path.isdir(name) or os.path.abspath(name) == os.path.abspath(directory)


def _parsed(verb: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of one verb. Options may stand between the arguments."""
    try:
        return verb.parse_intermixed_args(words)
    except TypeError:  # not for a verb whose options exclude an argument
        return verb.parse_args(words)


def _refuse_verb(parser: Parser, word: str) -> NoReturn:
    assert parser.subverbs is not None
    if word in ("ack", "consume", "poll"):
        parser.error(
            f"there is no {parser.prog} {word}: programs take messages for a group and ack them, "
            f"with engine.consumer(...). `{parser.prog} read` shows a topic, and takes nothing."
        )
    near = get_close_matches(word, parser.subverbs.choices, 1)
    advice = f"did you mean `{parser.prog} {near[0]}`?" if near else "--help lists them all."
    parser.error(f"there is no {parser.prog} {word}: {advice}")
