"""A chart of stacked columns as SVG. It knows numbers, names and colours, not what they mean."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 920, 250
LEFT, RIGHT, TOP, BOTTOM = 74, 20, 12, 30
LINES = 4
COLOURS = (
    "#3b6fb6", "#e08a3c", "#4f9d69", "#c4524f", "#8567b0", "#3fa3ad", "#c27ba0", "#8b8b8b",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Series:
    """One number for each column."""

    name: str
    values: Sequence[float]


def columns(
    series: Sequence[Series],
    labels: Sequence[str],
    ticks: Collection[int],
    show: Callable[[float], str],
    *,
    factors: Sequence[float] = (2, 2.5, 2),
    gap: float = 0.12,
    colours: Sequence[str] = COLOURS,
) -> str:
    """Columns side by side, those of several series on top of each other.

    Each column tells its label and its numbers to whoever points at it; the labels of those in
    `ticks` stand below. The lines of the scale are apart by a product of `factors`, and `gap` is
    how much of a column's width is left free.
    """
    tops = [sum(values) for values in zip(*(each.values for each in series), strict=True)]
    limit, step = _scale(max(tops, default=0), factors)
    inner = HEIGHT - TOP - BOTTOM
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        *_lines(limit, step, inner, show),
        *_labels(labels, ticks),
    ]
    width = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)
    for i, label in enumerate(labels):
        if not tops[i]:
            continue
        below = 0.0
        parts.append(f"<g><title>{escape(_told(series, i, label, show))}</title>")
        for number, each in enumerate(series):
            height = each.values[i] / limit * inner
            if height:
                below += height
                x, y = LEFT + i * width + width * gap / 2, TOP + inner - below
                colour = colours[number % len(colours)]
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * (1 - gap):.1f}" '
                    f'height="{max(height, 0.5):.1f}" fill="{colour}"/>'
                )
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"])


def _told(series: Sequence[Series], i: int, label: str, show: Callable[[float], str]) -> str:
    each = [f"{one.name}: {show(one.values[i])}" for one in series if one.values[i]]
    return "\n".join([label, *each])


def _lines(limit: float, step: float, inner: float, show: Callable[[float], str]) -> Iterator[str]:
    """Lines across, each with its number."""
    value = 0.0
    while value <= limit:
        y = TOP + inner * (1 - value / limit)
        style = "axis" if not value else "grid"
        yield f'<line class="{style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(show(value))}</text>'
        value += step


def _labels(labels: Sequence[str], ticks: Collection[int]) -> Iterator[str]:
    """Return where a column begins and its label."""
    width = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)
    for i in ticks:
        x = LEFT + i * width
        yield f'<text x="{x:.1f}" y="{HEIGHT - 9}" text-anchor="middle">{escape(labels[i])}</text>'


def _scale(top: float, factors: Sequence[float]) -> tuple[float, float]:
    """Return where the scale ends and the distance of its lines, which is a round number."""
    step = 1.0
    while step * LINES < top:
        for factor in factors:
            step *= factor
            if step * LINES >= top:
                break
    return step * max(1, -(-top // step)), step


def legend(names: Sequence[str]) -> str:
    """Return the legend of the colours."""
    each = (
        f'<li><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{escape(name)}</li>'
        for i, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(each)}</ul>'
