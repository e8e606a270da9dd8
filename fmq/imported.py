"""What is imported when it is first used is imported before its call has changed anything.

A process that has too many files open can import nothing: then the call is refused, and not in the
middle of what it does.
"""

from __future__ import annotations

import sys
from importlib import import_module

from fmq.errors import unreadable_within


def have(*modules: str) -> None:
    """See that `modules` are there to be imported; Unreadable where the machine refuses that."""
    for name in modules:
        if name not in sys.modules:
            with unreadable_within(name):
                import_module(name)
