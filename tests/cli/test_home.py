"""`fmq home` says who owns a home, and how far a cache is behind. It writes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import fmq
from tests.cli.command import COMMAND, ENVIRONMENT, fmq_json, fmq_piped, fmq_process


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
    done = fmq_process("verify", f"file://{tmp_path}/none")
    assert (done.returncode, "no home can be read" in done.stderr) == (3, True)
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


def test_a_wrong_line_costs_the_owner_nothing(tmp_path: Path) -> None:
    """A token that is missing is noticed before the home is taken over, not once it is needed."""
    home, listen = f"file://{tmp_path}/home", ("--listen", "127.0.0.1:0")
    with fmq.open(tmp_path / "a", home=home) as engine:
        for line in (["serve", tmp_path / "b", "--home", home], ["standby", home, tmp_path / "b"]):
            done = fmq_process(*line, *listen)
            assert (done.returncode, "a token is needed" in done.stderr) == (3, True), done.stderr
            done = fmq_process(*line, *listen, "--token-file", tmp_path / "none")
            assert (done.returncode, "cannot be read" in done.stderr) == (3, True), done.stderr
        done = fmq_process(*line, *listen, "--tls-cert", "cert.pem", "--tls-key", "key.pem")
        assert (done.returncode, "--tls-cert needs --tls-ca" in done.stderr) == (2, True)
        assert not (tmp_path / "b").exists()
        engine.send("orders", b"mine")
        assert fmq_json("home", home).of("home")[0]["term"] == 1


def test_a_home_says_where_its_data_went(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    done = fmq_process("move", tmp_path / "typo", home)
    assert (done.returncode, "No such file" in done.stderr) == (3, True)
    assert list(tmp_path.iterdir()) == []
    fmq.open(tmp_path / "a", home=home).close()
    assert fmq_json("home", home).of("home")[0]["moved"] is None
    assert fmq_json("move", home, tmp_path / "a").code == 0
    assert fmq_json("home", home).of("home")[0]["moved"].startswith(f"{tmp_path}/a on ")


def test_a_move_into_storage_without_room_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    """The limit of the length of a file stands for the room."""
    path, home = tmp_path / "a", f"file://{tmp_path}/home"
    with fmq.open(path) as engine:
        engine.send("orders", b"x" * 300_000)
    limited = ["sh", "-c", 'ulimit -f 200; exec "$@"', "sh", *COMMAND, "move", str(path), home]
    done = subprocess.run(limited, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "File too large" in done.stderr
    assert "run it again" in done.stderr
    with fmq.open(path) as engine:  # it is a store still
        engine.send("orders", b"y")
    assert fmq_json("move", path, home).code == 0
    with fmq.open(home, read_only=True) as reader:
        assert [len(each.body) for each in reader.read("orders")] == [300_000, 1]


def test_a_password_in_an_address_is_never_shown(tmp_path: Path) -> None:
    """Also by the verbs that refuse an address, and by what takes a directory alone."""
    address = "nats://shop:secret@127.0.0.1:1/shop"
    for line in (
        *(["send", address, "t", "x"], ["backup", address, tmp_path / "b"], ["serve", address]),
        *(["top", address], ["tail", address, "t"], ["config", address, "retain_bytes=1GiB"]),
        *(["read", address, "t"], ["verify", address], ["move", address, address]),
    ):
        said = fmq_piped(*line)
        assert (said.code, "secret" in said.error) == (3, False), said.error
        assert "nats://shop@127.0.0.1:1/shop" in said.error
    with pytest.raises(fmq.errors.BadName, match="nats://shop@127") as told:
        fmq.open(address)
    assert "secret" not in str(told.value)
