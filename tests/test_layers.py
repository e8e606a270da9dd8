"""Rooms: each module lies in one, and imports its own room and those below it, never back.

docs/design.md draws the rooms, from the top down. ROOMS names them from the ground up, so a new
package states its place before it is used.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the ground up. A room may import those before it; "fmq" is the public names.
ROOMS = (
    *("fmq.basics", "fmq.errors", "fmq.machine", "fmq.arguments", "fmq.filters"),
    "fmq.codecs",
    *("fmq.allocation", "fmq.posix", "fmq.buckets"),
    *("fmq.store.bytes", "fmq.store.journal", "fmq.store.index", "fmq.store.reading", "fmq.steps"),
    *("fmq.tx.said", "fmq.tx.ledger", "fmq.recovery", "fmq.home", "fmq.copies", "fmq.tx.looks"),
    *("fmq.tx.commands", "fmq.tx.schedules"),
    *("fmq.intake", "fmq.table", "fmq.lake"),
    *("fmq.feedback", "fmq.bind", "fmq.erasure"),
    *("fmq.consume.claims", "fmq.consume.limits", "fmq.consume.groups"),
    *("fmq.consume.administration", "fmq.consume.calls"),
    *("fmq.chores", "fmq.assembly", "fmq.faces"),
    *("fmq.wire", "fmq.remote", "fmq.loops", "fmq.server", "fmq.engines", "fmq", "fmq.aio"),
    *(
        "fmq.relay",
        "fmq.spark",
        "fmq.export",
        "fmq.compat",
        "fmq.metrics",
        "fmq.otel",
        "fmq.findings",
        "fmq.dash",
        "fmq.report",
        "fmq.admin",
        "fmq.cli",
        "fmq.testing",
        "fmq.__main__",
    ),
)

# Rooms that know less than all below them.
KNOWS_ONLY = {
    # Texts and values alone, so that any room could ask a filter or share queues.
    "fmq.filters": {"fmq.errors"},
    "fmq.allocation": {"fmq.errors"},
    "fmq.codecs": {"fmq.basics", "fmq.errors"},
    "fmq.intake": {"fmq.basics", "fmq.errors"},
    # It writes through a client, as any program does.
    "fmq.spark": {"fmq", "fmq.basics", "fmq.errors", "fmq.intake", "fmq.table"},
    "fmq.lake": {"fmq.arguments", "fmq.basics", "fmq.errors", "fmq.table"},
    # They call an engine as any program does.
    "fmq.compat": {"fmq", "fmq.aio", "fmq.basics", "fmq.errors", "fmq.arguments"},
    "fmq.metrics": {"fmq", "fmq.basics", "fmq.errors"},
    "fmq.otel": {"fmq", "fmq.aio", "fmq.arguments", "fmq.basics", "fmq.errors", "fmq.metrics"},
    "fmq.dash": {"fmq", "fmq.basics", "fmq.errors", "fmq.findings", "fmq.machine"},
    "fmq.report": {"fmq.basics", "fmq.dash", "fmq.findings", "fmq.table"},
    "fmq.admin": {
        *("fmq", "fmq.arguments", "fmq.basics", "fmq.findings", "fmq.machine", "fmq.posix")
    },
    "fmq.relay": {"fmq", "fmq.basics", "fmq.errors"},
    "fmq.__main__": {"fmq.cli"},
}

# Rooms that few others may know, and who those are.
KNOWN_BY: dict[str, set[str]] = {
    # The engine knows only the interface of a disk, so that a test can hand in another one.
    "fmq.posix": {
        "buckets",
        "home",
        "copies",
        "bind",
        "assembly",
        "remote",
        "engines",
        "table",
        "aio",
        "findings",
        "admin",
        "cli",
    },
    "fmq.buckets": {"table", "engines", "export"},
    # Tables and files are read without an engine, and an engine knows nothing of them.
    "fmq.intake": {"table", "spark", "cli"},
    "fmq.table": {"spark", "export", "lake", "report"},
    "fmq.spark": {"export"},
    "fmq.export": {"cli"},
    "fmq.lake": {"cli"},
    # Who claims messages asks the state, not the directory.
    "fmq.recovery": {
        *(
            "home",
            "copies",
            "table",
            "erasure",
            "chores",
            "assembly",
            "wire",
            "remote",
            "server",
            "engines",
            "fmq",
        ),
        *("findings", "cli", "testing"),
    },
    # A client and a server know frames, not each other.
    "fmq.remote": {"engines", "fmq", "aio", "testing"},
    # Production knows no fakes.
    "fmq.testing": set(),
    "fmq.compat": set(),
    "fmq.dash": {"report", "cli"},
    "fmq.cli": {"__main__"},
}

# The machine is reached through its doors, so that a test can hand in another machine.
DOOR_OF = {
    **dict.fromkeys(["mmap", "shutil", "pathlib", "tempfile"], ("fmq.posix",)),
    **dict.fromkeys(["os", "fcntl"], ("fmq.posix", "fmq.wire.processes", "fmq.wire.network")),
    "time": ("fmq.basics.clock",),
}
# For its own number.
DOOR_OF["os"] += ("fmq.basics.own_process",)
# It becomes the process of the command `fmq`.
DOOR_OF["os"] += ("fmq.bind.django.management.commands.fmq",)
NEEDS_NO_DOOR = {"fmq.cli", "fmq.compat", "fmq.relay", "fmq.testing", "fmq.spark", "fmq.export"}
NEEDS_NO_DOOR |= {"fmq.lake", "fmq.findings", "fmq.buckets", "fmq.admin"}

# Modules that are too slow or too large for every program that imports fmq.
NOT_LOADED_BY_FMQ = {
    "asyncio",
    "boto3",
    "botocore",
    "ctypes",
    "django",
    "hypothesis",
    "multiprocessing",
    "opentelemetry",
    "pyarrow",
    "pyspark",
    "pytest",
    "rich",
    "sqlalchemy",
    "sqlite3",
    "subprocess",
    "tempfile",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path for path in sorted((ROOT / "fmq").rglob("*.py"))}
PACKAGES = {name for name, path in SOURCES.items() if path.name == "__init__.py"}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax of all modules, once asked: each process collects this file."""
    return {name: ast.parse(path.read_text()) for name, path in SOURCES.items()}


def imports_of(tree: ast.AST) -> Iterator[str]:
    """The absolute names of the modules that `tree` imports, wherever in it that is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: a relative import"
            assert node.module
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in SOURCES else node.module


def top_of(module: str) -> str:
    return module.partition(".")[0]


def room_of(module: str) -> str | None:
    """The innermost room of `module`. No module lies directly in fmq, but the public names."""
    names = module.split(".")
    places = [".".join(names[:size]) for size in range(len(names), 1, -1)] or ["fmq"]
    return next((place for place in places if place in ROOMS), None)


def allowed(module: str, imported: str) -> bool:
    ours, theirs = room_of(module), room_of(imported)
    if ours is None or theirs is None:
        return False
    if ours == theirs:
        return True
    return (
        ROOMS.index(theirs) < ROOMS.index(ours)
        and theirs in KNOWS_ONLY.get(ours, {theirs})
        and ours.removeprefix("fmq.") in KNOWN_BY.get(theirs, {ours.removeprefix("fmq.")})
    )


def test_every_module_has_a_room() -> None:
    """A new package is entered in ROOMS, and in docs/design.md, before it is used."""
    without = {module for module in SOURCES if room_of(module) is None}
    assert without == {"fmq.store", "fmq.tx", "fmq.consume"}, "they are rooms of rooms"


def test_imports_run_down_the_rooms() -> None:
    """A module imports from its own room and from those below it that it may know, no others.

    Imports inside functions and for type checkers count too: a room that needs them knows
    something that it should not.
    """
    assert {
        f"{module} imports {name}"
        for module, tree in trees().items()
        for name in imports_of(tree)
        if top_of(name) == "fmq" and not allowed(module, name)
    } == set()


def drawn_rooms() -> Iterator[tuple[str, list[str]]]:
    """Yield each room as docs/design.md draws it, with what it says that the room does without."""
    for line in (ROOT / "docs/design.md").read_text().splitlines():
        if line.startswith("| `fmq/"):
            room, *_, without = line.strip("| ").split(" | ")
            names = [name.strip("`/").replace("/", ".") for name in without.split(", ")]
            yield room.strip("`/").replace("/", "."), names


def test_no_room_imports_what_the_design_says_it_does_without() -> None:
    """The last column of the map names rooms below, and modules of Python, and no other thing."""
    drawn = dict(drawn_rooms())
    assert [*drawn][::-1] == [room for room in ROOMS if room != "fmq.__main__"]
    wrong = {
        f"{room} may not do without {name}: it names no room below, and no module of Python"
        for room, names in drawn.items()
        for name in names
        if name not in sys.stdlib_module_names and name not in ROOMS[: ROOMS.index(room)]
    }
    wrong |= {
        f"{module} imports {name}"
        for module, tree in trees().items()
        for name in imports_of(tree)
        if {room_of(name), top_of(name)} & set(drawn.get(room_of(module) or "", ()))
    }
    assert wrong == set()


def test_the_design_says_who_below_an_engine_knows_the_real_disk() -> None:
    """Idea 11 lists those of KNOWN_BY."""
    below = {room.removeprefix("fmq.") for room in ROOMS[: ROOMS.index("fmq.assembly")]}
    *names, last = [f"`{room}`" for room in sorted(below & KNOWN_BY["fmq.posix"])]
    named = f"{', '.join(names)} and {last}"
    text = " ".join((ROOT / "docs/design.md").read_text().split())
    assert f"Below the assembly of an engine only {named} import `posix`" in text


def test_every_file_says_what_it_knows() -> None:
    """Its first sentence does: the map of the design names rooms alone."""
    assert [module for module, tree in trees().items() if not ast.get_docstring(tree)] == []


FILES_MAX = 20

# Folders that have more files, each with its reason.
WIDE = {
    "fmq/cli": "a verb of the command is a file",
    "fmq/home": "a storage is a file",
    "fmq/relay": "a target is a file",
    "fmq/table": "one way from a directory to columns, in steps that are of no use elsewhere",
    "fmq/testing": "a machine that fails, or a tool for tests, is a file",
}


def test_no_room_has_too_many_files() -> None:
    """A reader can see a folder at one look. For each exception the reason is stated here."""
    files = Counter(
        str(path.parent.relative_to(ROOT)) for path in SOURCES.values() if path.stem != "__init__"
    )
    assert {folder for folder, count in files.items() if count > FILES_MAX} == set(WIDE)


NOUNS = {"encoding", "decoding", "timing", "opening", "reading", "crashing", "testing"}
NOUNS |= {"binding", "outbox_binding", "blocking", "hash_ring"}


def test_modules_are_named_by_nouns() -> None:
    """What a module has, not what it is doing: `burial`, not `burying`."""
    names = {name.rpartition(".")[2] for name in SOURCES}
    assert {name for name in names if name.endswith("ing")} <= NOUNS


def test_files_and_time_are_used_only_through_their_modules() -> None:
    """Only fmq/posix imports what touches files, only fmq/basics/clock.py what touches time."""
    assert {
        f"{module} imports {name}"
        for module, tree in trees().items()
        if NEEDS_NO_DOOR.isdisjoint(ours := {module, room_of(module)})
        for name in imports_of(tree)
        if ours.isdisjoint(DOOR_OF.get(top_of(name), ours))
    } == set()


def test_importing_fmq_loads_nothing_heavy() -> None:
    """In an interpreter of its own, `import fmq` loads none of NOT_LOADED_BY_FMQ."""
    script = "import sys; before = set(sys.modules); import fmq; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "fmq" in done.stdout.split()
    assert NOT_LOADED_BY_FMQ.intersection(done.stdout.split()) == set()


def test_an_engine_imports_nothing_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    """An interrupt or a fork there may leave Python's import lock taken for ever."""
    script = (
        "import sys, fmq; engine = fmq.open(sys.argv[1]); before = set(sys.modules)\n"
        "with engine.transaction(tx_id='T') as tx: tx.send('t', b'1'); tx.prepare()\n"
        "engine.send('t', b'2'); engine.checkpoint()\n"
        "print('after', *set(sys.modules) - before); engine.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "d")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["after"]


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("fmq.store.journal.journal", "fmq.tx.ledger.state"),
        ("fmq.tx.ledger.apply", "fmq.recovery.recover"),
        ("fmq.recovery.recover", "fmq.engines.engine"),
        ("fmq.consume.groups.groups", "fmq.recovery"),
        ("fmq.machine.disk", "fmq.posix"),
        ("fmq.store.journal.journal", "fmq.posix"),
        ("fmq.posix.file", "fmq.store.journal.segment"),
        ("fmq.store.journal.segment", "fmq"),
        ("fmq.engines.engine", "fmq.testing"),
        ("fmq.engines.engine", "fmq.cli.main"),
        ("fmq.cli.records", "fmq.tx.undecided"),
        ("fmq.nobody.knows", "fmq.errors"),
        ("fmq.server.host", "fmq.remote.link"),
        ("fmq.filters.filter", "fmq.basics.message"),
    ],
)
def test_an_import_against_the_rooms_is_noticed(module: str, imported: str) -> None:
    """The tables refuse what they should: the tests above would otherwise prove nothing."""
    assert not allowed(module, imported)


def runtime_imports(tree: ast.Module) -> set[str]:
    """The modules that `tree` imports when it is imported: not for types, not in functions."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(imports_of(node))
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Except for types: each module can be read after those that it imports."""
    graph = {name: runtime_imports(tree) & set(SOURCES) for name, tree in trees().items()}
    # A package of public names imports what is in it, and its modules do not import the package.
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_modules_name_each_other_in_a_circle_for_their_types() -> None:
    """Imports for types and in functions count. A circle says that two modules are one thing, or
    that a third one is missing.
    """
    graph = {name: set(imports_of(tree)) & set(SOURCES) - {name} for name, tree in trees().items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def is_own(value: ast.expr) -> bool:
    """Return whether an object is the one whose class is being written: `self`, `cls` or
    `super()`.
    """
    if isinstance(value, ast.Call):
        value = value.func
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "super")


def private_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Private names of other objects that `tree` uses, each with the source of its use."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or is_own(node.value):
            continue
        if node.attr.startswith("_") and not node.attr.startswith("__"):
            yield node.attr, ast.unparse(node)


def names_made(tree: ast.AST) -> Iterator[str]:
    """The names of what `tree` defines: functions, classes, and attributes of any object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # in __slots__


def test_no_room_uses_a_private_name_of_another_one() -> None:
    """A room that needs one asks for a function or a property. Other libraries' names do not
    count.
    """
    made: dict[str, set[str | None]] = {}
    for module, tree in trees().items():
        for name in names_made(tree):
            made.setdefault(name, set()).add(room_of(module))
    assert {
        (module, use)
        for module, tree in trees().items()
        for name, use in private_names(tree)
        if room_of(module) != "fmq.testing"
        and room_of(module) not in made.get(name, {room_of(module)})
    } == set()


# Their modules mirror others, or have the names that Django and other queues ask for.
MIRRORS = (
    *("fmq.admin", "fmq.bind.django", "fmq.bind.sqlalchemy", "fmq.cli", "fmq.compat", "fmq.export"),
    *("fmq.aio.face", "fmq.spark", "fmq.testing"),
)


def is_core(module: str) -> bool:
    return module not in PACKAGES and not module.startswith(MIRRORS)


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_two_classes_have_one_name() -> None:
    """One word, one thing, in all of fmq. Django finds each migration, backend, command and Meta by
    one name, and fmq.compat has the names of others.
    """
    assert not repeated(
        node.name
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and node.name not in ("Migration", "DatabaseWrapper", "Meta", "Command")
        and not module.startswith("fmq.compat.")
    )


def names_of_types(module: str) -> Iterator[tuple[str, str]]:
    """Yield the classes of a module and its type aliases, each with what it stands for."""
    for node in trees()[module].body:
        if isinstance(node, ast.ClassDef):
            yield node.name, module
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[0].isupper() and not name.isupper() and not makes_a_type_variable(node.value):
                yield name, ast.unparse(node.value)


def makes_a_type_variable(value: ast.expr) -> bool:
    """Return whether `value` makes a type variable, whose name counts in its module alone."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"


def test_no_two_types_of_the_core_have_one_name() -> None:
    """A type alias is a name of a thing, too. Equal aliases are one thing."""
    meant: dict[str, set[str]] = {}
    for module in filter(is_core, SOURCES):
        for name, what in names_of_types(module):
            meant.setdefault(name, set()).add(what)
    assert {name for name, whats in meant.items() if len(whats) > 1} == set()


def test_no_two_modules_of_the_core_have_one_name() -> None:
    """So a module is found by its name alone, but for MIRRORS."""
    assert not repeated(module.rpartition(".")[2] for module in filter(is_core, SOURCES))


def test_no_module_has_the_name_of_a_public_function() -> None:
    """`import fmq.check as c` would give the function, or the module, by the order of imports."""
    assert [package for package in sorted(PACKAGES) if names_twice(package)] == []


def names_twice(package: str) -> set[str]:
    """Return what is the name of a module of `package` and of something that it exports."""
    tree = trees()[package]
    public = {alias.asname or alias.name for node in ast.walk(tree)
              if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    public |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    modules = {name.rpartition(".")[2] for name in SOURCES if name.rpartition(".")[0] == package}
    # `from package import module` is the module itself.
    imported = {name.rpartition(".")[2] for name in imports_of(tree)
                if name in SOURCES and name.rpartition(".")[0] == package}  # fmt: skip
    return public & modules - imported
