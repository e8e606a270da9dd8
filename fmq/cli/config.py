"""`fmq config`: list or change the options of a directory, which hold for all who use it."""

from __future__ import annotations

import argparse
import re
from argparse import ArgumentTypeError
from dataclasses import asdict, fields
from typing import Any

from fmq.arguments.options import Options
from fmq.arguments.stored_options import DEFAULTS, STORED, check_configured
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output, note
from fmq.cli.place import reading, writing
from fmq.errors import BadOption
from fmq.findings.text import printable
from fmq.findings.visit import visit

TYPES = {each.name: str(each.type) for each in fields(Options)}
NUMBER = re.compile(r"(-?[0-9_]+)\s*(KiB|MiB|GiB)?")
UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "config", parents=[common], help="options that hold for all", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "values", type=setting, nargs="*", metavar="KEY=VALUE", help="such as retain_bytes=1GiB"
    )
    parser.add_argument(
        "--reset", action="append", default=[], metavar="KEY", help="store no value any more"
    )
    parser.set_defaults(run=run)


def setting(word: str) -> tuple[str, Any]:
    """Return the name and the value of an option that the directory can store."""
    name, equals, said = word.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{printable(word)}: must be like retain_bytes=1GiB")
    try:
        value = _value(said, TYPES.get(name, "str"))
        check_configured({name: value}, [])
    except BadOption as error:
        raise ArgumentTypeError(printable(str(error))) from None
    return name, value


def _value(said: str, kind: str) -> Any:
    """Return the value that a text stands for. If the text is no value of this kind, return the
    text: the engine refuses it with the error of the option.
    """
    if said.lower() == "none":
        return None
    if "bool" in kind:
        return FLAGS.get(said.lower(), said)
    if "int" in kind and (found := NUMBER.fullmatch(said)):
        return int(found[1]) * UNITS[found[2]]
    if "float" in kind:
        try:
            return float(said)
        except ValueError:
            return said
    return said


def run(args: argparse.Namespace, output: Output) -> int:
    if args.values or args.reset:
        with visit(args.dir):
            pass
        values, reset = check_configured(dict(args.values), args.reset)
        with writing(args.dir) as engine:
            engine.configure(Options(**values), reset=reset)
            waits = [each.name for each in engine.settings() if each.waits]
        if waits:
            note(f"{', '.join(waits)}: counts from the next opening of {args.dir} on")
    with reading(args.dir) as engine:
        found = sorted(engine.settings(), key=lambda each: each.name)
    rows = [asdict(each) for each in found if each.name in STORED]
    output.rows("option", OPTION, rows)
    return FINE


OPTION = (
    Column("name", "option", copied=True),
    Column("", "value", right=True, of_row=lambda row: str(row["value"])),
    Column("", "default", right=True, of_row=lambda row: str(DEFAULTS[row["name"]])),
    Column("source", "from"),
    Column("", "", optional=True, of_row=lambda row: "next opening" if row["waits"] else ""),
)
