"""`fmq export`: adds what is new in journals to files that other programs read.

OUT gets a folder for each topic and day, `topic=orders/date=2026-01-31` (other views than messages:
for each day), as Spark, Hive, pyarrow, DuckDB and Polars read them. It is a directory, or an
address of s3://, gs:// or az://. Run it again to add what is new. A run that was killed has added
whole chunks or nothing; run it again and it goes on there.

Parquet has every column as it is. JSON has a row a line, bodies in base64. CSV has bodies in base64
too, and headers, lists and the like as JSON; an empty field is null, "" is an empty text. A text
that begins with = + - @ or the like, which a spreadsheet would run, gets a ' in front, as does one
that begins with '; --raw leaves texts as they are. With --text bodies are text, and one that is not
UTF-8 is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import fmq
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, Row
from fmq.findings.text import counted, exact, plain, size

if TYPE_CHECKING:
    from fmq.export import Progress


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    # Not `parents=[common]`: its --format means the output on the terminal, here the files' format.
    parser = verbs.add_parser(
        "export",
        help="Parquet, CSV or JSON of what is new",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "dirs", metavar="DIR", nargs="+", help="a directory, or a pattern; several are one table"
    )
    parser.add_argument(
        "out",
        metavar="OUT",
        help="where the files are, or will be: a directory, or s3://bucket/archive",
    )
    parser.add_argument(
        "--format",
        dest="file_format",
        default="parquet",
        metavar="FORMAT",
        help="parquet (the default), csv, json, or with Spark any of its file formats by name",
    )
    parser.add_argument(
        "--view",
        default="messages",
        help="messages (the default: all that are visible), records (the raw journal), "
        "transactions (once they are decided), marks, acks, attempts or dead_letters",
    )
    parser.add_argument(
        "--engine",
        choices=("spark", "arrow"),
        help="who makes the files: Arrow, unless the format is one that only Spark writes",
    )
    parser.add_argument("--text", action="store_true", help="bodies are text")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="csv for programs: no ' before a text that a spreadsheet would take for a formula",
    )
    parser.add_argument(
        "--on-gap",
        choices=("fail", "skip"),
        default="fail",
        help="when retention dropped something before it was exported: fail (the default), or go "
        "on behind it and say so",
    )
    parser.add_argument(
        "--permissive", action="store_true", help="leave out what is behind damage in a segment"
    )
    parser.add_argument(
        "--show",
        dest="format",
        choices=("auto", "table", "json"),
        default="auto",
        help="progress and result as tables, or as JSON lines; auto (the default) is tables on a "
        "terminal",
    )
    parser.add_argument(
        "--json", dest="format", action="store_const", const="json", help="--show json"
    )
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, output: Output) -> int:
    if args.file_format in ("auto", "table"):
        args.usage_error(
            "--format is that of the files: parquet, csv, json, or one of Spark's. "
            f"--show {args.file_format} chooses what is printed"
        )
    try:
        from fmq.export import export
    except ImportError as error:
        raise fmq.ExtraMissing("fmq export", str(error.name), "arrow") from error
    with output.progress() as show:
        report = export(
            args.dirs,
            args.out,
            format=args.file_format,
            view=args.view,
            engine=args.engine,
            text=args.text,
            raw=args.raw,
            on_gap=args.on_gap,
            permissive=args.permissive,
            progress=told(show),
        )
    facts = asdict(report)
    journals, gaps = facts.pop("journals"), [gap._asdict() for gap in report.gaps]
    facts.pop("gaps")
    output.rows("journal", JOURNALS, journals, title="journals")
    if gaps:
        output.rows("gap", GAPS, gaps, title="dropped by retention before they were exported")
    output.facts("export", facts, EXPORT, title=f"exported to {args.out}")
    return FINE


def told(show: Callable[[Row], None]) -> Callable[[Progress], None]:
    """Return a function that shows a Progress as a row.

    The export goes on if that fails, as its own errors are about its files. The report at the end
    fails in the same way, and that is said.
    """

    def tell(progress: Progress) -> None:
        with suppress(OSError):
            show(asdict(progress))

    return tell


def _per_second(row: Row) -> str:
    seconds = row["seconds"] or 1e-9
    rate = f"{row['rows'] / seconds:,.0f} rows/s, {size(int(row['bytes'] / seconds))}/s"
    return f"{seconds:.1f} s, {rate}"


JOURNALS = (
    Column("path", "directory", style="cyan", copied=True),
    Column("start", "from", right=True, show=exact),
    Column("end", "to", right=True, show=exact),
    Column("", "data", right=True, of_row=lambda row: size(row["end"] - row["start"])),
)
GAPS = (
    Column("path", "directory", style="cyan", copied=True),
    Column("start", "from", right=True, show=exact),
    Column("end", "to", right=True, show=exact),
)
EXPORT = (
    Column("", "added", of_row=lambda row: counted(row["rows"], "row")),
    Column("", "read", of_row=lambda row: f"{size(row['bytes'])} of journal"),
    Column(
        "",
        "written",
        of_row=lambda row: f"{size(row['written_bytes'])} in {counted(row['files'], 'file')}",
    ),
    Column("", "took", of_row=_per_second),
    Column("view", "view"),
    Column("", "form", of_row=lambda row: f"{plain(row['format'])}, by {row['engine']}"),
)
