"""`fmq demo`: what it tells is true of the directory that it leaves."""

import html
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import fmq
from tests.cli.command import COMMAND, ENVIRONMENT, contents, fmq_json, fmq_process

ROOT = Path(__file__).parents[2]


def test_the_demo_leaves_the_directory_that_it_describes(tmp_path: Path) -> None:
    """It leaves a sound directory, one transaction settled and one undecided."""
    done = fmq_process("demo", "--json", cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    path = tmp_path / "fmq-demo"
    report = fmq.check(path)
    assert (report.problems, report.undecided) == ((), 1)
    with fmq.open(path, read_only=True) as engine:
        assert engine.outcome("order-2").state == "committed"
        assert [tx.tx_id for tx in engine.undecided()] == ["order-3"]
        visible = {line["topic"]: line["after"] for line in lines if line["what"] == "visible"}
        assert visible == {
            topic: [bytes(message.body).decode() for message in engine.read(topic)]
            for topic in ("orders", "emails", "audit")
        }
    (recovery,) = (line for line in lines if line["what"] == "recovery")
    assert (recovery["clean"], recovery["undecided"]) == (False, 2)


def test_a_machine_is_killed_and_the_one_that_stands_by_goes_on(tmp_path: Path) -> None:
    done = fmq_process("demo", "--home", "--json", cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (said,) = (line for line in lines if line["what"] == "take-over")
    assert ({said["was"], said["is"]}, said["sent"]) == ({"one", "two"}, 200)
    assert (said["lost"], said["doubled"], said["in_order"]) == (0, 0, True)
    with fmq.open(tmp_path / "new", home=f"file://{tmp_path}/fmq-demo/home") as engine:
        assert len(engine.read("orders", limit=999)) == 200


def test_the_commands_that_the_demo_suggests_work(tmp_path: Path) -> None:
    """Run them in their order, where the demo was run."""
    done = fmq_process("demo", "my shop", "--json", cwd=tmp_path)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    commands = [line["run"] for line in lines if line["what"] == "next"]
    assert len(commands) == 6
    for command in commands:
        again = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert again.returncode == 0, again.stderr
    with fmq.open(tmp_path / "my shop", read_only=True) as engine:
        assert engine.outcome("order-3").state == "rolled back"


def test_the_demo_tells_a_story_in_a_pipe_too(tmp_path: Path) -> None:
    """A reader of a log or of a build's output is a person. No line has a colour or is cut off."""
    said = fmq_process("demo", cwd=tmp_path).stdout
    assert said.lstrip().startswith("1  A transaction over three topics")
    assert "5  order-2 is settled" in said and '{"what"' not in said and "\x1b" not in said
    shown = html.unescape((ROOT / "docs" / "demo.svg").read_text()).replace("\xa0", " ")
    headings = re.findall(r"^[2-6]  .*\S", said, re.MULTILINE)
    missing = [heading for heading in headings if heading not in shown]
    assert (len(headings), missing) == (5, []), "run python3 tools/make_demo_picture.py"


def test_each_command_that_the_demo_suggests_is_on_one_line(tmp_path: Path) -> None:
    """Commands are not wrapped on narrow terminals, so that they can be copied."""
    done = fmq_process("demo", "--format", "table", cwd=tmp_path, COLUMNS="40")
    _, _, end = done.stdout.partition("it is yours")
    commands = [line.strip() for line in end.splitlines() if line.startswith("    ")]
    assert len(commands) == 6
    assert all(" fmq-demo" in command for command in commands)
    assert commands[2].endswith("tx decide fmq-demo order-3 rollback --reason 'never paid'")


def test_a_second_demo_has_a_directory_of_its_own(tmp_path: Path) -> None:
    """The user may have explored the first one meanwhile."""
    for _ in range(2):
        assert fmq_process("demo", cwd=tmp_path).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"fmq-demo", "fmq-demo-2"}


def test_the_demo_refuses_a_path_that_already_holds_something(shop: Path) -> None:
    """It is refused as a wrong command line, and nothing changes."""
    before = contents(shop)
    assert fmq_json("demo", shop).code == 2
    assert fmq_json("demo", next(shop.glob("*.seg"))).code == 2
    assert contents(shop) == before


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_demo_prints_no_error(tmp_path: Path) -> None:
    """A terminal interrupts the child process of the demo as well."""
    with subprocess.Popen(
        [*COMMAND, "demo"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "killed" in line:
                break  # the child is being started
        os.killpg(demo.pid, signal.SIGINT)
        _, error = demo.communicate(timeout=60)
    assert error == ""
