"""`fmq verify`: exit code 0 means sound, and anything else says why."""

import subprocess
import sys
from pathlib import Path

import pytest

import fmq
from tests.cli.command import ENVIRONMENT, ROOT, fmq_json


def test_verify_exits_with_0_for_a_sound_directory(shop: Path) -> None:
    """The report counts three messages, and two of a committed transaction."""
    code, (report,), error = fmq_json("verify", shop)
    assert (code, report["ok"], error) == (0, True, "")
    assert (report["messages"], report["undecided"]) == (5, 1)


def test_verify_lists_a_problem_and_exits_with_1(segments: Path) -> None:
    """The problem names the file with a flipped bit."""
    second = sorted(segments.glob("*.seg"))[1]
    data = bytearray(second.read_bytes())
    data[600] ^= 1
    second.write_bytes(data)
    said = fmq_json("verify", segments)
    assert (said.code, said.of("report")[0]["ok"]) == (1, False)
    assert second.name in {line["file"] for line in said.of("problem")}


def test_verify_exits_with_3_for_a_directory_in_use(shop: Path) -> None:
    with fmq.open(shop, background=False):
        code, lines, error = fmq_json("verify", shop)
    assert (code, lines) == (3, [])
    assert "already open" in error


def test_sealed_segments_are_verified_beside_an_engine(segments: Path) -> None:
    """The last segment, which the engine writes to, is not looked at."""
    with fmq.open(segments, background=False):
        said = fmq_json("verify", segments, "--sealed")
        assert (said.code, said.lines[0]["segments"]) == (0, len([*segments.glob("*.seg")]) - 1)
        second = sorted(segments.glob("*.seg"))[1]
        data = bytearray(second.read_bytes())
        data[600] ^= 1
        second.write_bytes(data)
        said = fmq_json("verify", segments, "--sealed")
        assert said.code == 1
        assert second.name in {line["file"] for line in said.of("problem")}
        first = min(segments.glob("*.idx"))
        first.write_bytes(first.read_bytes()[:-1])
        said = fmq_json("verify", segments, "--sealed")
        assert first.name in {line["file"] for line in said.of("problem")}


def test_a_check_of_sealed_segments_says_if_there_was_none(shop: Path) -> None:
    with fmq.open(shop, background=False):
        said = fmq_json("verify", shop, "--sealed")
    assert said.code == 0 and "nothing was checked" in said.error


@pytest.mark.parametrize(("tool", "what"), [("dump.py", "record"), ("verify.py", "report")])
def test_the_scripts_in_tools_run_the_commands_of_the_same_name(
    shop: Path, tool: str, what: str
) -> None:
    """They find fmq beside themselves, from any working directory."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / tool, shop],
        cwd=shop.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f'{{"what": "{what}"')
