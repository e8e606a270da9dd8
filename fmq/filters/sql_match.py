"""Compiles a condition's tree to closures, which are called for each message.

Each takes `get`, which gives a header by name, or None. A test gives true, false or unknown
(None). Where a header is compared with a constant, the common case, a closure does it at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from fmq.filters.sql_tree import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    Constant,
    HeaderName,
    IsNull,
    Literal,
    Node,
    Not,
    OneOf,
    PartOf,
)
from fmq.filters.sql_values import equal, number_of, opposite, truth_of

Get = Callable[[str], str | None]
Test = Callable[[Get], bool | None]
Read = Callable[[Get], Constant]

ORDER: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
IS_PART: dict[str, Callable[[str, str], bool]] = {
    "contains": operator.contains,
    "startswith": str.startswith,
    "endswith": str.endswith,
}


def test_of(node: Node) -> Test:
    """Return the function that tests whether a condition is true, false or unknown."""
    match node:
        case Literal(bool() | None as value):
            return lambda get: value
        case AllOf(terms):
            return _all_of(tuple(map(test_of, terms)))
        case AnyOf(terms):
            return _any_of(tuple(map(test_of, terms)))
        case Not(operand):
            test = test_of(operand)
            return lambda get: opposite(test(get))
        case Compare("=" | "<>"):
            return _equality(node)
        case Compare():
            return _order(node)
        case Between():
            return _between(node)
        case IsNull(operand, negated):
            read = _read(operand)
            return lambda get: (read(get) is None) is not negated
        case OneOf(header, values, negated):
            return _one_of(header.name, frozenset(values), negated)
        case PartOf():
            return _part_of(node)
    raise AssertionError(node)


def _read(node: Node) -> Read:
    """Return the function that computes the value of `node`, which may be a condition."""
    match node:
        case HeaderName(name):
            return lambda get: get(name)
        case Literal(value):
            return lambda get: value
    return test_of(node)


def _all_of(tests: tuple[Test, ...]) -> Test:
    def all_of(get: Get) -> bool | None:
        found: bool | None = True
        for test in tests:
            result = test(get)
            if not result:
                if result is False:
                    return False
                found = None
        return found

    return all_of


def _any_of(tests: tuple[Test, ...]) -> Test:
    def any_of(get: Get) -> bool | None:
        found: bool | None = False
        for test in tests:
            result = test(get)
            if result:
                return True
            if result is None:
                found = None
        return found

    return any_of


def _equality(node: Compare) -> Test:
    wanted = node.sign == "="
    match node.left, node.right:
        case HeaderName(name), Literal(value) if value is not None:
            return _equals_constant(name, value, wanted)
    left, right = _read(node.left), _read(node.right)
    if wanted:
        return lambda get: equal(left(get), right(get))
    return lambda get: opposite(equal(left(get), right(get)))


def _equals_constant(name: str, value: str | int | float | bool, wanted: bool) -> Test:
    def equals_text(get: Get) -> bool | None:
        text = get(name)
        return None if text is None else (text == value) is wanted

    def equals_truth(get: Get) -> bool | None:
        text = get(name)
        return None if text is None else (truth_of(text) is value) is wanted

    def equals_number(get: Get) -> bool | None:
        text = get(name)
        return None if text is None else (number_of(text) == value) is wanted

    if isinstance(value, str):
        return equals_text
    return equals_truth if isinstance(value, bool) else equals_number


def _order(node: Compare) -> Test:
    compare = ORDER[node.sign]
    left, right = _read(node.left), _read(node.right)

    def ordered(get: Get) -> bool | None:
        first = left(get)
        if first is None:
            return None
        second = right(get)
        return None if second is None else compare(_number(first), _number(second))

    match node.left, node.right:
        case HeaderName(name), Literal(int() | float() as value):

            def ordered_constant(get: Get) -> bool | None:
                text = get(name)
                return None if text is None else compare(number_of(text), value)

            return ordered_constant
    return ordered


def _number(value: str | int | float) -> int | float:
    return number_of(value) if isinstance(value, str) else value


def _between(node: Between) -> Test:
    negated = node.negated
    match node.operand, node.low, node.high:
        case HeaderName(name), Literal(int() | float() as low), Literal(int() | float() as high):

            def between_constants(get: Get) -> bool | None:
                text = get(name)
                return None if text is None else (low <= number_of(text) <= high) is not negated

            return between_constants
    if negated:
        below = Compare("<", node.operand, node.low)
        return _any_of((_order(below), _order(Compare(">", node.operand, node.high))))
    at_least = Compare(">=", node.operand, node.low)
    return _all_of((_order(at_least), _order(Compare("<=", node.operand, node.high))))


def _one_of(name: str, values: frozenset[str], negated: bool) -> Test:
    def one_of(get: Get) -> bool | None:
        text = get(name)
        return None if text is None else (text in values) is not negated

    return one_of


def _part_of(node: PartOf) -> Test:
    is_part, part, negated = IS_PART[node.word], node.part, node.negated
    if not part:
        return lambda get: False  # as in RocketMQ, this is false, negated or not
    read = _read(node.operand)

    def part_of(get: Get) -> bool:
        text = read(get)
        return isinstance(text, str) and is_part(text, part) is not negated

    return part_of
