"""Make `fmq.open` return a client of an engine that this process serves: for the documents' code.

Run with `python -c "import tests.remote.through_socket; ..."`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fmq

_open = fmq.open


def through_socket(
    path: Any,
    options: fmq.Options | None = None,
    *,
    read_only: bool = False,
    resolve: Mapping[str, object] | None = None,
    **others: Any,
) -> Any:
    """Return a client whose close ends the engine, too; a reader as it is."""
    if read_only:
        return _open(path, options, read_only=True, **others)
    engine = _open(path, options, **others)
    try:
        engine.serve()
        client = fmq.connect(path, resolve=resolve, start=False)
    except BaseException:
        engine.close()
        raise
    close = client.close

    def close_both() -> None:
        close()
        engine.close()

    client.close = close_both  # type: ignore[method-assign]
    client.serve = engine.serve  # type: ignore[attr-defined]
    return client


fmq.open = through_socket
