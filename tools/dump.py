#!/usr/bin/env python3
"""The raw journal of a directory, a line per record: `fmq records` from the checkout.

python tools/dump.py DIR [--from POSITION] [--limit N] [--kind K] [--topic T] [--tx ID]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fmq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["records", *sys.argv[1:]]))
