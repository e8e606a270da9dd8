"""No fork while a thread asks a database: SQLite counts its locks in the process."""

from __future__ import annotations

import os
import threading

from fmq.bind.fork_guard import GUARD, ForkGuard


def test_a_fork_waits_for_a_connection_that_is_used() -> None:
    began, go_on, order = threading.Event(), threading.Event(), []

    def use() -> None:
        with GUARD.using():
            began.set()
            go_on.wait(60)
            order.append("used")

    thread = threading.Thread(target=use)
    thread.start()
    began.wait(60)
    threading.Timer(0.05, go_on.set).start()
    child = os.fork()
    if not child:
        os._exit(0 if order == ["used"] else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_connections_are_used_in_parent_and_child_after_a_fork() -> None:
    child = os.fork()
    if not child:
        with GUARD.using():
            os._exit(0)
    with GUARD.using():
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_thread_that_uses_a_connection_may_fork() -> None:
    """It waits only for a while, and for no thread but itself."""
    guard = ForkGuard()
    guard.patience = 0.01
    with guard.using():
        guard.before_fork()
        guard.after_in_parent()
