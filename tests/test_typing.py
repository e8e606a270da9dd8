"""Type checkers refuse programs that would go wrong: a forgotten await, a send to what only reads.

tests/typing/snippets.txt has the programs. The protocols are also compared with the engines by
name and by argument, at run time.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.testing import CrashDisk

SNIPPETS = Path(__file__).parent / "typing" / "snippets.txt"
REFUSED = re.compile(r"# refused: ([a-z\-, ]+)$")
SAID = re.compile(r"snippets\.py:(\d+): error: .*\[([a-z\-]+)\]$")
PROTOCOLS = [
    (fmq.AnyEngine, fmq.Engine),
    (fmq.AnyEngine, fmq.RemoteEngine),
    (fmq.AnyEngine, fmq.ReadOnlyEngine),
    (fmq.WritingEngine, fmq.Engine),
    (fmq.WritingEngine, fmq.RemoteEngine),
    (fmq.AnyConsumer, fmq.Consumer),
    (fmq.AnyConsumer, fmq.RemoteConsumer),
]


def test_mypy_refuses_the_marked_lines_and_no_other(tmp_path: Path) -> None:
    """Each marked line has errors of exactly the codes that it names."""
    api = pytest.importorskip("mypy.api")
    text = SNIPPETS.read_text()
    (tmp_path / "snippets.py").write_text(text)
    how = ["--strict", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    where = ["--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    said, trouble, _ = api.run([*how, *where, str(tmp_path / "snippets.py")])
    assert trouble == ""
    found: dict[int, set[str]] = {}
    for line in said.splitlines():
        if match := SAID.search(line):
            found.setdefault(int(match[1]), set()).add(match[2])
        else:
            assert "snippets.py" not in line or ": note: " in line, line
    wanted = {
        number: set(match[1].split(", "))
        for number, line in enumerate(text.splitlines(), 1)
        if (match := REFUSED.search(line))
    }
    assert found == wanted, said


def names_of(protocol: type) -> set[str]:
    return {
        name
        for base in protocol.__mro__
        if base.__module__.startswith("fmq.")
        for name, each in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(each) or isinstance(each, property))
    }


@pytest.mark.parametrize(("protocol", "kind"), PROTOCOLS, ids=lambda each: each.__name__)
def test_every_call_that_a_protocol_promises_exists(protocol: type, kind: type) -> None:
    """With the same arguments, in the same order, with the same defaults."""
    assert names_of(protocol)
    for name in names_of(protocol):
        promised, there = getattr(protocol, name), getattr(kind, name)
        assert isinstance(promised, property) == isinstance(there, property), name
        if inspect.isfunction(promised):
            assert arguments(promised) == arguments(there), name


def arguments(call: Any) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(call)
    return [(each.name, each.kind, each.default) for each in signature.parameters.values()]


def test_a_protocol_leaves_out_calls_that_only_some_engines_have() -> None:
    """A new public call is promised, or named here."""
    engine = {name for name in dir(fmq.Engine) if not name.startswith("_")}
    assert engine - names_of(fmq.WritingEngine) == {"serve"}
    client = {name for name in dir(fmq.RemoteEngine) if not name.startswith("_")}
    assert client - names_of(fmq.WritingEngine) == {"stop"}
    reader = {name for name in dir(fmq.ReadOnlyEngine) if not name.startswith("_")}
    both = names_of(fmq.AnyEngine) | names_of(fmq.WritingEngine)
    assert reader - both == {"damage", "refresh", "visible_to"}
    consumer = {name for name in dir(fmq.Consumer) if not name.startswith("_")}
    assert consumer - names_of(fmq.AnyConsumer) == set()


def test_a_function_for_any_engine_takes_each_kind_of_engine() -> None:
    def count(engine: fmq.AnyEngine) -> int:
        return len(engine.read("t"))

    disk = CrashDisk()
    with fmq.open("data", disk=disk, background=False) as engine:
        engine.send("t", b"1")
        assert count(engine) == 1
    with fmq.open("data", disk=disk, read_only=True) as reader:
        assert count(reader) == 1
