"""What was posted is written by the next write, or by the committer after a pause."""

from __future__ import annotations

import threading

from fmq.store.posts import Posts
from tests.store.sharing import PATIENCE_SECONDS, Shared


def test_the_committer_writes_what_was_posted() -> None:
    shared = Shared(committer=True)
    published = threading.Event()
    shared.queue.on_published = lambda pending: published.set()
    shared.queue.post(shared._plan(0), "posted", lambda: False)
    assert published.wait(PATIENCE_SECONDS), "no write has come"
    assert shared.published == shared.durable() == ["posted"]
    shared.let_go()


def test_a_call_takes_along_what_was_posted() -> None:
    shared = Shared(committer=True)
    shared.queue.post(shared._plan(0), "posted", lambda: False)
    with shared.lock:
        assert shared.queue.owes
    shared.send("called")
    assert shared.published == shared.durable() == ["posted", "called"]
    assert not shared.queue.owes
    shared.let_go()


def test_what_is_posted_during_a_write_waits_for_the_next() -> None:
    shared = Shared(committer=True)
    with shared.writing(lambda: shared.send("leader")) as leader:
        shared.queue.post(shared._plan(0), "posted", lambda: False)
    leader.ended()
    assert shared.queue.owes or shared.published == ["leader", "posted"]
    shared.queue.catch_up()
    assert shared.published == shared.durable() == ["leader", "posted"]
    shared.let_go()


def test_it_is_due_after_a_whole_pause_and_not_before() -> None:
    posts = Posts()
    posts.add(3)
    assert not posts.is_due(3), "it may have been posted at the end of the pause"
    assert posts.is_due(3)


def test_calls_that_follow_each_other_need_no_write_of_the_committer() -> None:
    posts = Posts()
    posts.are_watched = True
    for write in range(5):
        posts.add(write)
        assert not posts.is_due(write)
    assert not posts.is_due(5), "the last one was taken along"
    assert not posts.are_watched, "so it sleeps until it is woken"


def test_what_is_posted_while_the_committer_watches_is_seen_after_the_next_pause() -> None:
    posts = Posts()
    posts.are_watched = True
    posts.add(1)
    assert not posts.is_due(2)
    posts.add(2)
    assert not posts.is_due(2)
    assert posts.are_watched
    assert posts.is_due(2)


def test_a_hurry_is_asked_for_once() -> None:
    posts = Posts()
    assert not posts.hurry(0)
    posts.add(0)
    assert posts.hurry(0)
    assert not posts.hurry(0)
    posts.add(1)
    assert posts.hurry(1)
