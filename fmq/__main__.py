"""`python -m fmq` is the command `fmq`."""

import sys

from fmq.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
