"""Parses the text of a condition to a tree. It refuses values that can never be compared.

    condition   = term { "and" term } { "or" term { "and" term } }
    term        = comparison { ("=" | "<>") comparison | "is" ["not"] "null" }
    comparison  = operand { (">" | ">=" | "<" | "<=") operand
                          | ["not"] "between" operand "and" operand
                          | ["not"] "in" "(" string { "," string } ")"
                          | ["not"] ("contains" | "startswith" | "endswith") string }
    operand     = { "not" | "-" | "+" } ( string | number | "TRUE" | "FALSE" | "NULL"
                                        | header | "(" condition ")" )

This is RocketMQ's grammar (SelectorParser.jj). `not` binds more tightly than `=`, so what it
negates is mostly in brackets. Where we refuse more than RocketMQ does, docs/filters.md says why.
"""

from __future__ import annotations

import math

from fmq.errors import BadFilter
from fmq.filters.sql_scan import Token, tokens
from fmq.filters.sql_tree import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    HeaderName,
    IsNull,
    Literal,
    Node,
    Not,
    OneOf,
    PartOf,
    is_condition,
    text_of,
)

# How deep brackets and the tree may nest. This bounds the recursion of parsing and matching.
NESTING_MAX = 64
INTEGER_MAX = 2**63 - 1  # the largest number in a text, as in Java
CONSTANTS = {"true": True, "false": False, "null": None}
ORDERS = (">", ">=", "<", "<=")
PARTS = ("contains", "startswith", "endswith")
SHOWN_CHARACTERS = 40
A_VALUE = "a header, a number, a string in single quotes, TRUE, FALSE, NULL or ( is expected"


def parse(text: str) -> Node:
    """Return the tree of a condition. Raises BadFilter."""
    return _Parser(text).whole()


class _Parser:
    """Reads the tokens of one text from left to right. Each bracket takes four calls of
    recursion.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._brackets = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _step(self) -> Token:
        """Return the current token and step to the next."""
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, kind: str) -> bool:
        """Step to the next token and return True if the current one is of `kind`."""
        taken = self._token.kind == kind
        self._at += taken
        return taken

    def _expect(self, kind: str, what: str) -> Token:
        """Return the current token and step to the next. Raises BadFilter if it is not of
        `kind`.
        """
        if self._token.kind != kind:
            raise self._refused(self._token, f"{what} is expected")
        return self._step()

    def _refused(self, token: Token, reason: str) -> BadFilter:
        return BadFilter(self._text, token.column, reason)

    def _checked(self, node: Node, token: Token) -> Node:
        """Return `node`. Raises BadFilter if it is nested too deeply."""
        if node.depth > NESTING_MAX:
            raise self._refused(token, f"a condition is nested {NESTING_MAX} deep at most")
        return node

    # --- conditions -----------------------------------------------------------------------------

    def whole(self) -> Node:
        first = self._token
        node = self._terms()
        self._expect("end", "`and`, `or`, an operator or the end")
        return self._as_condition(node, first)

    def _terms(self) -> Node:
        """Read terms joined by `and` and `or`; `and` binds more tightly."""
        first = self._token
        node = self._term()
        if self._token.kind not in ("and", "or"):
            return node  # the brackets may hold a value instead of a condition
        groups = [[self._as_condition(node, first)]]
        while self._token.kind in ("and", "or"):
            is_or = self._step().kind == "or"
            start = self._token
            term = self._as_condition(self._term(), start)
            if is_or:
                groups.append([term])
            else:
                groups[-1].append(term)
        return self._checked(_any_of([_all_of(group) for group in groups]), first)

    def _as_condition(self, node: Node, first: Token, advice: str = "") -> Node:
        """Return `node`, whose first token is `first`. Raises BadFilter if it is no condition."""
        if isinstance(node, HeaderName):
            name = node.name
            reason = f"a header alone is no condition; write {name} = TRUE or {name} is not null"
            raise self._refused(first, reason + advice)
        if not is_condition(node):
            raise self._refused(first, f"{_shown(node)} is no condition")
        return node

    def _term(self) -> Node:
        left = self._comparison()
        while self._token.kind in ("=", "<>", "is"):
            operator = self._step()
            if operator.kind == "is":
                negated = self._take("not")
                self._expect("null", "`null`, or `not null`,")
                left = IsNull(left, negated)
            else:
                right = self._comparison()
                self._check_equals(left, right, operator)
                left = Compare(operator.kind, left, right)
            self._checked(left, operator)
        return left

    def _check_equals(self, left: Node, right: Node, operator: Token) -> None:
        for side in (left, right):
            if side == Literal(None):
                raise self._refused(operator, "nothing equals NULL; write `is null`")
        both = isinstance(left, Literal) and isinstance(right, Literal)
        if both and is_condition(left) and not is_condition(right):
            reason = f"{_shown(left)} cannot be compared with {_shown(right)}"
            raise self._refused(operator, reason)

    def _comparison(self) -> Node:
        left = self._operand()
        while True:
            operator = self._token
            if operator.kind in ORDERS:
                self._step()
                right = self._operand()
                self._check_ordered(operator, left, right)
                left = Compare(operator.kind, left, right)
            else:
                negated = self._take("not")
                word = self._token
                if word.kind == "between":
                    left = self._between(left, negated)
                elif word.kind == "in":
                    left = self._one_of(left, negated)
                elif word.kind in PARTS:
                    self._step()
                    left = PartOf(word.kind, left, self._string(), negated)
                elif negated:
                    expected = f"{', '.join(PARTS)}, between or in is expected"
                    raise self._refused(word, f"after `not`, {expected}")
                else:
                    return left
            self._checked(left, operator)

    def _check_ordered(self, operator: Token, *operands: Node) -> None:
        for node in operands:
            ordered = isinstance(node, HeaderName) or (
                isinstance(node, Literal) and isinstance(node.value, int | float)
            )
            if not ordered or is_condition(node):
                reason = f"`{operator.text}` compares numbers and headers, and not {_shown(node)}"
                raise self._refused(operator, reason)

    def _between(self, operand: Node, negated: bool) -> Node:
        word = self._step()
        low = self._operand()
        self._expect("and", "`and`, and the upper bound,")
        high = self._operand()
        self._check_ordered(word, operand, low, high)
        # RocketMQ lets `not between 10 and 0` pass, and so do we: it is always true.
        if isinstance(low, Literal) and isinstance(high, Literal) and not negated:
            assert isinstance(low.value, int | float)
            assert isinstance(high.value, int | float)
            if low.value > high.value:
                reason = f"nothing lies between {_shown(low)} and {_shown(high)}"
                raise self._refused(word, f"{reason}; write the lower bound first")
        return Between(operand, low, high, negated)

    def _one_of(self, operand: Node, negated: bool) -> Node:
        word = self._step()
        if not isinstance(operand, HeaderName):
            raise self._refused(word, f"`in` follows a header, and not {_shown(operand)}")
        self._expect("(", "(")
        values = {self._string()}
        while self._take(","):
            values.add(self._string())
        self._expect(")", ", or )")
        return OneOf(operand, tuple(sorted(values)), negated)

    # --- values ---------------------------------------------------------------------------------

    def _string(self) -> str:
        return _unquoted(self._expect("string", "a string in single quotes"))

    def _operand(self) -> Node:
        prefixes = []
        while self._token.kind in ("not", "-", "+"):
            prefixes.append(self._step())
        first = self._token
        if self._take("("):
            self._brackets += 1
            if self._brackets > NESTING_MAX:
                raise self._refused(first, f"brackets are nested {NESTING_MAX} deep at most")
            node = self._terms()
            self._expect(")", "`and`, `or`, an operator or )")
            self._brackets -= 1
        else:
            node = self._value()
        for prefix in reversed(prefixes):
            if prefix.kind == "not":
                condition = self._as_condition(node, first, ", and brackets behind `not`")
                node = self._checked(Not(condition), prefix)
            elif prefix.kind == "-":
                node = self._negative(node, prefix)
        return node

    def _negative(self, node: Node, minus: Token) -> Node:
        if not isinstance(node, Literal) or isinstance(node.value, str) or is_condition(node):
            raise self._refused(minus, "`-` belongs to a number that is written here")
        assert isinstance(node.value, int | float)
        return Literal(-node.value)

    def _value(self) -> HeaderName | Literal:
        token = self._token
        match token.kind:
            case "name":
                value: HeaderName | Literal = HeaderName(token.text)
            case "string":
                value = Literal(_unquoted(token))
            case "integer":
                value = Literal(self._integer(token))
            case "float":
                value = Literal(self._float(token))
            case "true" | "false" | "null":
                value = Literal(CONSTANTS[token.kind])
            case _:
                raise self._refused(token, A_VALUE)
        self._step()
        return value

    def _integer(self, token: Token) -> int:
        digits = token.text.rstrip("lL")
        # Look at the length first: converting thousands of digits is slow.
        if len(digits) > len(str(INTEGER_MAX)) or int(digits) > INTEGER_MAX:
            raise self._refused(token, f"a whole number is at most {INTEGER_MAX}")
        return int(digits)

    def _float(self, token: Token) -> float:
        value = float(token.text)
        if value == 0:
            raise self._refused(token, "RocketMQ refuses 0 with a point; write 0")
        if math.isinf(value):
            raise self._refused(token, "this number is too large")
        return value


def _shown(node: Node) -> str:
    """Return the text of `node` for an error; of a long text, the beginning."""
    text = text_of(node)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _unquoted(string: Token) -> str:
    return string.text[1:-1].replace("''", "'")


def _all_of(terms: list[Node]) -> Node:
    if len(terms) == 1:
        return terms[0]
    flat = [part for each in terms for part in (each.terms if isinstance(each, AllOf) else [each])]
    return AllOf(tuple(flat))


def _any_of(terms: list[Node]) -> Node:
    if len(terms) == 1:
        return terms[0]
    flat = [part for each in terms for part in (each.terms if isinstance(each, AnyOf) else [each])]
    return AnyOf(tuple(flat))
