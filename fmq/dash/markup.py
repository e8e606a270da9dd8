"""HTML that no text can break: elements are made by calls, and each text in them is escaped.

`tag` makes an element. Its children are other elements, or texts and values, which are written as
people read them. An address comes from `link` alone, so no name becomes a script. There is no
other way from a text to markup in this room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from urllib.parse import urlencode

from fmq.findings.text import plain, printable, printable_lines

Child = object
"""A Markup, an iterable of children, or a value that is shown as text."""

VOID = frozenset({"br", "input", "link", "meta"})
ADDRESSES = frozenset({"action", "content", "href", "src"})


class Markup(str):
    """HTML that this module has made."""

    __slots__ = ()


class DashLink(str):
    """The address of one of our own pages, relative to the page that names it."""

    __slots__ = ()


def link(page: str, **query: object) -> DashLink:
    """Return the address of a page. What is None is left out of the query."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    # A lone surrogate is in no UTF-8; a topic may have one, as the journal has bytes.
    return DashLink(page + (f"?{urlencode(given, errors='surrogatepass')}" if given else ""))


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """Return an element. An attribute that is None or False is left out; one that is True has no
    value. `class_` is class, and `data_label` is data-label.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        assert key not in ADDRESSES or isinstance(value, DashLink), "addresses come from link"
        assert not key.startswith("on") and key != "style", "the policy of the page forbids both"
        parts.append(key if value is True else f'{key}="{_text(value)}"')
    opening = f"<{' '.join(parts)}>"
    if name in VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Return children one after the other."""
    return Markup("".join(map(_child, children)))


def lines(text: str) -> Markup:
    """Return a text of several lines. Marks that turn the direction of text are spelled out."""
    return Markup(escape(printable_lines(text)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, Iterable) and not isinstance(child, (str, bytes, Mapping)):
        return join(*child)
    return escape(plain(child))


def _text(value: object) -> str:
    return escape(printable(str(value)))
