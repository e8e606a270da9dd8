"""The command: its tiers, what it shows while they run, and the files that it leaves."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from crash_tests.corpus import files
from crash_tests.display import LiveTable, PlainLines, display_for
from crash_tests.mutants import ROOT, planted
from crash_tests.planted import MUTANTS
from crash_tests.tally import Tally
from crash_tests.tiers import NAMES, TIERS, chosen, seconds_of

README = Path(__file__).parent / "README.md"


def command(*arguments: str, folder: Path | str = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crash_tests", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_ends_with_a_summary_and_a_report(tmp_path) -> None:
    """Two tiers try a little each. The output is plain lines, because it is not a terminal."""
    file = tmp_path / "report.json"
    done = command(
        *("--tier", "exhaustive", "--tier", "seeds", "--seed", "7", "--rounds", "1"),
        *("--full", "0", "--report", str(file), "--out", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "seed 7"
    assert [line.split()[0] for line in lines[-3:]] == ["exhaustive", "seeds", "all"]
    report = json.loads(file.read_text())
    assert report["seed"] == 7
    assert list(report["tiers"]) == ["exhaustive", "seeds"]
    assert report["all"]["states"] == sum(each["states"] for each in report["tiers"].values()) > 0
    assert report["all"]["failures"] == []
    assert report["tiers"]["exhaustive"]["note"] == "go on with --from 1"


def test_a_failure_is_found_reduced_saved_and_explained(tmp_path) -> None:
    """A run with a planted bug exits with 1, and `replay` explains its failure step by step."""
    (mutant,) = [each for each in MUTANTS if each.name == "acknowledge before the sync"]
    with planted(mutant) as folder:
        done = command(*mutant.arguments.split(), "--out", str(tmp_path), folder=folder)
        assert done.returncode == 1
        (file,) = tmp_path.glob("*.json")
        assert f"replay {file}" in done.stdout
        told = command("replay", str(file), folder=folder)
    assert told.returncode == 1
    assert "\nPower loss" in told.stdout
    parts = ["Steps", "Promised by then", "Recovery", "Broken: I"]
    places = [told.stdout.find(f"\n{part}") for part in parts]
    assert -1 not in places, told.stdout
    assert places == sorted(places), told.stdout
    assert "lost" in told.stdout
    assert "write data/" in told.stdout
    sound = command("replay", str(file))
    assert sound.returncode == 0
    assert "Does not fail any more." in sound.stdout


def test_a_crash_point_that_is_not_there_is_an_error_that_says_how_many_are() -> None:
    """If a failure is looked for at a wrong crash point, it must not look as if it was mended."""
    none = command("--seed", "7", "--crash-at", "999999")
    (found,) = re.findall(r"the workload has (\d+) crash points", none.stderr)
    last = command("--seed", "7", "--crash-at", str(int(found) - 1))
    assert last.returncode == 0, last.stderr
    assert " 1 crash points, " in last.stdout
    for given, said in (
        (["--crash-at", found], f"has {found} crash points, and --crash-at {found} is none"),
        (["--crash-at", "-1"], f"the workload has {found} crash points"),
        (["--crash-at", "999999", "--seeds", "2"], "2 workloads have "),
    ):
        done = command("--seed", "7", *given)
        assert done.returncode == 2, done.stdout
        assert said in done.stderr


@pytest.mark.parametrize(
    "given", [["--seeds", "0"], ["exhaustive", "--from", "99999999"], ["mutants", "no such bug"]]
)
def test_arguments_by_which_nothing_is_tried_are_an_error(given: list[str]) -> None:
    done = command(*given)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: no")


def test_the_crash_point_that_the_readme_shows_is_there() -> None:
    (line,) = [each for each in README.read_text().splitlines() if "--crash-at" in each and
               each.startswith("python -m crash_tests")]  # fmt: skip
    shown = line.split("   ")[0].split()[3:]
    assert "--crash-at" in shown
    done = command(*shown)
    assert done.returncode == 0, done.stderr
    assert " 1 crash points, " in done.stdout


def test_each_file_of_the_corpus_can_be_replayed() -> None:
    done = command("replay", *map(str, files()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Does not fail any more.") == len(files())


def test_a_terminal_gets_a_row_for_each_tier_and_findings_above() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140, legacy_windows=False)
    with display_for(console, NAMES) as display:
        assert isinstance(display, LiveTable)
        display.begin("hand")
        display.progress(Tally("hand", workloads=1, points=40, states=4321, seconds=1.0), "roll")
        display.say("something broke")
        display.end(Tally("hand", workloads=2, states=5000, seconds=2.0))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(name in said for name in NAMES)
    assert "4,321" in said
    assert "roll" in said
    assert "something broke" in said
    assert "2,500" in said, "states a second"


def test_output_to_a_pipe_is_plain_lines() -> None:
    assert isinstance(display_for(Console(file=io.StringIO()), NAMES), PlainLines)


def test_time_that_a_tier_leaves_unused_goes_to_the_tiers_after_it() -> None:
    tiers = chosen([])
    assert list(tiers) == list(TIERS)
    left = 100.0
    for tier in tiers:
        share = seconds_of(tiers, tier, left)
        assert 0 < share <= left
        left -= share / 2  # it was done early
    assert seconds_of(tiers, list(tiers)[-1], 50.0) == 50.0
