"""Whatever a text is, it is shown and obeyed by nobody."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.dash.dash_request import fields_of, number_of, time_of
from fmq.dash.markup import join, lines, link, tag
from fmq.dash.sparkline import sparkline
from fmq.errors import BadOption
from fmq.findings.text import plain, printable_lines

TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)


@given(TEXTS)
def test_a_text_becomes_no_markup(text: str) -> None:
    """There is no angle bracket in it, and no quote within an attribute."""
    made = tag("p", text, title=text)
    found = re.fullmatch(r'<p title="([^"<>]*)">([^<>]*)</p>', made)
    assert found, made
    assert unescape(found[2]) == plain(text)
    assert unescape(lines(text)) == printable_lines(text)
    assert "<" not in lines(text)


@given(TEXTS, TEXTS)
def test_a_link_brings_back_the_texts_that_it_has(first: str, second: str) -> None:
    """Also a topic whose bytes are no UTF-8."""
    made = link("group", name=first, to=second, left_out=None)
    page, _, query = made.partition("?")
    assert page == "group" and query.isascii()
    assert fields_of(query) == {"name": first, "to": second}


@pytest.mark.parametrize("address", ["javascript:alert(1)", "//evil.example", "group"])
def test_an_address_comes_from_link_alone(address: str) -> None:
    with pytest.raises(AssertionError, match="addresses come from link"):
        tag("a", "here", href=address)


@pytest.mark.parametrize("name", ["onclick", "style"])
def test_no_element_has_a_script_or_a_style_of_its_own(name: str) -> None:
    with pytest.raises(AssertionError, match="policy"):
        tag("p", **{name: "x"})


def test_children_are_shown_as_people_read_them() -> None:
    assert join(1234567, None, True, ["a", tag("br")], b"\xff") == "1,234,567yesa<br>0xff"


def test_a_curve_is_drawn_of_numbers_and_an_escaped_title() -> None:
    made = sparkline("<&>", [0.0, 5.0, 10.0], [10.0, 0.0, 0.0])
    assert "<title>&lt;&amp;&gt;</title>" in made
    assert 'points="0.0,39.0 120.0,20.0 240.0,1.0"' in made
    assert "polyline" not in sparkline("one look is no curve", [1.0])


@pytest.mark.parametrize("said", ["", "-1", "1e3", "²", "9" * 20, "x" * 100])
def test_what_is_no_number_is_refused(said: str) -> None:
    with pytest.raises(BadOption, match="must be a number"):
        number_of(said, "queue")


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert time_of("2026-11-24T12:00") == time_of("2026-11-24T13:00+01:00")
    with pytest.raises(BadOption, match="no offset, and no time"):
        time_of("yesterday")


def test_fields_that_are_no_text_are_read_nevertheless() -> None:
    assert fields_of("a=%ff&b=%ed%a0%80&c") == {"a": "\ufffd", "b": "\ufffd" * 3, "c": ""}
