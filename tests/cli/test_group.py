"""`fmq group` and `fmq topic`, on a directory at rest and on a live one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fmq
from tests.cli.command import fmq_json, fmq_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send_many("orders", [b"0", b"1", b"2"])
        with engine.consumer("orders", group="billing") as consumer:
            for delivery in consumer.poll():
                delivery.ack()
    return tmp_path / "shop"


def progress(path: Path) -> dict[str, tuple[int, int]]:
    code, lines, _ = fmq_json("group", "list", path)
    assert code == 0
    return {line["group"]: (line["acked_below"], line["unread"]) for line in lines}


@pytest.mark.parametrize("is_live", [False, True])
def test_a_group_is_moved_and_deleted(path: Path, *, is_live: bool) -> None:
    engine = fmq.open(path) if is_live else None
    if engine is not None:
        engine.serve()
    assert progress(path) == {"billing": (3, 0)}
    assert fmq_json("group", "seek", path, "billing", "orders", "--offset", "1").code == 0
    assert progress(path) == {"billing": (1, 2)}
    assert fmq_json("group", "skip", path, "billing", "orders", "0", "1").code == 0
    assert progress(path) == {"billing": (2, 1)}
    assert fmq_json("group", "seek", path, "billing", "orders", "--to", "latest").code == 0
    since = "2000-01-01T00:00:00Z"
    assert fmq_json("group", "seek", path, "billing", "orders", "--time", since).code == 0
    assert progress(path) == {"billing": (0, 3)}
    assert fmq_json("group", "show", path, "billing").lines[0]["unread"] == 3
    done = fmq_json("group", "delete", path, "billing")
    assert done.code == 0
    assert "3 messages that it had not acked lose this reader" in done.lines[0]["text"]
    assert progress(path) == {}
    if engine is not None:
        engine.close()


@pytest.mark.parametrize(
    ("whom", "shown"), [(("--group", "billing"), "group"), (("--topic", "orders"), "topic")]
)
def test_a_pause_is_shown_until_the_resume(path: Path, whom: tuple[str, str], shown: str) -> None:
    assert fmq_json("pause", path, *whom, "--reason", "slow", "--by", "ann").code == 0
    [line] = fmq_json("group", "list", path).lines
    assert (line["paused"]["of"], line["paused"]["by"]) == (shown, "ann")
    assert "by ann: slow" in " ".join(fmq_table("group", "list", path).split())
    with fmq.open(path) as engine, engine.consumer("orders", group="billing") as consumer:
        engine.send("orders", b"3")
        assert consumer.poll() == []
    assert fmq_json("resume", path, *whom).code == 0
    assert fmq_json("group", "list", path).lines[0]["paused"] is None


def test_a_limit_is_shown_until_it_ends(path: Path) -> None:
    why = "--reason", "slow", "--by", "ann"
    assert fmq_json("limit", path, "billing", "--concurrency", "1", "--rate", "2.5", *why).code == 0
    [line] = fmq_json("group", "list", path).lines
    assert (line["limit"]["concurrency"], line["limit"]["rate"]) == (1, 2.5)
    shown = " ".join(fmq_table("group", "list", path).split())
    assert "1 at once, 2.5 a second, since" in shown and "by ann: slow" in shown
    assert fmq_json("limit", path, "billing", "--concurrency", "1", *why).code == 0
    with fmq.open(path) as engine, engine.consumer("orders", group="billing") as consumer:
        engine.send_many("orders", [b"3", b"4"])
        assert len(consumer.poll()) == 1
    assert fmq_json("limit", path, "billing", "--none", *why).code == 0
    assert fmq_json("group", "list", path).lines[0]["limit"] is None


def test_a_limit_by_key_is_shown_in_words(path: Path) -> None:
    by_key = "--concurrency-by-key", "2", "--rate-by-key", "0.5", "--fair"
    assert fmq_json("limit", path, "billing", *by_key, "--reason", "slow").code == 0
    shown = " ".join(fmq_table("group", "list", path).split())
    assert "2 of a key at once, 0.5 of a key a second, keys take turns" in shown
    assert fmq_json("limit", path, "billing", "--fair", "--reason", "slow").code == 0
    limit = fmq_json("group", "list", path).lines[0]["limit"]
    assert (limit["concurrency_by_key"], limit["fair"]) == (None, True)


@pytest.mark.parametrize("words", [(), ("--none", "--rate", "3")])
def test_a_limit_names_a_number_or_none(path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        fmq_json("limit", path, "billing", *words, "--reason", "slow")
    assert fmq_json("group", "list", path).lines[0]["limit"] is None


def test_release_and_put_out_work_on_members_of_a_live_engine(path: Path) -> None:
    with fmq.open(path) as engine, engine.serve():
        engine.send_many("orders", [b"3", b"4"])
        with engine.consumer("orders", group="billing", member="ann") as ann:
            assert len(ann.poll(limit=2)) == 2
            (shown,) = fmq_json("group", "show", path, "billing").of("member")
            assert (shown["holds"], shown["pid"]) == (2, os.getpid())
            why = "--reason", "it hangs"
            assert fmq_json("group", "release", path, "billing", "ann", *why).code == 0
            assert [each.state for each in engine.group("billing").in_hand()] == ["waits"]
            assert fmq_json("group", "put-out", path, "billing", "ann", *why).code == 0
            with pytest.raises(fmq.errors.MemberPutOut, match="it hangs"):
                ann.poll()
            assert fmq_json("group", "release", path, "billing", "ann", *why).code == 3
        assert (
            fmq_json("group", "purge", path, "billing", "orders", "--to", "latest", *why).code == 0
        )
        assert progress(path) == {"billing": (5, 0)}
    lines = fmq_json("records", path, "--kind", "CHANGE").lines
    assert lines[-1]["says"].startswith("group billing passes over 2 messages")
    assert lines[-1]["says"].endswith(": it hangs")


def test_replayed_messages_and_filters_are_shown(path: Path) -> None:
    """Purging all dead letters reaches those that were replayed."""
    with fmq.open(path) as engine:
        engine.send_many("orders", [b"3", b"4"])
        with engine.consumer("orders", group="billing") as consumer:
            for delivery in consumer.poll():
                delivery.reject("no")
        engine.dead_letters("billing").replay()
        engine.group("billing").set_filter("orders", fmq.filters.tags("paid"))
    for command in (("group", "list"), ("group", "show"), ("info",)):
        name = ["billing"] if command[-1] == "show" else []
        (line,) = fmq_json(*command, path, *name).of("group")
        assert (line["unread"], line["replayed"], line["filter"]) == (2, 2, "tags:paid")
    assert fmq_json("dead", "purge", path, "billing", "--all").lines[0]["dead_letters"] == 2
    assert progress(path) == {"billing": (5, 0)}


def test_wrong_group_commands_are_refused_with_a_message(path: Path) -> None:
    code, _, error = fmq_json("group", "show", path, "biling")
    assert code == 3
    assert "there is no group 'biling'" in error and "Did you mean billing?" in error
    assert "`fmq group list" in fmq_json("why", path, "nothing like it").error
    code, _, error = fmq_json("group", "seek", path, "billing", "orders", "--offset", "9")
    assert code == 3
    assert "beyond the end" in error


def test_a_topic_is_made_enlarged_and_deleted(path: Path) -> None:
    assert len(fmq_json("topic", "create", path, "mails", "--queues", "2").lines) == 2
    assert len(fmq_json("topic", "add-queues", path, "mails", "1").lines) == 3
    names = [line["topic"] for line in fmq_json("topic", "list", path).lines]
    assert names == ["orders", "mails", "mails", "mails"]
    assert fmq_json("topic", "delete", path, "orders").code == 0
    assert "orders" not in [line["topic"] for line in fmq_json("topic", "list", path).lines]
    assert fmq_json("topic", "delete", path, "orders").code == 3
