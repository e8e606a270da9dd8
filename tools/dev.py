#!/usr/bin/env python3
"""The developer's commands. They need Linux and Python 3.11 or later with its module venv.

    python3 tools/dev.py            ready to commit? format, lint, types, tests
    python3 tools/dev.py test ...   the tests; what follows goes to pytest
    python3 tools/dev.py test engine    one ring of them: engine, inside, integrations, crash
    python3 tools/dev.py test -n 0 ...  in one process; else in four, unless files are named
    python3 tools/dev.py test --processor 20    with the tests that cost the most
    python3 tools/dev.py lint       format, lint and types
    python3 tools/dev.py docs       do links resolve, do snippets run?
    python3 tools/dev.py demo ...   the demonstration; what follows goes to `fmq demo`
    python3 tools/dev.py demo --home    another one: a machine is killed, and the next goes on
    python3 tools/dev.py setup      only what each of the others does first

Set-up makes .venv beside pyproject.toml and installs fmq there, editable; for all but the
demonstration with the tools that pyproject.toml lists, a Java and a PostgreSQL among them, which
are used where the machine has none. It installs nothing outside of .venv and needs no root. It is
done again when that list, the Python or the place has changed. It downloads some 860 MB, and while
it does, it says how far it is.

An old Python must come as far as saying that it is old. So the syntax of this file is that of
Python 3.6, and annotations that 3.6 could not evaluate come after the check.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
RINGS = ROOT / "tests" / "rings.toml"
STAMP = VENV / "made-by-tools-dev"  # what .venv was made from; empty until it is finished
WITH_TOOLS = "with-tools"

PYTHON = "{}.{}".format(*sys.version_info)
PYTHON_MIN = (3, 11)
PROCESSORS_MIN = 2
PROCESSES = 4  # that share the tests: half of the time they wait, for syncs, servers and children
DOWNLOAD_MB = 860  # of a set-up with tools, about; Spark alone is 456
SECONDS_BETWEEN_LINES = 10  # of a set-up that is not read on a terminal
SNIPPET_TIMEOUT = 180  # seconds; a cold Spark takes ten


def run_with_newer_python() -> None:
    """Start again under the oldest Python here that will do: it is sure to have wheels."""
    names = [f"python3.{minor}" for minor in range(PYTHON_MIN[1], PYTHON_MIN[1] + 10)]
    for path in filter(None, map(shutil.which, names)):
        # The name alone proves nothing: version managers put stubs in the path.
        if subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.execv(path, [path, *sys.argv])
    sys.exit(f"fmq needs Python 3.11 or later, and this is {PYTHON}.")


if sys.version_info < PYTHON_MIN:
    run_with_newer_python()


def main(arguments: list[str]) -> int:
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("all", [])
    if verb not in VERBS or (rest and verb not in TAKES_MORE):
        print(__doc__)
        return 0 if verb in ("-h", "--help", "help") else 2
    os.chdir(ROOT)
    try:
        set_up(with_tools=verb != "demo")
        return VERBS[verb](*rest)
    except KeyboardInterrupt:
        return 130


def ready_to_commit() -> int:
    return max(lint(), test())


def test(*arguments: str) -> int:
    """Run pytest. A ring that is named first stands for its files."""
    rest, paths = list(arguments), []
    rings = files_of_rings()
    while rest and rest[0] in rings:
        paths += rings[rest.pop(0)]
    for lack in what_tests_lack():
        say("machine", lack)
    return run("-m", "pytest", "-p", "tests.pace", *shared_by(rest), *paths, *rest)


def what_tests_lack(shm: str = "/dev/shm") -> list[str]:
    """Return in words what this machine lacks, so that tests are skipped."""
    found = []
    try:
        socket.getaddrinfo("localhost", 80)
    except OSError as error:
        found.append(
            f"localhost has no address ({error}). The tests that need it are skipped, by name. "
            "Write the line `127.0.0.1 localhost` into /etc/hosts."
        )
    try:
        with tempfile.NamedTemporaryFile(dir=shm):
            pass
    except OSError as error:
        found.append(
            f"{shm} cannot be written ({error}). The tests that need it are skipped, by name. "
            "Mount a tmpfs there; docker does so with --shm-size=256m."
        )
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError as error:
        found.append(f"IPv6 is off ({error}). The tests that need it are skipped, by name.")
    return found


def shared_by(rest: list[str]) -> list[str]:
    """Return what makes pytest share the tests among processes; nothing where that would not help.

    For a file or two, starting the others takes longer than the tests. A debugger needs this one.
    """
    alone = ("-n", "--numprocesses", "--pdb", "--trace", "--collect-only", "--co", "-h", "--help")
    if any(each.startswith(alone) or ".py" in each for each in rest):
        return []
    if len(os.sched_getaffinity(0)) < PROCESSORS_MIN:
        return []
    # The first to be idle takes the next file: some take as long as a hundred others.
    return ["-n", str(PROCESSES), "--dist", "loadfile"]


def demo(*arguments: str) -> int:
    return run("-m", "fmq", "demo", *arguments)


def run(*arguments: str) -> int:
    """Run the environment's Python; it is told to end when this process is."""
    child: subprocess.Popen[bytes] | None = None
    is_told = False

    def end(*_: object) -> None:
        nonlocal is_told
        is_told = True
        if child is not None:
            child.terminate()

    # Before there is a child: a signal that comes meanwhile ends it right after.
    signal.signal(signal.SIGTERM, end)
    child = subprocess.Popen([VENV_PYTHON, *arguments], env=keeping_bytecode())
    if is_told:
        child.terminate()
    code = child.wait()
    # As a shell says it: a negative number would become another one.
    return code if code >= 0 else 128 - code


def keeping_bytecode() -> dict[str, str]:
    """Return this environment, in which Python may keep what it compiles.

    Images of containers often forbid it. Then each process compiles all of the tests again, which
    takes 11 seconds, and each server that a test starts compiles what it imports.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def lint() -> int:
    # All of them, whatever the first says: one run shows all there is to mend.
    results = [
        step("format", "ruff", "format", "--check"),
        step("lint", "ruff", "check", "--quiet"),
        step("types", "mypy", "--no-error-summary"),
    ]
    return max(results)


def step(name: str, *module: str) -> int:
    done = quietly("-m", *module)
    if done.returncode:
        say(name, "failed\n" + done.stdout.rstrip())
    else:
        say(name, "ok")
    return done.returncode


def docs() -> int:
    # Folders that begin with a dot hold caches and environments, with documents of others.
    pages = [
        page
        for page in sorted(ROOT.rglob("*.md"))
        if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
    ]
    links = [trouble for page in pages for trouble in broken_links(page)]
    snippets = [trouble for page in pages for trouble in failing_snippets(page)]
    say("links", "\n".join(["failed", *links]) if links else "ok")
    say("snippets", "\n".join(["failed", *snippets]) if snippets else "ok")
    return 1 if links or snippets else 0


def say(name: str, result: str) -> None:
    print(f"{name}: {result}", flush=True)


def quietly(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python, keeping what it prints for those who will want to know."""
    return subprocess.run(
        [VENV_PYTHON, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )


# --- the environment ---

CANNOT_MAKE_ENVIRONMENTS = (
    "This Python cannot make virtual environments: install the package that adds this"
    f" (python{PYTHON}-venv on Debian and Ubuntu), and run this again."
)


def set_up(*, with_tools: bool) -> None:
    """Make .venv, unless the one that is there was made from what we would make it from."""
    import tomllib

    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    wanted = fingerprint(project)
    made = STAMP.read_text().split() if STAMP.exists() and VENV_PYTHON.exists() else []
    if made == [wanted, WITH_TOOLS] or (made == [wanted] and not with_tools):
        return
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        sys.exit(CANNOT_MAKE_ENVIRONMENTS)
    if made != [wanted]:
        remove_environment()
        make_environment()
    install(project["dependency-groups"]["dev"] if with_tools else [])
    STAMP.write_text(f"{wanted} {WITH_TOOLS}" if with_tools else wanted)


def fingerprint(project: dict[str, Any]) -> str:
    """Return what the environment depends on, without settings of the tools and the like."""
    parts = [project[name] for name in ("build-system", "project", "dependency-groups")]
    text = json.dumps([sys.version_info[:2], str(ROOT), parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def remove_environment() -> None:
    config = VENV / "pyvenv.cfg"
    if config.exists() and not STAMP.exists():
        sys.exit(f"{VENV} was not made by this script: move it away, and run this again.")
    if VENV.exists():
        # First what makes it look like somebody's environment, in case we do not get further.
        if config.exists():
            config.unlink()
        shutil.rmtree(VENV)


def make_environment() -> None:
    import venv

    say("setup", f"Python {PYTHON} in {VENV}")
    VENV.mkdir()
    STAMP.touch()
    # Not `python -m venv`: this very process may run in the environment just removed.
    try:
        venv.create(VENV, with_pip=True, symlinks=True)
    except subprocess.CalledProcessError as error:
        sys.exit(error.output.decode(errors="replace") + CANNOT_MAKE_ENVIRONMENTS)


def install(tools: list[str]) -> None:
    what = "fmq and its tools, Spark, Java and PostgreSQL among them" if tools else "fmq"
    say("setup", f"installing {what}")
    pip = ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    pip.append("--no-compile")  # half of the time; most of these files are never imported
    child = subprocess.Popen(
        [VENV_PYTHON, *pip, "--editable", ROOT, *tools],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    said = []
    progress = Progress(DOWNLOAD_MB if tools else 0)
    with child.stdout as lines:
        for line in lines:
            said.append(line)
            progress.take(line)
    progress.end()
    if child.wait():
        sys.exit("".join(said) + "setup: pip failed, see above; run this again to retry.")


IN_MB = {"kB": 0.001, "MB": 1, "GB": 1000}


class Progress:
    """Says in a line what pip is at: on a terminal always in the same line, else now and then."""

    SIZE = re.compile(r"\(([\d.]+) (kB|MB|GB)\)")

    def __init__(self, total_mb: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._total_mb = total_mb
        self._clock = clock
        self._began = clock()
        self._said = self._began
        self._mb = 0.0
        self._of_last = 0.0  # what is being downloaded now; it is not there yet
        self._on_terminal = sys.stdout.isatty()

    def take(self, line: str) -> None:
        """Note a line of pip, and say what it means."""
        words = line.split()
        if not words:
            return
        found = self.SIZE.search(line)
        if words[0] in ("Downloading", "Using") and found:
            self._mb += self._of_last
            self._of_last = float(found[1]) * IN_MB[found[2]]
            name = words[2 if words[0] == "Using" else 1].rpartition("/")[2].partition("-")[0]
            self._say(f"downloading {name}, {found[1]} {found[2]}", large=self._of_last > 20)
        elif words[:3] == ["Building", "wheel", "for"]:
            self._mb += self._of_last
            self._of_last = 0.0
            self._say(f"building {words[3]}")
        elif words[0] == "Installing" and "collected" in words:
            self._mb += self._of_last
            self._of_last, self._total_mb = 0.0, 0.0  # all is here; some of it pip had already
            self._say(
                f"installing {len(words) - 3} packages, which takes a minute or two", large=True
            )

    def _say(self, what: str, *, large: bool = False) -> None:
        now = self._clock()
        if not self._on_terminal and not large and now - self._said < SECONDS_BETWEEN_LINES:
            return
        self._said = now
        elapsed = now - self._began
        text = f"{what}; {self._mb:.0f}"
        text += f" of about {self._total_mb:.0f} MB" if self._total_mb else " MB"
        text += f" after {minutes(elapsed)}"
        if self._mb > 20 and self._total_mb > self._mb:
            text += f", about {minutes(elapsed * (self._total_mb - self._mb) / self._mb)} left"
        if self._on_terminal:
            print(f"\r\033[Ksetup: {text}", end="", flush=True)
        else:
            say("setup", text)

    def end(self) -> None:
        """Leave the line of a terminal, and say how long it took."""
        if self._on_terminal:
            print("\r\033[K", end="")
        say("setup", f"{self._mb:.0f} MB were installed in {minutes(self._clock() - self._began)}")


def minutes(seconds: float) -> str:
    return f"{round(seconds) // 60}:{round(seconds) % 60:02}"


# --- the rings of tests ---


def files_of_rings() -> dict[str, list[str]]:
    """Return the test files of each ring, as tests/rings.toml places them."""
    import tomllib

    with open(RINGS, "rb") as file:
        rings = tomllib.load(file)
    ring_of = {place: name for name, ring in rings.items() for place in ring["places"]}
    found: dict[str, list[str]] = {name: [] for name in rings}
    for folder in sorted({place.split("/")[0] for place in ring_of}):
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            file_path = path.relative_to(ROOT)
            # The file itself, then its folder, then the folder around that one.
            places = [str(file_path), *map(str, file_path.parents)]
            name = next((ring_of[place] for place in places if place in ring_of), None)
            if name is not None:
                found[name].append(str(file_path))
    return found


# --- the documents ---

# A fence may be indented in a list; its end is the next line with the same fence.
FENCED = re.compile(r"^ *(```+|~~~+)(.*)\n((?:.*\n)*?) *\1 *$", re.MULTILINE)
INLINE_CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(<?([^)\s>]+)[^)]*\)|^ *\[(?!\^)[^\]]+\]: *(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
RUNNABLE = "python runnable"  # how the info string of a snippet begins that must run as it stands


def broken_links(page: Path) -> list[str]:
    """A line for each link of `page` to a file or heading of this checkout that is not there."""
    prose = INLINE_CODE.sub("", FENCED.sub("", page.read_text()))
    targets = [first or second for first, second in LINK.findall(prose)]
    return [
        f"{page.relative_to(ROOT)}: {target}"
        for target in targets
        if not ELSEWHERE.match(target) and not resolves(page, target)
    ]


def resolves(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    if not file.exists():
        return False
    return not anchor or file.suffix != ".md" or anchor in anchors(file)


def anchors(page: Path) -> set[str]:
    """The names that the usual hosts give to the headings of `page`."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = (f"{name}-{number}" for number in range(1, len(found) + 1))
        found.add(next(new for new in (name, *again) if new not in found))
    return found


def failing_snippets(page: Path) -> list[str]:
    """Return the output of each failing snippet of `page`."""
    troubles = []
    for match in FENCED.finditer(page.read_text()):
        kind = match.group(2).strip()
        if kind.startswith(RUNNABLE):
            said = run_snippet(textwrap.dedent(match.group(3)))
            line = page.read_text()[: match.start()].count("\n") + 1
            if said is not None:
                troubles.append(f"{page.relative_to(ROOT)}:{line}: {said}")
    return troubles


def run_snippet(source: str) -> str | None:
    """Return what `source` prints if it fails in an empty directory; None if it runs."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            done = quietly("-c", source, cwd=directory, timeout=SNIPPET_TIMEOUT)
        except subprocess.TimeoutExpired:
            return f"still running after {SNIPPET_TIMEOUT} s"
    return done.stdout if done.returncode else None


VERBS: dict[str, Callable[..., int]] = {
    "all": ready_to_commit,
    "test": test,
    "lint": lint,
    "docs": docs,
    "demo": demo,
    "setup": lambda: 0,
}
TAKES_MORE = {"test", "demo"}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
