"""Imports follow the layers of docs/design.md: engine -> recovery -> tx -> store, never back.

The rules are the tables below. A module that no row of MAY_IMPORT covers fails the tests, so
a new package states its place before it is used.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What every layer may know: values, errors and the two doors to the machine.
GROUND = {
    *("fmq.errors", "fmq.message", "fmq.results", "fmq.options", "fmq.path"),
    *("fmq.clock", "fmq.disk", "fmq.mounts"),
}
STORE = GROUND | {"fmq.store"}
TX = STORE | {"fmq.tx"}
ENGINE = TX | {"fmq.recovery", "fmq.allocation", "fmq.filters", "fmq.consume", "fmq.feedback"}
ENGINE |= {"fmq.chores", "fmq.bind", "fmq.server", "fmq.remote", "fmq.posix", "fmq.faces", "fmq.*"}

# Whoever lies in the row's place may import what lies in these. A package stands for all that
# is in it; "fmq" is the public names alone, "fmq.*" any module directly in fmq.
MAY_IMPORT = {
    **dict.fromkeys(GROUND, GROUND),
    # Texts and values alone, so that any layer could ask a filter.
    "fmq.filters": {"fmq.errors", "fmq.filters"},
    "fmq.store": STORE,
    "fmq.tx": TX,
    "fmq.recovery": TX | {"fmq.recovery"},
    "fmq.consume": TX | {"fmq.allocation", "fmq.filters", "fmq.consume"},
    "fmq.chores": TX | {"fmq.recovery", "fmq.consume", "fmq.chores"},
    "fmq.feedback": TX | {"fmq.feedback"},
    "fmq.bind": TX | {"fmq.feedback", "fmq.bind"},
    # The calls of engines. Which door carries them out is known to the engines alone.
    "fmq.faces": TX
    | {"fmq.allocation", "fmq.bind", "fmq.consume", "fmq.feedback", "fmq.filters", "fmq.stats"}
    | {"fmq.any_consumer", "fmq.parts", "fmq.faces"},
    **dict.fromkeys(["fmq.faces.awaited", "fmq.faces.blocking"], ENGINE | {"fmq.aio", "fmq.faces"}),
    # They read directories without an engine, where the rows are wanted: on another machine, too.
    "fmq.table": TX | {"fmq.recovery", "fmq.posix", "fmq.table"},
    "fmq.spark": GROUND | {"fmq.table", "fmq.spark"},
    # Pure functions: they share queues, and know no engine.
    "fmq.allocation": {"fmq.errors", "fmq.allocation"},
    # Programs call these with their engine, and they call it as any program does.
    "fmq.compat": GROUND | {"fmq", "fmq.aio", "fmq.compat"},
    "fmq.posix": GROUND | {"fmq.posix"},
    "fmq.wire": TX | {"fmq.recovery.recover", "fmq.feedback.question", "fmq.stats", "fmq.wire"},
    "fmq.network": GROUND,
    "fmq.server": TX
    | {"fmq.processes", "fmq.network", "fmq.recovery.layout", "fmq.allocation"}
    | {"fmq.consume", "fmq.faces.table", "fmq.feedback", "fmq.parts", "fmq.wire", "fmq.server"},
    "fmq.remote": TX
    | {"fmq.consume", "fmq.feedback", "fmq.bind", "fmq.stats", "fmq.wire", "fmq.remote"}
    | {"fmq.allocation", "fmq.faces", "fmq.filters", "fmq.processes", "fmq.shutdown"},
    # The calls of engines, awaited: it uses the parts of both.
    "fmq.aio": ENGINE | {"fmq", "fmq.wire", "fmq.aio"},
    "fmq.bind.forks": {"fmq.posix"},
    "fmq.remote.tls_wire": GROUND | {"fmq.network"},
    "fmq.remote.connecting": GROUND
    | {"fmq.remote", "fmq.posix", "fmq.processes", "fmq.recovery.layout", "fmq.tx.names"}
    | {"fmq.bind.databases", "fmq.network"},
    "fmq.remote.giving_way": GROUND | {"fmq.remote", "fmq.posix", "fmq.processes"},
    "fmq.*": ENGINE,
    "fmq": ENGINE,
    "fmq.testing": GROUND | {"fmq", "fmq.testing"},
    "fmq.testing.outboxes": {"fmq", "fmq.testing", "fmq.bind.drivers"},
    "fmq.testing.django_block": {
        "fmq.bind.django",
        "fmq.bind.joined",
        "fmq.feedback",
    },  # a binding without a marker
    "fmq.testing.inside": TX
    | {"fmq.*", "fmq.recovery", "fmq.feedback"},  # the parts that tests of fmq look at
    "fmq.testing.awaited": {"fmq.engine", "fmq.aio", "fmq.remote", "fmq.testing"},
    "fmq.testing.transport": {"fmq.engine", "fmq.server", "fmq.remote", "fmq.testing"},
    "fmq.testing.crowded": {"fmq.engine", "fmq.processes", "fmq.server", "fmq.testing"},
    "fmq.testing.shadow": TX | {"fmq.engine", "fmq.testing"},  # it replays what an engine writes
    "fmq.export": STORE | {"fmq.table", "fmq.spark", "fmq.export"},
    # It shows journals that no engine would open, so it reads names, checkpoints and tails itself.
    "fmq.cli": STORE
    | {"fmq", "fmq.cli", "fmq.posix", "fmq.bind.marker", "fmq.export"}
    | {"fmq.recovery.layout", "fmq.recovery.checkpoint", "fmq.recovery.tail"},
    "fmq.__main__": {"fmq.cli"},
}

# Never imported by another place, though "fmq.*" would cover it: production knows no fakes.
ONLY_FROM_OUTSIDE = {"fmq.testing", "fmq.__main__"}

# The machine is reached through its doors, so that a test can hand in another machine.
DOOR_OF = {
    **dict.fromkeys(["mmap", "shutil", "pathlib", "tempfile"], ("fmq.posix",)),
    **dict.fromkeys(["os", "fcntl"], ("fmq.posix", "fmq.processes", "fmq.network")),
    "time": ("fmq.clock",),
}
NEEDS_NO_DOOR = {"fmq.cli", "fmq.compat", "fmq.testing", "fmq.spark", "fmq.export"}

# Too slow or too much for everybody who writes `import fmq`.
NOT_LOADED_BY_FMQ = {
    "asyncio",
    "ctypes",
    "django",
    "hypothesis",
    "multiprocessing",
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


def imports_of(source: str) -> Iterator[str]:
    """The absolute names of the modules that `source` imports, wherever in it that is."""
    for node in ast.walk(ast.parse(source)):
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


def places_of(module: str) -> list[str]:
    """The names under which a table may mention `module`, the most particular first."""
    names = module.split(".")
    places = [".".join(names[:size]) for size in range(len(names), 1, -1)]
    if module == "fmq":
        return ["fmq"]
    if len(names) == 2 and module not in PACKAGES:
        places.append("fmq.*")
    return places


def row_of(module: str) -> set[str] | None:
    return next((MAY_IMPORT[place] for place in places_of(module) if place in MAY_IMPORT), None)


def allowed(module: str, imported: str) -> bool:
    row = row_of(module) or set()
    if imported in ONLY_FROM_OUTSIDE:
        return imported in row
    return any(place in row for place in places_of(imported))


@pytest.mark.parametrize("module", SOURCES)
def test_every_module_has_a_layer(module: str) -> None:
    """A new package is entered in MAY_IMPORT, and in docs/design.md, before it is used."""
    assert row_of(module) is not None


@pytest.mark.parametrize("module", SOURCES)
def test_imports_run_down_the_layers(module: str) -> None:
    """A module imports from its own layer and from those that MAY_IMPORT names, no others.

    Imports inside functions and for type checkers count too: a layer that needs them knows
    something that it should not.
    """
    ours = {name for name in imports_of(SOURCES[module].read_text()) if top_of(name) == "fmq"}
    assert {name for name in ours if not allowed(module, name)} == set()


@pytest.mark.parametrize("module", SOURCES)
def test_files_and_time_are_used_only_through_their_modules(module: str) -> None:
    """Only fmq/posix imports what touches files, only fmq/clock.py what touches time."""
    if not NEEDS_NO_DOOR.isdisjoint(places_of(module)):
        return
    tops = {top_of(name) for name in imports_of(SOURCES[module].read_text())}
    ours = {module, *places_of(module)}
    assert {name for name in tops if ours.isdisjoint(DOOR_OF.get(name, ours))} == set()


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
        ("fmq.store.journal", "fmq.tx.state"),
        ("fmq.tx.apply", "fmq.recovery.recover"),
        ("fmq.recovery.recover", "fmq.engine"),
        ("fmq.consume.groups", "fmq.recovery"),
        ("fmq.disk", "fmq.posix"),
        ("fmq.store.journal", "fmq.posix"),
        ("fmq.posix.file", "fmq.store.segment"),
        ("fmq.store.segment", "fmq"),
        ("fmq.engine", "fmq.testing"),
        ("fmq.engine", "fmq.cli.main"),
        ("fmq.cli.records", "fmq.tx.undecided"),
        ("fmq.nobody.knows", "fmq.errors"),
    ],
)
def test_an_import_against_the_layers_is_noticed(module: str, imported: str) -> None:
    """The tables refuse what they should: the tests above would otherwise prove nothing."""
    assert not allowed(module, imported)


def runtime_imports(source: str) -> set[str]:
    """The modules that `source` imports when it is imported: not for types, not in functions."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(imports_of(ast.unparse(node)))
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Except for types: each module can be read after those that it imports."""
    graph = {
        name: runtime_imports(path.read_text()) & set(SOURCES) for name, path in SOURCES.items()
    }
    # A package of public names imports what is in it, and its modules do not import the package.
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


CORE = ("fmq", "fmq.store", "fmq.tx", "fmq.recovery", "fmq.consume", "fmq.feedback", "fmq.chores")


def is_core(module: str) -> bool:
    return module.rpartition(".")[0] in CORE and module not in {"fmq.__main__", *PACKAGES}


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_no_two_classes_have_one_name() -> None:
    """One word, one thing, in all of fmq. Django finds each migration and each database backend by
    one name, and fmq.compat has the names of others.
    """
    assert not repeated(
        node.name
        for module, path in SOURCES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and node.name not in ("Migration", "DatabaseWrapper")
        and not module.startswith("fmq.compat.")
    )


def test_no_two_modules_of_the_core_have_one_name() -> None:
    """Elsewhere packages mirror each other: `fmq/table/messages.py` reads the core's messages."""
    assert not repeated(module.rpartition(".")[2] for module in filter(is_core, SOURCES))


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_no_module_has_the_name_of_a_public_function(package: str) -> None:
    """`import fmq.check as c` would give the function, or the module, by the order of imports."""
    tree = ast.parse(SOURCES[package].read_text())
    public = {alias.asname or alias.name for node in ast.walk(tree)
              if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    public |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    modules = {name.rpartition(".")[2] for name in SOURCES if name.rpartition(".")[0] == package}
    # `from package import module` is the module itself.
    imported = {name.rpartition(".")[2] for name in imports_of(SOURCES[package].read_text())
                if name in SOURCES and name.rpartition(".")[0] == package}  # fmt: skip
    assert public & modules - imported == set()
