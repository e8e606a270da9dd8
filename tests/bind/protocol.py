"""The marker protocol as a small model: all interleavings of producer, checkers, purge, crashes.

A state is all that they know together. A step is what one of them may do next. The rules that make
the protocol right are switches, so that a test can turn one off and see what goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """The protocol as it ships. Each switch that is off is a common mistake."""

    fence: bool = True  # True: a checker that finds no row leaves a tombstone; False: it only looks
    waits: bool = True  # a checker waits for the row of an open transaction; else it sees none
    in_doubt: bool = True  # COMMIT raised: ask; else it is taken for a rollback
    mark_first: bool = True  # mark, then prepare; else prepared at the beginning
    # Tombstones stay until no producer can mark; else until the decision.
    tombstone_kept: bool = True
    # Markers stay until the decision is durable; else they are purged at any time.
    marker_kept: bool = True
    conflict_seen: bool = True  # an insert that finds the key taken fails; else it is ignored


@dataclass(frozen=True)
class State:
    row: str = ""  # what is committed in the marker table: "", C or R
    mine: str = ""  # what the producer's open transaction has inserted
    database: str = "open"  # open, committed, rolled back: the business rows
    journal: str = ""  # "", prepared, committed, rolled back
    at: str = "begun"  # where the producer is; "dead" after a crash
    answers: tuple[str, ...] = ()  # the answers of checkers that the engine does not have yet
    checks: int = 2  # how many may still look


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    yield from producer(state, rules)
    yield from checker(state, rules)
    yield from purge(state, rules)


ORDER = {True: ("mark", "prepare", "commit"), False: ("prepare", "mark", "commit")}


def producer(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    if state.at in ("dead", "over"):
        if state.at == "dead" and state.database == "open":
            yield "the database notices", replace(state, database="rolled back", mine="")
        return
    yield "crash", replace(state, at="dead")
    done = {"begun": 0, "first": 1, "second": 2, "returned": 3, "raised": 3}[state.at]
    if done == 3:
        yield from confirm(state, rules)
        return
    after = ("first", "second", "returned")[done]
    match ORDER[rules.mark_first][done]:
        case "prepare":
            yield "prepare", replace(state, journal="prepared", at=after)
        case "mark":
            yield from mark(state, rules, after)
        case "commit":
            yield from database_commit(state)
    if state.database == "open":
        yield "application error", give_up(state)


def mark(state: State, rules: Rules, after: str) -> Iterator[tuple[str, State]]:
    if not state.row:
        yield "mark", replace(state, mine="C", at=after)
    elif rules.conflict_seen:
        yield "fenced", give_up(state)
    else:
        yield "mark ignored", replace(state, at=after)


def give_up(state: State) -> State:
    """Roll both back, as the database's commit was not called."""
    journal = "rolled back" if state.journal == "prepared" else state.journal
    return replace(state, database="rolled back", mine="", journal=journal, at="over")


def database_commit(state: State) -> Iterator[tuple[str, State]]:
    committed = replace(state, database="committed", row=state.mine or state.row, mine="")
    yield "commit", replace(committed, at="returned")
    yield "commit, and the answer is lost", replace(committed, at="raised")
    lost = replace(state, database="rolled back", mine="")
    yield "commit never arrives", replace(lost, at="raised")


def confirm(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    if state.at == "returned":
        yield "confirm", replace(decided(state, "committed"), at="over")
    elif rules.in_doubt:
        yield "in doubt", replace(state, at="over")
    else:
        yield "taken for a rollback", replace(decided(state, "rolled back"), at="over")


def decided(state: State, decision: str) -> State:
    """Keep the first decision."""
    return replace(state, journal=decision) if state.journal == "prepared" else state


def checker(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    if state.journal == "prepared" and state.checks:
        looked = replace(state, checks=state.checks - 1)
        if state.mine and rules.waits:
            yield "locked: unknown", looked
        elif state.row:
            answer = "committed" if state.row == "C" else "rolled back"
            yield f"reads {state.row}", replace(looked, answers=(*state.answers, answer))
        else:
            row = "R" if rules.fence else ""
            answers = *state.answers, "rolled back"
            yield "reads nothing", replace(looked, answers=answers, row=row)
    for i, answer in enumerate(state.answers):
        rest = state.answers[:i] + state.answers[i + 1 :]
        yield f"answers {answer}", replace(decided(state, answer), answers=rest)


def purge(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    over = state.journal in ("committed", "rolled back")
    no_more_producer = state.at in ("dead", "over") and state.database != "open"
    if state.row == "C" and (over or not rules.marker_kept) and no_more_producer:
        yield "purge the marker", replace(state, row="")
    if state.row == "R" and over and (no_more_producer or not rules.tombstone_kept):
        yield "purge the tombstone", replace(state, row="")


def disagreement(rules: Rules) -> tuple[list[str] | None, int]:
    """Return the shortest story that ends with journal and database in disagreement, or none, and
    how many states there are.
    """
    start = State()
    stories: dict[State, list[str]] = {start: []}
    queue = [start]
    for state in queue:
        wrong = {"committed": "rolled back", "rolled back": "committed"}.get(state.journal)
        if wrong is not None and state.database == wrong:
            return stories[state], len(stories)
        for name, following in steps(state, rules):
            if following not in stories:
                stories[following] = [*stories[state], name]
                queue.append(following)
    return None, len(stories)
