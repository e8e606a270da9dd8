"""Imports follow the layers of docs/design.md: engine -> recovery -> tx -> store, never back.

The rules are the tables below. A module that no row of MAY_IMPORT covers fails the tests, so
a new package states its place before it is used.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq

ROOT = Path(__file__).parent.parent

# What every layer may know: values, errors and the two doors to the machine.
GROUND = {
    *("fmq.bounds", "fmq.errors", "fmq.message", "fmq.infos", "fmq.options"),
    *("fmq.clock", "fmq.disk", "fmq.imported", "fmq.mounts"),
}
STORE = GROUND | {"fmq.store"}
TX = STORE | {"fmq.tx"}
ENGINE = TX | {"fmq.recovery", "fmq.consume", "fmq.feedback", "fmq.bind", "fmq.*"}

# Whoever lies in the row's place may import what lies in these. A package stands for all that
# is in it; "fmq" is the public names alone, "fmq.*" any module directly in fmq.
MAY_IMPORT = {
    **dict.fromkeys(GROUND, GROUND),
    "fmq.store": STORE,
    "fmq.tx": TX,
    "fmq.recovery": TX | {"fmq.recovery"},
    "fmq.consume": TX | {"fmq.consume"},
    "fmq.feedback": TX | {"fmq.feedback"},
    "fmq.bind": TX | {"fmq.feedback", "fmq.bind"},
    # They read directories without an engine, where the rows are wanted: on another machine, too.
    "fmq.table": TX | {"fmq.recovery", "fmq.real_disk", "fmq.table"},
    "fmq.spark": GROUND | {"fmq.table", "fmq.spark"},
    # Programs call these with their engine, and they call it as any program does.
    **dict.fromkeys(["fmq.bind.tpc", "fmq.bind.zope"], TX | {"fmq", "fmq.bind"}),
    "fmq.real_disk": GROUND,
    "fmq.*": ENGINE,
    "fmq": ENGINE,
    "fmq.testing": GROUND | {"fmq", "fmq.testing"},
    "fmq.testing.shadow": TX | {"fmq.engine"},  # it replays what an engine has just written
    "fmq.export": STORE | {"fmq.table", "fmq.spark", "fmq.export"},
    "fmq.report": GROUND | {"fmq", "fmq.spark", "fmq.report", "fmq.cli.text"},
    # It shows journals that no engine would open, so it reads names, checkpoints and tails itself.
    "fmq.cli": STORE
    | {"fmq", "fmq.cli", "fmq.real_disk", "fmq.bind.marker", "fmq.export"}
    | {"fmq.recovery.layout", "fmq.recovery.checkpoint", "fmq.recovery.tail"},
    "fmq.__main__": {"fmq.cli"},
}

# Never imported by another place, though "fmq.*" would cover it: production knows no fakes.
ONLY_FROM_OUTSIDE = {"fmq.testing", "fmq.__main__"}

# The machine is reached through its doors, so that a test can hand in another machine.
DOOR_OF = {
    **dict.fromkeys(["os", "fcntl", "mmap", "shutil", "pathlib", "tempfile"], "fmq.real_disk"),
    "time": "fmq.clock",
}
NEEDS_NO_DOOR = {"fmq.cli", "fmq.testing", "fmq.spark", "fmq.export"}

# Too slow or too much for everybody who writes `import fmq`.
NOT_LOADED_BY_FMQ = {
    "asyncio",
    "ctypes",
    "django",
    "fmq.checking",
    "fmq.engine",
    "fmq.feedback.question",
    "fmq.infos",
    "fmq.options",
    "fmq.readonly",
    "fmq.recovery.recover",
    "fmq.stats",
    "hashlib",
    "hypothesis",
    "json",
    "lz4",
    "multiprocessing",
    "pyarrow",
    "pyspark",
    "pytest",
    "rich",
    "sortedcontainers",
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


def homes_of_names(source: str) -> set[str]:
    """Where the public names are at home that `source` names as in `fmq.Outcome`, if that is
    imported late; "fmq" for any other.
    """
    return {
        fmq._LATER.get(node.attr, "fmq")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "fmq"
    }


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
def test_every_module_has_its_place(module: str) -> None:
    """A new package is entered in MAY_IMPORT, and in docs/design.md, before it is used."""
    assert row_of(module) is not None


@pytest.mark.parametrize("module", SOURCES)
def test_imports_run_down_the_layers(module: str) -> None:
    """A module imports from its own layer and from those that MAY_IMPORT names, no others.

    Imports inside functions and for type checkers count too: a layer that needs them knows
    something that it should not. What is annotated as `fmq.Outcome` counts as its own module.
    """
    source = SOURCES[module].read_text()
    ours = {name for name in imports_of(source) if top_of(name) == "fmq"}
    if "fmq" in ours and not allowed(module, "fmq"):
        ours = ours - {"fmq"} | homes_of_names(source)
    assert {name for name in ours if not allowed(module, name)} == set()


@pytest.mark.parametrize("module", SOURCES)
def test_the_machine_is_reached_through_its_doors(module: str) -> None:
    """Only fmq/real_disk.py imports what touches files, only fmq/clock.py what touches time."""
    if not NEEDS_NO_DOOR.isdisjoint(places_of(module)):
        return
    tops = {top_of(name) for name in imports_of(SOURCES[module].read_text())}
    assert {name for name in tops if DOOR_OF.get(name, module) != module} == set()


def test_importing_fmq_loads_nothing_heavy() -> None:
    """`import fmq` loads none of NOT_LOADED_BY_FMQ; seen in an interpreter of its own."""
    script = "import sys; before = set(sys.modules); import fmq; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "fmq" in done.stdout.split()
    assert NOT_LOADED_BY_FMQ.intersection(done.stdout.split()) == set()


def test_an_engine_that_writes_imports_nothing_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    """An interrupt or a fork there may leave Python's lock of imports taken for ever."""
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
        ("fmq.disk", "fmq.real_disk"),
        ("fmq.store.journal", "fmq.real_disk"),
        ("fmq.real_disk", "fmq.store.segment"),
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


def test_a_name_against_the_layers_is_noticed() -> None:
    """So is an engine that a layer below would name, or a class that is at home above it."""
    assert homes_of_names("x: fmq.Outcome | fmq.Engine") == {"fmq.infos", "fmq.engine"}
    assert not allowed("fmq.store.journal", *homes_of_names("x: fmq.Question"))
    assert not allowed("fmq.tx.manager", *homes_of_names("x: fmq.Engine"))
