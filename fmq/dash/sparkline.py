"""Curves as inline SVG, of numbers alone: no text of a journal is in them, but an escaped title."""

from __future__ import annotations

from collections.abc import Sequence

from fmq.dash.markup import Markup, tag

WIDTH, HEIGHT = 240, 40


def sparkline(title: str, *curves: Sequence[float], wide: bool = False) -> Markup:
    """Return one or two curves over the same time, with one scale, which begins at 0. `title` says
    what they are to a reader who does not see them.
    """
    most = max((value for curve in curves for value in curve), default=0.0) or 1.0
    drawn = [
        tag("polyline", points=_points(curve, most), class_=f"curve-{number}")
        for number, curve in enumerate(curves)
        if len(curve) > 1
    ]
    return tag(
        "svg",
        tag("title", title),
        drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        class_="spark wide" if wide else "spark",
    )


def _points(curve: Sequence[float], most: float) -> str:
    step = WIDTH / (len(curve) - 1)
    return " ".join(
        f"{number * step:.1f},{(HEIGHT - 2) * (1 - value / most) + 1:.1f}"
        for number, value in enumerate(curve)
    )
