"""`fmq import`: send the rows of files, all of them in one transaction.

  .parquet, .arrow   each row is a message: the columns are body, and if there are, topic, queue,
                     key, tag, headers, message_id, priority, expires_at, and deliver_at or delay.
                     Other columns are refused: `--columns` names those that are meant
  .jsonl             each line is an object, as for `fmq send --json-lines`

Readers see none of the rows or all, however many they are. With `--mark NAME --value N` the same
command again does nothing, also after a crash; a larger number is the next job under this name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fmq
from fmq.cli.arguments import count, text
from fmq.cli.codes import ERROR, FINE
from fmq.cli.messages import sent_from
from fmq.cli.output import Column, Output, note
from fmq.cli.place import writing
from fmq.findings.text import exact

if TYPE_CHECKING:
    from fmq.intake import ManySent

    Rows = Iterator[tuple[ManySent, int]]

LINES_AT_ONCE = 10_000


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "import",
        parents=[common],
        help="send the rows of files, in one transaction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="of rows")
    parser.add_argument("--topic", type=text, help="of all rows, if it is no column")
    parser.add_argument(
        "--columns", metavar="NAMES", help="of the file, with commas between them; all by default"
    )
    parser.add_argument("--mark", type=text, metavar="NAME", help="notes what was written")
    parser.add_argument("--value", type=count, metavar="N", help="of the mark")
    parser.add_argument("--create", action="store_true", help="make the directory if it is missing")
    parser.set_defaults(run=run, usage_error=parser.error)


def run(args: argparse.Namespace, output: Output) -> int:
    if (args.mark is None) != (args.value is None):
        args.usage_error("--mark and --value belong together")
    try:
        from fmq.intake import write_sent
    except ImportError as error:
        raise fmq.ExtraMissing("fmq import", str(error.name), "arrow") from error
    mark = None if args.mark is None else (args.mark, args.value)
    columns = None if args.columns is None else args.columns.split(",")
    try:
        files = [rows_in(file, args.topic, columns) for file in args.files]
        with writing(args.dir, create=args.create) as engine:
            written = write_sent(engine, (sent for rows in files for sent in rows()), mark=mark)
    except (OSError, ValueError, TypeError, fmq.errors.UsageError) as error:
        said = str(error)
        note(said if "Nothing" in said else f"{said.rstrip('.')}. Nothing was written.")
        return ERROR
    title = "nothing: the mark has this value already" if written.was_there else "imported"
    output.facts("import", written._asdict(), IMPORT, title=title)
    return FINE


def rows_in(file: Path, topic: str | None, columns: list[str] | None) -> Callable[[], Rows]:
    """Return a function that yields the messages of `file`. Raises OSError or BadRows."""
    from fmq.intake import RowFile, check_columns, messages_of

    if file.suffix == ".jsonl":
        file.open("rb").close()
        return lambda: _lines(file, topic)
    rows = RowFile(str(file), columns)
    check_columns(rows.schema, topic)
    return lambda: messages_of(rows.batches(), topic)


def _lines(file: Path, topic: str | None) -> Rows:
    from fmq.intake import ROW_BYTES, ManySent

    with file.open("rb") as lines:
        numbered = enumerate(lines, 1)
        while places := [*islice(numbered, LINES_AT_ONCE)]:
            found = []
            for number, line in places:
                try:
                    sent = sent_from(line)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{file}, line {number}: {error}.") from None
                if (named := sent.topic if topic is None else topic) is None:
                    raise ValueError(f"{file}, line {number}, has no topic: name --topic.")
                found.append(sent._replace(topic=named))
            for (named, queue, deliver_at), some in groupby(found, lambda sent: sent[:3]):
                messages = [sent.message for sent in some]
                size = sum(len(message.body) + ROW_BYTES for message in messages)
                yield ManySent(str(named), messages, queue, deliver_at), size


IMPORT = (Column("messages", "messages", show=exact),)
