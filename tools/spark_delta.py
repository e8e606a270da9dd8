"""Spark 4.2.0 and Delta's own jars for it: `python tools/spark_delta.py` brings them, once.

The jars come by Maven, and have to be those of `spark_delta.sha256`. This PySpark lies in a folder
of its own in the environment of the checkout, whose own one is newer: Delta has no jar for that.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.kafka import bring

VERSION = "4.4.0"
PYSPARK = "pyspark==4.2.0"
PYSPARK_HASH = "sha256:5ad689d53570ee1674193fd4f9bda065f0db3be9363a27d2a3406cc457b70b61"
FOLDER = Path(__file__).resolve().parent.parent / ".venv" / f"delta-{VERSION}"
PYTHON = FOLDER / "python"
"""What has to be in the path of a Python that is to have this PySpark."""
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>fmq</groupId><artifactId>delta</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>io.delta</groupId><artifactId>delta-spark_4.2_2.13</artifactId>
<version>{VERSION}</version></dependency></dependencies></project>"""
OWN_JARS = "-DincludeGroupIds=io.delta,io.unitycatalog"
"""All others that Delta names are those of Spark."""
SETTINGS = {
    "spark__sql__extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark__sql__catalog__spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def settings() -> dict[str, str]:
    """Return what a session of Spark needs for Delta, once all is there."""
    return SETTINGS | {"spark__jars": ",".join(map(str, sorted(FOLDER.glob("*.jar"))))}


def fetch() -> str:
    """Bring what is not there. Return why it is not to be had; empty if all is there."""
    if missing := bring("Delta", FOLDER, POM, Path(__file__).with_suffix(".sha256"), OWN_JARS):
        return missing
    if (PYTHON / "pyspark").exists():
        return ""
    asked = FOLDER / "pyspark.txt"
    asked.write_text(f"{PYSPARK} --hash={PYSPARK_HASH}\n")
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    made = FOLDER / "made"
    done = subprocess.run(
        [*line, "--target", str(made), "-r", str(asked)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"pip did not bring {PYSPARK}: {done.stderr[-500:]}"
    made.rename(PYTHON)
    return ""


if __name__ == "__main__":
    sys.exit(fetch() or None)
