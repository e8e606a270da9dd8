"""How the command ends, and for whom it prints what."""

import contextlib
import json
import os
import pty
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import fmq
import fmq.bind
from fmq.cli.main import main
from tests.cli.command import COMMAND, ENVIRONMENT, fmq_json, fmq_process


def test_an_error_of_fmq_is_one_paragraph_and_no_traceback(tmp_path: Path) -> None:
    """The exit code is 3, and stdout stays empty."""
    done = fmq_process("info", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("fmq: ") and done.stderr.count("\n") == 1


def test_an_os_error_is_one_paragraph_and_no_traceback(shop: Path) -> None:
    """A directory in place of a segment causes an OSError. The exit code is 3."""
    segment = next(shop.glob("*.seg"))
    segment.unlink()
    segment.mkdir()
    code, _, error = fmq_json("records", shop)
    assert code == 3
    assert error.startswith("fmq: ") and error.count("\n") == 1


NOT_TEXT = "\udcff"  # as Python hands over the byte 0xff


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("tx",),
        ("look",),
        ("records",),
        ("records", "d", "x"),
        ("records", "d", "--limit", "-1"),
        ("records", "d", "--limit", str(1 << 64)),
        ("records", "d", "--limit", "many"),
        ("records", "d", "--from", "-1"),
        ("records", "d", "--tx", NOT_TEXT),
        ("records", "d", "--topic", NOT_TEXT),
        ("topic", "create", "d", "t", "--retain", "0"),
        ("topic", "create", "d", "t", "--retain", "-1"),
        ("topic", "create", "d", "t", "--retain", "nan"),
        ("topic", "create", "d", "t", "--retain", "inf"),
        ("topic", "create", "d", "t", "--retain", "long"),
        ("tx", "show", "d", NOT_TEXT),
        ("tx", "decide", "d", NOT_TEXT, "commit", "--reason", "x"),
        ("tx", "decide", "d", "t", "commit", "--reason", NOT_TEXT),
        ("tx", "decide", "d", "t", "commit", "--reason", "x", "--by", NOT_TEXT),
        ("tx", "decide", "d", "t", "commit", "--reason", "x", "--seal", NOT_TEXT),
    ],
    ids=lambda arguments: ascii(" ".join(arguments)),
)
def test_a_wrong_command_line_exits_with_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage is printed to stderr, and nothing is opened."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: fmq")


def test_output_succeeds_in_any_encoding_of_stdout(tmp_path: Path) -> None:
    """`tx decide` prints when its decision is durable, so it must not fail at a name's encoding."""
    reason = "café, 5 €, 😀"
    with fmq.open(tmp_path / "d", background=False) as engine:
        tx = engine.transaction(tx_id="t1", producer="Zoë")
        tx.send("t", b"1")
        tx.prepare()
    decide = ("tx", "decide", tmp_path / "d", "t1", "commit", "--reason", reason)
    for encoding in ("ascii", "latin-1", "utf-8"):
        done = fmq_process(*decide, PYTHONIOENCODING=encoding, PYTHONUTF8="1")
        assert (done.returncode, done.stderr) == (0, "")
        outcome = json.loads(done.stdout.splitlines()[0])
        assert (outcome["producer"], outcome["reason"]) == ("Zoë", reason)
    table = fmq_process(*decide, "--format", "table", PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert table.returncode == 0
    assert "caf\\xe9" in table.stdout


@pytest.mark.parametrize("how", ["json", "table"])
def test_a_directory_name_that_is_not_text_is_shown_escaped(shop: Path, how: str) -> None:
    """In JSON it can be read back."""
    strange = shop.rename(shop.with_name(NOT_TEXT))
    done = fmq_process("verify", strange, "--format", how)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\udcff" in done.stdout
    if how == "json":
        assert json.loads(done.stdout)["path"] == str(strange)


def test_a_command_without_stdout_does_nothing(shop: Path) -> None:
    """An example is `fmq tx decide ... >&-`, whose decision could not be seen."""
    decide = ("tx", "decide", shop, "order-3", "commit", "--reason", "x")
    for arguments in (("records", shop), decide):
        line = shlex.join(map(str, [*COMMAND, *arguments]))
        done = subprocess.run(
            f"{line} >&-", shell=True, env=ENVIRONMENT, stderr=subprocess.PIPE, check=False
        )
        assert done.returncode == 3
        assert done.stderr.startswith(b"fmq: stdout is closed") and done.stderr.count(b"\n") == 1
    assert len(fmq_json("tx", "list", shop).lines) == 1


def test_without_stderr_errors_are_not_printed_to_stdout(tmp_path: Path) -> None:
    line = shlex.join(map(str, [*COMMAND, "info", tmp_path]))
    done = subprocess.run(
        f"{line} 2>&-", shell=True, env=ENVIRONMENT, stdout=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stdout) == (3, b"")


def test_a_directory_without_a_journal_is_an_error_and_stays_empty(tmp_path: Path) -> None:
    """Test every verb that takes a directory, those that write included."""
    for verb in (
        ["info"],
        ["records"],
        ["verify"],
        ["tx", "list"],
        ["tx", "show"],
        ["tx", "decide"],
        ["send"],
        ["read"],
        ["find"],
        ["delayed", "list"],
        ["delayed", "recall"],
    ):
        more = {"show": ["order-1"], "decide": ["order-1", "commit", "--reason", "x"]}
        more |= {"send": ["t", "x"], "read": ["t"], "find": ["t", "k"], "recall": ["0"]}
        code, lines, error = fmq_json(*verb, tmp_path, *more.get(verb[-1], []))
        assert (code, lines) == (3, []), verb
        assert "no journal" in error, verb
    assert list(tmp_path.iterdir()) == []


def test_output_to_a_pipe_is_json_lines_and_imports_no_rich(shop: Path) -> None:
    """Each line is an object that begins with `what`. rich would double the start time."""
    script = (
        "import sys; from fmq.cli.main import main; code = main(sys.argv[1:]);"
        "assert 'rich' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "info", shop],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    whats = [next(iter(json.loads(line))) for line in done.stdout.splitlines()]
    assert whats and set(whats) == {"what"}


def test_output_to_a_terminal_is_a_table(shop: Path) -> None:
    """Method: read through a pseudo-terminal."""
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "COLUMNS": "120", "TERM": "dumb"}
    with subprocess.Popen([*COMMAND, "tx", "list", shop], stdout=theirs, env=environment) as child:
        os.close(theirs)
        said = b""
        # Linux says EIO when the last who had the other end open has closed it.
        while not said.endswith(b"\n") or child.poll() is None:
            try:
                said += os.read(ours, 4096)
            except OSError:
                break
    os.close(ours)
    heading, row = said.decode().splitlines()
    assert child.returncode == 0
    assert row.index("order-3") == heading.index("transaction")
    assert row.index("checkout") == heading.index("producer")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_tail_that_waits(shop: Path) -> None:
    """What came before is printed, and no error."""
    with subprocess.Popen(
        [*COMMAND, "tail", shop, "audit"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdout is not None
        for _ in range(3):
            child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=60)
    assert (child.returncode, error) == (130, b"")


@pytest.fixture
def long_journal(tmp_path: Path) -> Path:
    """More lines of JSON than a pipe and the buffers around it hold."""
    path = tmp_path / "long"
    with fmq.open(path) as engine:
        for _ in range(2000):
            engine.send("topic", b"x", sync=False)
    return path


@pytest.mark.parametrize("how", ["json", "table"])
def test_a_closed_pipe_exits_with_141_and_prints_no_error(long_journal: Path, how: str) -> None:
    """An example is `fmq records DIR | head -1`. Shells give the same exit code."""
    with subprocess.Popen(
        [*COMMAND, "records", long_journal, "--format", how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_exits_with_130_and_prints_no_error(long_journal: Path) -> None:
    """Interrupt the command while it waits for its reader."""
    with subprocess.Popen(
        [*COMMAND, "records", long_journal],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=60)
    assert (child.returncode, error) == (130, b"")


def test_the_version_is_that_of_the_package() -> None:
    assert fmq_process("--version").stdout == f"fmq {fmq.__version__}\n"


def test_the_command_ddl_has_no_other_format_than_sql(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fmq_json("ddl", "sqlite")
    assert ended.value.code == 2


@pytest.mark.parametrize("verb", ["info", "verify", "records"])
def test_an_error_for_an_empty_path_does_not_mention_a_parent(verb: str, tmp_path: Path) -> None:
    done = fmq_process(verb, "", cwd=tmp_path)
    assert "parent" not in done.stderr and "fmq: :" not in done.stderr


def test_the_command_ddl_prints_only_sql() -> None:
    """A migration can take it over as it is."""
    done = fmq_process("ddl", "sqlite")
    assert (done.returncode, done.stdout) == (0, fmq.bind.ddl("sqlite"))
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(done.stdout)
