"""`fmq send`, `read`, `tail`, `find` and `delayed`: messages by hand, and from pipes."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import fmq
from tests import warm
from tests.cli.command import COMMAND, ENVIRONMENT, Said, fmq_json, fmq_process, fmq_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fmq.open(tmp_path / "shop", background=False) as engine:
        engine.create_topic("wide", queues=2)
        for number in range(4):
            engine.send("wide", b"%d" % number, queue=number % 2, key=f"k{number % 2}")
    return tmp_path / "shop"


def sent(path: Path, *arguments: object, lines: str | bytes = b"") -> Said:
    """Run `fmq send` with `lines` as its input."""
    data = lines.encode() if isinstance(lines, str) else lines
    done = warm.run_bytes(["-m", "fmq", "send", path, *arguments], input=data, env=ENVIRONMENT)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return Said(done.returncode, said, done.stderr.decode())


def there(path: Path, topic: str) -> list[fmq.Message]:
    with fmq.open(path, read_only=True) as engine:
        return engine.read(topic)


def bodies(said: Said) -> list[str]:
    return [row["body"] for row in said.of("message")]


# --- send ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_live", [False, True])
def test_a_message_is_sent_with_all_that_it_may_have(path: Path, *, is_live: bool) -> None:
    engine = fmq.open(path) if is_live else None
    if engine is not None:
        engine.serve()
    what = ("--key", "k", "--tag", "new", "--header", "a=b=c", "--id", "M", "--priority", "7")
    done = fmq_json("send", path, "orders", "hello", *what, "--producer", "p", "--queue", 0)
    assert (done.code, done.of("receipt")[0]["offset"]) == (0, 0)
    again = fmq_json("send", path, "orders", "hello", "--id", "M")
    assert again.lines == done.lines
    (message,) = there(path, "orders")
    assert message[:4] == (b"hello", "k", "new", {"a": "b=c"})
    assert (message.message_id, message.priority, message.producer) == ("M", 7, "p")
    if engine is not None:
        engine.close()


def test_each_line_of_the_input_is_a_message(path: Path) -> None:
    done = sent(path, "lines", "--tag", "t", lines=b"one\n\n\xff three\nlast")
    assert (done.code, done.error) == (0, "")
    assert sum(row["count"] for row in done.of("receipt")) == 4
    assert [each.body for each in there(path, "lines")] == [b"one", b"", b"\xff three", b"last"]
    assert {each.tag for each in there(path, "lines")} == {"t"}


def test_a_line_is_sent_before_the_next_one_comes(path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "send", path, "slow"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        for number in range(2):
            child.stdin.write(b"%d\n" % number)
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["offset"] == number
        assert [each.body for each in there(path, "slow")] == [b"0", b"1"]
        child.stdin.close()
    assert child.returncode == 0


def test_messages_are_copied_by_a_pipe_of_two_commands(path: Path) -> None:
    late = datetime.now(UTC) + timedelta(days=1)
    message = fmq.Message(b"\xff\x00", "k", "t", {"a": "b"}, priority=3, expires_at=late)
    with fmq.open(path, background=False) as engine:
        engine.send_many("from", [message, b'{"a": 1}'])
    read = fmq_process("read", path, "from")
    assert sent(path, "to", "--json-lines", lines=read.stdout).code == 0
    assert [each[:4] + each[6:] for each in there(path, "to")] == [
        each[:4] + each[6:] for each in there(path, "from")
    ]


def test_a_line_of_json_may_name_a_queue_and_a_time(path: Path) -> None:
    late = datetime.now(UTC) + timedelta(days=20)
    lines = [
        {"topic": "a", "body": {"x": [1, "é"]}},
        {"topic": "wide", "queue": 1, "body_base64": base64.b64encode(b"\xff").decode()},
        {"topic": "a", "body": "late", "deliver_at": late.isoformat()},
    ]
    done = sent(path, "--json-lines", lines="\n".join(map(json.dumps, lines)) + "\n\n")
    assert (done.code, done.error) == (0, "")
    assert [row.get("due") for row in done.lines] == [None, None, late.isoformat()]
    assert [json.loads(each.body) for each in there(path, "a")] == [{"x": [1, "é"]}]


def test_a_transaction_sends_all_lines_or_none(path: Path) -> None:
    lines = '{"topic": "a", "body": "1"}\n{"topic": "b", "body": "2"}\n'
    done = sent(path, "--json-lines", "--tx-id", "T", lines=lines + "no\n")
    assert (done.code, done.lines) == (3, [])
    assert "line 3" in done.error and "Nothing was sent" in done.error
    done = sent(path, "--json-lines", "--tx-id", "T", lines=lines)
    assert [(row["topic"], row["count"]) for row in done.lines] == [("a", 1), ("b", 1)]
    assert fmq_json("tx", "show", path, "T").lines[0]["state"] == "committed"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[1]", "no JSON object"),
        ("{", "Expecting"),
        ("{}", "needs a 'body'"),
        ('{"body": "1", "body_base64": "MQ=="}', "needs a 'body'"),
        ('{"body_base64": "?"}', "line 2"),
        ('{"body": "1", "colour": "red"}', "no 'colour'"),
        ('{"body": "1", "deliver_at": "soon"}', "line 2"),
        ('{"body": "1", "deliver_at": 5}', "line 2"),
        ('{"body": "1", "key": 5}', "key"),
    ],
)
def test_the_error_for_a_wrong_line_says_what_was_sent_before_it(
    path: Path, line: str, says: str
) -> None:
    done = sent(path, "t", "--json-lines", lines='{"body": "0"}\n')
    assert done.code == 0
    done = sent(path, "t", "--json-lines", lines=f'{{"body": "1"}}\n{line}\n')
    assert done.code == 3
    assert says in done.error and "Nothing was sent" in done.error
    assert len(there(path, "t")) == 1


def test_a_body_that_is_too_large_ends_the_command_and_names_what_is_durable(path: Path) -> None:
    size = fmq.Options().message_bytes_max + 1
    with subprocess.Popen(
        [*COMMAND, "send", path, "t"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"small\n")
        child.stdin.flush()
        child.stdout.readline()
        _, error = child.communicate(b"x" * size)
    assert child.returncode == 3
    assert b"before (1 message) is durable" in error
    assert [each.body for each in there(path, "t")] == [b"small"]


def test_a_new_directory_is_made_only_when_asked_for(tmp_path: Path) -> None:
    new = tmp_path / "new"
    said = fmq_json("send", new, "t", "x")
    assert (said.code, "add --create, which makes it" in said.error) == (3, True)
    assert not new.exists()
    for verb in (("read", new, "t"), ("restore", new, tmp_path / "other"), ("config", new)):
        said = fmq_json(*verb)  # they make nothing, so their advice is another one
        assert (said.code, "mak" in said.error) == (3, False), said.error
    assert fmq_json("send", new, "t", "x", "--create").code == 0
    assert [each.body for each in there(new, "t")] == [b"x"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t", "x", "--header", "a"),
        ("t", "--id", "M"),
        ("t", "x", "--delay", "1", "--deliver-at", "2100-01-01"),
    ],
    ids=" ".join,
)
def test_a_send_that_makes_no_sense_sends_nothing(path: Path, arguments: tuple[str, ...]) -> None:
    assert sent(path, *arguments, lines="x\n").code == 2
    with fmq.open(path, read_only=True) as engine:
        assert {each.topic for each in engine.queues()} == {"wide"}


# --- read ---------------------------------------------------------------------------------------


def test_messages_of_several_queues_are_read_in_the_order_of_the_journal(path: Path) -> None:
    said = fmq_json("read", path, "wide")
    assert bodies(said) == ["0", "1", "2", "3"]
    assert [(row["queue"], row["offset"]) for row in said.lines] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert bodies(fmq_json("read", path, "wide", "--queue", 1)) == ["1", "3"]
    assert bodies(fmq_json("read", path, "wide", "--limit", 3)) == ["0", "1", "2"]
    assert bodies(fmq_json("read", path, "wide", "--limit", 0)) == []


def test_reading_begins_at_an_offset_a_time_or_so_many_before_the_end(path: Path) -> None:
    assert bodies(fmq_json("read", path, "wide", "--from", 1)) == ["2", "3"]
    assert bodies(fmq_json("read", path, "wide", "--from", -1)) == ["3"]
    assert bodies(fmq_json("read", path, "wide", "--from", -3)) == ["1", "2", "3"]
    time = fmq_json("read", path, "wide").lines[2]["time"]
    assert bodies(fmq_json("read", path, "wide", "--from", time)) == ["2", "3"]
    assert bodies(fmq_json("read", path, "wide", "--from", "2100-01-01")) == []
    assert bodies(fmq_json("tail", path, "wide", "--no-follow")) == ["0", "1", "2", "3"]


def test_reading_ends_before_an_offset_or_a_time(path: Path) -> None:
    """Each queue ends there."""
    assert bodies(fmq_json("read", path, "wide", "--until", 1)) == ["0", "1"]
    assert bodies(fmq_json("read", path, "wide", "--until", 9)) == ["0", "1", "2", "3"]
    time = fmq_json("read", path, "wide").lines[2]["time"]
    assert bodies(fmq_json("read", path, "wide", "--until", time)) == ["0", "1"]
    assert bodies(fmq_json("read", path, "wide", "--from", time, "--until", time)) == []
    assert fmq_process("read", path, "wide", "--until", 1, "--follow").returncode == 2


def test_only_messages_that_are_asked_for_are_shown(path: Path) -> None:
    with fmq.open(path, background=False) as engine:
        engine.send("wide", b"5", tag="new", headers={"amount": "7"}, queue=0)
    assert bodies(fmq_json("read", path, "wide", "--key", "k1")) == ["1", "3"]
    assert bodies(fmq_json("read", path, "wide", "--tag", "new")) == ["5"]
    assert bodies(fmq_json("read", path, "wide", "--filter", "amount > 5")) == ["5"]
    assert bodies(fmq_json("read", path, "wide", "--filter", "amount > 9")) == []
    assert bodies(fmq_json("read", path, "wide", "--key", "k1", "--limit", 1)) == ["1"]


def test_bodies_are_shown_raw_or_laid_out(path: Path) -> None:
    with fmq.open(path, background=False) as engine:
        engine.send_many("t", [b'{"a": [1]}', b"\xff\xfe", b"two\nlines"])
    raw = subprocess.run(
        [*COMMAND, "read", path, "t", "--raw"], env=ENVIRONMENT, capture_output=True, check=True
    )
    assert raw.stdout == b'{"a": [1]}\n\xff\xfe\ntwo\nlines\n'
    whole = fmq_table("read", path, "t", "--whole")
    assert '"a": [' in whole and "fffe" in whole and "t/0/2" in whole
    assert "0xfffe" in fmq_table("read", path, "t")


def test_a_topic_or_queue_that_is_not_there_is_an_error(path: Path) -> None:
    assert "no topic 'nope'" in fmq_json("read", path, "nope").error
    code, _, error = fmq_json("read", path, "wide", "--queue", 2)
    assert code == 3 and "the queues 0 to 1" in error
    with pytest.raises(SystemExit):
        fmq_json("read", path, "wide", "--filter", "a >")


@pytest.fixture
def following(path: Path) -> Iterator[Any]:
    with subprocess.Popen(
        [*COMMAND, "tail", path, "wide", "--from", "-1"], stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as child:
        yield child
        child.kill()


@pytest.mark.parametrize("is_served", [False, True])
def test_tail_shows_what_comes_in_any_queue(path: Path, request: Any, *, is_served: bool) -> None:
    with fmq.open(path) as engine:
        if is_served:
            engine.serve()
        child = request.getfixturevalue("following")
        assert json.loads(child.stdout.readline())["body"] == "3"
        for queue in (1, 0):
            engine.send("wide", b"to %d" % queue, queue=queue)
            assert json.loads(child.stdout.readline())["body"] == f"to {queue}"


def test_find_shows_the_messages_of_a_key_and_the_newest_first(path: Path) -> None:
    assert bodies(fmq_json("find", path, "wide", "k1")) == ["3", "1"]
    assert bodies(fmq_json("find", path, "wide", "k1", "--limit", 1)) == ["3"]
    assert fmq_json("find", path, "wide", "k9").code == 1


# --- delayed ------------------------------------------------------------------------------------


def test_delayed_messages_are_listed_and_recalled(path: Path) -> None:
    for body, delay in (("late", 1000), ("soon", 100)):
        assert fmq_json("send", path, "t", body, "--delay", delay).code == 0
    later = datetime.now(UTC) + timedelta(days=20)
    assert fmq_json("send", path, "other", "x", "--deliver-at", later.isoformat()).code == 0
    rows = fmq_json("delayed", "list", path).of("delayed")
    assert [row["topic"] for row in rows] == ["t", "t", "other"]
    assert rows[0]["due"] < rows[1]["due"]
    assert len(fmq_json("delayed", "list", path, "t").lines) == 2
    recall = ("delayed", "recall", path, rows[0]["position"])
    assert fmq_json(*recall).lines == [{**rows[0], "what": "recalled"}]
    again = fmq_json(*recall)
    assert again.code == 1 and "Nothing was changed" in again.error
    assert len(fmq_json("delayed", "list", path).lines) == 2


# --- schedules ----------------------------------------------------------------------------------


def test_schedules_are_made_listed_and_changed(path: Path) -> None:
    add = ("schedule", "add", path, "yearly", "0 0 1 1 *", "reports", "go")
    (made,) = fmq_json(*add, "--header", "a=b", "--by", "ann").of("schedule")
    assert (made["name"], made["cron"], made["body"], made["by"]) == (
        *("yearly", "0 0 1 1 *", "go", "ann"),
    )
    other = fmq_json("schedule", "add", path, "yearly", "0 0 2 1 *", "reports", "go")
    assert other.code == 3
    assert "--replace" in other.error or "replace=True" in other.error
    assert fmq_json("schedule", "run", path, "yearly").code == 0
    (message,) = fmq_json("read", path, "reports").of("message")
    assert message["headers"]["fmq-schedule"] == "yearly"
    assert message["headers"]["a"] == "b"
    assert fmq_json("schedule", "pause", path, "yearly", "--reason", "why not").code == 0
    (shown,) = fmq_json("schedule", "list", path).of("schedule")
    assert shown["paused"]["reason"] == "why not"
    assert fmq_json("schedule", "resume", path, "yearly").code == 0
    assert fmq_json("schedule", "remove", path, "yearly").code == 0
    assert fmq_json("schedule", "list", path).of("schedule") == []
    assert fmq_json("schedule", "run", path, "yearly").code == 3
