"""What users see of fmq is what is meant: names, docstrings, types, errors, README, examples."""

import copy
import dataclasses
import importlib.util
import inspect
import pickle
import re
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fmq
import fmq.bind
import fmq.testing
from fmq.basics.message import Origin, make_messages
from fmq.consume.claims.delivery import DeliveredRange
from fmq.feedback.service import Feedback
from tests import warm

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted([ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").rglob("*.md")])

NAMES = """
    AnyConsumer AnyEngine Appended WritingEngine Answer Backup Batch CheckLoop Consumer Counts
    DeadLetter ClientInfo FormerMember HeldMessages HomeStats DeadLetters DelayedReceipt Delivery
    DeliveryBatch TopicCodec TypedTopic
    GroupCounts Engine Feedback FmqError Group GroupInfo JointDecision Kept Limit Mark
    MemberInfo Message Options Origin Outcome Pause Problem Question QueueInfo ReadOnlyEngine
    Receipt Reconciliation RecoveryReport RemoteConsumer RemoteEngine Report Restored Retry
    RollBack Salvaged ScheduleInfo Serving Setting Settled Shipped Stats Stopped Times
    Transaction UndecidedTransaction backup check connect current_transaction errors filters
    codecs open reconcile restore salvage ship stop
"""

spec = importlib.util.spec_from_file_location("dev", ROOT / "tools" / "dev.py")
assert spec is not None
assert spec.loader is not None
dev = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dev)


def test_the_public_names_are_those_of_a_list() -> None:
    """No name is added or removed by accident."""
    assert sorted(fmq.__all__) == sorted({*NAMES.split(), *error_names()})
    assert all(hasattr(fmq, name) for name in fmq.__all__)


def test_no_name_is_public_by_accident() -> None:
    """What `import fmq` shows without an underscore is in __all__, or is a module of fmq."""
    shown = {name for name in vars(fmq) if not name.startswith("_")}
    others = shown - set(fmq.__all__)
    assert [name for name in others if not inspect.ismodule(getattr(fmq, name))] == []


# Objects that a program keeps and calls: they are no results.
HANDLES = {
    *("CheckLoop", "Consumer", "Engine", "Feedback", "ReadOnlyEngine", "RemoteConsumer"),
    *("DeadLetters", "Group", "RemoteEngine", "Serving", "Transaction"),
    *("AnyConsumer", "AnyEngine", "WritingEngine", "TypedTopic"),
}


def test_every_result_is_read_only() -> None:
    """A caller cannot change a result by accident: no attribute can be set."""
    classes = {name: each for name in fmq.__all__ if inspect.isclass(each := getattr(fmq, name))}
    results = {
        name: each
        for name, each in classes.items()
        if name not in HANDLES and not issubclass(each, Exception)
    }
    assert len(results) == 43
    assert [name for name, each in results.items() if not is_read_only(each)] == []
    for name, value in public_objects():
        if dataclasses.is_dataclass(value):
            assert vars(value)["__dataclass_params__"].frozen, name


def is_read_only(kind: type) -> bool:
    """Return whether `kind` is a frozen dataclass, a named tuple, or has only properties."""
    if dataclasses.is_dataclass(kind):
        return bool(vars(kind)["__dataclass_params__"].frozen)
    if any("__slots__" not in vars(each) for each in kind.__mro__ if each not in (object, tuple)):
        return False  # any attribute can be set
    shown = [inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")]
    return issubclass(kind, tuple) or all(
        isinstance(each, property) or callable(each) for each in shown
    )


def attributes_of(value: object) -> list[str]:
    names = [name for name in dir(value) if not name.startswith("_")]
    return [name for name in names if not callable(getattr(value, name))]


def test_results_that_are_no_dataclasses_are_read_only_and_copyable(tmp_path: Path) -> None:
    """Messages, receipts, batches and deliveries refuse new values. A copy of each is complete."""
    with fmq.open(tmp_path / "d") as engine:
        engine.topic("t", codec=fmq.codecs.json())  # a delivery's value is read, too
        results: list[typing.Any] = [engine.send("t", b"1", key="k"), *engine.read("t")]
        results.append(batch := engine.read_batch("t"))
        assert batch is not None
        assert [(each.key, each.body) for each in copy.copy(batch).messages] == [("k", b"1")]
        for group in ("g", "h"):
            consumer = engine.consumer("t", group=group)
            handed = consumer.poll()[0] if group == "g" else consumer.poll_batch()
            assert handed is not None
            results.append(handed)
            copy.copy(handed).ack()
        for each in results:
            assert attributes_of(each)
            for name in attributes_of(each):
                with pytest.raises(AttributeError):
                    setattr(each, name, None)
        assert [(info.group, info.unread) for info in engine.groups()] == [("g", 0), ("h", 0)]


@pytest.mark.parametrize("made", [fmq.Batch, fmq.Delivery, fmq.DeliveryBatch])
def test_results_that_only_an_engine_makes_cannot_be_made(made: typing.Any) -> None:
    with pytest.raises(TypeError):
        made()


def test_messages_can_be_put_in_a_set(tmp_path: Path) -> None:
    """Headers are a dict, and count where messages are compared."""
    with fmq.open(tmp_path / "d") as engine:
        for value in "aba":
            engine.send("t", b"1", headers={"x": value})
        messages = engine.read("t")
    assert len(set(messages)) == 3
    assert len({fmq.Message(each.body, headers=each.headers) for each in messages}) == 2


def test_an_origin_has_its_time_as_a_datetime(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"1")
        (message,) = engine.read("t")
    assert message.origin is not None
    assert message.origin.time == message.time
    assert message.origin.time.tzinfo is not None


def public_objects() -> Iterator[tuple[str, object]]:
    """Every public class and function, and what testing has."""
    for module in (fmq, fmq.errors, fmq.testing):
        names = getattr(module, "__all__", None) or error_names()
        for name in names:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


def error_names() -> list[str]:
    return [name for name, value in vars(fmq.errors).items() if is_error(value)]


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, fmq.FmqError)


def functions(value: object) -> Iterator[tuple[str, typing.Any]]:
    """The function itself, or the public methods and properties that the class defines."""
    if inspect.isfunction(value):
        yield value.__name__, value
    elif isinstance(value, type):
        for base in value.__mro__:
            if base.__module__.startswith("fmq."):
                for name, member in vars(base).items():
                    if not name.startswith("_"):
                        member = getattr(member, "fget", None) or member
                        if inspect.isfunction(member):
                            yield name, member


def test_every_public_name_has_a_docstring() -> None:
    """Each public class and function says in a sentence what a caller can rely on."""
    missing = [name for name, value in public_objects() if "." not in own_docstring(value)]
    assert missing == []


def own_docstring(value: object) -> str:
    # A dataclass without a docstring is given its signature as one.
    doc = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    name = getattr(value, "__name__", "")
    return "" if doc is None or doc.startswith(f"{name}(") else doc


def test_every_public_method_that_takes_an_argument_has_a_docstring() -> None:
    """The name of a property says what it is. What a call does must be written down."""
    missing = [
        f"{name}.{method}"
        for name, value in public_objects()
        for method, function in functions(value)
        if not function.__doc__ and len(inspect.signature(function).parameters) > 1
    ]
    # The protocols that the testing disks and clock serve say what their methods do.
    assert [name for name in missing if not name.startswith("fmq.testing")] == []


def test_every_public_name_has_type_hints() -> None:
    """Each parameter and each result of a public function or method is annotated."""
    missing = []
    for name, value in public_objects():
        for method, function in functions(value):
            signature = inspect.signature(function)
            hints = function.__annotations__
            parameters = [each for each in signature.parameters if each not in ("self", "cls")]
            if "return" not in hints or any(each not in hints for each in parameters):
                missing.append(f"{name}.{method}")
    assert missing == []


def test_every_public_hint_can_be_resolved() -> None:
    """Containers, validators and documentation ask for types at run time, also for names that are
    imported when first used.
    """
    missing = []
    others = {
        "Feedback": Feedback,
        "DeliveredRange": DeliveredRange,
        "checker_of": fmq.bind.checker_of,
    }.items()
    for name, value in [*public_objects(), *others]:
        annotated = [*functions(value)]
        if isinstance(value, type):
            annotated.append(("itself", value))
        for method, each in annotated:
            try:
                typing.get_type_hints(each)
            except (NameError, TypeError):
                missing.append(f"{name}.{method}")
    assert missing == []
    assert typing.get_type_hints(fmq.Engine.outcome)["return"] is fmq.Outcome
    assert typing.get_type_hints(fmq.Engine.undecided)["return"] == list[fmq.UndecidedTransaction]
    assert typing.get_type_hints(fmq.open)["return"] == fmq.Engine | fmq.ReadOnlyEngine


def test_the_package_says_that_it_is_typed() -> None:
    """py.typed lies beside the code, so type checkers believe the hints."""
    assert (ROOT / "fmq" / "py.typed").exists()


def test_the_docstring_of_errors_has_the_tree_of_the_classes() -> None:
    """fmq/errors/__init__.py draws each class below its base, and leaves none out."""
    assert drawn_tree() == {
        name: getattr(fmq.errors, name).__mro__[1].__name__
        for name in error_names()
        if name != "FmqError"
    }


def drawn_tree() -> dict[str, str]:
    """Return, for each name in the drawing, the name above it."""
    assert fmq.errors.__doc__ is not None
    parents: dict[str, str] = {}
    above = ["FmqError"]
    drawn = r"^    ((?:│   |    )*)[├└]── (.*)"
    for inner, text in re.findall(drawn, fmq.errors.__doc__, re.MULTILINE):
        names = text.split("   ")[0].split()  # the text after the names says what they mean
        del above[len(inner) // 4 + 1 :]
        parents.update(dict.fromkeys(names, above[-1]))
        above.append(names[0])
    return parents


def test_an_error_names_the_module_that_programs_import_it_from() -> None:
    """In tracebacks, and in pickles that another version of fmq can load."""
    assert {getattr(fmq.errors, name).__module__ for name in error_names()} == {"fmq.errors"}


def test_each_error_can_be_imported_from_fmq() -> None:
    """`except fmq.LeaseLost` needs no second import."""
    others = [n for n in error_names() if getattr(fmq, n, None) is not getattr(fmq.errors, n)]
    assert others == []


def test_some_errors_are_also_errors_of_python() -> None:
    """A caller that catches ValueError gets the error for a bad name or option."""
    assert issubclass(fmq.errors.BadName, ValueError)
    assert issubclass(fmq.errors.BadOption, ValueError)


def test_a_message_that_was_read_equals_one_that_was_made() -> None:
    """Both are of the same class and read-only."""
    origin = Origin("orders", 0, 64, 1, None, None)
    made = fmq.Message(b"body", "key", "tag", {"a": "b"}, 7, origin)
    (read,) = make_messages(origin, 7, [b"body"], ["key"], ["tag"], [{"a": "b"}])
    assert type(read) is fmq.Message
    assert read == made
    assert repr(read) == repr(made)
    with pytest.raises(AttributeError):
        read.body = b"other"  # type: ignore[misc]


def test_a_single_message_is_refused_as_a_list_of_bodies(tmp_path: Path) -> None:
    """A message is a tuple, and send_many would otherwise send its fields."""
    one: typing.Any = fmq.Message(b"body")
    with fmq.open(tmp_path / "shop") as engine:
        tx = engine.transaction()
        for send_many in (engine.send_many, tx.send_many):
            with pytest.raises(TypeError, match=r"bodies are several, not Message; a list"):
                send_many("t", one)
        tx.rollback()
        with pytest.raises(TypeError, match=r"a message is a pair of topic and body"):
            engine.send_in_transaction([one], lambda _: "commit")
        assert engine.read("t") == []


def test_a_message_and_a_receipt_can_be_pickled(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        for value in (engine.send("t", b"1", headers={"a": "b"}), *engine.read("t")):
            again = pickle.loads(pickle.dumps(value))
            assert (type(again), again) == (type(value), value)


def test_a_message_that_was_read_can_be_sent_again(tmp_path: Path) -> None:
    """Its body, key, tag and headers are sent, its place is not."""
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("first", b"spare", key="k")
        engine.send("first", b"body", key="k", tag="t", headers={"a": "b"})
        engine.send_many("second", engine.read("first", offset=1))
        [message] = engine.read("second")
    assert (message.body, message.key, message.tag, message.headers) == (
        b"body", "k", "t", {"a": "b"},
    )  # fmt: skip
    assert (message.topic, message.offset) == ("second", 0)


def test_importing_fmq_imports_no_module_of_the_command() -> None:
    """It imports neither rich, argparse, ctypes nor sqlite3, so it is cheap."""
    source = "import sys, fmq; print(*sorted(set(sys.modules) & set(sys.argv[1:])))"
    unwanted = ("rich", "argparse", "ctypes", "sqlite3", "asyncio", "uuid", "pickle")
    done = subprocess.run(
        [sys.executable, "-c", source, *unwanted],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


@cache
def said_by(example: str) -> str:
    """Run an example in an empty directory, once for all tests. Return what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(["-W", "error", str(ROOT / "examples" / f"{example}.py")], Path(folder))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        assert list(Path(folder).iterdir()) == []
    return done.stdout


@pytest.mark.parametrize("example", [path.stem for path in EXAMPLES])
def test_each_example_runs_by_itself(example: str) -> None:
    """It runs in an empty directory, without a warning, and leaves no file."""
    said_by(example)


def test_the_crashing_example_ends_as_its_text_says() -> None:
    """Order 2 crashed before its database committed and is gone. Order 3 crashed after it."""
    said = said_by("two_phase_with_sqlite")
    assert said.splitlines()[-1] == "[b'order 1', b'order 3', b'order 4']"


def test_the_example_of_the_dual_write_finds_two_failures() -> None:
    """It finds one for each order of row and message, and none for a bound transaction."""
    said = said_by("find_the_dual_write")
    told = [line for line in said.splitlines() if not line.startswith(" ")]
    failed = "after a crash the check fails: AssertionError"
    assert told[0] == f"row_first: {failed}: rows=['order 1'], messages=[]"
    assert told[1] == f"message_first: {failed}: rows=[], messages=['order 1']"
    assert re.fullmatch(r"bound: \d+ crash points, \d+ distinct states, .*", told[2])


def test_examples_are_short() -> None:
    """One shows a program in three ways, and one has three processes. The others have at most 40
    lines.
    """
    lines = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES}
    assert lines.pop("find_the_dual_write") < 65
    assert lines.pop("web_and_worker") < 65
    assert {stem: count for stem, count in lines.items() if count > 40} == {}


# By their source: a page in Chinese has the snippets of its English page, which run once.
SNIPPETS = {
    found.group(3):
    f"{page.relative_to(ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 1}"
    for page in reversed(PAGES)
    for found in dev.FENCED.finditer(page.read_text())
    if found.group(2).strip() == dev.RUNNABLE
}  # fmt: skip


@pytest.mark.parametrize("source", SNIPPETS, ids=SNIPPETS.get)
def test_each_runnable_snippet_of_the_documents_runs(source: str, tmp_path: Path) -> None:
    """README and guide show code that works as it stands, and without a warning.

    One that makes its tables is started twice in the same folder, as a program that is built on it
    is.
    """
    for _ in range(2 if "CREATE TABLE" in source else 1):
        done = run(["-W", "error", "-c", source], tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_has_a_snippet_that_runs() -> None:
    """The first example that a reader meets is among those that are run."""
    assert any(name.startswith("README.md") for name in SNIPPETS.values())


def test_the_files_of_the_tour_exist_and_have_a_docstring() -> None:
    """There are six of them, in order."""
    tour = (ROOT / "docs" / "reading.md").read_text()
    files = re.findall(r"^\d+\. \[(fmq/\S+\.py)\]", tour, re.MULTILINE)
    assert len(files) == 6
    assert [name for name in files if not (ROOT / name).read_text().startswith('"""')] == []


def test_each_page_is_two_clicks_from_the_index() -> None:
    """A page that no page leads to is not found. A link to a folder leads to its pages."""
    docs = ROOT / "docs"
    reached = {docs / "README.md"}
    for _ in range(2):
        reached |= {target for page in reached for target in linked_pages(page)}
    pages = {ROOT / "README.md", ROOT / "README.zh.md", *docs.rglob("*.md")}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reached) == []
    assert docs / "README.md" in linked_pages(ROOT / "README.md")


def linked_pages(page: Path) -> set[Path]:
    prose = dev.INLINE_CODE.sub("", dev.FENCED.sub("", page.read_text()))
    links = [(first or second).partition("#")[0] for first, second in dev.LINK.findall(prose)]
    places = {(page.parent / link).resolve() for link in links if link and ":" not in link}
    inside = {each for place in places if place.is_dir() for each in place.glob("*.md")}
    return {place for place in places if place.suffix == ".md"} | inside


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TMPDIR": str(directory)}
    return warm.run(arguments, cwd=directory, env=environment)
