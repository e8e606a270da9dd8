#!/usr/bin/env python3
"""Prove a directory sound, writing nothing: `fmq verify` from the checkout; 1 if it is not.

python tools/verify.py DIR
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fmq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["verify", *sys.argv[1:]]))
