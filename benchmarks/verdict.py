"""Figures against goals: ratios, and whether they reach what the row asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.peers import OURS
from benchmarks.row import Goal
from benchmarks.runner import Result


@dataclass(frozen=True, slots=True)
class Verdict:
    """One goal of a row: beside whom, how far, and whether that is enough."""

    goal: str
    reached: str
    met: bool


def best_peer(result: Result) -> str | None:
    """The peer with the best median among those that the row competes with."""
    row = result.row
    peers = [
        subject
        for subject in result.rounds
        if subject not in OURS and subject != "raw" and subject not in row.outside
    ]
    choose = max if row.more_is_better else min
    return choose(peers, key=lambda peer: result.median(peer) or 0.0, default=None)


def verdicts(result: Result, others: Mapping[str, Result]) -> list[Verdict]:
    """Return the verdicts on all goals of a row that the measurements allow."""
    ours = result.median(result.row.subjects[0])
    if ours is None:
        return []
    judged = (_judge(result, goal, ours, others) for goal in result.row.goals)
    return [verdict for verdict in judged if verdict is not None]


def _judge(result: Result, goal: Goal, ours: float, others: Mapping[str, Result]) -> Verdict | None:
    sign = ">=" if result.row.more_is_better else "<="
    if goal.against == "figure":
        met = _reaches(result, ours, goal.limit)
        return Verdict(f"{sign} {goal.limit:,g} {result.row.unit}", f"{ours:,.4g}", met)
    name, theirs = _opponent(result, goal, others)
    if theirs is None:
        return None
    ratio = ours / theirs
    return Verdict(
        f"{sign} {goal.limit:g} x {name}", f"{ratio:.2f} x", _reaches(result, ratio, goal.limit)
    )


def _opponent(result: Result, goal: Goal, others: Mapping[str, Result]) -> tuple[str, float | None]:
    """The name and the figure that the goal is a factor of."""
    if goal.against == "best peer":
        peer = best_peer(result)
        return peer or "", result.median(peer) if peer else None
    if goal.against == "raw":
        return "raw", result.median("raw")
    other = others.get(goal.row)
    return goal.row, other.median(other.row.subjects[0]) if other else None


def _reaches(result: Result, figure: float, limit: float) -> bool:
    return figure >= limit if result.row.more_is_better else figure <= limit
