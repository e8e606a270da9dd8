"""Whether there is a Java that Spark can run on, told in one sentence before Spark tells a page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from fmq.errors import StorageError

JAVA_MIN = 17
MODULE = "jdk.incubator.vector"  # some wheels that carry a Java leave it out
BASE = re.compile(r"^java\.base@(\d+)", re.MULTILINE)


class NoJava(StorageError):
    """There is no Java here that Spark can run on."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java {JAVA_MIN} or later with its module {MODULE}, and {found}. Nothing "
            f"was read or written. `sudo apt-get install openjdk-{JAVA_MIN}-jre-headless` installs "
            "one on Debian and Ubuntu; `fmq export --engine arrow` needs none."
        )


def require_java() -> str:
    """The `java` that Spark will start; NoJava if it could not."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise NoJava("there is no `java` in PATH and no JAVA_HOME")
    try:
        listed = subprocess.run(
            [java, "--list-modules"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise NoJava(f"{java} cannot be started ({error.strerror})") from None
    version = BASE.search(listed.stdout)
    if listed.returncode or version is None:
        raise NoJava(f"{java} is older, or no Java")  # before Java 9 there were no modules
    if int(version[1]) < JAVA_MIN:
        raise NoJava(f"{java} is Java {version[1]}")
    if f"{MODULE}@" not in listed.stdout:
        raise NoJava(f"{java} lacks it")
    return java
