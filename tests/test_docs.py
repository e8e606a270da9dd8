"""The documents say what the code does: formats, options, words and the hex dump are compared.

Tables are parsed out of the Markdown, so a field that is renamed, moved or forgotten in one of
the two fails here, with its name.
"""

import dataclasses
import inspect
import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from itertools import dropwhile, takewhile
from pathlib import Path
from zlib import crc32

import pytest

import fmq
import fmq.bind
import fmq.relay
import fmq.testing
from fmq.recovery import tail
from fmq.recovery.checkpoint import Checkpoint
from fmq.store.bytes.decoding import decode
from fmq.store.bytes.kinds import Kind
from fmq.store.bytes.record import HEAD_BYTES_MIN, aligned
from fmq.store.journal.scan import Finding
from tests.test_layers import ROOMS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

spec = spec_from_file_location("hexdump_example", ROOT / "tools" / "hexdump_example.py")
assert spec is not None
assert spec.loader is not None
hexdump = module_from_spec(spec)
spec.loader.exec_module(hexdump)


def section(page: str, heading: str) -> str:
    """Return the text below the heading, up to the next heading of any level."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no heading {heading!r}"
    return found.group(1)


def rows(text: str) -> list[list[str]]:
    """The cells of the first table in `text`, its head left out."""
    lines = dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    table = list(takewhile(lambda line: line.startswith("|"), lines))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


@pytest.mark.parametrize("heading", hexdump.STRUCTS)
def test_each_table_of_fields_agrees_with_its_struct(heading: str) -> None:
    """Names, offsets and sizes in docs/format.md are those that the code packs."""
    layout, names = hexdump.STRUCTS[heading]
    places = hexdump.places(layout)
    expected = [[str(o), str(n), name] for (o, n, _), name in zip(places, names, strict=True)]
    assert [row[:3] for row in rows(section("format.md", heading))] == expected


def test_the_table_of_kinds_has_every_kind_and_no_other() -> None:
    """docs/format.md gives each its number."""
    found = [(row[1], int(row[0])) for row in rows(section("format.md", "Kinds"))]
    assert found == [(kind.name, kind.value) for kind in Kind]


def test_the_table_of_flags_has_the_bits_of_the_code() -> None:
    """docs/format.md has every flag of a record with its bit."""
    found = {row[1]: int(row[0]) for row in rows(section("format.md", "Flags"))}
    assert found == hexdump.FLAGS


def test_the_checkpoint_has_the_fields_that_the_document_lists() -> None:
    """The JSON of a checkpoint has the names of docs/format.md, in their order."""
    tables = section("format.md", "Checkpoint").split("The JSON object:")
    found = [row[0].strip("`") for row in rows(tables[1])]
    assert found == [*Checkpoint._fields]


def test_the_hex_dump_is_what_the_engine_writes() -> None:
    """A real engine writes the bytes in docs/format.md, and they mean what the document says."""
    text = section("format.md", "A transaction, byte by byte")
    found = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert found
    assert found.group(1) == hexdump.dump()


def test_the_hex_dump_shows_every_byte_once() -> None:
    """The fields of the dump follow each other without a gap."""
    data = hexdump.journal()
    at = 64
    while at < len(data):
        fields = list(hexdump.fields_of_record(data, at))
        assert sum(len(field.data) for field in fields) > HEAD_BYTES_MIN
        for field in fields:
            assert field.offset == at, field.name
            at += len(field.data)
    assert at == len(data)


def test_the_fields_of_the_dump_are_those_that_decode_reads() -> None:
    """A field that the dump calls `seal` is what the decoder gives as `seal`, and so for all."""
    data = hexdump.journal()
    at = 64
    same = {"messages": ("count", "messages"), "topic": ("topic",), "name": ("topic",)}
    same["columns"] = ()  # decode leaves them where they are
    while at < len(data):
        record = decode(data, at, at, crc32(hexdump.STORE))
        for field in hexdump.fields_of_record(data, at):
            for attribute in same.get(field.name, (field.name,)):
                value = getattr(record, attribute, None)
                if isinstance(value, int) and field.name not in ("kind", "flags"):
                    assert int.from_bytes(field.data, "little", signed=value < 0) == value
                elif isinstance(value, (str, bytes)):
                    wanted = value.encode() if isinstance(value, str) else value
                    assert field.data == wanted, field.name
        at += aligned(record.size)


def test_every_option_is_documented_with_its_default() -> None:
    """docs/options.md has the fields of Options in their order, each with the right default."""
    found = {}
    for page in re.split(r"^## ", (DOCS / "options.md").read_text(), flags=re.MULTILINE)[1:]:
        for row in rows(page) if "| option |" in page else ():
            found[row[0].strip("`")] = row[1].strip("`")
    expected = {}
    for field in dataclasses.fields(fmq.Options):
        default = getattr(fmq.Options(), field.name)
        large = isinstance(default, int) and not isinstance(default, bool)
        expected[field.name] = readable(default) if large else repr(default).strip("'")
    expected["file_mode"] = f"{fmq.Options().file_mode:#o}"  # as chmod has it
    assert found == expected


def test_the_table_of_limits_has_the_numbers_of_the_code() -> None:
    from fmq.arguments.names import NAME_BYTES_MAX
    from fmq.arguments.options import QUEUES_MAX
    from fmq.server.doors import CONNECTIONS_MAX
    from fmq.server.load import HELD_MAX, REQUESTS_MAX
    from fmq.store.bytes.content import HEADERS_MAX
    from fmq.store.bytes.pieces import NONE
    from fmq.tx.commands.marks import DATA_BYTES_MAX, MARKS_MAX

    said = {row[0]: row[1] for row in rows((DOCS / "limits.md").read_text())}
    options = fmq.Options()
    expected = {
        "the body of a message": [readable(options.message_bytes_max)],
        "the messages of a transaction": [
            readable(options.segment_bytes),
            f"{options.transaction_messages_max:,}",
        ],
        "undecided transactions at once": [
            f"{options.transactions_max:,}",
            f"{options.undecided_messages_max:,}",
        ],
        "queues of a topic": [f"{QUEUES_MAX:,}"],
        "a name of a topic or group": [str(NAME_BYTES_MAX)],
        "a key, a tag": [f"{NONE - 1:,}"],
        "headers of a message": [f"{HEADERS_MAX:,}"],
        "marks of a directory": [f"{MARKS_MAX:,}"],
        "the data of a mark": [str(DATA_BYTES_MAX)],
        "connections of clients": [f"{CONNECTIONS_MAX:,}"],
        "what one client has begun": [f"{REQUESTS_MAX:,}", f"{HELD_MAX:,}"],
    }
    missing = [
        (what, each) for what in expected for each in expected[what] if each not in said[what]
    ]
    assert missing == []
    assert len(said) == len(expected) + 2


def readable(number: int) -> str:
    """A number as docs/options.md writes it."""
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size and number % size == 0:
            return f"{number // size:,} {unit}"
    return f"{number:,}"


def test_every_argument_of_crash_is_documented() -> None:
    """docs/testing.md has them in their order, with the right defaults, and what a world has."""
    text = (DOCS / "testing.md").read_text()
    _, arguments, world, *_ = re.split(r"^\| .* \| is \|$", text, flags=re.MULTILINE)
    parameters = inspect.signature(fmq.testing.crash).parameters
    found = [name for row in rows("|\n" + arguments.strip()) for name in names(row[0])]
    assert found == list(parameters)
    given = [
        each.name if each.default is each.empty else f"{each.name}={each.default}"
        for each in parameters.values()
    ]
    assert f"`crash({', '.join([*given[:2], '*', *given[2:]])})`" in text
    members = [name for row in rows("|\n" + world.strip()) for name in names(row[0])]
    shown = fmq.testing.World(Path(), fmq.testing.FakeClock())
    assert sorted(members) == sorted(name for name in dir(shown) if not name.startswith("_"))


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)", cell)


def test_the_tail_table_of_the_document_is_that_of_the_code() -> None:
    """docs/recovery.md has a row for each finding, with the verdicts of recovery/tail.py."""
    found = {row[0]: row[1:3] for row in rows(section("recovery.md", "Where the journal ends"))}
    expected = {}
    for finding in Finding:
        verdicts = [tail.TAIL[finding, durable].value for durable in (False, True)]
        expected[finding.value] = verdicts
    assert found == expected


VIEWS_OF_TABLES = [
    "messages",
    "records",
    "transactions",
    "marks",
    "acks",
    "attempts",
    "dead_letters",
    "damage",
]


@pytest.mark.parametrize("view", [*VIEWS_OF_TABLES, "Many engines"])
def test_every_column_of_a_view_is_documented_with_its_type(view: str) -> None:
    """docs/spark.md has them in their order, with the types that Spark shows."""
    from fmq.spark.types import spark_schema
    from fmq.table.schema import FLEET, VIEWS, schema_of

    assert [*VIEWS] == VIEWS_OF_TABLES
    names = list(VIEWS.get(view, FLEET))
    shown = spark_schema(schema_of(view if view in VIEWS else "messages", names, fleet=True))
    expected = [[f"`{field.name}`", f"`{field.dataType.simpleString()}`"] for field in shown]
    assert [row[:2] for row in rows(section("spark.md", view))] == expected


def test_every_option_of_the_data_source_is_documented() -> None:
    """docs/spark.md has them in the order in which a wrong one is answered."""
    from fmq.spark.options import KNOWN

    assert [row[0].strip("`") for row in rows(section("spark.md", "Options"))] == list(KNOWN)


def test_the_map_of_the_design_has_every_room() -> None:
    """docs/design.md draws the rooms from the top down, so it is read like a call."""
    drawn = [row[0].strip("`/").replace("/", ".") for row in rows(section("design.md", "Rooms"))]
    assert drawn[::-1] == [room for room in ROOMS if room != "fmq.__main__"]


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    """A few rows, with their peers and goals as the full table has them, missed ones included."""
    measured = {row[0].strip("`"): row[2:] for row in rows(section("benchmarks.md", "Figures"))}
    shown = rows(section("../README.md", "Figures"))
    for command, ratios, peer, goal in shown:
        best, expected, wanted, met = measured[command.strip("`").split()[-1]]
        assert command.startswith("`python -m benchmarks ")
        assert (ratios, peer, goal) == (expected, best.split()[-1], f"{wanted}, {met}")
    assert {"met", "missed"} == {goal.split()[-1] for *_, goal in shown}


def test_the_figures_of_a_comparison_are_those_of_the_benchmarks() -> None:
    """Each figure of docs/coming_from.md stands in docs/benchmarks.md where its command is."""
    table = rows(section("coming_from.md", "What to use instead"))
    assert len(table) > 10
    for _, _, reason in table:
        figures = re.findall(r"\d+\.\d+", reason)
        commands = re.findall(r"`python -m (benchmarks[.\w]*) ?([\w-]*)`", reason)
        assert bool(figures) == bool(commands), reason
        measured = "".join(measured_by(*command) for command in commands)
        assert [figure for figure in figures if figure not in measured] == [], reason


def measured_by(module: str, row: str) -> str:
    """Return the rows of docs/benchmarks.md of this name, or the part with this command."""
    text = (DOCS / "benchmarks.md").read_text()
    if row:
        return "".join(line for line in text.splitlines() if line.startswith(f"| `{row}`"))
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[2:]  # the first lists all commands
    return "".join(part for part in parts if f"`python -m {module}`" in part)


def test_each_error_is_documented_with_its_cause() -> None:
    """docs/errors.md has each exported error and warning once, as its docstring explains it."""
    import fmq.table

    expected = {
        name: " ".join((value.__doc__ or "").split())
        for module in (fmq.errors, fmq.bind, fmq.relay, fmq.table)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, (fmq.FmqError, Warning))
    }
    del expected["FmqError"]
    found = [
        row
        for page in re.split(r"^## ", (DOCS / "errors.md").read_text(), flags=re.MULTILINE)[1:-1]
        for row in rows(page)
    ]
    assert sorted(row[0].strip("`") for row in found) == sorted(expected)
    assert {row[0].strip("`"): row[1] for row in found} == expected
    assert [row[0] for row in found if not row[2]] == []


def test_the_page_of_compatibility_has_each_format_with_its_golden_directories() -> None:
    """A new format needs a row there, and a directory in tests/data."""
    table = rows(section("compatibility.md", "The files"))
    kept = {place.name.partition("-")[0] for place in (ROOT / "tests" / "data").glob("v*")}
    assert {f"v{row[0]}" for row in table} == kept
    assert [f"v{row[0]}" in row[3] for row in table] == [True] * len(kept)


def test_each_extra_is_on_the_page_about_installing() -> None:
    """And the page names no extra that is not there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [name for row in rows(section("install.md", "Extras")) for name in row[0].split(", ")]
    assert sorted(name.strip("`") for name in named) == sorted(extras)


def test_an_extra_is_installed_by_one_notation_everywhere() -> None:
    """It works as it stands wherever fmq is installed, from whatever file that was."""
    folders = ("docs", "fmq", "tools", "examples", "benchmarks", "contrib", "crash_tests")
    files = [*ROOT.glob("*.md"), *(file for each in folders for file in (ROOT / each).rglob("*.*"))]
    found = {
        (file.relative_to(ROOT), name)
        for file in files
        if file.suffix in (".py", ".md")
        for name in re.findall(r"pip install [^`\n]*?([^ `\n]*)\[[\w,]+\]", file.read_text())
        if name not in ("'fmq-engine", "'fmq-faststream", "'faststream-fmq")
    }
    assert found == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "docs/compatibility.md"])
def test_each_test_that_a_page_names_is_there(page: str) -> None:
    """A claim is worth nothing if its command runs no test."""
    text = (ROOT / page).read_text()
    commands = re.findall(r"tools/dev\.py test ([^\n`#]*)", text)
    places = [word for command in commands for word in command.split() if "/" in word]
    places += re.findall(r"`((?:tests|tools|crash_tests)/[\w/.]+)`", text)
    assert places
    assert [place for place in places if not (ROOT / place).exists()] == []


WORDS = """
    engine journal segment record kind position offset topic queue pre-message reference tx_id
    undecided decision outcome seal group delivery ack visible durable_to checkpoint replay recovery
    torn damaged cut refuse ledger append lane chain part spare entry hold window run place
    relocation
"""


TABLES_OF_WORDS = ("Words of users", "Words of the source")


def glossary() -> list[list[str]]:
    return [row for each in TABLES_OF_WORDS for row in rows(section("glossary.md", each))]


@pytest.mark.parametrize("table", TABLES_OF_WORDS)
def test_the_glossary_is_in_the_order_of_the_alphabet(table: str) -> None:
    words = [row[0].lower() for row in rows(section("glossary.md", table))]
    assert words == sorted(words)
    assert len(words) > 50


def test_the_glossary_has_the_words_that_the_code_uses() -> None:
    """Each word has one line, no word has two, and the public names are explained."""
    words = [word for row in glossary() for word in row[0].split(", ")]
    assert len(words) == len(set(words)), sorted(w for w in words if words.count(w) > 1)
    assert [word for word in WORDS.split() if word not in words] == []


def test_the_glossary_does_not_use_the_words_that_it_forbids() -> None:
    """A word that the glossary gives up does not name anything public in fmq."""
    forbidden = set()
    for row in glossary():
        if len(row) > 2 and row[2]:
            forbidden.update(re.split(r", | ", row[2]))
    names = {name.lower() for name in fmq.__all__}
    assert names & forbidden == set()


def test_each_decision_has_a_context_a_decision_and_a_price() -> None:
    """Every page of docs/decisions has the three parts, and the numbers run without a gap."""
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert headings == ["Context", "Decision", "Price"], page.name
