"""Functions to call before and after each fork of this process."""

from __future__ import annotations

import os
from collections.abc import Callable

from fmq.posix.descriptors import IS_POSIX


def after_fork_in_child(call: Callable[[], None]) -> None:
    """Call `call` in each forked child, before any other such function."""
    if IS_POSIX:
        os.register_at_fork(after_in_child=call)


def around_forks(
    before: Callable[[], None], in_parent: Callable[[], None], in_child: Callable[[], None]
) -> None:
    """Call `before` ahead of each fork, and after it `in_parent` in the parent and `in_child` in
    the child.
    """
    if IS_POSIX:
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
