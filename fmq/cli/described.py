"""The verbs of the command line as data, for a page of the documents and for shells."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from fmq.cli.parser import Parser


class Argument(NamedTuple):
    """An argument of a verb. `options` is empty for a positional one, and `value` for a flag."""

    options: tuple[str, ...]
    value: str
    choices: tuple[str, ...]
    help: str
    usage: str


class Verb(NamedTuple):
    """A verb, or an action of one: `words` says which, and `other_words` how else it may be
    written.
    """

    words: tuple[str, ...]
    other_words: tuple[tuple[str, ...], ...]
    help: str
    description: str
    arguments: tuple[Argument, ...]
    is_group: bool  # True if the verb has actions, and does nothing without one


def verbs_of(
    parser: Parser,
    words: tuple[str, ...] = (),
    other_words: tuple[tuple[str, ...], ...] = (),
    help_: str = "",
) -> Iterator[Verb]:
    """Yield the verb of `parser` and those below it, in the order of its help."""
    arguments = tuple(_argument(parser, action) for action in parser._actions if _shown(action))
    description = parser.description or ""
    yield Verb(words, other_words, help_, description, arguments, parser.subverbs is not None)
    if parser.subverbs is None:
        return
    helps = {action.dest.partition(" ")[0]: action for action in parser.subverbs._choices_actions}
    names: dict[int, list[str]] = {}
    for name, below in parser.subverbs.choices.items():
        names.setdefault(id(below), []).append(name)
    for name, *others in names.values():
        below = parser.subverbs.choices[name]
        said = helps[name].help if name in helps else ""
        also = [(*before, each) for before in (words, *other_words) for each in (name, *others)]
        yield from verbs_of(below, also[0], tuple(also[1:]), said or "")


def _shown(action: argparse.Action) -> bool:
    hidden = (argparse._HelpAction, argparse._SubParsersAction, argparse._VersionAction)
    return not isinstance(action, hidden)


def _argument(parser: Parser, action: argparse.Action) -> Argument:
    choices = tuple(map(str, action.choices or ()))
    value = "" if action.nargs == 0 else _value(action, choices)
    usage = {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}.get(
        str(action.nargs), value
    )
    if action.option_strings:
        usage = f"{action.option_strings[-1]} {value}".strip()
        usage = usage if action.required else f"[{usage}]"
    return Argument(tuple(action.option_strings), value, choices, action.help or "", usage)


def _value(action: argparse.Action, choices: tuple[str, ...]) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(choices) or action.dest.upper()
