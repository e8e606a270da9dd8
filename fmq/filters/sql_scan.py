"""Cuts the text of a condition into tokens. It knows the reserved words and no grammar."""

from __future__ import annotations

import re
from typing import NamedTuple

from fmq.errors import BadFilter

WORDS = {
    *("not", "and", "or", "true", "false", "null", "is"),
    *("between", "in", "contains", "startswith", "endswith"),
}

# `*+` never backtracks, so the time for any text is linear.
TOKEN = re.compile(
    r"""
      (?P<blank>   [ \t\n\r\f]+ | --[^\n\r]* | /\*.*?\*/ )
    | (?P<float>   [0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]+)?
                 | \.[0-9]++(?:[eE][+-]?[0-9]+)?
                 | [0-9]++[eE][+-]?[0-9]+ )
    | (?P<integer> 0 | [1-9][0-9]*+[lL]? )
    | (?P<string>  '(?:[^']|'')*+' )
    | (?P<name>    [A-Za-z_$][A-Za-z0-9_$]*+ )
    | (?P<sign>    <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE | re.DOTALL,
)

HINTS = {
    "'": "the string has no end; write a quote inside of it twice",
    '"': "a string has single quotes, and the name of a header has none",
    "/*": "the comment has no end",
    "!": "write <> for unequal",
}
OTHERWISE = (
    "no part of a condition begins like this; the name of a header has letters, digits, _ and $"
)


class Token(NamedTuple):
    """One token. `kind` is a reserved word, a sign, or the name of its group in TOKEN."""

    kind: str
    text: str
    column: int


def tokens(text: str) -> list[Token]:
    """Return the tokens of `text` and one of kind "end". Raises BadFilter."""
    found = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            hints = (hint for start, hint in HINTS.items() if text.startswith(start, at))
            raise BadFilter(text, at + 1, next(hints, OTHERWISE))
        kind, word = match.lastgroup or "", match.group()
        if kind == "sign" or (kind == "name" and word.lower() in WORDS):
            kind = word.lower()
        if kind != "blank":
            found.append(Token(kind, word, at + 1))
        at = match.end()
    return [*found, Token("end", "", len(text) + 1)]
