#!/usr/bin/env python3
"""Make the two files of a release, and try them: python3 tools/release.py [--out dist]

What is committed is built twice, in two places, and both times must give the same bytes. The wheel
is installed in an empty environment of each Python that is to be had, and tested there without the
checkout. The source distribution must install the same files. Nothing is published: at the end
stands what a person has to do.

    python3 tools/release.py --only 3.11     # one Python
    python3 tools/release.py --quick         # build and look, install nothing

It needs git and a package index, and takes some minutes. The exit code is 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON_MIN, PYTHON_MAX = 11, 14  # minor versions of Python 3
WHEEL_BYTES_MAX = 2 * 1024 * 1024
SDIST_BYTES_MAX = 5 * 1024 * 1024
TEST_TOOLS = ("pytest", "hypothesis")
SMALL_RING = (
    "tests/test_engine.py",
    "tests/test_promises.py",
    "tests/tx/test_transaction.py",
    "tests/consume/test_consumer.py",
    "tests/recovery/test_recover.py",
)
# These are no part of the wheel: fmq itself comes from the environment.
BESIDE_THE_WHEEL = ("tests", "crash_tests", "docs", "tools", "README.md", "pyproject.toml")
WHERE_IS_IT = "import fmq, fmq.aio, fmq.bind, fmq.testing; print(fmq.__version__, fmq.__file__)"


class Release:
    """The checks of one release. Each says in a line what it has found."""

    def __init__(self, work: Path, out: Path) -> None:
        self.work = work
        self.out = out
        self.troubles = 0
        self.to_do: list[str] = []

    def check(self, name: str, is_fine: bool, found: str) -> None:
        print(f"{'ok   ' if is_fine else 'WRONG'}  {name}: {found}", flush=True)
        self.troubles += not is_fine

    # --- what is said of it ---

    def version(self) -> str:
        """Return the version, which fmq/__init__.py alone has. Check that the changelog has it."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        code = (ROOT / "fmq" / "__init__.py").read_text()
        version: str
        version, *others = re.findall(r'^__version__ = "(.*)"$', code, re.MULTILINE)
        one_place = not others and project["dynamic"] == ["version"]
        self.check("version", one_place, f"{version}, in one place")
        changes = (ROOT / "docs" / "CHANGELOG.md").read_text()
        entry = re.search(rf"^## \[{re.escape(version)}\] - (.*)$", changes, re.MULTILINE)
        self.check("changelog", entry is not None, f"has an entry for {version}")
        if entry is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", entry[1]):
            self.to_do.append(
                f"write the date into docs/CHANGELOG.md, in the place of {entry[1]!r}"
            )
        if not project.get("urls"):
            self.to_do.append("give pyproject.toml [project.urls]: there is no public address yet")
        return version

    # --- the two files ---

    def build(self) -> list[Path]:
        """Build what is committed twice, compare, and return the wheel and the sdist."""
        commit, seconds = git("log", "-1", "--format=%H %ct").split()
        changed = git("status", "--porcelain")
        self.check(
            "commit", not changed, f"{commit[:12]}; {len(changed.splitlines())} files differ"
        )
        builder = environment(self.work / "builder", sys.executable)
        pip(builder, "hatchling")
        made = []
        for place in ("one", "another/place"):
            source = self.work / place
            source.mkdir(parents=True)
            unpack = subprocess.Popen(["tar", "x", "-C", source], stdin=subprocess.PIPE)
            subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=unpack.stdin, check=True)
            unpack.communicate()
            run(
                builder,
                *("-m", "hatchling", "build", "-d", source / "dist"),
                cwd=source,
                SOURCE_DATE_EPOCH=seconds,
            )
            made.append(sorted((source / "dist").iterdir()))
        same = [one.read_bytes() == two.read_bytes() for one, two in zip(*made, strict=True)]
        self.check("reproducible", same == [True, True], "two builds, the same bytes")
        self.out.mkdir(exist_ok=True)
        files = [Path(shutil.copy(file, self.out)) for file in made[0]]
        for file in files:
            data = file.read_bytes()
            most = WHEEL_BYTES_MAX if file.suffix == ".whl" else SDIST_BYTES_MAX
            digest = hashlib.sha256(data).hexdigest()
            self.check(
                "size", len(data) < most, f"{file.name} {len(data):,} bytes, sha256 {digest}"
            )
        return sorted(files, key=lambda file: file.suffix != ".whl")

    def look(self, wheel: Path, sdist: Path, version: str) -> None:
        """Check what is in the files, and what their metadata says."""
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            (place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            said = HeaderParser().parsestr(archive.read(place).decode())
        tops = {name.partition("/")[0] for name in names}
        info = place.partition("/")[0]
        self.check("wheel", tops == {"fmq", info}, f"{len(names)} files below {', '.join(tops)}")
        wanted = {
            "fmq/py.typed",
            f"{info}/licenses/LICENSE",
            f"{info}/entry_points.txt",
        }
        missing = sorted(wanted - {*names})
        self.check(
            "files", not missing, f"missing: {missing}" if missing else "types, licence, fmq"
        )
        expected = {"Name": "fmq-engine", "Version": version, "License-Expression": "Apache-2.0"}
        expected |= {"Requires-Python": f">=3.{PYTHON_MIN}", "License-File": "LICENSE"}
        found = {name: said[name] for name in expected}
        self.check("metadata", found == expected, ", ".join(map(str, found.values())))
        classifiers = said.get_all("Classifier", [])
        self.check("classifiers", "Typing :: Typed" in classifiers, f"{len(classifiers)} of them")
        needs = [each for each in said.get_all("Requires-Dist", []) if "extra ==" not in each]
        self.check("needs", len(needs) == 3, ", ".join(needs))
        with tarfile.open(sdist) as tar:
            inner = {name.partition("/")[2] for name in tar.getnames()}
        lost = [name for name in names if name.startswith("fmq/") and name not in inner]
        self.check("sdist", not lost and "LICENSE" in inner, f"{len(inner)} files, tests included")
        if "](docs/" in said.get_payload():
            self.to_do.append(
                "make the README's links absolute once there is an address: an index shows it"
            )

    # --- in use ---

    def try_wheel(self, wheel: Path, python: str, version: str) -> None:
        """Install the wheel in an empty environment, and test it there."""
        name = f"Python {release_of(python)}"
        there = environment(self.work / name.replace(" ", "-"), python)
        pip(there, str(wheel))
        beside = self.work / f"beside {name}"
        beside.mkdir()
        for part in BESIDE_THE_WHEEL:
            (beside / part).symlink_to(self.work / "one" / part)
        said = run(there, "-c", WHERE_IS_IT, cwd=beside).split()
        is_there = said[0] == version and Path(said[1]).is_relative_to(there.parent.parent)
        self.check(name, is_there, f"import fmq {said[0]}, from its environment")
        packages = run(there, "-m", "pip", "freeze").splitlines()
        kept = [each.partition(" @ ")[0] for each in packages]
        self.check(name, len(kept) < 9, f"installed {', '.join(kept)}")
        run(there, "-m", "fmq", "demo", self.work / f"demo {name}")
        report = run(there, "-m", "fmq", "verify", self.work / f"demo {name}")
        self.check(name, '"ok": true' in report, "fmq demo, and what it leaves is sound")
        pip(there, *TEST_TOOLS)
        tests = [*("-m", "pytest", "-p", "no:cacheprovider"), *SMALL_RING]
        done = python_of(there, *tests, cwd=beside)
        *_, last = done.stdout.strip().splitlines()
        self.check(name, done.returncode == 0, f"a small first ring: {last}")
        if done.returncode:
            print(done.stdout)

    def try_sdist(self, sdist: Path, python: str) -> None:
        """Install the source distribution, which must give the files of the wheel."""
        there = environment(self.work / "from source", python)
        pip(there, str(sdist))
        wheel_of = next(self.work.glob("Python-*/lib/python*/site-packages/fmq"))
        ours = next(there.parent.parent.glob("lib/python*/site-packages/fmq"))
        same = sources(ours) == sources(wheel_of)
        self.check("sdist", same, f"installs the same {len(sources(ours))} files as the wheel")


def sources(place: Path) -> dict[str, str]:
    return {
        str(file.relative_to(place)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in place.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def pythons() -> dict[str, str]:
    """Return the Pythons of this machine that fmq runs on, each with its path."""
    found = {}
    for minor in range(PYTHON_MIN, PYTHON_MAX + 1):
        managed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for path in [shutil.which(f"python3.{minor}"), *map(str, managed)]:
            # The name alone proves nothing: version managers put stubs in the path.
            if (
                path
                and subprocess.call([path, "-c", "import venv"], stderr=subprocess.DEVNULL) == 0
            ):
                found[f"3.{minor}"] = path
                break
    return found


def release_of(python: str) -> str:
    code = "import platform; print(platform.python_version())"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def environment(place: Path, python: str) -> Path:
    """Make an empty environment, and return its Python."""
    subprocess.run([python, "-m", "venv", place], check=True)
    return place / "bin" / "python"


def pip(python: Path, *packages: str) -> None:
    run(python, "-m", "pip", "install", "--quiet", *packages)


def run(python: Path, *arguments: str | Path, cwd: Path | None = None, **names: str) -> str:
    """Run a Python that must end well, and return what it prints."""
    done = python_of(python, *arguments, cwd=cwd, **names)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))} failed:\n{done.stdout}")
    return done.stdout


def python_of(
    python: Path, *arguments: str | Path, cwd: Path | None = None, **names: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python as a user has it, who knows nothing of this checkout."""
    clean = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    clean["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return subprocess.run(
        [python, *arguments],
        cwd=cwd or python.parent,
        env=clean | names,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go")
    parser.add_argument("--only", metavar="3.X", help="one Python")
    parser.add_argument("--quick", action="store_true", help="build and look, install nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fmq-release-") as work:
        release = Release(Path(work), args.out)
        version = release.version()
        wheel, sdist = release.build()
        release.look(wheel, sdist, version)
        here = {} if args.quick else pythons()
        for name, python in here.items():
            if args.only in (None, name):
                release.try_wheel(wheel, python, version)
        if here:
            release.try_sdist(sdist, here[args.only or min(here)])
            wanted = [f"3.{minor}" for minor in range(PYTHON_MIN, PYTHON_MAX + 1)]
            absent = [name for name in wanted if name not in here]
            if absent:
                release.to_do.append(
                    f"try it on Python {', '.join(absent)}, which this machine lacks"
                )
    if release.troubles:
        print(f"{release.troubles} things are wrong. Do not publish this.")
        return 1
    print("\nTo publish, a person does this:")
    steps = [
        *release.to_do,
        "let .ci/run pass on this commit",
        f"git tag -s v{version} && git push --tags",
        f"python -m twine upload {wheel} {sdist}, with a token of the owner of the name",
        "install it by name in an empty environment, and run `fmq demo`",
    ]
    print("\n".join(f"  {number}. {step}" for number, step in enumerate(steps, 1)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
