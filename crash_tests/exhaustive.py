"""Every short workload over a small alphabet of steps, the shorter ones first.

A workload is a word, and its number says where it stands among all words, so that a later run
can go on where this one ended. Only the crashes in its last step are tried: those before are
those of the shorter word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from crash_tests.budget import Budget
from crash_tests.sweep import sweep
from crash_tests.tally import Tally
from crash_tests.workload import Step, Workload

LENGTH_MAX = 5
LENGTH_OF_EVERY_RUN = 3
FULL = 0.02

ALPHABET: dict[str, Step] = {
    "s": ["send", "a", 0, 20],
    "S": ["send", "b", 1, 1800],
    "f": ["fill", "b", 0],
    "m": ["many", "b", 0, 3, 20],
    "t": ["tx", "t0", [["a", 0, 1, 20], ["b", 1, 1, 20]], None],
    "p": ["prepare", "t1", [["a", 0, 1, 80], ["b", 1, 1, 20]], None],
    "q": ["prepare", "t2", [["b", 1, 1, 20]], "g"],
    "c": ["commit", "t1"],
    "r": ["rollback", "t1"],
    "C": ["decide", "t2", "commit"],
    "R": ["decide", "t2", "rollback"],
    "a": ["consume", "g", 1, 1],
    "y": ["sync"],
    "k": ["checkpoint"],
    "o": ["reopen"],
    "x": ["kill"],
}
# Segments that hold two large messages, and no checkpoints but those that are a step.
OPTIONS = {"segment_bytes": 4096, "checkpoint_bytes": 100_000, "retain_bytes": 8192}
MODES = ("always", "interval")  # sync modes


def makes_sense(word: str, letter: str, mode: str) -> bool:
    """Return whether the step does something after `word`. If not, a shorter word has the same
    effect.
    """
    match letter:
        case "p" | "q" | "t":
            return letter not in word
        case "c" | "r":
            return "p" in word and not {"c", "r"} & set(word)
        case "C" | "R":
            return "q" in word and not {"C", "R"} & set(word)
        case "a":
            return bool(set("sSfmtc") & set(word)) and not word.endswith("aa")
        case "y":
            return mode == "interval" and word[-1:] in set("sSfmtcCa")
        case "o" | "f":
            return not word.endswith(letter)
    return True


def words(length: int, mode: str, word: str = "") -> Iterator[str]:
    """Yield all words of this length that begin with `word`, in order."""
    if len(word) == length:
        yield word
        return
    for letter in ALPHABET:
        if makes_sense(word, letter, mode):
            yield from words(length, mode, word + letter)


def workloads(length_max: int, first: int = 0) -> Iterator[Workload]:
    """Yield workloads for all words up to this length, from number `first` on."""
    every = (
        (word, mode)
        for length in range(1, length_max + 1)
        for mode in MODES
        for word in words(length, mode)
    )
    for number, (word, mode) in enumerate(islice(every, first, None), first):
        steps = [ALPHABET[letter] for letter in word]
        yield Workload(f"word {number} {word} {mode}", steps, {**OPTIONS, "sync": mode})


class Exhaustive:
    """The words in order, up to three steps, or for as long as there is time."""

    name = "exhaustive"

    def run(self, budget: Budget) -> Tally:
        length = LENGTH_OF_EVERY_RUN if budget.is_unlimited else LENGTH_MAX
        chosen = islice(workloads(length, budget.first), budget.rounds)
        depth = replace(budget.depth(FULL), followed=False)  # other tiers have followers
        tally = sweep(self.name, chosen, budget, depth, last_step_only=True)
        tally.note = f"go on with --from {budget.first + tally.workloads}"
        return tally
