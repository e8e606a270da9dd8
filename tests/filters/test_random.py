"""Random conditions mean what a naive evaluator says, and random text is read or refused.

The evaluator works on trees of tuples and shares no code with fmq/filters. It was written from
RocketMQ's rules: three values, both sides always read, numbers as fractions. Trees become text in
many ways: with other case, blanks, comments and brackets than the normal form has.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fmq import filters
from fmq.errors import BadFilter
from tests.budget import within_budget

Tree = tuple[Any, ...]
NAMES = ("a", "b", "A", "_x$1")
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

headers_of_a_message = st.dictionaries(
    st.sampled_from(NAMES),
    st.sampled_from(
        ["5", "5.5", "-1", "+7", "1e1", "abc", "true", "TRUE", "false", "", "it's", "6"]
    ),
    max_size=4,
)
numbers = st.sampled_from([5, 5.5, 6, -1, 0, 1, 7, 10, 2**40, 2.5e3])
strings = st.sampled_from(["5", "5.5", "abc", "b", "true", "", "it's", "'", "or", "--", "/*"])
truths = st.sampled_from([True, False])
header = st.tuples(st.just("header"), st.sampled_from(NAMES))
number = st.tuples(st.just("const"), numbers)
string = st.tuples(st.just("const"), strings)
truth = st.tuples(st.just("const"), truths)


def ordered() -> st.SearchStrategy[Tree]:
    return header | number


def is_equality(tree: Tree) -> bool:
    """Return whether neither side is one that RocketMQ refuses."""
    left, right = tree[2:]
    if ("const", None) in (left, right):
        return False
    constants = left[0] == right[0] == "const"
    return not (constants and isinstance(left[1], bool) and not isinstance(right[1], bool))


def is_between(tree: Tree) -> bool:
    _, _, low, high, negated = tree
    return negated or not (low[0] == high[0] == "const") or low[1] <= high[1]


simple: st.SearchStrategy[Tree] = st.one_of(
    st.tuples(st.just("compare"), st.sampled_from(["<", ">", "<=", ">="]), ordered(), ordered()),
    st.tuples(
        st.just("compare"),
        st.sampled_from(["=", "<>"]),
        header | number | string | truth,
        header | number | string | truth,
    ).filter(is_equality),
    st.tuples(st.just("between"), ordered(), ordered(), ordered(), truths).filter(is_between),
    st.tuples(st.just("in"), header, st.lists(strings, min_size=1, max_size=6), truths),
    st.tuples(st.just("null"), header | number | string, truths),
    st.tuples(
        st.just("part"),
        st.sampled_from(["contains", "startswith", "endswith"]),
        header | string | number,
        strings,
        truths,
    ),
    st.tuples(st.just("const"), st.sampled_from([True, False, None])),
)


def combined(below: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    terms = st.lists(below, min_size=2, max_size=3).map(tuple)
    either = below | header | string | number
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), terms),
        st.tuples(st.just("not"), below),
        st.tuples(st.just("null"), below, truths),
        st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), below, either).filter(
            is_equality
        ),
        st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), either, below).filter(
            is_equality
        ),
    )


conditions = st.recursive(simple, combined, max_leaves=10)


# --- from a tree to one of its texts ------------------------------------------------------------


def written(tree: Tree, dice: random.Random) -> str:
    """Return a text for `tree`."""

    def word(text: str) -> str:
        return "".join(dice.choice([each.lower(), each.upper()]) for each in text)

    def gap() -> str:
        return dice.choice([" ", "  ", "\n", " /* or ' */ ", "\t", " -- and (\n "])

    def join(*parts: str) -> str:
        return gap().join(parts)

    def constant(value: Any) -> str:
        if value is None or isinstance(value, bool):
            return word({None: "null", True: "true", False: "false"}[value])
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        text = str(abs(value)) + ("L" if value > 9 and isinstance(value, int) else "")
        return dice.choice(["-", "- ", "- + "]) + text if value < 0 else text

    def operand(tree: Tree) -> str:
        text = any_of(tree)
        return text if tree[0] in ("header", "const") and dice.random() < 0.8 else f"({text})"

    def no(negated: bool) -> list[str]:
        return [word("not")] if negated else []

    def any_of(tree: Tree) -> str:
        match tree:
            case "header", name:
                return str(name)
            case "const", value:
                return constant(value)
            case ("and" | "or") as name, terms:
                texts = []
                for term in terms:
                    needed = term[0] == "or" or (name == "or" and term[0] == "or")
                    text = any_of(term)
                    texts.append(f"({text})" if needed or dice.random() < 0.2 else text)
                return f"{gap()}{word(name)}{gap()}".join(texts)
            case "not", below:
                return join(word("not"), operand(below))
            case "compare", sign, left, right:
                blank = dice.choice(["", " "])
                return f"{operand(left)}{blank}{sign}{blank}{operand(right)}"
            case "between", value, low, high, negated:
                end = [word("between"), operand(low), word("and"), operand(high)]
                return join(operand(value), *no(negated), *end)
            case "in", name, values, negated:
                listed = f"{gap()},{gap()}".join(map(constant, values))
                return join(operand(name), *no(negated), word("in"), f"({listed})")
            case "null", value, negated:
                return join(operand(value), word("is"), *no(negated), word("null"))
            case "part", name, value, part, negated:
                return join(operand(value), *no(negated), word(name), constant(part))
        raise AssertionError(tree)

    return any_of(tree)


# --- the naive evaluator ------------------------------------------------------------------------


class Incomparable(Exception):
    """RocketMQ raises here, and its broker takes the message as one that does not match."""


def fraction(value: Any) -> Fraction:
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        raise Incomparable(value)
    return Fraction(value)


def equals(left: Any, right: Any) -> bool | None:
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    kinds = {type(left), type(right)}
    if kinds == {str}:
        return bool(left == right)
    if kinds == {bool}:
        return left is right
    if bool in kinds and str in kinds:
        text, value = (left, right) if isinstance(left, str) else (right, left)
        return (text.upper() == "TRUE") is value
    return False if bool in kinds else fraction(left) == fraction(right)


SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda x, y: x < y,
    ">": lambda x, y: x > y,
    "<=": lambda x, y: x <= y,
    ">=": lambda x, y: x >= y,
}


def inverted(value: bool | None) -> bool | None:
    return {None: None, True: False, False: True}[value]


def value_of(tree: Tree, headers: dict[str, str]) -> Any:
    def value(tree: Tree) -> Any:
        return value_of(tree, headers)

    match tree:
        case "header", name:
            return headers.get(name)
        case "const", known:
            return known
        case ("and" | "or") as word, terms:
            decisive = word == "or"
            seen = []
            for term in terms:
                seen.append(value(term))
                if seen[-1] is decisive:
                    return decisive
            return None if None in seen else not decisive
        case "not", below:
            return inverted(value(below))
        case "compare", "=", left, right:
            return equals(value(left), value(right))
        case "compare", "<>", left, right:
            return inverted(equals(value(left), value(right)))
        case "compare", sign, left, right:
            both = value(left), value(right)
            return None if None in both else SIGNS[sign](*map(fraction, both))
        case "between", middle, low, high, False:
            above = ("compare", ">=", middle, low)
            return value(("and", [above, ("compare", "<=", middle, high)]))
        case "between", middle, low, high, True:
            under = ("compare", "<", middle, low)
            return value(("or", [under, ("compare", ">", middle, high)]))
        case "in", name, values, negated:
            found = value(name)
            return None if found is None else (found in values) != negated
        case "null", below, negated:
            return (value(below) is None) != negated
        case "part", word, below, part, negated:
            if part == "":
                return False
            text = value(below)
            if not isinstance(text, str):
                return False
            places = {
                "contains": part in text,
                "startswith": text[: len(part)] == part,
                "endswith": text[-len(part) :] == part,
            }
            return places[word] != negated
    raise AssertionError(tree)


def naive(tree: Tree, headers: dict[str, str]) -> bool:
    try:
        return value_of(tree, headers) is True
    except Incomparable:
        return False


# --- what must hold -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of the strategy itself
@settings(max_examples=within_budget(150))
@given(conditions, st.lists(headers_of_a_message, max_size=5), st.integers(0, 2**32))
def test_a_random_condition_means_what_the_naive_evaluator_says(
    tree: Tree, messages: list[dict[str, str]], seed: int
) -> None:
    """So do its opposite, in brackets, and its normal form."""
    dice = random.Random(seed)
    text = written(tree, dice)
    found = filters.sql(text)
    opposite = filters.sql(f"not ({text})")
    for headers in [{}, *messages]:
        assert found.matches(headers) is naive(tree, headers), (text, headers)
        assert opposite.matches(headers) is naive(("not", tree), headers), (text, headers)
    again = filters.sql(found.normal)
    assert again == found
    assert again.normal == found.normal
    assert [again.matches(each) for each in messages] == [found.matches(each) for each in messages]
    assert filters.sql(written(tree, dice)) == found, "another text of the same tree"


TOKENS = """
    a b 5 -5 0 1.5 'x' '' TRUE null is not and or between in contains = <> < >= ( ) , + -
    /* */ -- ' . * 1e5 L
"""
tokens = st.sampled_from([*TOKENS.split(), "\n"])


@given(st.text() | st.lists(tokens, max_size=20).map(" ".join) | st.lists(tokens).map("".join))
@example("a in (")
@example("(" * 5000)
def test_random_text_is_read_or_refused(text: str) -> None:
    """Nothing but BadFilter is raised, its column lies in the text, and what is read is stable."""
    makers: list[Callable[[str], filters.Filter]] = [filters.sql, filters.tags]
    for make in makers:
        made = refusal = None
        try:
            made = make(text)
        except BadFilter as error:
            refusal = error
        if refusal is not None:
            assert 1 <= refusal.column <= len(text) + 1
            assert str(refusal).endswith("^")
            continue
        assert made is not None
        made.matches_message("x", {"a": "5", "b": "x"})
        again = filters.stored(made.kind, made.normal)
        assert (again, again.normal, hash(again)) == (made, made.normal, hash(made))


@given(st.text(), st.text(alphabet="0123456789+-._eE infa٣\x1f"))
def test_random_headers_never_raise(text: str, digits: str) -> None:
    found = filters.sql("a > 5 or b = 5 or a = TRUE or a between b and 9 or a contains '5'")
    for value in (text, digits):
        found.matches({"a": value, "b": value})


@given(st.lists(st.sampled_from(["a", "b", "c d", " ", "", "x|y", "\t e"]), min_size=1), st.text())
def test_random_tags_are_those_between_the_bars(parts: list[str], other: str) -> None:
    wanted = {part.strip() for part in parts} - {""}
    text = "||".join(parts)
    if text and not wanted:
        with pytest.raises(BadFilter):
            filters.tags(text)
        return
    found = filters.tags(text)
    for tag in {*wanted, other, "a", "b"}:
        assert found.matches(tag) is (not text or tag in wanted)
