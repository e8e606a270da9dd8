#!/usr/bin/env python3
"""A page about a journal: latency, what waits, throughput, the biggest transactions, lag.

python tools/report.py DIR [OUT.html]

It reads the directory with Spark, beside a running engine if there is one, and writes nothing
there. The page, report.html unless named otherwise, needs neither Spark nor a network.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("out", metavar="OUT.html", nargs="?", default="report.html", type=Path)
    arguments = parser.parse_args()
    try:
        from fmq.report import page_of, read
        from fmq.spark import session

        quiet = {"spark__ui__enabled": "false", "spark__ui__showConsoleProgress": "false"}
        spark = session("fmq report", **quiet)
        spark.sparkContext.setLogLevel("ERROR")
        arguments.out.write_text(page_of(read(spark, arguments.dir)), "utf-8")
    except (fmq.FmqError, ImportError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 3
    print(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
