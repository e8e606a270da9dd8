"""A condition as a tree, and its normal form. This module knows neither tokens nor messages.

The normal form is a text: lower-case words, one blank between tokens, no bracket that is not
needed. Parsed again, it is the same tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

Constant = str | int | float | bool | None


@dataclass(frozen=True)
class Node:
    """A part of a condition, with its own parts."""

    @property
    def below(self) -> tuple[Node, ...]:
        """Return the parts of this node."""
        return ()

    @cached_property
    def depth(self) -> int:
        """Return the length of the longest path down. Each node caches its depth, so asking from
        the leaves up takes O(1) for each.
        """
        return 1 + max((node.depth for node in self.below), default=0)


@dataclass(frozen=True)
class HeaderName(Node):
    """The value of a header: a string, or unknown if the message does not have the header."""

    name: str


@dataclass(frozen=True)
class Literal(Node):
    """A value that is written in the condition's text."""

    value: Constant


@dataclass(frozen=True)
class AllOf(Node):
    """Conditions joined by `and`; none of them is an AllOf."""

    terms: tuple[Node, ...]

    @property
    def below(self) -> tuple[Node, ...]:
        return self.terms


@dataclass(frozen=True)
class AnyOf(Node):
    """Conditions joined by `or`; none of them is an AnyOf."""

    terms: tuple[Node, ...]

    @property
    def below(self) -> tuple[Node, ...]:
        return self.terms


@dataclass(frozen=True)
class Not(Node):
    """The opposite of a condition."""

    operand: Node

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class Compare(Node):
    """A comparison of two values by `= <> > >= < <=`."""

    sign: str
    left: Node
    right: Node

    @property
    def below(self) -> tuple[Node, ...]:
        return self.left, self.right


@dataclass(frozen=True)
class IsNull(Node):
    """A test whether a value is unknown; if `negated`, whether it is known."""

    operand: Node
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class Between(Node):
    """A test whether a number is from `low` to `high`, both included."""

    operand: Node
    low: Node
    high: Node
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return self.operand, self.low, self.high


@dataclass(frozen=True)
class OneOf(Node):
    """A test whether a header has one of some values, which are sorted."""

    header: HeaderName
    values: tuple[str, ...]
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.header,)


@dataclass(frozen=True)
class PartOf(Node):
    """A test whether a string contains another, or starts or ends with it. `word` says which."""

    word: str
    operand: Node
    part: str
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


def is_condition(node: Node) -> bool:
    """Return whether the value of `node` is true, false or unknown."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, HeaderName)


def names_in(node: Node) -> set[str]:
    """Return the names of the headers in a condition."""
    found = {node.name} if isinstance(node, HeaderName) else set()
    return found.union(*map(names_in, node.below))


# --- the normal form ----------------------------------------------------------------------------


def text_of(node: Node) -> str:
    """Return the normal form of `node`."""
    match node:
        case HeaderName(name):
            return name
        case Literal(value):
            return _text_of_constant(value)
        case AnyOf(terms):
            return " or ".join(map(text_of, terms))
        case AllOf(terms):
            return " and ".join(
                f"({text_of(term)})" if isinstance(term, AnyOf) else text_of(term) for term in terms
            )
        case Not(operand):
            return f"not {_as_operand(operand)}"
        case Compare(sign, left, right):
            return f"{_as_operand(left)} {sign} {_as_operand(right)}"
        case IsNull(operand, negated):
            return f"{_as_operand(operand)} is {_no(negated)}null"
        case Between(operand, low, high, negated):
            bounds = f"{_as_operand(low)} and {_as_operand(high)}"
            return f"{_as_operand(operand)} {_no(negated)}between {bounds}"
        case OneOf(header, values, negated):
            listed = ", ".join(map(_text_of_constant, values))
            return f"{header.name} {_no(negated)}in ({listed})"
        case PartOf(word, operand, part, negated):
            return f"{_as_operand(operand)} {_no(negated)}{word} {_text_of_constant(part)}"
    raise AssertionError(node)


def _as_operand(node: Node) -> str:
    text = text_of(node)
    return text if isinstance(node, HeaderName | Literal) else f"({text})"


def _no(negated: bool) -> str:
    return "not " if negated else ""


def _text_of_constant(value: Constant) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)
