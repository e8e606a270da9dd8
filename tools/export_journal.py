#!/usr/bin/env python3
"""Export journals with Spark: `fmq export --engine spark` from the checkout, for spark-submit.

spark-submit tools/export_journal.py DIR [DIR ...] OUT [--format parquet] [--view messages]

Each executor needs the same paths, and fmq: on another machine, in a checkout there,
`pip install . 'fmq-engine[spark]'`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fmq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["export", "--engine", "spark", *sys.argv[1:]]))
