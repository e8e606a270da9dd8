"""The option --resolve: databases that are asked what became of transactions."""

from __future__ import annotations

import argparse

from fmq.errors import BadOption


def add_resolve(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option to a verb, with `what` it has the databases do."""
    parser.add_argument(
        "--resolve",
        metavar="PRODUCER=URL",
        action="append",
        default=[],
        type=_producer_and_url,
        help=f"ask this database, such as sqlite:///shop.db, {what}; for each producer once",
    )


def _producer_and_url(text: str) -> tuple[str, str]:
    """Return both parts of an argument of --resolve: producer and URL."""
    producer, found, url = text.partition("=")
    if not (producer and found and url):
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be like checkout=sqlite:///shop.db, or checkout=postgresql://host/shop"
        )
    return producer, url


def databases_in(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the database of each producer. Raises BadOption if a producer has two."""
    databases = dict(pairs)
    if len(databases) != len(pairs):
        raise BadOption(
            "--resolve: names a producer twice, and a producer binds one database. Nothing was "
            "opened."
        )
    return databases
