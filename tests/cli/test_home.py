"""`fmq home` says who owns a home, and how far a cache is behind. It writes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fmq
from tests.cli.command import fmq_json, fmq_piped, fmq_process


def test_the_owner_is_named_and_goes_on(tmp_path: Path) -> None:
    home, path = f"file://{tmp_path}/home", tmp_path / "a"
    with fmq.open(path, home=home) as engine:
        engine.send("t", b"1")
        (said,) = fmq_json("home", home, path).of("home")
        assert (said["pid"], said["term"]) == (os.getpid(), 1)
        assert said["position"] == engine.stats().position
        behind = said["behind"]
        assert (said["floor"], said["beat_seconds"]) == (0, None)
        engine.send("t", b"2")
        (said,) = fmq_json("home", home, path).of("home")
        assert said["behind"] == behind + 1
        shown = fmq_process("home", home, "--format", "table")
        assert f"process {os.getpid()} on" in shown.stdout
        assert "DIR" not in shown.stdout
        engine.send("t", b"3")
    with fmq.open(tmp_path / "b", home=home):
        assert fmq_json("home", home).of("home")[0]["term"] == 2


def test_what_is_no_home_is_refused_and_not_made(tmp_path: Path) -> None:
    done = fmq_process("home", f"file://{tmp_path}/none")
    assert (done.returncode, "No such file or directory" in done.stderr) == (3, True)
    done = fmq_process("home", "shop")
    assert "not the address of a home" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    fmq.open(tmp_path / "a", home=home).close()
    fmq.open(tmp_path / "b").close()
    done = fmq_process("home", home, tmp_path / "b")
    assert (done.returncode, "is no cache of a home" in done.stderr) == (3, True)


LOOKS = (
    *("read DIR orders", "find DIR orders k", "tail DIR orders --no-follow", "topics DIR"),
    *("topics DIR --bytes", "topic list DIR", "records DIR", "tx list DIR", "tx show DIR TX"),
    *("group list DIR", "delayed list DIR", "schedule list DIR"),
    *("dead list DIR", "dead list DIR mail", "dead show DIR mail 0"),
)


def test_what_is_in_a_home_is_shown_without_its_directory(tmp_path: Path) -> None:
    home, path = f"file://{tmp_path}/home", tmp_path / "a"
    with fmq.open(path, home=home) as engine:
        engine.send("orders", b"lamp", key="k")
        with engine.consumer("orders", group="mail") as consumer:
            consumer.poll()[0].reject("no such customer")
        tx = engine.transaction(producer="shop")
        tx.send("orders", b"open")
        tx.prepare()
        for look in LOOKS:
            words = look.replace("TX", tx.tx_id).split()
            here, there = (
                fmq_json(*(where if word == "DIR" else word for word in words))
                for where in (path, home)
            )
            for row in (*here.lines, *there.lines):
                for name in ("age_seconds", "behind_seconds"):
                    row.pop(name, None)
            assert (there.code, there.lines) == (0, here.lines), look
        (about,) = fmq_json("info", home).of("directory")
        assert about["writer"].startswith(f"process {os.getpid()} on")
        assert fmq_json("why", home).of("verdict")
        assert fmq_json("explain", home, tx.tx_id).of("step")


def test_a_home_is_not_followed_and_is_changed_by_its_owner_alone(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", home=home) as engine:
        engine.send("orders", b"lamp")
        end = engine.stats().position
    for verb in (["tail", home, "orders"], ["top", home]):
        done = fmq_process(*verb)
        assert (done.returncode, "as it is at one moment" in done.stderr) == (3, True)
    for verb in (
        *(
            ["send", home, "orders", "x"],
            ["config", home, "retain_bytes=1GiB"],
        ),
        *(["tx", "decide", home, "id", "commit", "--reason", "r"], ["tx", "ask", home, "id"]),
        *(["group", "delete", home, "g"], ["backup", home, f"{tmp_path}/b"]),
    ):
        done = fmq_process(*verb)
        assert (done.returncode, "an address" in done.stderr) == (3, True), (verb, done.stderr)
    with fmq.open(home, read_only=True) as reader:
        assert reader.stats().position == end


def test_a_take_over_by_hand_needs_no_directory(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", home=home) as engine:
        engine.send("orders", b"1")
        (said,) = fmq_json("take-over", home).of("home")
        assert (said["term"], said["beat_seconds"] >= 0) == (2, True)
        with pytest.raises(fmq.TakenOver, match="has taken over"):
            engine.send("orders", b"2")
    with fmq.open(tmp_path / "b", home=home) as engine:
        assert [each.body for each in engine.read("orders")] == [b"1"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "home"]
    with pytest.raises(SystemExit):
        fmq_piped("take-over", home, "--from-cache")


def test_a_client_of_a_home_is_told_how_to_look_at_it(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", home=home), pytest.raises(fmq.errors.NotServed) as told:
        fmq.connect(home, retry_for=0.01).send("orders", b"1")
    assert f"`fmq home {home}` says which machine has it" in str(told.value)
    assert "SERVER.log" not in str(told.value)
