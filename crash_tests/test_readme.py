"""The README says what the code does."""

import re

import pytest

from crash_tests.__main__ import arguments
from crash_tests.corpus import files
from crash_tests.mutants import ROOT
from crash_tests.oracle import INVARIANTS
from crash_tests.tiers import NAMES

FOLDER = ROOT / "crash_tests"
README = (FOLDER / "README.md").read_text()
BUGS = (FOLDER / "BUGS.md").read_text()
COMMAND = re.compile(r"python -m crash_tests((?: [^\s`]+)*)")


def rows(heads: str) -> list[list[str]]:
    """Return the cells of the table with these column heads."""
    lines = README.partition(f"| {heads} |\n")[2].splitlines()[1:]
    table = lines[: lines.index("")] if "" in lines else lines
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in table]


def test_every_invariant_is_in_the_table_as_the_story_tells_it() -> None:
    found = {number: text.replace("`", "") for number, text in rows("invariant | what must hold")}
    assert found == INVARIANTS


def test_every_tier_is_in_the_table_in_the_order_in_which_it_runs() -> None:
    assert [name for name, *_ in rows("tier | what | its share of every run")] == NAMES


@pytest.mark.parametrize("text", [README, BUGS], ids=["README", "BUGS"])
def test_every_command_in_the_documents_is_accepted(text: str) -> None:
    for said in COMMAND.findall(text):
        match said.split():
            case ["replay" | "mutants", *_]:
                pass
            case [tier, *given] if tier in NAMES:
                arguments(given)
            case given:
                arguments(given)  # exits with an error if it is none


def test_every_file_of_the_corpus_is_the_proof_of_a_bug() -> None:
    """Every file that a bug names exists, too."""
    assert set(re.findall(r"corpus/([\w-]+)\.json", BUGS)) == {file.stem for file in files()}
