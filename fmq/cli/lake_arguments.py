"""The arguments of the verbs that are about journals and a table of a lake."""

from __future__ import annotations

import argparse

from fmq.cli.arguments import header


def add_table(parser: argparse.ArgumentParser, *, url: str, required: bool = True) -> None:
    """Add DIR..., URL, --to and --option. If the table is not `required`, URL is the last DIR."""
    directories = "a directory, or a pattern; several are one table"
    if not required:
        directories += f". Behind them URL: {url}"
    parser.add_argument("dirs", metavar="DIR", nargs="+", help=directories)
    if required:
        parser.add_argument("url", metavar="URL", help=url)
    parser.add_argument(
        "--to",
        required=required,
        choices=("delta", "iceberg", "parquet"),
        help="the format of the table",
    )
    parser.add_argument(
        "--option",
        dest="options",
        type=header,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for the library of the table, such as a key of the object store",
    )
