"""What the command writes is harmless to a terminal, whatever a journal or its caller says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmq
from tests import warm
from tests.cli.command import ENVIRONMENT, fmq_process

# Control characters of both kinds, DEL, marks that turn the direction of text, separators of lines.
HOSTILE = "".join(
    map(chr, (0x1B, 0x07, 0x0D, 0x7F, *range(0x80, 0xA0), 0x200F, 0x2028, 0x2029, 0x202E))
) + "".join(map(chr, (0x2066, 0x2069, 0xFEFF, 0xE0001)))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory whose name, bodies, keys, tags and reasons are hostile."""
    path = tmp_path / f"d{HOSTILE}"
    with fmq.open(path, background=False) as engine:
        for tx_id in ("decided", "undecided"):
            tx = engine.transaction(tx_id=tx_id, producer="p")
            tx.send("t", HOSTILE.encode(), key=HOSTILE, tag=HOSTILE, headers={HOSTILE: HOSTILE})
            tx.prepare()
        engine.decide("decided", "commit", reason=HOSTILE)
    return path


def is_harmless(text: str) -> bool:
    """Each line has only what can be printed."""
    return all(line.isprintable() for line in text.split("\n"))


def run(*arguments: object, cwd: Path | None = None) -> tuple[int, str, str]:
    """The exit code, stdout and stderr, with each line end as it was written."""
    done = warm.run_bytes(["-m", "fmq", *arguments], cwd=cwd, env=ENVIRONMENT)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


DIR = "DIR"  # stands for the hostile directory
VERBS = [
    ("info", DIR),
    ("records", DIR),
    ("tx", "list", DIR),
    ("tx", "show", DIR, "decided"),
    ("tx", "show", DIR, "undecided"),
    ("verify", DIR),
    ("read", DIR, "t"),
    ("read", DIR, "t", "--whole"),
    ("find", DIR, "t", HOSTILE),
]


@pytest.mark.parametrize("how", ["json", "table"])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: ascii(" ".join(verb)))
def test_no_command_prints_control_characters(
    hostile: Path, verb: tuple[str, ...], how: str
) -> None:
    """Control characters, marks of direction and separators of lines are escaped."""
    words = [hostile if word == DIR else word for word in verb]
    code, out, error = run(*words, "--format", how)
    assert code == 0, error
    assert is_harmless(out), ascii(out)
    assert is_harmless(error), ascii(error)


def test_escaped_json_decodes_to_the_original_text(hostile: Path) -> None:
    """This includes characters above U+FFFF."""
    done = fmq_process("tx", "show", hostile, "decided", "--format", "json")
    outcome = json.loads(done.stdout.split("\n")[0])
    assert outcome["reason"] == HOSTILE


def test_json_does_not_escape_printable_characters(tmp_path: Path) -> None:
    path = tmp_path / "café 😀"
    fmq.open(path).close()
    assert "café 😀" in fmq_process("verify", path, "--format", "json").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", f"nowhere{HOSTILE}"),
        ("info", "d", HOSTILE),
        (HOSTILE,),
        ("records", "d", "--kind", HOSTILE),
        ("records", "d", "--limit", HOSTILE),
        ("topic", "create", "d", "t", "--retain", HOSTILE),
        ("export", f"nowhere{HOSTILE}", "out"),
    ],
    ids=[f"case {number}" for number in range(7)],
)
def test_no_error_message_has_control_characters(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Test errors of the engine and of the command line."""
    code, _, error = run(*arguments, cwd=tmp_path)
    assert code in (2, 3)
    assert error and is_harmless(error), ascii(error)


@pytest.mark.parametrize("how", ["json", "table"])
def test_the_demo_escapes_control_characters_of_its_path(tmp_path: Path, how: str) -> None:
    """Its headings, sentences and commands name the directory."""
    code, out, error = run("demo", tmp_path / HOSTILE, "--format", how)
    assert code == 0, error
    assert is_harmless(out), ascii(out)


NAMED = {
    ("tx", "list"): ("tx", "producer", "topic"),
    ("records",): ("tx", "producer", "topic", "group"),
    ("info",): ("tx", "producer", "topic", "group"),
}


@pytest.mark.parametrize("verb", NAMED, ids=" ".join)
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_long_ids_are_wrapped_and_not_cut(
    tmp_path: Path, columns: int, verb: tuple[str, ...]
) -> None:
    """Ids and names of up to 255 characters continue on the next line of their column."""
    letters = {"tx": "x", "producer": "p", "topic": "t", "group": "g"}
    names = {
        name: "".join(letter + a + b for a in "jkqvwyz" for b in "jkqvwyz")
        for name, letter in letters.items()
    }
    path = tmp_path / "d"
    with fmq.open(path, background=False) as engine:
        tx = engine.transaction(tx_id=names["tx"], producer=names["producer"])
        tx.send(names["topic"], b"1")
        tx.prepare()
        engine.send(names["topic"], b"2")
        with engine.consumer(names["topic"], group=names["group"]) as consumer:
            consumer.poll()[0].ack()
    done = fmq_process(*verb, path, "--format", "table", COLUMNS=str(columns))
    assert "…" not in done.stdout
    for name in NAMED[verb]:
        assert pieces_make(names[name], done.stdout), f"{name}:\n{done.stdout}"


def pieces_make(name: str, table: str) -> bool:
    """Return whether some column of `table` has all of `name`, in pieces one below the other."""
    rest = name
    for line in table.splitlines():
        for word in line.replace("/", " ").split():
            if len(word) > 1:  # and no letter of a title
                rest = rest.removeprefix(word)
    return not rest
