"""What `fmq serve` opens beside the engine: a page for Prometheus, an export of the same numbers,
and a door for clients of RocketMQ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

import fmq
from fmq.arguments.path import MEMORY
from fmq.errors import BadOption
from fmq.server.doors import listen_at

if TYPE_CHECKING:
    from fmq.metrics import MetricsPage


def open_beside(
    engine: fmq.Engine, chosen: argparse.Namespace, until_closed: ExitStack
) -> tuple[MetricsPage | None, Any]:
    """Open all that the command line asks for. Return the page, and the door of RocketMQ's clients.
    Raises BadOption or ExtraMissing.
    """
    page = until_closed.enter_context(_page(engine, chosen.http))
    until_closed.enter_context(_otlp(engine, chosen))
    door = _rocketmq(engine, chosen.rocketmq, chosen.rocketmq_options)
    return page, until_closed.enter_context(door)


def check_beside(chosen: argparse.Namespace) -> None:
    """Raise what `open_beside` would.

    Each of them is opened over an engine in memory and closed again, beside a socket that listens
    at --listen. So a port that is taken is found, too, also by another of these options. Only to
    the collector nothing is sent.
    """
    if chosen.otlp is not None:
        _exporter(chosen.otlp).shutdown()
    if chosen.http is None and chosen.rocketmq is None and chosen.rocketmq_options is None:
        return
    without_otlp = argparse.Namespace(**{**vars(chosen), "otlp": None})
    with fmq.open(MEMORY) as engine, ExitStack() as until_closed:
        if chosen.tcp is not None:
            until_closed.enter_context(listen_at(chosen.tcp))
        open_beside(engine, without_otlp, until_closed)


def _page(engine: fmq.Engine, where: str | None) -> AbstractContextManager[MetricsPage | None]:
    """Return the page for Prometheus, if one is asked for."""
    if where is None:
        return nullcontext()
    from fmq.metrics import MetricsPage  # imported here: it is slow to import, and few need it

    return MetricsPage(engine, where)


@contextmanager
def _otlp(engine: fmq.Engine, chosen: argparse.Namespace) -> Iterator[None]:
    """Send the metrics to a collector of OpenTelemetry, if one is named."""
    if chosen.otlp is None:
        yield
        return
    exporter = _exporter(chosen.otlp)
    from fmq.otel import MetricsExport  # imported here: it is slow to import, and few need it

    how = {"every": chosen.otlp_every, "messaging_names": chosen.otlp_messaging_names}
    try:
        with MetricsExport(engine, exporter, **how):
            yield
    finally:
        exporter.shutdown()


def _exporter(url: str) -> Any:
    """Return the exporter to the collector at `url`. Raises BadOption or ExtraMissing."""
    from fmq.otel.to_collector import exporter_to  # as above

    return exporter_to(url)


def _rocketmq(
    engine: fmq.Engine, where: str | None, options: str | None
) -> AbstractContextManager[Any]:
    """Return the server for clients of RocketMQ, if one is asked for. A package of its own has it,
    because it needs grpc. Raises BadOption.
    """
    if where is None:
        if options is not None:
            raise BadOption("--rocketmq-options needs --rocketmq. Nothing is served.")
        return nullcontext()
    from importlib.metadata import entry_points  # imported here: it is slow, and few need it

    found = [*entry_points(group="fmq.doors", name="rocketmq")]
    if not found:
        raise BadOption(
            "--rocketmq needs the package fmq-rocketmq, which is not installed here: pip install "
            "fmq-rocketmq. Nothing is served."
        )
    opened: AbstractContextManager[Any]
    try:
        opened = found[0].load()(engine, where, **json.loads(options or "{}"))
    except (OSError, TypeError, JSONDecodeError) as error:
        raise BadOption(
            f"--rocketmq {where} with the options {options}: {error}. Nothing is served."
        ) from error
    return opened
