"""`fmq doctor`: what it says of a directory and its machine, and that it leaves nothing behind."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import fmq
from fmq.cli.doctor import EXTRAS, judge_mount
from fmq.machine.mounts import mount_of
from tests.cli.command import ROOT, contents, fmq_json, fmq_table

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 8:2 / /fast rw - ext4 /dev/sdb1 rw,nobarrier
24 22 0:40 / /fast/home rw - nfs4 server:/home rw,vers=4.2
25 22 0:41 / /dev/shm rw,nosuid - tmpfs tmpfs rw
"""


def test_a_directory_in_which_an_engine_runs_is_fit_and_not_touched(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop", background=False) as engine:
        engine.send("t", b"x")
        before = contents(tmp_path)
        done = fmq_json("doctor", tmp_path / "shop")
        assert contents(tmp_path) == before
        engine.send("t", b"y")
    assert done.code == 0
    found = {row["check"]: row["verdict"] for row in done.of("finding")}
    assert {found[name] for name in ("directory", "locks", "clock", "fmq")} == {"ok"}
    assert found["sync"] in ("ok", "doubtful")


def test_a_directory_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert fmq_json("doctor", tmp_path / "a" / "b").code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_bad_and_the_exit_code_says_so() -> None:
    done = fmq_json("doctor", "/proc/self")
    (found,) = [row for row in done.of("finding") if row["check"] == "directory"]
    assert (done.code, found["verdict"]) == (1, "bad")
    assert found["advice"]


@pytest.mark.parametrize(
    ("path", "verdict", "says"),
    [
        ("/srv/shop", "ok", ""),
        ("/fast/shop", "bad", "nobarrier"),
        ("/fast/home/ada", "bad", "fmq.open refuses it"),
        ("/dev/shm/shop", "doubtful", "the power"),
    ],
)
def test_a_file_system_is_judged_by_its_kind_and_its_options(
    path: str, verdict: str, says: str
) -> None:
    finding = judge_mount(*mount_of(path, MOUNTS))
    assert finding.verdict == verdict
    assert says in finding.advice


def test_doctor_says_on_a_terminal_what_to_do(tmp_path: Path) -> None:
    table = fmq_table("doctor", tmp_path)
    assert "what to do" in table and "times a second" in " ".join(table.split())


def test_each_extra_for_users_is_looked_for(tmp_path: Path) -> None:
    """But `bench`, whose peers fmq is measured beside, `java`, which has a line of its own, and
    second names.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = {"bench", "java", "home-s3", "home-postgres", "home-nats"}
    assert {*EXTRAS} == {*project["optional-dependencies"]} - others
    said = {row["check"]: row for row in fmq_json("doctor", tmp_path).of("finding")}
    absent = said["other extras"]["found"].split(", ") if "other extras" in said else []
    there = {name for name in EXTRAS if f"extra {name}" in said}
    assert "django" in there and there.isdisjoint(absent) and {*there, *absent} == {*EXTRAS}
