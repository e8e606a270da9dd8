"""`crash`: runs a program, crashes it wherever that can make a difference, and checks what is
left.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import fmq
from fmq.testing.crash_report import CrashReport
from fmq.testing.lives import Lives
from fmq.testing.world import Act

STATES_MAX = 8


def crash(
    workload: Act,
    check: Act,
    *,
    recover: Act | None = None,
    setup: Act | None = None,
    options: fmq.Options | None = None,
    seed: int = 0,
    states_max: int = STATES_MAX,
    only: str | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> CrashReport:
    """Crash `workload` at each point where that makes a difference. `check` must hold after each
    crash.

    Each function is called with an engine and a World. `setup` runs before the first crash
    point; `recover` is what the program does first when it starts again, and is crashed, too.
    At each point the process is killed, and the power fails in `states_max` ways that `seed`
    chooses. `only` tries the one state that a CrashFailure has named. What the crash left that
    broke the program is put into a new directory in `keep`.
    """
    with TemporaryDirectory(prefix="fmq-crash-") as home:
        lives = Lives(Path(home), check, recover, options, None if keep is None else Path(keep))
        points = lives.first(workload, setup)
        if only is not None:
            lives.try_one(points, only)
        else:
            lives.try_all(points, states_max, seed)
        return lives.report
