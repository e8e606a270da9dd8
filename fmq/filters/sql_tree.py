"""A condition as a tree, and its normal form. Knows neither tokens nor messages.

The normal form is a text: lower-case words, one blank between tokens, no bracket that is not
needed. Parsed again, it is the same tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

Constant = str | int | float | bool | None


@dataclass(frozen=True)
class Node:
    """A part of a condition, with the parts below it."""

    @property
    def below(self) -> tuple[Node, ...]:
        """Return the parts that this one is made of."""
        return ()

    @cached_property
    def depth(self) -> int:
        """Return how many nodes follow each other on the longest way down. O(1) if asked early:
        each node below keeps its own.
        """
        return 1 + max((node.depth for node in self.below), default=0)


@dataclass(frozen=True)
class HeaderName(Node):
    """A header's value: a string, or unknown where the message has none."""

    name: str


@dataclass(frozen=True)
class Literal(Node):
    """A value that is written in the text."""

    value: Constant


@dataclass(frozen=True)
class AllOf(Node):
    """Conditions with `and` between them; none of them is an AllOf."""

    terms: tuple[Node, ...]

    @property
    def below(self) -> tuple[Node, ...]:
        return self.terms


@dataclass(frozen=True)
class AnyOf(Node):
    """Conditions with `or` between them; none of them is an AnyOf."""

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
    """Two values and one of `= <> > >= < <=`."""

    sign: str
    left: Node
    right: Node

    @property
    def below(self) -> tuple[Node, ...]:
        return self.left, self.right


@dataclass(frozen=True)
class IsNull(Node):
    """Whether a value is unknown; `negated` asks whether it is known."""

    operand: Node
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class Between(Node):
    """Whether a number lies between two others, or is one of them."""

    operand: Node
    low: Node
    high: Node
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return self.operand, self.low, self.high


@dataclass(frozen=True)
class OneOf(Node):
    """Whether a header has one of some values, which are sorted."""

    header: HeaderName
    values: tuple[str, ...]
    negated: bool

    @property
    def below(self) -> tuple[Node, ...]:
        return (self.header,)


@dataclass(frozen=True)
class PartOf(Node):
    """Whether a string contains another one, or starts or ends with it; `word` says which."""

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
    """Return the names of the headers that a condition looks at."""
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
