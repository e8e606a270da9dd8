"""What is printed at the end of a run: fmq against its goals, then every subject's figures."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import show
from benchmarks.runner import Result
from benchmarks.verdict import best_peer, verdicts


def goals(results: Mapping[str, Result]) -> int:
    """Print a line for each goal; how many were missed."""
    lines = []
    missed = 0
    for result in results.values():
        ours = result.row.subjects[0]
        judged = verdicts(result, results)
        for verdict in judged:
            missed += not verdict.met
            lines.append(
                (
                    result.row.name,
                    result.row.title,
                    _figure(result, ours),
                    _peer(result),
                    verdict.reached,
                    verdict.goal,
                    "met" if verdict.met else "MISSED",
                )
            )
        if not judged:
            unjudged = (_figure(result, ours), _peer(result), "-", "-", "not measured")
            lines.append((result.row.name, result.row.title, *unjudged))
    head = ("row", "work", "fmq", "best peer", "reached", "goal", "")
    show.table("fmq against its goals (medians)", head, lines)
    for result in results.values():
        for subject, why in result.failed.items():
            print(f"{result.row.name}  {subject} FAILED: {why}")
    return missed


def subjects(results: Mapping[str, Result]) -> None:
    """Print what every subject did in every row, with the spread of the rounds."""
    lines = []
    for result in results.values():
        for subject in result.row.subjects:
            if subject not in result.rounds:
                continue
            low, high = result.spread(subject)
            lines.append(
                (
                    result.row.name,
                    subject,
                    _number(result.median(subject)),
                    f"{_number(low)} .. {_number(high)}",
                    result.row.unit,
                    _ratio(result, subject),
                    _rate(result.flushes_per_operation(subject)),
                )
            )
    head = ("row", "subject", "median", "spread", "unit", "fmq / this", "flushes/call")
    show.table("everyone (flushes: of the device, by whomever)", head, lines)


def _figure(result: Result, subject: str) -> str:
    return f"{_number(result.median(subject))} {result.row.unit}"


def _peer(result: Result) -> str:
    peer = best_peer(result)
    return f"{_number(result.median(peer))} {peer}" if peer else "-"


def _ratio(result: Result, subject: str) -> str:
    ours, theirs = result.median(result.row.subjects[0]), result.median(subject)
    return f"{ours / theirs:.2f}" if ours and theirs else "-"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
