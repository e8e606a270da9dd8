"""What was posted is written by the next write, or by the committer after a pause."""

from __future__ import annotations

import threading

import pytest

from fmq.store.journal.callers import Waiter
from tests.interrupts import PATIENCE_SECONDS
from tests.store.sharing import Shared


def test_the_committer_writes_posted_appends() -> None:
    shared = Shared(committer=True)
    published = threading.Event()
    show = shared.queue._show

    def shown(upto: int) -> None:
        show(upto)
        published.set()

    shared.queue._show = shown
    shared.queue.post(shared._plan(0), "posted", lambda: False)
    assert published.wait(PATIENCE_SECONDS), "no write has come"
    assert shared.published == shared.durable() == ["posted"]
    shared.let_go()


def test_the_next_write_includes_posted_appends() -> None:
    shared = Shared(committer=True)
    shared.queue.post(shared._plan(0), "posted", lambda: False)
    with shared.lock:
        assert shared.queue.owes
    shared.send("called")
    assert shared.published == shared.durable() == ["posted", "called"]
    assert not shared.queue.owes
    shared.let_go()


def test_an_append_posted_during_a_write_waits_for_the_next_write() -> None:
    shared = Shared(committer=True)
    with shared.writing(lambda: shared.send("leader")) as leader:
        shared.queue.post(shared._plan(0), "posted", lambda: False)
    leader.ended()
    assert shared.queue.owes or shared.published == ["leader", "posted"]
    shared.queue.catch_up()
    assert shared.published == shared.durable() == ["leader", "posted"]
    shared.let_go()


COMMITTER = -1  # no thread has this number


@pytest.fixture
def shared() -> Shared:
    """A queue whose committer does nothing but what `pause` says."""
    shared = Shared()
    shared.queue.committer = Waiter(COMMITTER)
    return shared


def post(shared: Shared, text: str, *, awaited: bool = False) -> None:
    shared.queue.post(shared._plan(0), text, lambda: awaited)


def pause(shared: Shared) -> list[str]:
    """Let a pause of the committer pass; return all that is published."""
    shared.queue.lead_for_others(COMMITTER)
    return shared.published


def test_a_posted_append_is_due_after_one_whole_pause(shared: Shared) -> None:
    post(shared, "a")
    assert pause(shared) == [], "it may have been posted at the end of the pause"
    assert pause(shared) == ["a"]


def test_calls_that_follow_each_other_write_posted_appends_without_the_committer(
    shared: Shared,
) -> None:
    for _ in range(5):
        post(shared, "posted")
        pause(shared)
        shared.send("called")
    assert shared.queue.syncs == 5
    assert shared.queue.watches_posts
    pause(shared)
    assert shared.queue.syncs == 5, "the last one was taken along"
    assert not shared.queue.watches_posts, "so it sleeps until it is woken"


def test_an_append_posted_while_the_committer_watches_is_seen_after_its_next_pause(
    shared: Shared,
) -> None:
    post(shared, "a")
    pause(shared)
    shared.send("b")
    post(shared, "c")
    assert pause(shared) == ["a", "b"]
    assert shared.queue.watches_posts
    assert pause(shared) == ["a", "b", "c"]


def test_each_write_is_hurried_at_most_once(shared: Shared) -> None:
    for texts in ("a", "bc"):
        for text in texts:
            post(shared, text, awaited=True)
            assert len(shared.journal.pending.waiters) == 1
        assert pause(shared)[-len(texts) :] == [*texts]
