"""Addresses of tables: which can be written, and which are refused by name."""

from __future__ import annotations

import os
from collections.abc import Collection
from glob import escape, iglob
from urllib.parse import unquote, urlsplit

from fmq.arguments.path import ADDRESS
from fmq.errors import BadOption

NUMBER = "[0-9]" * 20
OF_JOURNALS = "*.seg", f"slots/{NUMBER}", f"floors/{NUMBER}"
"""Files of journals, and of homes in a directory."""


def located_at(url: str, schemes: Collection[str]) -> str:
    """Return `url`, or the absolute path that it is on this machine. Raises BadOption for a scheme
    that is none of `schemes`.
    """
    if not ADDRESS.match(url):
        return no_journal(os.path.abspath(url))
    scheme = urlsplit(url).scheme.lower()
    if scheme == "file":
        return no_journal(os.path.abspath(unquote(urlsplit(url).path)))
    if scheme not in schemes or not url[len(scheme) :].startswith("://"):
        known = ", ".join(f"{each}://" for each in schemes)
        raise BadOption(
            f"{url}: this format cannot be delivered to {scheme}:. It goes to a directory, "
            f"as file:///lake/orders or /lake/orders{f', or to {known}' if known else ''}. Nothing "
            "was written."
        )
    return url


def no_journal(path: str) -> str:
    """Return `path`. Raises BadOption if a journal or a home lies there, right above or right
    below: whoever tends a table removes files that are not of the table.
    """
    folder = escape(path)
    places = folder, os.path.dirname(folder), os.path.join(folder, "*")
    met = (each for place in places for of in OF_JOURNALS for each in iglob(f"{place}/{of}"))
    if found := next(met, None):
        raise BadOption(
            f"{path}: a journal has {found}, so no table is put there. Nothing was written. The "
            "table is the last one that is named: fmq deliver DIR... URL"
        )
    return path
