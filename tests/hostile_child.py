"""Opens the directories named on its command line, in a process with little memory and time.

It prints a line of JSON for each: `refused`, `shown`, or what else came out, which must not be.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
import traceback

import fmq
from fmq.errors import FmqError
from tests.story import look, options

MEMORY_BYTES = 512 << 20
SECONDS_EACH = 60


def survive(path: str) -> str:
    """Open and read everything in three ways, each closed afterwards. Return what came of it."""
    verdicts = set()
    for way in (check, read_only, read_and_write):
        try:
            verdicts.add(way(path))
        except FmqError:
            verdicts.add("refused")
        except BaseException:
            return traceback.format_exc()
    return "shown" if "shown" in verdicts else "refused"


def check(path: str) -> str:
    return "shown" if fmq.check(path).ok else "refused"


def read_only(path: str) -> str:
    with fmq.open(path, read_only=True) as reader:
        look(reader)
    return "shown"


def read_and_write(path: str) -> str:
    with fmq.open(path, options(), background=False) as engine:
        look(engine)
        engine.send("audit", b"life goes on")
    return "shown"


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for directory in sys.argv[1:]:
        faulthandler.dump_traceback_later(SECONDS_EACH, exit=True)
        print(json.dumps([directory, survive(directory)]), flush=True)
