"""The numbers of an engine as text, in version 0.0.4 of Prometheus' format. It knows the format,
and no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import fmq
from fmq.metrics.numbers import Labels, Metric, look

# The buckets that are shown end with these powers of two of nanoseconds: 8 us to 137 s.
FIRST_BUCKET, LAST_BUCKET = 13, 37
ENDS = [(i, repr((1 << i) / 1e9)) for i in range(FIRST_BUCKET, LAST_BUCKET + 1)]


def exposition(engine: fmq.AnyEngine) -> str:
    """Return the numbers of `engine` as text. Raises the errors of the engine's calls, such as
    Closed.
    """
    return text_of(look(engine).metrics)


def text_of(metrics: Iterable[Metric]) -> str:
    """Return numbers as text."""
    lines = [each for metric in metrics for each in _lines_of(metric)]
    return "\n".join(lines) + "\n"


def _lines_of(metric: Metric) -> Iterator[str]:
    yield f"# HELP fmq_{metric.name} {metric.text}"
    yield f"# TYPE fmq_{metric.name} {metric.kind}"
    for labels, value in metric.numbers:
        yield line(metric.name, labels, value)
    for labels, times in metric.times:
        yield from _histogram(metric.name, labels, times)


def _histogram(name: str, labels: Labels, times: fmq.Times) -> Iterator[str]:
    """Yield the lines of times. There is no sum of them: fmq has none."""
    # These are most lines of a text, so what all of them share is put together once.
    front = f'fmq_{name}_bucket{{{"".join(f"{each}," for each in _said(labels))}le="'
    below = sum(times.buckets[:FIRST_BUCKET])
    for i, end in ENDS:
        below += times.buckets[i]
        yield f'{front}{end}"}} {float(below)!r}'
    yield f'{front}+Inf"}} {float(times.count)!r}'
    yield line(f"{name}_count", labels, times.count)


def line(name: str, labels: Labels, value: float) -> str:
    """Return one line of the text. No character in a name can end its label."""
    said = ",".join(_said(labels))
    return f"fmq_{name}{f'{{{said}}}' if said else ''} {float(value)!r}"


def _said(labels: Labels) -> list[str]:
    return [f'{label}="{escaped(text)}"' for label, text in labels.items()]


def escaped(text: str) -> str:
    """Return the value of a label as it stands between its quotes."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
