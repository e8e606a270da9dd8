"""Write vectors.json anew: what RocketMQ's own classes return.

    python tests/allocation/make_vectors.py CHECKOUT

CHECKOUT is a directory with the sources of github.com/apache/rocketmq. Its strategies are compiled
as they are, with Vectors.java and with the few lines below in place of the libraries that they
import. It needs a JDK, 8 or later.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
COMMIT = "8fc57f1468d182eea11c01e089c0250d647dc5f3"

SOURCES = [
    "client/src/main/java/org/apache/rocketmq/client/consumer/AllocateMessageQueueStrategy.java",
    "client/src/main/java/org/apache/rocketmq/client/consumer/rebalance/*.java",
    "common/src/main/java/org/apache/rocketmq/common/consistenthash/*.java",
    "common/src/main/java/org/apache/rocketmq/common/message/MessageQueue.java",
]

# What the strategies use of their libraries: none of it decides who gets a queue.
STAND_INS = {
    "org.apache.commons.collections.CollectionUtils": """
        public static boolean isEmpty(java.util.Collection<?> values) {
            return values == null || values.isEmpty();
        }
    """,
    "org.apache.commons.lang3.StringUtils": """
        public static boolean isEmpty(CharSequence s) { return s == null || s.length() == 0; }
        public static boolean isNoneEmpty(CharSequence s) { return !isEmpty(s); }
    """,
    "org.apache.rocketmq.logging.org.slf4j.Logger": """
        public void info(String format, Object... values) { }
    """,
    "org.apache.rocketmq.logging.org.slf4j.LoggerFactory": """
        public static Logger getLogger(Class<?> kind) { return new Logger(); }
    """,
}


def make(checkout: Path, work: Path) -> str:
    files = [str(HERE / "Vectors.java")]
    for pattern in SOURCES:
        found = [str(path) for path in sorted(checkout.glob(pattern))]
        assert found, f"{checkout} has no {pattern}"
        files += found
    for name, body in STAND_INS.items():
        package, _, kind = name.rpartition(".")
        file = work / f"{name.replace('.', '/')}.java"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"package {package};\npublic class {kind} {{{body}}}\n")
        files.append(str(file))
    compiled = str(work / "classes")
    subprocess.run(["javac", "-encoding", "UTF-8", "-d", compiled, *files], check=True)
    java = ["java", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", compiled, "Vectors"]
    return subprocess.run(java, check=True, capture_output=True, encoding="utf-8").stdout


def main() -> None:
    with TemporaryDirectory() as work:
        cases = make(Path(sys.argv[1]), Path(work))
    origin = {
        "repository": "github.com/apache/rocketmq",
        "commit": COMMIT,
        "classes": SOURCES,
        "command": "python tests/allocation/make_vectors.py CHECKOUT",
    }
    text = f'{{"origin": {json.dumps(origin, indent=2)},\n"cases": [\n{cases.strip()}\n]}}\n'
    json.loads(text)
    (HERE / "vectors.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
